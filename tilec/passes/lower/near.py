"""Functions of whole tiles that are cheap near 0: a warp takes the long form only where one of its arguments is far from there.

                                 for each element: largest = max(largest, abs(x))
t = tanh(x)              ->      if any_lane(largest >= limit): for each element: t = tanh(x)
                                 else:                          for each element: t = tanh_near(x)

A tanh has a polynomial near 0 and two long functions elsewhere; lanes that choose for each element do both. Where products are under way
beside, their warps have time for the polynomial alone.
"""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, Coords
from tilec.passes.lower.context import Context
from tilec.passes.lower.rarely import any_lane, any_of

NEAR = {"tanh": 0.55}
"""Below which size of its argument a function is what its primitive of that name with `_near` is."""


def hold_near(context: Context, op: t.Op, coords: Coords, name: str) -> bool:
    """Hold such a function of accumulators' shape; says whether it is one."""
    form = context.variant.asynchronous
    if not isinstance(op, t.Elementwise) or op.op not in NEAR or op.out.type.dtype != F32:
        return False
    # what is stored from registers leaves none for either arm
    if (
        form is None
        or form.departure is None
        or context.program.math != "fast"
        or len(coords) != 2
        or None in coords
    ):
        return False
    axes = context.ordered(coords)
    rows = tuple(axis for axis in axes if not axis.vectorised)
    if len(rows) != 1:
        return False
    held = k.Fragment(name, F32, axes)
    largest = k.Fragment(context.names.unique("largest"), F32, rows)
    start = k.Assign(largest, k.Literal_(0.0, F32))
    context.out += [
        k.Declare(held, None, span=op.span),
        k.Declare(largest, None, span=op.span),
        k.TileLoop(rows, (), (k.Elements((), (start,)),), span=op.span),
    ]
    body = Body(context, axes)
    body.count(op.args[0])
    size = k.Apply("abs", (body.value(op.args[0], coords),), F32)
    top = k.Apply("max", (k.Element(largest, F32), size), F32)
    body.finish(Guards(), [k.Assign(largest, top)], [], op.span)
    beyond = k.Apply("ge", (k.Element(largest, F32), k.Literal_(NEAR[op.op], F32)), BOOL)
    condition = any_lane(any_of(context, "far", Body(context, rows), beyond, op.span))
    there = _walk(context, op, coords, held, op.op)
    near = _walk(context, op, coords, held, f"{op.op}_near")
    context.out.append(k.IfAnyLane(condition, there, near, span=op.span))
    context.fragments[op.out.id] = held
    return True


def _walk(
    context: Context, op: t.Elementwise, coords: Coords, held: k.Fragment, function: str
) -> tuple[k.Op, ...]:
    """The walk that takes the function of each element."""
    outer, context.out = context.out, []
    body = Body(context, context.ordered(coords))
    body.count(op.args[0])
    value = k.Apply(function, (body.value(op.args[0], coords),), F32)
    body.finish(Guards(), [k.Assign(held, value)], [], op.span)
    ops, context.out = tuple(context.out), outer
    return ops
