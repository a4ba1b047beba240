"""Rare subtractions: a branch that a warp takes where one of its rows needs it.

m = reduce.max(s)                      partial = reduce.max(s)                   of the thread's own elements
n = where(m == -inf, 0, m)             rare = any_lane(abs(partial) >= largest)  while the lanes exchange their maxima
f = abs(n) > largest            ->     m = lane_reduce(partial)
x = sub_if(s, n, f)                    x = s, r = m * c
r = where(f, 0, n) * c                 if rare: x = where(f, s - n, s), r = where(f, 0, n) * c

A maximum is one of the values that it is made of: what holds for a row's maximum holds for the partial result of one of its lanes. The
lanes may therefore vote before they have exchanged anything; a vote that is taken in vain costs time and changes nothing. In front of the
branch rows have what they have where the condition does not hold, in the branch what the program says: nothing chooses in either.
"""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, hold_in
from tilec.passes.lower.choices import Chosen, chosen_rows, is_rare, measured, row_of
from tilec.passes.lower.context import Context
from tilec.source.text import Span

SELECTING = frozenset({"max", "min"})
"""Reductions whose result is one of their elements."""


def announce(context: Context, ops: list[t.Op]) -> None:
    """Note, for the rare subtractions of a block, the reductions of the block after whose partial results the warps may vote, and the
    rows that choose by the same condition."""
    here = {op.out.id: op for op in ops if isinstance(op, t.Reduce)}
    for n, op in enumerate(ops):
        if not is_rare(op):
            continue
        assert isinstance(op, t.Elementwise)
        context.choices[op.out.id] = chosen_rows(context.definitions, ops, n)
        found = _reductions(context, op.args[2], here)
        if len(found) == 1 and found[0].op in SELECTING and not found[0].partial:
            context.votes[found[0].out.id] = op


def _reductions(context: Context, value: t.Value, here: dict[int, t.Reduce]) -> list[t.Reduce]:
    """The reductions of the block that a row's condition comes from."""
    if value.id in here:
        return [here[value.id]]
    op = context.definitions.defining.get(value.id)
    if not isinstance(op, t.Elementwise | t.Rearrange | t.Cast):
        return []
    args = op.args if isinstance(op, t.Elementwise) else (op.arg,)
    found: list[t.Reduce] = []
    for arg in args:
        found += [r for r in _reductions(context, arg, here) if r not in found]
    return found


def vote(context: Context, reduce: t.Reduce, partial: k.Fragment) -> None:
    """Let the warps vote on what the threads hold of the reduction's result, if a rare subtraction waits for that."""
    op = context.votes.get(reduce.out.id)
    if op is None:
        return
    kept = context.fragments.get(reduce.out.id)
    context.fragments[reduce.out.id] = partial
    held = _any_row(context, op)
    del context.fragments[reduce.out.id]
    if kept is not None:
        context.fragments[reduce.out.id] = kept
    name = context.names.unique("rare")
    context.out.append(k.Let(name, BOOL, any_lane(held), span=op.span))
    context.rare[op.out.id] = k.Local(name, BOOL)


def subtract_rarely(
    context: Context, op: t.Elementwise, coords: tuple[k.LoopAxis | None, ...], name: str
) -> None:
    """A copy, from which a warp subtracts only where the condition holds in one of its threads: else that costs nothing. Rows that
    choose by the same condition take their usual value in front of the branch."""
    tile = op.args[0]
    before = context.fragments.get(tile.id)
    fragment = hold_in(context, tile, tile, coords, name)
    rare = context.rare.get(op.out.id)
    condition = rare if rare is not None else any_lane(_any_row(context, op))
    chosen = context.choices.get(op.out.id, Chosen())
    context.early |= chosen.inner | {row.id for row in chosen.rows}
    context.usual = chosen.usual
    usual = [
        hold_in(context, row, row, context.loop_axes(row), context.names.unique(row.name or "row"))
        for row in chosen.rows
    ]
    context.usual = {}
    outer, context.out = context.out, []
    _assign(context, op.out, coords, fragment)
    # what the rows are here is told by the program alone, and not by one another's usual values
    for row in chosen.rows:
        del context.fragments[row.id]
    for row, held in zip(chosen.rows, usual, strict=True):
        _assign(context, row, context.loop_axes(row), held)
    # the copy was the tile here alone: others read the tile as it is
    del context.fragments[tile.id]
    if before is not None:
        context.fragments[tile.id] = before
    context.fragments[op.out.id] = fragment
    for row, held in zip(chosen.rows, usual, strict=True):
        context.fragments[row.id] = held
    then, context.out = tuple(context.out), outer
    context.out.append(k.IfAnyLane(condition, then, span=op.span))


def any_lane(held: k.Expr) -> k.Expr:
    """Whether a condition holds in one of a warp's lanes."""
    return k.Apply("any_lane", (held,), BOOL)


def any_of(context: Context, name: str, walk: Body, answer: k.Expr, span: Span) -> k.Expr:
    """Whether `answer`, an expression of `walk`, holds for one of the elements of a thread: the walk is emitted."""
    found = k.Fragment(context.names.unique(name), BOOL, ())
    context.out.append(k.Declare(found, k.Literal_(False, BOOL), span=span))
    held = k.Element(found, BOOL)
    either = k.Apply("or", (held, answer), BOOL)
    walk.finish(Guards(), [k.Assign(found, either)], [], span)
    return held


def _any_row(context: Context, op: t.Elementwise) -> k.Expr:
    """Whether one of the thread's rows needs the subtraction, or may: a weaker question that costs less."""
    condition = op.args[2]
    coords = context.loop_axes(op.args[0])
    own = tuple(
        None if axis.is_one else along
        for axis, along in zip(condition.type.axes, coords, strict=True)
    )
    asked = row_of(context.definitions, condition)
    if asked is not condition:
        own = tuple(along for along in own if along is not None)
    rows = Body(context, context.ordered(own))
    size = measured(context.definitions, asked)
    if size is None:
        answer = rows.value(asked, own)
    else:
        bound, limit = size
        value = bound.args[2]
        absolute = k.Apply("abs", (rows.value(value, own),), value.type.dtype)
        answer = k.Apply("ge", (absolute, rows.value(limit, own)), BOOL)
    return any_of(context, "any_far", rows, answer, op.span)


def _assign(
    context: Context, value: t.Value, coords: tuple[k.LoopAxis | None, ...], fragment: k.Fragment
) -> None:
    """The fragment takes the value as its op defines it."""
    known = context.fragments.pop(value.id, None)
    walk = Body(context, context.ordered(coords))
    walk.count(value)
    expr = walk.value(value, coords)
    walk.finish(Guards(), [k.Assign(fragment, expr)], [], value.span)
    if known is not None:
        context.fragments[value.id] = known
