"""Scores that rise with the trips of a loop: where an earlier trip's maximum would soon be too small.

    s + slope[h] * (j - i).to(f32)           a number counts the loop's own index: the scores of a later trip are larger, or smaller
    where(i - j < WINDOW, s, -inf)           a mask that holds from some index on: rows begin in different trips, or with a single score

A row's reference would move in most of such trips, in the rare branch of its warp. Where a mask leaves each row a score in the first trip
at least, few scores say little about what is to come: it begins with a reference that is larger than they ask for.
"""

from __future__ import annotations

from enum import Enum

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym, Var
from tilec.passes.interior import Affine, affine, difference_of
from tilec.passes.uses import Definitions, operands


class Rise(Enum):
    """How scores of later trips are to those of the first one."""

    NOT = 0
    FROM_FEW = 1
    """some rows have few scores in the first trip, and all have one"""
    ALWAYS = 2


def rises(tile: t.Value, loop: t.For, definitions: Definitions, facts: Facts) -> Rise:
    """Whether a tile of scores of a rotated loop is made of numbers that count its index, or of masks that hold from some index on."""
    found = Rise.NOT
    waiting, seen = [tile.id], {tile.id}
    while waiting:
        op = definitions.defining.get(waiting.pop())
        if op is None or isinstance(op, t.Dot | t.Load | t.Reduce | t.For):
            continue
        if isinstance(op, t.Cast) and op.out.type.dtype.is_float:
            counted = affine(op.arg, definitions)
            if counted is not None and loop.index in counted.base.variables:
                return Rise.ALWAYS
        if isinstance(op, t.Elementwise) and op.out.type.rank == 2:
            difference = difference_of(op, definitions)
            if difference is not None and loop.index in difference.base.variables:
                if _step(difference.base, loop.index, facts) > 0:
                    if not _all_begin(difference, op.out.type.axes, loop.index, facts):
                        return Rise.ALWAYS
                    found = Rise.FROM_FEW
                continue
        for value in operands(op):
            if value.id not in seen:
                seen.add(value.id)
                waiting.append(value.id)
    return found


def _all_begin(difference: Affine, axes: tuple[t.Axis, ...], index: Var, facts: Facts) -> bool:
    """Whether a mask is true of one column at least of each row in the trip in front of a rotated loop."""
    worst = difference.base.substitute({index: Sym.of(-1)}.get)
    for n, c in difference.coefficients.items():
        if (c < 0) == (n == 0):
            worst = worst + (axes[n].extent - 1) * c
    return facts.prove_nonnegative(worst)


def _step(number: Sym, index: Var, facts: Facts) -> int:
    """By how much a number of one trip is less than the next one's; 0 where that is not the same in all trips."""
    following = number.substitute({index: Sym.of(index) + 1}.get)
    return facts.numeric(following - number).constant or 0
