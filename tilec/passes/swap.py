"""Operand swap: which products are computed transposed, as (a @ b).T = b.T @ a.T.

acc += a[i, k] @ b[k, j]        with 16 rows i and 64 columns j: the instruction multiplies 64 rows j by 16 columns i, and reads
                                the tiles of a and b as they are in memory

acc += a[i, k] @ b[k, j]        of 8-bit elements: the instruction reads neither operand across, but takes a left one from registers,
                                and so b.T as its left one

Only which axis is called rows changes: tiles of results, and all that is computed from them element by element, have their layout
from their axes' classes. A decision for the whole nest, since one axis has one layout.
"""

from __future__ import annotations

from tilec.ir import tile_ir as t
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.products import InRegisters, ProductPlan, Products, Staged
from tilec.passes.uses import all_ops
from tilec.targets.table import Target

WARPGROUP_ROWS = 64
"""Rows of a warpgroup's product (PTX ISA, wgmma: m64)."""


def swaps(nest: t.Nest, axes: Axes, products: Products, target: Target) -> bool:
    """Whether the products of a nest are computed transposed: they have fewer rows than a warpgroup multiplies, or right operands
    that it cannot read as they lie, which left ones can be (`is_turned`). Columns must be enough, both operands come from memory, and
    nothing be reduced along their axes (what is, is faster within one warp's rows)."""
    sides = [sides_of(axes, plan, False) for plan in products.plans.values()]
    if all((column.capacity or 1) < WARPGROUP_ROWS for _, column in sides):
        return False
    few = all((row.capacity or 1) < WARPGROUP_ROWS for row, _ in sides)
    across = any(is_across(plan, plan.b, target) for plan in products.plans.values())
    return (few or across) and only_loaded(nest, axes, products)


def only_loaded(nest: t.Nest, axes: Axes, products: Products) -> bool:
    """Whether all operands of a nest come from memory, and nothing is reduced along the products' axes: any layout does for them."""
    for plan in products.plans.values():
        if not all(isinstance(o, Staged) and o.load is not None for o in (plan.a, plan.b)):
            return False
    sides = [sides_of(axes, plan, False) for plan in products.plans.values()]
    numbers = {c.number for side in sides for c in side}
    for op in all_ops(nest.body):
        if isinstance(op, t.Reduce | t.Combine):
            along = op.axes if isinstance(op, t.Reduce) else range(op.arg.type.rank)
            found = [axes.of(op.arg, n) for n in along]
            if any(c is not None and c.number in numbers for c in found):
                return False
    return True


def is_across(plan: ProductPlan, operand: Staged | InRegisters, target: Target) -> bool:
    """Whether an operand lies with its consumed axis along rows and the instruction cannot read it so."""
    if not isinstance(operand, Staged) or operand.k_axis != 0:
        return False
    a, b = plan.op.a.type.dtype, plan.op.b.type.dtype
    found = [p for p in target.products if p.form == "wgmma" and (p.a, p.b) == (a, b)]
    return bool(found) and "n" not in found[-1].b_major


def is_turned(plan: ProductPlan, products: Products, target: Target) -> bool:
    """Whether a product's left operand lies so: it passes through registers, which hold it in any order."""
    return is_across(plan, plan.b if products.swapped else plan.a, target)


def sides_of(axes: Axes, plan: ProductPlan, swapped: bool) -> tuple[AxisClass, AxisClass]:
    """Rows and columns of the instruction for a product."""
    row, column = axes.of(plan.op.out, 0), axes.of(plan.op.out, 1)
    assert row is not None and column is not None
    return (column, row) if swapped else (row, column)
