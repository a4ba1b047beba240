"""Checks are compared some rows at a time: the findings are those of whole arrays, and no whole float64 array is made."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import numpy as np
import pytest

from tilec.compiler import analyse_file
from tilec.reference import check
from tilec.reference.inputs import make_inputs
from tilec.runtime.arguments import bind_sizes, plan_without_launches
from tilec.runtime.clauses import find_kernel
from tilec.runtime.verify import (
    Case,
    Finding,
    Tolerance,
    check_ahead,
    interpreter_bounds,
    verify,
)
from tilec.source.diagnostics import TileError

TEXT = """kernel k(x: f32[R, C]) -> y: f32[R, C]:
    for r in parallel(R):
        for c in range(C by 1024):
            y[r, c] = x[r, c] * 2.0 + 1.0

    check y == x * 2.0 + 1.0
"""


def case(folder: Path, rows: int, columns: int, text: str = TEXT) -> Case:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    files, (found,), _ = analyse_file(str(path))
    program = found.program
    sizes = bind_sizes(plan_without_launches(program), {}, {"R": rows, "C": columns}, {})
    arrays = make_inputs(program, sizes.numbers, {}, 0)
    kernel = find_kernel(files.main, "k")
    assert kernel is not None
    return Case(program, files, kernel, sizes, arrays)


def finding(one: Case, spoiled: tuple[int, int]) -> Finding:
    """Of the check, with one element spoiled."""
    result = one.arrays["x"] * np.float32(2) + np.float32(1)
    result[spoiled] += 1
    bounds = interpreter_bounds(one, keep_values=False)
    (found,) = verify(one, {"y": result}, bounds, Tolerance())
    return found


def test_blocks_find_what_the_whole_finds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = case(tmp_path, 37, 1003)
    whole = finding(one, (29, 17)).comparison
    assert (whole.elements, whole.mismatches, whole.worst_index) == (37 * 1003, 1, (29, 17))
    monkeypatch.setattr(check, "AT_ONCE", 5000)
    monkeypatch.setattr(check, "IN_A_BLOCK", 4000)
    assert finding(one, (29, 17)).comparison == whole


def test_memory_of_a_check_does_not_grow_with_the_output(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = case(tmp_path, 1024, 4096)
    monkeypatch.setattr(check, "AT_ONCE", 1 << 16)
    monkeypatch.setattr(check, "IN_A_BLOCK", 1 << 16)
    result = one.arrays["x"] * np.float32(2) + np.float32(1)
    bounds = interpreter_bounds(one, keep_values=False)
    tracemalloc.start()
    try:
        (found,) = verify(one, {"y": result}, bounds, Tolerance())
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert found.comparison.agrees and found.comparison.elements == result.size
    # 16 MB of output: one whole array in float64 alone would be 32 MB
    assert peak < 12e6


def test_a_check_may_be_evaluated_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    one = case(tmp_path, 37, 1003)
    ahead = check_ahead(one)
    assert ahead.checked is not None
    assert finding(ahead, (29, 17)) == finding(one, (29, 17))
    monkeypatch.setattr("tilec.runtime.verify.MOST_CHECKED", 37 * 1003 - 1)
    assert check_ahead(one).checked is None


def test_what_a_check_cannot_say_is_said_when_it_is_needed(tmp_path: Path) -> None:
    ahead = check_ahead(case(tmp_path, 37, 1003, TEXT.replace("x * 2.0 + 1.0\n", "x[:, 0:3]\n")))
    assert ahead.checked is None
    with pytest.raises(TileError):
        finding(ahead, (0, 0))
