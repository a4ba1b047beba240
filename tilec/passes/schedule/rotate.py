"""Rotation: a product of the next trip is under way while this trip's later one and the work between them are done.

    for n < N:                                  s = early(0); p, … = work(s)
        s = early(n)                            for n < N - 1:
        p, … = work(s)              ->              s = early(n + 1)
        acc = acc * a + p @ late(n)                 acc += p @ late(n)
                                                    p, a, … = work(s);  acc = acc * a
                                                acc += p @ late(N - 1)

Legal where the early product reads nothing that the loop carries, and the work nothing that the late one writes. An
element-wise update of the late product's accumulator is done behind it, with the factors of the next trip. A loop of no
trips gives its initial values.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym, sym_max
from tilec.lazy_dataclass import dataclass
from tilec.passes.schedule.clone import Cloner, Numbers
from tilec.passes.uses import Definitions, all_ops, operands, syms_of

PLAIN = (
    t.Load, t.Elementwise, t.Cast, t.Bitcast, t.Rearrange, t.Fill, t.Full, t.Iota, t.Constant, t.FromSym, t.Scalar, t.Survivor,
    t.Reduce, t.Dot,
)  # fmt: skip
"""Ops that a loop may be made of whose trips are taken apart."""


@dataclass
class _Parts:
    """The ops of a loop's body: `early` feeds and does the early products, `late` brings the late products' own operands, `update`
    changes their accumulators, `work` is all else."""

    early: list[t.Op]
    work: list[t.Op]
    late: list[t.Op]
    update: dict[int, list[t.Op]]
    dots: list[t.Dot]
    accumulators: dict[int, t.Carried]
    """by id of the late product's result"""


def rotate(
    block: t.Block, numbers: Numbers, facts: Facts, origin: dict[int, int], reads: bool = False
) -> tuple[t.Block, bool]:
    """The block with its outermost loops rotated where that is legal and of use; says whether one was. `reads`: what is loaded behind a
    loop is read at its place, be there a trip or not."""
    ops: list[t.Op] = []
    done = False
    for op in block.ops:
        parts = _parts(op, facts) if isinstance(op, t.For) else None
        if parts is None or not isinstance(op, t.For):
            ops.append(op)
            continue
        ops += _rotated(op, parts, numbers, facts, origin, reads)
        done = True
    return t.Block(tuple(ops)), done


def _parts(loop: t.For, facts: Facts) -> _Parts | None:
    """The parts of a loop that can be rotated, None for others."""
    body = loop.body.ops
    dots = [op for op in all_ops(loop.body) if isinstance(op, t.Dot)]
    if len(dots) < 2 or not all(isinstance(op, PLAIN) for op in body):
        return None
    never_empty = facts.prove_nonnegative(loop.trips - 1)
    if not never_empty and any(isinstance(op, t.Load) and not op.out.type.rank for op in body):
        return None  # a subscript read from memory for a trip that does not exist
    definitions = Definitions.of(t.Block(body))
    inside = {v.id: op for op in body for v in op.outs}
    scalars = {id(op) for op in body if op.outs and not op.outs[0].type.rank}
    entries = {c.entry.id for c in loop.carried}

    def needs(values: list[int]) -> tuple[set[int], set[int]]:
        """Ids of the ops behind values, and the carried names among what they read."""
        ops: set[int] = set()
        names: set[int] = set()
        waiting = list(values)
        while waiting:
            number = waiting.pop()
            if number in entries:
                names.add(number)
            op = inside.get(number)
            if op is None or id(op) in ops:
                continue
            ops.add(id(op))
            waiting += [v.id for v in operands(op)]
            for sym in syms_of(op):
                waiting += [v.key for v in sym.variables if v.kind == "value"]
        return ops, names

    early: set[int] = set()
    late_dots: list[t.Dot] = []
    accumulators: dict[int, t.Carried] = {}
    for dot in dots:
        found, names = needs([dot.out.id])
        others = [d for d in dots if d is not dot and id(d) in found]
        if not names and not others:
            early |= found
            continue
        carried = next((c for c in loop.carried if c.next is dot.out), None)
        if carried is None or definitions.users[dot.out.id]:
            return None
        late_dots.append(dot)
        accumulators[dot.out.id] = carried
    if not early or not late_dots:
        return None
    update: dict[int, list[t.Op]] = {}
    updates: set[int] = set()
    late: set[int] = set()
    names_of_late = {c.entry.id for c in accumulators.values()}
    for dot in late_dots:
        carried = accumulators[dot.out.id]
        chain = _chain(dot, carried, inside)
        if chain is None:
            return None
        update[dot.out.id] = chain
        updates |= set(map(id, chain))
        found, names = needs([dot.b.id])
        if names or any(isinstance(op, t.Dot) for op in body if id(op) in found):
            return None
        # what the early products read too is made again, for the trip that it is of
        late |= found
    work: list[t.Op] = []
    for op in body:
        if id(op) in early or id(op) in updates or op in late_dots or id(op) in late:
            continue
        read = {v.id for v in operands(op)}
        for sym in syms_of(op):
            read |= {v.key for v in sym.variables if v.kind == "value"}
        if read & names_of_late or read & set(accumulators):
            return None
        work.append(op)
    # scalars that the late products' operands share with the work are made for both, and nothing else is shared
    shared = needs([v.id for op in work for v in op.outs])[0] & late
    early |= shared & scalars
    if shared - early:
        return None
    for carried in loop.carried:
        if carried.entry.id in names_of_late:
            continue
        if carried.next.id in {d.out.id for d in late_dots}:
            return None
    return _Parts(
        [op for op in body if id(op) in early],
        work,
        [op for op in body if id(op) in late],
        update,
        late_dots,
        accumulators,
    )


def _chain(dot: t.Dot, carried: t.Carried, inside: dict[int, t.Op]) -> list[t.Op] | None:
    """The element-wise ops from a carried name to a product's accumulator, in order; None where there are others."""
    if dot.accumulate is None:
        return None
    ops: list[t.Op] = []
    value = dot.accumulate
    while value.id != carried.entry.id:
        op = inside.get(value.id)
        if not isinstance(op, t.Elementwise):
            return None
        behind = [v for v in op.args if _reaches(v, carried.entry, inside)]
        if len(behind) != 1:
            return None
        ops.insert(0, op)
        value = behind[0]
    return ops


def _reaches(value: t.Value, entry: t.Value, inside: dict[int, t.Op]) -> bool:
    if value is entry:
        return True
    op = inside.get(value.id)
    return (
        op is not None
        and not isinstance(op, t.Dot)
        and any(_reaches(v, entry, inside) for v in operands(op))
    )


def _rotated(
    loop: t.For,
    parts: _Parts,
    numbers: Numbers,
    facts: Facts,
    origin: dict[int, int],
    reads: bool,
) -> list[t.Op]:
    """Prologue, loop, epilogue."""
    index = loop.index
    ops: list[t.Op] = []
    own = [c for c in loop.carried if c not in parts.accumulators.values()]
    # values of the work that the late products read one trip later
    handed = list(dict.fromkeys(d.a for d in parts.dots))
    # ---- prologue: trip 0
    first = Cloner(
        numbers, {c.entry.id: c.initial for c in loop.carried}, {index: Sym.of(0)}, origin
    )
    ops += first.ops(parts.early)
    ops += first.ops(parts.work)
    for dot in parts.dots:
        ops += first.ops(parts.update[dot.out.id])
    # ---- loop: trip n does the early and middle part of trip n + 1
    entries: dict[int, t.Value] = {}
    carried: list[t.Carried] = []
    steady = Cloner(numbers, {}, {index: Sym.of(index) + 1}, origin)
    late = Cloner(numbers, {}, {}, origin)
    for c in own:
        entries[c.entry.id] = numbers.fresh(c.entry)
        steady.values[c.entry.id] = entries[c.entry.id]
    for value in handed:
        # elements that are absent along the consumed axis are 0 when they are handed on
        axes = (*value.type.axes[:-1], replace(value.type.axes[-1], presence=()))
        entries[value.id] = numbers.fresh(value, replace(value.type, axes=axes))
    body: list[t.Op] = steady.ops(parts.early)
    body += late.ops(parts.late)
    results: dict[int, t.Value] = {}
    for dot in parts.dots:
        c = parts.accumulators[dot.out.id]
        entries[c.entry.id] = numbers.fresh(c.entry)
        clone = _product(
            dot, entries[dot.a.id], late.value(dot.b), entries[c.entry.id], numbers, origin
        )
        body.append(clone)
        steady.values[c.entry.id] = clone.out
        results[dot.out.id] = clone.out
    body += steady.ops(parts.work)
    for dot in parts.dots:
        body += steady.ops(parts.update[dot.out.id])
    ends: dict[int, t.Value] = {}

    def carry(key: int, like: t.Value, initial: t.Value, following: t.Value) -> None:
        ends[key] = numbers.fresh(like)
        carried.append(t.Carried(initial, entries[key], following, ends[key]))

    for c in own:
        carry(c.entry.id, c.result, first.value(c.next), steady.value(c.next))
    for value in handed:
        carry(value.id, entries[value.id], first.value(value), steady.value(value))
    for dot in parts.dots:
        c = parts.accumulators[dot.out.id]
        updated = dot.accumulate
        assert updated is not None
        before, after = first.value(updated), steady.value(updated)
        if updated is c.entry:
            before, after = c.initial, results[dot.out.id]
        carry(c.entry.id, c.result, before, after)
    ops.append(
        replace(
            loop,
            outs=tuple(c.result for c in carried),
            trips=loop.trips - 1,
            carried=tuple(carried),
            body=t.Block(tuple(body)),
        )
    )
    # ---- epilogue: the late products of the last trip
    end = loop.trips - 1
    if reads and not facts.prove_nonnegative(end):
        end = sym_max([end, Sym.of(0)])  # nothing lies in front of the first tile
    last = Cloner(numbers, {}, {index: end}, origin)
    ops += last.ops(parts.late)
    finals: dict[int, t.Value] = {c.entry.id: ends[c.entry.id] for c in own}
    for dot in parts.dots:
        c = parts.accumulators[dot.out.id]
        clone = _product(dot, ends[dot.a.id], last.value(dot.b), ends[c.entry.id], numbers, origin)
        ops.append(clone)
        finals[c.entry.id] = clone.out
    ops += _results(loop, finals, numbers, facts)
    return ops


def _product(
    dot: t.Dot,
    a: t.Value,
    b: t.Value,
    accumulate: t.Value,
    numbers: Numbers,
    origin: dict[int, int],
) -> t.Dot:
    out = numbers.fresh(dot.out)
    origin[out.id] = origin.get(dot.out.id, dot.out.id)
    return replace(dot, outs=(out,), a=a, b=b, accumulate=accumulate)


def _results(loop: t.For, finals: dict[int, t.Value], numbers: Numbers, facts: Facts) -> list[t.Op]:
    """The loop's results under their own ids: the initial values where it has no trip."""
    ops: list[t.Op] = []
    if facts.prove_nonnegative(loop.trips - 1):
        for c in loop.carried:
            final = finals[c.entry.id]
            ops.append(t.Cast(outs=(c.result,), arg=final, span=loop.span))
        return ops
    scalar = t.TileType(I32)
    trips = t.Value(numbers.next, scalar, "", loop.span)
    zero = t.Value(numbers.next + 1, scalar, "", loop.span)
    some = t.Value(numbers.next + 2, t.TileType(BOOL), "", loop.span)
    numbers.next += 3
    ops.append(t.FromSym(outs=(trips,), sym=loop.trips, span=loop.span))
    ops.append(t.Constant(outs=(zero,), value=0, span=loop.span))
    ops.append(t.Elementwise(outs=(some,), op="gt", args=(trips, zero), span=loop.span))
    for c in loop.carried:
        args = (some, finals[c.entry.id], c.initial)
        ops.append(t.Elementwise(outs=(c.result,), op="where", args=args, span=loop.span))
    return ops
