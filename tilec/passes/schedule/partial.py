"""Sums that a loop adds up row by row stay with the lanes that made them until the loop is done.

    l = l * a + sum(p, axis = 1)     ->     l = l * a + (each lane's own part of the sum)
                                            behind the loop: l = what the lanes of a row hold together

Right where the carried name is used for nothing else, and its factor is the same in all lanes of a row. What the name begins with, if that
is not 0, is carried beside, by the same factors, and added behind the loop.

In nests without products all sums are, over whatever axes, and those of a loop in a loop behind the outer one: no trip waits for what
threads exchange, and loads of the next trips need not either.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeAlias

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL
from tilec.passes.schedule.clone import Numbers, exchange
from tilec.passes.uses import Definitions, all_ops, number


def defer_sums(nest: t.Nest, numbers: Numbers) -> tuple[t.Nest, bool]:
    """The nest with such sums deferred in loops with products; says whether any was."""
    definitions = Definitions.of(nest.body)
    ops: list[t.Op] = []
    done = False
    for op in nest.body.ops:
        if not isinstance(op, t.For) or not any(isinstance(x, t.Dot) for x in all_ops(op.body)):
            ops.append(op)
            continue
        deferred = _deferred(op, definitions, numbers, _sum_into)
        ops += deferred or [op]
        done |= bool(deferred)
    return replace(nest, body=t.Block(tuple(ops))), done


def defer_plain_sums(nest: t.Nest, numbers: Numbers) -> tuple[t.Nest, bool]:
    """A nest without products with all such sums deferred; says whether any was."""
    ops = _plain(nest.body, numbers)
    return (replace(nest, body=t.Block(ops)), True) if ops != nest.body.ops else (nest, False)


def _plain(block: t.Block, numbers: Numbers) -> tuple[t.Op, ...]:
    """The ops of a block with sums of its loops deferred, inner ones first."""
    ops: list[t.Op] = []
    for op in block.ops:
        match op:
            case t.For():
                body = _plain(op.body, numbers)
                loop = op if body == op.body.ops else replace(op, body=t.Block(body))
                definitions = Definitions.of(t.Block((*ops, loop)))
                ops += _deferred(loop, definitions, numbers, _any_sum_into) or [loop]
            case t.If():
                then, otherwise = (_plain(b, numbers) for b in (op.then, op.otherwise))
                same = then == op.then.ops and otherwise == op.otherwise.ops
                branch = replace(op, then=t.Block(then), otherwise=t.Block(otherwise))
                ops.append(op if same else branch)
            case _:
                ops.append(op)
    return tuple(ops)


Found: TypeAlias = "tuple[t.Reduce | t.Combine, t.Elementwise | None] | None"
"""What a loop adds to a carried name, and the product with factors in between."""


def _deferred(
    op: t.For,
    definitions: Definitions,
    numbers: Numbers,
    sum_into: Callable[[t.Carried, t.For, Definitions], Found],
) -> list[t.Op]:
    """The loop with its sums deferred, and what stands around it; [] where it has none."""
    ops: list[t.Op] = []
    partial: set[int] = set()
    carried: list[t.Carried] = []
    behind: list[t.Op] = []
    twins: dict[int, t.Op] = {}
    inner: dict[int, t.Value] = {}
    for c in op.carried:
        found = sum_into(c, op, definitions)
        if found is None:
            carried.append(c)
            continue
        reduce, scaled = found
        partial.add(id(reduce))
        if isinstance(reduce, t.Combine):
            inner[reduce.out.id] = reduce.arg
        held = numbers.fresh(c.result)
        carried.append(replace(c, result=held))
        total = c.result
        if number(definitions, c.initial) != 0:
            total = numbers.fresh(c.result)
            nothing = _nothing if sum_into is _sum_into else _zeros
            carried[-1] = replace(carried[-1], initial=nothing(c.initial, ops, numbers))
            beside = c.initial
            if scaled is not None:
                entry, beside = numbers.fresh(c.entry), numbers.fresh(c.result)
                (twin,) = exchange(t.Block((scaled,)), {c.entry.id: entry}).ops
                twin = replace(twin, outs=(numbers.fresh(scaled.out),))
                twins[id(scaled)] = twin
                carried.append(t.Carried(c.initial, entry, twin.out, beside))
        behind.append(t.Combine(outs=(total,), arg=held, span=reduce.span))
        if total is not c.result:
            args = (total, beside)
            add = t.Elementwise(outs=(c.result,), op="add", args=args, span=reduce.span)
            behind.append(add)
    if not partial:
        return []
    body = t.Block(
        tuple(
            replace(x, partial=True) if isinstance(x, t.Reduce) and id(x) in partial else x
            for op_ in op.body.ops
            for x in ((op_, twins[id(op_)]) if id(op_) in twins else (op_,))
            if not (isinstance(x, t.Combine) and id(x) in partial)
        )
    )
    body = exchange(body, inner) if inner else body
    results = tuple(c.result for c in carried)
    return [*ops, replace(op, outs=results, carried=tuple(carried), body=body), *behind]


def _nothing(value: t.Value, ops: list[t.Op], numbers: Numbers) -> t.Value:
    """Zeros of the rows of a tile."""
    never = t.Value(numbers.next, t.TileType(BOOL), "")
    zero = t.Value(numbers.next + 1, t.TileType(value.type.dtype), "")
    numbers.next += 2
    found = replace(numbers.fresh(value), name="")
    ops += [
        t.Constant(outs=(never,), value=False),
        t.Constant(outs=(zero,), value=0.0),
        t.Elementwise(outs=(found,), op="where", args=(never, value, zero)),
    ]
    return found


def _zeros(value: t.Value, ops: list[t.Op], numbers: Numbers) -> t.Value:
    """Zeros of the extents of a tile."""
    zero = t.Value(numbers.next, t.TileType(value.type.dtype), "")
    numbers.next += 1
    ops.append(t.Constant(outs=(zero,), value=0.0 if value.type.dtype.is_float else 0))
    if not value.type.rank:
        return zero
    found = replace(numbers.fresh(value), name="")
    ops.append(t.Full(outs=(found,), value=zero))
    return found


def _sum_into(carried: t.Carried, loop: t.For, definitions: Definitions) -> Found:
    """The sum of rows that a loop with products adds to a carried name of rows."""
    if carried.entry.type.rank != 1:
        return None
    found = _any_sum_into(carried, loop, definitions)
    if found is None or not isinstance(found[0], t.Reduce):
        return None
    return found if found[0].arg.type.rank == 2 and found[0].axes == (1,) else None


def _any_sum_into(carried: t.Carried, loop: t.For, definitions: Definitions) -> Found:
    """The sum that a loop adds to a carried name, and that nothing else reads."""
    added = definitions.defining.get(carried.next.id)
    if not isinstance(added, t.Elementwise) or added.op != "add":
        return None
    if [u for u in definitions.users[carried.next.id] if u is not loop]:
        return None
    for first, second in (added.args, added.args[::-1]):
        reduce = definitions.defining.get(second.id)
        if not (isinstance(reduce, t.Combine) or is_sum(reduce)):
            continue
        assert isinstance(reduce, t.Combine | t.Reduce)
        if definitions.users[second.id] != [added] or reduce not in loop.body.ops:
            continue
        if first is carried.entry and definitions.users[first.id] == [added]:
            return reduce, None
        scaled = definitions.defining.get(first.id)
        if (
            isinstance(scaled, t.Elementwise)
            and scaled.op == "mul"
            and isinstance(reduce, t.Reduce)
            and definitions.users[first.id] == [added]
            and definitions.users[carried.entry.id] == [scaled]
            and sum(v is carried.entry for v in scaled.args) == 1
        ):
            return reduce, scaled
    return None


def is_sum(op: t.Op | None) -> bool:
    """Whether an op adds up elements of a tile, and all threads have the result."""
    return isinstance(op, t.Reduce) and op.op == "sum" and not op.partial


def leaves_sums(ops: Sequence[t.Op]) -> bool:
    """Whether the loops of a nest with these ops do nothing between threads but leave sums to what stands behind them."""
    inner = [x for op in ops if isinstance(op, t.For) for x in all_ops(op.body)]
    return any(isinstance(op, t.Combine) for op in ops) and not any(
        isinstance(x, t.Scan | t.ReduceWith | t.Combine)
        or (isinstance(x, t.Reduce) and not x.partial)
        for x in inner
    )


def parts_of(value: t.Value, definitions: Definitions) -> t.Reduce:
    """The reduction whose parts a loop has added up in `value`."""
    op = definitions.defining[value.id]
    while not isinstance(op, t.Reduce):
        if isinstance(op, t.For):
            (carried,) = (c for c in op.carried if value in (c.result, c.entry))
            value = carried.next
            entry = carried.entry
        else:
            assert isinstance(op, t.Elementwise), op
            (value, *_) = (a for a in op.args if not _reads(a, entry, definitions))
        op = definitions.defining[value.id]
    return op


def _reads(value: t.Value, entry: t.Value, definitions: Definitions) -> bool:
    """Whether a value is what a loop carries, or that by a factor."""
    op = definitions.defining[value.id]
    scaled = isinstance(op, t.Elementwise) and op.op == "mul" and entry in op.args
    return value is entry or scaled
