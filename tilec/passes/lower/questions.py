"""What lowering asks of a nest before it writes anything."""

from __future__ import annotations

from itertools import compress, product

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import DType
from tilec.ir.symbolic import Sym, Var
from tilec.passes.interior import Floor, Interior, find_interior
from tilec.passes.lower.context import Context
from tilec.passes.lower.products import has_products
from tilec.passes.uses import Definitions, all_ops
from tilec.source.diagnostics import fail

_LARGE = 1 << 14
"""A size that is tried out."""
_MOST_LOADED = 6
"""Loaded integers of a loop's trips that are tried out, each with that and with 0."""


def costs_more_later(nest: t.Nest, index: Var) -> bool:
    """Whether a later instance along a grid loop runs more trips, tried out with large sizes, and with loaded integers that are large or
    0: those should start first."""

    def trips(op: t.For, number: int, large: frozenset[Var]) -> int:
        known = {"dim": _LARGE, "tile": 128}
        return op.trips.evaluate(
            lambda v: number if v == index else _LARGE if v in large else known.get(v.kind, 0)
        )

    def grows(op: t.For) -> bool:
        loaded = sorted(v for v in op.trips.variables if v.kind == "value")[:_MOST_LOADED]
        chosen = product((False, True), repeat=len(loaded))
        large = [frozenset(compress(loaded, c)) for c in chosen]
        more = [trips(op, 8, some) - trips(op, 0, some) for some in large]
        return min(more) >= 0 and max(more) > 0

    loops = [
        op for op in all_ops(nest.body) if isinstance(op, t.For) and index in op.trips.variables
    ]
    return bool(loops) and all(map(grows, loops))


def half_values(nest: t.Nest, definitions: Definitions) -> frozenset[int]:
    """Values that flow only into conversions to floats of 16 bits or fewer, through element-wise ops."""
    found: set[int] = set()
    for op in reversed(list(all_ops(nest.body))):
        for value in op.outs:
            users = definitions.users.get(value.id, [])
            if users and all(_hides(user, found) for user in users):
                found.add(value.id)
    return frozenset(found)


def _hides(user: t.Op, found: set[int]) -> bool:
    match user:
        case t.Cast():
            return sixteen_bits(user.out.type.dtype) or user.out.id in found
        case t.Elementwise() | t.Rearrange() | t.Fill():
            return user.out.id in found
        case t.Store():
            return sixteen_bits(user.value.type.dtype)
        case _:
            return False


def reject_hazards(context: Context) -> None:
    """A tile that is walked is read again by each of its sinks: it must not change in between."""
    streams = context.variant.level.streams
    for number, store in context.placement.hazards.items():
        value = context.definitions.values[number]
        if any(c is not None and c.number in streams for c in context.axes.of_value(value)):
            raise fail(
                "E0602",
                f"`{store.access.tensor}` is overwritten while a row of it that does not fit registers is still needed",
                store.span,
                help="bound the row with `require`, or write to a tensor of its own",
            )


def is_span_loop(op: t.For) -> bool:
    """Whether the loop's trips step by more than one coordinate: then its number is not the coordinate."""
    for inner in all_ops(op.body):
        if isinstance(inner, t.Load | t.Store | t.Atomic):
            for term in inner.access.terms:
                if isinstance(term, t.AtSpan) and op.index in term.start.variables:
                    return True
    return False


def before_rounding(context: Context, value: t.Value) -> t.Value:
    """The value before a conversion that the store does itself, packed."""
    op = context.definitions.defining.get(value.id)
    if (
        isinstance(op, t.Cast)
        and value.id not in context.fragments
        and value.id not in context.scalars
        and value.type.dtype.is_float
        and op.arg.type.dtype.is_float
    ):
        return op.arg
    return value


def meets_others(context: Context, op: t.Store) -> bool:
    """Whether another access of the instance may touch what this store writes, from another thread."""
    return any(
        isinstance(other, t.Load | t.Store | t.Atomic)
        and other is not op
        and meet(context, op, other)
        for other in all_ops(context.nest.body)
    )


def meet(context: Context, op: t.Store, other: t.Load | t.Store | t.Atomic) -> bool:
    """Whether two accesses may touch the same element from different threads: those of one place belong to one thread, and parts of a
    dimension that lie side by side are apart."""
    a, b = op.access, other.access
    if a.tensor != b.tensor or a == b:
        return False
    if a.view != b.view or a.pointwise or b.pointwise:
        return True
    return not any(_side_by_side(context, x, y) for x, y in zip(a.terms, b.terms, strict=True))


def _side_by_side(context: Context, a: t.IndexTerm, b: t.IndexTerm) -> bool:
    """Whether two terms select no coordinate in common, in all trips of the loops inside of an instance."""
    fixed = {loop.index for loop in context.nest.grid}
    ends: list[tuple[Sym, Sym]] = []
    for term in (a, b):
        match term:
            case t.AtSpan():
                start, extent = term.start, term.extent
            case t.AtScalar():
                start, extent = term.index, Sym.of(1)
            case _:
                return False
        if any(v.kind not in ("dim", "tile") and v not in fixed for v in start.variables):
            return False
        ends.append((start, start + extent))
    gaps = (ends[1][0] - ends[0][1], ends[0][0] - ends[1][1])
    return any(context.facts.prove_nonnegative(gap) for gap in gaps)


def sixteen_bits(dtype: DType) -> bool:
    """A float of 16 bits or fewer."""
    return dtype.is_float and dtype.bits <= 16


def coords_for(
    value: t.Value, coords: tuple[k.LoopAxis | None, ...]
) -> tuple[k.LoopAxis | None, ...]:
    """The axes that a value of a nest is walked along; None where its extent is 1."""
    if value.type.rank == 0:
        return ()
    return tuple(
        None if axis.is_one else c for axis, c in zip(value.type.axes, coords, strict=True)
    )


def interior_of(context: Context, op: t.For, floor: Floor | None = None) -> Interior | None:
    """The trips of a loop with products that need no masks, in the rows from `floor` on, if its bounds are known in front of it."""
    if context.variant.products is None or not has_products(op):
        return None
    found = find_interior(context.program, op, context.definitions, context.facts, floor)
    if found is None:
        return None
    inside = {v.id for inner in all_ops(op.body) for v in inner.outs}
    syms = found.first.variables | found.end.variables
    syms |= {v for count in found.counts for v in count.end.variables}
    if op.index in syms or any(v.kind == "value" and v.key in inside for v in syms):
        return None
    return found
