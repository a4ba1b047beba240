"""Arithmetic on tiles as the language rounds it: the plain interpreter's.

`Arithmetic` is what the interpreter asks for; `running_error.py` answers the same questions in float64 with a bound
beside every element. Absent elements may hold anything; reductions and products replace them by what has no effect.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from tilec.ir.dtypes import F8E4M3, F32, DType
from tilec.ir.tile_ir import ElementwiseName
from tilec.reference import elementwise
from tilec.reference.numbers import (
    Array,
    compute_dtype,
    round_to,
    storage_dtype,
    to_compute,
    to_storage,
    wrap,
)
from tilec.reference.tiles import Mask, Tile, along, both, intersect, replace_absent, widen


class Arithmetic:
    """Values rounded per operation, f32 accumulation of sums and products."""

    bounded = False

    def number(self, value: bool | int | float, dtype: DType) -> Tile:
        """A scalar; integers wrap, floats round."""
        if dtype.is_integer:
            bits = 64 if dtype.bits == 64 else dtype.bits
            low = int(value) & ((1 << bits) - 1)
            if dtype.kind == "int" and low >> (bits - 1):
                low -= 1 << bits
            return Tile(np.asarray(low, compute_dtype(dtype)))
        if dtype.is_float:
            return Tile(round_to(np.asarray(float(value), np.float64), dtype))
        return Tile(np.asarray(bool(value)))

    def tidy(self, op: ElementwiseName, args: Sequence[Tile], dtype: DType, narrow: bool) -> Tile:
        """An element-wise op with its result rounded to `dtype`; `narrow` says that it flows only into stores or products of 16 bits."""
        data = elementwise.evaluate(op, [a.data for a in args])
        return Tile(elementwise.finish(data, dtype))

    def elementwise(
        self, op: ElementwiseName, args: Sequence[Tile], dtype: DType, narrow: bool = False
    ) -> Tile:
        """An element-wise op; presence is the intersection of its arguments'."""
        result = self.tidy(op, args, dtype, narrow)
        present = widen(intersect(args), result.data.shape)
        error = result.error
        if error is not None and error.shape != result.data.shape:
            error = np.broadcast_to(error, result.data.shape)
        return Tile(result.data, present, error, result.spread)

    def cast(self, tile: Tile, source: DType, target: DType) -> Tile:
        """`.to(target)`."""
        return Tile(elementwise.convert(tile.data, source, target), tile.present)

    def bitcast(self, tile: Tile, source: DType, target: DType) -> Tile:
        """The same bits as another type."""
        stored = to_storage(tile.data, source)
        if target.bits == 4:
            return Tile(wrap(stored, target), tile.present)
        bits = np.ascontiguousarray(stored).view(storage_dtype(target)).reshape(stored.shape)
        return Tile(to_compute(bits, target), tile.present)

    def reduce(self, op: str, tile: Tile, axes: Sequence[int], dtype: DType) -> Tile:
        """A reduction over `axes` of a tile of element type `dtype`; absent coordinates are skipped."""
        data = replace_absent(tile.data, tile.present, axes, elementwise.identity(op, dtype))
        kept = tuple(m for n, m in enumerate(tile.present) if n not in axes)
        over = tuple(axes)
        match op:
            case "sum":
                data = (
                    np.logical_or.reduce(data, over) if dtype.kind == "bool" else _sum(data, over)
                )
            case "prod":
                data = np.prod(data, over, dtype=data.dtype)
            case "max" | "min":
                data = _extreme(op, data, over, elementwise.identity(op, dtype))
            case "any":
                data = np.any(data, over)
            case "all":
                data = np.all(data, over)
            case "argmax" | "argmin":
                return Tile(self.arg_extreme(op, data, tile.present[axes[0]], axes[0]), kept)
            case _:
                raise KeyError(op)
        return Tile(elementwise.finish(np.asarray(data), dtype), kept)

    def arg_extreme(self, op: str, data: Array, mask: Mask, axis: int) -> Array:
        """Index of the first extreme among present coordinates; 0 with none."""
        if data.shape[axis] == 0:
            return np.zeros(data.shape[:axis] + data.shape[axis + 1 :], np.int32)
        pick = np.argmax if op == "argmax" else np.argmin
        if mask is None:
            return np.asarray(pick(data, axis)).astype(np.int32)
        kept = np.flatnonzero(mask)
        if not len(kept):
            return np.zeros(data.shape[:axis] + data.shape[axis + 1 :], np.int32)
        return np.asarray(kept[pick(data.take(kept, axis), axis)]).astype(np.int32)

    def scan(self, op: str, tile: Tile, axis: int, dtype: DType) -> Tile:
        """A running sum or maximum along `axis`; absent coordinates are skipped and stay absent."""
        data = replace_absent(tile.data, tile.present, (axis,), elementwise.identity(op, dtype))
        step = np.add if op == "sum" else np.maximum
        data = step.accumulate(data, axis, dtype=data.dtype)
        return Tile(elementwise.finish(data, dtype), tile.present)

    def topk(self, tile: Tile, axis: int, k: int, dtype: DType) -> tuple[Tile, Tile]:
        """The k greatest present elements and their indices; NaN counts as greatest. Of fewer than k the rest is the least value, at -1."""
        mask = tile.present[axis]
        order = descending(tile.data, mask, axis)
        count = order.shape[axis] if mask is None else int(mask.sum())
        picked = order.take(np.arange(min(k, count)), axis)
        values = np.take_along_axis(tile.data, picked, axis)
        missing = k - picked.shape[axis]
        if missing:
            pad = [(0, missing if n == axis else 0) for n in range(picked.ndim)]
            least = elementwise.identity("max", dtype)
            if dtype == F8E4M3:  # has no infinity
                least = elementwise.convert(np.asarray(least, np.float32), F32, dtype)
            picked = np.pad(picked, pad, constant_values=-1)
            values = np.pad(values, pad, constant_values=least)
        present = tuple(None if n == axis else m for n, m in enumerate(tile.present))
        return Tile(values, present), Tile(picked.astype(np.int32), present)

    def dot(
        self,
        a: Tile,
        b: Tile,
        types: tuple[DType, DType, DType],
        accumulate: Tile | None,
        precision: str,
    ) -> Tile:
        """`accumulate + a @ b`; `types` are those of a, b and the result. Coordinates of the consumed axis that are absent
        in either operand add nothing."""
        left, right, present = self.operands(a, b)
        dtype = types[2]
        if dtype.is_integer:
            data = _integer_product(left, right, types)
        else:
            if precision == "tf32":
                left, right = to_tf32(left), to_tf32(right)
            target = compute_dtype(dtype)
            data = np.matmul(left.astype(target), right.astype(target))
        if accumulate is not None:
            data = accumulate.data + data
            present = intersect([accumulate, Tile(data, present)])
        return Tile(elementwise.finish(data, dtype), widen(present, data.shape))

    def operands(self, a: Tile, b: Tile) -> tuple[Array, Array, tuple[Mask, ...]]:
        """Data of a product's operands with the consumed axis cleared where absent, and the presence of the result."""
        rank_a, rank_b = a.data.ndim, b.data.ndim
        consumed = both(a.present[-1], b.present[-2])
        left, right = a.data, b.data
        if consumed is not None:
            left = np.where(along(consumed, rank_a - 1, rank_a), left, np.zeros((), left.dtype))
            right = np.where(along(consumed, rank_b - 2, rank_b), right, np.zeros((), right.dtype))
        lead_a, lead_b = a.present[:-2], b.present[:-2]
        lead: tuple[Mask, ...] = lead_a or lead_b
        if lead_a and lead_b:
            lead = tuple(both(x, y) for x, y in zip(lead_a, lead_b, strict=True))
        return left, right, (*lead, a.present[-2], b.present[-1])


def _sum(data: Array, axes: tuple[int, ...]) -> Array:
    return np.asarray(np.sum(data, axes, dtype=data.dtype))


def _extreme(op: str, data: Array, axes: tuple[int, ...], start: Any) -> Array:
    function = np.max if op == "max" else np.min
    return np.asarray(function(data, axes, initial=start))


def descending(data: Array, mask: Mask, axis: int) -> Array:
    """Indices along `axis` by falling value, NaN first, absent last, equal ones in order."""
    absent = np.zeros(data.shape, np.bool_)
    if mask is not None:
        absent = np.broadcast_to(~along(mask, axis, data.ndim), data.shape)
    if data.dtype.kind == "f":
        return np.lexsort((-data, ~np.isnan(data), absent), axis)
    return np.lexsort((~data, absent), axis)


def to_tf32(data: Array) -> Array:
    """float32 rounded to 10 bits of mantissa, nearest even."""
    bits = np.ascontiguousarray(data, np.float32).view(np.uint32)
    rounded = (bits + np.uint32(0x0FFF) + ((bits >> np.uint32(13)) & np.uint32(1))) & np.uint32(
        0xFFFFE000
    )
    return np.where(np.isfinite(data), rounded.view(np.float32), data).reshape(data.shape)


def _integer_product(left: Array, right: Array, types: tuple[DType, DType, DType]) -> Array:
    """Exact, then wrapped to i32: in float64 (a BLAS product) where it fits into 53 bits."""
    bits = types[0].bits + types[1].bits + max(left.shape[-1], 1).bit_length()
    if bits <= 53:
        product: Array = np.matmul(left.astype(np.float64), right.astype(np.float64)).astype(
            np.int64
        )
    else:
        product = np.matmul(left.astype(np.int64), right.astype(np.int64))
    return product.astype(compute_dtype(types[2]))
