"""Tiles of products' shape in memory, in vectors that the lanes of a warp join or share out: lines of 16 bytes, or pairs across those that
lanes hold."""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.layouts import (
    fragment_lines,
    is_paired,
    is_transposable,
    lane_blocks,
    paired_rows,
    single_columns,
    transposed_columns,
    transposed_rows,
)
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, Coords, vector_access
from tilec.passes.lower.context import Context, compute_type, converted
from tilec.passes.lower.left import unrounded
from tilec.passes.lower.vectors import load_op
from tilec.passes.uses import operands
from tilec.source.text import Span


def store_lines(context: Context, op: t.Store) -> bool:
    """Store a tile of accumulators' shape in lines of 16 bytes, joined from four lanes' pairs, or across the pairs, from transposed
    blocks or neighbouring rows; says whether one of these forms applies."""
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
    if row.layout.is_blocked or col.layout.is_blocked:
        return False
    if row.vectorised and is_paired(col.layout):
        single = k.LoopAxis(f"{row.name}_single", single_columns(row.layout), row.extent)
        line = k.LoopAxis(f"{col.name}_pair", paired_rows(col.layout), col.extent, True)
        return _store_walk(context, op, (row, col), (single, line))
    if col.vectorised and col.layout.steps % 4 == 0:
        line = k.LoopAxis(f"{col.name}_line", fragment_lines(col.layout), col.extent, True)
        return _store_walk(context, op, (row, col), (row, line))
    if row.vectorised and not col.vectorised and is_transposable(col.layout):
        across = k.LoopAxis(f"{row.name}_turned", transposed_columns(row.layout), row.extent)
        line = k.LoopAxis(f"{col.name}_pair", transposed_rows(col.layout), col.extent, True)
        return _store_walk(context, op, (row, col), (across, line))
    return False


def load_lines(context: Context, op: t.Load, name: str) -> k.Fragment | None:
    """A tile of accumulators' shape in registers, loaded in lines of 16 bytes that four lanes share out; None where it cannot be."""
    found = context.axes.of_access(op)
    blocks = lane_blocks(op.out.type.dtype.bits)
    if id(op) not in context.variant.lines or not blocks or len(found) != 2 or None in found:
        return None
    row, col = (context.variant.level.axes[c.number] for c in found if c is not None)
    whole = not row.layout.is_blocked and not col.layout.is_blocked
    if not whole or not col.vectorised or col.layout.steps % (4 * blocks):
        return None
    lines = fragment_lines(col.layout, 8 * blocks)
    line = k.LoopAxis(f"{col.name}_line{8 * blocks if blocks > 1 else ''}", lines, col.extent, True)
    body = Body(context, (row, line))
    mark = context.mark()
    address = body.address(op.access, (row, line), writable=False, span_op=op)
    if not vector_access(address, line) or body.elements or address.guards.tails:
        context.undo(mark)
        return None
    context.extra_axes.append(line)
    fragment = k.Fragment(name, op.out.type.dtype, context.ordered((row, col)))
    context.out.append(k.Declare(fragment, None, span=op.span))
    # all loads are under way before the first exchange waits for one
    lines_name = context.names.unique(f"{name}_lines")
    whole_lines = k.Fragment(lines_name, op.out.type.dtype, context.ordered((row, line)))
    context.out.append(k.Declare(whole_lines, None, span=op.span))
    load = load_op(context, op, whole_lines, address, line)
    spread = k.SpreadLine(fragment, whole_lines, row, line, 4 * blocks, span=op.span)
    context.out.append(k.TileLoop((row, line), (), (load,), span=op.span))
    context.spreads[op.out.id] = k.TileLoop((row, line), (), (spread,), span=op.span)
    return fragment


def spread_read(context: Context, op: t.Op) -> None:
    """Share out the lines that an op reads, where nothing has read them yet: until then they may be under way. A loop or a branch may
    read all."""
    within = isinstance(op, t.For | t.If)
    read = list(context.spreads) if within else [value.id for value in operands(op)]
    for number in read:
        spread = context.spreads.pop(number, None)
        if spread is not None:
            context.out.append(spread)


def _store_walk(
    context: Context,
    op: t.Store,
    axes: tuple[k.LoopAxis, k.LoopAxis],
    walk: tuple[k.LoopAxis, k.LoopAxis],
) -> bool:
    """Store a tile with these axes in vectors along the last axis of the walk; says whether whole ones can be stored."""
    rep = context.program.tensor(op.access.tensor).dtype
    across, line = walk
    body = Body(context, walk)
    mark = context.mark()
    address = body.address(op.access, walk, writable=True, span_op=op)
    guards = address.guards
    guards.add(body.presence(op.value, walk))
    if not vector_access(address, line) or guards.tails or guards.element:
        context.undo(mark)
        return False
    context.extra_axes += [axis for axis in walk if axis not in axes]
    form: type[k.GatherLine | k.TransposeBlock | k.JoinRows] = k.GatherLine
    if across not in axes:
        form = k.JoinRows if is_paired(axes[1].layout) else k.TransposeBlock
    if form is k.JoinRows:
        source = _unrounded_fragment(context, op, axes)
    else:
        name = f"{op.access.tensor}_out"
        source = k.Fragment(name, op.value.type.dtype, context.ordered(axes))
        held = context.fragments.get(op.value.id)
        if held is not None and (held.axes, held.rep) == (source.axes, source.rep):
            source = held
        else:
            source = replace(source, name=context.names.unique(name))
            rounded_fragment(context, op.value, axes, source, op.span)
    packed = source.rep if form is k.JoinRows else rep
    joined = k.Fragment(body.local_name(f"{op.access.tensor}_line"), packed, (line,), local=True)
    body.loads.append(form(joined, source, across, line, span=op.span))
    store = k.StoreVector(
        joined, rep, address.pointer, address.vector, True, tuple(guards.vector), None, span=op.span
    )
    body.finish(Guards(), [], [store], op.span)
    return True


def _unrounded_fragment(
    context: Context, op: t.Store, axes: tuple[k.LoopAxis, k.LoopAxis]
) -> k.Fragment:
    """A tile in registers before it is rounded: a thread's own pairs are rounded as they leave, since a rounded tile beside the
    accumulators takes too many registers."""
    value = unrounded(context, op.value)
    held = context.fragments.get(value.id)
    if held is not None and held.axes == context.ordered(axes):
        return held
    body = Body(context, context.ordered(axes))
    body.count(value)
    expr = converted(body.value(value, axes), compute_type(value.type.dtype))
    name = context.names.unique(f"{op.access.tensor}_out")
    fragment = k.Fragment(name, expr.rep, context.ordered(axes))
    context.out.append(k.Declare(fragment, None, span=op.span))
    body.finish(Guards(), [k.Assign(fragment, expr)], [], op.span)
    return fragment


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
