"""Further tiles of plain products, for launches of whose rounds they leave less unused than the table's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.asynchronous import ORDERS, Program
from tests.emulator.test_samples import SAMPLES
from tests.passes.test_asynchronous import product
from tilec.compiler import compile_file
from tilec.emulator.machine import EmulatedModule
from tilec.source.diagnostics import TileError
from tilec.toolchain.cache import default_cache

OPEN = ("BM = 64, BN = 64, BK = 32", "BM = auto, BN = auto, BK = auto")
AUTO = product(OPEN)
TURNED = product(OPEN, ("b: bf16[K, N]", "b: bf16[N, K]"), ("b[k, j]", "b[j, k].T"))
EPILOGUE = product(OPEN, ("(a:", "(d: bf16[N], a:"), ("= acc", "= maximum(acc + d[j], 0.0)"))
EVEN, NARROW, SMALL = (f"k_kernel_even_{x}" for x in ("192x160", "128x192", "128x128"))


def program(text: str, folder: Path) -> Program:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return Program(path)


@pytest.mark.parametrize("text", [AUTO, TURNED, EPILOGUE], ids=["plain", "turned", "epilogue"])
def test_a_launch_takes_them_where_their_rounds_take_less(text: str, tmp_path: Path) -> None:
    found = program(text, tmp_path)
    sizes = {low.name: dict(low.constants) for low in found.kernel.lowered["sm_90a"]}
    assert [sizes[EVEN][n] for n in ("BM", "BN", "BK")] == [192, 160, 64]
    assert [sizes[NARROW][n] for n in ("BM", "BN", "BK")] == [128, 192, 64]
    for rows, columns, name in (
        (4000, 4000, EVEN),  # 4 rounds of each
        (4096, 4096, "k_kernel"),  # 5 rounds where the table's tiles have 4
        (4096, 14336, "k_kernel"),  # 15 and 14, as many clocks
        (2048, 2048, "k_kernel"),  # 2 and 1
        (3008, 3008, NARROW),  # 3 rounds of each
        (1024, 1024, SMALL),  # 1 round of each
        (6016, 6016, SMALL),  # 17 of half as long as 9
        (1920, 1760, EVEN),  # 110 tiles, 1 round; 140 of the narrow ones
    ):
        (launched,) = found.launched({"M": rows, "N": columns, "K": 4096})
        assert launched == name, (rows, columns)
    assert found.launched({"M": 4000, "N": 3999, "K": 4096})[-1] in (
        "k_kernel_copied",
        "k_kernel_any_out",
    )
    # rows that begin inside a sector of the L2
    assert found.launched({"M": 4000, "N": 4000, "K": 4008}) == ("k_kernel",)


@pytest.mark.parametrize("text", [AUTO, TURNED, EPILOGUE], ids=["plain", "turned", "epilogue"])
def test_they_verify(text: str, tmp_path: Path) -> None:
    found = program(text, tmp_path)
    # that many tiles take the emulator seconds: the others run in the order that is least like the others
    orders = () if text == AUTO else ORDERS[-1:]
    for sizes, name in (
        ({"M": 380, "N": 66 * 160 - 32, "K": 96}, EVEN),
        ({"M": 256, "N": 45 * 192 - 32, "K": 64}, NARROW),
        ({"M": 200, "N": 160, "K": 160}, SMALL),
    ):
        assert found.run(sizes, orders=orders).launched == (name,)


@pytest.mark.parametrize(
    ("changes", "defines"),
    [
        ((), {"BM": 128}),
        ((("    for i, j", "    schedule warps = 8\n    for i, j"),), {}),
        # some tiles have more trips than others
        ((("range(K by BK)", "range(0 : min(K, i.stop) by BK)"),), {}),
        # two products of one loop
        ((("acc += a[i, k] @ b[k, j]", "acc += a[i, k] @ b[k, j] + a[i, k] @ b[k, j]"),), {}),
    ],
)  # fmt: skip
def test_what_has_none(
    changes: tuple[tuple[str, str], ...], defines: dict[str, int], tmp_path: Path
) -> None:
    path = tmp_path / "k.tile"
    path.write_text(product(OPEN, *changes), encoding="utf-8")
    words = {n: str(v) for n, v in defines.items()}
    text = compile_file(str(path), archs=("sm_90a",), defines=words).cu
    assert "k_kernel_even" not in text and "k_kernel(" in text


def test_a_result_of_32_bits_has_those_that_leave_under_the_next_loop(tmp_path: Path) -> None:
    found = program(product(OPEN, ("c: bf16", "c: f32")), tmp_path)
    names = {low.name for low in found.kernel.lowered["sm_90a"]}
    assert EVEN not in names and {NARROW, SMALL} < names
    assert found.run({"M": 200, "N": 160, "K": 160}).launched == (SMALL,)


def test_no_cluster_is_beside_an_odd_number_of_tiles() -> None:
    (kernel,) = compile_file(
        str(SAMPLES / "gemm.tile"), kernel="gemm_nn", archs=("sm_90a",)
    ).kernels
    clusters = {low.name: low.cluster for low in kernel.lowered["sm_90a"]}
    assert clusters["gemm_nn_kernel_even_192x160"] == 1 and clusters["gemm_nn_kernel"] == 2


def test_the_first_chunk_waits_for_the_last_tiles_last_one() -> None:
    """Five chunks in four slots: the emulator sees who writes a slot that a store has not read."""
    found = Program(SAMPLES / "gemm.tile", "gemm_nn", {"BM": 192, "BN": 160, "BK": 32})
    text = found.file.cu
    assert "send_chunk<0>(" in text
    sooner = EmulatedModule(
        "gemm.tile", text.replace("send_chunk<0>(", "send_chunk<1>("), default_cache()
    )
    sizes = {"M": 600, "N": 328, "K": 40}
    found.run(sizes, orders=ORDERS[:1])
    with pytest.raises(TileError) as error:
        found.run(sizes, orders=ORDERS[:1], module=sooner)
    assert error.value.diagnostics[0].code.startswith("E09")
