"""Filters: a loop all of whose body stands in a branch on scalars becomes one over the trips that survive.

    for j < (N + BN - 1) // BN:                n = survivors j' < (N + BN - 1) // BN:
        c = load blocks[h, i, j]                   load blocks[h, i, j']
        if c:                            ->    for j < n:
            k = load k[span(BN*j, …), :]           t = survivor j of n
            …                                      k = load k[span(BN*t, …), :]
                                                   …

What follows sees a loop like any other, whose number of trips memory says. Each role asks the condition itself, as it reads other integers
that steer: nothing is told from one to the other. Where no trip survives the loop has none. Only loops with products are rewritten, and
only where the condition is a function of the trip: of indices, of parameters, and of tensors that the nest does not write.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, replace
from typing import Any

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.filters import Filter, Question, filter_of
from tilec.ir.symbolic import Sym, Var
from tilec.passes import eliminate_dead, hoist
from tilec.passes.schedule.clone import Cloner, Numbers
from tilec.passes.uses import all_ops, variable_of


def filter_trips(nest: t.Nest, numbers: Numbers) -> tuple[t.Nest, bool]:
    """The nest with its filters taken out of their loops; says whether there was one."""
    written = frozenset(
        op.access.tensor for op in all_ops(nest.body) if isinstance(op, t.Store | t.Atomic)
    )
    body, done = _block(nest.body, numbers, written)
    if not done:
        return nest, False
    # what stood in a branch may be the same in all trips; what only the condition read is asked elsewhere
    return replace(nest, body=eliminate_dead.run(hoist.run(body))), True


def _block(block: t.Block, numbers: Numbers, written: frozenset[str]) -> tuple[t.Block, bool]:
    ops: list[t.Op] = []
    done = False
    for op in block.ops:
        if isinstance(op, t.For):
            found = filter_of(op, written)
            if found is not None:
                ops += _filtered(op, found, numbers)
                op = ops.pop()
                assert isinstance(op, t.For)
                done = True
            body, inside = _block(op.body, numbers, written)
            op, done = replace(op, body=body), done or inside
        ops.append(op)
    return t.Block(tuple(ops)), done


def _filtered(loop: t.For, found: Filter, numbers: Numbers) -> list[t.Op]:
    """What counts the trips, and the loop."""

    def integer(name: str) -> t.Value:
        value = t.Value(numbers.next, t.TileType(I32), name, loop.span)
        numbers.next += 1
        return value

    asked, count, trip = integer(loop.name), integer(f"{loop.name}_trips"), integer(loop.name)
    cloner = Cloner(numbers, {}, {loop.index: Sym.of(variable_of(asked))}, {})
    ops, holds = _answer(found.questions, cloner, loop)
    survives = t.Region((asked,), t.Block(tuple(ops)), (holds,))
    number = Sym.of(loop.index)
    moved = _Moved(loop.index, Sym.of(variable_of(trip)))
    body = (
        t.Survivor(outs=(trip,), number=number, of=count, span=loop.span),
        *(moved.of(op) for op in found.body),
    )
    carried = tuple(
        replace(c, next=moved.of(following))
        for c, following in zip(loop.carried, found.following, strict=True)
    )
    return [
        t.Survivors(outs=(count,), trips=loop.trips, survives=survives, span=loop.span),
        replace(loop, trips=Sym.of(variable_of(count)), carried=carried, body=t.Block(body)),
    ]


def _answer(
    questions: Sequence[Question], cloner: Cloner, loop: t.For
) -> tuple[list[t.Op], t.Value]:
    """Ops that say whether all conditions hold: a later one is asked where the earlier ones do."""
    first, *later = questions
    ops = cloner.ops(op for op in first.ops if not op.outs or op.outs[0].id not in cloner.values)
    holds = cloner.value(first.condition)
    if not later:
        return ops, holds
    inner, last = _answer(later, cloner, loop)
    no, both = cloner.numbers.fresh(holds, t.TileType(BOOL)), cloner.numbers.fresh(last)
    branch = t.If(
        outs=(both,),
        condition=holds,
        then=t.Block(tuple(inner)),
        otherwise=t.Block((t.Constant(outs=(no,), value=False, span=loop.span),)),
        merges=(t.Merge(last, no, both),),
        span=loop.span,
    )
    return [*ops, branch], both


class _Moved:
    """Ops at another trip: an index becomes a Sym, in what says which elements are there too. Values stay themselves, but for their types."""

    def __init__(self, index: Var, sym: Sym):
        self.index, self.sym = index, sym
        self.values: dict[int, t.Value] = {}

    def of(self, node: Any) -> Any:
        """A node, all that is in it included."""
        match node:
            case Sym():
                if self.index not in node.variables:
                    return node
                return node.substitute(lambda v: self.sym if v == self.index else None)
            case t.Value():
                if node.id not in self.values:
                    type_ = self.of(node.type)
                    self.values[node.id] = node if type_ is node.type else replace(node, type=type_)
                return self.values[node.id]
            case tuple():
                parts = tuple(self.of(part) for part in node)
                same = all(a is b for a, b in zip(parts, node, strict=True))
                return node if same else parts
            case _ if type(node).__module__ == t.__name__:
                names = [f.name for f in fields(node) if f.name != "span"]
                changed = {n: self.of(getattr(node, n)) for n in names}
                changed = {n: part for n, part in changed.items() if part is not getattr(node, n)}
                return replace(node, **changed) if changed else node
            case _:
                return node
