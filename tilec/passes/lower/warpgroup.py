"""The products of warpgroups themselves: which operand is the instruction's left one, and where each is.

acc += a[i, k] @ b[k, j]        warpgroup_product acc += a_tiles @ b_tiles
                                swapped: acc += b_tiles @ a_tiles, where rows of registers are columns of acc
                                turned: left_load b_left = b_tiles, and acc += b_left @ a_tiles
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.passes.asynchronous import TRANSPOSABLE, Asynchronous
from tilec.passes.lower.context import Context
from tilec.passes.lower.products import products_of
from tilec.passes.products import InRegisters, ProductPlan, Staged
from tilec.passes.swap import sides_of

STEP_BYTES = 32
"""Of the consumed axis that one instruction takes (PTX ISA, wgmma)."""

Tiles: TypeAlias = Callable[[Staged], k.TileAddress]
"""Where a staged operand is."""


def start_product(
    context: Context,
    form: Asynchronous,
    op: t.Dot,
    plan: ProductPlan,
    target: k.Fragment,
    left: k.Fragment | None,
    continues: k.Expr | None,
    tiles: Tiles,
    part: tuple[int, int] | None = None,
) -> a.WarpgroupProduct:
    """The op that starts a product, or a part of one; `left` is its left operand where that is in registers."""
    row, col = context.loop_axes(op.out)
    first, second = plan.a, plan.b
    if products_of(context).swapped:
        assert isinstance(plan.a, Staged)
        row, col, first, second = col, row, plan.b, plan.a
    assert row is not None and col is not None
    _, column = sides_of(context.axes, plan, products_of(context).swapped)
    apart = form.warpgroups if column.number in form.products.apart else 1
    columns = col.layout.capacity // apart
    types = form.types[op.out.id]
    blocks = row.layout.steps // 2
    staged = first if isinstance(first, Staged) and left is None else None
    operand: k.TileAddress | k.Fragment
    if staged is not None:
        operand = tiles(staged)
    else:
        assert left is not None
        operand = left
    first_k, extent = part or (0, plan.k_extent)
    # across, a piece begins where a panel does
    across = a.PanelBuffer("", op.a.type.dtype, plan.k_extent, columns, 1)
    unit = across.panel if second.k_axis == 0 else 8
    return a.WarpgroupProduct(
        target,
        types,
        extent,
        STEP_BYTES * 8 // op.a.type.dtype.bits,
        operand,
        tiles(second),
        staged is not None and staged.k_axis == 0,
        second.k_axis == 0,
        blocks,
        columns,
        form.piece(columns, unit),
        first_row(form, blocks),
        types in TRANSPOSABLE,
        op.accumulate is None,
        continues,
        op.out.id in form.turned,
        first_k,
        f"warpgroup * {columns}" if apart > 1 else "0",
        span=op.span,
    )


def first_row(form: Asynchronous, blocks: int) -> str:
    """The first row of a warpgroup with so many blocks, as C++."""
    if form.warpgroups == 1 or form.products.apart:
        return "0"
    # where one product is all that a loop does, its accumulators leave no register to keep the number in, unless something else asks for it
    chained = any(isinstance(p.a, InRegisters) for p in form.products.plans.values())
    number = "warpgroup" if chained or form.lag else "uniform_int(thread / 128)"
    return f"{number} * {64 * blocks}"
