"""Products: operands into shared memory, accumulators, the instruction itself."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.layouts import blocked
from tilec.passes.levels import power_of_two_in
from tilec.passes.lower.access import Guards, coordinate, padding
from tilec.passes.lower.body import Body, Coords, conjunction, tail_count, vector_access
from tilec.passes.lower.context import Context, compute_type, converted
from tilec.passes.lower.left import left_operand, unrounded
from tilec.passes.lower.wmma import multiply, operand_registers
from tilec.passes.products import InRegisters, ProductPlan, Products, Staged
from tilec.passes.uses import all_ops
from tilec.source.text import Span

MOST_AHEAD = 4
"""Blocks of columns that are read in one go, half of a product's, where registers are short: two of more blocks, as ptxas spills with four."""


def products_of(context: Context) -> Products:
    """The nest's products; there are some."""
    assert context.variant.products is not None
    return context.variant.products


# ------------------------------------------------------------------------------------------ staging


def tile_axes(
    context: Context, operand: Staged, plan: ProductPlan
) -> tuple[k.LoopAxis, k.LoopAxis]:
    """Axes of the copy of a loaded operand: rows and columns as in memory, 16 bytes a thread and step."""
    source = operand.source
    name = operand.load.access.tensor if operand.load is not None else source.name or "operand"
    extents = [_padded(context, operand, plan, n) for n in (0, 1)]
    vector = 128 // source.type.dtype.bits
    chunks = -(-extents[1] // vector)
    threads = context.variant.level.threads
    col_threads = min(power_of_two_in(chunks), threads)
    row_threads = threads // col_threads
    row = k.LoopAxis(
        context.names.unique(f"{name}_row"),
        blocked(-(-extents[0] // row_threads), row_threads, col_threads, 1),
        source.type.axes[0].extent,
    )
    col = k.LoopAxis(
        context.names.unique(f"{name}_col"),
        blocked(chunks // col_threads, col_threads, 1, vector),
        source.type.axes[1].extent,
        True,
    )
    for axis in (row, col):
        context.extra_axes.append(axis)
        for word in (axis.coordinate, axis.element, axis.lane, axis.step, f"{axis.name}_sub"):
            context.names.used.add(word)
    return row, col


def _padded(context: Context, operand: Staged, plan: ProductPlan, axis: int) -> int:
    return products_of(context).padded(context.axes, operand, plan, axis)


def declare_tile(context: Context, operand: Staged, plan: ProductPlan, slots: int) -> k.TileBuffer:
    """The shared memory of an operand, rows and columns as in `operand.source`, or turned where the instruction asks for it."""
    name = (
        operand.load.access.tensor if operand.load is not None else operand.source.name or "operand"
    )
    rows, cols = (_padded(context, operand, plan, n) for n in (0, 1))
    if operand.turned:
        rows, cols = cols, rows
    tile = k.TileBuffer(
        context.names.unique(f"{name}_tiles" if slots > 1 else f"{name}_tile"),
        operand.source.type.dtype,
        rows,
        cols,
        slots,
        plan.opaque,
        products_of(context).is_handed_on,
    )
    context.tiles.append(tile)
    return tile


def _pointers_fit(context: Context) -> bool:
    """Whether a pointer for each copy of a thread fits beside accumulators, operands, and what computed operands need: a vector
    and an address for each step."""
    products = products_of(context)
    level = context.variant.level
    words = level.words + products.target.product_registers_besides
    seen: set[int] = set()
    for plan in products.plans.values():
        for operand in (plan.a, plan.b):
            if not isinstance(operand, Staged) or operand.key in seen:
                continue
            seen.add(operand.key)
            bits = operand.source.type.dtype.bits
            area = _padded(context, operand, plan, 0) * _padded(context, operand, plan, 1)
            steps = -(-area * bits // (128 * level.threads))
            words += steps * (2 if operand.load is not None else 2 + 128 // 32)
    words += max(_operand_registers(context, plan) for plan in products.plans.values())
    return products.target.own_pointers and words <= products.target.registers_per_thread


def _operand_registers(context: Context, plan: ProductPlan) -> int:
    """Registers of one set of a product's operands."""
    row, col = context.loop_axes(plan.op.out)
    assert row is not None and col is not None
    if plan.opaque:
        return operand_registers(row.layout.steps // 2)
    return 4 * (row.layout.steps // 2) + 2 * col.layout.steps


def emit_copy(
    context: Context,
    operand: Staged,
    axes: tuple[k.LoopAxis, k.LoopAxis],
    tile: k.TileAddress,
    access: t.Access | None = None,
) -> None:
    """Copies of one tile by all threads of the CTA; `access`: in place of that of the operand's load, the same in another trip."""
    row, col = axes
    load = operand.load
    assert load is not None
    coords: Coords = (row, col)
    rep = operand.source.type.dtype
    body = Body(context, (row, col), inline_only=True)
    mark = context.mark()
    aligned = id(load) in context.variant.aligned
    address = body.address(
        access or load.access,
        coords,
        writable=False,
        span_op=load,
        own_pointer=aligned and _pointers_fit(context),
    )
    inside_row = _inside(context, row, tile.buffer, False)
    if not vector_access(address, col):
        context.undo(mark)
        body = Body(context, (row, col), inline_only=True)
        _copy_elements(context, body, operand, (row, col), tile)
        return
    guards = tuple(dict.fromkeys(address.guards.vector))
    count = tail_count(address.guards, col)
    around = Guards(vector=inside_row)
    if aligned:
        copy = k.CopyAsync(
            tile, rep, row, col, address.pointer, address.vector, guards, count, span=load.span
        )
        body.finish(around, [], [copy], load.span)
        return
    vector = k.Fragment(body.local_name(f"{load.access.tensor}_chunk"), rep, (col,), local=True)
    body.loads.append(
        k.LoadVector(vector, address.pointer, address.vector, False, guards, count, span=load.span)
    )
    body.finish(around, [], [k.StoreTile(tile, rep, row, col, source=vector)], load.span)


def _inside(context: Context, axis: k.LoopAxis, buffer: str, along_columns: bool) -> list[k.Expr]:
    """Coordinates that the threads cover beyond the tile, along its rows or columns, are left out; the tile itself is filled to
    its end."""
    tile = next(b for b in context.tiles if b.name == buffer)
    extent = tile.cols if along_columns else tile.rows
    if axis.layout.streams or axis.layout.capacity <= extent:
        return []
    at = k.Index(coordinate(axis, element=False), I32)
    return [k.Apply("lt", (at, k.Literal_(extent, I32)), BOOL)]


def _copy_elements(
    context: Context,
    body: Body,
    operand: Staged,
    axes: tuple[k.LoopAxis, k.LoopAxis],
    tile: k.TileAddress,
    writers: tuple[k.Expr, ...] = (),
) -> None:
    """An operand evaluated, 0 where absent, to its place: in vectors where they are neighbours there too, else by elements. `writers`: which
    of the threads that have an element store it."""
    row, col = axes
    source = operand.source
    rep = source.type.dtype
    wide = unrounded(context, source)
    body.count(wide)
    value = body.value(wide, axes)
    guards = Guards()
    for axis, along in zip(source.type.axes, axes, strict=True):
        guards.add(padding(context, along))
        guards.add(body.axis_presence(axis, along))
    if guards.all:
        zero = k.Literal_(0.0 if value.rep.is_float else 0, compute_type(value.rep))
        parts = (conjunction(guards.all), value, converted(zero, value.rep))
        value = k.Apply("where", parts, value.rep)
    inside = _inside(context, row, tile.buffer, operand.turned)
    inside += _inside(context, col, tile.buffer, not operand.turned)
    around = Guards(vector=[*inside, *writers])
    if col.vectorised and not operand.turned and rep.is_float:
        vector = k.Fragment(body.local_name(f"{tile.buffer}_part"), value.rep, (col,), local=True)
        body.loads.append(k.Declare(vector, None))
        store = k.StoreTile(tile, rep, row, col, source=vector)
        body.finish(around, [k.Assign(vector, value)], [store], source.span)
        return
    place = (col, row) if operand.turned else (row, col)
    store = k.StoreTile(tile, rep, place[0], place[1], value=converted(value, rep))
    body.finish(around, [store], [], source.span)


def stage_now(
    context: Context,
    operand: Staged,
    plan: ProductPlan,
    span: Span,
    waited: bool = False,
    beside: bool = False,
) -> k.TileAddress:
    """An operand into shared memory at this place, with the barriers around it; `waited`: once, in front of a ring whose first wait covers
    the copies too; `beside` the other operand of the product, which has just been staged: all threads meet once in front of both and once
    behind them, and the copies of both are under way at once."""
    key = operand.key
    if key not in context.staged:
        context.staged[key] = k.TileAddress(declare_tile(context, operand, plan, 1).name)
    tile = context.staged[key]
    if waited and operand.load is not None and not operand.turned:
        emit_copy(context, operand, tile_axes(context, operand, plan), tile)
        context.out.append(k.Commit())
        return tile
    copied = False
    if beside:
        context.out.pop()  # the barrier behind the other operand
        copied = isinstance(context.out[-1], k.WaitGroup)
        if copied:
            context.out.pop()
    else:
        hazard = f"{tile.buffer} is read before it is written again"
        context.out.append(k.CtaSync(hazard, span=span))
    if operand.load is not None and not operand.turned:
        emit_copy(context, operand, tile_axes(context, operand, plan), tile)
        context.out.append(k.Commit())
        copied = True
    else:
        coords = _own_axes(context, operand)
        writers: tuple[k.Expr, ...] = ()
        if coords is None:
            axes = tile_axes(context, operand, plan)
            body = Body(context, axes, inline_only=True)
        else:
            axes = coords
            body = Body(context, context.ordered(axes))
            writers = context.one_thread_of(axes)
            _fill_padding(context, operand, plan, axes, tile, span)
        _copy_elements(context, body, operand, axes, tile, writers)
    if copied:
        context.out.append(k.WaitGroup(0))
    both = "both operands are written before they are read"
    hazard = both if beside else f"{tile.buffer} is written before it is read"
    context.out.append(k.CtaSync(hazard))
    return tile


def _fill_padding(
    context: Context,
    operand: Staged,
    plan: ProductPlan,
    own: tuple[k.LoopAxis, k.LoopAxis],
    tile: k.TileAddress,
    span: Span,
) -> None:
    """Zeros in the whole of a tile whose padding no thread has: a product consumes it."""
    padded = [_padded(context, operand, plan, n) for n in (0, 1)]
    if all(a.layout.capacity >= n for a, n in zip(own, padded, strict=True)):
        return
    row, col = tile_axes(context, operand, plan)
    rep = operand.source.type.dtype
    body = Body(context, (row, col), inline_only=True)
    inside = _inside(context, row, tile.buffer, operand.turned)
    inside += _inside(context, col, tile.buffer, not operand.turned)
    place = (col, row) if operand.turned else (row, col)
    zero = k.Literal_(0.0 if rep.is_float else 0, compute_type(rep))
    store = k.StoreTile(tile, rep, *place, value=converted(zero, rep))
    body.finish(Guards(vector=inside), [store], [], span)
    context.out.append(k.CtaSync(f"the padding of {tile.buffer} is written"))


def _own_axes(context: Context, operand: Staged) -> tuple[k.LoopAxis, k.LoopAxis] | None:
    """The axes of an operand made from fragments, None for one made from memory."""
    from tilec.passes.placement import from_memory

    if from_memory(operand.source, context.definitions):
        return None
    first, second = context.loop_axes(operand.source)
    assert first is not None and second is not None
    return first, second


# ------------------------------------------------------------------------------------------- product


def lower_dot(context: Context, op: t.Dot) -> None:
    """Accumulators, operands, the product."""
    plan = products_of(context).plans[op.out.id]
    target = accumulators(context, op)
    a: k.TileAddress | k.Fragment
    a_transposed = False
    before = len(context.out)
    if isinstance(plan.a, InRegisters):
        a = left_operand(context, plan.a, op)
    else:
        a = _tile_of(context, plan.a, plan, op.span)
        a_transposed = (plan.a.k_axis == 0) != plan.a.turned
    beside = isinstance(plan.a, Staged) and len(context.out) > before
    b = _tile_of(context, plan.b, plan, op.span, beside)
    b_transposed = (plan.b.k_axis == 0) != plan.b.turned
    row, col = context.loop_axes(op.out)
    assert row is not None and col is not None
    context.fragments[op.out.id] = target
    first = _warp_first(row, 16), _warp_first(col, 8)
    if plan.opaque:
        assert isinstance(a, k.TileAddress)
        tiles = (a, a_transposed), (b, b_transposed)
        multiply(context, op, plan, target, tiles, first)
        return
    together = _steps_ahead(context, plan)
    ahead = bool(together) or _ahead_fits(context, plan)
    context.out.append(
        k.Product(
            target,
            plan.mma,
            plan.k_extent,
            plan.product.k,
            a,
            b,
            a_transposed,
            b_transposed,
            row.layout.steps // 2,
            col.layout.steps,
            *first,
            isinstance(a, k.TileAddress) and _is_short(context, plan),
            ahead,
            together if ahead else _columns_at_once(context, plan),
            span=op.span,
        )
    )


def _ahead_fits(context: Context, plan: ProductPlan) -> bool:
    """Whether a second set of operand registers fits beside the accumulators."""
    sets = 2 * _operand_registers(context, plan)
    steps = plan.k_extent // plan.product.k
    threads = context.variant.level.threads
    target = products_of(context).target
    besides = target.product_registers_besides
    share = target.registers_per_sm // (threads * context.variant.blocks_per_sm)
    limit = min(target.registers_per_thread, share)
    if products_of(context).beside or not context.variant.aligned:
        return False  # the general form's copies through registers need them
    return steps > 1 and context.variant.level.words + sets + besides <= limit


def _is_short(context: Context, plan: ProductPlan) -> bool:
    """Whether tiles beside the accumulators leave no room for a product's operands and what it needs besides."""
    products, words = products_of(context), context.variant.level.words
    words += _operand_registers(context, plan) + products.target.product_registers_besides
    return bool(products.beside) and words > products.target.registers_per_thread


def _columns_at_once(context: Context, plan: ProductPlan) -> int:
    """Blocks of columns whose operands are held together: two where those of all do not fit beside accumulators, what a product
    needs besides, and the elements of a copy through registers; else 0."""
    level, target = context.variant.level, products_of(context).target
    _, col = context.loop_axes(plan.op.out)
    assert col is not None
    products = products_of(context)
    words = level.words + target.product_registers_besides
    words += _operand_registers(context, plan) * (3 if plan.product.unpacked else 1)
    if products.is_handed_on:
        words += products.beside  # the left operand of the next trip is made beside this one's
    if not context.variant.aligned:
        words += 128 // plan.product.b.bits
    limit = min(target.registers_per_thread, target.registers_per_sm // level.threads)
    short = words > limit and col.layout.steps % 2 == 0
    return 2 if short and col.layout.steps > 2 else 0


def _steps_ahead(context: Context, plan: ProductPlan) -> int:
    """The same of a loop that hands packed operands on to its next trip: so many that the blocks of the step after are read while they are
    multiplied, and no others; 0 where nothing is short."""
    columns = _columns_at_once(context, plan)
    if not columns or not products_of(context).is_handed_on or not context.variant.aligned:
        return 0
    _, col = context.loop_axes(plan.op.out)
    assert col is not None
    half = col.layout.steps // 2
    return half if columns < half <= MOST_AHEAD and half % 2 == 0 else columns


def _warp_first(axis: k.LoopAxis, block: int) -> str:
    """First coordinate of a warp's share as C text."""
    for digit in axis.layout.thread_digits:
        if digit.stride >= block and digit.radix > 1:
            return f"thread / {digit.divisor} % {digit.radix} * {digit.stride}"
    return "0"


def _tile_of(
    context: Context, operand: Staged, plan: ProductPlan, span: Span, beside: bool = False
) -> k.TileAddress:
    """Where an operand lies, staged here if it is not yet; `beside`: behind the other one."""
    home = context.staged.get(operand.key)
    elsewhere = context.ring_values | context.staged_once
    if home is not None and operand.key in elsewhere:
        return home
    form = (operand.k_axis, plan.k_extent)
    out, *here = context.staged_here.get(operand.key, (None, 0, 0))
    if home is not None and out is context.out and (*here,) == form:
        return home
    tile = stage_now(context, operand, plan, span, beside=beside)
    context.staged_here[operand.key] = (context.out, *form)
    return tile


def accumulators(context: Context, op: t.Dot) -> k.Fragment:
    """The registers of a product: the carried name's own where nothing else needs its old value."""
    rep = compute_type(op.out.type.dtype)
    coords = context.loop_axes(op.out)
    axes = context.ordered(coords)
    if op.accumulate is None:
        target = k.Fragment(context.names.unique(op.out.name or "product"), rep, axes)
        zero = k.Literal_(0.0 if rep.is_float else 0, rep)
        fresh = context.variant.asynchronous is not None
        context.out.append(k.Declare(target, None if fresh else zero, span=op.span))
        return target
    carried = _carried_in_place(context, op)
    if carried is not None:
        target = carried
        if context.fragments.get(op.accumulate.id) is carried:
            return target
    else:
        target = k.Fragment(context.names.unique(op.out.name or "product"), rep, axes)
        context.out.append(k.Declare(target, None, span=op.span))
    body = Body(context, axes)
    body.count(op.accumulate)
    own: Coords = ()
    if op.accumulate.type.rank:
        own = tuple(
            None if axis.is_one else c
            for axis, c in zip(op.accumulate.type.axes, coords, strict=True)
        )
    expr = converted(body.value(op.accumulate, own), rep)
    body.finish(Guards(), [k.Assign(target, expr)], [], op.span)
    return target


def _carried_in_place(context: Context, op: t.Dot) -> k.Fragment | None:
    """The carried variable that becomes the product's result, where its old value is used for nothing but the product."""
    around = context.definitions.loops[op.out.id]
    if not around or not isinstance(around[-1], t.For):
        return None
    for carried in around[-1].carried:
        if carried.next is not op.out and not _updates(context, op, carried):
            continue
        chain = _only_into(context, carried.entry, op)
        variable = context.fragments.get(carried.entry.id)
        if chain and variable is not None:
            return variable
    return None


def _updates(context: Context, op: t.Dot, carried: t.Carried) -> bool:
    """Whether a carried name is a product's accumulator as it is, and its next value the result changed element by element, at all or
    in a branch that is rare."""
    if op.accumulate is not carried.entry:
        return False
    value, last = op.out, carried.next
    made = context.definitions.defining.get(last.id)
    branch = made if isinstance(made, t.If) and made.rare else None
    if branch is not None:
        (merge,) = (m for m in branch.merges if m.result is last)
        if merge.otherwise is not op.out:
            return False
        last = merge.then
    while value is not last:
        users = [u for u in context.definitions.users[value.id] if u is not branch]
        if len(users) != 1 or not isinstance(users[0], t.Elementwise):
            return False
        value = users[0].out
    return True


def _only_into(context: Context, value: t.Value, op: t.Dot) -> bool:
    """Whether everything that reads a value ends in the accumulator of `op`, element by element."""
    for user in context.definitions.users[value.id]:
        if user is op:
            if op.a is value or op.b is value:
                return False
            continue
        if not isinstance(user, t.Elementwise | t.Cast) or user.out.id in context.placement.held:
            return False
        if not _only_into(context, user.out, op):
            return False
    return True


def staged_loads(context: Context) -> dict[int, tuple[ProductPlan, Staged]]:
    """Plain loads that products consume, by the id of the load's value."""
    found: dict[int, tuple[ProductPlan, Staged]] = {}
    for plan in products_of(context).plans.values():
        for operand in (plan.a, plan.b):
            if isinstance(operand, Staged) and operand.load is not None:
                found.setdefault(operand.load.out.id, (plan, operand))
    return found


def has_products(loop: t.For) -> bool:
    """Whether a loop's body holds products."""
    return any(isinstance(op, t.Dot) for op in all_ops(loop.body))
