"""Comparing what a kernel computed with what it must compute."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from tilec.ir.dtypes import DType
from tilec.reference.numbers import Array, to_compute

_BLOCK = 1 << 16
"""Elements compared at a time."""


@dataclass(frozen=True)
class Comparison:
    """Outcome of a comparison. `worst_index` is the element whose error is the greatest share of its bound (the first
    mismatch in row-major order where one is a NaN or an infinity), () for a scalar, None where nothing was compared.
    `unknown` elements had an infinite bound: nothing was stored there, or rounding may decide a branch."""

    elements: int
    mismatches: int
    nan_mismatches: int
    unknown: int
    max_error: float
    worst_index: tuple[int, ...] | None
    worst_actual: float
    worst_expected: float
    worst_bound: float

    @property
    def agrees(self) -> bool:
        """No element differs by more than its bound."""
        return self.mismatches == 0

    def describe(self) -> str:
        """One sentence for a message or a table."""
        if self.worst_index is None:
            return "nothing was compared"
        place = ", ".join(map(str, self.worst_index))
        return (
            f"{self.mismatches} of {self.elements} elements differ; the worst is [{place}]: {self.worst_actual:.9g}, "
            f"expected {self.worst_expected:.9g} ± {self.worst_bound:.3g}"
        )


def compare(
    actual: Array,
    expected: Array,
    bound: Array | float,
    dtype: DType,
    *,
    rtol: float | None = None,
    atol: float | None = None,
) -> Comparison:
    """Compare `actual` (storage form of `dtype`, 4-bit types unpacked) with `expected` element by element.

    An element agrees if it differs by at most `bound`; NaN equals NaN, an infinity the same infinity. `rtol` or `atol`
    replace every finite bound by `atol + rtol * |expected|`. An infinite bound compares nothing.
    """
    shape = np.shape(expected)
    flat_actual = np.broadcast_to(actual, shape).reshape(-1)
    flat_expected = np.asarray(expected).reshape(-1)
    flat_bound = np.broadcast_to(np.asarray(bound), shape).reshape(-1)
    tally = _Tally()
    for first in range(0, flat_expected.size, _BLOCK):
        part = slice(first, first + _BLOCK)
        given = to_compute(flat_actual[part], dtype)
        tally.add(first, given, flat_expected[part], flat_bound[part], rtol, atol)
    return tally.result(flat_actual, flat_expected, shape, dtype)


class _Tally:
    """Counts over blocks."""

    def __init__(self) -> None:
        self.mismatches = self.nans = self.unknown = 0
        self.max_error = 0.0
        self.worst: tuple[float, int] | None = None
        self.bound = 0.0

    def add(
        self,
        first: int,
        actual: Array,
        expected: Array,
        bound: Array,
        rtol: float | None,
        atol: float | None,
    ) -> None:
        """Count one block that begins at element `first`."""
        with np.errstate(all="ignore"):
            bound = bound.astype(np.float64)
            known = np.isfinite(bound)
            count = int(np.count_nonzero(known))
            self.unknown += known.size - count
            if not count:
                return
            places = None
            if count < known.size:  # nothing is computed for elements that are not compared
                places = np.flatnonzero(known)
                actual, expected, bound = actual[places], expected[places], bound[places]
            want = expected.astype(np.float64)
            have = actual.astype(np.float64)
            if rtol is not None or atol is not None:
                bound = (atol or 0.0) + (rtol or 0.0) * np.abs(want)
            # integers beyond 2^53 are compared as they are
            equal = actual == expected if actual.dtype.kind in "iub" else have == want
            same = equal | (np.isnan(have) & np.isnan(want))
            distance = np.where(same, 0.0, np.abs(have - want))
            odd = ~np.isfinite(distance)
            # where a NaN is expected, `rtol` of it is one
            wrong = odd | ~(same | (distance <= bound))
            share = np.where(odd, np.inf, np.where(distance == 0, 0.0, distance / bound))
        self.mismatches += int(np.count_nonzero(wrong))
        self.nans += int(np.count_nonzero(wrong & (np.isnan(have) | np.isnan(want))))
        if not odd.all():
            self.max_error = max(self.max_error, float(distance[~odd].max()))
        at = int(np.argmax(share))
        if self.worst is None or share[at] > self.worst[0]:
            self.worst = (float(share[at]), first + (at if places is None else int(places[at])))
            self.bound = float(bound[at])

    def result(
        self, actual: Array, expected: Array, shape: tuple[int, ...], dtype: DType
    ) -> Comparison:
        """The counts so far."""
        index = None
        have = want = 0.0
        if self.worst is not None:
            at = self.worst[1]
            index = tuple(int(n) for n in np.unravel_index(at, shape)) if shape else ()
            have = float(to_compute(actual[at : at + 1], dtype)[0])
            want = float(expected[at])
        return Comparison(
            expected.size,
            self.mismatches,
            self.nans,
            self.unknown,
            self.max_error,
            index,
            have,
            want,
            self.bound,
        )
