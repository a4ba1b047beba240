"""`tilec.remembered`: a call of the same objects is made once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tilec.compiler import compile_file
from tilec.passes import warp_fit
from tilec.remembered import MOST, remembered

SAMPLES = Path(__file__).resolve().parents[1] / "samples"


def test_the_same_objects_are_asked_about_once() -> None:
    calls: list[Any] = []

    @remembered
    def length(of: list[int], more: int = 0) -> int:
        calls.append(of)
        return len(of) + more

    one, other = [1], [1]
    assert [length(one), length(one), length(other), length(one, 2), length(one, more=2)] == [
        1,
        1,
        1,
        3,
        3,
    ]
    assert [id(c) for c in calls] == [id(one), id(other), id(one), id(one)]
    assert length.__name__ == "length"


def test_the_last_calls_are_remembered_and_their_arguments_kept() -> None:
    calls: list[int] = []

    @remembered
    def first(of: list[int]) -> int:
        calls.append(of[0])
        return of[0]

    # none is anywhere else: were one not kept, the next could have its address
    assert [first([n]) for n in range(2 * MOST)] == list(range(2 * MOST))
    kept = [7]
    for _ in range(MOST):
        first([8])
    first(kept)
    before = len(calls)
    first(kept)
    assert len(calls) == before


def test_an_exception_is_not_remembered() -> None:
    calls: list[int] = []

    @remembered
    def fails(of: int) -> None:
        calls.append(of)
        raise ValueError

    for _ in range(2):
        with pytest.raises(ValueError):
            fails(1)
    assert calls == [1, 1]


def test_products_of_a_nest_are_planned_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who chooses tile sizes and the passes behind ask for the same plans."""
    asked: list[tuple[str, int | None]] = []
    usual = warp_fit.plan_products

    def plan_products(nest: Any, axes: Any, target: Any, warps: int | None, *rest: Any) -> Any:
        asked.append((repr(nest), warps))
        return usual(nest, axes, target, warps, *rest)

    monkeypatch.setattr(warp_fit, "plan_products", plan_products)
    compile_file(str(SAMPLES / "attention.tile"))
    assert len(asked) > 2 and len(set(asked)) == len(asked)
