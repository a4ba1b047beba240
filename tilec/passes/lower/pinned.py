"""What is computed of a product's elements and of a tile beside them, while the next product runs.

                                wait 1                                  the scores are there
s = q @ k.T * c + bias    ->    if B < 0: s = x * x                     never
                                else:     s = x * c + bias
                                wait 0                                  the values' product is done

ptxas moves arithmetic behind the wait that follows, where nothing runs beside it. What both arms of a branch give stays in front of it.
"""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32, I32
from tilec.ir.symbolic import Sym, Var
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, Coords
from tilec.passes.lower.context import Context
from tilec.passes.uses import all_ops, operands


def hold_pinned(context: Context, op: t.Op, coords: Coords, name: str) -> bool:
    """Hold a tile that is computed of accumulators and of numbers that the producer brought; says whether it is one."""
    if not isinstance(op, t.Elementwise) or op.out.type.dtype != F32:
        return False
    if not context.brought or len(coords) != 2 or None in coords:
        return False
    read = _read(context, op)
    sums = [f for f in read.values() if f.rep == F32 and len(f.axes) == 2]
    size = _size(context)
    if not sums or not context.brought & set(read) or size is None:
        return False
    axes = context.ordered(coords)
    held = k.Fragment(name, F32, axes)
    if any(f.axes != axes for f in sums):
        return False
    context.out.append(k.Declare(held, None, span=op.span))
    never = k.Apply("lt", (context.index(Sym.of(size)), k.Literal_(0, I32)), BOOL)
    element = k.Element(sums[0], F32)
    square = k.Assign(held, k.Apply("mul", (element, element), F32))
    outer, context.out = context.out, []
    Body(context, axes).finish(Guards(), [square], [], op.span)
    there, context.out = tuple(context.out), []
    body = Body(context, axes)
    body.count(op.out)
    value = body.value(op.out, coords)
    body.finish(Guards(), [k.Assign(held, value)], [], op.span)
    here, context.out = tuple(context.out), outer
    context.out.append(k.IfAnyLane(never, there, here, span=op.span))
    context.fragments[op.out.id] = held
    return True


def _read(context: Context, op: t.Op) -> dict[int, k.Fragment]:
    """The registers that an op's value is computed of, by the id of what they hold."""
    found: dict[int, k.Fragment] = {}
    for value in operands(op):
        if value.id in context.fragments:
            found[value.id] = context.fragments[value.id]
        elif value.type.rank and value.id in context.definitions.defining:
            found |= _read(context, context.definitions.defining[value.id])
    return found


def _size(context: Context) -> Var | None:
    """A size that no loop of the nest depends on: the compiler cannot know that it is not negative."""
    loops = [op for op in all_ops(context.nest.body) if isinstance(op, t.For)]
    counted = {v for loop in loops for v in context.facts.numeric(loop.trips).variables}
    return next((d for d in context.program.dims if d not in counted), None)
