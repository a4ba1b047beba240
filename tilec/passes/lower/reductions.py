"""Reductions: in the thread, then over lanes, then over warps through shared memory, always in one fixed order."""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import exchanges as e
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.layouts import Digit, blocked
from tilec.ir.symbolic import Sym, Var
from tilec.passes.lower.access import Guards, coordinate
from tilec.passes.lower.body import Body
from tilec.passes.lower.context import THREAD, Context, computable, compute_type
from tilec.passes.lower.merging import Merge
from tilec.passes.lower.rarely import vote
from tilec.passes.lower.seldom import packs_too
from tilec.passes.schedule.partial import parts_of
from tilec.source.text import Span


def lower_reduce(context: Context, op: t.Reduce) -> None:
    """The whole reduction; its result is a scalar variable or a fragment."""
    value, result = op.arg, op.out
    coords = context.loop_axes(value)
    kept = tuple(c for n, c in enumerate(coords) if n not in op.axes)
    indexed = op.op in ("argmax", "argmin")
    dtype = compute_type(value.type.dtype) if indexed else compute_type(result.type.dtype)
    if op.op in ("any", "all"):
        dtype = BOOL
    target = k.Fragment(
        context.names.unique(
            f"{op.op}_{_subject(context, value)}" if indexed or not result.name else result.name
        ),
        dtype,
        context.ordered(kept),
        indexed=indexed,
    )
    start = len(context.out)
    context.out.append(k.Declare(target, k.Identity(op.op, dtype), span=op.span))
    body = Body(context, context.ordered(coords))
    body.count(value)
    if result.id in context.joint:
        body.count(value)
    element = body.value(value, coords)
    element = computable(element)
    besides, after = packs_too(context, op, body, element)
    if element.rep != dtype:
        element = k.Apply("convert", (element,), dtype)
    guards = body.reduced_guards(value, coords, op.axes)
    if indexed:
        axis = coords[op.axes[0]]
        at = k.Literal_(0, I32) if axis is None else k.Index(coordinate(axis), I32)
        element = k.Apply("indexed", (element, at), dtype)
    chain = None if indexed else _chains(context, op, coords, target)
    if chain is None:
        body.finish(guards, [k.Accumulate(target, op.op, element), *besides], after, op.span)
    else:
        partial, axis, fast = chain
        number = Sym.of(Var(fast.step, "local")) % axis.layout.steps
        body.prelude.append(k.Let(axis.step, I32, k.Index(number, I32)))
        each = k.Accumulate(target, op.op, k.Element(partial, dtype))
        first = None
        if not guards.all:
            # every chain begins with an element of its own instead of the neutral one
            context.out[start] = k.Declare(target, None, span=op.span)
            first = _is_first(fast)
            each = replace(each, first=_at_most(axis.step, 0))
        else:
            neutral = k.Identity(op.op, target.rep)
            context.out[-1] = k.Declare(partial, neutral, span=op.span)
        inside = [k.Accumulate(partial, op.op, element, first), *besides]
        body.finish(guards, inside, after, op.span)
        context.out.append(k.TileLoop(partial.axes, (), (k.Elements((), (each,)),), span=op.span))
    vote(context, op, target)
    merge = context.merges.get(result.id)
    if merge is not None:
        if _merged(context, op, merge, target):
            context.bind_scalar(result, k.Local(target.name, target.rep))
        return
    for n in op.axes:
        axis = coords[n]
        if axis is not None and not op.partial:
            for digit in reversed(axis.layout.thread_digits):
                if digit.radix > 1:
                    _exchange(context, op, target, axis, digit)
    final: k.Expr = k.Element(target, dtype)
    if indexed:
        plain = k.Fragment(
            context.names.unique(result.name or f"{target.name}_at"), I32, target.axes
        )
        context.out.append(k.Declare(plain, None))
        each_register(
            context, plain, [k.Assign(plain, k.Apply("index_of", (final,), I32))], op.span
        )
        target = plain
    if result.type.rank == 0:
        context.bind_scalar(result, k.Local(target.name, target.rep))
    else:
        context.fragments[result.id] = target


def _merged(context: Context, op: t.Reduce, merge: Merge, target: k.Fragment) -> bool:
    """The part of a pair of reductions that comes behind a thread's own; says whether the result is known."""
    (axis,) = context.loop_axes(op.arg)
    assert axis is not None
    (digit,) = (d for d in axis.layout.thread_digits if d.radix > 1)
    _lanes(context, op, target, axis, digit)
    extent = context.index(axis.extent)
    if op is merge.first:
        name = context.names.unique(f"{target.name}_near")
        context.out.append(e.Near(merge.kind, name, target, axis, extent, span=op.span))
        context.own_parts[op.out.id] = target
        context.bind_scalar(op.out, k.Local(name, target.rep))
        return False
    first = context.own_parts[merge.first.out.id]
    partials = digit.radix // 32
    values = push_partials(context, merge.first.op, first, axis, digit, partials, op.span)
    sums = push_partials(context, op.op, target, axis, digit, partials, op.span)
    context.out.append(k.Assign(first, values, span=op.span))
    context.bind_scalar(merge.first.out, k.Local(first.name, first.rep))
    for scalar in merge.again:
        context.lower_scalar(scalar)
    reference = context.scalar(merge.again[-1].out if merge.again else merge.first.out)
    relative = k.Relative(merge.kind, values.buffer, values.offset, reference, axis, extent)
    context.out.append(k.Assign(target, replace(sums, relative=relative), span=op.span))
    return True


MANY_PARTIALS = 16
"""Partials that the lanes of a warp combine among themselves: that many registers for them would drive others to memory."""

CHAINS = 4
"""Independent accumulations of a thread where one would wait for itself at every element."""
LONG_CHAIN = 8
"""Vectors of a thread from which that pays."""


def _chains(
    context: Context, op: t.Reduce, coords: tuple[k.LoopAxis | None, ...], target: k.Fragment
) -> tuple[k.Fragment, k.LoopAxis, k.LoopAxis] | None:
    """Registers for several accumulations beside each other, their axis, and the one whose steps they share out. Beside products that
    run on, what a row waits for is the length of a chain."""
    fast = coords[op.axes[0]] if len(op.axes) == 1 else None
    if context.variant.asynchronous is None or fast is None or fast.layout.steps < LONG_CHAIN:
        return None
    if fast.layout.streams or fast.layout.steps % CHAINS:
        return None
    if op.out.id in context.joint:
        return None  # exponentials take longer than a chain, and registers hold the tile that they are made of
    axis = next((a for a in context.extra_axes if a.name == f"{fast.name}_chain"), None)
    if axis is None:
        axis = k.LoopAxis(f"{fast.name}_chain", blocked(CHAINS, 1, 1, 1), Sym.of(CHAINS))
        context.extra_axes.append(axis)
        for word in (axis.coordinate, axis.element, axis.lane, axis.step, f"{axis.name}_sub"):
            context.names.used.add(word)
    name = context.names.unique(f"{target.name}_chains")
    partial = k.Fragment(name, target.rep, (*target.axes, axis))
    context.out.append(k.Declare(partial, None, span=op.span))
    return partial, axis, fast


def _is_first(fast: k.LoopAxis) -> k.Expr:
    """Whether the current element is the first of its chain."""
    early = _at_most(fast.step, CHAINS - 1)
    if not fast.vectorised:
        return early
    return k.Apply("and", (early, _at_most(f"{fast.name}_sub", 0)), BOOL)


def _at_most(name: str, number: int) -> k.Expr:
    """A comparison of a loop's counter, which no loop that is unrolled evaluates."""
    return k.Apply("le", (k.Local(name, I32), k.Literal_(number, I32)), BOOL)


def lower_combine(context: Context, op: t.Combine) -> None:
    """What the lanes of a row hold, added up in each of them."""
    products = context.variant.products
    if products is None:
        _combine_parts(context, op)
        return
    reduced = products.columns - products.apart
    digits = {d for n in reduced for d in products.layouts[n].thread_digits if d.radix > 1}
    (digit,) = digits
    coords = context.loop_axes(op.arg)
    target = k.Fragment(
        context.names.unique(op.out.name or "total"),
        compute_type(op.out.type.dtype),
        context.ordered(coords),
    )
    context.out.append(k.Declare(target, None, span=op.span))
    body = Body(context, context.ordered(coords))
    body.count(op.arg)
    value = body.value(op.arg, coords)
    lanes = k.LaneReduce("sum", value, target.rep, "", digit.radix, digit.divisor)
    body.finish(Guards(), [k.Assign(target, lanes)], [], op.span)
    context.fragments[op.out.id] = target


def _combine_parts(context: Context, op: t.Combine) -> None:
    """What all threads along the reduced axes hold, added up in each of them."""
    reduce = parts_of(op.arg, context.definitions)
    coords = context.loop_axes(op.out)
    rep = compute_type(op.out.type.dtype)
    name = context.names.unique(op.out.name or "total")
    target = k.Fragment(name, rep, context.ordered(coords))
    context.out.append(k.Declare(target, None, span=op.span))
    body = Body(context, target.axes)
    value = context.scalar(op.arg) if not op.arg.type.rank else body.value(op.arg, coords)
    each_register(context, target, [k.Assign(target, value)], op.span)
    axes = context.loop_axes(reduce.arg)
    for n in reduce.axes:
        axis = axes[n]
        for digit in reversed(axis.layout.thread_digits) if axis is not None else ():
            if digit.radix > 1:
                assert axis is not None
                _exchange(context, reduce, target, axis, digit)
    if op.out.type.rank == 0:
        context.bind_scalar(op.out, k.Local(target.name, target.rep))
    else:
        context.fragments[op.out.id] = target


def _subject(context: Context, value: t.Value) -> str:
    if value.name:
        return value.name
    op = context.definitions.defining.get(value.id)
    if isinstance(op, t.Load):
        return op.access.tensor
    return "tile"


def each_register(context: Context, target: k.Fragment, ops: list[k.Op], span: Span) -> None:
    """The ops for each register of a fragment."""
    if target.axes:
        context.out.append(k.TileLoop(target.axes, (), (k.Elements((), tuple(ops)),), span=span))
    else:
        context.out += ops


def _exchange(
    context: Context, op: t.Reduce, target: k.Fragment, axis: k.LoopAxis, digit: Digit
) -> None:
    """Combine what the threads of one digit hold; every one of them gets the result."""
    partials = _lanes(context, op, target, axis, digit)
    if partials == 1:
        return
    combined = push_partials(context, op.op, target, axis, digit, partials, op.span)
    each_register(context, target, [k.Assign(target, combined)], op.span)


def _lanes(
    context: Context, op: t.Reduce, target: k.Fragment, axis: k.LoopAxis, digit: Digit
) -> int:
    """Combine what the lanes of a warp hold; returns how many parts are left."""
    current = k.Element(target, target.rep)
    if digit.divisor < 32:
        lanes = min(digit.radix, 32 // digit.divisor)
        named = axis.name if axis.layout.is_blocked else ""
        each_register(
            context,
            target,
            [
                k.Assign(
                    target, k.LaneReduce(op.op, current, target.rep, named, lanes, digit.divisor)
                )
            ],
            op.span,
        )
        return digit.radix // lanes
    return digit.radix


def push_partials(
    context: Context,
    operation: str,
    target: k.Fragment,
    axis: k.LoopAxis,
    digit: Digit,
    partials: int,
    span: Span,
) -> k.WarpCombine:
    """Leave the parts in shared memory; returns what combines them from there by the `operation`."""
    indexed = operation in ("argmax", "argmin")
    level = context.variant.level
    threads = level.threads * level.ctas * context.variant.batch
    spacing = min(digit.divisor, 32)
    slots = threads // 32 * spacing if digit.divisor < 32 else threads
    name = context.names.unique(f"{target.name}_partial")
    registers = _registers(target)
    blocked = axis.layout.is_blocked
    group = digit.divisor * digit.radix
    whole = group == threads
    plain = blocked and digit.divisor == 1 and registers == 1 and whole
    context.shared.append(
        k.SharedBuffer(
            name,
            target.rep,
            slots * registers,
            f"partials of {target.name}",
            indexed,
            f"kThreads{axis.suffix} / 32" if plain else str(slots * registers),
        )
    )
    slot = _register_number(target) * slots
    if digit.divisor < 32:
        write = slot + THREAD // 32 * digit.divisor + THREAD % 32
        guards: tuple[k.Expr, ...] = (
            k.Apply("lt", (k.Index(THREAD % 32, I32), k.Literal_(digit.divisor, I32)), BOOL),
        )
        if digit.divisor == 1:
            write = slot + THREAD // 32
        first = Sym.of(0) if whole else THREAD // group * (partials * digit.divisor)
    else:
        write, guards = slot + THREAD, ()
        first = Sym.of(0) if whole else THREAD // group * group
    read = slot + first + THREAD % digit.divisor
    stride = digit.divisor
    threads_constant = Sym.of(Var(f"kThreads{axis.suffix}", "local"))
    count: k.Expr = k.Literal_(partials, I32)
    if blocked and digit.divisor == 1:
        count = k.Index(threads_constant // 32, I32)
    elif blocked and digit.divisor >= 32:
        count = k.Index(threads_constant, I32)
    current = k.Element(target, target.rep)
    if level.ctas > 1:
        store: k.Op = e.StoreCluster(name, k.Index(write, I32), current)
    else:
        store = k.StoreShared(name, k.Index(write, I32), current, guards)
    each_register(context, target, [store], span)
    by_lanes = level.ctas > 1 or (digit.divisor == 1 and partials >= MANY_PARTIALS)
    return k.WarpCombine(
        operation, name, k.Index(read, I32), k.Literal_(stride, I32), count, target.rep, by_lanes
    )


def _registers(target: k.Fragment) -> int:
    total = 1
    for axis in target.axes:
        total *= axis.layout.steps * axis.layout.vector
    return total


def _register_number(target: k.Fragment) -> Sym:
    """The current register of a fragment as a number."""
    number = Sym.of(0)
    for axis in target.axes:
        if axis.layout.steps > 1:
            number = number * axis.layout.steps + Sym.of(Var(axis.step, "local"))
        if axis.layout.vector > 1:
            number = number * axis.layout.vector + Sym.of(Var(f"{axis.name}_sub", "local"))
    return number
