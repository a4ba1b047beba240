"""Scans: along a thread's vector, over the lanes and the warps of a step, and from one step to the next, always in one fixed order.

x = 1 1 1 1 | 1 1 1 1     two vectors of two lanes
    1 2 3 4 | 1 2 3 4     in the vector; its last is what the vector adds to those behind it (`part`)
          0         4     what comes before the vector: lanes, warps, earlier steps
    1 2 3 4 | 5 6 7 8
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import I32
from tilec.ir.layouts import Digit, blocked
from tilec.ir.symbolic import Sym, Var
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, conjunction, hold_in
from tilec.passes.lower.context import THREAD, Context, compute_type, converted
from tilec.passes.lower.reductions import each_register, push_partials
from tilec.source.diagnostics import fail


def lower_scan(context: Context, op: t.Scan) -> None:
    """The whole scan; its result is a fragment."""
    value, result = op.arg, op.out
    coords = context.loop_axes(value)
    axis = coords[op.axis]
    name = context.names.unique(result.name or f"{op.op}_scan")
    if axis is None:
        hold_in(context, result, value, coords, name)
        return
    digit = scanned_digit(context, op, axis)
    dtype = compute_type(result.type.dtype)
    target = k.Fragment(name, dtype, context.ordered(coords))
    others = tuple(a for a in target.axes if a is not axis)
    steps = steps_axis(context, axis)
    part = k.Fragment(context.names.unique(f"{name}_part"), dtype, (*others, steps))
    neutral = k.Identity(op.op, dtype)
    context.out.append(k.Declare(target, None, span=op.span))
    context.out.append(k.Declare(part, neutral, span=op.span))
    body = Body(context, target.axes)
    body.count(value)
    element = converted(body.value(value, coords), dtype)
    guards = body.reduced_guards(value, coords, (op.axis,))
    if guards.all:
        element = k.Apply("where", (conjunction(guards.all), element, neutral), dtype)
    here = step_of(steps, axis)
    body.prelude += here
    inside = [
        k.Accumulate(part, op.op, element),
        k.Assign(target, k.Element(part, dtype)),
    ]
    body.finish(Guards(), inside, [], op.span)
    _before_vectors(context, op, part, others, axis, digit)
    add = k.Accumulate(target, op.op, k.Element(part, dtype))
    context.out.append(k.TileLoop(target.axes, (), (*here, k.Elements((), (add,))), span=op.span))
    context.fragments[result.id] = target


def scanned_digit(context: Context, op: t.Scan | t.ReduceWith, axis: k.LoopAxis) -> Digit:
    """The thread digit of the axis. Raises E0512 where its coordinates are no vectors of neighbouring threads."""
    digit = axis.layout.thread_digit
    if not axis.layout.is_blocked or digit is None or context.variant.level.ctas > 1:
        raise fail(
            "E0512",
            "a scan, or `reduce` with a function, along the rows or columns of a product cannot be compiled to CUDA yet",
            op.span,
            help="store the tile to a `temp` in one nest and read it in the next",
        )
    return digit


def steps_axis(context: Context, axis: k.LoopAxis) -> k.LoopAxis:
    """An axis with one element for each vector that a thread holds."""
    name = f"{axis.name}_part"
    found = next((a for a in context.extra_axes if a.name == name), None)
    if found is None:
        steps = axis.layout.steps
        found = k.LoopAxis(name, blocked(steps, 1, 1, 1), Sym.of(steps))
        context.extra_axes.append(found)
        for word in (found.coordinate, found.element, found.lane, found.step, f"{name}_sub"):
            context.names.used.add(word)
    return found


def step_of(steps: k.LoopAxis, axis: k.LoopAxis) -> tuple[k.Op, ...]:
    """The number of the current vector."""
    if axis.layout.steps == 1:
        return ()
    return (k.Let(steps.step, I32, k.Index(Sym.of(Var(axis.step, "local")), I32)),)


def _before_vectors(
    context: Context,
    op: t.Scan,
    part: k.Fragment,
    others: tuple[k.LoopAxis, ...],
    axis: k.LoopAxis,
    digit: Digit,
) -> None:
    """Turn what each vector adds into what comes before it."""
    dtype = part.rep
    neutral = k.Identity(op.op, dtype)
    own = k.Element(part, dtype)
    several = axis.layout.steps > 1
    lanes = min(digit.radix, 32 // digit.divisor) if digit.divisor < 32 else 1
    partials = digit.radix // lanes
    named = axis.name if axis.layout.is_blocked else ""
    total: k.Expr = own
    before: k.Expr = neutral
    if lanes > 1:
        total = k.LaneReduce(op.op, own, dtype, named, lanes, digit.divisor)
        before = replace(total, before=True)
    if partials > 1:
        sums = k.Fragment(context.names.unique(f"{part.name}_total"), dtype, part.axes)
        context.out.append(k.Declare(sums, None, span=op.span))
        each_register(context, part, [k.Assign(sums, total), k.Assign(part, before)], op.span)
        combined = push_partials(context, op.op, sums, axis, digit, partials, op.span)
        place = THREAD // max(digit.divisor, 32) % partials
        total, before = combined, replace(combined, before=k.Index(place, I32))
    ops: list[k.Op] = []
    if several:
        running = k.Fragment(context.names.unique(f"{part.name}_running"), dtype, others)
        context.out.append(k.Declare(running, neutral, span=op.span))
        all_of_step = context.names.unique(f"{part.name}_step")
        ops.append(k.Let(all_of_step, dtype, total))
    if partials > 1:
        ops.append(k.Accumulate(part, op.op, before))
    else:
        ops.append(k.Assign(part, before))
    if several:
        ops += [
            k.Accumulate(part, op.op, k.Element(running, dtype)),
            k.Accumulate(running, op.op, k.Local(all_of_step, dtype)),
        ]
    each_register(context, part, ops, op.span)
