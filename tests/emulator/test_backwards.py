"""Loops that run backwards, since their scores rise with the trips: the same results, whatever the numbers' signs and sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.emulator.asynchronous import Arrays, Program
from tests.emulator.test_attention_forms import FORMS

TILES = {"D": 64, "BM": 128, "BN": 64}
NUMBERS = {"B": 1, "H": 2, "scale": 0.125}


@pytest.fixture(scope="module")
def program() -> Program:
    found = Program(FORMS, "alibi", TILES)
    variants = found.kernel.manifest["targets"]["sm_90a"]
    assert "backwards" in variants[0]["schedule"]  # type: ignore[index]
    return found


@pytest.mark.parametrize("length", [1, 63, 64, 129, 200, 331])
def test_lengths(program: Program, length: int) -> None:
    """Of one trip, of trips that end inside a tile, of instances whose first rows see less than a tile."""
    program.run({**NUMBERS, "S": length})


@pytest.mark.parametrize(
    "slopes", [(0.5, 0.25), (-0.5, -8.0), (0.0, 1e-30), (1e4, -1e4), (2e36, -2e36)]
)
def test_slopes(program: Program, slopes: tuple[float, float]) -> None:
    """The maximum stays, moves in each trip since the sign is not the one that was taken for given, and moves by more than a float's
    exponent has room for."""

    def change(arrays: Arrays) -> None:
        arrays["slope"][:] = slopes

    program.run({**NUMBERS, "S": 200}, change)


def test_rows_that_are_no_numbers(program: Program) -> None:
    """A row of queries that is not a number, and keys that are infinite: theirs alone are the rows that show it."""

    def change(arrays: Arrays) -> None:
        arrays["slope"][:] = (0.5, -0.5)
        arrays["q"][0, 0, 150] = np.nan
        arrays["k"][0, 1, 170, 0] = np.inf

    ran = program.run({**NUMBERS, "S": 200}, change)
    found = ran.outputs["o"].astype(np.float32)
    assert np.isnan(found[0, 0, 150]).all() and np.isfinite(np.delete(found[0, 0], 150, 0)).all()
    assert np.isfinite(found[0, 1, :170]).all()


def test_scores_of_any_size(program: Program) -> None:
    def change(arrays: Arrays) -> None:
        arrays["slope"][:] = (0.5, 0.001)

    program.run({**NUMBERS, "S": 150, "scale": 1e30}, change)


PLAIN = Path(__file__).resolve().parents[2] / "samples" / "attention_variants.tile"


def test_with_a_function_in_between() -> None:
    found = Program(PLAIN, "soft_cap_alibi", {"D": 64, "BM": 128, "BN": 64})
    for slopes in ((0.5, 0.01), (-0.5, 0.0)):

        def change(arrays: Arrays, slopes: tuple[float, float] = slopes) -> None:
            arrays["slope"][:] = slopes

        found.run({**NUMBERS, "S": 200, "cap": 20.0}, change)
