"""Rare subtractions: a branch that a warp takes where one of its rows needs it.

m = reduce.max(s)                      partial = reduce.max(s)                  of the thread's own elements
f = abs(m) > largest                   rare = any_lane(abs(partial) > largest)  while the lanes exchange their maxima
x = sub_if(s, m, f)             ->     m = lane_reduce(partial)
r = where(f, 0, m)                     x = s, r = m
                                       if rare: x = where(f, s - m, s), r = where(f, 0, m)

A maximum is one of the values that it is made of: what holds for a row's maximum holds for the partial result of one of its lanes. The
lanes may therefore vote before they have exchanged anything; a vote that is taken in vain costs time and changes nothing.
"""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, hold_in
from tilec.passes.lower.context import Context

SELECTING = frozenset({"max", "min"})
"""Reductions whose result is one of their elements."""


def is_rare(op: t.Op) -> bool:
    """Whether an op is a subtraction of few rows."""
    return isinstance(op, t.Elementwise) and op.op == "sub_if"


def announce(context: Context, ops: list[t.Op]) -> None:
    """Note, for the rare subtractions of a block, the reductions of the block after whose partial results the warps may vote, and the
    rows that choose by the same condition."""
    here = {op.out.id: op for op in ops if isinstance(op, t.Reduce)}
    for n, op in enumerate(ops):
        if not is_rare(op):
            continue
        assert isinstance(op, t.Elementwise)
        row = _row_of(context, op.args[2])
        context.choices[op.out.id] = [
            later
            for later in ops[n + 1 :]
            if isinstance(later, t.Elementwise) and _chooses(context, later, row)
        ]
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
    context.out.append(k.Let(name, BOOL, _any_lane(held), span=op.span))
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
    condition = rare if rare is not None else _any_lane(_any_row(context, op))
    rows = context.choices.get(op.out.id, [])
    context.early |= {row.out.id for row in rows}
    usual = [
        hold_in(
            context,
            row.out,
            row.args[2],
            context.loop_axes(row.out),
            context.names.unique(row.out.name or "row"),
        )
        for row in rows
    ]
    outer, context.out = context.out, []
    _assign(context, op.out, coords, fragment)
    for row, held in zip(rows, usual, strict=True):
        _assign(context, row.out, context.loop_axes(row.out), held)
    # the copy was the tile here alone: others read the tile as it is
    del context.fragments[tile.id]
    if before is not None:
        context.fragments[tile.id] = before
    context.fragments[op.out.id] = fragment
    for row, held in zip(rows, usual, strict=True):
        context.fragments[row.out.id] = held
    then, context.out = tuple(context.out), outer
    context.out.append(k.IfAnyLane(condition, then, span=op.span))


def _any_lane(held: k.Expr) -> k.Expr:
    return k.Apply("any_lane", (held,), BOOL)


def _any_row(context: Context, op: t.Elementwise) -> k.Expr:
    """Whether one of the thread's rows needs the subtraction, or may: a weaker question that costs less."""
    condition = op.args[2]
    coords = context.loop_axes(op.args[0])
    own = tuple(
        None if axis.is_one else along
        for axis, along in zip(condition.type.axes, coords, strict=True)
    )
    asked = _row_of(context, condition)
    if asked is not condition:
        own = tuple(along for along in own if along is not None)
    rows = Body(context, context.ordered(own))
    found = k.Fragment(context.names.unique("any_far"), BOOL, ())
    context.out.append(k.Declare(found, k.Literal_(False, BOOL), span=op.span))
    held = k.Element(found, BOOL)
    size = _measured(context, asked)
    if size is None:
        answer = rows.value(asked, own)
    else:
        value, limit = size
        absolute = k.Apply("abs", (rows.value(value, own),), value.type.dtype)
        answer = k.Apply("gt", (absolute, rows.value(limit, own)), BOOL)
    either = k.Apply("or", (held, answer), BOOL)
    rows.finish(Guards(), [k.Assign(found, either)], [], op.span)
    return held


def _row_of(context: Context, condition: t.Value) -> t.Value:
    """The condition of the rows before it was spread over a tile."""
    op = context.definitions.defining.get(condition.id)
    return op.arg if isinstance(op, t.Rearrange) else condition


def _measured(context: Context, condition: t.Value) -> tuple[t.Value, t.Value] | None:
    """x and the limit of `abs(where(c, number, x)) > limit`: `abs(x) > limit` holds wherever that does, as no limit is below a number
    that replaces a row's missing bound."""
    defining = context.definitions.defining
    op = defining.get(condition.id)
    if not isinstance(op, t.Elementwise) or op.op != "gt":
        return None
    size = defining.get(op.args[0].id)
    if not isinstance(size, t.Elementwise) or size.op != "abs":
        return None
    chosen = defining.get(size.args[0].id)
    if not isinstance(chosen, t.Elementwise) or chosen.op != "where":
        return None
    number = defining.get(chosen.args[1].id)
    while isinstance(number, t.Full):
        number = defining.get(number.value.id)
    if not isinstance(number, t.Constant) or number.value != 0:
        return None
    return chosen.args[2], op.args[1]


def _chooses(context: Context, op: t.Elementwise, row: t.Value) -> bool:
    """Whether a row that is held chooses by a condition."""
    return (
        op.op == "where"
        and op.args[0] is row
        and op.out.id in context.placement.held
        and bool(context.placement.sinks.get(op.out.id))
    )


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
