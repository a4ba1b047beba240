"""Stores of products' tiles in lines of 16 bytes, joined from the pairs that four lanes hold."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.layouts import fragment_lines
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, Coords, vector_access
from tilec.passes.lower.context import Context
from tilec.passes.lower.left import unrounded
from tilec.source.text import Span


def store_lines(context: Context, op: t.Store) -> bool:
    """Store a tile of accumulators' shape in lines of 16 bytes, joined from four lanes' pairs; says whether that form applies."""
    found = context.axes.of_access(op)
    bits = context.program.tensor(op.access.tensor).dtype.bits
    if (
        id(op) not in context.variant.aligned
        or bits != 16
        or len(found) != 2
        or op.value.type.rank != 2
    ):
        return False
    if any(c is None for c in found):
        return False
    row, col = (context.variant.level.axes[c.number] for c in found if c is not None)
    if row.layout.is_blocked or col.layout.is_blocked or not col.vectorised or col.layout.steps % 4:
        return False
    rep = context.program.tensor(op.access.tensor).dtype
    line = k.LoopAxis(f"{col.name}_line", fragment_lines(col.layout), col.extent, True)
    coords: Coords = (row, line)
    body = Body(context, (row, line))
    mark = context.mark()
    address = body.address(op.access, coords, writable=True, span_op=op)
    guards = address.guards
    guards.add(body.presence(op.value, coords))
    if not vector_access(address, line) or guards.tails or guards.element:
        context.undo(mark)
        return False
    context.extra_axes.append(line)
    axes = context.ordered((row, col))
    source = k.Fragment(context.names.unique(f"{op.access.tensor}_out"), op.value.type.dtype, axes)
    rounded_fragment(context, op.value, (row, col), source, op.span)
    joined = k.Fragment(body.local_name(f"{op.access.tensor}_line"), rep, (line,), local=True)
    body.loads.append(k.GatherLine(joined, source, row, line, span=op.span))
    store = k.StoreVector(
        joined, rep, address.pointer, address.vector, True, tuple(guards.vector), None, span=op.span
    )
    body.finish(Guards(), [], [store], op.span)
    return True


def rounded_fragment(
    context: Context,
    value: t.Value,
    coords: Coords,
    fragment: k.Fragment,
    span: Span,
    declared: bool = True,
    parts: tuple[k.Part, ...] = (),
) -> None:
    """A tile, or parts of it, evaluated into registers (declared here, or elsewhere), rounded to its narrow type in pairs."""
    body = Body(context, context.ordered(coords))
    rep = value.type.dtype
    wide = unrounded(context, value)
    body.count(wide)
    expr = body.value(wide, coords)
    if declared:
        context.out.append(k.Declare(fragment, None, span=span))
    if expr.rep == rep:
        body.finish(Guards(), [k.Assign(fragment, expr)], [], span, parts)
        return
    fast = next(a for a in body.axes if a.vectorised)
    pair = k.Fragment(body.local_name(f"{fragment.name}_wide"), expr.rep, (fast,), local=True)
    body.loads.append(k.Declare(pair, None))
    body.finish(Guards(), [k.Assign(pair, expr)], [k.ConvertVector(fragment, pair)], span, parts)
