"""`reduce` with a function of the program: in the order of the coordinates, for it need not commute. A thread folds each of its vectors,
lanes exchange theirs, and every thread folds what the warps left of each step.

    have, mean, count          of a vector: `have` until something was present
    other = lane_xor(mine)     the lower lane's stands left
    mine = combine(left, right) where both have, else the one that has
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.layouts import Digit
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.passes.lower.access import Guards
from tilec.passes.lower.body import Body, apply_elementwise, not_compiled
from tilec.passes.lower.context import THREAD, Context, compute_type, converted
from tilec.passes.lower.reductions import push_partials
from tilec.passes.lower.scans import scanned_digit, step_of, steps_axis


@dataclass(frozen=True)
class _State:
    """Registers of the values that are folded, and whether there is anything in them."""

    parts: tuple[k.Fragment, ...]
    have: k.Fragment

    @property
    def all(self) -> tuple[k.Fragment, ...]:
        """All of them."""
        return (*self.parts, self.have)

    @property
    def values(self) -> list[k.Expr]:
        """The current elements of the values."""
        return [k.Element(part, part.rep) for part in self.parts]


def lower_fold(context: Context, op: t.ReduceWith) -> None:
    """The whole reduction; its results are scalar variables or fragments."""
    coords = context.loop_axes(op.args[0])
    axis = coords[op.axis]
    others = context.ordered(c for n, c in enumerate(coords) if n != op.axis)
    if axis is None:
        own = _declared(context, op, "only", others)
        _walk(context, op, own, coords, ())
        _bind(context, op, own)
        return
    digit = scanned_digit(context, op, axis)
    steps = steps_axis(context, axis)
    state = _declared(context, op, "part", (*others, steps))
    _walk(context, op, state, coords, step_of(steps, axis))
    lanes = min(digit.radix, 32 // digit.divisor) if digit.divisor < 32 else 1
    if lanes > 1:
        _over_lanes(context, op, state, lanes, digit.divisor)
    if digit.radix > lanes or axis.layout.steps > 1:
        total = _declared(context, op, "", others)
        _over_steps(context, op, state, total, axis, digit, digit.radix // lanes)
        state = total
    _bind(context, op, state)


def _declared(
    context: Context, op: t.ReduceWith, word: str, axes: tuple[k.LoopAxis, ...]
) -> _State:
    """Registers for a state, with nothing in them."""
    made: list[k.Fragment] = []
    names = [out.name or "folded" for out in op.outs]
    for name, out in zip(names, op.outs, strict=True):
        full = context.names.unique(f"{name}_{word}" if word else name)
        made.append(k.Fragment(full, compute_type(out.type.dtype), axes))
    have = k.Fragment(context.names.unique(f"{made[0].name}_have"), I32, axes)
    for fragment in (*made, have):
        context.out.append(k.Declare(fragment, k.Literal_(0, fragment.rep), span=op.span))
    return _State(tuple(made), have)


def _walk(
    context: Context,
    op: t.ReduceWith,
    state: _State,
    coords: tuple[k.LoopAxis | None, ...],
    here: tuple[k.Op, ...],
) -> None:
    """Fold each thread's vectors."""
    body = Body(context, context.ordered(coords))
    for arg in op.args:
        body.count(arg)
    elements = [
        converted(body.value(arg, coords), part.rep)
        for arg, part in zip(op.args, state.parts, strict=True)
    ]
    guards = Guards()
    for arg in op.args:
        guards.add(body.reduced_guards(arg, coords, (op.axis,)))
    body.prelude += here
    ops: list[k.Op] = []
    news = [_named(context, ops, "element", e) for e in elements]
    _fold_in(context, op, state, news, None, ops)
    body.elements += [one for one in ops if isinstance(one, k.Let)]
    body.finish(guards, [one for one in ops if not isinstance(one, k.Let)], [], op.span)


def _over_lanes(context: Context, op: t.ReduceWith, state: _State, lanes: int, stride: int) -> None:
    """The lanes of a warp exchange what they have; each gets the same."""
    name = context.names.unique("exchange")
    ops: list[k.Op] = []
    distance = _named(
        context, ops, "distance",
        k.Apply("shl", (k.Literal_(stride, I32), k.Local(name, I32)), I32),
    )  # fmt: skip
    others = [
        _named(context, ops, "other", k.Apply("lane_xor", (k.Element(f, f.rep), distance), f.rep))
        for f in state.all
    ]
    bit = k.Apply("and", (k.Index(THREAD, I32), distance), I32)
    upper = _named(context, ops, "upper", k.Apply("ne", (bit, k.Literal_(0, I32)), BOOL))
    mine = [k.Element(f, f.rep) for f in state.all]
    left = [_chosen(context, ops, "left", upper, b, a) for a, b in zip(mine, others, strict=True)]
    right = [_chosen(context, ops, "right", upper, a, b) for a, b in zip(mine, others, strict=True)]
    combined = _combined(context, op, left[:-1], right[:-1], ops)
    both = _named(
        context,
        ops,
        "both",
        k.Apply("ne", (k.Apply("and", (left[-1], right[-1]), I32), k.Literal_(0, I32)), BOOL),
    )
    first = k.Apply("ne", (left[-1], k.Literal_(0, I32)), BOOL)
    for part, new, a, b in zip(state.parts, combined, left[:-1], right[:-1], strict=True):
        single = k.Apply("where", (first, a, b), part.rep)
        ops.append(k.Assign(part, k.Apply("where", (both, new, single), part.rep)))
    ops.append(k.Assign(state.have, k.Apply("or", (left[-1], right[-1]), I32)))
    rounds = k.Literal_(lanes.bit_length() - 1, I32)
    walk = k.TileLoop(state.have.axes, (), (k.Elements((), tuple(ops)),), span=op.span)
    context.out.append(k.Loop(name, rounds, (walk,), span=op.span))


def _over_steps(
    context: Context,
    op: t.ReduceWith,
    state: _State,
    total: _State,
    axis: k.LoopAxis,
    digit: Digit,
    partials: int,
) -> None:
    """Fold the steps in order, in each what its warps left in shared memory."""
    ops: list[k.Op] = []
    if partials == 1:
        have = k.Element(state.have, I32)
        _fold_in(context, op, total, state.values, have, ops)
        body: tuple[k.Op, ...] = (k.Elements((), tuple(ops)),)
    else:
        name = context.names.unique("warp")
        read: list[k.Expr] = []
        for fragment in state.all:
            left = push_partials(context, "sum", fragment, axis, digit, partials, op.span)
            assert isinstance(left.offset, k.Index) and isinstance(left.stride, k.Literal_)
            place = left.offset.sym + Sym.of(Var(name, "local")) * int(left.stride.value)
            read.append(k.SharedElement(left.buffer, k.Index(place, I32), fragment.rep))
        values = [_named(context, ops, "theirs", value) for value in read]
        _fold_in(context, op, total, values[:-1], values[-1], ops)
        loop = k.Loop(name, k.Literal_(partials, I32), (k.Elements((), tuple(ops)),), span=op.span)
        body = (loop,)
    context.out.append(k.TileLoop(state.have.axes, (), body, span=op.span))


def _fold_in(
    context: Context,
    op: t.ReduceWith,
    state: _State,
    news: list[k.Expr],
    have: k.Expr | None,
    ops: list[k.Op],
) -> None:
    """`state = combine(state, news)`, or `news` where the state has nothing; as it is where `have` says that there are none."""
    combined = _combined(context, op, state.values, news, ops)
    known = k.Apply("ne", (k.Element(state.have, I32), k.Literal_(0, I32)), BOOL)
    some = _named(context, ops, "some", known)
    for part, joined, new in zip(state.parts, combined, news, strict=True):
        value: k.Expr = k.Apply("where", (some, joined, new), part.rep)
        if have is not None:
            present = k.Apply("ne", (have, k.Literal_(0, I32)), BOOL)
            value = k.Apply("where", (present, value, k.Element(part, part.rep)), part.rep)
        ops.append(k.Assign(part, value))
    now = (
        k.Literal_(1, I32)
        if have is None
        else k.Apply("or", (k.Element(state.have, I32), have), I32)
    )
    ops.append(k.Assign(state.have, now))


def _combined(
    context: Context, op: t.ReduceWith, left: list[k.Expr], right: list[k.Expr], ops: list[k.Op]
) -> list[k.Expr]:
    """The function's results for two states, all of them in variables. Raises E0512 for a function that does more than arithmetic."""
    known: dict[int, k.Expr] = {
        value.id: expr for value, expr in zip(op.combine.inputs, [*left, *right], strict=True)
    }

    def of(value: t.Value) -> k.Expr:
        return known[value.id] if value.id in known else context.scalar(value)

    for inner in op.combine.body.ops:
        match inner:
            case t.Elementwise():
                expr = apply_elementwise(context, inner, [of(a) for a in inner.args])
            case t.Cast():
                expr = Body(context, ()).cast(
                    of(inner.arg), inner.arg.type.dtype, inner.out.type.dtype
                )
            case t.Bitcast():
                arg = converted(of(inner.arg), inner.arg.type.dtype)
                expr = k.Apply("bitcast", (arg,), inner.out.type.dtype)
            case t.Constant():
                expr = k.Literal_(inner.value, inner.out.type.dtype)
            case t.FromSym():
                expr = converted(context.index(inner.sym), compute_type(inner.out.type.dtype))
            case t.Scalar():
                expr = k.Local(context.names.spell(inner.name), inner.out.type.dtype)
            case t.Fill():
                expr = of(inner.arg)
            case _:
                raise not_compiled(op, inner.span if inner.span.end else op.span)
        known[inner.out.id] = _named(context, ops, inner.out.name or "value", expr)
    return [
        _named(context, ops, "joined", converted(of(out), compute_type(out.type.dtype)))
        for out in op.combine.outputs
    ]


def _named(context: Context, ops: list[k.Op], word: str, expr: k.Expr) -> k.Expr:
    """A variable for an expression that is one."""
    if isinstance(expr, k.Local | k.Literal_):
        return expr
    name = context.names.unique(word)
    ops.append(k.Let(name, expr.rep, expr))
    return k.Local(name, expr.rep)


def _chosen(
    context: Context, ops: list[k.Op], word: str, condition: k.Expr, a: k.Expr, b: k.Expr
) -> k.Expr:
    return _named(context, ops, word, k.Apply("where", (condition, a, b), a.rep))


def _bind(context: Context, op: t.ReduceWith, state: _State) -> None:
    for out, part in zip(op.outs, state.parts, strict=True):
        if out.type.rank == 0:
            context.bind_scalar(out, k.Local(part.name, part.rep))
        else:
            context.fragments[out.id] = replace(part, axes=context.ordered(context.loop_axes(out)))
