"""Tensors of a running program and the selections that an access makes in them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from mmap import mmap
from typing import Any, TypeAlias

import numpy as np
import numpy.typing as npt
from numpy.lib.stride_tricks import as_strided

from tilec.ir.dtypes import DType
from tilec.ir.tile_ir import Tensor
from tilec.reference.numbers import Array, array_shape, compute_dtype, pack, storage_dtype, unpack
from tilec.reference.tiles import Mask
from tilec.source.diagnostics import fail

Positions: TypeAlias = "slice | npt.NDArray[np.int64]"
"""Coordinates in one dimension: a slice of consecutive ones, or a vector."""


@dataclass(frozen=True)
class AxisChoice:
    """What one term selects in one dimension: `target` coordinates of the dimension go to coordinates `source` of the tile's axis
    of `extent`; `present` marks the latter. A scalar term has extent None and one target."""

    extent: int | None
    target: Positions | int
    source: Positions
    present: Mask

    @staticmethod
    def of(mask: npt.NDArray[np.bool_], index: npt.NDArray[np.int64]) -> AxisChoice:
        """The choice of index tile `index` where `mask` holds."""
        kept = np.flatnonzero(mask)
        return AxisChoice(len(mask), index[kept], kept, None if len(kept) == len(mask) else mask)

    @staticmethod
    def range(start: int, extent: int, lo: int, hi: int) -> AxisChoice:
        """Coordinates start … start+extent-1, of which those in [lo, hi) are present."""
        first = min(max(lo - start, 0), extent)
        last = min(max(hi - start, first), extent)
        mask = None
        if first > 0 or last < extent:
            mask = np.zeros(extent, np.bool_)
            mask[first:last] = True
        return AxisChoice(extent, slice(start + first, start + last), slice(first, last), mask)


def subarray(array: Array, positions: Sequence[Positions | int]) -> Array:
    """Outer selection: a view where every position is a slice or a number, else a copy."""
    basic = [slice(p, p + 1) if isinstance(p, int) else p for p in positions]
    array = array[tuple(slice(None) if isinstance(p, np.ndarray) else p for p in basic)]
    for axis, position in enumerate(positions):
        if isinstance(position, np.ndarray):
            array = array.take(position, axis=axis)
    return array[tuple(0 if isinstance(p, int) else slice(None) for p in positions)]


def assign(array: Array, positions: Sequence[Positions | int], data: Array) -> None:
    """Outer selection as a target; of equal coordinates the last wins."""
    if not any(isinstance(p, np.ndarray) for p in positions):
        array[tuple(positions)] = data
        return
    array[open_mesh(array, positions)] = data.reshape(_kept_shape(array, positions))


def _kept_shape(array: Array, positions: Sequence[Positions | int]) -> tuple[int, ...]:
    """Extents of a selection in which numbers keep an axis of 1."""
    shape = []
    for extent, position in zip(array.shape, positions, strict=True):
        if isinstance(position, int):
            shape.append(1)
        elif isinstance(position, slice):
            shape.append(len(range(*position.indices(extent))))
        else:
            shape.append(len(position))
    return tuple(shape)


def open_mesh(array: Array, positions: Sequence[Positions | int]) -> tuple[Array, ...]:
    """Index arrays of an outer selection; numbers keep an axis of 1."""
    vectors = []
    for extent, position in zip(array.shape, positions, strict=True):
        if isinstance(position, int):
            vectors.append(np.array([position]))
        elif isinstance(position, slice):
            vectors.append(np.arange(*position.indices(extent)))
        else:
            vectors.append(position)
    return np.ix_(*vectors)


def wide_dtype(dtype: DType) -> np.dtype[Any]:
    """What holds an expected float: float32 for types of 16 bits or fewer (half the memory), else float64."""
    return np.dtype(np.float32) if dtype.bits <= 16 else np.dtype(np.float64)


def _room(shape: tuple[int, ...], dtype: np.dtype[Any], shared: bool) -> Array:
    """Zeros; `shared`: in memory that copies of this process write to as well."""
    count = prod(shape)
    if not shared or not count:
        return np.zeros(shape, dtype)
    return np.frombuffer(mmap(-1, count * dtype.itemsize), dtype, count).reshape(shape)


class Memory:
    """One tensor: `data` has the tensor's dimensions, in storage form (4-bit types unpacked). In bounded arithmetic float outputs
    are wide and `error` tells how far an allowed execution may be from them, infinite where nothing was stored."""

    def __init__(
        self,
        tensor: Tensor,
        shape: tuple[int, ...],
        strides: tuple[int, ...] | None,
        array: Array | None,
        bounded: bool = False,
        atomic: bool = False,
        shared: bool = False,
    ) -> None:
        self.tensor = tensor
        self.shape = shape
        self.strides = strides
        self.array = array
        self.error: npt.NDArray[np.float32] | None = None
        self.mass: Array | None = None
        """for atomics in bounded arithmetic: number of additions times the sum of all magnitudes, that of what was there at first
        included, bounds the rounding"""
        self.added: Array | None = None
        written = tensor.role != "input"
        if array is not None:
            self._accept(array)
        self.data = self._view(array)
        if bounded and written:
            dtype = wide_dtype(tensor.dtype) if tensor.dtype.is_float else self.data.dtype
            before, self.data = self.data, _room(shape, dtype, shared)
            if tensor.role == "inout":
                self.data[...] = before
            self.error = _room(shape, np.dtype(np.float32), shared)
            self.error[...] = 0.0 if tensor.role == "inout" else np.inf
            if atomic and tensor.dtype.is_float:
                first = np.abs(self.data) if tensor.role == "inout" else np.zeros(shape)
                self.mass = np.where(np.isfinite(first), first, 0.0)
                self.added = np.zeros(shape)

    def untouched(self) -> npt.NDArray[np.bool_]:
        """Where an `inout` tensor still holds, exactly, what it held at first: after a sample of the instances it is not known
        whether another one writes there."""
        before = self._view(self.array).astype(self.data.dtype)
        same: npt.NDArray[np.bool_] = self.data == before
        return same if self.error is None else same & (self.error == 0.0)

    def _accept(self, array: Array) -> None:
        """Raise E0904 where `array` cannot hold the tensor."""
        dtype = storage_dtype(self.tensor.dtype)
        if array.dtype != dtype:
            raise fail(
                "E0904",
                f"array `{self.tensor.name}` has element type {array.dtype}, not {dtype}",
                self.tensor.span,
            )
        wanted = array_shape(self.shape, self.tensor.dtype)
        if self.strides is None and array.shape != wanted:
            raise fail(
                "E0904",
                f"array `{self.tensor.name}` has shape {array.shape}, not {wanted}",
                self.tensor.span,
            )
        if self.strides is not None:
            steps = zip(self.shape, self.strides, strict=True)
            reach = sum((extent - 1) * step for extent, step in steps) + 1
            if 0 not in self.shape and array.size < reach:
                raise fail(
                    "E0904",
                    f"array `{self.tensor.name}` has {array.size} elements, its strides reach {reach}",
                    self.tensor.span,
                )

    def _view(self, array: Array | None) -> Array:
        dtype = self.tensor.dtype
        if dtype.bits == 4:
            if array is None:
                return np.zeros(self.shape, compute_dtype(dtype))
            return unpack(array, self.shape, dtype)
        if array is None:
            return np.zeros(self.shape, storage_dtype(dtype))
        if self.strides is None:
            return array
        flat = array.reshape(-1)
        steps = tuple(s * flat.itemsize for s in self.strides)
        return as_strided(flat, self.shape, steps)

    @property
    def dtype(self) -> DType:
        """Element type."""
        return self.tensor.dtype

    def finish(self) -> None:
        """Write packed elements back to the user's array."""
        if self.tensor.dtype.bits == 4 and self.array is not None and self.error is None:
            flat = self.array.reshape(-1)
            packed = pack(self.data)
            flat[: len(packed)] = packed

    def viewed(self, shape: tuple[int, ...]) -> Memory:
        """The same elements under other dimensions (dense tensors)."""
        other = object.__new__(Memory)
        other.__dict__.update(self.__dict__)
        other.shape = shape
        other.data = self.data.reshape(shape)
        for name in ("error", "mass", "added"):
            part = getattr(self, name)
            setattr(other, name, None if part is None else part.reshape(shape))
        return other
