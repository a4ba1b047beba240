"""Loops whose scores rise with the trips run backwards, where the order is nobody's: the first trip's reference is the largest then.

    for n < N:                                        for n < N:
        s = … + slope * (j(n) - i)           ->           s = … + slope * (j(N - 1 - n) - i)
        m, l, o = max, sums relative to m                 the same

A loop that rescales (`ir/rescaled`) takes maxima and sums, and its results do not show where the reference is: in which order it adds
up is not said (docs/language.md). Each carried name is the running maximum, or is itself, times factors of rows, plus what the trip alone
makes.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.rescaled import Rescaling
from tilec.ir.symbolic import Sym, Var
from tilec.passes.schedule.clone import Cloner, Numbers
from tilec.passes.schedule.rising import trend
from tilec.passes.schedule.rotate import PLAIN
from tilec.passes.uses import Definitions, operands


def run_backwards(
    block: t.Block,
    found: tuple[Rescaling, ...],
    numbers: Numbers,
    facts: Facts,
    origin: dict[int, int],
) -> tuple[t.Block, frozenset[Var]]:
    """The block with the loops of `found` whose scores rise running backwards, and their indices."""
    definitions = Definitions.of(block)
    ops: list[t.Op] = []
    turned: set[Var] = set()
    for op in block.ops:
        for rescaling in found if isinstance(op, t.For) else ():
            assert isinstance(op, t.For)
            if rescaling.loop.index != op.index or not _any_order(rescaling):
                continue
            weights = [x for x in op.body.ops if x.outs and x.outs[0].id == rescaling.weight]
            if not weights or not all(isinstance(x, PLAIN) for x in op.body.ops):
                continue
            if any(isinstance(x, t.Survivor) for x in op.body.ops):
                continue  # trips that survive a filter are found one after the other
            if trend(weights[0].outs[0], op, definitions, facts) > 0:
                op = _backwards(op, numbers, origin)
                turned.add(op.index)
                break
        ops.append(op)
    return t.Block(tuple(ops)), frozenset(turned)


def _backwards(loop: t.For, numbers: Numbers, origin: dict[int, int]) -> t.For:
    other = Cloner(numbers, {}, {loop.index: loop.trips - 1 - Sym.of(loop.index)}, origin)
    body = t.Block(tuple(other.ops(loop.body.ops)))
    carried = tuple(replace(c, next=other.value(c.next)) for c in loop.carried)
    return replace(loop, carried=carried, body=body)


def _any_order(rescaling: Rescaling) -> bool:
    """Whether what a loop carries is the same in whichever order its trips run."""
    loop = rescaling.loop
    made = {v.id: op for op in loop.body.ops for v in op.outs}
    running = rescaling.running
    others = {c.entry.id for c in loop.carried if c is not running}

    def reads(value: t.Value) -> bool:
        """Whether a value follows from a carried name beside the reference."""
        waiting, seen = [value.id], {value.id}
        while waiting:
            number = waiting.pop()
            if number in others:
                return True
            op = made.get(number)
            for x in operands(op) if op is not None else ():
                if x.id not in seen:
                    seen.add(x.id)
                    waiting.append(x.id)
        return False

    def is_factor(value: t.Value) -> bool:
        op = made.get(value.id)
        while isinstance(op, t.Rearrange):
            value, op = op.arg, made.get(op.arg.id)
        return value.id in rescaling.factors

    def adds_up(value: t.Value, entry: t.Value) -> bool:
        if value is entry:
            return True
        op = made.get(value.id)
        if isinstance(op, t.Dot) and op.accumulate is not None:
            return not reads(op.a) and not reads(op.b) and adds_up(op.accumulate, entry)
        if not isinstance(op, t.Elementwise) or op.op not in ("add", "mul"):
            return False
        for value, other in (op.args, op.args[::-1]):
            if reads(value):
                free = is_factor(other) if op.op == "mul" else not reads(other)
                return free and adds_up(value, entry)
        return False

    return not reads(running.next) and all(
        adds_up(c.next, c.entry) for c in loop.carried if c is not running
    )
