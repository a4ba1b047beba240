"""Whole arrays of a `check` in float64, and where their blocked axis lies.

A check is evaluated either at once or in blocks of its leading dimension. In blocks every value knows which of its axes runs along
that dimension; an operation that would mix blocks (a reduction over it, a product over it) raises CannotBlock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeAlias

import numpy as np

from tilec.ir.dtypes import F64, DType
from tilec.reference import elementwise
from tilec.reference.arithmetic import descending
from tilec.reference.numbers import Array, round_to, wrap


class CannotBlock(Exception):
    """The blocks of the leading dimension are not independent."""


class TooLarge(Exception):
    """An intermediate array, or the work, exceeds the limit in force."""


@dataclass(frozen=True)
class Whole:
    """An array in float64, int64 or bool. `axis` is the blocked axis counted from the end (-1 is the last), None without."""

    data: Array
    axis: int | None = None

    @property
    def rank(self) -> int:
        """The number of its axes."""
        return self.data.ndim


class Repeated(Whole):
    """`source` with every coordinate of its axis `place`, counted from the end, `count` times in a row. `data` makes that when it is asked
    for, of at most `limit` elements (else TooLarge): a product of many rows with each coordinate needs it once."""

    def __init__(self, source: Whole, place: int, count: int, limit: int) -> None:
        for name, value in (("source", source), ("place", place), ("count", count)):
            object.__setattr__(self, name, value)
        object.__setattr__(self, "limit", limit)
        object.__setattr__(self, "axis", source.axis)

    source: Whole
    place: int
    count: int
    limit: int

    @property
    def rank(self) -> int:
        """As the source's."""
        return self.source.rank

    @cached_property
    def data(self) -> Array:
        """All of it."""
        if self.source.data.size * self.count > self.limit:
            raise TooLarge
        return np.repeat(self.source.data, self.count, self.place)


Term: TypeAlias = "Whole | slice | int | None"
"""An index: a one-axis integer array, a slice, a number, None for a new axis."""


PER_ELEMENT = 40
"""Operations of a product that NumPy does in the time of one element of another function."""


class Wholes:
    """Operations on whole arrays. `limit` is the greatest number of elements of a result, `budget` of operations (of products;
    an element of anything else counts PER_ELEMENT). `largest` and `work` are those so far that grow with a block."""

    def __init__(self, limit: int, budget: float) -> None:
        self.limit = limit
        self.budget = budget
        self.spent = 0
        self.largest = 1
        self.work = 0

    def room(self, shape: Sequence[int], blocked: bool, depth: int = 0) -> None:
        """Raise TooLarge where a result of this shape exceeds a limit; `depth` of a product."""
        size = 1
        for extent in shape:
            size *= extent
        work = size * (2 * depth or PER_ELEMENT)
        self.spent += work
        if blocked:
            self.largest = max(self.largest, size)
            self.work += work
        if size > self.limit or self.spent > self.budget:
            raise TooLarge

    def together(self, args: Sequence[Whole]) -> int | None:
        """The blocked axis of arguments that broadcast. ValueError where they do not."""
        shape = np.broadcast_shapes(*(a.data.shape for a in args))
        axes = {a.axis for a in args if a.axis is not None}
        self.room(shape, bool(axes))
        if len(axes) > 1:
            raise CannotBlock
        axis = next(iter(axes), None)
        if axis is not None:
            for arg in args:
                if arg.axis is None and arg.data.ndim >= -axis and arg.data.shape[axis] != 1:
                    raise CannotBlock
        return axis

    def elementwise(self, function: Callable[..., Any], *args: Whole) -> Whole:
        """A NumPy function of broadcast arguments."""
        axis = self.together(args)
        with np.errstate(all="ignore"):
            return Whole(np.asarray(function(*(a.data for a in args))), axis)

    def matmul(self, a: Whole, b: Whole) -> Whole:
        """`a @ b` over leading axes. ValueError where the shapes do not fit."""
        if isinstance(b, Repeated) and self._rows_of_each(a, b):
            # the rows of one and the same matrix are the rows of one product
            *around, heads, rows, depth = a.data.shape
            together = a.data.reshape(*around, heads // b.count, b.count * rows, depth)
            product = self.matmul(Whole(together, a.axis), b.source)
            width = product.data.shape[-1]
            whole = (*product.data.shape[:-3], heads, rows, width)
            return Whole(product.data.reshape(whole), product.axis)
        if a.data.ndim < 2 or b.data.ndim < 2:
            raise ValueError("operands of `@` need two axes or more")
        lead = np.broadcast_shapes(a.data.shape[:-2], b.data.shape[:-2])
        shape = (*lead, a.data.shape[-2], b.data.shape[-1])
        self.room(shape, a.axis is not None or b.axis is not None, a.data.shape[-1])
        if a.axis == -1 or b.axis == -2:
            raise CannotBlock
        axes = {w.axis for w in (a, b) if w.axis is not None}
        if len(axes) > 1:
            raise CannotBlock
        axis = next(iter(axes), None)
        if axis is not None and axis <= -3:
            for one in (a, b):
                if one.axis is None and one.data.ndim >= -axis and one.data.shape[axis] != 1:
                    raise CannotBlock
        with np.errstate(all="ignore"):
            return Whole(np.matmul(a.data, b.data), axis)

    @staticmethod
    def _rows_of_each(a: Whole, b: Repeated) -> bool:
        """Whether the last leading axis of both is the repeated one, and blocks run along none of the last three."""
        shape = a.data.shape
        leads = b.place == -3 and len(shape) >= 3 and b.source.data.ndim >= 3
        whole = leads and shape[-3] == b.source.data.shape[-3] * b.count
        return whole and all(x.axis is None or x.axis < -3 for x in (a, b))

    def transpose(self, x: Whole) -> Whole:
        """The last two axes swapped."""
        if isinstance(x, Repeated) and x.place < -2:
            return Repeated(self.transpose(x.source), x.place, x.count, x.limit)
        swapped = {-1: -2, -2: -1}.get(x.axis or 0, x.axis)
        return Whole(np.swapaxes(x.data, -1, -2), swapped)

    def reduce(self, op: str, x: Whole, axes: tuple[int, ...] | None) -> Whole:
        """A reduction over `axes` (None: all); the identity over an extent of 0."""
        rank = x.data.ndim
        over = tuple(range(rank)) if axes is None else tuple(a % rank for a in axes)
        if any(not -rank <= a < rank for a in axes or ()):
            raise ValueError(f"axis out of range for {rank} axes")
        axis = x.axis
        if axis is not None:
            if axis + rank in over:
                raise CannotBlock
            axis += sum(a > axis + rank for a in over)
        with np.errstate(all="ignore"):
            return Whole(np.asarray(_reduced(op, x.data, over)), axis)

    def scan(self, op: str, x: Whole, axis: int) -> Whole:
        """cumsum, cummax."""
        if x.axis is not None and x.axis == axis % x.data.ndim - x.data.ndim:
            raise CannotBlock
        function = np.add if op == "sum" else np.maximum
        return Whole(function.accumulate(x.data, axis), x.axis)

    def topk(self, x: Whole, k: int, axis: int) -> tuple[Whole, Whole]:
        """Values and indices of the k greatest, descending."""
        if x.axis is not None and x.axis == axis % x.data.ndim - x.data.ndim:
            raise CannotBlock
        order = descending(x.data, None, axis).take(np.arange(k), axis)
        values = np.take_along_axis(x.data, order, axis)
        return Whole(values, x.axis), Whole(order.astype(np.int64), x.axis)

    def repeat(self, x: Whole, count: int, axis: int) -> Whole:
        """Every coordinate of `axis` `count` times in a row."""
        rank = x.data.ndim
        if x.axis is not None and axis % rank - rank == x.axis:
            raise CannotBlock
        place = axis % rank - rank
        if place == -3:
            return Repeated(x, place, count, self.limit)
        self.room((x.data.size, count), x.axis is not None)
        return Whole(np.repeat(x.data, count, axis), x.axis)

    def index(self, x: Whole, terms: Sequence[Term]) -> Whole:
        """Outer indexing by None (a new axis), slices, numbers and integer arrays (Wholes), of which one with several axes stands alone."""
        rank = x.data.ndim
        consumed = sum(t is not None for t in terms)
        if consumed > rank:
            raise ValueError(f"{consumed} indices for {rank} axes")
        terms = [*terms, *([slice(None)] * (rank - consumed))]
        data, place, position, axis = x.data, 0, 0, None
        blocked = None if x.axis is None else x.axis + rank
        for term in terms:
            if term is None:
                data = np.expand_dims(data, place)
                place += 1
                continue
            here = position == blocked
            position += 1
            if here and term != slice(None):
                raise CannotBlock
            if isinstance(term, slice):
                data = data[(slice(None),) * place + (term,)]
                axis = place if here else axis
                place += 1
            elif isinstance(term, Whole):
                if term.axis is not None:
                    if axis is not None or blocked is not None:
                        raise CannotBlock
                    axis = place + term.data.ndim + term.axis
                _inside(term.data, data.shape[place])
                shape = (*data.shape[:place], *term.data.shape, *data.shape[place + 1 :])
                self.room(shape, term.axis is not None or x.axis is not None)
                data = data.take(term.data, place)
                place += term.data.ndim
            else:
                _inside(np.asarray(term), data.shape[place])
                data = data.take(term, place)
        return Whole(data, None if axis is None else axis - data.ndim)


def _inside(positions: Array, extent: int) -> None:
    """Indices never wrap."""
    if positions.size and (int(positions.min()) < 0 or int(positions.max()) >= extent):
        raise ValueError(f"an index is not in 0 … {extent - 1}")


def _reduced(op: str, data: Array, over: tuple[int, ...]) -> Any:
    match op:
        case "sum":
            return np.sum(data, over)
        case "prod":
            return np.prod(data, over)
        case "max" | "min":
            if data.dtype.kind == "f":
                start: Any = -np.inf if op == "max" else np.inf
            elif data.dtype.kind == "b":
                start = op == "min"
            else:
                limits = np.iinfo(data.dtype)
                start = limits.min if op == "max" else limits.max
            return (np.max if op == "max" else np.min)(data, over, initial=start)
        case "any":
            return np.any(data, over)
        case "all":
            return np.all(data, over)
        case "argmax" | "argmin":
            if len(over) != 1:
                raise ValueError(f"`{op}` needs `axis`")
            if data.shape[over[0]] == 0:
                return np.zeros(data.shape[: over[0]] + data.shape[over[0] + 1 :], np.int64)
            return (np.argmax if op == "argmax" else np.argmin)(data, over[0])
        case _:
            raise KeyError(op)


def convert(x: Whole, target: DType) -> Whole:
    """`.to(target)` and back to float64 or int64."""
    data = x.data
    with np.errstate(all="ignore"):
        if target.is_float:
            return Whole(round_to(data.astype(np.float64), target).astype(np.float64), x.axis)
        if target.kind == "bool":
            return Whole(data != 0, x.axis)
        if data.dtype.kind == "f":
            return Whole(elementwise.convert(data, F64, target).astype(np.int64), x.axis)
        return Whole(wrap(data.astype(np.int64), target).astype(np.int64), x.axis)
