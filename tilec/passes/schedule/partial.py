"""Sums that a loop adds up row by row stay with the lanes that made them until the loop is done.

    l = l * a + sum(p, axis = 1)     ->     l = l * a + (each lane's own part of the sum)
                                            behind the loop: l = what the lanes of a row hold together

Right where the carried name is used for nothing else, and its factor is the same in all lanes of a row. What the name begins with, if that
is not 0, is carried beside, by the same factors, and added behind the loop.
"""

from __future__ import annotations

from dataclasses import replace

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
        partial: set[int] = set()
        carried: list[t.Carried] = []
        behind: list[t.Op] = []
        twins: dict[int, t.Op] = {}
        for c in op.carried:
            found = _sum_into(c, op, definitions)
            if found is None:
                carried.append(c)
                continue
            reduce, scaled = found
            partial.add(id(reduce))
            held = numbers.fresh(c.result)
            carried.append(replace(c, result=held))
            total = c.result
            if number(definitions, c.initial) != 0:
                total = numbers.fresh(c.result)
                carried[-1] = replace(carried[-1], initial=_nothing(c.initial, ops, numbers))
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
        body = tuple(
            replace(x, partial=True) if isinstance(x, t.Reduce) and id(x) in partial else x
            for op_ in op.body.ops
            for x in ((op_, twins[id(op_)]) if id(op_) in twins else (op_,))
        )
        results = tuple(c.result for c in carried)
        ops.append(replace(op, outs=results, carried=tuple(carried), body=t.Block(body)))
        ops += behind
        done |= bool(partial)
    return replace(nest, body=t.Block(tuple(ops))), done


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


def _sum_into(
    carried: t.Carried, loop: t.For, definitions: Definitions
) -> tuple[t.Reduce, t.Elementwise | None] | None:
    """The reduction that a loop adds to a carried name of rows, and that nothing else reads; and the product with factors in between."""
    if carried.entry.type.rank != 1:
        return None
    added = definitions.defining.get(carried.next.id)
    if not isinstance(added, t.Elementwise) or added.op != "add":
        return None
    if [u for u in definitions.users[carried.next.id] if u is not loop]:
        return None
    for first, second in (added.args, added.args[::-1]):
        reduce = definitions.defining.get(second.id)
        if not isinstance(reduce, t.Reduce) or reduce.op != "sum" or reduce.arg.type.rank != 2:
            continue
        if (
            reduce.axes != (1,)
            or definitions.users[second.id] != [added]
            or reduce not in loop.body.ops
        ):
            continue
        if first is carried.entry and definitions.users[first.id] == [added]:
            return reduce, None
        scaled = definitions.defining.get(first.id)
        if (
            isinstance(scaled, t.Elementwise)
            and scaled.op == "mul"
            and definitions.users[first.id] == [added]
            and definitions.users[carried.entry.id] == [scaled]
            and sum(v is carried.entry for v in scaled.args) == 1
        ):
            return reduce, scaled
    return None
