"""Trips without effect: what a loop carries stays as it is where a condition is false on the whole tile.

    for j in …:                                     seen false everywhere: s = -inf, max(s) = -inf
        s = where(seen, q @ k[j].T, -inf)           m: max(m, -inf) = m
        m, l, acc = …                               l: l * exp(m - m) + sum(exp(-inf - m)) = l * 1 + 0

An induction over kinds of numbers. A *state* is the kinds of what the loop carries at one place – a row, a column of a sum. The states that
trips of any kind reach from the initial one are found first; then each has to be what a trip makes of it in which the condition is false.
Both are asked at a place: axes that meet in an operation are the same one, what is reduced along an axis that nothing carried has is a reduction over
elements of any kinds. Of the first maximum along such an axis the kinds of elements that a row has are told apart, as the maximum of a row
with an infinity and the sum of its exponentials are not independent: exp(inf - inf) is NaN.

A product with zeros is a zero where the other operand is finite, which a proof asks for (`Proof.finite`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import chain, combinations, product
from typing import TypeAlias

from tilec.ir import tile_ir as t
from tilec.ir.walking import all_ops, free_variables, operands
from tilec.lazy_dataclass import dataclass
from tilec.passes import number_kinds as n
from tilec.passes.number_kinds import Number
from tilec.passes.uses import Definitions

MOST_STATES = 2000
"""That are told apart: three carried names have some hundred."""
MOST_CASES = 6
"""Kinds of elements of a row that are told apart."""

State: TypeAlias = tuple[int, ...]
"""The kind of each carried name."""
Elements: TypeAlias = tuple[Number, ...]
"""Those of a row, by the cases that it has."""
Root: TypeAlias = tuple[int, int]
"""An axis: the id of a value that has it, and which one it is there."""
_PURE = (
    t.Constant, t.FromSym, t.Scalar, t.Iota, t.Full, t.Load, t.Elementwise, t.Cast, t.Bitcast, t.Fill, t.Rearrange, t.Reshape, t.Slice,
    t.Reduce, t.Scan, t.TopK, t.ReduceWith, t.Dot,
)  # fmt: skip


class NotIdle(Exception):
    """Why a trip may have an effect."""


@dataclass(frozen=True)
class Proof:
    """A trip of the loop has no effect where the condition is false everywhere and these values are finite."""

    finite: tuple[t.Value, ...]


def proved(nest: t.Nest, loop: t.For, condition: t.Value) -> Proof:
    """That a trip in which `condition`, a tile of the loop's body or from in front of it, is false changes nothing. Raises NotIdle."""
    trips = _Trips(nest, loop)
    states = trips.reached(trips.initial())
    return trips.without_effect(states, condition)


class _Trips:
    """One loop, at a place of what it carries."""

    def __init__(self, nest: t.Nest, loop: t.For) -> None:
        self.nest, self.loop = nest, loop
        self.definitions = Definitions.of(nest.body)
        for op in loop.body.ops:
            if not isinstance(op, _PURE):
                raise NotIdle("there are branches, loops or stores in it")
        self.entries = {c.entry.id: at for at, c in enumerate(loop.carried)}
        self.axes = _Axes(loop)
        self.made = {v.id: op for op in loop.body.ops for v in op.outs}
        self.carried_in: dict[int, frozenset[int]] = {}
        self.reads: dict[int, tuple[int, ...]] = {}
        self.read = [self.read_by(c.next) for c in loop.carried]
        self.told = _told_apart(self)
        self.cases = _cases(self, self.told) if self.told is not None else []

    # ---- states

    def initial(self) -> set[State]:
        """The states in front of the first trip."""
        results = {c.result.id: c for c in self.loop.carried}
        initial = [c.initial for c in self.loop.carried]
        before = {self.definitions.defining.get(v.id) for v in initial}
        (one,) = before if len(before) == 1 else (None,)
        if isinstance(one, t.For) and one is not self.loop and results:
            at = {c.result.id: number for number, c in enumerate(one.carried)}
            try:
                trips = _Trips(self.nest, one)
                reached = trips.reached(trips.initial())
            except NotIdle:
                reached = set()
            if reached:
                return {tuple(state[at[v.id]] for v in initial) for state in reached}
        kinds = [list(n.kinds_in(self._outside(v).kinds)) for v in initial]
        return set(product(*kinds))

    def reached(self, states: set[State]) -> set[State]:
        """The states behind any number of trips."""
        rows = [*chain.from_iterable(combinations(range(len(self.cases)), size) for size in range(len(self.cases) + 1))]  # fmt: skip
        rows = rows if self.told is not None else [()]
        walks = [_Walk(self, row, None) for row in rows]
        found, waiting = set(states), list(states)
        while waiting:
            state = waiting.pop()
            for walk in walks:
                for follower in walk.following(state):
                    if follower not in found:
                        found.add(follower)
                        waiting.append(follower)
            if len(found) > MOST_STATES:
                raise NotIdle("too many cases of what it carries")
        return found

    def without_effect(self, states: Iterable[State], condition: t.Value) -> Proof:
        """The proof for all states."""
        walk = _Walk(self, (), condition)
        loose: set[int] = set()
        for state in sorted(states):
            for at, kind in enumerate(state):
                carried = self.loop.carried[at]
                number = walk.next_of(at, state)
                if number.kinds == kind and kind not in (n.NEG, n.POS):
                    continue
                zero = bool(kind & n.ZEROS) and number.is_zero
                if number.same != carried.entry.id and not zero:
                    name = carried.entry.name or f"name {at + 1}"
                    raise NotIdle(f"what becomes of `{name}` is not known to be `{name}`")
                if zero and number.kinds != kind:
                    loose.add(at)
        self._only_in_value(loose)
        finite = walk.finite
        return Proof(tuple(finite[key] for key in sorted(finite)))

    def _only_in_value(self, loose: set[int]) -> None:
        """Nobody asks for the sign of zeros that may lose theirs."""
        waiting = [
            v for at in loose for v in (self.loop.carried[at].entry, self.loop.carried[at].result)
        ]
        seen = {v.id for v in waiting}
        while waiting:
            value = waiting.pop()
            for op in self.definitions.users.get(value.id, ()):
                if isinstance(op, t.Elementwise) and (
                    op.op in ("rsqrt", "pow")
                    or (op.op in ("div", "floordiv", "mod") and op.args[1] is value)
                ):
                    raise NotIdle("it may change the sign of a zero that is divided by")
                if isinstance(op, t.Bitcast):
                    raise NotIdle("it may change the sign of a zero whose bits are looked at")
                outs = list(op.outs)
                if isinstance(op, t.For):
                    into = [c for c in op.carried if value in (c.initial, c.next)]
                    outs = [v for c in into for v in (c.entry, c.result)]
                for out in outs:
                    if out.id not in seen:
                        seen.add(out.id)
                        waiting.append(out)

    # ---- values

    def outside(self, value: t.Value) -> Number:
        """What is known of a value from in front of the loop."""
        return self._outside(value)

    def _outside(self, value: t.Value) -> Number:
        op = self.definitions.defining.get(value.id)
        while isinstance(op, t.Full | t.Rearrange):
            op = self.definitions.defining.get((op.value if isinstance(op, t.Full) else op.arg).id)
        if isinstance(op, t.Constant):
            return n.constant(op.value)
        return n.anything(value.type.dtype)

    def carried_by(self, value: t.Value) -> frozenset[int]:
        """The entries that a value of the body is made of."""
        known = self.carried_in.get(value.id)
        if known is None:
            if value.id in self.entries:
                known = frozenset([value.id])
            else:
                op = self.made.get(value.id)
                parts = [self.carried_by(v) for v in operands(op)] if op is not None else []
                if op is not None:
                    keys = (v.key for v in free_variables(op) if v.kind == "value")
                    parts += [self.carried_by(self.definitions.values[k]) for k in sorted(keys)]
                known = frozenset().union(*parts)
            self.carried_in[value.id] = known
        return known

    def read_by(self, value: t.Value) -> tuple[int, ...]:
        """The carried names that a value is made of, by their places."""
        found = self.reads.get(value.id)
        if found is None:
            places = sorted(self.entries[key] for key in self.carried_by(value))
            found = self.reads[value.id] = tuple(places)
        return found

    def is_along(self, value: t.Value, axis: int) -> bool:
        """Whether what a value is made of is carried along one of its axes, so that other places of that axis are in other states."""
        root = self.axes.root(value, axis)
        for key in self.carried_by(value):
            entry = self.loop.carried[self.entries[key]].entry
            if root in self.axes.roots(entry):
                return True
        return False


def _told_apart(trips: _Trips) -> t.Reduce | None:
    """The first maximum or minimum along an axis that nothing carried has."""
    for op in trips.loop.body.ops:
        if not isinstance(op, t.Reduce) or op.op not in ("max", "min") or len(op.axes) != 1:
            continue
        root = trips.axes.root(op.arg, op.axes[0])
        if root is None or not op.arg.type.dtype.is_float or trips.carried_by(op.arg):
            continue
        if not any(root in trips.axes.roots(c.entry) for c in trips.loop.carried):
            return op
    return None


def _cases(trips: _Trips, op: t.Reduce) -> list[Mapping[int, Number]]:
    """The kinds of elements that are told apart, each as what is known of some values there."""
    root = trips.axes.root(op.arg, op.axes[0])

    def of(value: t.Value) -> list[dict[int, Number]]:
        made = trips.made.get(value.id)
        if isinstance(made, t.Elementwise) and made.op == "where":
            condition, *arms = made.args
            asked_again = len(trips.definitions.users[condition.id]) > 1
            if asked_again and root in trips.axes.roots(condition):
                return [
                    {condition.id: Number(kind), **case}
                    for kind, arm in zip((n.TRUE, n.FALSE), arms, strict=True)
                    for case in of(arm)
                ]
        if root not in trips.axes.roots(value):
            return [{}]
        groups = (n.NEG_INF, n.FINITE, n.INF, n.NAN)
        return [{value.id: Number(group)} for group in groups]

    found = of(op.arg)
    if len(found) > MOST_CASES:
        found = [{op.arg.id: Number(g)} for g in (n.NEG_INF, n.FINITE, n.INF, n.NAN)]
    return list(found)


class _Walk:
    """A trip at a place whose row has elements of some cases, or in which a condition is false."""

    def __init__(self, trips: _Trips, row: tuple[int, ...], condition: t.Value | None) -> None:
        self.trips, self.row, self.condition = trips, row, condition
        self.finite: dict[int, t.Value] = {}
        self.known: dict[tuple[int, State], Number | Elements] = {}
        self.followers: dict[tuple[int, State], State] = {}

    def following(self, state: State) -> Iterator[State]:
        """What such a trip makes of a state."""
        found = []
        for at, read in enumerate(self.trips.read):
            key = (at, tuple([state[k] for k in read]))
            kinds = self.followers.get(key)
            if kinds is None:
                kinds = self.followers[key] = tuple(n.kinds_in(self.next_of(at, state).kinds))
            found.append(kinds)
        return product(*found)

    def next_of(self, at: int, state: State) -> Number:
        """What becomes of a carried name."""
        number = self.value(self.trips.loop.carried[at].next, state)
        if isinstance(number, tuple):
            raise NotIdle("it carries elements that are reduced")
        return number

    def value(self, value: t.Value, state: State) -> Number | Elements:
        """What is known of a value in a state."""
        key = (value.id, tuple([state[at] for at in self.trips.read_by(value)]))
        known = self.known.get(key)
        if known is None:
            known = self.known[key] = self._found(value, state)
        return known

    def _found(self, value: t.Value, state: State) -> Number | Elements:
        trips = self.trips
        if self.condition is not None and value.id == self.condition.id:
            return Number(n.FALSE)
        if value.id in trips.entries:
            return Number(state[trips.entries[value.id]], same=value.id)
        found = self._plain(value, state)
        if self.condition is None and any(value.id in case for case in trips.cases):
            cases = [trips.cases[c] for c in self.row]
            plain = found if isinstance(found, tuple) else (found,) * len(cases)
            return tuple(c.get(value.id, x) for c, x in zip(cases, plain, strict=True))
        return found

    def _plain(self, value: t.Value, state: State) -> Number | Elements:
        op = self.trips.made.get(value.id)
        if op is None:
            return self.trips.outside(value)
        unknown = n.anything(value.type.dtype)
        match op:
            case t.Constant():
                return n.constant(op.value)
            case t.Elementwise():
                return self._each(op.args, state, lambda x: n.elementwise(op.op, x, value.type.dtype))  # fmt: skip
            case t.Cast():
                dtype = op.arg.type.dtype
                return self._each((op.arg,), state, lambda x: n.cast(x[0], dtype, value.type.dtype))
            case t.Rearrange():
                return self.value(op.arg, state)
            case t.Full():
                return self.value(op.value, state)
            case t.Fill():
                return self._each((op.arg, op.value), state, n.join)
            case t.Reduce():
                return self._reduced(op, state)
            case t.Dot():
                return self._multiplied(op, state)
            case _:
                return unknown

    def _each(self, args: tuple[t.Value, ...], state: State, function: object) -> Number | Elements:
        assert callable(function)
        parts = [self.value(arg, state) for arg in args]
        if not any(isinstance(part, tuple) for part in parts):
            found = function(tuple(parts))
            assert isinstance(found, Number)
            return found
        rows = [part if isinstance(part, tuple) else (part,) * len(self.row) for part in parts]
        return tuple(function(elements) for elements in zip(*rows, strict=True))

    def _reduced(self, op: t.Reduce, state: State) -> Number | Elements:
        trips, dtype = self.trips, op.out.type.dtype
        if any(trips.is_along(op.arg, axis) for axis in op.axes):
            return n.anything(dtype)
        part = self.value(op.arg, state)
        if not isinstance(part, tuple):
            return n.folded(op.op, (part,), dtype, some=False)
        if len(op.axes) > 1 or trips.axes.root(op.arg, op.axes[0]) != self._root:
            return n.anything(dtype)
        return n.folded(op.op, part, dtype, some=True)

    @property
    def _root(self) -> Root | None:
        told = self.trips.told
        return None if told is None else self.trips.axes.root(told.arg, told.axes[0])

    def _multiplied(self, op: t.Dot, state: State) -> Number | Elements:
        trips, dtype = self.trips, op.out.type.dtype
        unknown = n.anything(dtype)
        consumed = op.a.type.rank - 1
        along = trips.is_along(op.a, consumed) or trips.is_along(op.b, op.b.type.rank - 2)
        a, b = self.value(op.a, state), self.value(op.b, state)
        both = isinstance(a, tuple) or isinstance(b, tuple)
        if along or not dtype.is_float or (both and trips.axes.root(op.a, consumed) != self._root):
            return unknown
        count = len(self.row) if both else 1
        pairs = zip(
            a if isinstance(a, tuple) else (a,) * count,
            b if isinstance(b, tuple) else (b,) * count,
            strict=True,
        )
        products = [self._product(op, x, y) for x, y in pairs]
        total = n.folded("sum", products, dtype, some=both)
        if op.accumulate is None:
            return total
        added = self.value(op.accumulate, state)
        if isinstance(added, tuple):
            return unknown
        return n.elementwise("add", (added, total), dtype)

    def _product(self, op: t.Dot, a: Number, b: Number) -> Number:
        """Of two elements; where a trip is to have no effect, others are finite beside zeros."""
        if self.condition is not None:
            for zero, other, value in ((a, b, op.b), (b, a, op.a)):
                if zero.is_zero and not other.is_finite:
                    self.finite[value.id] = value
                    return Number(n.ZEROS)
        return n.elementwise("mul", (a, b), op.out.type.dtype)


class _Axes:
    """Which axes of a loop's values are one. Raises NotIdle where two of a value are."""

    def __init__(self, loop: t.For) -> None:
        self.parents: dict[tuple[int, int], tuple[int, int]] = {}
        self.values: dict[int, t.Value] = {}
        for op in all_ops(loop.body):
            self._align(op)
        for c in loop.carried:
            for axis in range(c.entry.type.rank):
                self._join(c.entry, axis, c.next, axis)
        for value in self.values.values():
            roots = list(map(self._find, self._keys(value)))
            if len(set(roots)) < len(roots):
                raise NotIdle("two axes of a tile are the same one")

    def root(self, value: t.Value, axis: int) -> Root | None:
        """What tells an axis from others, None for one of extent 1."""
        return None if value.type.axes[axis].is_one else self._find((value.id, axis))

    def roots(self, value: t.Value) -> tuple[Root, ...]:
        """The same of all axes that are longer."""
        return tuple(self._find(key) for key in self._keys(value))

    @staticmethod
    def _keys(value: t.Value) -> list[tuple[int, int]]:
        return [(value.id, k) for k, axis in enumerate(value.type.axes) if not axis.is_one]

    def _find(self, key: tuple[int, int]) -> tuple[int, int]:
        while (parent := self.parents.get(key, key)) != key:
            key = parent
        return key

    def _join(self, a: t.Value, at: int, b: t.Value, to: int) -> None:
        self.values[a.id], self.values[b.id] = a, b
        if not a.type.axes[at].is_one and not b.type.axes[to].is_one:
            one, other = self._find((a.id, at)), self._find((b.id, to))
            if one != other:
                self.parents[other] = one

    def _align(self, op: t.Op) -> None:
        match op:
            case t.Elementwise() | t.Cast() | t.Fill() | t.Scan() | t.Bitcast():
                for arg in operands(op):
                    for axis in range(arg.type.rank):
                        self._join(op.out, axis, arg, axis)
            case t.Rearrange():
                for to, source in enumerate(op.axes):
                    if source is not None:
                        self._join(op.out, to, op.arg, source)
            case t.Reduce():
                kept = [axis for axis in range(op.arg.type.rank) if axis not in op.axes]
                for to, axis in enumerate(kept):
                    self._join(op.out, to, op.arg, axis)
            case t.Dot():
                rank = op.out.type.rank
                self._join(op.a, rank - 1, op.b, rank - 2)
                for axis in range(rank):
                    if axis != rank - 1:
                        self._join(op.out, axis, op.a, axis)
                    if axis != rank - 2:
                        self._join(op.out, axis, op.b, axis)
                    if op.accumulate is not None:
                        self._join(op.out, axis, op.accumulate, axis)
            case _:
                pass
