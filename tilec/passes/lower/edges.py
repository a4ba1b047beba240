"""Walks of a window, without masks where the vector lies inside its row: all but the first and the last one.

tile_loop c                                   tile_loop c
  w_tile = load_shifted w, c_end                if_whole c_at, c_end
  for each element where is_within c_el c_end     w_tile = load_shifted w
    accumulate sum_x x_tile * w_tile              for each element
                                        →           accumulate sum_x x_tile * w_tile
                                                else
                                                  … as before
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import kernel_ir as k
from tilec.ir import window_ops as w


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
            return replace(op, whole=True)
        case w.StoreWindow():
            return k.StoreVector(
                op.source, op.rep, op.pointer, op.offset, True, op.guards, span=op.span
            )
        case _:
            return op
