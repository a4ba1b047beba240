"""Reductions, scans, `topk` and `reduce` with a function of the user."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from tilec.analysis.context import Context
from tilec.analysis.entities import (
    POISON,
    Entity,
    FnRef,
    Poison,
    Tile,
    TupleOf,
    describe,
    describe_type,
)
from tilec.analysis.typing_rules import broadcast_axes
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.symbolic import Sym
from tilec.ir.tile_ir import Block, Reduce, ReduceWith, Region, Scan, TileType, TopK, Value

Keywords = Mapping[str, Entity]

ReduceName = Literal["sum", "max", "min", "prod", "any", "all", "argmax", "argmin"]


def _operand(cx: Context, name: str, operand: Entity) -> Value | None:
    value = cx.materialise(operand, None, "tile")
    if value is None:
        return None
    if not value.type.axes:
        cx.error(
            "E0313",
            f"`{name}` needs a tile, not {describe(operand)}",
            help=f"`{name}(a, b)` compares scalars"
            if name in ("min", "max")
            else "reduce before the value is a scalar",
        )
        return None
    return value


def _axes(cx: Context, value: Value, given: Entity | None) -> tuple[int, ...] | None:
    """The axes to reduce: all where none are given; None after a message."""
    rank = value.type.rank
    if given is None:
        return tuple(range(rank))
    chosen = given.elements if isinstance(given, TupleOf) else (given,)
    numbers: list[int] = []
    for entity in chosen:
        number = cx.static_number(entity, "`axis`")
        if number is None:
            return None
        if not -rank <= number < rank:
            cx.error(
                "E0313",
                f"there is no axis {number} in {describe_type(value.type)}",
                help=f"axes count from 0 to {rank - 1}",
            )
            return None
        numbers.append(number % rank)
    if len(set(numbers)) < len(numbers):
        cx.error("E0313", "an axis is named twice")
        return None
    return tuple(sorted(numbers))


def _axis_argument(cx: Context, arguments: list[Entity], keywords: Keywords) -> Entity | None:
    return arguments[1] if len(arguments) > 1 else keywords.get("axis")


def reduce_builtin(cx: Context, name: str, arguments: list[Entity], keywords: Keywords) -> Entity:
    """`sum(x)`, `max(x, axis=1)`, …"""
    value = _operand(cx, name, arguments[0])
    if value is None:
        return POISON
    axes = _axes(cx, value, _axis_argument(cx, arguments, keywords))
    if axes is None:
        return POISON
    op = cast(ReduceName, name)
    dtype = value.type.dtype
    if name in ("any", "all"):
        if dtype != BOOL:
            return cx.error("E0323", f"`{name}` of `{dtype}`", help=f"compare: `{name}(x != 0)`")
    elif dtype == BOOL:
        if name != "sum":
            return cx.error("E0320", f"`{name}` of truth values", help="convert with `.to(i32)`")
        value, dtype = cx.cast(value, I32), I32
    elif name in ("sum", "prod") and dtype.is_integer and dtype.bits < 32:
        return cx.error(
            "E0320",
            f"`{name}` of `{dtype}` would overflow",
            help="convert with `.to(i32)` first, which makes the width of the result plain",
        )
    if name in ("argmax", "argmin"):
        if len(axes) != 1:
            return cx.error("E0313", f"`{name}` takes one axis", help=f"write `{name}(x, axis=0)`")
        dtype = I32
    rest = tuple(a for n, a in enumerate(value.type.axes) if n not in axes)
    return Tile(cx.emit(Reduce(op=op, arg=value, axes=axes), TileType(dtype, rest)))


def scan(cx: Context, name: str, arguments: list[Entity], keywords: Keywords) -> Entity:
    """`cumsum(x, axis=0)`, `cummax`."""
    value = _operand(cx, name, arguments[0])
    if value is None:
        return POISON
    axis = _one_axis(cx, name, value, _axis_argument(cx, arguments, keywords))
    if axis is None:
        return POISON
    if value.type.dtype == BOOL:
        return cx.error("E0320", f"`{name}` of truth values", help="convert with `.to(i32)`")
    op: Literal["sum", "max"] = "sum" if name == "cumsum" else "max"
    return Tile(cx.emit(Scan(op=op, arg=value, axis=axis), value.type))


def _one_axis(cx: Context, name: str, value: Value, given: Entity | None) -> int | None:
    axes = _axes(cx, value, given)
    if axes is None:
        return None
    if len(axes) != 1:
        cx.error("E0313", f"`{name}` takes one axis", help=f"write `{name}(x, axis=0)`")
        return None
    return axes[0]


def topk(cx: Context, arguments: list[Entity], keywords: Keywords) -> Entity:
    """`topk(x, k, axis=1)`: a tuple of the values and their i32 positions."""
    value = _operand(cx, "topk", arguments[0])
    count = arguments[1] if len(arguments) > 1 else keywords.get("k")
    given = arguments[2] if len(arguments) > 2 else keywords.get("axis")
    if value is None:
        return POISON
    if count is None:
        return cx.error("E0207", "`topk` needs a count", help="write `topk(x, 8, axis=0)`")
    axis = _one_axis(cx, "topk", value, given)
    k = cx.static_number(count, "the count of `topk`")
    if axis is None or k is None:
        return POISON
    capacity = value.type.axes[axis].capacity
    if k < 1 or (capacity is not None and k > capacity):
        return cx.error("E0321", f"`topk` of {k} along an axis of `{value.type.axes[axis].extent}`")
    if value.type.dtype == BOOL:
        return cx.error("E0320", "`topk` of truth values", help="convert with `.to(i32)`")
    axes = tuple(cx.axis(Sym.of(k)) if n == axis else a for n, a in enumerate(value.type.axes))
    outs = (
        cx.new_value(TileType(value.type.dtype, axes)),
        cx.new_value(TileType(I32, axes)),
    )
    cx.add(TopK(outs=outs, span=cx.span, arg=value, axis=axis, k=k))
    return TupleOf((Tile(outs[0]), Tile(outs[1])))


def reduce_with(cx: Context, arguments: list[Entity], keywords: Keywords) -> Entity:
    """`reduce(x, axis, fn)`: x a tile or a tuple of tiles of one shape; fn(left, right) of scalars or tuples of scalars."""
    x = arguments[0]
    axis_entity = arguments[1] if len(arguments) > 1 else keywords.get("axis")
    fn = arguments[2] if len(arguments) > 2 else keywords.get("fn")
    if not isinstance(fn, FnRef) or axis_entity is None:
        return cx.error(
            "E0207",
            "`reduce` takes a tile, an axis and a `fn`",
            help="write `reduce(x, axis=0, fn=combine)`",
        )
    parts = x.elements if isinstance(x, TupleOf) else (x,)
    values: list[Value] = []
    for part in parts:
        value = _operand(cx, "reduce", part)
        if value is None:
            return POISON
        values.append(value)
    first = values[0]
    for value in values[1:]:
        if [a.extent for a in value.type.axes] != [a.extent for a in first.type.axes]:
            return cx.error(
                "E0312",
                f"the tiles of `reduce` differ in shape: {describe_type(first.type)} and {describe_type(value.type)}",
            )
    axis = _one_axis(cx, "reduce", first, axis_entity)
    if axis is None:
        return POISON
    sides = [[cx.new_value(TileType(v.type.dtype)) for v in values] for _ in range(2)]
    call: list[Entity]
    if isinstance(x, TupleOf) and len(fn.fn.params) == 2:
        call = [TupleOf(tuple(Tile(v) for v in side)) for side in sides]
    else:
        call = [Tile(v) for side in sides for v in side]
    with cx.block() as ops:
        result = cx.inline(cx, fn.fn, fn.home, call, cx.span)
        if isinstance(result, Poison):
            return POISON
        results = result.elements if isinstance(result, TupleOf) else (result,)
        outputs: list[Value] = []
        for value, item in zip(values, results, strict=False):
            output = cx.materialise(item, value.type.dtype)
            if output is None:
                return POISON
            outputs.append(output)
    if len(results) != len(values) or any(
        o.type != TileType(v.type.dtype) for o, v in zip(outputs, values, strict=True)
    ):
        wanted = ", ".join(str(v.type.dtype) for v in values)
        return cx.error(
            "E0321",
            f"the fn `{fn.fn.name}` of `reduce` must return scalars ({wanted}), as it takes them",
        )
    joined = broadcast_axes(cx, [v.type for v in values], "reduce")
    if joined is None:
        return POISON
    region = Region(tuple(v for side in sides for v in side), Block(tuple(ops)), tuple(outputs))
    kept = tuple(a for n, a in enumerate(joined) if n != axis)
    outs = tuple(cx.new_value(TileType(v.type.dtype, kept)) for v in values)
    cx.add(ReduceWith(outs=outs, span=cx.span, args=tuple(values), axis=axis, combine=region))
    return TupleOf(tuple(Tile(o) for o in outs)) if isinstance(x, TupleOf) else Tile(outs[0])
