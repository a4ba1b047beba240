"""Stores of one instance to the same elements take effect in the program's order, whichever threads make them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file

ELEMENT_AFTER_ROW = """kernel k(x: f32[R, C], at: i32[R]) -> (y: f32[R, C], s: f32[R]):
    require C >= 1
    require C <= 65536
    for r in parallel(R):
        row = x[r, :]
        total = sum(row)
        s[r] = total
        y[r, :] = row * total
        y[r, at[r] % C] = 0.0
"""
SHIFTED = """kernel k[B = 64](x: f32[N]) -> y: f32[N]:
    for i in parallel(1):
        for j in range(N by B):
            y[j] = x[j]
            y[j + 1] = x[j] * 2.0
"""
HALVES = """kernel k[H = 64](x: f32[R, D]) -> y: f32[R, D]:
    require D == 2 * H
    for r in parallel(R):
        y[r, 0:H] = x[r, 0:H] * 2.0
        y[r, H:2 * H] = x[r, H:2 * H] * 3.0
"""


@pytest.mark.parametrize(
    ("text", "sizes"),
    [
        (ELEMENT_AFTER_ROW, ("R=5", "C=5000")),
        (ELEMENT_AFTER_ROW, ("R=4", "C=777")),
        (ELEMENT_AFTER_ROW, ("R=3", "C=40000")),
        (SHIFTED, ("N=300",)),
        (HALVES, ("R=7", "D=128")),
    ],
)
def test_the_last_store_wins(tmp_path: Path, text: str, sizes: tuple[str, ...]) -> None:
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    for order in ({}, {"early": True}):
        found = outcomes(tmp_path, file=str(path), settings=sizes, arch="sm_90", **order)
        assert [o["status"] for o in found] == ["ok"]


def test_parts_side_by_side_need_no_barrier(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(HALVES, encoding="utf-8")
    assert "__syncthreads" not in compile_file(str(path), archs=("sm_90",)).cu
    path.write_text(SHIFTED, encoding="utf-8")
    assert "__syncthreads" in compile_file(str(path), archs=("sm_90",)).cu
