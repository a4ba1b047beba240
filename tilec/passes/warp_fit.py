"""Whether a nest's products of warps have room: accumulators and operands in registers, rings of operands in shared memory.

What ptxas spills is known when nvcc has run, which `compile` never asks; this is the arithmetic that keeps clear of it.
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.ir import tile_ir as t
from tilec.lazy_dataclass import dataclass
from tilec.passes.assign_products import ProductAssignment
from tilec.passes.axes import Axes, classify
from tilec.passes.placement import Placement, place
from tilec.passes.products import InRegisters, ProductPlan, Products, plan_products
from tilec.passes.schedule import schedule
from tilec.passes.uses import all_ops
from tilec.plan.candidate import Candidate
from tilec.source.diagnostics import TileError
from tilec.targets.table import Target

COLUMNS_AT_ONCE = 2
"""Blocks of columns whose operands are in registers together, where there is no room for more."""

ENOUGH = 2
"""Slots of a ring: one is read while the other is filled."""


@dataclass(frozen=True)
class Planned:
    """A nest as products of warps take it, and what was done to it for them."""

    nest: t.Nest
    axes: Axes
    placement: Placement
    products: Products | None
    steps: tuple[str, ...] = ()

    @property
    def parts(self) -> tuple[t.Nest, Axes, Placement, Products | None]:
        """All but the steps."""
        return self.nest, self.axes, self.placement, self.products


def planned(program: t.Program, nest: t.Nest, target: Target, candidate: Candidate) -> Planned:
    """The nest with its products; one whose products are chained in registers is scheduled where these suffice. Raises TileError where
    its products cannot be compiled."""
    form = "auto" if candidate.mma == "wgmma" else candidate.mma

    def plan(nest: t.Nest, origin: Mapping[int, int], steps: tuple[str, ...]) -> Planned:
        nest, axes = classify(program, nest)
        products = plan_products(nest, axes, target, candidate.warps, form, origin)
        return Planned(nest, axes, place(nest), products, steps)

    plain = plan(nest, {}, ())
    if plain.products is None or not _is_chained(plain.products):
        return plain
    scheduled = schedule(program, nest, warps=True)
    if not scheduled.steps:
        return plain
    try:
        found = plan(scheduled.nest, scheduled.origin, scheduled.steps)
    except TileError:
        return plain
    assert found.products is not None
    return found if _have_room(found.axes, found.products) else plain


def _is_chained(products: Products) -> bool:
    """Whether a product's left operand stays in registers."""
    return any(isinstance(plan.a, InRegisters) for plan in products.plans.values())


def _have_room(axes: Axes, products: Products) -> bool:
    """Whether the registers of a thread hold its part of the products."""
    target = products.target
    share = target.registers_per_sm // (32 * products.warps)
    return words(axes, products) <= min(target.registers_per_thread, share)


def slots(program: t.Program, nest: t.Nest, target: Target, candidate: Candidate) -> int:
    """Slots of the rings that a nest with products has room for, at most ENOUGH; ENOUGH where it needs none; 0 where registers or
    shared memory do not suffice."""
    if not any(isinstance(op, t.Dot) for op in all_ops(nest.body)):
        return ENOUGH
    try:
        nest, axes, placement, products = planned(program, nest, target, candidate).parts
        assert products is not None
        if not _have_room(axes, products):
            return 0
        assignment = ProductAssignment(program, nest, axes, placement, target, candidate, products)
        found, in_loop = assignment.ring()
    except TileError:
        return 0
    return min(found, ENOUGH) if in_loop and candidate.stages is None else ENOUGH


def words(axes: Axes, products: Products) -> int:
    """Registers of a thread that holds its part of a nest's products."""
    packed = sum(
        _per_thread(axes, products, plan) * plan.op.a.type.dtype.bits // 32
        for plan in products.distinct()
        if isinstance(plan.a, InRegisters)
    )
    operands = max(_operands(axes, products, plan) for plan in products.plans.values())
    besides = products.target.product_registers_besides
    besides += products.target.chained_registers_besides if packed else 0
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
