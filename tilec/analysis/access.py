"""Indexing tensors: which coordinates, the type of what is read or written there."""

from __future__ import annotations

from typing import TypeAlias

from tilec.analysis.context import Context
from tilec.analysis.entities import (
    Entity,
    Poison,
    SpanTile,
    TensorRef,
    Tile,
    as_sym,
    describe,
)
from tilec.analysis.index_values import is_coordinate
from tilec.analysis.presence import meet, simplify, span_presence
from tilec.analysis.typing_rules import broadcast_axes
from tilec.ir.dtypes import BOOL
from tilec.ir.symbolic import Sym
from tilec.ir.tile_ir import (
    Access,
    AtAll,
    AtScalar,
    AtSpan,
    AtTile,
    Axis,
    Constraint,
    IndexTerm,
    InRange,
    Load,
    TileType,
)
from tilec.lazy_dataclass import dataclass
from tilec.source.text import Span
from tilec.syntax import ast

Term: TypeAlias = "Entity | ast.Slice | ast.NewAxis"
"""An index as evaluated."""


@dataclass(frozen=True)
class Resolved:
    """An access and the axes of the block it selects."""

    access: Access
    axes: tuple[Axis, ...]


def index_tensor(
    cx: Context, tensor: TensorRef, terms: list[Term], spans: list[Span]
) -> Resolved | None:
    """`t[…]` or `t.at[…]`; None after a message."""
    if len(terms) != len(tensor.dims):
        dims = ", ".join(map(str, tensor.dims))
        given = [span.text for span in spans]
        missing = ", ".join([*given, *[":"] * (len(tensor.dims) - len(terms))])
        cx.error(
            "E0302",
            f"`{tensor.name}` is [{dims}] but is indexed with {len(terms)}",
            help=f"write one index for each dimension: `{tensor.name}[{missing}]`"
            if len(terms) < len(tensor.dims)
            else f"leave out {len(terms) - len(tensor.dims)}",
        )
        return None
    if tensor.at:
        return _pointwise(cx, tensor, terms, spans)
    resolved: list[IndexTerm] = []
    axes: list[Axis] = []
    ok = True
    for position, (term, size, span) in enumerate(zip(terms, tensor.dims, spans, strict=True)):
        with cx.at(span):
            if tensor.dtype.bits == 4 and position == len(terms) - 1 and isinstance(term, SpanTile):
                ok &= _is_even(cx, tensor, term)
            one = _outer_term(cx, tensor, term, size)
        if one is None:
            ok = False
            continue
        resolved.append(one[0])
        if one[1] is not None:
            axes.append(one[1])
    if not ok:
        return None
    return Resolved(Access(tensor.name, tuple(resolved), False, tensor.view), tuple(axes))


def _is_outside(index: int | None, size: int | None) -> bool:
    """Whether a constant index is known to be out of range."""
    return index is not None and (index < 0 or (size is not None and index >= size))


def _is_even(cx: Context, tensor: TensorRef, span: SpanTile) -> bool:
    """Whether a span starts at an even place of a packed dimension; False after a message."""
    if cx.facts.divides(span.start, 2):
        return True
    return not isinstance(
        cx.error(
            "E0324",
            f"the span starts at `{span.start}`, which may be odd, in the last dimension of `{tensor.name}`",
            help=f"two `{tensor.dtype}` lie in a byte; start at a multiple of an even extent",
        ),
        Poison,
    )


def _outer_term(
    cx: Context, tensor: TensorRef, term: Term, size: Sym
) -> tuple[IndexTerm, Axis | None] | None:
    match term:
        case ast.NewAxis():
            cx.error(
                "E0314",
                f"`None` does not index the tensor `{tensor.name}`",
                help=f"add the axis to the tile: `{tensor.name}[…][:, None]`",
            )
            return None
        case ast.Slice(None, None):
            axis = cx.bounded_axis(size)
            return None if axis is None else (AtAll(), axis)
        case ast.Slice():
            return _slice_term(cx, term, size)
        case SpanTile() if any(v.kind != "tile" for v in term.extent.variables):
            if term.start.constant == 0 and term.extent == size:
                return AtAll(), cx.axis(size)
            cx.error(
                "E0315",
                f"a span over all of `{term.extent}` indexes a dimension of `{size}`",
                help="it indexes dimensions of that size only, from 0 on",
            )
            return None
        case SpanTile():
            at = AtSpan(term.start, term.extent, term.lo, term.hi)
            presence = span_presence(term.start, term.extent, term.lo, term.hi, size, cx.facts)
            return at, cx.axis(term.extent, presence)
        case Tile(value) if value.type.axes:
            if not _is_index(cx, term):
                return None
            if value.type.rank > 1:
                cx.error(
                    "E0314",
                    f"{describe(term)} has {value.type.rank} axes; an index of `t[…]` has one",
                    help=f"index pointwise: `{tensor.name}.at[…]`",
                )
                return None
            axis = value.type.axes[0]
            cx.index_tiles[value.id] = value
            presence = axis.presence
            if not is_coordinate(value, size, cx.blocks, cx.facts):
                presence = simplify((*presence, InRange(value.id, size)), axis.extent, cx.facts)
            return AtTile(value), Axis(axis.extent, axis.capacity, presence)
        case _:
            index = as_sym(term)
            if index is None:
                _is_index(cx, term)
                return None
            if _is_outside(index.constant, size.constant):
                cx.error(
                    "E0319",
                    f"the index {index} is outside a dimension of {size}",
                    help="an index never wraps around; count from 0",
                )
                return None
            return AtScalar(index), None


def _slice_term(cx: Context, term: ast.Slice, size: Sym) -> tuple[IndexTerm, Axis] | None:
    """`t[lo:hi]` with a compile-time extent: a span of that many coordinates."""
    lower = Sym.of(0) if term.lower is None else cx.sym_of(cx.evaluate(cx, term.lower), "a bound")
    upper = size if term.upper is None else cx.sym_of(cx.evaluate(cx, term.upper), "a bound")
    if lower is None or upper is None:
        return None
    extent = upper - lower
    if any(v.kind not in ("tile",) for v in extent.variables) or (extent.constant or 1) < 0:
        cx.error(
            "E0315",
            f"the slice has the extent `{extent}`, which is no compile-time number",
            help="write `span(start, extent, until=end)` with a compile-time extent",
        )
        return None
    if term.lower is None and term.upper is not None and upper == size:
        return AtAll(), cx.axis(size)
    presence = span_presence(lower, extent, lower, upper, size, cx.facts)
    return AtSpan(lower, extent, lower, upper), cx.axis(extent, presence)


def _is_index(cx: Context, term: Term) -> bool:
    """Whether a tile may index; False after a message."""
    if isinstance(term, Tile) and term.type.dtype.is_integer:
        return True
    entity = term if not isinstance(term, (ast.Slice, ast.NewAxis)) else None
    shown = describe(entity) if entity is not None else "a slice"
    cx.error(
        "E0314",
        f"{shown} is no index",
        help="choose elements with `where(c, a, b)`; an index is a span, an integer or `:`"
        if isinstance(term, Tile) and term.type.dtype == BOOL
        else "an index is a span, an integer scalar, an integer tile or `:`; convert with `.to(i32)`",
    )
    return False


def _pointwise(
    cx: Context, tensor: TensorRef, terms: list[Term], spans: list[Span]
) -> Resolved | None:
    """`t.at[i, j]`: the terms broadcast; with one axis an element out of range is absent."""
    resolved: list[IndexTerm] = []
    types: list[TileType] = []
    constraints: list[Constraint] = []
    for term, size, span in zip(terms, tensor.dims, spans, strict=True):
        with cx.at(span):
            match term:
                case SpanTile():
                    resolved.append(AtSpan(term.start, term.extent, term.lo, term.hi))
                    bound = span_presence(term.start, term.extent, term.lo, term.hi, None, cx.facts)
                    types.append(TileType(tensor.dtype, (cx.axis(term.extent, bound),)))
                    constraints += span_presence(
                        term.start, term.extent, term.lo, term.hi, size, cx.facts
                    )
                case ast.Slice() | ast.NewAxis():
                    cx.error(
                        "E0314",
                        "`.at[…]` takes index tiles, spans and scalars only",
                        help="index with `t[…]` to take a whole dimension",
                    )
                    return None
                case Tile(value) if value.type.axes:
                    if not _is_index(cx, term):
                        return None
                    resolved.append(AtTile(value))
                    types.append(value.type)
                    cx.index_tiles[value.id] = value
                    if not is_coordinate(value, size, cx.blocks, cx.facts):
                        constraints.append(InRange(value.id, size))
                case _:
                    index = as_sym(term)
                    if index is None:
                        _is_index(cx, term)
                        return None
                    resolved.append(AtScalar(index))
    axes = broadcast_axes(cx, types, ".at[…]")
    if axes is None:
        return None
    if len(axes) == 1:
        only = axes[0]
        presence = meet(
            only.presence, simplify(constraints, only.extent, cx.facts), only.extent, cx.facts
        )
        axes = (Axis(only.extent, only.capacity, presence),)
    return Resolved(Access(tensor.name, tuple(resolved), True, tensor.view), axes)


def load(cx: Context, tensor: TensorRef, resolved: Resolved) -> Entity:
    """Read the block; POISON after a message. An integer scalar that was read before is that value, so that sizes and
    bounds made of it compare equal."""
    role = cx.tensors[tensor.name].role
    if role == "output":
        return cx.error(
            "E0211",
            f"the output `{tensor.name}` is read",
            help=f"keep the value in a name, store it to a `temp` too for a later nest, or declare `inout {tensor.name}: …` among the parameters",
        )
    if not resolved.axes and role == "input" and tensor.dtype.is_integer:
        for block in cx.blocks:
            for op in block:
                if isinstance(op, Load) and op.access == resolved.access:
                    return Tile(op.out)
    return Tile(cx.emit(Load(access=resolved.access), TileType(tensor.dtype, resolved.axes)))
