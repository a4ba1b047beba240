"""Operand swap: which products are computed transposed, as (a @ b).T = b.T @ a.T.

acc += a[i, k] @ b[k, j]        with 16 rows i and 64 columns j: the instruction multiplies 64 rows j by 16 columns i, and reads
                                the tiles of a and b as they are in memory

Only which axis is called rows changes: tiles of results, and all that is computed from them element by element, have their layout
from their axes' classes. A decision for the whole nest, since one axis has one layout.
"""

from __future__ import annotations

from tilec.ir import tile_ir as t
from tilec.passes.axes import Axes, AxisClass
from tilec.passes.products import ProductPlan, Products, Staged
from tilec.passes.uses import all_ops

WARPGROUP_ROWS = 64
"""Rows of a warpgroup's product (PTX ISA, wgmma: m64)."""


def swaps(nest: t.Nest, axes: Axes, products: Products) -> bool:
    """Whether the products of a nest are computed transposed: they have fewer rows than a warpgroup multiplies and columns enough, both
    operands come from memory, and nothing is reduced along their axes (what is, is faster within one warp's rows)."""
    sides = [sides_of(axes, plan, False) for plan in products.plans.values()]
    if any((row.capacity or 1) >= WARPGROUP_ROWS for row, _ in sides):
        return False
    if all((column.capacity or 1) < WARPGROUP_ROWS for _, column in sides):
        return False
    for plan in products.plans.values():
        if not all(isinstance(o, Staged) and o.load is not None for o in (plan.a, plan.b)):
            return False
    numbers = {c.number for side in sides for c in side}
    for op in all_ops(nest.body):
        if isinstance(op, t.Reduce | t.Combine):
            along = op.axes if isinstance(op, t.Reduce) else range(op.arg.type.rank)
            found = [axes.of(op.arg, n) for n in along]
            if any(c is not None and c.number in numbers for c in found):
                return False
    return True


def sides_of(axes: Axes, plan: ProductPlan, swapped: bool) -> tuple[AxisClass, AxisClass]:
    """Rows and columns of the instruction for a product."""
    row, column = axes.of(plan.op.out, 0), axes.of(plan.op.out, 1)
    assert row is not None and column is not None
    return (column, row) if swapped else (row, column)
