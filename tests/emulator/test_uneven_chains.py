"""Chained products behind a bound that crosses the key blocks: four warpgroups and narrow steps, chosen without a word of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.asynchronous import Program
from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file
from tilec.targets.rates import TILE_CLOCKS, step_clocks

SAMPLE = Path(__file__).resolve().parents[2] / "samples" / "attention.tile"


def tiles(**defines: str) -> dict[str, int]:
    """What `auto` chose."""
    (kernel,) = compile_file(
        str(SAMPLE), archs=("sm_90a",), defines=defines, stop="kernel-ir"
    ).kernels
    return {n: kernel.program.tiles[n] for n in ("BM", "BN")}


def test_a_bound_that_moves_with_the_rows_takes_narrow_steps() -> None:
    assert tiles(D="64", CAUSAL="true") == {"BM": 256, "BN": 64}
    assert tiles(D="64", CAUSAL="false") == {"BM": 192, "BN": 128}
    assert tiles(D="128", CAUSAL="true") == {"BM": 128, "BN": 128}  # too many accumulators for four


@pytest.mark.parametrize("order", [{}, {"early": True}])
@pytest.mark.parametrize(
    "sizes",
    [
        ("S=300", "T=130"),
        ("S=200", "T=264"),
        ("S=1", "T=1"),
        ("S=448", "T=448"),
        ("S=257", "T=300"),
    ],
)
def test_four_warpgroups_verify(
    sizes: tuple[str, ...], order: dict[str, bool], tmp_path: Path
) -> None:
    found = outcomes(
        tmp_path,
        file=str(SAMPLE),
        kernel="attention",
        arch="sm_90a",
        settings=("B=1", "H=1", *sizes),
        defines=("D=64", "CAUSAL=true"),
        **order,
    )
    assert [o["status"] for o in found] == ["ok"]


# ---- the other tiling of the same kernel


@pytest.fixture(scope="module")
def narrow() -> Program:
    return Program(SAMPLE, "attention", {"D": "64", "CAUSAL": "true"})


@pytest.mark.parametrize("sizes", [{"S": 192, "T": 320}, {"S": 330, "T": 900}])
def test_wide_steps_verify(sizes: dict[str, int], narrow: Program) -> None:
    ran = narrow.run({"B": 1, "H": 1, "scale": 0.125, **sizes})
    assert ran.launched == ("attention_kernel_wide",)


def clocks(rows: int, columns: int, queries: int, keys: int) -> int:
    """What all tiles of one head take, counted one by one."""
    step = step_clocks("sm_90a", rows * columns, 2 * rows * columns * 64, 16)
    assert step is not None
    ends = (max(min(first + rows + keys - queries, keys), 0) for first in range(0, queries, rows))
    return sum(TILE_CLOCKS + -(-end // columns) * step for end in ends)


def test_a_launch_takes_the_tiling_with_less_to_do(narrow: Program) -> None:
    taken = set()
    for queries, keys in [(n, n) for n in range(500, 20000, 1300)] + [
        (1, 4096),
        (512, 4096),
        (4096, 8192),
        (9000, 300),
    ]:
        sizes = {"B": 1, "H": 16, "S": queries, "T": keys, "scale": 0.125}
        (kernel,) = narrow.launched(sizes)
        taken.add(kernel)
        share = clocks(192, 128, queries, keys) / clocks(256, 64, queries, keys)
        if not 0.93 < share < 1.0:
            expected = "attention_kernel_wide" if share < 1 else "attention_kernel"
            assert kernel == expected, f"{queries}, {keys}: {share}"
    assert taken == {"attention_kernel", "attention_kernel_wide"}


def test_tile_sizes_of_the_user_have_no_other() -> None:
    for defines in ({"BM": "256", "BN": "64"}, {"BM": "256"}, {"CAUSAL": "false"}, {"D": "128"}):
        given = {"D": "64", "CAUSAL": "true", **defines}
        (kernel,) = compile_file(
            str(SAMPLE), archs=("sm_90a",), defines=given, stop="kernel-ir"
        ).kernels
        names = [k.name for k in kernel.lowered["sm_90a"]]
        assert "attention_kernel_wide" not in names
