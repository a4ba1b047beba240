"""Loads, stores and atomics: which elements an access names, and which of them exist."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import DType
from tilec.reference.elementwise import finish
from tilec.reference.memory import AxisChoice, Memory, assign, open_mesh, subarray
from tilec.reference.numbers import (
    Array,
    compute_dtype,
    least_normal,
    to_compute,
    to_double,
    to_storage,
)
from tilec.reference.tiles import Mask, Tile, both, widen
from tilec.source.diagnostics import TileError, fail
from tilec.source.exhaustive import assert_never
from tilec.source.text import NOWHERE, Span

if TYPE_CHECKING:
    from tilec.reference.interpreter import Interpreter


class Accessor:
    """Carries out the accesses of one interpreter."""

    def __init__(self, machine: Interpreter) -> None:
        self.machine = machine
        self.bounded = machine.arithmetic.bounded
        self.flushes = self.bounded and machine.program.math == "fast"

    def memory(self, access: ir.Access) -> Memory:
        """The tensor, under the view's dimensions if the access names one."""
        return self.machine.memories[access.tensor if access.view is None else access.view]

    def choices(self, access: ir.Access, memory: Memory, span: Span) -> list[AxisChoice]:
        """What each term of an outer access selects. Raises E0902."""
        number = self.machine.number
        chosen = []
        for axis, (term, dim) in enumerate(zip(access.terms, memory.shape, strict=True)):
            match term:
                case ir.AtScalar(index):
                    position = number(index)
                    if not 0 <= position < dim:
                        raise self.out_of_range(access, axis, position, dim, span)
                    chosen.append(AxisChoice(None, position, slice(0, 0), None))
                case ir.AtAll():
                    chosen.append(AxisChoice(dim, slice(0, dim), slice(0, dim), None))
                case ir.AtSpan(start, extent, lo, hi):
                    low = max(0, 0 if lo is None else number(lo))
                    high = min(dim, dim if hi is None else number(hi))
                    chosen.append(AxisChoice.range(number(start), number(extent), low, high))
                case ir.AtTile(index):
                    tile = self.machine.tile(index)
                    positions = tile.data.astype(np.int64)
                    mask = (positions >= 0) & (positions < dim)
                    if tile.present[0] is not None:
                        mask &= tile.present[0]
                    chosen.append(AxisChoice.of(mask, positions))
                case _:
                    raise assert_never(term)
        return chosen

    def out_of_range(
        self, access: ir.Access, axis: int, position: int, dim: int, span: Span
    ) -> TileError:
        """The fault of a scalar index that is not in its dimension."""
        name = access.tensor if access.view is None else access.view
        return fail(
            "E0902",
            f"index {position} of dimension {axis} of `{name}` is not in 0 … {dim - 1}"
            if dim
            else f"index {position} of dimension {axis} of `{name}`, which is empty",
            span if span is not NOWHERE else None,
            note=f"in the instance with {self.machine.where() or 'no loop'}",
        )

    # ---- outer accesses

    def load(self, op: ir.Load) -> Tile:
        """A tile of an outer or pointwise access."""
        memory = self.memory(op.access)
        if op.access.pointwise:
            return self.load_points(op, memory)
        chosen = self.choices(op.access, memory, op.span)
        targets = [c.target for c in chosen]
        kept = [c for c in chosen if c.extent is not None]
        data = self.fetch(subarray(memory.data, targets), memory.dtype)
        error = None if memory.error is None else subarray(memory.error, targets).astype(np.float64)
        present = tuple(c.present for c in kept)
        if any(m is not None for m in present):
            data = self.spread(data, kept, memory.dtype)
            error = None if error is None else self.spread(error, kept, None)
        return self.loaded(data, present, error, memory)

    def fetch(self, stored: Array, dtype: DType) -> Array:
        """Elements in the form the arithmetic wants."""
        if self.bounded and dtype.is_float:
            return to_double(stored, dtype)
        data = to_compute(stored, dtype)
        return data.copy() if data.base is not None or data is stored else data

    def spread(self, data: Array, kept: Sequence[AxisChoice], dtype: DType | None) -> Array:
        """The selected elements at their places in a tile; absent ones hold NaN, or the least integer."""
        shape = tuple(c.extent or 0 for c in kept)
        filler: object = 0
        if dtype is not None:
            filler = np.nan if dtype.is_float else dtype.minimum if dtype.is_integer else False
        whole = np.full(shape, filler, data.dtype)
        assign(whole, [c.source for c in kept], data)
        return whole

    def loaded(
        self, data: Array, present: tuple[Mask, ...], error: Array | None, memory: Memory
    ) -> Tile:
        """A loaded tile; what is denormal may have been flushed."""
        if error is not None and not error.any():
            error = None
        if self.flushes and memory.dtype.is_float and memory.dtype.bits < 64:
            size = np.abs(data)
            tiny = (size > 0) & (size < least_normal(memory.dtype))
            if tiny.any():
                error = np.where(tiny, size, 0.0) + (0.0 if error is None else error)
        return Tile(data, present, error)

    def store(self, op: ir.Store) -> None:
        """Write the present elements."""
        memory = self.memory(op.access)
        value = self.machine.tile(op.value)
        if op.access.pointwise:
            points, where = self.points(op.access, memory, value)
            at = tuple(p[where] for p in points)
            shape = where.shape
            self.write(
                memory,
                at,
                np.broadcast_to(value.data, shape)[where],
                _at(value.error, shape, where),
            )
            return
        chosen = self.choices(op.access, memory, op.span)
        kept = [c for c in chosen if c.extent is not None]
        shape = tuple(c.extent or 0 for c in kept)
        present = widen(value.present, shape) if value.data.ndim else (None,) * len(shape)
        targets, sources = _narrow(chosen, present)
        data = subarray(np.broadcast_to(value.data, shape), sources)
        error = None
        if value.error is not None:
            error = subarray(np.broadcast_to(value.error, shape), sources)
        if memory.error is None:
            assign(memory.data, targets, to_storage(data, memory.dtype))
        else:
            assign(memory.data, targets, data.astype(memory.data.dtype))
            assign(memory.error, targets, self.upward(error, data, memory))

    def write(
        self, memory: Memory, at: tuple[Array, ...], data: Array, error: Array | None
    ) -> None:
        """Pointwise assignment."""
        if memory.error is None:
            memory.data[at] = to_storage(data, memory.dtype)
        else:
            memory.data[at] = data.astype(memory.data.dtype)
            memory.error[at] = self.upward(error, data, memory)

    def upward(self, error: Array | None, data: Array, memory: Memory) -> npt.NDArray[np.float32]:
        """Bounds as float32, rounded up, with what the memory's own type rounds; infinite where the instance hangs on an
        uncertain branch."""
        if self.machine.uncertain:
            return np.full(data.shape, np.inf, np.float32)
        if error is None:
            return np.zeros(data.shape, np.float32)
        if memory.data.dtype == np.float32:
            own = np.where(np.isfinite(data), np.abs(data) * 2.0**-24, 0.0)
            error = np.where(error > 0, error + own, 0.0)
        short = error.astype(np.float32)
        short = np.where(np.isnan(short), np.float32(0), short)
        # one that is less than the least float32 is no 0
        return np.where(error > 0, np.nextafter(short, np.float32(np.inf)), short)

    # ---- pointwise accesses

    def points(
        self, access: ir.Access, memory: Memory, value: Tile | None = None
    ) -> tuple[list[Array], npt.NDArray[np.bool_]]:
        """Coordinates of every element, and where all of them exist and are present."""
        tiles = self.index_tiles(access)
        shape = np.broadcast_shapes(*(t.data.shape for t in tiles))
        where = np.ones(shape, np.bool_)
        for tile, dim in zip(tiles, memory.shape, strict=True):
            where &= (tile.data >= 0) & (tile.data < dim)
            where &= _whole(tile)
        if value is not None and value.data.ndim:
            where &= _whole(value)
        return [np.broadcast_to(t.data, shape) for t in tiles], where

    def index_tiles(self, access: ir.Access) -> list[Tile]:
        """The terms of a pointwise access as integer tiles."""
        number = self.machine.number
        tiles = []
        for term in access.terms:
            match term:
                case ir.AtScalar(index):
                    tiles.append(Tile(np.asarray(number(index), np.int64)))
                case ir.AtSpan(start, extent, lo, hi):
                    first, count = number(start), number(extent)
                    mask = self.machine.span_mask(first, count, lo, hi)
                    tiles.append(Tile(np.arange(first, first + count), (mask,)))
                case ir.AtTile(index):
                    tile = self.machine.tile(index)
                    tiles.append(Tile(tile.data.astype(np.int64), tile.present))
                case ir.AtAll():
                    raise TypeError("`:` in a pointwise access")
                case _:
                    raise assert_never(term)
        return tiles

    def load_points(self, op: ir.Load, memory: Memory) -> Tile:
        """`t.at[…]`: out of range is 0 where the access has several axes, absent where it has one."""
        for axis, (term, dim) in enumerate(zip(op.access.terms, memory.shape, strict=True)):
            if isinstance(term, ir.AtScalar):
                position = self.machine.number(term.index)
                if not 0 <= position < dim:
                    raise self.out_of_range(op.access, axis, position, dim, op.span)
        points, where = self.points(op.access, memory)
        data = np.zeros(where.shape, compute_dtype(memory.dtype))
        if self.bounded and memory.dtype.is_float:
            data = data.astype(np.float64)
        at = tuple(p[where] for p in points)
        data[where] = self.fetch(memory.data[at], memory.dtype)
        error = None
        if memory.error is not None:
            error = np.zeros(where.shape)
            error[where] = memory.error[at]
        if data.ndim == 1:
            return self.loaded(data, widen((where,), where.shape), error, memory)
        present: list[Mask] = [None] * data.ndim
        for tile in self.index_tiles(op.access):
            if tile.data.ndim:
                present = [both(a, b) for a, b in zip(present, tile.present, strict=True)]
        return self.loaded(data, widen(tuple(present), data.shape), error, memory)

    def atomic(self, op: ir.Atomic) -> None:
        """Element by element, equal coordinates included."""
        memory = self.memory(op.access)
        value = self.machine.tile(op.value)
        if op.access.pointwise:
            points, where = self.points(op.access, memory, value)
            at = tuple(p[where] for p in points)
            data = np.broadcast_to(value.data, where.shape)[where]
            error = _at(value.error, where.shape, where)
        else:
            chosen = self.choices(op.access, memory, op.span)
            shape = tuple(c.extent or 0 for c in chosen if c.extent is not None)
            present = widen(value.present, shape) if value.data.ndim else (None,) * len(shape)
            targets, sources = _narrow(chosen, present)
            at = open_mesh(memory.data, targets)
            size = np.broadcast_shapes(*(m.shape for m in at)) if at else ()
            data = subarray(np.broadcast_to(value.data, shape), sources).reshape(size)
            error = None
            if value.error is not None:
                error = subarray(np.broadcast_to(value.error, shape), sources).reshape(size)
        self.combine(op.op, memory, at, data, error)

    def combine(
        self, op: str, memory: Memory, at: tuple[Array, ...], data: Array, error: Array | None
    ) -> None:
        """One atomic operation an element, in the order of the elements."""
        if memory.error is None:
            if (memory.dtype.is_float and memory.dtype.bits < 32) or memory.dtype.bits == 4:
                self.one_by_one(op, memory, at, data)
                return
            target, given = memory.data, data.astype(memory.data.dtype)
        else:
            target, given = memory.data, data.astype(memory.data.dtype)
            extra = self.upward(error, data, memory)
            if op == "add":
                np.add.at(memory.error, at, extra)
                if memory.mass is not None and memory.added is not None:
                    np.add.at(memory.mass, at, np.abs(given))
                    np.add.at(memory.added, at, 1.0)
            else:
                np.maximum.at(memory.error, at, extra)
        match op:
            case "add":
                np.add.at(target, at, given)
            case "max":
                np.maximum.at(target, at, given)
            case "min":
                np.minimum.at(target, at, given)
            case _:
                raise KeyError(op)

    def one_by_one(self, op: str, memory: Memory, at: tuple[Array, ...], data: Array) -> None:
        """Types that NumPy cannot accumulate: round after every addition."""
        function = {"add": np.add, "max": np.maximum, "min": np.minimum}[op]
        spread = np.broadcast_arrays(*at, data)
        places = zip(*(s.reshape(-1).tolist() for s in spread[:-1]), strict=True)
        for place, element in zip(places, spread[-1].reshape(-1), strict=True):
            old = to_compute(np.asarray(memory.data[place]), memory.dtype)
            new = finish(np.asarray(function(old, element)), memory.dtype)
            memory.data[place] = to_storage(new, memory.dtype)


def _narrow(
    chosen: Sequence[AxisChoice], present: tuple[Mask, ...]
) -> tuple[list[slice | npt.NDArray[np.int64] | int], list[slice | npt.NDArray[np.int64]]]:
    """Targets and sources of the elements that exist and are present."""
    targets: list[slice | npt.NDArray[np.int64] | int] = []
    sources: list[slice | npt.NDArray[np.int64]] = []
    axis = 0
    for choice in chosen:
        if isinstance(choice.target, int):
            targets.append(choice.target)
            continue
        mask = present[axis]
        axis += 1
        target, source = choice.target, choice.source
        if mask is not None:
            target = _vector(target)
            source = _vector(source)
            keep = mask[source]
            target, source = _slice(target[keep]), _slice(source[keep])
            if type(target) is not type(source) and not isinstance(target, slice):
                source = _vector(source)
        targets.append(target)
        sources.append(source)
    return targets, sources


def _vector(positions: slice | npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    if isinstance(positions, slice):
        return np.arange(positions.start, positions.stop)
    return positions


def _slice(positions: npt.NDArray[np.int64]) -> slice | npt.NDArray[np.int64]:
    """Consecutive positions as a slice."""
    count = len(positions)
    if not count:
        return slice(0, 0)
    first, last = int(positions[0]), int(positions[-1])
    if last - first + 1 == count and (count < 3 or bool((np.diff(positions) == 1).all())):
        return slice(first, last + 1)
    return positions


def _whole(tile: Tile) -> npt.NDArray[np.bool_]:
    """Presence of every element of a tile."""
    where = np.ones((1,) * tile.data.ndim, np.bool_)
    for axis, mask in enumerate(tile.present):
        if mask is not None:
            where = where & mask.reshape([-1 if n == axis else 1 for n in range(tile.data.ndim)])
    return where


def _at(error: Array | None, shape: tuple[int, ...], where: npt.NDArray[np.bool_]) -> Array | None:
    return None if error is None else np.broadcast_to(error, shape)[where]
