"""The rank of tile sizes: against measured times, within a target's limits, and around what the user fixed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tilec.compiler import analyse_file
from tilec.plan.product_tiles import (
    Given,
    Sides,
    estimate,
    ranked,
    ring_depth,
    split_rows,
    warps_of,
)
from tilec.targets.table import TARGETS

SWEEP = json.loads(
    (Path(__file__).resolve().parents[2] / "bench/results/sweep_gemm.json").read_text("utf-8")
)["rows"]
SHAPES = sorted({(row["shape"], row["kind"]) for row in SWEEP})
SHORT = 64


def measured(shape: str, kind: str) -> tuple[list[float], list[float]]:
    """Expected clocks and measured rates of the tiles of one shape."""
    rows, _, depth = map(int, shape.split("x"))
    sides = Sides(rows if rows <= SHORT else None, None, 16)
    expected, rates = [], []
    for row in SWEEP:
        if (row["shape"], row["kind"]) == (shape, kind) and row["tile"] != "auto":
            *tile, warps, stages = row["tile"]
            clocks = estimate(TARGETS["sm_90"], sides, tuple(tile), warps, stages, depth)
            assert clocks is not None
            expected.append(clocks)
            rates.append(row["tflops"])
    return expected, rates


@pytest.mark.parametrize(("shape", "kind"), SHAPES)
def test_the_order_is_that_of_measured_times(shape: str, kind: str) -> None:
    expected, rates = measured(shape, kind)
    ranks = [np.argsort(np.argsort(x)) for x in (expected, [-r for r in rates])]
    assert len(rates) >= 15
    assert np.corrcoef(*ranks)[0, 1] > 0.7
    # what is expected to be fastest nearly is
    assert rates[int(np.argmin(expected))] >= 0.95 * max(rates)


@pytest.mark.parametrize("arch", [a for a in TARGETS if a != "sm_87"])
@pytest.mark.parametrize("sides", [Sides(None, None, 16), Sides(9, None, 16), Sides(None, 70, 8)])
def test_what_is_offered_fits(arch: str, sides: Sides) -> None:
    target = TARGETS[arch]
    found = ranked(target, sides, Given({}))
    assert found and len(set(found)) == len(found)
    for rows, columns, depth in found:
        warps = warps_of(rows * columns, rows, columns)
        ring = (rows + columns) * depth * sides.bits // 8
        assert ring * ring_depth(target, ring) <= target.shared_per_block_optin
        assert rows * columns // (32 * warps) <= 128
        assert 32 * warps * (rows * columns // (32 * warps)) <= target.registers_per_sm
    if sides.rows == 9:
        assert {rows for rows, _, _ in found} == {16}
    if sides.columns == 70:
        assert {columns for _, columns, _ in found} <= {64, 128}


def test_what_is_given_stays() -> None:
    target = TARGETS["sm_80"]
    assert {tile[1] for tile in ranked(target, Sides(None, None, 16), Given({1: 96}))} == {96}
    assert ranked(target, Sides(None, None, 16), Given({0: 512, 1: 512})) == ()
    few: Any = ranked(target, Sides(None, None, 16), Given({}, warps=1))
    assert all(rows * columns <= 32 * 128 for rows, columns, _ in few)


TUNED = """kernel k[BM = auto, BN = auto, BK = auto](a: bf16[M, K], b: bf16[K, N]) -> c: bf16[M, N]:
    tune BM in (64, 128), BN in (32, 128)
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
"""


def test_open_sizes_are_ranked_whatever_tune_lists(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    for text in (TUNED, TUNED.replace("    tune BM in (64, 128), BN in (32, 128)\n", "")):
        path.write_text(text, encoding="utf-8")
        _, (found, *_), _ = analyse_file(str(path), arch="sm_90")
        assert tuple(found.candidate.values[n] for n in ("BM", "BN", "BK")) == (256, 128, 64), text


def test_warps_along_the_rows() -> None:
    assert split_rows(8, 256, 128) == 4
    assert split_rows(4, 128, 128) == 2
    assert split_rows(4, 16, 64) == 1
