"""Which accumulators are never in registers together: those of loops one after the other that hand on what they carry, and nothing else.

for j in range(N by BN): s = q @ a[j] … acc += p @ b[j]          s of the first loop and of the second one take the same
for j in range(S by BN): t = q @ k[j] … acc += r @ v[j]          registers, and acc is the first loop's, then the second one's
"""

from __future__ import annotations

from collections.abc import Mapping

from tilec.ir import tile_ir as t
from tilec.passes.uses import Definitions, all_ops, is_multiplied, operands


def loops_in_turn(block: t.Block, origin: Mapping[int, int]) -> dict[int, int]:
    """The number of the loop of a nest's body that a tile is of, by id of the tile that it is a copy of (`origin` as in `Scheduled`): results
    of products, and carried names. {} where there are fewer than two loops with products, or a tile outlives the loop behind it."""
    loops = [op for op in block.ops if isinstance(op, t.For) and _dots(op.body)]
    if len(loops) < 2:
        return {}
    definitions = Definitions.of(block)
    before: set[int] = set()
    for place, op in enumerate(block.ops):
        if isinstance(op, t.For) and any(op is loop for loop in loops[1:]):
            # what the loop begins with it takes over
            later = [x for other in block.ops[place + 1 :] for x in (other, *_inside(other))]
            read = {v.id for x in (*_inside(op), *later) for v in operands(x)}
            kept = (definitions.values[n] for n in before & read)
            if not all(is_multiplied(v, definitions) for v in kept):
                return {}
        before |= {v.id for v in op.outs if _is_tile(v)}
    found: dict[int, int] = {}
    for number, loop in enumerate(loops):
        for dot in _dots(loop.body):
            found[origin.get(dot.out.id, dot.out.id)] = number
        for inner in (loop, *_inside(loop)):
            if isinstance(inner, t.For):
                found |= {c.entry.id: number for c in inner.carried}
    return found


def _is_tile(value: t.Value) -> bool:
    """Whether a value has rows and columns."""
    return value.type.rank == 2 and not any(axis.is_one for axis in value.type.axes)


def _dots(block: t.Block) -> list[t.Dot]:
    return [op for op in all_ops(block) if isinstance(op, t.Dot)]


def _inside(op: t.Op) -> list[t.Op]:
    """The ops of an op's blocks."""
    match op:
        case t.For():
            return list(all_ops(op.body))
        case t.If():
            return [*all_ops(op.then), *all_ops(op.otherwise)]
        case _:
            return []
