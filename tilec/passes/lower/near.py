"""Functions of whole tiles that are cheap near 0: a warp takes the long form only where one of its arguments is far from there.

                                 for each element: y = x * scale; bits |= bits of y
t = tanh(x)              ->      if any_lane(bits & 2^30): for each element: t = tanh(y / scale)
                                 else:                     for each element: t = tanh_scaled(y)

A tanh has a polynomial near 0 and two long functions elsewhere; lanes that choose for each element do both. Where products are under way
beside, their warps have time for the polynomial alone. Arguments are scaled so that the polynomial ends at 2, from where on a float has bit 30: one
logic operation asks two of them. The scale is part of a number that the argument is multiplied by, unless their product has no room.
"""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32, I32
from tilec.ir.kernel_filters import Again
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, Coords
from tilec.passes.lower.context import Context
from tilec.passes.lower.rarely import any_lane
from tilec.source.text import Span

NEAR = {"tanh": 0.55}
"""Below which size of its argument a function is what its primitive of that name with `_scaled` is of twice the argument over that size."""

FROM_TWO = 1 << 30
"""A bit of all floats of 2 or more in size, of infinities and what is no number, and of no other."""

LARGEST_FLOAT = float.fromhex("0x1.fffffep127")


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
    held = k.Fragment(name, F32, axes)
    bits = k.Fragment(context.names.unique("bits"), I32, ())
    context.out.append(k.Declare(held, None, span=op.span))
    context.out.append(k.Declare(bits, k.Literal_(0, I32), span=op.span))
    tile, scale, back, own = _scaled(context, op)
    body = Body(context, axes)
    body.count(tile)
    times = k.Apply("mul", (body.value(tile, coords), scale), F32)
    element = k.Apply("bitcast", (k.Element(held, F32),), I32)
    either = k.Apply("or", (k.Element(bits, I32), element), I32)
    body.finish(Guards(), [k.Assign(held, times), k.Assign(bits, either)], [], op.span)
    large = k.Apply("and", (k.Element(bits, I32), k.Literal_(FROM_TWO, I32)), I32)
    far: k.Expr = k.Apply("ne", (large, k.Literal_(0, I32)), BOOL)
    before: list[k.Op] = []
    if own is not None:
        far = k.Apply("or", (far, k.Apply("eq", (scale, own), BOOL)), BOOL)
        same = k.Apply("eq", (scale, _again(context, own, before, op.span)), BOOL)
        back = k.Apply("where", (same, k.Literal_(1.0, F32), back), F32)
    scaled = k.Element(held, F32)
    plain = k.Apply("mul", (scaled, back), F32)
    there = (*before, *_walk(context, axes, held, k.Apply(op.op, (plain,), F32), op.span))
    near = _walk(context, axes, held, k.Apply(f"{op.op}_scaled", (scaled,), F32), op.span)
    context.out.append(k.IfAnyLane(any_lane(far), there, near, span=op.span))
    context.fragments[op.out.id] = held
    return True


def _scaled(context: Context, op: t.Elementwise) -> tuple[t.Value, k.Expr, k.Expr, k.Expr | None]:
    """The tile that the argument is made of, what it is multiplied by to be scaled, what leads back to the argument; and the number that the
    argument is the product with, which the former is too where it has no room for more."""
    argument = op.args[0]
    whole = k.Literal_(2.0 / NEAR[op.op], F32)
    back = k.Literal_(NEAR[op.op] / 2.0, F32)
    made = context.definitions.defining.get(argument.id)
    if (
        isinstance(made, t.Elementwise)
        and made.op == "mul"
        and argument.id not in context.fragments
    ):
        for number, tile in (made.args, made.args[::-1]):
            if not number.type.rank and tile.type.rank:
                # made again in each trip, beside the product: it has no register in the loop around
                known = context.scalar(number)
                own = _again(context, known, context.out, op.span)
                scaled = _let(context, "scaled", k.Apply("mul", (own, whole), F32), op.span)
                size = k.Apply("abs", (scaled,), F32)
                room = k.Apply("le", (size, k.Literal_(LARGEST_FLOAT, F32)), BOOL)
                chosen = k.Apply("where", (room, scaled, own), F32)
                return tile, _let(context, "scale", chosen, op.span), back, known
    return argument, whole, back, None


def _again(context: Context, number: k.Expr, out: list[k.Op], span: Span) -> k.Expr:
    """A number that the compiler takes for another one."""
    word = context.names.unique("again")
    out.append(Again(word, k.Apply("bitcast", (number,), I32), span=span))
    return k.Apply("bitcast", (k.Local(word, I32),), F32)


def _let(context: Context, name: str, value: k.Expr, span: Span) -> k.Expr:
    word = context.names.unique(name)
    context.out.append(k.Let(word, value.rep, value, span=span))
    return k.Local(word, value.rep)


def _walk(
    context: Context, axes: tuple[k.LoopAxis, ...], held: k.Fragment, value: k.Expr, span: Span
) -> tuple[k.Op, ...]:
    """The walk that takes the function of each element."""
    outer, context.out = context.out, []
    Body(context, axes).finish(Guards(), [k.Assign(held, value)], [], span)
    ops, context.out = tuple(context.out), outer
    return ops
