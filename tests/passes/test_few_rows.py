"""Products with few rows: tile sizes, operand swap, what is read once, and what is stored across the lanes' pairs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.emulator.asynchronous import Program
from tests.passes.ptxas import said_of
from tests.passes.scheduled import Source
from tests.passes.test_asynchronous import PRODUCT, flat, form_of, lowered, product
from tilec.compiler import analyse_file, compile_file
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k

AUTO = product(("BM = 64, BN = 64, BK = 32", "ROWS = 16, BM = auto, BN = auto, BK = auto"))
BOUNDED = AUTO.replace("    for i, j", "    require M <= ROWS\n    for i, j")
FEW = {"BM": 16}

# ---- tile sizes


def tiles(text: str, folder: Path, arch: str = "sm_90a", **defines: Any) -> list[int]:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    words = {n: str(v) for n, v in defines.items()}
    _, (found, *_), _ = analyse_file(str(path), defines=words, arch=arch)
    values = found.candidate.values
    return [int(str(values[n])) for n in ("BM", "BN", "BK")]


@pytest.mark.parametrize(
    ("rows", "found"),
    [(1, [8, 64, 128]), (9, [16, 64, 128]), (32, [32, 64, 128]), (64, [64, 128, 64]), (128, [128, 128, 64]), (129, [128, 256, 64])],
)  # fmt: skip
def test_a_bound_on_the_rows_chooses_tiles(rows: int, found: list[int], tmp_path: Path) -> None:
    assert tiles(BOUNDED, tmp_path, ROWS=rows) == found


def test_other_ways_to_say_how_many(tmp_path: Path) -> None:
    constant = AUTO.replace("[M, ", "[16, ").replace("parallel(M", "parallel(16")
    assert tiles(constant, tmp_path) == [16, 64, 128]
    short_columns = BOUNDED.replace("M <= ROWS", "N <= ROWS")
    assert tiles(short_columns, tmp_path) == [64, 16, 128]
    # both sides are short: there is nothing to stream
    assert tiles(BOUNDED.replace("M <=", "N <= 64 and M <="), tmp_path) == [128, 256, 64]


def test_what_keeps_the_tables_tiles(tmp_path: Path) -> None:
    assert tiles(AUTO, tmp_path) == [128, 256, 64]
    assert tiles(BOUNDED, tmp_path, BM=64) == [64, 64, 128]
    # what the form with warpgroups does not take
    gathered = BOUNDED.replace("a[i, k] @", "a.at[i[:, None], k[None, :]] @")
    assert tiles(gathered, tmp_path) == [128, 128, 64]
    # a copy of an operand that is read once does not pay
    computed = BOUNDED.replace("a[i, k] @", "(a[i, k] * 2.0) @")
    assert tiles(computed, tmp_path) == [128, 256, 64]


@pytest.mark.parametrize(
    ("name", "deep"), [("f16", 64), ("f8e4m3", 128), ("i8", 128), ("tf32", 32)]
)
def test_the_consumed_axis_is_counted_in_bytes(name: str, deep: int, tmp_path: Path) -> None:
    text = of_kind(name)
    head = text[text.index("[") : text.index("]") + 1]
    text = text.replace(head, "[BM = auto, BN = auto, BK = auto]")
    assert tiles(text, tmp_path) == [128, 256, deep]
    assert tiles(text, tmp_path, BM=128, BN=128, BK=32) == [128, 128, 32]
    # products of warps
    assert tiles(text, tmp_path, arch="sm_90") == [256, 128, deep]
    few = text.replace("    for i, j", "    require M <= 16\n    for i, j")
    assert tiles(few, tmp_path) == [16, 64, 2 * deep]


@pytest.mark.parametrize(
    ("rows", "b", "right", "wide"),
    [
        (8, "bf16[K, N]", "b[k, j]", True),
        (32, "bf16[K, N]", "b[k, j]", True),
        (8, "bf16[N, K]", "b[j, k].T", False),
        (64, "bf16[N, K]", "b[j, k].T", True),
    ],
)
def test_wide_tiles_read_longer_runs_of_memory(
    rows: int, b: str, right: str, wide: bool, tmp_path: Path
) -> None:
    text = BOUNDED.replace("b: bf16[K, N]", f"b: {b}").replace("@ b[k, j]", f"@ {right}")
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    program = Program(path, None, {"ROWS": rows})
    sizes = {low.name: dict(low.constants) for low in program.kernel.lowered["sm_90a"]}
    assert ("k_kernel_wide" in sizes) is wide
    if wide:
        assert [sizes["k_kernel_wide"][n] for n in ("BM", "BN", "BK")] == [rows, 256, 64]
    # 112 tiles for 132 multiprocessors, and 32
    for columns, filled in ((28672, True), (8192, False)):
        (launched,) = program.launched({"M": 1, "N": columns, "K": 8192})
        assert (launched == "k_kernel_wide") is (wide and filled)


def test_wide_tiles_of_few_rows_verify(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(BOUNDED, encoding="utf-8")
    ran = Program(path, None, {"ROWS": 8}).run({"M": 3, "N": 99 * 256 - 8, "K": 72}, checked=False)
    assert ran.launched == ("k_kernel_wide",)


# ---- operand swap


def test_few_rows_are_columns_of_the_instruction(tmp_path: Path) -> None:
    kernel = lowered(PRODUCT, tmp_path, **FEW)
    (op,) = (x for x in flat(kernel.body) if isinstance(x, a.WarpgroupProduct))
    assert isinstance(op.a, k.TileAddress)
    assert (op.a.buffer, op.b.buffer) == ("b_tiles", "a_tiles")
    assert (op.a_transposed, op.b_transposed) == (True, False)
    assert (op.columns, op.blocks) == (16, 1)
    assert form_of(PRODUCT, tmp_path, BM=64).products.swapped is False


@pytest.mark.parametrize(
    ("rows", "columns", "width"), [(1, 64, 8), (8, 64, 8), (24, 128, 32), (48, 256, 48)]
)
def test_widths_of_the_instruction(rows: int, columns: int, width: int, tmp_path: Path) -> None:
    kernel = lowered(PRODUCT, tmp_path, BM=rows, BN=columns)
    found = {x.columns for x in flat(kernel.body) if isinstance(x, a.WarpgroupProduct)}
    assert found == {width}
    assert kernel.threads == 128 + min(256, 2 * columns)


KINDS = {
    "f16": ("f16", "f16", "f32", 64, "a[i, k] @ b[j, k].T", "a @ b.T"),
    "f8e4m3": ("f8e4m3", "bf16", "f32", 128, "a[i, k] @ b[j, k].T", "a @ b.T"),
    "i8": ("i8", "i32", "i32", 128, "a[i, k] @ b[j, k].T", "a.to(i32) @ b.to(i32).T"),
    "u8": ("u8", "i32", "i32", 64, "a[i, k] @ b[j, k].T", "a.to(i32) @ b.to(i32).T"),
    "tf32": ("f32", "f32", "f32", 32, "dot(a[i, k], b[j, k].T, as = tf32)", "a @ b.T"),
}


def of_kind(name: str) -> str:
    kind, out, total, depth, multiplied, checked = KINDS[name]
    return f"""kernel k[BM = 16, BN = 64, BK = {depth}](a: {kind}[M, K], b: {kind}[N, K]) -> c: {out}[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros({total}, i, j)
        for k in range(K by BK):
            acc += {multiplied}
        c[i, j] = acc
    check c == {checked}
"""


@pytest.mark.parametrize("rows", [8, 16, 24, 40])
@pytest.mark.parametrize("name", list(KINDS))
def test_all_operands_verify(name: str, rows: int, tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(of_kind(name), encoding="utf-8")
    program = Program(path, None, {"BM": rows})
    for m, n, depth in ((rows, 136, 144), (5, 80, 80), (rows + 3, 72, 16)):
        ran = program.run({"M": m, "N": n, "K": depth})
        assert set(ran.launched) <= program.asynchronous


EPILOGUE = """kernel k[BM = 16, BN = 64, BK = 64](a: bf16[M, K], b: bf16[N, K], bias: f32[N], s: f32[M], r: bf16[M, N], alpha: f32) -> (c: bf16[M, N], d: f32[M, N], e: bf16[N, M]):
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[j, k].T
        x = (acc * alpha + bias[j][None, :]) * s[i][:, None] + r[i, j].to(f32)
        c[i, j] = max(x, 0.0)
        d[i, j] = acc
        e[j, i] = x.T
"""
BATCHES = """kernel k[BM = 16, BN = 64, BK = 64](a: bf16[Z, M, K], b: bf16[Z, K, N]) -> c: bf16[Z, M, N]:
    for z, i, j in parallel(Z, M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += (a[z, i, k] @ b[z, k, j]) * 0.5
        c[z, i, j] = acc
    check c == 0.5 * (a @ b)
"""


@pytest.mark.parametrize(("text", "extra"), [(EPILOGUE, {"alpha": 0.3}), (BATCHES, {"Z": 3})])
def test_epilogues_verify(text: str, extra: dict[str, float], tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    program = Program(path)
    for m, n, depth in ((16, 136, 136), (5, 72, 72), (40, 200, 8)):
        ran = program.run({"M": m, "N": n, "K": depth, **extra})
        assert set(ran.launched) <= program.asynchronous


def test_16_bit_results_leave_in_pairs(tmp_path: Path) -> None:
    ops = list(flat(lowered(EPILOGUE, tmp_path).body))
    turned = [x.source.name for x in ops if isinstance(x, k.TransposeBlock)]
    joined = [x.target.name for x in ops if isinstance(x, k.GatherLine)]
    # of three results one has 32 bits, and one lies as the registers do
    assert (turned, joined) == (["c_out"], [])


# ---- what the grid reads once


def policies(text: str, folder: Path, **defines: int) -> dict[str, str]:
    """The conditions of cache policies by name, as C++."""
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    words = {n: str(v) for n, v in defines.items()}
    compiled = compile_file(str(path), defines=words, archs=("sm_90a",)).cu
    lines = " ".join(compiled.split()).split("const uint64_t ")
    found = [line.split(";")[0].split(" = cache_policy(") for line in lines]
    return {part[0]: part[1][:-1] for part in found if len(part) == 2}


def test_what_is_read_once_leaves_the_cache_first(tmp_path: Path) -> None:
    assert policies(PRODUCT, tmp_path) == {}
    assert policies(BOUNDED, tmp_path) == {"b_policy": "int64_t{K} * N * 2 <= 209715200"}
    # more rows than a tile's: read several times, which the launch finds out
    assert policies(PRODUCT, tmp_path, **FEW) == {
        "b_policy": "ceil_div(M, BM) == 1 && int64_t{K} * N * 2 <= 209715200"
    }
    again = PRODUCT.replace(
        "        for k in range(K by BK):\n            acc",
        "        for n in range(M):\n            for k in range(K by BK):\n                acc",
    )
    assert policies(again, tmp_path, **FEW) == {}


def test_streams_share_nothing_and_have_deep_rings(tmp_path: Path) -> None:
    for defines in ({"BM": 16}, {"BM": 8, "BK": 64}, {"BM": 32, "BK": 128}):
        form = form_of(PRODUCT, tmp_path, **defines)
        (channel,) = form.channels
        under_way = channel.slots * channel.members[1].bytes
        assert form.sharing is None and len(form.streams) == 1
        assert under_way >= 80 << 10 and channel.slots >= 5
    found = Source(BOUNDED, tmp_path, {"ROWS": 64}).form()
    assert not isinstance(found, str) and found.sharing is None and len(found.streams) == 1
    assert form_of(PRODUCT, tmp_path, BM=128).sharing is not None


@pytest.mark.parametrize("name", ["f16", "f8e4m3", "i8", "tf32"])
def test_ptxas_says_nothing(name: str, tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(of_kind(name), encoding="utf-8")
    text = compile_file(str(path), archs=("sm_90a",)).cu
    assert said_of(text, "_any") == ()


# ---- kernels that begin early


def test_kernels_that_begin_early_wait_before_they_touch_memory(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(BOUNDED, encoding="utf-8")
    compiled = compile_file(str(path), archs=("sm_90a",))
    (kernel,) = compiled.kernels
    text = compiled.cu[compiled.cu.index("// kernel begin") : compiled.cu.index("// kernel end")]
    bodies = text.split("__device__ __forceinline__ void k_body")[1:]
    early = [body for body in bodies if "wait_prerequisites();" in body]
    assert len(early) == 3 and len(bodies) == 4
    for body in early:
        waited = body.index("wait_prerequisites();")
        # all threads meet behind it, and nothing is read or written in front of it
        assert body.index("launch_dependents();") < waited < body.index("__syncthreads();")
        for access in ("tensor_load(", "tensor_load_hinted(", "store_element(", "store_aligned("):
            assert body.find(access) == -1 or body.index(access) > waited
    flags = {low.name: low.early for low in kernel.lowered["sm_90a"]}
    products = {name: early for name, early in flags.items() if "copy" not in name}
    assert products == {
        "k_kernel_wide": True,
        "k_kernel": True,
        "k_kernel_any_out": True,
        "k_kernel_copied": True,
        "k_kernel_any": False,
    }
    assert not any(early for name, early in flags.items() if name not in products)
    (step,) = kernel.plan.targets[-1].steps
    assert [(x.early, x.even) for x in step.launches] == [(f, f) for f in products.values()]
    # with rows enough nothing is a stream
    path.write_text(PRODUCT, encoding="utf-8")
    assert "wait_prerequisites" not in compile_file(str(path), archs=("sm_90a",)).cu


GROUPED = """kernel k(q: bf16[H, M, K], w: bf16[G, N, K]) -> c: bf16[H, M, N]:
    require M <= 16
    for h, i, j in parallel(H, M by 16, N by 64):
        acc = zeros(f32, i, j)
        for k in range(K by 64):
            acc += q[h, i, k] @ w[h // 4, j, k].T
        c[h, i, j] = acc
"""


def test_what_neighbours_read_too_is_no_stream_for_sure(tmp_path: Path) -> None:
    found = policies(GROUPED, tmp_path)
    # each matrix is for four of them: no launch with more than one has it read once
    assert list(found) == ["w_policy"] and found["w_policy"].startswith("H == 1 && ")
    own = policies(GROUPED.replace("h // 4", "h"), tmp_path)
    assert list(own) == ["w_policy"] and not own["w_policy"].startswith("H")
