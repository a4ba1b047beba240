"""Tiles in the interpreter: elements, and the presence of each axis as it was found from index values."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from tilec.reference.numbers import Array

Mask: TypeAlias = "npt.NDArray[np.bool_] | None"
"""Presence of one axis: a boolean vector, or None where everything is present."""


@dataclass(frozen=True)
class Tile:
    """`data` in compute form. In bounded arithmetic floats are float64 and every allowed execution gives an element within
    `error` of `data` (None: exactly it); a bool whose error is not 0 may be either. `spread` is the magnitude of the
    terms that the tile is a sum of, for the error of `exp`."""

    data: Array
    present: tuple[Mask, ...] = ()
    error: Array | None = None
    spread: Array | None = None


def both(a: Mask, b: Mask) -> Mask:
    """Coordinates that are present in both of two aligned axes; a length of 1 broadcasts."""
    if a is None:
        return b
    if b is None:
        return a
    return a & b


def intersect(tiles: Sequence[Tile]) -> tuple[Mask, ...]:
    """Presence of an element-wise result; scalars have no axes."""
    rank = max(t.data.ndim for t in tiles)
    result: list[Mask] = [None] * rank
    for tile in tiles:
        if tile.data.ndim:
            result = [both(a, b) for a, b in zip(result, tile.present, strict=True)]
    return tuple(result)


def widen(present: tuple[Mask, ...], shape: tuple[int, ...]) -> tuple[Mask, ...]:
    """Masks as long as their axes (a mask of a broadcast axis has length 1), all-true ones as None."""
    wide: list[Mask] = []
    for mask, extent in zip(present, shape, strict=True):
        if mask is None or bool(mask.all()):
            wide.append(None)
        else:
            wide.append(np.broadcast_to(mask, (extent,)) if mask.shape[0] != extent else mask)
    return tuple(wide)


def along(mask: npt.NDArray[np.bool_], axis: int, rank: int) -> npt.NDArray[np.bool_]:
    """A mask shaped to broadcast along one axis of `rank`."""
    return mask.reshape([-1 if n == axis else 1 for n in range(rank)])


def replace_absent(
    data: Array, present: tuple[Mask, ...], axes: Sequence[int], value: object
) -> Array:
    """`data` with the elements that are absent along one of `axes` replaced by `value`."""
    for axis in axes:
        mask = present[axis]
        if mask is not None:
            data = np.where(along(mask, axis, data.ndim), data, np.asarray(value, data.dtype))
    return data
