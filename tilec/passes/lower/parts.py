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

from typing import TYPE_CHECKING

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import I32
from tilec.passes.channels import Channel
from tilec.passes.lower.products import products_of
from tilec.passes.lower.warpgroup import STEP_BYTES, first_row, start_product
from tilec.passes.products import ProductPlan, Staged

if TYPE_CHECKING:
    from tilec.passes.lower.asynchronous import Roles


def left_parts(plan: ProductPlan) -> tuple[tuple[int, int], ...]:
    """First places and extents of the parts of a trip's consumed axis; one where a trip has a single step."""
    step = STEP_BYTES * 8 // plan.op.a.type.dtype.bits
    half = plan.k_extent // step // 2 * step
    return ((0, half), (half, plan.k_extent - half)) if half else ((0, plan.k_extent),)


def place_left(roles: Roles, op: t.Dot) -> str:
    """Declares where a product's left operands begin in the tiles of their ring; the name of that."""
    context = roles.context
    operand, blocks = _left(roles, op)
    buffer = roles.buffers[operand.source.id].name
    name = context.names.unique(f"{buffer.removesuffix('_tiles')}_left_at")
    tile = k.TileAddress(buffer, k.Literal_(0, I32))
    row = first_row(roles.form, blocks)
    context.out.append(a.LeftPlace(name, tile, blocks, row, span=op.span))
    return name


def load_whole(roles: Roles, op: t.Dot) -> k.Fragment:
    """The left operand of a trip in registers, at once."""
    extent = products_of(roles.context).plans[op.out.id].k_extent
    return _load(roles, op, place_left(roles, op), (0, extent))


def start_in_parts(roles: Roles, op: t.Dot, target: k.Fragment, ending: list[Channel]) -> None:
    """Start a product whose wait is left to the next trip part by part. `ending`: channels that it is the last to read."""
    context = roles.context
    plan = products_of(context).plans[op.out.id]
    for number, part in enumerate(left_parts(plan)):
        left = _load(roles, op, roles.places[op.out.id], part)
        context.out.append(a.WarpgroupFence(span=op.span))
        # only the first part may begin the sum
        continues = None if number else roles.continues(op)
        start = start_product(
            context, roles.form, op, plan, target, left, continues, roles.tile, part
        )
        context.out.append(start)
        if number == 0:
            roles.wait_before(op, ending)
        else:
            context.out += [a.WarpgroupCommit(), a.WarpgroupWait(1)]
    roles.advance(op, ending)


def _left(roles: Roles, op: t.Dot) -> tuple[Staged, int]:
    """The left operand of the instruction, and its blocks of 64 rows a warpgroup."""
    products = products_of(roles.context)
    plan = products.plans[op.out.id]
    operand = plan.b if products.swapped else plan.a
    row = roles.context.loop_axes(op.out)[int(products.swapped)]
    assert isinstance(operand, Staged) and row is not None
    return operand, row.layout.steps // 2


def _load(roles: Roles, op: t.Dot, place: str, part: tuple[int, int]) -> k.Fragment:
    """A part of the left operand into registers of its own."""
    context = roles.context
    operand, blocks = _left(roles, op)
    assert operand.load is not None
    name = context.names.unique(f"{operand.load.access.tensor}_left")
    target = k.Fragment(name, operand.source.type.dtype, ())
    step = STEP_BYTES * 8 // op.a.type.dtype.bits
    tile = roles.tile(operand)
    context.out.append(a.LeftLoad(target, tile, *part, step, blocks, place, span=op.span))
    return target
