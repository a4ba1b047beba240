"""Sums that a loop adds up row by row stay with the lanes that made them until the loop is done.

    l = l * a + sum(p, axis = 1)     ->     l = l * a + (each lane's own part of the sum)
                                            behind the loop: l = what the lanes of a row hold together

Right where the carried name begins with 0 and is used for nothing else, and its factor is the same in all lanes of a row.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.passes.schedule.clone import Numbers
from tilec.passes.uses import Definitions, all_ops


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
        for c in op.carried:
            found = _sum_into(c, op, definitions)
            if found is None:
                carried.append(c)
                continue
            partial.add(id(found))
            held = numbers.fresh(c.result)
            carried.append(replace(c, result=held))
            behind.append(t.Combine(outs=(c.result,), arg=held, span=found.span))
        body = tuple(
            replace(x, partial=True) if isinstance(x, t.Reduce) and id(x) in partial else x
            for x in op.body.ops
        )
        results = tuple(c.result for c in carried)
        ops.append(replace(op, outs=results, carried=tuple(carried), body=t.Block(body)))
        ops += behind
        done |= bool(partial)
    return replace(nest, body=t.Block(tuple(ops))), done


def _sum_into(carried: t.Carried, loop: t.For, definitions: Definitions) -> t.Reduce | None:
    """The reduction that a loop adds to a carried name of rows, and that nothing else reads."""
    if carried.entry.type.rank != 1 or not _is_zero(carried.initial, definitions):
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
            return reduce
        scaled = definitions.defining.get(first.id)
        if (
            isinstance(scaled, t.Elementwise)
            and scaled.op == "mul"
            and definitions.users[first.id] == [added]
            and definitions.users[carried.entry.id] == [scaled]
            and sum(v is carried.entry for v in scaled.args) == 1
        ):
            return reduce
    return None


def _is_zero(value: t.Value, definitions: Definitions) -> bool:
    op = definitions.defining.get(value.id)
    if isinstance(op, t.Full):
        return _is_zero(op.value, definitions)
    return isinstance(op, t.Constant) and op.value == 0
