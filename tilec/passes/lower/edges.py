"""Walks without masks. Of a window, where the vector lies inside its row: all but the first and the last one.

tile_loop c                                   tile_loop c
  w_tile = load_shifted w, c_end                if_whole c_at, c_end
  for each element where is_within c_el c_end     w_tile = load_shifted w
    accumulate sum_x x_tile * w_tile              for each element
                                        →           accumulate sum_x x_tile * w_tile
                                                else
                                                  … as before

Of a row that fills all steps of all threads: one block, in which what a step reads need not wait for the step before.

tile_loop c where c_at < C        →    if_uniform C >= capacity
  …                                      tile_loop c
                                           …
                                       else
                                         as before

Of a window whose row reaches past all steps but the last: the first step asks where the row begins, the last one where it ends, those
between them are one block.

tile_loop c where c_at < C        →    if_uniform C >= capacity of all but a step
  if_whole c_at, C                       tile_loop c part 0: if_whole c_at …; tile_loop c part 1 …: then …; tile_loop c last part: …
    …                                  else
                                         as before
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import kernel_ir as k
from tilec.ir import window_ops as w
from tilec.ir.atomic_ops import AtomicVector
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.symbolic import Sym, Var


def without_masks(body: tuple[k.Op, ...], axes: tuple[k.LoopAxis, ...]) -> tuple[k.Op, ...]:
    """The body of a walk with its two forms; as it is where nothing masks elements, or more than the row's bounds."""
    axis = next((a for a in axes if a.windowed), None)
    bounds = {bound for op in body for bound in _bounds(op)}
    if axis is None or len(bounds) != 1 or None in bounds:
        return body
    (bound,) = bounds
    assert bound is not None
    first = [op for op in body if isinstance(op, k.Declare | k.Let | w.LoadWindow | k.LoadVector)]
    rest = tuple(op for op in body if op not in first)
    reach = max((_reach(op) for op in rest), default=0)
    whole = tuple(map(_whole, rest))
    return (*first, w.IfWhole(axis, bound, reach, whole, rest))


def filled_or_not(loop: k.TileLoop) -> k.Op:
    """A walk whose vectors one bound guards, and a form of it for rows that reach as far as the layout; the walk alone where elements
    are guarded too, or by more."""
    fast = next((a for a in loop.axes if a.vectorised), None)
    if fast is None or len(loop.axes) != 1 or fast.layout.streams or loop.parts:
        return loop
    if fast.windowed:
        return _inner_or_not(loop, fast)
    guards = [*loop.guards]
    for op in loop.body:
        if isinstance(op, k.Elements) and op.guards:
            return loop
        if isinstance(op, k.LoadVector | k.StoreVector | AtomicVector):
            if op.count is not None:
                return loop
            guards += op.guards
    at = k.Index(Sym.of(Var(fast.coordinate, "local")), I32)
    bounds = {g.args[1] for g in guards if isinstance(g, k.Apply) and _is_bound(g, at)}
    if len(bounds) != 1 or not all(isinstance(g, k.Apply) and _is_bound(g, at) for g in guards):
        return loop
    (bound,) = bounds
    threads = Sym.of(Var(f"kThreads{fast.suffix}", "local"))
    capacity = k.Index(threads * (fast.layout.steps * fast.layout.vector), I32)
    body = tuple(
        replace(op, guards=())
        if isinstance(op, k.LoadVector | k.StoreVector | AtomicVector)
        else op
        for op in loop.body
    )
    filled = replace(loop, guards=(), body=body)
    return k.IfUniform(k.Apply("ge", (bound, capacity), BOOL), (filled,), (loop,), span=loop.span)


def _inner_or_not(loop: k.TileLoop, axis: k.LoopAxis) -> k.Op:
    """A walk of a window, and a form of it for rows that reach past all steps but the last."""
    at = k.Index(Sym.of(Var(axis.coordinate, "local")), I32)
    guards = [*loop.guards]
    first: list[k.Op] = []
    inner: list[k.Op] = []
    reach = 0
    for op in loop.body:
        match op:
            case w.LoadWindow():
                guards += op.guards
                inner.append(k.LoadVector(op.target, op.pointer, at, True, span=op.span))
                first.append(inner[-1])
            case w.IfWhole():
                assert op.count is not None
                guards.append(k.Apply("lt", (at, op.count), BOOL))
                reach = max(reach, op.reach)
                inner += map(_near, op.then)
                otherwise = tuple(map(_from_begin, op.otherwise))
                first.append(replace(op, count=None, otherwise=otherwise))
            case k.Declare() | k.Let():
                inner.append(op)
                first.append(op)
            case _:
                return loop
    bounds = {g.args[1] for g in guards if isinstance(g, k.Apply) and _is_bound(g, at)}
    if len(bounds) != 1 or not all(isinstance(g, k.Apply) and _is_bound(g, at) for g in guards):
        return loop
    (bound,) = bounds
    steps = axis.layout.steps
    # the first step ends a whole step before the row does, and no access reaches that far
    assert steps >= 3 and reach <= axis.layout.vector, (steps, reach)
    threads, shift = (Sym.of(Var(name, "local")) for name in (f"kThreads{axis.suffix}", axis.shift))
    # the last vector but one step, and the rest of the access that reads its end
    end = threads * ((steps - 1) * axis.layout.vector) - (
        shift // reach * reach if reach else shift
    )
    walks = [replace(loop, parts=(k.Part(axis, steps - 1, 1),))]
    alike = 0 if first == inner else 1
    for body, begin, count in ((inner, alike, steps - 1 - alike), (first, 0, alike)):
        if count:
            part = k.Part(axis, begin, count)
            walks.insert(0, replace(loop, guards=(), body=tuple(body), parts=(part,)))
    return k.IfUniform(
        k.Apply("ge", (bound, k.Index(end, I32)), BOOL), tuple(walks), (loop,), span=loop.span
    )


def _from_begin(op: k.Op) -> k.Op:
    """An op on the vector in which a row begins that asks for nothing but that, where the row does not end."""
    match op:
        case k.Elements():
            guards = []
            for guard in op.guards:
                assert isinstance(guard, k.Apply) and guard.op == "is_within"
                guards.append(k.Apply("ge", (guard.args[0], k.Literal_(0, I32)), BOOL))
            return replace(op, guards=tuple(guards))
        case w.LoadShifted() | w.StoreWindow():
            return replace(op, count=None)
        case _:
            return op


def _near(op: k.Op) -> k.Op:
    return replace(op, near=True) if isinstance(op, w.LoadShifted) else op


def _is_bound(guard: k.Apply, at: k.Expr) -> bool:
    return guard.op == "lt" and guard.args[0] == at


def _bounds(op: k.Op) -> list[k.Expr | None]:
    """What an op compares coordinates of the row with; None for anything but a bound."""
    match op:
        case k.Elements():
            return [
                g.args[1] if isinstance(g, k.Apply) and g.op == "is_within" else None
                for g in op.guards
            ]
        case w.LoadShifted():
            return [op.count]
        case w.StoreWindow():
            tail = op.count
            return [tail.args[0] if isinstance(tail, k.Apply) and tail.op == "offset_sub" else None]
        case _:
            return []


def _reach(op: k.Op) -> int:
    """Elements behind the vector that its whole form reads."""
    return op.access * 8 // op.target.rep.bits if isinstance(op, w.LoadShifted) else 0


def _whole(op: k.Op) -> k.Op:
    match op:
        case k.Elements():
            return replace(op, guards=())
        case w.LoadShifted():
            return replace(op, count=None, whole=True)
        case w.StoreWindow():
            return k.StoreVector(
                op.source, op.rep, op.pointer, op.offset, True, op.guards, span=op.span
            )
        case _:
            return op
