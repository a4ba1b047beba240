"""Whether a nest's products of warps have room: accumulators and operands in registers, rings of operands in shared memory.

What ptxas spills is known when nvcc has run, which `compile` never asks; this is the arithmetic that keeps clear of it.
"""

from __future__ import annotations

from dataclasses import replace
from math import prod

from tilec.ir import tile_ir as t
from tilec.lazy_dataclass import dataclass
from tilec.passes.assign_layouts import Variant, assign
from tilec.passes.assign_products import ProductAssignment
from tilec.passes.axes import Axes, classify
from tilec.passes.placement import Placement, place
from tilec.passes.products import InRegisters, ProductPlan, Products, plan_products
from tilec.passes.schedule import Scheduled, schedule
from tilec.passes.schedule.clone import Numbers
from tilec.passes.schedule.partial import defer_plain_sums
from tilec.passes.uses import all_ops
from tilec.plan.candidate import Candidate
from tilec.remembered import remembered
from tilec.source.diagnostics import TileError
from tilec.targets.table import Target

COLUMNS_AT_ONCE = 2
"""Blocks of columns whose operands are in registers together, where there is no room for more."""

HANDED_BESIDES = 48
"""Registers besides of a loop that hands packed operands on to its next trip, and reads others two blocks at a time: measured with ptxas
for sm_80 to sm_120, none spilled."""

ROWS_OF_A_BRANCH = 16
"""Registers that a rare branch of rows takes where no others are free (ptxas spilled 10 without them)."""

ENOUGH = 2
"""Slots of a ring: one is read while the other is filled."""


LEAST_WARPS = 4
"""Of a CTA: one for each scheduler of a multiprocessor."""

ENOUGH_WARPS = 8
"""On a multiprocessor: on each scheduler one multiplies while another one computes."""

TWO_BLOCKS = 32
"""Rows of a warp that multiplies each of the right operand's elements twice."""


@dataclass(frozen=True)
class Planned:
    """A nest as products of warps take it, and what was done to it for them."""

    nest: t.Nest
    axes: Axes
    placement: Placement
    products: Products | None
    steps: tuple[str, ...] = ()


@remembered
def plan(
    program: t.Program,
    nest: t.Nest,
    target: Target,
    candidate: Candidate,
    warps: int | None = None,
    scheduled: Scheduled | None = None,
) -> Planned:
    """A nest with its products, shared out over `warps` where the candidate does not say; `scheduled` is what stands for the nest. Raises
    TileError where its products cannot be compiled."""
    scheduled = scheduled or _deferring(program, nest)
    nest, axes = classify(program, scheduled.nest)
    form = "auto" if candidate.mma == "wgmma" else candidate.mma
    count = candidate.warps or warps
    products = plan_products(nest, axes, target, count, form, scheduled.origin)
    return Planned(nest, axes, place(nest), products, scheduled.steps)


def _deferring(program: t.Program, nest: t.Nest) -> Scheduled:
    """A nest as it is, but for sums that its loops add up where there are no products."""
    done = False
    if program.math == "fast" and not any(isinstance(op, t.Dot) for op in all_ops(nest.body)):
        nest, done = defer_plain_sums(nest, Numbers((*program.nests, nest)))
    return Scheduled(nest, program, steps=("defer_sums",) if done else ())


@remembered
def planned(program: t.Program, nest: t.Nest, target: Target, candidate: Candidate) -> Planned:
    """The same; a nest whose products are chained in registers is scheduled where these suffice, for warps with two blocks of rows
    before others."""
    plain = plan(program, nest, target, candidate)
    if plain.products is None or not plain.products.chained:
        return plain
    if not have_room(plain.axes, plain.products, ROWS_OF_A_BRANCH):
        return plain  # as the variant for all addresses is, which has less room than one with whole vectors
    scheduled = schedule(program, nest, warps=True)
    if not scheduled.steps:
        return plain
    for warps in (_by_two_blocks(plain.products), None):
        try:
            found = plan(program, nest, target, candidate, warps, scheduled)
        except TileError:
            continue
        assert found.products is not None
        if not have_room(found.axes, found.products, _beside(found)):
            continue
        if _has_rings(program, found, target, candidate):
            return found
    return plain


def _has_rings(program: t.Program, found: Planned, target: Target, candidate: Candidate) -> bool:
    """Whether shared memory holds rings of two slots for a scheduled nest: its first and last tiles are slots of the loop's, and with one
    slot each has a place of its own."""
    assert found.products is not None
    if candidate.stages is not None:
        candidate = replace(candidate, stages=max(2, candidate.stages))
    assignment = ProductAssignment(
        program, found.nest, found.axes, found.placement, target, candidate, found.products
    )
    try:
        depth, in_loop = assignment.ring()
    except TileError:
        return False
    return depth > 1 or not in_loop


def variants(
    program: t.Program, nest: t.Nest, target: Target, candidate: Candidate, general_only: bool
) -> list[tuple[Planned, Variant]]:
    """The variants of a nest without roles: those with aligned accesses and the one for all addresses, or that alone. What is copied through
    registers takes those that a schedule needs: the latter has none."""

    def of(found: Planned, general_only: bool) -> list[tuple[Planned, Variant]]:
        parts = found.nest, found.axes, found.placement, target
        if found.products is None:
            return [(found, v) for v in assign(program, *parts, candidate.warps)]
        assignment = ProductAssignment(program, *parts, candidate, found.products, general_only)
        return [(found, v) for v in assignment.variants()]

    found = planned(program, nest, target, candidate)
    if not found.steps or found.products is None:
        return of(found, general_only)
    own = of(found, general_only)
    general = [v for _, v in own if not v.aligned]
    rest = of(plan(program, nest, target, candidate), True) if general else []
    return [pair for pair in own if pair[1].aligned] + rest


def _by_two_blocks(products: Products) -> int | None:
    """Warps with two blocks of rows each that a tile's rows are enough for; None where they are too few."""
    rows = max(a.capacity for n, a in products.layouts.items() if n not in products.columns)
    return (
        rows // TWO_BLOCKS if rows % TWO_BLOCKS == 0 and rows >= LEAST_WARPS * TWO_BLOCKS else None
    )


def is_twofold(program: t.Program, nest: t.Nest, target: Target, candidate: Candidate) -> bool:
    """Whether a nest has chained products, scheduled for warps with two blocks of rows, of which a multiprocessor holds enough."""
    try:
        found = planned(program, nest, target, candidate)
        products = found.products
        if products is None or not found.steps or products.warps != _by_two_blocks(products):
            return False
        assignment = ProductAssignment(
            program, found.nest, found.axes, found.placement, target, candidate, products
        )
        return products.warps * assignment.resident() >= ENOUGH_WARPS
    except TileError:
        return False


def have_room(axes: Axes, products: Products, beside: int = 0) -> bool:
    """Whether the registers of a thread hold its part of the products, and some words beside."""
    target = products.target
    share = target.registers_per_sm // (32 * products.warps)
    return words(axes, products) + beside <= min(target.registers_per_thread, share)


def _beside(found: Planned) -> int:
    """Words of a scheduled nest's thread for tiles that are loaded beside its products, and for rows where a loop that is not rotated leaves
    their exponentials to a rare branch."""
    products = found.products
    assert products is not None
    layouts = products.layouts
    staged = {o.source.id for p in products.plans.values() for o in (p.a, p.b)}
    total = 0 if products.is_handed_on else ROWS_OF_A_BRANCH
    for op in all_ops(found.nest.body):
        if not isinstance(op, t.Load) or op.out.type.rank != 2 or op.out.id in staged:
            continue
        known = [layouts.get(c.number) for c in found.axes.of_value(op.out) if c is not None]
        if len(known) == 2 and None not in known:
            elements = prod(a.capacity for a in known if a is not None)
            total += elements * op.out.type.dtype.bits // (32 * 32 * products.warps)
    return total


def slots(program: t.Program, nest: t.Nest, target: Target, candidate: Candidate) -> int:
    """Slots of the rings that a nest with products has room for, at most ENOUGH; ENOUGH where it needs none; 0 where registers or
    shared memory do not suffice."""
    if not any(isinstance(op, t.Dot) for op in all_ops(nest.body)):
        return ENOUGH
    try:
        found = planned(program, nest, target, candidate)
        assert found.products is not None
        if not have_room(found.axes, found.products):
            return 0
        assignment = ProductAssignment(
            program, found.nest, found.axes, found.placement, target, candidate, found.products
        )
        depth, in_loop = assignment.ring()
    except TileError:
        return 0
    return min(depth, ENOUGH) if in_loop and candidate.stages is None else ENOUGH


def words(axes: Axes, products: Products) -> int:
    """Registers of a thread that holds its part of a nest's products."""
    packed = products.at_once(
        (plan.op.out.id, _per_thread(axes, products, plan) * plan.op.a.type.dtype.bits // 32)
        for plan in products.distinct()
        if isinstance(plan.a, InRegisters)
    )
    operands = max(_operands(axes, products, plan) for plan in products.plans.values())
    besides = products.target.product_registers_besides
    besides += products.target.chained_registers_besides if packed else 0
    if products.is_handed_on:
        besides = HANDED_BESIDES
    return products.accumulators + packed + operands + besides


def _per_thread(axes: Axes, products: Products, plan: ProductPlan) -> int:
    """Elements of a left operand in registers that a thread holds."""
    row = axes.of(plan.op.out, 0)
    rows = 16 * products.row_warps if row is None else products.layouts[row.number].capacity
    return rows * plan.k_extent // (32 * products.warps)


def _operands(axes: Axes, products: Products, plan: ProductPlan) -> int:
    row, column = axes.of(plan.op.out, 0), axes.of(plan.op.out, 1)
    down = 1 if row is None else products.layouts[row.number].steps // 2
    across = 1 if column is None else products.layouts[column.number].steps
    left = 0 if isinstance(plan.a, InRegisters) else 4 * down
    own = left + 2 * min(across, COLUMNS_AT_ONCE)
    return own * (3 if plan.product.unpacked else 1)
