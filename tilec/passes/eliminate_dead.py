"""What nothing needs goes: pure ops, carried names, merges and loops whose results no store, atomic, print or assert reads.

n = n + 1 (carried, never read)
y = exp(x[i])                       ->    store z[i] = 1
store z[i] = 1
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym
from tilec.passes.uses import operands, syms_of


def run(block: t.Block) -> t.Block:
    """The block with what its effects need."""
    search = _Search()
    search.index(block, ())
    search.mark()
    return _kept(block, search.needed)


class _Search:
    """Marks values from the effects backwards. `needs` are the ids that a value is made of, `around` the loops and branches
    that decide whether it is."""

    def __init__(self) -> None:
        self.needed: set[int] = set()
        self.needs: dict[int, list[int]] = {}
        self.around: dict[int, tuple[t.Op, ...]] = {}
        self.pending: list[int] = []

    def index(self, block: t.Block, around: tuple[t.Op, ...]) -> None:
        """Note what every value of a block is made of, and begin with what its effects read."""
        for op in block.ops:
            inner = (*around, op)
            match op:
                case t.For():
                    for c in op.carried:
                        self._define(c.result, [c.initial.id, c.next.id, c.entry.id], inner)
                        self._define(c.entry, [c.initial.id, c.next.id, c.result.id], inner)
                    self.index(op.body, inner)
                case t.If():
                    for m in op.merges:
                        self._define(m.result, [m.then.id, m.otherwise.id], inner)
                    self.index(op.then, inner)
                    self.index(op.otherwise, inner)
                case t.Store() | t.Atomic() | t.Print() | t.Assert():
                    self.pending += _read_by(op)
                    self._reach(around)
                case _:
                    for value in op.outs:
                        self._define(value, _read_by(op), around)

    def _define(self, value: t.Value, needs: list[int], around: tuple[t.Op, ...]) -> None:
        self.needs[value.id] = [*needs, *_presence(value)]
        self.around[value.id] = around

    def _reach(self, around: tuple[t.Op, ...]) -> None:
        for op in around:
            self.pending += [op.condition.id] if isinstance(op, t.If) else _in_syms(syms_of(op))

    def mark(self) -> None:
        """Follow everything pending."""
        while self.pending:
            number = self.pending.pop()
            if number not in self.needed:
                self.needed.add(number)
                self.pending += self.needs.get(number, [])
                self._reach(self.around.get(number, ()))


def _read_by(op: t.Op) -> list[int]:
    """Ids of what an op reads, as operands and in its symbolic integers."""
    return [v.id for v in operands(op)] + _in_syms(syms_of(op))


def _in_syms(syms: Iterable[Sym]) -> list[int]:
    return [v.key for s in syms for v in sorted(s.variables) if v.kind == "value"]


def _presence(value: t.Value) -> list[int]:
    """Ids of the values that say which elements are there."""
    found: list[int] = []
    for axis in value.type.axes:
        found += _in_syms([axis.extent])
        for constraint in axis.presence:
            match constraint:
                case t.Below() | t.AtLeast():
                    found += _in_syms([constraint.limit])
                case t.InRange():
                    syms = [constraint.size] + [s for s in (constraint.trips,) if s is not None]
                    found += [constraint.index, *_in_syms(syms)]
    return found


def _kept(block: t.Block, needed: set[int]) -> t.Block:
    ops: list[t.Op] = []
    for op in block.ops:
        match op:
            case t.Store() | t.Atomic() | t.Print() | t.Assert():
                ops.append(op)
            case t.For():
                carried = tuple(c for c in op.carried if c.result.id in needed)
                body = _kept(op.body, needed)
                if carried or body.ops:
                    ops.append(replace(op, body=body, carried=carried, outs=_results(op, needed)))
            case t.If():
                merges = tuple(m for m in op.merges if m.result.id in needed)
                then, otherwise = _kept(op.then, needed), _kept(op.otherwise, needed)
                if merges or then.ops or otherwise.ops:
                    ops.append(
                        replace(
                            op,
                            then=then,
                            otherwise=otherwise,
                            merges=merges,
                            outs=_results(op, needed),
                        )
                    )
            case _:
                if any(v.id in needed for v in op.outs):
                    ops.append(op)
    return t.Block(tuple(ops))


def _results(op: t.Op, needed: set[int]) -> tuple[t.Value, ...]:
    return tuple(v for v in op.outs if v.id in needed)
