"""Which tuned variant a call takes: that of the nearest sizes.

The distance of two sizes is the ratio of the larger to the smaller (each plus one, so that 0 has one), that of two calls the product over
the sizes of the key. It is computed in IEEE doubles by additions, divisions and multiplications alone, which round alike everywhere: the
generated launcher, the Python runtime and the tuner's file of results all choose the same.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TypeAlias

from tilec.lazy_dataclass import dataclass

Number: TypeAlias = "int | float | bool"

FAR = 4.0
"""A size is far from another one where it is more than this many times as large or as small; for several sizes the factors multiply."""

APART = 2.0**64
"""The distance of sizes that have no ratio: negative ones, NaN, and above LARGEST."""

LARGEST = 1e300
"""What has a ratio is at most this."""

GENERAL = 0
"""The number of the variant that was not tuned."""


@dataclass(frozen=True)
class Point:
    """Sizes in the order of a key, and the number of the variant that is launched for them."""

    sizes: tuple[Number, ...]
    variant: int


def distance(a: Sequence[Number], b: Sequence[Number]) -> float:
    """How far apart two calls are, 1.0 for equal sizes; `a` and `b` have the same length."""
    total = 1.0
    for one, other in zip(a, b, strict=True):
        total *= _ratio(one, other)
    return total


def _ratio(a: Number, b: Number) -> float:
    if a == b:
        return 1.0
    if not (a >= 0 and b >= 0 and a <= LARGEST and b <= LARGEST):
        return APART
    x, y = a + 1.0, b + 1.0
    return x / y if x > y else y / x


def reach(count: int) -> float:
    """The greatest distance at which a tuned variant is taken, for a key of so many sizes."""
    return FAR**count


def nearest_variant(points: Sequence[Point], sizes: Sequence[Number]) -> int:
    """The variant of the nearest point, of the first of equally near ones; GENERAL where all are far."""
    best, found = math.inf, GENERAL
    for point in points:
        apart = distance(point.sizes, sizes)
        if apart < best:
            best, found = apart, point.variant
    return found if best <= reach(len(sizes)) else GENERAL
