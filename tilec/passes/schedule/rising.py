"""Scores that rise with the trips of a loop: where an earlier trip's maximum would soon be too small.

    s + slope[h] * (j - i).to(f32)           a number counts the loop's own index: the scores of a later trip are larger, or smaller
    where(i - j < WINDOW, s, -inf)           a mask that holds from some index on: rows begin in different trips, some with a single score

A row's reference would move in most of such trips, in the rare branch of its warp.
"""

from __future__ import annotations

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Var
from tilec.passes.interior import affine, difference_of
from tilec.passes.uses import Definitions, operands

_LARGE = 4096
_TILE = 128


def rises(tile: t.Value, loop: t.For, definitions: Definitions) -> bool:
    """Whether a tile of scores is made of numbers that count the loop's index, or of masks that hold from some index on."""
    waiting, seen = [tile.id], {tile.id}
    while waiting:
        op = definitions.defining.get(waiting.pop())
        if op is None or isinstance(op, t.Dot | t.Load | t.Reduce | t.For):
            continue
        if isinstance(op, t.Cast) and op.out.type.dtype.is_float:
            found = affine(op.arg, definitions)
            if found is not None and loop.index in found.base.variables:
                return True
        if isinstance(op, t.Elementwise) and op.out.type.rank == 2:
            found = difference_of(op, definitions)
            if found is not None and loop.index in found.base.variables:
                first, second = (_at(found.base.evaluate, loop.index, n) for n in (0, 1))
                if second > first:
                    return True
                continue
        for value in operands(op):
            if value.id not in seen:
                seen.add(value.id)
                waiting.append(value.id)
    return False


def _at(evaluate, index: Var, number: int) -> int:  # type: ignore[no-untyped-def]
    """A number of a trip at large sizes."""

    def known(var: Var) -> int:
        if var == index:
            return number
        return {"dim": _LARGE, "tile": _TILE}.get(var.kind, 0)

    return int(evaluate(known))
