"""Products whose consumed axis CTAs of a cluster share, on the emulator in every order; what is split so, and what is not."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.asynchronous import Program
from tests.passes.scheduled import Source
from tests.passes.test_few_rows import tiles
from tilec.compiler import compile_file
from tilec.ir import exchanges as e
from tilec.ir import kernel_ir as k
from tilec.ir.asynchronous import BarrierWait, RingAdvance
from tilec.ir.shares import AddShare, ExpectShare, SendShare
from tilec.jobs.explaining import ExplainRequest, explain_file
from tilec.passes.asynchronous import Asynchronous

PRODUCT = """kernel k[ROWS = 64, BM = auto, BN = auto, BK = auto](a: bf16[M, K], b: bf16[K, N]) -> c: bf16[M, N]:
    require M <= ROWS
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
    check c == a @ b
"""
TRANSPOSED = PRODUCT.replace("b: bf16[K, N]", "b: bf16[N, K]").replace("b[k, j]", "b[j, k].T")
TRANSPOSED = TRANSPOSED.replace("== a @ b", "== a @ b.T")
GIVEN = "ROWS = 128, BM = 128, BN = 128, BK = 64"
TWO_WARPGROUPS = TRANSPOSED.replace("ROWS = 64, BM = auto, BN = auto, BK = auto", GIVEN)
BYTES = TRANSPOSED.replace("bf16[M, K]", "i8[M, K]").replace("bf16[N, K]", "i8[N, K]")
BYTES = BYTES.replace("c: bf16", "c: i32").replace("zeros(f32", "zeros(i32")
BYTES = BYTES.replace("a @ b.T", "a.to(i32) @ b.to(i32).T")
SHORT_COLUMNS = TRANSPOSED.replace("M <= ROWS", "N <= ROWS")
BATCHES = """kernel k[BM = auto, BN = auto, BK = auto](a: f16[Z, M, K], b: f16[Z, N, K], bias: f32[N], r: f16[Z, M, N]) -> (c: f16[Z, M, N], d: f32[Z, N, M]):
    require M <= 64
    for z, i, j in parallel(Z, M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[z, i, k] @ b[z, j, k].T
        c[z, i, j] = max(acc + bias[j][None, :] + r[z, i, j].to(f32), 0.0)
        d[z, j, i] = acc.T
"""
CASES: dict[str, tuple[str, dict[str, int], tuple[tuple[int, int, int], ...]]] = {
    "plain": (PRODUCT, {}, ((61, 520, 328), (64, 256, 8))),
    "transposed": (TRANSPOSED, {}, ((64, 128, 128), (3, 393, 192))),
    "two warpgroups": (TWO_WARPGROUPS, {}, ((128, 264, 264), (70, 513, 64))),
    "bytes": (BYTES, {}, ((64, 264, 400),)),
    "batches": (BATCHES, {"Z": 2}, ((40, 200, 136),)),
    "short columns": (SHORT_COLUMNS, {}, ((264, 59, 200),)),
}


def flat(ops: tuple[k.Op, ...]) -> Iterator[k.Op]:
    """All ops, those inside others behind them."""
    for op in ops:
        yield op
        for name in ("producer", "consumer", "body", "then", "otherwise"):
            yield from flat(getattr(op, name, ()))


def compiled(text: str, folder: Path) -> k.Kernel:
    """The aligned variant for any number of columns."""
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    (kernel,) = compile_file(str(path), archs=("sm_90a",)).kernels
    return next(x for x in kernel.lowered["sm_90a"] if x.name == "k_kernel")


def form(text: str, folder: Path, **defines: int) -> Asynchronous:
    found = Source(text, folder, defines).form()
    assert isinstance(found, Asynchronous), found
    return found


@pytest.mark.parametrize("name", list(CASES))
def test_every_order_has_the_right_sums(name: str, tmp_path: Path) -> None:
    text, extra, sizes = CASES[name]
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    program = Program(path)
    kernel = next(x for x in program.kernel.lowered["sm_90a"] if x.name == "k_kernel")
    assert kernel.cluster == 2 and any(isinstance(op, AddShare) for op in flat(kernel.body))
    for m, n, depth in sizes:
        ran = program.run({"M": m, "N": n, "K": depth, **extra})
        assert set(ran.launched) <= program.asynchronous


def test_a_warpgroup_takes_or_gives(tmp_path: Path) -> None:
    kernel = compiled(TWO_WARPGROUPS, tmp_path)
    ops = list(flat(kernel.body))
    (loops,) = {(x.name, x.step) for x in ops if isinstance(x, k.Loop)}
    assert loops == ("k_tile", 2) and kernel.cluster_digit == ""
    (branch,) = (
        x
        for x in ops
        if isinstance(x, k.IfUniform) and any(isinstance(y, AddShare) for y in x.then)
    )
    assert [type(x) for x in branch.otherwise] == [BarrierWait, SendShare, RingAdvance]
    assert any(isinstance(x, k.StoreVector) for x in flat(branch.then))
    expect = branch.then[0]
    assert isinstance(expect, ExpectShare) and expect.bytes == 64 * 128 * 4
    # all CTAs of the cluster are there before one sends, and none waits for another one's end
    assert sum(isinstance(x, e.ClusterWait) for x in ops) == 1
    path = tmp_path / "k.tile"
    text = compile_file(str(path), archs=("sm_90a",)).cu
    body = text[text.index("// kernel begin") :].split("__device__ __forceinline__ void k_body")[1]
    assert "cluster_sync();" not in body
    assert body.index("cluster_arrive();") < body.index("cluster_wait();")
    assert "if (more) {" in body


def test_explain_says_what_is_shared_and_why(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "k.tile"
    path.write_text(TWO_WARPGROUPS, encoding="utf-8")
    assert explain_file(ExplainRequest(str(path), arch="sm_90a", tuned=False)) == 0
    said = capsys.readouterr().out
    assert "split: 2 CTAs of a cluster share the trips of k_tile" in said
    assert "32768 bytes of sums a tile: 2 bytes come to a multiprocessor for each of b, 3" in said
    path.write_text(TRANSPOSED.replace("ROWS = 64", "ROWS = 16"), encoding="utf-8")
    assert explain_file(ExplainRequest(str(path), arch="sm_90a", tuned=False)) == 0
    assert "split:" not in capsys.readouterr().out


EPILOGUES = {
    "a sum of the tile": "        d[i] = sum(acc, 1)\n",
    "another loop": "        for n in range(3):\n            d[i] = 1.0 * n\n",
}


@pytest.mark.parametrize("name", list(EPILOGUES))
def test_what_is_not_split_has_narrow_tiles(name: str, tmp_path: Path) -> None:
    text = TRANSPOSED.replace("-> c: bf16[M, N]:", "-> (c: bf16[M, N], d: f32[M]):")
    text = text.replace("        c[i, j] = acc\n", "        c[i, j] = acc\n" + EPILOGUES[name])
    text = text.replace("    check c == a @ b.T\n", "")
    assert form(text, tmp_path).split is None
    assert tiles(text, tmp_path)[1] != 128


@pytest.mark.parametrize(("rows", "own"), [(64, (64, 64, 128)), (128, (128, 64, 64))])
def test_what_no_map_takes_has_the_tiles_of_one_cta(
    rows: int, own: tuple[int, ...], tmp_path: Path
) -> None:
    path = tmp_path / "k.tile"
    path.write_text(TRANSPOSED.replace("ROWS = 64", f"ROWS = {rows}"), encoding="utf-8")
    (kernel,) = compile_file(str(path), archs=("sm_90a",)).kernels
    sizes = {low.name: dict(low.constants) for low in kernel.lowered["sm_90a"]}
    assert tuple(sizes["k_kernel_any"].values()) == own
    assert tuple(sizes["k_kernel"].values()) == (rows, 128, 64)
    assert tuple(sizes["k_kernel_wide"].values()) == (rows, 256, 64)
    paired = sizes.get("k_kernel_paired")
    assert (tuple(paired.values()) if paired else None) == ((64, 128, 64) if rows == 128 else None)


def test_tiles_that_one_cta_reads_by_itself(tmp_path: Path) -> None:
    assert form(TRANSPOSED, tmp_path, ROWS=32).split is None
    assert form(TRANSPOSED, tmp_path, BN=64).split is None
    # a tile as wide as the table's is shared too, whoever chose it, and a wider one needs little of the other operand
    assert form(TRANSPOSED, tmp_path, ROWS=16, BN=128).split is not None
    assert form(TRANSPOSED, tmp_path, ROWS=16, BN=256).split is None
