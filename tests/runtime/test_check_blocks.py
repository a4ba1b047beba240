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
from tilec.runtime.verify import Case, Finding, Tolerance, interpreter_bounds, verify

TEXT = """kernel k(x: f32[R, C]) -> y: f32[R, C]:
    for r in parallel(R):
        for c in range(C by 1024):
            y[r, c] = x[r, c] * 2.0 + 1.0

    check y == x * 2.0 + 1.0
"""


def case(folder: Path, rows: int, columns: int) -> Case:
    path = folder / "k.tile"
    path.write_text(TEXT, encoding="utf-8")
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
