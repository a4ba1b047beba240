"""Exponentials beside products become powers of two of one multiply-add.

    s = x * scale                            c = scale * log2(e)
    m_new = max(m, max(s))          ->       m_new = max(m, max(x) * c)           m counts in bits from here on
    p = exp(s - m_new)                       p = exp2(min(x * c - m_new, 0))
    a = exp(m - m_new)                       a = exp2(m - m_new)
    … m + log(l)                             … m / log2(e) + log(l)

Everything that an exponential's argument is made of by maxima, sums, selections and scalings takes the factor log2(e), carried
names too; what leaves that circle is divided by it again. One reference is used everywhere, so that its rounding cancels.
x * c - m is one multiply-add, and not zero where x * c is the maximum: clamped at 0, it stays right for rows of any size.
A maximum of products with a positive scalar is the maximum times the scalar.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import F32
from tilec.passes.schedule.clone import Numbers, present_again
from tilec.passes.uses import Definitions, all_ops, operands

LOG2E = math.log2(math.e)
CLOSED = frozenset({"add", "sub", "max", "min", "neg"})
COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})


class _Refused(Exception):
    """The circle is not closed in a way that pays."""


@dataclass
class _Circle:
    """Values that take the factor."""

    nest: t.Nest
    program: t.Program
    numbers: Numbers
    definitions: Definitions
    carried: dict[int, t.Carried] = field(default_factory=dict)
    inside: set[int] = field(default_factory=set)
    loops: dict[int, int] = field(default_factory=dict)

    # ---- which values

    def grow(self, start: list[t.Value]) -> None:
        """Close the circle over what makes the values. Raises _Refused."""
        waiting = list(start)
        while waiting:
            value = waiting.pop()
            if value.id in self.inside:
                continue
            if value.type.dtype != F32:
                raise _Refused
            self.inside.add(value.id)
            waiting += self._behind(value)
            for user in self.definitions.users[value.id]:
                if isinstance(user, t.For):
                    for c in user.carried:
                        if c.next is value:
                            waiting.append(c.entry)

    def _behind(self, value: t.Value) -> list[t.Value]:
        """The values that must take the factor for this one to have it."""
        if value.id in self.carried:
            c = self.carried[value.id]
            return [c.entry, c.next, c.result, c.initial]
        op = self.definitions.defining[value.id]
        match op:
            case t.Elementwise() if op.op in CLOSED:
                return list(op.args)
            case t.Elementwise() if op.op == "where":
                return list(op.args[1:])
            case t.Reduce() if op.op in ("max", "min"):
                return [op.arg]
            case t.Rearrange() | t.Fill():
                return [v for v in operands(op) if v.type.rank or isinstance(op, t.Fill)]
            case t.Full():
                return [op.value]
            case _:
                return []

    # ---- rewriting

    def block(self, block: t.Block, depth: int) -> t.Block:
        """A block with the factor put in and taken out."""
        ops: list[t.Op] = []
        for op in block.ops:
            if isinstance(op, t.For):
                op = replace(op, body=self.block(op.body, depth + 1))
                ops.append(op)
            else:
                self._op(op, ops, depth)
        return t.Block(tuple(ops))

    def _op(self, op: t.Op, ops: list[t.Op], depth: int) -> None:
        if isinstance(op, t.If):
            if {v.id for inner in all_ops(t.Block((op,))) for v in operands(inner)} & self.inside:
                raise _Refused
            ops.append(op)
            return
        out = op.outs[0] if op.outs else None
        if out is not None and out.id in self.inside:
            self._member(op, out, ops)
            return
        if isinstance(op, t.Elementwise) and op.op == "exp" and op.args[0].id in self.inside:
            ops.append(replace(op, op="exp2"))
            return
        touched = [v for v in operands(op) if v.id in self.inside]
        if not touched:
            ops.append(op)
            return
        if isinstance(op, t.Elementwise) and op.op in COMPARISONS:
            others = [v for v in op.args if v.id not in self.inside]
            if all(self._unchanged(v) for v in others):
                ops.append(op)
                return
        for value in touched:
            if value.type.rank > 1 and depth:
                raise _Refused
            plain = self._scaled(value, 1 / LOG2E, ops)
            op = _exchanged(op, value, plain)
        ops.append(op)

    def _member(self, op: t.Op, out: t.Value, ops: list[t.Op]) -> None:
        """An op whose result takes the factor."""
        match op:
            case t.Elementwise() if op.op in CLOSED or op.op == "where":
                ops.append(op)
            case t.Reduce() | t.Rearrange() | t.Fill() | t.Full():
                ops.append(op)
            case t.Constant():
                number = float(op.value)
                ops.append(replace(op, value=number * LOG2E if math.isfinite(number) else number))
            case t.Elementwise() if op.op == "mul" and any(not v.type.rank for v in op.args):
                scalar = next(v for v in op.args if not v.type.rank)
                factor = self._scaled(scalar, LOG2E, ops)
                ops.append(_exchanged(op, scalar, factor))
            case _:
                plain = self.numbers.fresh(out)
                ops.append(replace(op, outs=(plain,)))
                ops.append(self._times(out, plain, LOG2E, ops))

    def _scaled(self, value: t.Value, factor: float, ops: list[t.Op]) -> t.Value:
        result = self.numbers.fresh(value)
        ops.append(self._times(result, value, factor, ops))
        return result

    def _times(self, out: t.Value, value: t.Value, factor: float, ops: list[t.Op]) -> t.Op:
        constant = self.numbers.fresh(value, t.TileType(F32))
        constant = replace(constant, name="")
        ops.append(t.Constant(outs=(constant,), value=factor, span=value.span))
        return t.Elementwise(outs=(out,), op="mul", args=(value, constant), span=value.span)

    def _unchanged(self, value: t.Value) -> bool:
        """A constant that a positive factor leaves as it is."""
        op = self.definitions.defining.get(value.id)
        if isinstance(op, t.Full):
            return self._unchanged(op.value)
        return isinstance(op, t.Constant) and (op.value == 0 or math.isinf(float(op.value)))


def _exchanged(op: t.Op, old: t.Value, new: t.Value) -> t.Op:
    """The op with another operand."""
    match op:
        case t.Elementwise():
            return replace(op, args=tuple(new if v is old else v for v in op.args))
        case t.Cast() | t.Bitcast() | t.Rearrange() | t.Reduce():
            return replace(op, arg=new)
        case t.Fill():
            return replace(
                op, arg=new if op.arg is old else op.arg, value=new if op.value is old else op.value
            )
        case t.Store():
            return replace(op, value=new)
        case _:
            raise _Refused


def fold_exponents(program: t.Program, nest: t.Nest, numbers: Numbers) -> tuple[t.Nest, bool]:
    """The nest with exponentials in loops with products folded; says whether any was."""
    if program.math != "fast":
        return nest, False
    definitions = Definitions.of(nest.body)
    start: list[t.Value] = []
    carried: dict[int, t.Carried] = {}
    for op in all_ops(nest.body):
        if isinstance(op, t.For):
            for c in op.carried:
                carried[c.entry.id] = carried[c.result.id] = c
            if any(isinstance(inner, t.Dot) for inner in all_ops(op.body)):
                start += [
                    inner.args[0]
                    for inner in all_ops(op.body)
                    if isinstance(inner, t.Elementwise) and inner.op == "exp" and inner.args[0].type.rank
                ]
    if not any(value.type.rank == 2 for value in start):
        return nest, False
    circle = _Circle(nest, program, numbers, definitions, carried)
    before = numbers.next
    try:
        circle.grow(start)
        body = circle.block(nest.body, 0)
    except _Refused:
        numbers.next = before
        return nest, False
    bounded: list[t.Value] = []
    body = _clamp(body, definitions, numbers, bounded)
    body = _fill(body, bounded, numbers)
    return replace(nest, body=_pull(body, program, numbers)), True


# ------------------------------------------------------------------------------------------- clamping


def _clamp(
    block: t.Block, definitions: Definitions, numbers: Numbers, bounded: list[t.Value]
) -> t.Block:
    """`exp2(a - b)` of tiles where b is at least a: the difference is not positive, whatever its rounding. Notes each `a` whose `b` is
    never -inf."""
    ops: list[t.Op] = []
    for op in block.ops:
        if isinstance(op, t.For):
            ops.append(replace(op, body=_clamp(op.body, definitions, numbers, bounded)))
            continue
        if isinstance(op, t.Elementwise) and op.op == "exp2" and op.args[0].type.rank == 2:
            inner = definitions.defining.get(op.args[0].id)
            if (
                isinstance(inner, t.Elementwise)
                and inner.op == "sub"
                and _at_least(inner.args[1], inner.args[0], definitions)
            ):
                if _finite(inner.args[1], definitions) and inner.args[0] not in bounded:
                    bounded.append(inner.args[0])
                zero = t.Value(numbers.next, t.TileType(F32), "", op.span)
                numbers.next += 1
                below = replace(numbers.fresh(op.args[0]), name="")
                ops.append(t.Constant(outs=(zero,), value=0.0, span=op.span))
                ops.append(
                    t.Elementwise(outs=(below,), op="min", args=(op.args[0], zero), span=op.span)
                )
                op = replace(op, args=(below,))
        ops.append(op)
    return t.Block(tuple(ops))


def _at_least(bound: t.Value, value: t.Value, definitions: Definitions) -> bool:
    """Whether a row's bound is a maximum that the tile's elements take part in, or replaces one of nothing but -inf."""
    op = definitions.defining.get(bound.id)
    match op:
        case t.Rearrange():
            return _at_least(op.arg, value, definitions)
        case t.Reduce() if op.op == "max":
            return op.arg is value
        case t.Elementwise() if op.op == "max":
            return any(_at_least(arg, value, definitions) for arg in op.args)
        case t.Elementwise() if op.op == "where":
            condition = definitions.defining.get(op.args[0].id)
            if not isinstance(condition, t.Elementwise) or condition.op != "eq":
                return False
            none = any(_is_lowest(arg, definitions) for arg in condition.args)
            return none and op.args[2] in condition.args and _at_least(op.args[2], value, definitions)
        case _:
            return False


def _finite(value: t.Value, definitions: Definitions) -> bool:
    """Whether a row's bound is replaced by a number where it is -inf."""
    op = definitions.defining.get(value.id)
    if isinstance(op, t.Rearrange):
        return _finite(op.arg, definitions)
    if not isinstance(op, t.Elementwise) or op.op != "where":
        return False
    condition = definitions.defining.get(op.args[0].id)
    chosen = definitions.defining.get(op.args[1].id)
    while isinstance(chosen, t.Full):
        chosen = definitions.defining.get(chosen.value.id)
    return (
        isinstance(condition, t.Elementwise)
        and condition.op == "eq"
        and any(_is_lowest(arg, definitions) for arg in condition.args)
        and op.args[2] in condition.args
        and isinstance(chosen, t.Constant)
        and math.isfinite(float(chosen.value))
    )


def _fill(block: t.Block, bounded: list[t.Value], numbers: Numbers) -> t.Block:
    """Absent columns of tiles whose exponentials follow become -inf once: their maximum and their exponential, 0, need no masks."""
    wanted = {v.id for v in bounded}
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
            before = numbers.fresh(out)
            lowest = t.Value(numbers.next, t.TileType(F32), "", op.span)
            numbers.next += 1
            ops.append(replace(op, outs=(before,)))
            ops.append(t.Constant(outs=(lowest,), value=-math.inf, span=op.span))
            axes = (out.type.axes[0], replace(out.type.axes[1], presence=()))
            now = replace(out, type=replace(out.type, axes=axes))
            filled[out.id] = now
            ops.append(t.Fill(outs=(out,), arg=before, value=lowest, axes=(1,), span=op.span))
        return t.Block(tuple(ops))

    return present_again(walk(block), filled)


def _is_lowest(value: t.Value, definitions: Definitions) -> bool:
    op = definitions.defining.get(value.id)
    if isinstance(op, t.Full):
        return _is_lowest(op.value, definitions)
    return isinstance(op, t.Constant) and op.value == -math.inf


# --------------------------------------------------------------------------------------------- maxima


def _pull(block: t.Block, program: t.Program, numbers: Numbers) -> t.Block:
    """Maxima of tiles times a positive scalar: masked first, scaled behind the reduction."""
    definitions = Definitions.of(block)

    def positive(value: t.Value) -> bool:
        op = definitions.defining.get(value.id)
        match op:
            case t.Constant():
                return not isinstance(op.value, bool) and op.value > 0
            case t.Scalar():
                return any(_says_positive(fact, op.name) for fact in program.facts)
            case t.Elementwise() if op.op in ("mul", "div"):
                return all(positive(v) for v in op.args)
            case _:
                return False

    def without(value: t.Value, ops: list[t.Op]) -> tuple[t.Value, t.Value] | None:
        """The tile before a scaling, masked alike, and the scalar."""
        op = definitions.defining.get(value.id)
        match op:
            case t.Elementwise() if op.op == "mul":
                for scalar, tile in (op.args, op.args[::-1]):
                    if not scalar.type.rank and tile.type.rank and positive(scalar):
                        return tile, scalar
            case t.Elementwise() if op.op == "where" and _is_lowest(op.args[2], definitions):
                found = without(op.args[1], ops)
                if found is not None:
                    chosen = replace(numbers.fresh(value), name="")
                    args = (op.args[0], found[0], op.args[2])
                    ops.append(replace(op, outs=(chosen,), args=args))
                    return chosen, found[1]
            case t.Fill() if _is_lowest(op.value, definitions):
                found = without(op.arg, ops)
                if found is not None:
                    whole = replace(numbers.fresh(value), name="")
                    ops.append(replace(op, outs=(whole,), arg=found[0]))
                    return whole, found[1]
            case _:
                pass
        return None

    def walk(inner: t.Block) -> t.Block:
        wanted = {
            op.arg.id
            for op in inner.ops
            if isinstance(op, t.Reduce) and op.op == "max" and op.arg.type.rank == 2
        }
        parts: dict[int, tuple[t.Value, t.Value]] = {}
        ops: list[t.Op] = []
        for op in inner.ops:
            if isinstance(op, t.For):
                ops.append(replace(op, body=walk(op.body)))
                continue
            if op.outs and op.out.id in wanted:
                extra: list[t.Op] = []
                found = without(op.out, extra)
                if found is not None:
                    # masked before it is scaled: one tile for the maximum and for what follows
                    parts[op.out.id] = found
                    ops += extra
                    ops.append(t.Elementwise(outs=op.outs, op="mul", args=found, span=op.span))
                    continue
            if isinstance(op, t.Reduce) and op.arg.id in parts and op.op == "max":
                tile, scalar = parts[op.arg.id]
                most = replace(numbers.fresh(op.out), name="")
                ops.append(replace(op, outs=(most,), arg=tile))
                ops.append(
                    t.Elementwise(outs=(op.out,), op="mul", args=(most, scalar), span=op.span)
                )
                continue
            ops.append(op)
        return t.Block(tuple(ops))

    return walk(block)


def _says_positive(fact: t.HostExpr, name: str) -> bool:
    """Whether a fact, something greater than 0, is a scalar parameter."""
    return isinstance(fact, t.HostScalar) and fact.name == name
