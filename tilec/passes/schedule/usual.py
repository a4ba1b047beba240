"""What the values of a trip are while a row's reference stays where it is.

    m' = max(m, max(s))                     m' = m
    w  = exp2((s - m') * c)                 w  = exp2(s * c + r)        r = -m * c
    a  = exp2((m - m') * c)         ->      a  = 1
    l' = l * a + sum(w)                     l' = l + sum(w)

Of a trip in which rows begin, which has no reference before it, the factor is what such a trip says: 0.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32, DType
from tilec.ir.rescaled import LARGEST_FACTOR, Rescaling
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import substitute
from tilec.passes.schedule.clone import Numbers
from tilec.passes.uses import Definitions, number, operands

ROOM = 2.0**96
"""Numbers below it, times any distance of indices, are far from what a float has no room for."""

PURE = (t.Elementwise, t.Cast, t.Fill, t.Rearrange, t.Reduce, t.Full, t.Constant)


class Refused(Exception):
    """A trip does not have the form that this knows."""


@dataclass(frozen=True)
class Weight:
    """`exp2(fma(sub_if(tile, …), factor, …))`: its op, the tile, the factor, the reference's axes in the tile, and the largest size of
    a reference that is near."""

    op: t.Elementwise
    tile: t.Value
    factor: t.Value
    spread: t.Rearrange
    largest: t.Value


class Usual:
    """The ops of one trip, of which those move that read a reference."""

    def __init__(
        self,
        trip: Iterable[t.Op],
        reference: t.Value,
        rescaling: Rescaling,
        numbers: Numbers,
        origin: Mapping[int, int],
        definitions: Definitions,
    ):
        self.trip = tuple(trip)
        self.rescaling, self.numbers, self.origin = rescaling, numbers, origin
        self.definitions = definitions
        self.made = {v.id: op for op in self.trip for v in op.outs}
        self.moving: set[int] = {reference.id}
        for op in self.trip:
            if any(v.id in self.moving for v in operands(op)):
                if not isinstance(op, PURE):
                    raise Refused
                self.moving.add(op.out.id)
        self.weight = self._weight()
        self.usual: dict[int, t.Value | None] = {}
        """what values are while the reference stays; None: 1"""
        self.most = LARGEST_FACTOR
        """what a lane may add up of the weights"""
        self.ops: list[t.Op] = []
        self.head: list[t.Op] = []
        """what stands in front of the loop"""

    def root(self, value: t.Value) -> int:
        return self.origin.get(value.id, value.id)

    def _weight(self) -> Weight:
        """The weight's parts. Raises Refused."""
        for op in self.trip:
            if not isinstance(op, t.Elementwise) or self.root(op.out) != self.rescaling.weight:
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
            return Weight(op, near.args[0], argument.args[1], spread, far.args[1])
        raise Refused

    def _elementwise(self, value: t.Value, name: str) -> t.Elementwise | None:
        op = self.made.get(value.id)
        return op if isinstance(op, t.Elementwise) and op.op == name else None

    # ---- making ops

    def like(
        self, ops: list[t.Op], value: t.Value, kind: Callable[..., t.Op], **parts: object
    ) -> t.Value:
        made = replace(self.numbers.fresh(value), name="")
        ops.append(kind(outs=(made,), span=value.span, **parts))
        return made

    def constant(self, ops: list[t.Op], number: float, dtype: DType = F32) -> t.Value:
        value = t.Value(self.numbers.next, t.TileType(dtype), "")
        self.numbers.next += 1
        ops.append(t.Constant(outs=(value,), value=number))
        return value

    # ---- while the reference stays

    def stays(self, value: t.Value, kept: t.Value) -> t.Value | None:
        """What a value is while the reference stays, and `kept` is it; None: 1."""
        if value.id not in self.moving:
            return value
        if value.id not in self.usual:
            self.usual[value.id] = self._made_usual(value, kept)
        return self.usual[value.id]

    def _made_usual(self, value: t.Value, kept: t.Value) -> t.Value | None:
        op = self.made[value.id]
        weight = self.weight
        if op is weight.op:
            spread = weight.spread
            bound = self.like(self.ops, spread.out, t.Rearrange, arg=kept, axes=spread.axes)
            argument = self._argument(weight.tile, weight.factor, bound)
            out = self.numbers.fresh(value)
            self.ops.append(replace(weight.op, outs=(out,), args=(argument,)))
            return out
        if self.root(value) in self.rescaling.factors:
            return None
        changed = {v.id: self.stays(v, kept) for v in operands(op)}
        if isinstance(op, t.Rearrange) and changed[op.arg.id] is None:
            return None
        if isinstance(op, t.Elementwise) and op.op == "mul":
            left, right = (changed[a.id] for a in op.args)
            if left is None or right is None:
                return left if right is None else right
        if isinstance(op, t.Elementwise) and op.op == "add":
            left, right = (changed[a.id] for a in op.args)
            for one, other in ((left, right), (right, left)):
                if one is not None and number(self.definitions, one) == 0:
                    return other
        known = {n: v for n, v in changed.items() if v is not None}
        if len(known) < len(changed):
            raise Refused
        out = self.numbers.fresh(value)
        self.ops.append(replace(substitute(op, known), outs=(out,)))
        return out

    def _argument(self, tile: t.Value, factor: t.Value, bound: t.Value) -> t.Value:
        """`tile * factor + bound`, one multiply-add for each term of the tile: numbers that all elements share become one."""
        op = self.made.get(tile.id) if self._has_terms(tile) else None
        if isinstance(op, t.Elementwise) and op.op == "where":
            inner = self._argument(op.args[1], factor, bound)
            args = (op.args[0], inner, op.args[2])
            return self.like(self.ops, tile, t.Elementwise, op="where", args=args)
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
        return self.like(self.ops, tile, t.Elementwise, op="fma", args=args)

    def _product(self, number: t.Value, factor: t.Value) -> t.Value:
        """Their product in front of the loop; not a number where a distance times it may have no room, so that the branch is taken."""
        head = self.head
        product = self.like(head, number, t.Elementwise, op="mul", args=(number, factor))
        size = self.like(head, number, t.Elementwise, op="abs", args=(product,))
        room = replace(self.numbers.fresh(number, t.TileType(BOOL)), name="")
        limit, none = self.constant(head, ROOM), self.constant(head, math.nan)
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
            return self.is_none(op.args[2]) and self._has_terms(op.args[1])
        if isinstance(op, t.Fill):
            return self.is_none(op.value) and self._has_terms(op.arg)
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

    def is_none(self, value: t.Value) -> bool:
        """Whether a value is -inf, which a positive factor and a number leave as it is."""
        return number(self.definitions, value) == -math.inf

    def parts_of_sum(self, kept: t.Value) -> t.Value:
        """What a lane adds up of the weights while the reference stays, and `kept` is it. Raises Refused where nothing does."""
        weight = self.weight.op.out
        for op in self.trip:
            if isinstance(op, t.Reduce) and op.op == "sum" and op.arg is weight and op.partial:
                total = self.stays(op.out, kept)
                assert total is not None
                return total
        raise Refused

    def late(
        self, total: t.Value, least: float | None = None, beside: t.Value | None = None
    ) -> t.Value:
        """For each row whether the reference has to move, by a sum of its weights, or where what stands `beside` it is false."""
        flags = t.TileType(BOOL, total.type.axes)

        def made(op: t.ElementwiseName, *args: t.Value, name: str = "") -> t.Value:
            value = replace(self.numbers.fresh(total, flags), name=name)
            self.ops.append(
                t.Elementwise(outs=(value,), op=op, args=args, span=self.weight.op.span)
            )
            return value

        near = made("lt", total, self.constant(self.ops, self.most))
        if least is not None:
            near = made("and", near, made("ge", total, self.constant(self.ops, least)))
        if beside is not None:
            near = made("and", near, beside)
        return made("not", near, name="late")

    def merge(self, moved: t.Value, kept: t.Value) -> t.Merge:
        """A value that moves in the branch, with what it is where the reference stays, and `kept` is it. Raises Refused."""
        stays = self.stays(moved, kept)
        if stays is None:
            raise Refused
        return t.Merge(moved, stays, self.numbers.fresh(moved))

    def rarely(self, asked: t.Value, then: list[t.Op], merges: list[t.Merge]) -> t.If:
        """The branch in which references move."""
        return t.If(
            outs=tuple(m.result for m in merges),
            condition=asked,
            then=t.Block(tuple(then)),
            otherwise=t.Block(()),
            merges=tuple(merges),
            rare=True,
            span=self.weight.op.span,
        )
