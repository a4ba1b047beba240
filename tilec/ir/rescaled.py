"""Loops that rescale: rows of sums that are relative to a reference which the loop moves, and results that do not show where it is.

    m' = max(m, max(s))            m       shifted by 1: moves with the row's reference
    w  = exp(s - m')               w       scaled by -1: of the size of exp(-reference), in the units of this trip
    a  = exp(m - m')               a       scaled by 1 of the trip before and by -1 of this one
    l  = l * a + sum(w)            l, o    scaled by -1
    o  = o * a + w @ v
    … o / l, m + log(l)            neither: any reference gives the same

Every value is followed with the degree by which it moves with a row's reference. Where all that leaves the nest has none, a loop may
keep a reference of an earlier trip as long as no weight exceeds 2^8 for that (`math = fast`): conversions of weights for products are
then rounded at another scale. The schedule and the bounds of the interpreter both ask here.
"""

from __future__ import annotations

import math
from typing import Literal

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import F32
from tilec.ir.filters import flattened
from tilec.ir.walking import all_ops, operands
from tilec.lazy_dataclass import dataclass

LARGEST_FACTOR = 2.0**8
"""What a weight may exceed the one of the program by."""


@dataclass(frozen=True)
class Rescaling:
    """A loop that rescales. `running` is the carried reference, `reference` its value of a trip, `weight` the exponential of the tile,
    `factors` are those of rows, `operands` conversions of weights to 16 bits that only products read. All but `running` are ids."""

    loop: t.For
    running: t.Carried
    reference: int
    weight: int
    factors: frozenset[int]
    operands: frozenset[int]


@dataclass(frozen=True)
class _Running:
    """A loop with products as it is `written`, and without the branch of a filter, whose `conditions` these are; and its reference."""

    written: t.For
    loop: t.For
    conditions: tuple[t.Value, ...]
    carried: t.Carried


def rescalings(nest: t.Nest) -> tuple[Rescaling, ...]:
    """The loops of a nest, as the analysis made it, that rescale and may keep an earlier trip's reference; loops one after the other
    that hand a reference on do so together, or not at all."""
    chains: list[list[_Running]] = []
    for op in nest.body.ops:
        if not isinstance(op, t.For):
            continue
        # rows that no trip changes keep all that they have: a filter's branch is as if it were not there
        loop, conditions = flattened(op)
        if not any(isinstance(x, t.Dot) for x in loop.body.ops):
            continue
        for carried in loop.carried:
            if _is_running(carried, loop):
                own = _Running(op, loop, conditions, carried)
                known = [c for c in chains if c[-1].carried.result is carried.initial]
                if known:
                    known[0].append(own)
                else:
                    chains.append([own])
    found: list[Rescaling] = []
    for chain in chains:
        try:
            found += _Degrees(nest, chain).result()
        except _ShowsError:
            continue
    return tuple(found)


def rescaled_operands(program: t.Program) -> frozenset[int]:
    """Conversions that may be rounded at another scale, by the id of the result."""
    if program.math != "fast":
        return frozenset()
    return frozenset(n for nest in program.nests for r in rescalings(nest) for n in r.operands)


class _ShowsError(Exception):
    """Something shows where the reference is."""


@dataclass(frozen=True)
class _Degree:
    """How a value moves with a row's reference: "scaled" by exp of, or "shifted" by, `before` times what the trip before took and
    `now` times what this one takes. "any" is 0, which moves in every way."""

    kind: Literal["scaled", "shifted", "any"]
    before: float = 0.0
    now: float = 0.0

    def times(self, number: float) -> _Degree:
        return _Degree(self.kind, self.before * number, self.now * number)


_ANY = _Degree("any")
_FIXED = _Degree("scaled")
"""Of a value that does not move."""


def _is_running(carried: t.Carried, loop: t.For) -> bool:
    """Whether a carried name is rows, each the largest of itself and of a tile's."""
    if carried.entry.type.rank != 1 or carried.entry.type.dtype != F32:
        return False
    made = {v.id: op for op in loop.body.ops for v in op.outs}
    op = made.get(carried.next.id)
    if not isinstance(op, t.Elementwise) or op.op != "max" or carried.entry not in op.args:
        return False
    other = op.args[1] if op.args[0] is carried.entry else op.args[0]
    reduce = made.get(other.id)
    return isinstance(reduce, t.Reduce) and reduce.op == "max" and reduce.axes == (1,)


class _Degrees:
    """The degrees of a nest's values for one running maximum, which loops hand on."""

    def __init__(self, nest: t.Nest, chain: list[_Running]):
        self.nest, self.chain = nest, chain
        self.running = chain[0].carried
        self.defining: dict[int, t.Op] = {}
        self.users: dict[int, list[t.Op]] = {}
        for op in all_ops(nest.body):
            for value in op.outs:
                self.defining[value.id] = op
            for value in operands(op):
                self.users.setdefault(value.id, []).append(op)
        self.degrees: dict[int, _Degree] = {}
        self.weights: dict[int, t.Elementwise] = {}
        self.summed: set[int] = set()
        """weights of the loops before"""
        self.factors: set[int] = set()
        self.operands: set[int] = set()

    def result(self) -> list[Rescaling]:
        """What the loops are. Raises _ShowsError."""
        found: list[Rescaling] = []
        for op in self.nest.body.ops:
            own = next((x for x in self.chain if x.written is op), None)
            if own is None:
                self._op(op)
                continue
            self._loop(own)
            if len(self.weights) != 1:
                raise _ShowsError
            (weight,) = self.weights
            sums = [u for u in self.users[weight] if isinstance(u, t.Reduce) and u.op == "sum"]
            if not sums or not self.factors or not self.operands:
                raise _ShowsError
            found.append(
                Rescaling(
                    own.loop,
                    own.carried,
                    own.carried.next.id,
                    weight,
                    frozenset(self.factors),
                    frozenset(self.operands),
                )
            )
            self.summed |= {weight}
        return found

    def _loop(self, own: _Running) -> None:
        """The degrees inside a loop, and of its results: those that the carried names have in every trip. What moves in front of it has
        moved with what the loop before took last, as if that were a trip of this one."""
        loop, self.running = own.loop, own.carried
        for c in loop.carried:
            if own is self.chain[0] and self._of(c.initial) not in (_FIXED, _ANY):
                raise _ShowsError
            self.degrees[c.entry.id] = _ANY
        self.degrees[self.running.entry.id] = _Degree("shifted", 1.0)
        for _ in range(len(loop.carried) + 1):
            self.weights, self.factors, self.operands = {}, set(), set()
            for op in loop.body.ops:
                self._op(op)
            known = {c.entry.id: self._carried_over(c) for c in loop.carried}
            if all(self.degrees[n] == degree for n, degree in known.items()):
                break
            self.degrees.update(known)
        else:
            raise _ShowsError
        if any(self._of(condition) not in (_FIXED, _ANY) for condition in own.conditions):
            raise _ShowsError
        for c in loop.carried:
            degree = self.degrees[c.entry.id]
            if own is not self.chain[0] and self._of(c.initial) not in (degree, _ANY):
                raise _ShowsError
            self.degrees[c.result.id] = degree

    def _carried_over(self, carried: t.Carried) -> _Degree:
        """The degree of a carried name at the start of the next trip."""
        degree = self._of(carried.next)
        if degree.before:
            raise _ShowsError
        if degree.kind == "any":
            return degree
        return _Degree(degree.kind, degree.now)

    def _of(self, value: t.Value) -> _Degree:
        return self.degrees.get(value.id, _FIXED)

    def _op(self, op: t.Op) -> None:
        degree = self._made(op)
        if op.outs and degree != _FIXED:
            if len(op.outs) != 1 or op.out.type.rank > 2:
                raise _ShowsError
            if degree.kind == "shifted" and not degree.before and not degree.now:
                degree = _FIXED
            if degree.kind == "scaled" and max(abs(degree.before), abs(degree.now)) > 1:
                raise _ShowsError
        for value in op.outs:
            self.degrees[value.id] = degree

    def _made(self, op: t.Op) -> _Degree:
        """The degree of an op's result. Raises _ShowsError where there is none."""
        if op.outs and op.outs[0].id == self.running.next.id:
            return _Degree("shifted", 0.0, 1.0)
        match op:
            case t.Constant():
                return _ANY if op.value == 0 and not isinstance(op.value, bool) else _FIXED
            case t.Full():
                return self._of(op.value)
            case t.Elementwise():
                return self._elementwise(op)
            case t.Cast():
                return self._cast(op)
            case t.Rearrange() if op.axes in ((0,), (0, None), (0, 1)):
                return self._of(op.arg)
            case t.Fill() if self._of(op.value) == _ANY:
                return self._of(op.arg)
            case t.Reduce() if op.axes == (1,) and op.op in ("sum", "max"):
                degree = self._of(op.arg)
                return self._fixed(op) if degree.kind == "shifted" else degree
            case t.Dot():
                return self._product(op)
            case _:
                return self._fixed(op)

    def _fixed(self, op: t.Op) -> _Degree:
        """An op that may read nothing that moves."""
        inner = [op]
        if isinstance(op, t.For):
            inner += all_ops(op.body)
        elif isinstance(op, t.If):
            inner += [*all_ops(op.then), *all_ops(op.otherwise)]
        if any(self._of(v) not in (_FIXED, _ANY) for x in inner for v in operands(x)):
            raise _ShowsError
        return _FIXED

    def _elementwise(self, op: t.Elementwise) -> _Degree:
        degrees = [self._of(a) for a in op.args]
        if all(d in (_FIXED, _ANY) for d in degrees) and op.op not in (
            "add",
            "sub",
            "mul",
            "where",
        ):
            return _FIXED
        match op.op:
            case "neg":
                return degrees[0].times(-1) if degrees[0].kind == "shifted" else degrees[0]
            case "abs" if degrees[0].kind == "scaled":
                return degrees[0]
            case "add":
                return self._sum(degrees[0], degrees[1], 1)
            case "sub":
                return self._sum(degrees[0], degrees[1], -1)
            case "mul":
                return self._times(op, degrees)
            case "div" if all(d.kind == "scaled" for d in degrees):
                over = degrees[1]
                return _Degree("scaled", degrees[0].before - over.before, degrees[0].now - over.now)
            case "div" if degrees[0] == _ANY:
                return _ANY
            case "exp" if degrees[0].kind == "shifted":
                return self._power(op, degrees[0])
            case "log" | "log2" if degrees[0].kind == "scaled":
                unit = 1.0 if op.op == "log" else math.log2(math.e)
                return _Degree("shifted", degrees[0].before * unit, degrees[0].now * unit)
            case "eq" | "ne" | "lt" | "le" | "gt" | "ge":
                if self._is_asked(op.args[0], op.args[1]) or self._is_asked(op.args[1], op.args[0]):
                    return _FIXED
            case "where" if degrees[0] == _FIXED:
                return self._chosen(op, degrees[1], degrees[2])
            case _:
                pass
        raise _ShowsError

    def _sum(self, left: _Degree, right: _Degree, sign: int) -> _Degree:
        if left == _ANY:
            return right.times(sign) if right.kind == "shifted" else right
        if right == _ANY:
            return left
        if left.kind == right.kind == "scaled" and left == right:
            return left
        parts = []
        for degree in (left, right):
            if degree.kind == "shifted":
                parts.append((degree.before, degree.now))
            elif degree == _FIXED:
                parts.append((0.0, 0.0))
            else:
                raise _ShowsError
        total = tuple(_whole(a + sign * b) for a, b in zip(*parts, strict=True))
        return _Degree("shifted", *total)

    def _times(self, op: t.Elementwise, degrees: list[_Degree]) -> _Degree:
        if _ANY in degrees:
            return _ANY
        left, right = degrees
        if left.kind == right.kind == "scaled":
            return _Degree("scaled", left.before + right.before, left.now + right.now)
        for degree, other, value in (
            (left, right, op.args[1]),
            (right, left, op.args[0]),
        ):
            number = self._number(value)
            if degree.kind == "shifted" and other == _FIXED and number is not None:
                return degree.times(number)
        raise _ShowsError

    def _power(self, op: t.Elementwise, degree: _Degree) -> _Degree:
        """An exponential of something that moves: a weight of the tile, or a factor of rows."""
        now = _Degree("scaled", degree.before, degree.now)
        if op.out.type.rank == 2 and now == _Degree("scaled", 0.0, -1.0):
            inner = self.defining[op.args[0].id]
            reference = (
                inner.args[1] if isinstance(inner, t.Elementwise) and inner.op == "sub" else None
            )
            if reference and isinstance(self.defining.get(reference.id), t.Rearrange):
                self.weights[op.out.id] = op
                return now
        if op.out.type.rank == 1 and now == _Degree("scaled", 1.0, -1.0):
            self.factors.add(op.out.id)
            return now
        raise _ShowsError

    def _chosen(self, op: t.Elementwise, then: _Degree, otherwise: _Degree) -> _Degree:
        if then == _ANY or otherwise == _ANY:
            return otherwise if then == _ANY else then
        if then == otherwise:
            return then
        # what stands for a row that has no reference yet, or for a sum of nothing
        asked = self.defining.get(op.args[0].id)
        if then == _FIXED and isinstance(asked, t.Elementwise) and asked.op == "eq":
            value = op.args[2]
            stands = value in asked.args and self._number(op.args[1]) is not None
            if stands and (otherwise.kind == "shifted" or self._sums_weights(value)):
                return otherwise
        raise _ShowsError

    def _sums_weights(self, value: t.Value) -> bool:
        """Whether rows are the sums of all weights, which are 0 only where all of them are."""
        for c in (c for own in self.chain for c in own.loop.carried):
            if c.result is not value:
                continue
            if not self._is_least_zero(c.initial) and not self._sums_weights(c.initial):
                continue
            added = self.defining.get(c.next.id)
            if isinstance(added, t.Elementwise) and added.op == "add":
                for part in added.args:
                    reduce = self.defining.get(part.id)
                    if isinstance(reduce, t.Reduce) and reduce.arg.id in self.summed:
                        return reduce.op == "sum"
        return False

    def _is_least_zero(self, value: t.Value) -> bool:
        """Whether a number, or each of rows, is 0 or more in any case."""
        if self._of(value) == _ANY:
            return True
        op = self.defining.get(value.id)
        match op:
            case t.Constant():
                return not op.value < 0
            case t.Full():
                return self._is_least_zero(op.value)
            case t.Rearrange():
                return self._is_least_zero(op.arg)
            case t.Elementwise() if op.op in ("add", "mul"):
                return all(map(self._is_least_zero, op.args))
            case t.Elementwise():
                return op.op in ("exp", "exp2", "abs", "sigmoid")
            case _:
                return False

    def _is_asked(self, value: t.Value, number: t.Value) -> bool:
        """Whether an answer is the same wherever the reference is: a size against 0, a place against an infinity."""
        found = self._number(number)
        kind = self._of(value).kind
        return found is not None and (
            (kind == "scaled" and found == 0) or (kind == "shifted" and math.isinf(found))
        )

    def _number(self, value: t.Value) -> float | None:
        op = self.defining.get(value.id)
        while isinstance(op, t.Full):
            op = self.defining.get(op.value.id)
        return float(op.value) if isinstance(op, t.Constant) else None

    def _cast(self, op: t.Cast) -> _Degree:
        degree = self._of(op.arg)
        if degree in (_FIXED, _ANY):
            return degree
        dtype = op.out.type.dtype
        if degree != _Degree("scaled", 0.0, -1.0) or not dtype.is_float or dtype.bits != 16:
            raise _ShowsError
        if not all(isinstance(u, t.Dot) and u.a is op.out for u in self.users[op.out.id]):
            raise _ShowsError
        self.operands.add(op.out.id)
        return degree

    def _product(self, op: t.Dot) -> _Degree:
        left, right = self._of(op.a), self._of(op.b)
        if right not in (_FIXED, _ANY) or left.kind == "shifted":
            raise _ShowsError
        if left not in (_FIXED, _ANY) and op.a.id not in self.operands:
            raise _ShowsError
        if op.accumulate is None:
            return left
        before = self._of(op.accumulate)
        if before != left and before != _ANY:
            raise _ShowsError
        return left


def _whole(number: float) -> float:
    """A sum of degrees, without what the rounding of constants leaves."""
    return 0.0 if abs(number) < 1e-6 else number
