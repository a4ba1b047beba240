"""Chained products behind a bound that crosses the key blocks: four warpgroups and narrow steps, chosen without a word of the user."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file

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
        ("S=320", "T=512"),
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
