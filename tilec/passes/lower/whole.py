"""Masks in front of a loop, which a tile without edges passes by.

                                          float s_2[…]
                                          if 0 <= first row - last column           (the least of what the mask compares)
s_2 = where(row >= column, s, -inf)  →      s_2 = s
                                          else
                                            s_2 = where(row >= column, s, -inf)

The trips of a loop have an interior without masks (`passes/interior.py`). A trip that was taken out of its loop has one only in some
instances, and asks; trips with masks ask whether they begin in front of a tensor, where memory says where they begin.
"""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.symbolic import Sym
from tilec.passes.interior import least_difference
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, conjunction
from tilec.passes.lower.context import Context


def hold_masked(
    context: Context, op: t.Op, coords: tuple[k.LoopAxis | None, ...], name: str
) -> bool:
    """Evaluate a masked tile into registers with a branch for the tile that needs no mask; says whether `op` is such a mask."""
    if context.variant.asynchronous is None:
        return False
    found = _mask(context, op)
    if found is None:
        return False
    value = op.outs[0]
    axes = context.ordered(coords)
    fragment = k.Fragment(name, found[0].type.dtype, axes)
    context.out.append(k.Declare(fragment, None, span=value.span))

    def branch(shown: t.Value) -> tuple[k.Op, ...]:
        """What evaluates a value, with a branch of its own where that is a mask again."""
        source = context.definitions.defining.get(shown.id)
        mask = None
        if source is not None and shown.id not in context.fragments:
            mask = _mask(context, source)
        outer, context.out = context.out, []
        context.limits.append({})
        if mask is not None:
            zero = k.Literal_(0, I32)
            needed = tuple(k.Apply("ge", (context.index(n), zero), BOOL) for n in mask[1])
            whole = branch(mask[0])
            masked = assigned(shown)
            context.out.append(k.IfUniform(conjunction(needed), whole, masked, span=value.span))
        else:
            context.out += assigned(shown)
        context.limits.pop()
        ops, context.out = tuple(context.out), outer
        return ops

    def assigned(shown: t.Value) -> tuple[k.Op, ...]:
        """What evaluates a value with all its masks."""
        outer, context.out = context.out, []
        context.limits.append({})
        body = Body(context, axes)
        body.count(shown)
        expr = body.value(shown, coords)
        assert expr.rep == fragment.rep
        body.finish(Guards(), [k.Assign(fragment, expr)], [], value.span)
        context.limits.pop()
        ops, context.out = tuple(context.out), outer
        return ops

    context.out += branch(value)
    context.fragments[value.id] = fragment
    return True


def _mask(context: Context, op: t.Op) -> tuple[t.Value, tuple[Sym, ...]] | None:
    """What a mask leaves as it is, and the numbers that are at least 0 where it leaves all."""
    facts = context.facts
    inside = bool(context.definitions.loops[op.outs[0].id])
    match op:
        case t.Elementwise() if op.op == "where" and op.out.type.rank == 2 and not inside:
            condition = context.definitions.defining.get(op.args[0].id)
            if not isinstance(condition, t.Elementwise) or condition.out.id in context.holds:
                return None
            least = least_difference(condition, context.definitions, context.program)
            return None if least is None else (op.args[1], (facts.numeric(least),))
        case t.Fill() if op.out.type.rank == 2:
            needs: list[Sym] = []
            for n, axis in enumerate(op.arg.type.axes):
                if op.axes is not None and n not in op.axes:
                    continue
                for constraint in axis.presence:
                    match constraint:
                        case t.Below() if not inside:
                            left = facts.numeric(constraint.limit - axis.extent)
                        case t.AtLeast():
                            left = facts.numeric(-constraint.limit)
                        case _:
                            return None
                    if not facts.prove_nonnegative(left):
                        needs.append(left)
            return (op.arg, tuple(needs)) if needs else None
        case _:
            return None
