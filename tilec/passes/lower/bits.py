"""Several masks of accumulators at once, as bits of a word for each row.

                                                        for each row: visible = columns_upto(row - first) & columns_from(row - 99 - first)
where((row >= column) & (row - column < 100), s, -inf)  →  for each element n: where(bit n of visible, s, -inf)

One comparison of an element with a constant is an instruction, two are three. Bits of a word become predicates seven at a time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, U32
from tilec.ir.symbolic import Sym, Var
from tilec.passes.interior import Affine, difference_of
from tilec.passes.lower.access import coordinate

if TYPE_CHECKING:
    from tilec.passes.lower.body import Body, Coords
    from tilec.passes.lower.context import Context

COLUMNS = [("register", 8), ("thread", 2), ("register", 1)]
"""Digits of accumulators' columns: pairs, eight columns apart in a thread."""
MOST_STEPS = 16
"""Pairs whose elements have bits in a word."""


def has_word(fast: k.LoopAxis | None) -> bool:
    """Whether a word has a bit for each of a thread's columns along an axis of accumulators."""
    if fast is None or not fast.vectorised or fast.layout.steps > MOST_STEPS:
        return False
    return [(d.source, d.stride) for d in fast.layout.digits if d.radix > 1] == COLUMNS


def column_bit(context: Context, words: k.Fragment, fast: k.LoopAxis) -> k.Expr:
    """The bit of the current element in its row's word."""
    step, sub = (Sym.of(Var(x, "local")) for x in (fast.step, f"{fast.name}_sub"))
    return k.Apply("has_column", (k.Element(words, U32), context.index(step * 2 + sub)), BOOL)


def visible_bit(body: Body, op: t.Elementwise, coords: Coords) -> k.Expr | None:
    """Whether several comparisons hold for an element of accumulators: a bit of its row's word, which is made in front of the walk. None
    where they are fewer, or are no such comparisons."""
    context = body.context
    if op.op != "and" or op.out.type.rank != 2 or context.variant.asynchronous is None:
        return None
    row, fast = coords
    if fast is None or not has_word(fast):
        return None
    bounds: list[Affine] = []
    for leaf in _comparisons(body, op):
        found = difference_of(leaf, context.definitions)
        if found is None or found.coefficients.get(1) not in (1, -1):
            return None
        if found.coefficients.get(0) and row is None:
            return None
        bounds.append(found)
    if len(bounds) < 2:
        return None
    lane = Sym.of(Var(fast.lane, "local"))
    words: list[k.Expr] = []
    for bound in bounds:
        number = bound.base
        if row is not None:
            number = number + coordinate(row) * bound.coefficients.get(0, 0)
        upto = bound.coefficients[1] == -1
        limit = number - lane if upto else -number - lane
        name = "columns_upto" if upto else "columns_from"
        words.append(k.Apply(name, (context.index(limit),), U32))
    word = words[0]
    for other in words[1:]:
        word = k.Apply("and", (word, other), U32)
    along = () if row is None else (row,)
    visible = k.Fragment(context.names.unique("visible"), U32, along)
    context.out.append(k.Declare(visible, None, span=op.span))
    made = k.Elements((), (k.Assign(visible, word),))
    context.out.append(k.TileLoop(along, (), (made,), span=op.span))
    return column_bit(context, visible, fast)


def _comparisons(body: Body, op: t.Elementwise) -> list[t.Elementwise]:
    """What must all hold for an op, but for what does."""
    found: list[t.Elementwise] = []
    for arg in op.args:
        inner = body.context.definitions.defining.get(arg.id)
        if arg.id in body.context.holds:
            continue
        if not isinstance(inner, t.Elementwise) or arg.id in body.context.fragments:
            return []
        if inner.op == "and":
            deeper = _comparisons(body, inner)
            if not deeper:
                return []
            found += deeper
        else:
            found.append(inner)
    return found
