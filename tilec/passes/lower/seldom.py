"""Branches of rows that hold seldom: a warp takes one, for all its rows, where it holds for one of them.

w = exp2(s * c + r)                     for each element: w = …; sum += w; packed = w
sum = reduce.sum(w)                     late = any_lane(not sum < 2^8)
if rarely not sum < 2^8            ->   l' = l + sum
    m', w', l', o' = …                  if late:
merge m, w, l + sum, o                      m', packed, l', o = …

What stands where the branch is not taken is in registers in front of it, carried names in their own, and the branch overwrites it. The
tile that only a sum and a product's packed operand are made of has no registers of its own.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, hold_in
from tilec.passes.lower.context import Context, converted
from tilec.passes.lower.left import is_packed, pack_left
from tilec.passes.lower.questions import coords_for
from tilec.passes.lower.rarely import any_lane, any_of


def announce_joint(context: Context, ops: list[t.Op]) -> None:
    """Note the sums of a block whose walks pack the tile that they add up for a product as well, as nothing else reads it."""
    for branch in ops:
        if not isinstance(branch, t.If) or not branch.rare:
            continue
        for merge in branch.merges:
            cast = context.definitions.defining.get(merge.otherwise.id)
            home = _packed_home(context, merge)
            if home is None or not isinstance(cast, t.Cast) or cast not in ops:
                continue
            users = context.definitions.users[cast.arg.id]
            sums = [u for u in users if isinstance(u, t.Reduce) and u.op == "sum" and u in ops]
            if len(users) == 2 and len(sums) == 1 and _is_whole(context, cast.arg):
                context.joint[sums[0].out.id] = home
                context.joint_tiles.add(cast.arg.id)
                context.joint_casts.add(cast.out.id)


def _is_whole(context: Context, tile: t.Value) -> bool:
    """Whether all columns of a tile are there, and the layout has no others."""
    axis = tile.type.axes[-1]
    along = context.loop_axes(tile)[-1]
    extent = context.facts.numeric(axis.extent).constant
    return along is not None and not axis.presence and along.layout.capacity == extent


def _packed_home(context: Context, merge: t.Merge) -> k.Fragment | None:
    """The registers of a carried name that products take packed, if a merge makes its next value."""
    for user in context.definitions.users[merge.result.id]:
        for c in user.carried if isinstance(user, t.For) else ():
            if c.next is merge.result and is_packed(context, c.entry):
                return context.fragments[c.entry.id]
    return None


def branch_rarely(context: Context, op: t.If, lower: Callable[[t.Block], None]) -> None:
    """Such a branch; `lower` emits a block."""
    homes = [_home(context, merge) for merge in op.merges]
    condition = _any_row(context, op)
    outer, context.out = context.out, []
    context.limits.append({})
    lower(op.then)
    moved: list[k.Op] = []
    # rows are computed before any register changes that others are computed from
    for rank in (1, 2):
        for merge, home in zip(op.merges, homes, strict=True):
            if merge.then.type.rank == rank:
                moved += _overwrite(context, merge, home)
    context.out += moved
    context.limits.pop()
    then, context.out = tuple(context.out), outer
    context.out.append(k.IfAnyLane(condition, then, span=op.span))
    for merge, home in zip(op.merges, homes, strict=True):
        context.fragments[merge.result.id] = home


def _home(context: Context, merge: t.Merge) -> k.Fragment:
    """The registers of a merge's result, with what it is where the branch is not taken."""
    value = merge.otherwise
    packed = _packed_home(context, merge)
    if packed is not None:
        if value.id not in context.joint_casts:
            pack_left(context, value, packed, value.span)
        return packed
    held = context.fragments.get(value.id)
    if held is not None:
        return held
    name = context.names.unique(merge.result.name or "merged")
    return hold_in(context, value, value, context.loop_axes(value), name)


def _overwrite(context: Context, merge: t.Merge, home: k.Fragment) -> list[k.Op]:
    """A merge's result takes the value of the branch: a tile at once, rows by the copies that are returned."""
    value = merge.then
    if _packed_home(context, merge) is not None:
        pack_left(context, value, home, value.span)
        return []
    body = Body(context, home.axes)
    body.count(value)
    coords = coords_for(value, context.loop_axes(merge.result))
    expr = converted(body.value(value, coords), home.rep)
    if value.type.rank == 2:
        body.finish(Guards(), [k.Assign(home, expr)], [], value.span)
        return []
    fresh = k.Fragment(context.names.unique(f"{home.name}_moved"), home.rep, home.axes)
    context.out.append(k.Declare(fresh, None, span=value.span))
    body.finish(Guards(), [k.Assign(fresh, expr)], [], value.span)
    return [k.CopyFragment(home, fresh)]


def _any_row(context: Context, op: t.If) -> k.Expr:
    """Whether the condition holds for a row of the warp."""
    coords = context.loop_axes(op.condition)
    body = Body(context, context.ordered(coords))
    body.count(op.condition)
    answer = body.value(op.condition, coords)
    name = f"any_{op.condition.name or 'row'}"
    return any_lane(any_of(context, name, body, answer, op.span))


def packs_too(
    context: Context, op: t.Reduce, body: Body, element: k.Expr
) -> tuple[list[k.Op], list[k.Op]]:
    """What a sum's walk does besides for each element, and for each vector: pack the tile."""
    home = context.joint.get(op.out.id)
    if home is None:
        return [], []
    fast = next(a for a in body.axes if a.vectorised)
    pair = k.Fragment(body.local_name(f"{home.name}_wide"), element.rep, (fast,), local=True)
    body.loads.append(k.Declare(pair, None))
    return [k.Assign(pair, element)], [k.ConvertVector(home, pair)]
