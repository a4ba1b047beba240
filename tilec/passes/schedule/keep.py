"""Kept references: a rotated loop that rescales goes on with an earlier trip's reference, and moves it where a weight becomes large.

    n = max(m, max(s))                  w' = exp2(s * c + r)                    r = -m * c; not a number where a row is far
    w = exp2(s * c - n * c)             l' = l + sum(w')
    a = exp2(m * c - n * c)       ->    if rarely a lane's part of sum(w') is not below 2^48:
    l = l * a + sum(w)                      n, w, a, l, o as the program says; r = -n * c
    o = o * a                           else: m, w', l', o as they are
    m = n

Most trips have neither a maximum nor a factor. What a lane adds up is more than each of its weights, so that none exceeds 2^48 times
what the program says, or 2^8 times where weights are not rounded to bf16, whose exponents are those of f32; and it is not a number where the reference
is none. The reference of a row that has seen nothing yet makes any weight
large, but not those of -inf, as long as scores are scaled down (c <= 1/2). A warp takes the branch for all its rows. Where scores have a term
that grows with the trip's number and the loop does not run backwards the maximum moves in every trip, and trips stay as they are; so they do where registers are short. Where
masks leave some rows few scores in the first trip, all begin with a reference that is 2^8 times as large (`schedule/rising`).

Where weights have such exponents the first trip, in front of the loop, has no maximum either: rows go on with what they begin with, and where that
is nothing (m = -inf, l = 0, o = 0) 0 is as good a reference as their maximum.

    n = max(m, max(s))                  w = exp2(s * c); l = sum(w)
    w = exp2(s * c - n * c)       ->    if rarely a row's sum(w) is not in 2^-48 … 2^48, or there is no other trip:
    l, r = sum(w), -n * c                   n, w, l, r as the program says
                                        else: n = 0, r = 0

A row that has seen nothing so far, or minus infinities alone, has a sum of 0, and one with an infinite score or none that is a number a sum that is
not below 2^48. Rows of a single trip may have a few keys alone: the largest weight beside its maximum is 1, which no rounding changes.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BF16, BOOL, F32, I32
from tilec.ir.facts import Facts
from tilec.ir.rescaled import LARGEST_FACTOR, WIDE_FACTOR, Rescaling
from tilec.ir.symbolic import Var
from tilec.passes.schedule.clone import Numbers
from tilec.passes.schedule.rising import Rise, rises
from tilec.passes.schedule.usual import PURE, Refused, Usual
from tilec.passes.uses import Definitions, number, operands

MOST_WORDS = 160
"""Registers that a loop's sums, a trip's tile and the operand packed of it may take in a thread of a warpgroup, which has 64 rows of each:
what the rare branch reads stays beside them, and with more of them some are spilled (ptxas 13.0: none at 160, 4 to 20 bytes at 168 and
176)."""

LARGEST_FLOAT = float.fromhex("0x1.fffffep127")
"""Of f32. Behind a factor of at most a half no number takes it below 2^8, and -inf stays -inf."""


def keep_references(
    block: t.Block,
    found: tuple[Rescaling, ...],
    numbers: Numbers,
    facts: Facts,
    origin: Mapping[int, int],
    turned: frozenset[Var] = frozenset(),
    parts: int = 1,
) -> tuple[t.Block, bool]:
    """The block with references kept in the rotated loops of `found`, which holds ids of before they were rotated; says whether any
    was. `turned`: indices of loops that run backwards, whose masks begin where the program's end; `parts`: warpgroups that share out the
    columns of sums."""
    ops: list[t.Op] = []
    done = False
    definitions = Definitions.of(block)
    for op in block.ops:
        for rescaling in found if isinstance(op, t.For) else ():
            assert isinstance(op, t.For)
            before = numbers.next
            try:
                kept = _Loop(op, rescaling, numbers, origin, definitions)
                backwards = op.index in turned
                rise = rises(kept.weight.tile, op, definitions, facts, backwards)
                if rise is Rise.ALWAYS or kept.words(parts) > MOST_WORDS:
                    raise Refused
                first = _First.of(kept, ops)
                if first is not None:
                    ops, op = first.begun()
                else:
                    head, op = kept.kept()
                    if rise is Rise.FROM_FEW:
                        ops = kept.lifted(ops, backwards)
                    ops += head
            except Refused:
                numbers.next = before
                continue
            done = True
            break
        ops.append(op)
    return t.Block(tuple(ops)), done


class _Loop(Usual):
    """One rotated loop."""

    def __init__(
        self,
        loop: t.For,
        rescaling: Rescaling,
        numbers: Numbers,
        origin: Mapping[int, int],
        definitions: Definitions,
    ):
        running = [c for c in loop.carried if origin.get(c.next.id) == rescaling.reference]
        if len(running) != 1:
            raise Refused
        self.loop, self.running = loop, running[0]
        entry = self.running.entry
        super().__init__(loop.body.ops, entry, rescaling, numbers, origin, definitions)
        self.usual = {entry.id: entry, self.running.next.id: entry}
        self.unseen: t.Value | None = None
        halves = {c.entry.type.dtype for c in loop.carried if c.entry.type.dtype.bits <= 16}
        self.is_wide = halves <= {BF16}
        """whether weights have the exponents of f32"""
        if self.is_wide:
            self.most = WIDE_FACTOR

    def words(self, parts: int) -> int:
        """Registers of sums, of which it has one of `parts`, tile and packed operand in a thread; 4 bytes each, of 64 rows on 128 threads.
        Raises Refused where an axis has no bound."""

        def columns(value: t.Value) -> int:
            known = value.type.axes[-1].capacity
            if known is None:
                raise Refused
            return known

        tiles = [c.entry for c in self.loop.carried if c.entry.type.rank == 2]
        sums = sum(columns(v) for v in tiles if v.type.dtype == F32)
        tile = columns(self.weight.tile)
        return sums // (2 * parts) + tile // 2 + tile // 4

    def in_bits(self, bound: t.Value, ops: list[t.Op]) -> t.Value:
        """The negative reference in bits of rows that have a bound which is near, else not a number; of rows that have seen nothing what
        makes any weight large, and leaves those of -inf at 0."""
        weight = self.weight
        zero, none = self.constant(ops, 0.0), self._none(bound, ops)
        size = self.like(ops, bound, t.Elementwise, op="abs", args=(bound,))
        near = replace(self.numbers.fresh(bound, t.TileType(BOOL, bound.type.axes)), name="near")
        args = (size, weight.largest)
        ops.append(t.Elementwise(outs=(near,), op="le", args=args, span=bound.span))
        args3 = (bound, weight.factor, zero)
        product = self.like(ops, bound, t.Elementwise, op="fma", args=args3)
        negative = self.like(ops, bound, t.Elementwise, op="neg", args=(product,))
        return self.like(ops, bound, t.Elementwise, op="where", args=(near, negative, none))

    def _none(self, bound: t.Value, ops: list[t.Op]) -> t.Value:
        """The reference in bits of rows whose bound is not near."""
        if self.unseen is None:
            none, most = self.constant(self.head, math.nan), self.constant(self.head, LARGEST_FLOAT)
            half = self.constant(self.head, 0.5)
            small = t.Value(self.numbers.next, t.TileType(BOOL), "")
            self.unseen = t.Value(self.numbers.next + 1, t.TileType(F32), "unseen")
            self.numbers.next += 2
            args = (self.weight.factor, half)
            self.head.append(t.Elementwise(outs=(small,), op="le", args=args))
            args3 = (small, most, none)
            self.head.append(t.Elementwise(outs=(self.unseen,), op="where", args=args3))
        nothing, none = self.constant(ops, -math.inf), self.constant(ops, math.nan)
        empty = replace(self.numbers.fresh(bound, t.TileType(BOOL, bound.type.axes)), name="")
        ops.append(t.Elementwise(outs=(empty,), op="eq", args=(bound, nothing), span=bound.span))
        return self.like(ops, bound, t.Elementwise, op="where", args=(empty, self.unseen, none))

    def lifted(self, ops: list[t.Op], backwards: bool) -> list[t.Op]:
        """The ops in front of the loop, with a first reference that is larger than the program's. Raises Refused where weights of that
        size would be rounded worse, or where no op makes the reference; a loop that runs `backwards` keeps its references all the same."""
        halves = {c.entry.type.dtype for c in self.loop.carried if c.entry.type.dtype.bits <= 16}
        first = self.running.initial
        at = next((n for n, op in enumerate(ops) if op.outs and op.outs[0] is first), None)
        if at is None or not halves <= {BF16}:
            if backwards:
                return ops
            raise Refused
        bare = replace(self.numbers.fresh(first), name="")
        made: list[t.Op] = []
        bits = self.constant(made, math.log2(LARGEST_FACTOR))
        more = t.Value(self.numbers.next, t.TileType(F32), "")
        self.numbers.next += 1
        made.append(t.Elementwise(outs=(more,), op="div", args=(bits, self.weight.factor)))
        made.append(t.Elementwise(outs=(first,), op="add", args=(bare, more), span=first.span))
        return [*ops[:at], replace(ops[at], outs=(bare,)), *made, *ops[at + 1 :]]

    def kept(self, initial: t.Value | None = None) -> tuple[list[t.Op], t.For]:
        """The ops in front of the loop, and the loop; `initial`: the first reference in bits, where somebody makes it. Raises Refused."""
        loop, running = self.loop, self.running
        if initial is None:
            initial = self.in_bits(running.initial, self.head)
        entry = self.numbers.fresh(initial)
        asked = self.late(self.parts_of_sum(entry))
        then = [op for op in loop.body.ops if op.outs and op.outs[0].id in self.moving]
        following = self.in_bits(running.next, then)
        merges: list[t.Merge] = []
        carried: list[t.Carried] = []
        for c in loop.carried:
            if c.next.id not in self.moving:
                carried.append(c)
                continue
            merges.append(self.merge(c.next, entry))
            carried.append(replace(c, next=merges[-1].result))
        merges.append(t.Merge(following, entry, self.numbers.fresh(entry)))
        ends = self.numbers.fresh(entry)
        carried.append(t.Carried(initial, entry, merges[-1].result, ends))
        rest = [op for op in loop.body.ops if not op.outs or op.outs[0].id not in self.moving]
        needed = {c.next.id for c in carried}
        rest, then = _sunk([*rest, *self.ops], then, needed)
        branch = self.rarely(asked, then, merges)
        outs = tuple(c.result for c in carried)
        body = t.Block((*rest, branch))
        return self.head, replace(loop, outs=outs, carried=tuple(carried), body=body)


class _First(Usual):
    """The first trip of a rotated loop, as it stands in front of the loop."""

    def __init__(self, loop: _Loop, ops: list[t.Op]):
        self.loop, self.before = loop, ops
        begin = max((n for n, op in enumerate(ops, 1) if isinstance(op, t.For | t.If)), default=0)
        trip = [op for op in ops[begin:] if op.outs and op.outs[0].id in loop.origin]
        reference, definitions = loop.running.initial, loop.definitions
        super().__init__(trip, reference, loop.rescaling, loop.numbers, loop.origin, definitions)
        made = self.made.get(reference.id)
        entries = [v for v in operands(made) if v.id not in self.made] if made is not None else []
        inside = {id(op) for op in trip}
        read = [u for n in self.moving for u in definitions.users[n] if id(u) not in inside]
        if not loop.is_wide or len(entries) != 1 or any(u is not loop.loop for u in read):
            raise Refused
        self.entry, self.most = entries[0], WIDE_FACTOR
        if self.is_none(self.entry) and not self._scales_nothing():
            raise Refused

    def _scales_nothing(self) -> bool:
        """Whether the factors of rows, which are 0 in this trip, scale zeros alone."""
        factors = set(self.rescaling.factors)
        for op in self.trip:
            if isinstance(op, t.Rearrange) and self.root(op.arg) in factors:
                factors.add(op.out.id)
            elif any(self.root(v) in factors for v in operands(op)):
                others = [v for v in operands(op) if self.root(v) not in factors]
                if not isinstance(op, t.Elementwise) or op.op != "mul" or not others:
                    return False
                if any(number(self.definitions, v) != 0 for v in others):
                    return False
        return True

    @staticmethod
    def of(loop: _Loop, ops: list[t.Op]) -> _First | None:
        """That of a loop behind `ops`, None where it has no such form."""
        try:
            return _First(loop, ops)
        except Refused:
            return None

    def _begin(self) -> tuple[t.Value, t.Value]:
        """The reference that rows begin with, and the same in bits: what they have in front of the trip, and 0 where that is nothing."""
        if not self.is_none(self.entry):
            return self.entry, self.loop.in_bits(self.entry, self.ops)
        full = self.definitions.defining[self.entry.id]
        assert isinstance(full, t.Full)
        zero = self.constant(self.ops, 0.0)
        zeros = replace(self.numbers.fresh(self.entry), name="")
        self.ops.append(replace(full, outs=(zeros,), value=zero))
        return zeros, zeros

    def _goes_on(self) -> t.Value:
        """Whether there is another trip. Rows that have no other see few keys, whose largest weight is exact beside their maximum."""
        trips = t.Value(self.numbers.next, t.TileType(I32), "")
        some = t.Value(self.numbers.next + 1, t.TileType(BOOL), "goes_on")
        self.numbers.next += 2
        self.ops.append(t.FromSym(outs=(trips,), sym=self.loop.loop.trips))
        args = (trips, self.constant(self.ops, 0, I32))
        self.ops.append(t.Elementwise(outs=(some,), op="gt", args=args))
        return some

    def begun(self) -> tuple[list[t.Op], t.For]:
        """The ops in front of the loop, and the loop. Raises Refused."""
        loop = self.loop
        reference = loop.running.initial
        kept, first = self._begin()
        self.usual[reference.id] = kept
        own = self.parts_of_sum(first)
        total = replace(self.numbers.fresh(own), name="")
        self.ops.append(t.Combine(outs=(total,), arg=own, span=self.weight.op.span))
        asked = self.late(total, least=1.0 / WIDE_FACTOR, beside=self._goes_on())
        then = [op for op in self.before if op.outs and op.outs[0].id in self.moving]
        following = loop.in_bits(reference, then)
        merges: list[t.Merge] = []
        carried: list[t.Carried] = []
        for c in loop.loop.carried:
            initial = self.stays(c.initial, first)
            if initial is not c.initial and initial is not None:
                if number(loop.definitions, initial) != 0:
                    # what no row has in front of it does not move with the row either
                    merges.append(self.merge(c.initial, first))
                    initial = merges[-1].result
                c = replace(c, initial=initial)
            carried.append(c)
        merges.append(t.Merge(following, first, self.numbers.fresh(following)))
        moved = {id(op) for op in then}
        rest = [op for op in self.before if id(op) not in moved]
        loop.loop = replace(loop.loop, carried=tuple(carried))
        head, found = loop.kept(merges[-1].result)
        read = {c.initial.id for c in carried}
        read |= {v.id for op in (*self.ops, *self.head) for v in operands(op)}
        users = loop.definitions.users
        for op in reversed(rest):
            outs = {v.id for v in op.outs}
            readers = {id(u) for n in outs for u in users.get(n, ())}
            if isinstance(op, PURE) and not outs & read and readers and readers <= moved:
                rest = [x for x in rest if x is not op]
                then = [op, *then]
                moved.add(id(op))
        needed = {m.then.id for m in merges}
        for op in reversed(then):
            if needed.isdisjoint(v.id for v in op.outs):
                then = [x for x in then if x is not op]
            needed.update(v.id for v in operands(op) if op in then)
        branch = self.rarely(asked, then, merges)
        return [*rest, *head, *self.head, *self.ops, branch], found


def _sunk(rest: list[t.Op], then: list[t.Op], needed: set[int]) -> tuple[list[t.Op], list[t.Op]]:
    """What only the branch reads is done there."""
    for op in reversed(rest):
        outs = {v.id for v in op.outs}
        inside = {v.id for x in then for v in operands(x)}
        beside = {v.id for x in rest if x is not op for v in operands(x)} | needed
        if isinstance(op, PURE) and outs & inside and not outs & beside:
            rest = [x for x in rest if x is not op]
            then = [op, *then]
    return rest, then
