"""Timing callables, comparing arrays."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

import tilec


def test_times_of_any_callable() -> None:
    calls = []
    measured = tilec.benchmark(lambda x, y: calls.append(x + y), 1, y=2, warmup=3, repeat=7)
    assert calls == [3] * 10
    assert len(measured.times) == 7
    assert measured.clock == "host clock" and not measured.cold
    assert min(measured.times) <= measured.p20 <= measured.median <= measured.p80
    assert "7 calls, host clock" in str(measured)


def test_the_number_of_calls_follows_from_the_time() -> None:
    calls = []
    assert len(tilec.benchmark(lambda: calls.append(0), warmup=0).times) == 200
    assert len(calls) == 203
    with pytest.raises(ValueError, match="warmup"):
        tilec.benchmark(print, repeat=0)


def test_close_arrays() -> None:
    x = np.array([1.0, np.nan, np.inf, -np.inf, 0.0])
    tilec.assert_close(x, x.copy())
    tilec.assert_close(x[:1] * (1 + 5e-8), x[:1])
    narrow = np.array([1.0], ml_dtypes.bfloat16)
    tilec.assert_close(narrow, np.array([1.01]))
    tilec.assert_close(np.array([3]), np.array([4]), atol=1)


@pytest.mark.parametrize(
    ("actual", "expected", "words"),
    [
        (np.array([1.0, 2.0, 3.0]), np.array([1.0, 2.0, 3.5]), "1 of 3 .* error is 0.5 at .2.: 3.0 instead of 3.5"),
        (np.array([1.0, 2.0]), np.array([1.0, np.nan]), "1 of 2"),
        (np.array([np.nan]), np.array([1.0]), "1 of 1"),
        (np.array([np.inf]), np.array([-np.inf]), "error is inf"),
        (np.array([1e300]), np.array([np.inf]), "1 of 1"),
        (np.array([1, 2]), np.array([1, 3]), "2 instead of 3"),
        (np.zeros((2, 1)), np.zeros(2), "shapes differ"),
    ],
)  # fmt: skip
def test_arrays_that_differ(actual: np.ndarray, expected: np.ndarray, words: str) -> None:
    with pytest.raises(AssertionError, match=words):
        tilec.assert_close(actual, expected)
