"""Loops whose trips a condition filters: how a program says so, and the ops by which a schedule walks the trips that survive.

    for j < N:                      n = survivors j < N: load alive[j]      of all trips, in front of the loop
        c = load alive[j]           for o < n:
        if c:                 ->        j = survivor o of n                 the trip of the o-th that survives
            body of j                   body of j

A condition of scalars, which memory and indices make, is a function of the trip alone: whoever runs the loop can ask it again.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym, Var
from tilec.ir.walking import all_ops, free_variables, operands, variable_of
from tilec.lazy_dataclass import dataclass

_SCALARS = (t.Load, t.Elementwise, t.Cast, t.Bitcast, t.FromSym, t.Constant, t.Scalar, t.Fill)
"""What a condition may be made of, where it has no axis."""
_MOVED = (
    *_SCALARS, t.Iota, t.Full, t.Rearrange, t.Reshape, t.Slice, t.Reduce, t.Scan,
)  # fmt: skip
"""What may stand in front of the branch, and is done in the trips that survive alone."""


@dataclass(frozen=True)
class Question:
    """One branch: the ops that make its `condition`, in order."""

    ops: tuple[t.Op, ...]
    condition: t.Value


@dataclass(frozen=True)
class Filter:
    """A loop all of whose body stands in branches. A trip survives where the condition of each of the `questions` holds; a later one is not asked
    where an earlier one does not hold. `body` is what such a trip does, `following` the carried names behind it."""

    questions: tuple[Question, ...]
    body: tuple[t.Op, ...]
    following: tuple[t.Value, ...]


def filter_of(loop: t.For, written: frozenset[str]) -> Filter | None:
    """The filter of a loop with products in it; None where there is none, or where its condition is no function of the trip. `written`:
    tensors that the nest writes."""
    entries = [c.entry for c in loop.carried]
    following = [c.next for c in loop.carried]
    questions: list[Question] = []
    body: list[t.Op] = []
    before: list[t.Op] = []
    block = loop.body
    while block.ops and isinstance(block.ops[-1], t.If):
        *prefix, branch = block.ops
        assert isinstance(branch, t.If)
        if branch.rare or branch.otherwise.ops or not all(isinstance(op, _MOVED) for op in prefix):
            break
        merges = {m.result.id: m for m in branch.merges}
        inner: list[t.Value] = []
        for entry, value in zip(entries, following, strict=True):
            merge = merges.get(value.id)
            if merge is not None and merge.otherwise is entry:
                inner.append(merge.then)
            elif value is entry:
                inner.append(value)
            else:
                break
        if len(inner) < len(entries):
            break
        before += prefix
        asked = _asked(branch.condition, before, entries, written)
        if asked is None:
            break
        questions.append(Question(asked, branch.condition))
        body += prefix
        following = inner
        block = branch.then
    if not questions or not any(isinstance(op, t.Dot) for op in all_ops(block)):
        return None
    return Filter(tuple(questions), (*body, *block.ops), tuple(following))


def _asked(
    condition: t.Value, before: Iterable[t.Op], entries: Iterable[t.Value], written: frozenset[str]
) -> tuple[t.Op, ...] | None:
    """The ops that make a condition, of those in front of its branch; None where it hangs on what the loop computes, or the nest writes."""
    made = {v.id: op for op in before for v in op.outs}
    carried = {v.id for v in entries}
    needed: dict[int, t.Op] = {}
    waiting = [condition.id]
    while waiting:
        number = waiting.pop()
        if number in carried:
            return None
        op = made.get(number)
        if op is None or id(op) in needed:
            continue
        if not isinstance(op, _SCALARS) or any(v.type.rank for v in (*op.outs, *operands(op))):
            return None
        if isinstance(op, t.Load) and op.access.tensor in written:
            return None
        needed[id(op)] = op
        waiting += [v.id for v in operands(op)]
        waiting += [v.key for v in free_variables(op) if v.kind == "value"]
    return tuple(op for op in before if id(op) in needed)


def flattened(loop: t.For) -> tuple[t.For, tuple[t.Value, ...]]:
    """A loop with a filter as its trips that survive see it, and the conditions; other loops as they are."""
    found = filter_of(loop, frozenset())
    if found is None:
        return loop, ()
    carried = tuple(
        t.Carried(c.initial, c.entry, following, c.result)
        for c, following in zip(loop.carried, found.following, strict=True)
    )
    plain = t.For(
        outs=loop.outs,
        name=loop.name,
        index=loop.index,
        trips=loop.trips,
        carried=carried,
        body=t.Block(found.body),
        span=loop.span,
    )
    return plain, tuple(q.condition for q in found.questions)


def survivors_in(block: t.Block) -> Iterator[tuple[t.Survivor, t.Survivors]]:
    """Each op of a nest that says which trip survives, with the one that says which do."""
    known: dict[int, t.Survivors] = {}
    for op in all_ops(block):
        if isinstance(op, t.Survivors):
            known[op.out.id] = op
        elif isinstance(op, t.Survivor):
            yield op, known[op.of.id]


def indices_of(loop: t.For) -> dict[Var, Sym]:
    """The variables that number a loop's trips: its index, and trips that survive, each with what it counts by."""
    found = {loop.index: Sym.of(loop.index)}
    for op in loop.body.ops:
        if isinstance(op, t.Survivor) and loop.index in op.number.variables:
            found[variable_of(op.out)] = op.number
    return found
