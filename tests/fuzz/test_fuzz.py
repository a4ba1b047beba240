"""A slice of the random programs, and the cases that were wrong once."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.fuzz.cases import CASES, replayed
from tests.fuzz.choices import Choices, shrink
from tests.fuzz.differential import Tally, run_batch
from tests.fuzz.forms import generate
from tests.fuzz.kernels import Written

BATCH = 12


@pytest.mark.parametrize("first", range(0, 24, BATCH))
def test_random_programs_compute_what_the_interpreter_does(first: int) -> None:
    tally = Tally()
    run_batch([generate(Choices(s), s) for s in range(first, first + BATCH)], tally)
    assert [f"seed {p.program.seed}: {p.what}" for p in tally.problems] == []
    # most candidates compile, and each ran at several sizes in both orders
    assert tally.kernels >= BATCH
    assert tally.launches > 2 * tally.kernels
    assert tally.elements > 10000
    assert tally.scalars > 10


@pytest.mark.parametrize("path", sorted(CASES.glob("*.tile")), ids=lambda p: p.stem)
def test_what_was_wrong_once_is_right(path: Path) -> None:
    tally = Tally()
    run_batch([replayed(path)], tally)
    assert [p.what for p in tally.problems] == []
    assert tally.launches > 0


def test_a_seed_gives_the_same_program() -> None:
    choices = Choices(7)
    program = generate(choices, 7)
    assert generate(Choices(7), 7) == program
    assert generate(Choices(given=choices.made), 7) == program


def test_plain_loops_find_a_wrong_interpreter(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilec.reference.running_error import BoundedArithmetic

    text = "kernel p[B = 4](x: i32[M, N]) -> y: i32[M]:\n    require N <= 9\n"
    text += "    for i in parallel(M by B):\n        y[i] = sum(x[i, :], axis=1)\n"
    program = Written("", (), (), ({},), {}, ({"M": 7, "N": 5},), 3, whole=text)
    tally = Tally()
    run_batch([program], tally)
    assert tally.scalars == 1 and not tally.problems
    right = BoundedArithmetic.reduce

    def other(self: Any, op: Any, tile: Any, axes: Any, dtype: Any) -> Any:
        return right(self, "max", tile, axes, dtype)

    monkeypatch.setattr(BoundedArithmetic, "reduce", other)
    run_batch([program], tally)
    assert tally.problems and "plain loops" in tally.problems[0].what


def test_choices_shrink_to_the_smallest_that_fails() -> None:
    def fails(made: Sequence[int]) -> bool:
        return sum(made) >= 7 and len(made) >= 2

    found = shrink([3, 9, 0, 4, 8, 1], fails)
    assert fails(found) and len(found) == 2 and sum(found) == 7


def test_a_difference_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    from tilec.runtime.gpu_run import DeviceCall

    monkeypatch.setattr(DeviceCall, "launch", lambda call: None)
    tally = Tally()
    run_batch([generate(Choices(given=[]), 0)], tally)
    assert tally.problems and "differ" in tally.problems[0].what
