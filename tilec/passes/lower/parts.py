"""Left operands that pass through registers, since products do not read them as they lie: a trip's in two parts, each loaded while the
other is multiplied.

left_place at                       where a thread's elements begin, before the loop
for k …:
    wait full; left_load left, half 0, at; start left; commit
    wait 1; release the slot before             the last part of the trip before is done: its registers are free
    left_load left_2, half 1, at; start left_2; commit
    wait 1                                      half 0 is done
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import I32
from tilec.passes.lower.operand_rings import OperandRings
from tilec.passes.lower.products import products_of
from tilec.passes.lower.warpgroup import STEP_BYTES, first_row, start_product
from tilec.passes.products import ProductPlan, Staged


def left_parts(plan: ProductPlan) -> tuple[tuple[int, int], ...]:
    """First places and extents of the parts of a trip's consumed axis; one where a trip has a single step."""
    step = STEP_BYTES * 8 // plan.op.a.type.dtype.bits
    half = plan.k_extent // step // 2 * step
    return ((0, half), (half, plan.k_extent - half)) if half else ((0, plan.k_extent),)


def place_left(rings: OperandRings, op: t.Dot) -> str:
    """Declares where a product's left operands begin in the tiles of their ring; the name of that."""
    context = rings.context
    operand, blocks = _left(rings, op)
    buffer = rings.buffers[operand.source.id].name
    name = context.names.unique(f"{buffer.removesuffix('_tiles')}_left_at")
    tile = k.TileAddress(buffer, k.Literal_(0, I32))
    row = first_row(rings.form, blocks)
    context.out.append(a.LeftPlace(name, tile, blocks, row, span=op.span))
    return name


def load_whole(rings: OperandRings, op: t.Dot) -> k.Fragment:
    """The left operand of a trip in registers, at once."""
    extent = products_of(rings.context).plans[op.out.id].k_extent
    return _load(rings, op, place_left(rings, op), (0, extent))


def start_in_parts(
    rings: OperandRings,
    op: t.Dot,
    target: k.Fragment,
    place: str,
    continues: k.Expr | None,
    wait_before: Callable[[], None],
) -> None:
    """Start a product part by part whose left operands begin at `place`. `continues`: whether it adds to the accumulators; `wait_before`: behind
    the first part, the wait for the trip before."""
    context = rings.context
    plan = products_of(context).plans[op.out.id]
    for number, part in enumerate(left_parts(plan)):
        left = _load(rings, op, place, part)
        context.out.append(a.WarpgroupFence(span=op.span))
        # only the first part may begin the sum
        adds = None if number else continues
        start = start_product(context, rings.form, op, plan, target, left, adds, rings.tile, part)
        context.out.append(start)
        if number == 0:
            wait_before()
        else:
            context.out += [a.WarpgroupCommit(), a.WarpgroupWait(1)]


def _left(rings: OperandRings, op: t.Dot) -> tuple[Staged, int]:
    """The left operand of the instruction, and its blocks of 64 rows a warpgroup."""
    products = products_of(rings.context)
    plan = products.plans[op.out.id]
    operand = plan.b if products.swapped else plan.a
    row = rings.context.loop_axes(op.out)[int(products.swapped)]
    assert isinstance(operand, Staged) and row is not None
    return operand, row.layout.steps // 2


def _load(rings: OperandRings, op: t.Dot, place: str, part: tuple[int, int]) -> k.Fragment:
    """A part of the left operand into registers of its own."""
    context = rings.context
    operand, blocks = _left(rings, op)
    assert operand.load is not None
    name = context.names.unique(f"{operand.load.access.tensor}_left")
    target = k.Fragment(name, operand.source.type.dtype, ())
    step = STEP_BYTES * 8 // op.a.type.dtype.bits
    tile = rings.tile(operand)
    context.out.append(a.LeftLoad(target, tile, *part, step, blocks, place, span=op.span))
    return target
