"""Left operands of products in registers, packed from fragments of accumulators' shape."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import F32
from tilec.passes.lower.access import Guards, padding
from tilec.passes.lower.body import Body, conjunction
from tilec.passes.lower.context import Context, converted
from tilec.passes.products import InRegisters
from tilec.source.text import Span


def left_fragment(context: Context, operand: InRegisters, op: t.Dot) -> k.Fragment:
    """The left operand in registers, 0 where a consumed coordinate is absent."""
    source = operand.source
    fragment = left_registers(context, source, context.names.unique(source.name or "left"))
    context.out.append(k.Declare(fragment, None, span=op.span))
    pack_left(context, source, fragment, op.span)
    return fragment


def left_registers(context: Context, source: t.Value, name: str) -> k.Fragment:
    """Registers for a left operand, which nobody has declared yet."""
    axes = context.ordered(context.loop_axes(source))
    return k.Fragment(name, source.type.dtype, axes, packed=source.type.dtype.bits == 8)


def left_operand(context: Context, operand: InRegisters, op: t.Dot) -> k.Fragment:
    """The same; a carried name that was packed in the trip before is taken as it is."""
    held = context.fragments.get(operand.source.id)
    if (
        held is not None
        and held.rep == operand.source.type.dtype
        and is_packed(context, operand.source)
    ):
        return held
    return left_fragment(context, operand, op)


def is_packed(context: Context, value: t.Value) -> bool:
    """Whether a carried name is nothing but the left operand of products: it is held as they take it."""
    if context.variant.asynchronous is None or value.type.dtype.bits >= 32 or value.type.rank != 2:
        return False
    source = context.definitions.defining.get(value.id)
    if not isinstance(source, t.For):
        return False
    entries = [c for c in source.carried if value in (c.entry, c.result)]
    users = [
        u for c in entries for v in (c.entry, c.result) for u in context.definitions.users[v.id]
    ]
    return bool(users) and all(
        isinstance(u, t.Dot) and u.a in (entries[0].entry, entries[0].result) for u in users
    )


def pack_left(context: Context, source: t.Value, fragment: k.Fragment, span: Span) -> None:
    """A left operand into a fragment."""
    coords = context.loop_axes(source)
    body = Body(context, context.ordered(coords))
    rep = source.type.dtype
    value = unrounded(context, source)
    body.count(value)
    expr = body.value(value, coords)
    guards = Guards()
    if coords[1] is not None:
        guards.add(padding(context, coords[1]))
    guards.add(body.axis_presence(source.type.axes[1], coords[1]))
    if guards.all:
        zero = converted(k.Literal_(0.0, F32), expr.rep)
        expr = k.Apply("where", (conjunction(guards.all), expr, zero), expr.rep)
    if expr.rep == rep and not fragment.packed:
        body.finish(Guards(), [k.Assign(fragment, expr)], [], span)
        return
    fast = next(a for a in body.axes if a.vectorised)
    pair = k.Fragment(body.local_name(f"{fragment.name}_wide"), expr.rep, (fast,), local=True)
    body.loads.append(k.Declare(pair, None))
    body.finish(Guards(), [k.Assign(pair, expr)], [k.ConvertVector(fragment, pair)], span)


def unrounded(context: Context, value: t.Value) -> t.Value:
    """The value before a conversion between floats that the packed form does."""
    op = context.definitions.defining.get(value.id)
    floats = isinstance(op, t.Cast) and op.arg.type.dtype == F32 and value.type.dtype.is_float
    return (
        op.arg if isinstance(op, t.Cast) and floats and value.id not in context.fragments else value
    )
