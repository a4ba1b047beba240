"""Exponentials beside products become powers of two of one multiply-add.

    s = x * scale                            c = scale * log2(e)
    m_new = max(m, max(s))                   m_new = max(m, max(x))               m counts in units of scale
    p = exp(s - m_new)              ->       p = exp2(x' * c - m' * c)            x' = x, m' = m_new, see below
    a = exp(m - m_new)                       a = exp2(m * c' - m_new * c')        c' = c, see below
    … m + log(l)                             … m * scale + log(l)

The *circle* is everything that an exponential's argument is made of by maxima, sums, selections: carried names too. Where all that
enters it is scaled by one positive scalar, the circle counts in units of it, and what leaves is scaled. One reference per row is used
everywhere, so that its rounding cancels. x * c - m * c is one multiply-add, whose rounding is not zero at the maximum: from
|m * c| of 2^30 on, where all but equal elements are 2^-64 apart, x' is x - m and m' is 0, and for single numbers of a row c' is the
power of two below c, with which products are exact. Rows are seldom that far from 0: a warp that holds none does not subtract.

Absent columns become -inf before the maximum, and 0 by the exponential: nothing behind needs a mask.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import field, replace

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, F32, I32, DType
from tilec.ir.facts import Facts
from tilec.lazy_dataclass import dataclass
from tilec.passes import eliminate_dead
from tilec.passes.interior import implied_presence
from tilec.passes.schedule.clone import Numbers, exchange, present_again
from tilec.passes.uses import Definitions, all_ops, number, operands

LOG2E = math.log2(math.e)
LARGEST_INEXACT = 2.0**30
"""Up to here a row's reference in bits may be off by what its rounding leaves: a factor of 2^64 at most, which cancels."""
EXPONENT_BITS = 0x7F800000
"""Sign and mantissa cleared, a positive float is the power of two below it."""
CLOSED = frozenset({"add", "sub", "max", "min", "neg"})
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class _Refused(Exception):
    """The circle is not closed in a way that pays."""


def fold_exponents(program: t.Program, nest: t.Nest, numbers: Numbers) -> tuple[t.Nest, bool]:
    """The nest with exponentials in loops with products folded; says whether any was."""
    if program.math != "fast":
        return nest, False
    definitions = Definitions.of(nest.body)
    start: list[t.Value] = []
    carried: dict[int, t.Carried] = {}
    for op in all_ops(nest.body):
        if not isinstance(op, t.For):
            continue
        for c in op.carried:
            carried[c.entry.id] = carried[c.result.id] = c
        inner = list(all_ops(op.body))
        if any(isinstance(x, t.Dot) for x in inner):
            start += [
                x.args[0]
                for x in inner
                if isinstance(x, t.Elementwise) and x.op == "exp" and x.args[0].type.rank
            ]
    if not any(value.type.rank == 2 for value in start):
        return nest, False
    before = numbers.next
    try:
        circle = _Circle(program, numbers, definitions, carried)
        circle.grow(start)
        body = circle.rewrite(nest.body)
    except _Refused:
        numbers.next = before
        return nest, False
    filled = _fill(eliminate_dead.run(body), numbers, Facts.of(program))
    return replace(nest, body=filled), True


@dataclass
class _Circle:
    """Values that count in units of `unit`, a positive scalar; None: in ones."""

    program: t.Program
    numbers: Numbers
    definitions: Definitions
    carried: dict[int, t.Carried]
    inside: set[int] = field(default_factory=set)
    unit: t.Value | None = None
    alias: dict[int, t.Value] = field(default_factory=dict)
    """tiles that were scaled by the unit: what they are in units of it"""
    factors: tuple[t.Value, t.Value] | None = None
    """the unit in bits, and the power of two below it"""
    largest: t.Value | None = None
    """LARGEST_INEXACT in the circle's units"""
    zero: t.Value | None = None
    rows: dict[int, tuple[list[t.Op], t.Value, t.Value]] = field(default_factory=dict)
    """by bound: the block's ops, factor and negative reference"""
    anchors: dict[int, tuple[list[t.Op], t.Value, t.Value]] = field(default_factory=dict)
    """by bound: the block's ops, whether it is far from 0, and the negative reference of elements that it is subtracted from then"""

    flags: dict[int, tuple[list[t.Op], t.Value]] = field(default_factory=dict)
    """by bound: the block's ops, and whether it is far from 0"""

    # ---- which values

    def grow(self, start: list[t.Value]) -> None:
        """Close the circle over what makes the values. Raises _Refused."""
        waiting = list(start)
        units: dict[int, t.Value] = {}
        others = False
        while waiting:
            value = waiting.pop()
            if value.id in self.inside:
                continue
            if value.type.dtype != F32:
                raise _Refused
            self.inside.add(value.id)
            behind = self._behind(value)
            if behind is None:
                scalar = self._scale_of(value)
                if scalar is not None:
                    units[scalar.id] = scalar
                else:
                    others |= not isinstance(self._defining(value), t.Constant)
            waiting += behind or []
            for user in self.definitions.users[value.id]:
                if isinstance(user, t.For):
                    waiting += [c.entry for c in user.carried if c.next is value]
        if len(units) == 1 and not others:
            (unit,) = units.values()
            if self._positive(unit):
                self.unit = unit

    def _defining(self, value: t.Value) -> t.Op:
        return self.definitions.defining[value.id]

    def _behind(self, value: t.Value) -> list[t.Value] | None:
        """The values that are in the circle if this one is; None where it enters here."""
        if value.id in self.carried:
            c = self.carried[value.id]
            return [c.entry, c.next, c.result, c.initial]
        op = self._defining(value)
        match op:
            case t.Elementwise() if op.op in CLOSED:
                return list(op.args)
            case t.Elementwise() if op.op == "where":
                return list(op.args[1:])
            case t.Reduce() if op.op in ("max", "min"):
                return [op.arg]
            case t.Rearrange():
                return [op.arg]
            case t.Full():
                return [op.value]
            case _:
                return None

    def _scale_of(self, value: t.Value) -> t.Value | None:
        """The scalar that a tile is scaled by where it enters."""
        op = self._defining(value)
        if isinstance(op, t.Elementwise) and op.op == "mul":
            for scalar, tile in (op.args, op.args[::-1]):
                if not scalar.type.rank and tile.type.rank:
                    return scalar
        return None

    def _positive(self, value: t.Value) -> bool:
        op = self._defining(value)
        match op:
            case t.Constant():
                return not isinstance(op.value, bool) and op.value > 0
            case t.Scalar():
                return any(
                    isinstance(f, t.HostScalar) and f.name == op.name for f in self.program.facts
                )
            case t.Elementwise() if op.op in ("mul", "div"):
                return all(map(self._positive, op.args))
            case _:
                return False

    # ---- rewriting

    def rewrite(self, block: t.Block) -> t.Block:
        """The nest's body with the circle in its units. Raises _Refused."""
        head: list[t.Op] = []
        if self.unit is None:
            one = self._scalar(head, t.Constant, value=LOG2E)
        else:
            bits = self._scalar(head, t.Constant, value=LOG2E)
            one = self._scalar(
                head, t.Elementwise, op="mul", args=(self.unit, bits), name="in_bits"
            )
        word = self._scalar(head, t.Bitcast, I32, arg=one)
        mask = self._scalar(head, t.Constant, I32, value=EXPONENT_BITS)
        kept = self._scalar(head, t.Elementwise, I32, op="and", args=(word, mask))
        self.factors = one, self._scalar(head, t.Bitcast, arg=kept)
        most = self._scalar(head, t.Constant, value=LARGEST_INEXACT)
        self.largest = self._scalar(
            head, t.Elementwise, op="div", args=(most, one), name="far_from"
        )
        self.zero = self._scalar(head, t.Constant, value=0.0)
        ops = list(self._block(block, 0).ops)
        # all of the nest may need the unit: what makes it stands first
        made = self._makers(self.unit) if self.unit is not None else []
        if not all(any(op is x for x in ops) for op in made):
            raise _Refused
        rest = [op for op in ops if not any(op is x for x in made)]
        return t.Block((*made, *head, *rest))

    def _makers(self, value: t.Value) -> list[t.Op]:
        """The ops behind a positive scalar, in order."""
        op = self._defining(value)
        found: list[t.Op] = []
        for arg in operands(op):
            found += [x for x in self._makers(arg) if x not in found]
        return [*found, op]

    def _scalar(
        self,
        ops: list[t.Op],
        kind: Callable[..., t.Op],
        dtype: DType = F32,
        name: str = "",
        **fields_: object,
    ) -> t.Value:
        value = t.Value(self.numbers.next, t.TileType(dtype), name)
        self.numbers.next += 1
        ops.append(kind(outs=(value,), **fields_))
        return value

    def _block(self, block: t.Block, depth: int) -> t.Block:
        ops: list[t.Op] = []
        for op in block.ops:
            if isinstance(op, t.For):
                body = self._block(op.body, depth + 1)
                carried = tuple(
                    replace(c, initial=self._now(c.initial), next=self._now(c.next))
                    for c in op.carried
                )
                ops.append(replace(op, carried=carried, body=body))
            else:
                self._op(op, ops, depth)
        return t.Block(tuple(ops))

    def _now(self, value: t.Value) -> t.Value:
        return self.alias.get(value.id, value)

    def _op(self, op: t.Op, ops: list[t.Op], depth: int) -> None:
        if isinstance(op, t.If):
            if {v.id for inner in all_ops(t.Block((op,))) for v in operands(inner)} & self.inside:
                raise _Refused
            ops.append(op)
            return
        out = op.outs[0] if op.outs else None
        if out is not None and out.id in self.inside:
            self._member(op, out, ops)
        elif isinstance(op, t.Elementwise) and op.op == "exp" and op.args[0].id in self.inside:
            self._power(op, ops)
        else:
            self._outside(op, ops, depth)

    def _member(self, op: t.Op, out: t.Value, ops: list[t.Op]) -> None:
        """An op whose result is in the circle."""
        if self._behind(out) is not None:
            for value in operands(op):
                if value.id in self.alias:
                    op = _exchanged(op, value, self.alias[value.id])
            ops.append(op)
        elif isinstance(op, t.Constant) and self.unit is not None and not self._unchanged(out):
            plain = self.numbers.fresh(out)
            ops.append(replace(op, outs=(plain,)))
            ops.append(t.Elementwise(outs=(out,), op="div", args=(plain, self.unit), span=op.span))
        elif self.unit is not None and isinstance(op, t.Elementwise):
            (tile,) = (v for v in op.args if v is not self.unit)
            self.alias[out.id] = tile
        else:
            ops.append(op)

    def _outside(self, op: t.Op, ops: list[t.Op], depth: int) -> None:
        """An op beside the circle: what it reads of it is scaled back."""
        touched = [v for v in dict.fromkeys(operands(op)) if v.id in self.inside]
        if isinstance(op, t.Elementwise) and op.op in COMPARISONS:
            others = [v for v in op.args if v.id not in self.inside]
            if all(map(self._unchanged, others)):
                for value in touched:
                    op = _exchanged(op, value, self._now(value))
                ops.append(op)
                return
        for value in touched:
            if self.unit is None:
                continue
            if value.type.rank > 1 and depth and value.id not in self.alias:
                raise _Refused
            plain = self.numbers.fresh(value)
            args = (self._now(value), self.unit)
            ops.append(t.Elementwise(outs=(plain,), op="mul", args=args, span=op.span))
            op = _exchanged(op, value, plain)
        ops.append(op)

    def _unchanged(self, value: t.Value) -> bool:
        """A constant that a positive factor leaves as it is."""
        op = self.definitions.defining.get(value.id)
        if isinstance(op, t.Full):
            return self._unchanged(op.value)
        return isinstance(op, t.Constant) and (op.value == 0 or math.isinf(float(op.value)))

    # ---- powers of two

    def _times(self, value: t.Value, factor: t.Value, ops: list[t.Op]) -> t.Value:
        return self._like(value, ops, t.Elementwise, op="mul", args=(value, factor))

    def _like(self, value: t.Value, ops: list[t.Op], kind: type, **fields_: object) -> t.Value:
        result = replace(self.numbers.fresh(value), name="")
        ops.append(kind(outs=(result,), span=value.span, **fields_))
        return result

    def _product(self, value: t.Value, factor: t.Value, ops: list[t.Op]) -> t.Value:
        """Rounded before anything is added to it: no compiler joins this with a sum."""
        assert self.zero is not None
        return self._like(value, ops, t.Elementwise, op="fma", args=(value, factor, self.zero))

    def _power(self, op: t.Elementwise, ops: list[t.Op]) -> None:
        """`exp` of a value of the circle."""
        assert self.factors is not None
        exact = self.factors[0]
        value = op.args[0]
        inner = self._defining(value)
        if not isinstance(inner, t.Elementwise) or inner.op != "sub":
            argument = self._times(self._now(value), exact, ops)
            ops.append(replace(op, op="exp2", args=(argument,)))
            return
        left, right = map(self._now, inner.args)
        if value.type.rank < 2:
            # in the units of the elements' exponents: equal and neighbouring bounds stay what they are
            factor, reference = self._row(right, ops)
            parts = (self._product(left, factor, ops), reference)
            argument = self._like(value, ops, t.Elementwise, op="add", args=parts)
        else:
            row = self._defining(right)
            if not isinstance(row, t.Rearrange) or row.arg.type.rank != 1:
                raise _Refused
            far, reference = self._anchor(row.arg, ops)
            flag = replace(self.numbers.fresh(right, t.TileType(BOOL, right.type.axes)), name="")
            ops.append(t.Rearrange(outs=(flag,), arg=far, axes=row.axes, span=right.span))
            bound = self._like(right, ops, t.Rearrange, arg=reference, axes=row.axes)
            near = self._like(left, ops, t.Elementwise, op="sub_if", args=(left, right, flag))
            argument = self._like(value, ops, t.Elementwise, op="fma", args=(near, exact, bound))
        ops.append(replace(op, op="exp2", args=(argument,)))

    def _row(self, bound: t.Value, ops: list[t.Op]) -> tuple[t.Value, t.Value]:
        """For each row the factor of its elements, and its negative reference in bits."""
        assert self.factors is not None and self.largest is not None
        known = self.rows.get(bound.id)
        if known is not None and known[0] is ops:
            return known[1:]
        exact, power = self.factors
        flag = self._far(bound, ops)
        factor = self._like(bound, ops, t.Elementwise, op="where", args=(flag, power, exact))
        product = self._product(bound, factor, ops)
        negative = self._like(bound, ops, t.Elementwise, op="neg", args=(product,))
        self.rows[bound.id] = ops, factor, negative
        return factor, negative

    def _anchor(self, bound: t.Value, ops: list[t.Op]) -> tuple[t.Value, t.Value]:
        """For each row whether its bound is far from 0, and the negative reference in bits of elements that the bound is subtracted
        from there."""
        assert self.factors is not None and self.zero is not None
        known = self.anchors.get(bound.id)
        if known is not None and known[0] is ops:
            return known[1:]
        flag = self._far(bound, ops)
        near = self._like(bound, ops, t.Elementwise, op="where", args=(flag, self.zero, bound))
        product = self._product(near, self.factors[0], ops)
        negative = self._like(bound, ops, t.Elementwise, op="neg", args=(product,))
        self.anchors[bound.id] = ops, flag, negative
        return flag, negative

    def _far(self, bound: t.Value, ops: list[t.Op]) -> t.Value:
        assert self.largest is not None
        known = self.flags.get(bound.id)
        if known is not None and known[0] is ops:
            return known[1]
        size = self._like(bound, ops, t.Elementwise, op="abs", args=(bound,))
        flag = replace(self.numbers.fresh(bound, t.TileType(BOOL, bound.type.axes)), name="far")
        ops.append(t.Elementwise(outs=(flag,), op="gt", args=(size, self.largest), span=bound.span))
        self.flags[bound.id] = ops, flag
        return flag


def _exchanged(op: t.Op, old: t.Value, new: t.Value) -> t.Op:
    """The op with another operand."""
    if old is new:
        return op
    (changed,) = exchange(t.Block((op,)), {old.id: new}).ops
    return changed


# --------------------------------------------------------------------------------------------- filling


def _fill(block: t.Block, numbers: Numbers, facts: Facts) -> t.Block:
    """Absent columns of tiles that only a maximum and an exponential read become -inf, where the rows' references never are; a mask
    that holds in no absent column has made them so."""
    definitions = Definitions.of(block)
    wanted: dict[int, t.Value] = {}
    for op in all_ops(block):
        if isinstance(op, t.Elementwise) and op.op == "exp2" and op.args[0].type.rank == 2:
            found = _tile_of(op, definitions)
            if found is not None:
                wanted[found.id] = found
    filled: dict[int, t.Value] = {}

    def walk(inner: t.Block) -> t.Block:
        ops: list[t.Op] = []
        for op in inner.ops:
            if isinstance(op, t.For):
                ops.append(replace(op, body=walk(op.body)))
                continue
            out = op.outs[0] if op.outs else None
            if out is None or out.id not in wanted:
                ops.append(op)
                continue
            axes = (out.type.axes[0], replace(out.type.axes[1], presence=()))
            filled[out.id] = replace(out, type=replace(out.type, axes=axes))
            hidden = _hidden(op, definitions, facts)
            left = tuple(c for c in out.type.axes[1].presence if c not in hidden)
            if hidden and not left:
                ops.append(replace(op, outs=(filled[out.id],)))
                continue
            axes = (out.type.axes[0], replace(out.type.axes[1], presence=left))
            before = numbers.fresh(out, replace(out.type, axes=axes))
            lowest = t.Value(numbers.next, t.TileType(F32), "", op.span)
            numbers.next += 1
            ops.append(replace(op, outs=(before,)))
            ops.append(t.Constant(outs=(lowest,), value=-math.inf, span=op.span))
            ops.append(t.Fill(outs=(out,), arg=before, value=lowest, axes=(1,), span=op.span))
        return t.Block(tuple(ops))

    return present_again(walk(block), filled)


def _hidden(op: t.Op, definitions: Definitions, facts: Facts) -> frozenset[t.Constraint]:
    """What makes columns absent in which an op has made a tile -inf: `where(mask, …, -inf)`, whose mask is false there."""
    if not isinstance(op, t.Elementwise) or op.op != "where":
        return frozenset()
    if not _is_lowest(op.args[2], definitions):
        return frozenset()
    return _implied(op.args[0], op.out.type.axes, definitions, facts)


def _implied(
    mask: t.Value, axes: tuple[t.Axis, ...], definitions: Definitions, facts: Facts
) -> frozenset[t.Constraint]:
    """What makes a tile's columns absent in which a mask, or one of those that must all hold for it, is false."""
    op = definitions.defining.get(mask.id)
    if not isinstance(op, t.Elementwise) or mask.type.rank != 2:
        return frozenset()
    if op.op == "and":
        return frozenset().union(*(_implied(arg, axes, definitions, facts) for arg in op.args))
    return implied_presence(op, axes, 1, definitions, facts)


def _tile_of(op: t.Elementwise, definitions: Definitions) -> t.Value | None:
    """The tile of `exp2(fma(sub_if(tile, …), factor, -reference))` if -inf in it would give 0 and disturb nobody."""
    inner = definitions.defining.get(op.args[0].id)
    if not isinstance(inner, t.Elementwise) or inner.op != "fma":
        return None
    near, _, last = inner.args
    shifted = definitions.defining.get(near.id)
    if not isinstance(shifted, t.Elementwise) or shifted.op != "sub_if":
        return None
    tile = shifted.args[0]
    reference = definitions.defining.get(last.id)
    if not isinstance(reference, t.Rearrange):
        return None
    negative = definitions.defining.get(reference.arg.id)
    if not isinstance(negative, t.Elementwise) or negative.op != "neg":
        return None
    times = definitions.defining.get(negative.args[0].id)
    if not isinstance(times, t.Elementwise):
        return None
    kept = definitions.defining.get(times.args[0].id)
    if not isinstance(kept, t.Elementwise) or not _finite(kept.args[-1], definitions):
        return None
    for user in definitions.users[tile.id]:
        if user is not shifted and not (isinstance(user, t.Reduce) and user.op == "max"):
            return None
    return tile


def _finite(value: t.Value, definitions: Definitions) -> bool:
    """Whether a row's bound is replaced by a number where it is -inf."""
    op = definitions.defining.get(value.id)
    if not isinstance(op, t.Elementwise) or op.op != "where":
        return False
    condition = definitions.defining.get(op.args[0].id)
    chosen = number(definitions, op.args[1])
    return (
        isinstance(condition, t.Elementwise)
        and condition.op == "eq"
        and any(_is_lowest(arg, definitions) for arg in condition.args)
        and op.args[2] in condition.args
        and chosen is not None
        and math.isfinite(chosen)
    )


def _is_lowest(value: t.Value, definitions: Definitions) -> bool:
    return number(definitions, value) == -math.inf
