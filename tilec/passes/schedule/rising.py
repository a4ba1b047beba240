"""Scores that rise with the trips of a loop: where an earlier trip's maximum would soon be too small.

    s + slope[h] * (j - i).to(f32)           a number counts the loop's own index: the scores of a later trip are larger, or smaller
    where(i - j < WINDOW, s, -inf)           a mask that holds from some index on: rows begin in different trips, some with a single score

A row's reference would move in most of such trips, in the rare branch of its warp.
"""

from __future__ import annotations

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.filters import indices_of
from tilec.ir.symbolic import Sym, Var
from tilec.passes.interior import affine, difference_of
from tilec.passes.uses import Definitions, operands


def rises(tile: t.Value, loop: t.For, definitions: Definitions, facts: Facts) -> bool:
    """Whether a tile of scores is made of numbers that count the loop's index, or of masks that hold from some index on."""
    waiting, seen = [tile.id], {tile.id}
    indices = indices_of(loop)
    while waiting:
        op = definitions.defining.get(waiting.pop())
        if op is None or isinstance(op, t.Dot | t.Load | t.Reduce | t.For):
            continue
        if isinstance(op, t.Cast) and op.out.type.dtype.is_float:
            found = affine(op.arg, definitions)
            if found is not None and found.base.variables & set(indices):
                return True
        if isinstance(op, t.Elementwise) and op.out.type.rank == 2:
            found = difference_of(op, definitions)
            counted = found.base.variables & set(indices) if found is not None else set()
            if found is not None and counted:
                if any(_step(found.base, index, facts) > 0 for index in counted):
                    return True
                continue
        for value in operands(op):
            if value.id not in seen:
                seen.add(value.id)
                waiting.append(value.id)
    return False


def _step(number: Sym, index: Var, facts: Facts) -> int:
    """By how much a number of one trip is less than the next one's; 0 where that is not the same in all trips."""
    following = number.substitute({index: Sym.of(index) + 1}.get)
    return facts.numeric(following - number).constant or 0
