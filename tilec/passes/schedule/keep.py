"""Kept references: a rotated loop that rescales goes on with an earlier trip's reference, and moves it where a weight becomes large.

    n = max(m, max(s))                  w' = exp2(s * c + r)                    r = -m * c; not a number where a row is far
    w = exp2(s * c - n * c)             l' = l + sum(w')
    a = exp2(m * c - n * c)       ->    if rarely a lane's part of sum(w') is not below 2^8:
    l = l * a + sum(w)                      n, w, a, l, o as the program says; r = -n * c
    o = o * a                           else: m, w', l', o as they are
    m = n

Most trips have neither a maximum nor a factor. What a lane adds up is more than each of its weights, so that none exceeds 2^8 times
what the program says; and it is not a number where the reference is none. The reference of a row that has seen nothing yet makes any weight
large, but not those of -inf, as long as scores are scaled down (c <= 1/2). A warp takes the branch for all its rows. Where scores have a term
that grows with the trip's number and the loop does not run backwards the maximum moves in every trip, and trips stay as they are; so they do where registers are short. Where
masks leave some rows few scores in the first trip, all begin with a reference that is 2^8 times as large (`schedule/rising`).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BF16, BOOL, F32
from tilec.ir.facts import Facts
from tilec.ir.rescaled import LARGEST_FACTOR, Rescaling
from tilec.ir.symbolic import Var
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import substitute
from tilec.passes.schedule.clone import Numbers
from tilec.passes.schedule.rising import Rise, rises
from tilec.passes.uses import Definitions, number, operands

MOST_WORDS = 160
"""Registers that a loop's sums, a trip's tile and the operand packed of it may take in a thread of a warpgroup, which has 64 rows of each:
what the rare branch reads stays beside them, and with more of them some are spilled (ptxas 13.0: none at 160, 4 to 20 bytes at 168 and
176)."""

ROOM = 2.0**96
"""Numbers below it, times any distance of indices, are far from what a float has no room for."""

LARGEST_FLOAT = float.fromhex("0x1.fffffep127")
"""Of f32. Behind a factor of at most a half no number takes it below 2^8, and -inf stays -inf."""

_PURE = (t.Elementwise, t.Cast, t.Fill, t.Rearrange, t.Reduce, t.Full, t.Constant)


class _Refused(Exception):
    """The loop does not have the form that this knows."""


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
                    raise _Refused
                head, found_loop = kept.kept()
                if rise is Rise.FROM_FEW:
                    ops = kept.lifted(ops, backwards)
                op = found_loop
            except _Refused:
                numbers.next = before
                continue
            ops += head
            done = True
            break
        ops.append(op)
    return t.Block(tuple(ops)), done


@dataclass(frozen=True)
class _Weight:
    """`exp2(fma(sub_if(tile, …), factor, …))`: its op, the tile, the factor, the reference's axes in the tile, and the largest size of
    a reference that is near."""

    op: t.Elementwise
    tile: t.Value
    factor: t.Value
    spread: t.Rearrange
    largest: t.Value


class _Loop:
    """One rotated loop."""

    def __init__(
        self,
        loop: t.For,
        rescaling: Rescaling,
        numbers: Numbers,
        origin: Mapping[int, int],
        definitions: Definitions,
    ):
        self.loop, self.rescaling, self.numbers, self.origin = loop, rescaling, numbers, origin
        self.definitions = definitions
        self.made = {v.id: op for op in loop.body.ops for v in op.outs}
        running = [c for c in loop.carried if origin.get(c.next.id) == rescaling.reference]
        if len(running) != 1:
            raise _Refused
        self.running = running[0]
        self.moving: set[int] = {self.running.entry.id}
        for op in loop.body.ops:
            if any(v.id in self.moving for v in operands(op)):
                if not isinstance(op, _PURE):
                    raise _Refused
                self.moving.add(op.out.id)
        self.weight = self._weight()
        self.usual: dict[int, t.Value | None] = {self.running.next.id: self.running.entry}
        """what values are while the reference stays; None: 1"""
        self.ops: list[t.Op] = []
        self.unseen: t.Value | None = None
        self.head: list[t.Op] = []
        """what stands in front of the loop"""

    def words(self, parts: int) -> int:
        """Registers of sums, of which it has one of `parts`, tile and packed operand in a thread; 4 bytes each, of 64 rows on 128 threads.
        Raises _Refused where an axis has no bound."""

        def columns(value: t.Value) -> int:
            known = value.type.axes[-1].capacity
            if known is None:
                raise _Refused
            return known

        tiles = [c.entry for c in self.loop.carried if c.entry.type.rank == 2]
        sums = sum(columns(v) for v in tiles if v.type.dtype == F32)
        tile = columns(self.weight.tile)
        return sums // (2 * parts) + tile // 2 + tile // 4

    def _root(self, value: t.Value) -> int:
        return self.origin.get(value.id, value.id)

    def _weight(self) -> _Weight:
        """The weight's parts. Raises _Refused."""
        for op in self.loop.body.ops:
            if not isinstance(op, t.Elementwise) or self._root(op.out) != self.rescaling.weight:
                continue
            argument = self._elementwise(op.args[0], "fma") if op.op == "exp2" else None
            if argument is None:
                break
            near = self._elementwise(argument.args[0], "sub_if")
            spread = self.made.get(argument.args[2].id)
            if near is None or not isinstance(spread, t.Rearrange):
                break
            flag = self.made.get(near.args[2].id)
            far = self._elementwise(flag.arg, "gt") if isinstance(flag, t.Rearrange) else None
            outside = argument.args[1].id not in self.made
            if far is None or not outside or far.args[1].id in self.made:
                break
            return _Weight(op, near.args[0], argument.args[1], spread, far.args[1])
        raise _Refused

    def _elementwise(self, value: t.Value, name: str) -> t.Elementwise | None:
        op = self.made.get(value.id)
        return op if isinstance(op, t.Elementwise) and op.op == name else None

    # ---- making ops

    def _like(
        self, ops: list[t.Op], value: t.Value, kind: Callable[..., t.Op], **parts: object
    ) -> t.Value:
        made = replace(self.numbers.fresh(value), name="")
        ops.append(kind(outs=(made,), span=value.span, **parts))
        return made

    def _number(self, ops: list[t.Op], number: float) -> t.Value:
        value = t.Value(self.numbers.next, t.TileType(F32), "")
        self.numbers.next += 1
        ops.append(t.Constant(outs=(value,), value=number))
        return value

    def _kept(self, bound: t.Value, ops: list[t.Op]) -> t.Value:
        """The negative reference in bits of rows that have a bound which is near, else not a number; of rows that have seen nothing what
        makes any weight large, and leaves those of -inf at 0."""
        weight = self.weight
        zero, none = self._number(ops, 0.0), self._none(bound, ops)
        size = self._like(ops, bound, t.Elementwise, op="abs", args=(bound,))
        near = replace(self.numbers.fresh(bound, t.TileType(BOOL, bound.type.axes)), name="near")
        args = (size, weight.largest)
        ops.append(t.Elementwise(outs=(near,), op="le", args=args, span=bound.span))
        args3 = (bound, weight.factor, zero)
        product = self._like(ops, bound, t.Elementwise, op="fma", args=args3)
        negative = self._like(ops, bound, t.Elementwise, op="neg", args=(product,))
        return self._like(ops, bound, t.Elementwise, op="where", args=(near, negative, none))

    def _none(self, bound: t.Value, ops: list[t.Op]) -> t.Value:
        """The reference in bits of rows whose bound is not near."""
        if self.unseen is None:
            none, most = self._number(self.head, math.nan), self._number(self.head, LARGEST_FLOAT)
            half = self._number(self.head, 0.5)
            small = t.Value(self.numbers.next, t.TileType(BOOL), "")
            self.unseen = t.Value(self.numbers.next + 1, t.TileType(F32), "unseen")
            self.numbers.next += 2
            args = (self.weight.factor, half)
            self.head.append(t.Elementwise(outs=(small,), op="le", args=args))
            args3 = (small, most, none)
            self.head.append(t.Elementwise(outs=(self.unseen,), op="where", args=args3))
        nothing, none = self._number(ops, -math.inf), self._number(ops, math.nan)
        empty = replace(self.numbers.fresh(bound, t.TileType(BOOL, bound.type.axes)), name="")
        ops.append(t.Elementwise(outs=(empty,), op="eq", args=(bound, nothing), span=bound.span))
        return self._like(ops, bound, t.Elementwise, op="where", args=(empty, self.unseen, none))

    def lifted(self, ops: list[t.Op], backwards: bool) -> list[t.Op]:
        """The ops in front of the loop, with a first reference that is larger than the program's. Raises _Refused where weights of that
        size would be rounded worse, or where no op makes the reference; a loop that runs `backwards` keeps its references all the same."""
        halves = {c.entry.type.dtype for c in self.loop.carried if c.entry.type.dtype.bits <= 16}
        first = self.running.initial
        at = next((n for n, op in enumerate(ops) if op.outs and op.outs[0] is first), None)
        if at is None or not halves <= {BF16}:
            if backwards:
                return ops
            raise _Refused
        bare = replace(self.numbers.fresh(first), name="")
        made: list[t.Op] = []
        bits = self._number(made, math.log2(LARGEST_FACTOR))
        more = t.Value(self.numbers.next, t.TileType(F32), "")
        self.numbers.next += 1
        made.append(t.Elementwise(outs=(more,), op="div", args=(bits, self.weight.factor)))
        made.append(t.Elementwise(outs=(first,), op="add", args=(bare, more), span=first.span))
        return [*ops[:at], replace(ops[at], outs=(bare,)), *made, *ops[at + 1 :]]

    # ---- while the reference stays

    def _stays(self, value: t.Value, kept: t.Value) -> t.Value | None:
        """What a value is while the reference stays, and `kept` is it; None: 1."""
        if value.id not in self.moving or value is self.running.entry:
            return value
        if value.id not in self.usual:
            self.usual[value.id] = self._made_usual(value, kept)
        return self.usual[value.id]

    def _made_usual(self, value: t.Value, kept: t.Value) -> t.Value | None:
        op = self.made[value.id]
        weight = self.weight
        if op is weight.op:
            spread = weight.spread
            bound = self._like(self.ops, spread.out, t.Rearrange, arg=kept, axes=spread.axes)
            argument = self._argument(weight.tile, weight.factor, bound)
            out = self.numbers.fresh(value)
            self.ops.append(replace(weight.op, outs=(out,), args=(argument,)))
            return out
        if self._root(value) in self.rescaling.factors:
            return None
        changed = {v.id: self._stays(v, kept) for v in operands(op)}
        if isinstance(op, t.Rearrange) and changed[op.arg.id] is None:
            return None
        if isinstance(op, t.Elementwise) and op.op == "mul":
            left, right = (changed[a.id] for a in op.args)
            if left is None or right is None:
                return left if right is None else right
        known = {n: v for n, v in changed.items() if v is not None}
        if len(known) < len(changed):
            raise _Refused
        out = self.numbers.fresh(value)
        self.ops.append(replace(substitute(op, known), outs=(out,)))
        return out

    def _argument(self, tile: t.Value, factor: t.Value, bound: t.Value) -> t.Value:
        """`tile * factor + bound`, one multiply-add for each term of the tile: numbers that all elements share become one."""
        op = self.made.get(tile.id) if self._has_terms(tile) else None
        if isinstance(op, t.Elementwise) and op.op == "where":
            inner = self._argument(op.args[1], factor, bound)
            args = (op.args[0], inner, op.args[2])
            return self._like(self.ops, tile, t.Elementwise, op="where", args=args)
        if isinstance(op, t.Fill):
            inner = self._argument(op.arg, factor, bound)
            filled = replace(self.numbers.fresh(tile), name="")
            self.ops.append(replace(op, outs=(filled,), arg=inner))
            return filled
        if isinstance(op, t.Elementwise) and op.op == "add":
            for distance, other in (op.args, op.args[::-1]):
                if self._is_distance(distance):
                    return self._argument(other, factor, self._argument(distance, factor, bound))
        shared = self._shared(tile)
        if shared is not None:
            tile, scalar = shared
            factor = self._product(self._in_front(scalar), factor)
        args = (tile, factor, bound)
        return self._like(self.ops, tile, t.Elementwise, op="fma", args=args)

    def _product(self, number: t.Value, factor: t.Value) -> t.Value:
        """Their product in front of the loop; not a number where a distance times it may have no room, so that the branch is taken."""
        head = self.head
        product = self._like(head, number, t.Elementwise, op="mul", args=(number, factor))
        size = self._like(head, number, t.Elementwise, op="abs", args=(product,))
        room = replace(self.numbers.fresh(number, t.TileType(BOOL)), name="")
        limit, none = self._number(head, ROOM), self._number(head, math.nan)
        head.append(t.Elementwise(outs=(room,), op="lt", args=(size, limit), span=number.span))
        found = replace(self.numbers.fresh(number), name="in_bits")
        args = (room, product, none)
        head.append(t.Elementwise(outs=(found,), op="where", args=args, span=number.span))
        return found

    def _has_terms(self, tile: t.Value) -> bool:
        """Whether a tile, or what a mask chooses of it, is a product with a number, or a sum with such of distances: where nothing is
        gained the masked tile itself is what both branches read."""
        op = self.made.get(tile.id)
        if isinstance(op, t.Elementwise) and op.op == "where":
            return self._is_none(op.args[2]) and self._has_terms(op.args[1])
        if isinstance(op, t.Fill):
            return self._is_none(op.value) and self._has_terms(op.arg)
        if isinstance(op, t.Elementwise) and op.op == "add":
            return any(map(self._is_distance, op.args))
        return self._shared(tile) is not None

    def _shared(self, tile: t.Value) -> tuple[t.Value, t.Value] | None:
        """The tile and the number, known in front of the loop, that a tile is the product of."""
        op = self.made.get(tile.id)
        if isinstance(op, t.Elementwise) and op.op == "mul" and tile.type.dtype == F32:
            for scalar, other in (op.args, op.args[::-1]):
                if not scalar.type.rank and self._is_known(scalar):
                    return other, scalar
        return None

    def _is_known(self, number: t.Value) -> bool:
        """Whether a number may be made in front of the loop."""
        op = self.made.get(number.id)
        known = isinstance(op, t.Scalar | t.Constant | t.Elementwise | t.Cast | None)
        return known and all(map(self._is_known, operands(op) if op is not None else ()))

    def _in_front(self, number: t.Value) -> t.Value:
        """A number, made in front of the loop."""
        op = self.made.get(number.id)
        if op is None:
            return number
        parts = {v.id: self._in_front(v) for v in operands(op)}
        out = self.numbers.fresh(number)
        self.head.append(replace(substitute(op, parts), outs=(out,)))
        return out

    def _is_distance(self, tile: t.Value) -> bool:
        """Whether a tile is the product of a number and of what counts indices."""
        shared = self._shared(tile)
        cast = self.made.get(shared[0].id) if shared is not None else None
        return isinstance(cast, t.Cast) and cast.arg.type.dtype.is_integer

    def _is_none(self, value: t.Value) -> bool:
        """Whether a value is -inf, which a positive factor and a number leave as it is."""
        return number(self.definitions, value) == -math.inf

    # ---- the loop

    def kept(self) -> tuple[list[t.Op], t.For]:
        """The ops in front of the loop, and the loop. Raises _Refused."""
        loop, running = self.loop, self.running
        initial = self._kept(running.initial, self.head)
        entry = self.numbers.fresh(initial)
        asked = self._late(entry)
        then = [op for op in loop.body.ops if op.outs and op.outs[0].id in self.moving]
        following = self._kept(running.next, then)
        merges: list[t.Merge] = []
        carried: list[t.Carried] = []
        for c in loop.carried:
            if c.next.id not in self.moving:
                carried.append(c)
                continue
            stays = self._stays(c.next, entry)
            if stays is None:
                raise _Refused
            result = self.numbers.fresh(c.next)
            merges.append(t.Merge(c.next, stays, result))
            carried.append(replace(c, next=result))
        result = self.numbers.fresh(entry)
        merges.append(t.Merge(following, entry, result))
        carried.append(t.Carried(initial, entry, result, self.numbers.fresh(entry)))
        rest = [op for op in loop.body.ops if not op.outs or op.outs[0].id not in self.moving]
        rest += self.ops
        rest, then = _sunk(rest, then, carried)
        branch = t.If(
            outs=tuple(m.result for m in merges),
            condition=asked,
            then=t.Block(tuple(then)),
            otherwise=t.Block(()),
            merges=tuple(merges),
            rare=True,
            span=self.weight.op.span,
        )
        outs = tuple(c.result for c in carried)
        body = t.Block((*rest, branch))
        return self.head, replace(loop, outs=outs, carried=tuple(carried), body=body)

    def _late(self, kept: t.Value) -> t.Value:
        """For each row whether the reference has to move. Raises _Refused where no sum says."""
        weight = self.weight.op.out
        sums = [
            op
            for op in self.loop.body.ops
            if isinstance(op, t.Reduce) and op.op == "sum" and op.arg is weight and op.partial
        ]
        if not sums:
            raise _Refused
        total = self._stays(sums[0].out, kept)
        assert total is not None
        most = self._number(self.ops, LARGEST_FACTOR)
        flags = t.TileType(BOOL, total.type.axes)
        below = replace(self.numbers.fresh(total, flags), name="")
        late = replace(self.numbers.fresh(total, flags), name="late")
        span = weight.span
        self.ops.append(t.Elementwise(outs=(below,), op="lt", args=(total, most), span=span))
        self.ops.append(t.Elementwise(outs=(late,), op="not", args=(below,), span=span))
        return late


def _sunk(
    rest: list[t.Op], then: list[t.Op], carried: list[t.Carried]
) -> tuple[list[t.Op], list[t.Op]]:
    """What only the branch reads is done there."""
    needed = {c.next.id for c in carried}
    for op in reversed(rest):
        outs = {v.id for v in op.outs}
        inside = {v.id for x in then for v in operands(x)}
        beside = {v.id for x in rest if x is not op for v in operands(x)} | needed
        if isinstance(op, _PURE) and outs & inside and not outs & beside:
            rest = [x for x in rest if x is not op]
            then = [op, *then]
    return rest, then
