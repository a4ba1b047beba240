"""Products by `nvcuda::wmma`: sums stay opaque as long as nothing but products touches them, and pass to the registers' layout by
way of shared memory where something does.

    acc = 0                                             acc = 0
    loop k:                             product         sums = 0
        acc += a @ b                    alone           loop k:  sums += a @ b
    store acc                           in a loop       acc += sums ; store acc

Any other product has sums of its own, which are added to its accumulators at once.
"""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.kernel_wmma import AddSums, DeclareSums, Sums, WmmaProduct
from tilec.passes.lower.context import Context
from tilec.passes.products import ProductPlan, Staged
from tilec.source.text import Span

BLOCKS_AT_ONCE = 4
"""Blocks of sums that are in registers beside the accumulators they are added to: 8 registers each."""

Operand = tuple[k.TileAddress, bool]
"""A tile and whether its rows are the consumed axis."""


def open_sums(context: Context, loop: t.For) -> list[tuple[int, Sums]]:
    """Declare, in front of a loop, the sums of those carried names that it does nothing with but add a product. Each comes with
    the name's number."""
    found: list[tuple[int, Sums]] = []
    if context.variant.products is None:
        return found
    users = context.definitions.users
    for number, carried in enumerate(loop.carried):
        op = context.definitions.defining.get(carried.next.id)
        if not isinstance(op, t.Dot) or op.accumulate is not carried.entry:
            continue
        plan = context.variant.products.plans[op.out.id]
        alone = len(users[carried.entry.id]) == len(users[op.out.id]) == 1
        if plan.opaque and alone and users[op.out.id][0] is loop:
            context.sums[op.out.id] = _declare(context, op, plan, _blocks(context, op)[1])
            found.append((number, context.sums[op.out.id]))
    return found


def close_sums(
    context: Context, loop: t.For, opened: list[tuple[int, Sums]], variables: list[k.Fragment]
) -> None:
    """Add the sums to the carried names' registers, behind the loop."""
    for number, sums in opened:
        _add(context, variables[number], sums, loop.carried[number].entry.span)


def multiply(
    context: Context,
    op: t.Dot,
    plan: ProductPlan,
    target: k.Fragment,
    operands: tuple[Operand, Operand],
    first: tuple[str, str],
) -> None:
    """The product into its sums, which are added to `target` unless they last for a loop: those of a few columns after the other.
    `first`: the warp's first row and column."""
    lasting = context.sums.get(op.out.id)
    rows, cols = _blocks(context, op)
    together = cols if lasting is not None else max(1, BLOCKS_AT_ONCE // rows)
    (a, a_transposed), (b, b_transposed) = operands
    for offset in range(0, cols, together):
        sums = lasting or _declare(context, op, plan, min(together, cols - offset))
        product = WmmaProduct(
            sums,
            plan.product.a,
            plan.product.tf32,
            plan.k_extent,
            a,
            b,
            a_transposed,
            b_transposed,
            *first,
            lasting is None or not _several_steps_fit(context, sums),
            offset,
            span=op.span,
        )
        context.out.append(product)
        if lasting is None:
            _add(context, target, sums, op.span, offset)


def _several_steps_fit(context: Context, sums: Sums) -> bool:
    """Whether the operands of two steps fit beside the accumulators: then steps are unrolled. Copies through registers and
    computed operands need what there is."""
    products = context.variant.products
    assert products is not None
    staged = [x for plan in products.plans.values() for x in (plan.a, plan.b)]
    computed = any(isinstance(x, Staged) and x.load is None for x in staged)
    if computed or not context.variant.aligned:
        return False
    words = context.variant.level.words + 2 * operand_registers(sums.rows)
    target = products.target
    return words + target.product_registers_besides <= target.registers_per_thread


def operand_registers(rows: int) -> int:
    """Registers of the operands that a step holds: a column of `rows` blocks and one block of the right operand, of 8 each (f16:
    16 elements a lane, every one twice)."""
    return 8 * rows + 8


def _blocks(context: Context, op: t.Dot) -> tuple[int, int]:
    """Blocks of 16 x 16 that a warp has along the rows and columns of a product."""
    row, col = context.loop_axes(op.out)
    assert row is not None and col is not None
    return row.layout.steps // 2, col.layout.steps // 2


def _declare(context: Context, op: t.Dot, plan: ProductPlan, cols: int) -> Sums:
    name = context.names.unique(f"{op.out.name or 'product'}_sums")
    rows = _blocks(context, op)[0]
    sums = Sums(name, plan.product.acc, rows, cols, plan.product.k)
    context.out.append(DeclareSums(sums, span=op.span))
    return sums


def _add(context: Context, target: k.Fragment, sums: Sums, span: Span, offset: int = 0) -> None:
    if sums.rep not in context.sum_tiles:
        name = context.names.unique("sums")
        rows = context.variant.level.threads // 32 * 16
        context.tiles.append(k.TileBuffer(name, sums.rep, rows, 16, 1, plain=True))
        context.sum_tiles[sums.rep] = name
    context.out.append(
        AddSums(target, sums, k.TileAddress(context.sum_tiles[sums.rep]), offset, span=span)
    )
