"""How operands agree: one dtype by promotion and weakness, one shape by broadcasting."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.analysis.context import Context
from tilec.analysis.entities import Entity, Integer, Known, SpanTile, Tile
from tilec.analysis.presence import meet, simplify
from tilec.ir.dtypes import BOOL, F32, I32, DType, promote
from tilec.ir.symbolic import Sym
from tilec.ir.tile_ir import (
    AtLeast,
    Axis,
    Below,
    Constraint,
    Elementwise,
    ElementwiseName,
    InRange,
    Rearrange,
    TileType,
    Value,
)


def strong_dtype(entity: Entity) -> DType | None:
    """The dtype that an operand insists on, None where it is weak or no value."""
    match entity:
        case Integer(_, dtype):
            return dtype
        case Tile(value, weak):
            return None if weak else value.type.dtype
        case SpanTile():
            return I32
        case _:
            return None


def weak_kind(entity: Entity) -> str:
    """ "bool", "int" or "float" of a weak operand."""
    match entity:
        case Known(value):
            return (
                "bool"
                if isinstance(value, bool)
                else "float"
                if isinstance(value, float)
                else "int"
            )
        case Tile(value, _):
            dtype = value.type.dtype
            return "float" if dtype.is_float else "bool" if dtype == BOOL else "int"
        case _:
            return "int"


def unify(cx: Context, operands: Sequence[Entity], what: str) -> tuple[DType, bool] | None:
    """The one dtype of the operands of `what` and whether the result is weak; None after a message."""
    dtype: DType | None = None
    for operand in operands:
        strong = strong_dtype(operand)
        if strong is None:
            continue
        if dtype is None:
            dtype = strong
            continue
        common = promote(dtype, strong)
        if common is None:
            cx.error(
                "E0304",
                f"`{what}` of `{dtype}` and `{strong}` has no common dtype",
                help=_conversion(dtype, strong),
            )
            return None
        dtype = common
    kinds = [weak_kind(o) for o in operands if strong_dtype(o) is None]
    if dtype is None:
        if "float" in kinds:
            return F32, True
        return (I32 if "int" in kinds else BOOL), True
    if dtype.is_integer and "float" in kinds:
        cx.error(
            "E0304",
            f"`{what}` of `{dtype}` and a float literal needs a conversion",
            help="convert the integer with `.to(f32)`",
        )
        return None
    if dtype == BOOL and "float" in kinds:
        return F32, False
    if dtype == BOOL and "int" in kinds:
        return I32, False
    return dtype, False


def _conversion(left: DType, right: DType) -> str:
    if left.is_float and right.is_float:
        return f"convert one with `.to({left})`, `.to({right})` or both with `.to(f32)`"
    floating = left if left.is_float else right if right.is_float else None
    if floating is not None:
        return f"convert the integer with `.to({floating})`"
    return "convert both with `.to(i64)`"


def broadcast_axes(cx: Context, types: Sequence[TileType], what: str) -> tuple[Axis, ...] | None:
    """The axes of the result of an element-wise operation; None after a message."""
    rank = max((t.rank for t in types), default=0)
    result: list[Axis] = []
    for position in range(rank):
        axes = [t.axes[position - rank + t.rank] for t in types if position - rank + t.rank >= 0]
        axis = axes[0]
        for other in axes[1:]:
            joined = join_axes(cx, axis, other)
            if joined is None:
                cx.error(
                    "E0312",
                    f"extents {show_extent(cx, axis.extent)} and {show_extent(cx, other.extent)} do not agree in `{what}`",
                    note="the operands are "
                    + " and ".join(
                        f"`[{', '.join(str(a.extent) for a in t.axes)}]`" for t in types if t.axes
                    ),
                    help=_agreement(axis, other),
                )
                return None
            axis = joined
        result.append(axis)
    return tuple(result)


def _agreement(left: Axis, right: Axis) -> str:
    if left.is_static and right.is_static and (left.extent.variables or right.extent.variables):
        return (
            "two extents agree only if they are the same expression or one is 1: use one tile size for both, "
            "or align the axes with `[:, None]`"
        )
    return "align the axes with `[:, None]` or `[None, :]`"


def show_extent(cx: Context, extent: Sym) -> str:
    """`BM` = 128, or the expression alone."""
    number = cx.facts.numeric(extent).constant
    if number is None or extent.constant is not None:
        return f"`{extent}`"
    return f"`{extent}` (= {number})"


def join_axes(cx: Context, left: Axis, right: Axis) -> Axis | None:
    """Two aligned axes as one, None where their extents do not agree."""
    if left.extent == right.extent:
        presence = meet(left.presence, right.presence, left.extent, cx.facts)
        return left if presence == left.presence else Axis(left.extent, left.capacity, presence)
    if right.is_one:
        left, right = right, left
    if not left.is_one:
        return None
    stretched = stretch(cx, left.presence, right.extent)
    return Axis(
        right.extent, right.capacity, meet(right.presence, stretched, right.extent, cx.facts)
    )


def stretch(cx: Context, presence: tuple[Constraint, ...], extent: Sym) -> tuple[Constraint, ...]:
    """Presence of the one coordinate of an axis of extent 1 after broadcasting: all or nothing. r < n*limit holds for
    every 0 <= r < n if limit >= 1 and for none otherwise."""
    parts: list[Constraint] = []
    for constraint in presence:
        match constraint:
            case Below(limit):
                parts.append(Below(limit * extent))
            case AtLeast(limit):
                parts.append(AtLeast(limit * extent))
            case InRange():
                parts.append(constraint)
    return simplify(parts, extent, cx.facts)


def aligned(cx: Context, value: Value, rank: int) -> Value:
    """The value with leading axes of extent 1 up to the rank; a scalar stays one."""
    missing = rank - value.type.rank
    if missing <= 0 or not value.type.axes:
        return value
    axes = tuple(cx.axis(Sym.of(1)) for _ in range(missing)) + value.type.axes
    order: tuple[int | None, ...] = (None,) * missing + tuple(range(value.type.rank))
    return cx.emit(Rearrange(arg=value, axes=order), TileType(value.type.dtype, axes))


def elementwise(
    cx: Context,
    op: ElementwiseName,
    operands: Sequence[Value],
    dtype: DType,
    what: str,
) -> Value | None:
    """One element-wise op on values that already have their dtypes; None after a message."""
    axes = broadcast_axes(cx, [v.type for v in operands], what)
    if axes is None:
        return None
    arguments = tuple(aligned(cx, v, len(axes)) for v in operands)
    return cx.emit(Elementwise(op=op, args=arguments), TileType(dtype, axes))


def values_of(cx: Context, operands: Sequence[Entity], dtype: DType) -> list[Value] | None:
    """All operands as values of the dtype; None after a message."""
    values: list[Value] = []
    for operand in operands:
        value = cx.materialise(operand, dtype, "number")
        if value is None:
            return None
        values.append(cx.cast(value, dtype))
    return values
