"""Tiles that loops load some trips ahead: which loops have them, how far, and what the emulator makes of few trips."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tests.explain.compiled import kernels
from tilec.explain.walk import all_ops
from tilec.ir.ahead_ops import MoveUp

RECURRENCE = """kernel k[BC = {bc}](a: f32[B, T, C], x: f32[B, T, C]) -> h: f32[B, T, C]:
    for b, c in parallel(B, C by BC):
        s = zeros(f32, c)
        for t in range(T):
            s = a[b, t, c] * s + x[b, t, c]
            h[b, t, c] = s
"""


def moved(text: str, folder: Path) -> list[list[int]]:
    """Trips ahead of each tile, by variant."""
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return [
        [op.axis.layout.steps for op in all_ops(kernel.body) if isinstance(op, MoveUp)]
        for kernel in kernels.__wrapped__(str(path), "k", "sm_80")
    ]


@pytest.mark.parametrize(("trips", "columns"), [(0, 66), (3, 64), (21, 100)])
def test_any_number_of_trips(trips: int, columns: int, tmp_path: Path) -> None:
    assert moved(RECURRENCE.format(bc=64), tmp_path) == [[6, 6], [6, 6]]
    settings = ("B=2", f"T={trips}", f"C={columns}")
    found = outcomes(tmp_path, file=str(tmp_path / "k.tile"), arch="sm_80", settings=settings)
    assert [o["status"] for o in found] == ["ok"]


def test_as_far_as_registers_go(tmp_path: Path) -> None:
    assert moved(RECURRENCE.format(bc=256), tmp_path)[0] == [6, 6]
    assert moved(RECURRENCE.format(bc=1024), tmp_path)[0] == [3, 3]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        # what the loop writes may be what a later trip reads
        ("x: f32[B, T, C]) -> h", "inout x: f32[B, T, C]) -> h"),
        # the address hangs on what the trip loads
        ("a[b, t, c] * s", "a[b, at[t], c] * s"),
        # trips that only add up need not wait for each other
        ("s = a[b, t, c] * s + x[b, t, c]", "s += a[b, t, c] * x[b, t, c]"),
        # threads wait for each other in each trip
        ("+ x[b, t, c]", "+ x[b, t, c] * max(s)"),
    ],
)
def test_other_loops_stay_as_they_are(old: str, new: str, tmp_path: Path) -> None:
    text = RECURRENCE.format(bc=64).replace(old, new)
    if "inout" in new:
        text = text.replace("h[b, t, c] = s", "x[b, T - 1 - t, c] = s\n            h[b, t, c] = s")
    if "at[" in new:
        text = text.replace("(a: ", "(at: i32[T], a: ")
    assert text != RECURRENCE.format(bc=64)
    assert moved(text, tmp_path) == [[], []]
