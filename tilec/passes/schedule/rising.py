"""Scores that rise with the trips of a loop: where an earlier trip's maximum would soon be too small.

    s + slope[h] * (j - i).to(f32)           a number counts the loop's own index: the scores of a later trip are larger, or smaller
    where(i - j < WINDOW, s, -inf)           a mask that holds from some index on: rows begin in different trips, or with a single score

A row's reference would move in most of such trips, in the rare branch of its warp. Where a mask leaves each row a score in the first trip
at least, few scores say little about what is to come: it begins with a reference that is larger than they ask for. What memory and
arguments say is taken for positive: of a slope whose sign nobody knows the other sign costs those moves, and nothing else.
"""

from __future__ import annotations

from enum import Enum

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.filters import indices_of
from tilec.ir.symbolic import Sym, Var
from tilec.passes.interior import Affine, affine, difference_of
from tilec.passes.uses import Definitions, operands

_GROWING = frozenset({"exp", "exp2", "log", "log2", "sqrt", "tanh", "sigmoid", "erf"})
"""Functions that grow with their argument."""


class Rise(Enum):
    """How scores of later trips are to those of the first one."""

    NOT = 0
    FROM_FEW = 1
    """some rows have few scores in the first trip, and all have one"""
    ALWAYS = 2


def trend(value: t.Value, loop: t.For, definitions: Definitions, facts: Facts) -> int:
    """How numbers that count the loop's index move a value from one trip to the next: 1 up, -1 down, 0 not at all; 1 where that cannot be
    told."""
    known: dict[int, int] = {}
    indices = set(indices_of(loop))

    def of(value: t.Value) -> int:
        if value.id not in known:
            known[value.id] = 0
            known[value.id] = made(definitions.defining.get(value.id))
        return known[value.id]

    def made(op: t.Op | None) -> int:
        match op:
            case None | t.Dot() | t.Load() | t.Reduce() | t.For() | t.Constant():
                return 0
            case t.Cast() if op.out.type.dtype.is_float and op.arg.type.dtype.is_integer:
                found = affine(op.arg, definitions)
                counted = found.base.variables & indices if found is not None else ()
                if found is None or not counted:
                    return 0
                steps = [_step(found.base, index, facts) for index in counted]
                return -1 if max(steps) < 0 else 1
            case t.Elementwise():
                return elementwise(op)
            case _:
                return _either([of(v) for v in operands(op)])

    def elementwise(op: t.Elementwise) -> int:
        match op.op:
            case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
                return 0
            case "neg":
                return -of(op.args[0])
            case "sub" | "sub_if":
                return _either([of(op.args[0]), -of(op.args[1])])
            case "mul" | "fma":
                left, right = (of(v) * _sign(w) for v, w in (op.args[:2], op.args[1::-1]))
                product = _either([left, right])
                return _either([product, *(of(v) for v in op.args[2:])])
            case "div":
                return _either([of(op.args[0]) * _sign(op.args[1]), abs(of(op.args[1]))])
            case "where":
                return _either([of(v) for v in op.args[1:]])
            case "add" | "max" | "min":
                return _either([of(v) for v in op.args])
            case name if name in _GROWING:
                return of(op.args[0])
            case _:
                return max((abs(of(v)) for v in op.args), default=0)

    def _sign(factor: t.Value) -> int:
        op = definitions.defining.get(factor.id)
        while isinstance(op, t.Full | t.Rearrange):
            op = definitions.defining.get(op.value.id if isinstance(op, t.Full) else op.arg.id)
        if isinstance(op, t.Elementwise) and op.op == "neg":
            return -_sign(op.args[0])
        return -1 if isinstance(op, t.Constant) and op.value < 0 else 1

    return of(value)


def _either(trends: list[int]) -> int:
    """Of what is made of several: up where one goes up."""
    return 1 if 1 in trends else min(trends, default=0)


def rises(
    tile: t.Value, loop: t.For, definitions: Definitions, facts: Facts, backwards: bool
) -> Rise:
    """Whether a tile of scores of a rotated loop is made of numbers that rise with its trips, or of masks that hold from some trip on;
    `backwards`: the masks of a loop whose trips run in reverse order leave rows scores in the first of them, if they do at all."""
    if trend(tile, loop, definitions, facts) > 0:
        return Rise.ALWAYS
    found = Rise.NOT
    waiting, seen = [tile.id], {tile.id}
    indices = set(indices_of(loop))
    while waiting:
        op = definitions.defining.get(waiting.pop())
        if op is None or isinstance(op, t.Dot | t.Load | t.Reduce | t.For):
            continue
        if isinstance(op, t.Elementwise) and op.out.type.rank == 2:
            difference = difference_of(op, definitions)
            counted = difference.base.variables & indices if difference is not None else ()
            if difference is not None and counted:
                if any(_step(difference.base, index, facts) > 0 for index in counted):
                    axes = op.out.type.axes
                    if counted <= {loop.index} and _all_begin(difference, axes, loop.index, facts):
                        found = Rise.FROM_FEW
                    elif not backwards:
                        return Rise.ALWAYS
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
