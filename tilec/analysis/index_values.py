"""Whether the elements of an index tile are coordinates of a dimension wherever they are present: what `k // 2` and `j + 3` of a span hold
follows from where the span ends, so that nothing is asked about where it indexes.

    t[k // 2] with a span k of K, t: f32[K // 2], require K % 2 == 0        k < K = 2 * (K // 2), so that k // 2 < K // 2
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym
from tilec.ir.tile_ir import Cast, Constant, Elementwise, FromSym, Full, Iota, Op, Value


def is_coordinate(value: Value, size: Sym, blocks: Iterable[Iterable[Op]], facts: Facts) -> bool:
    """Whether all elements that are present are known to lie in [0, size); `blocks` define what the tile is made of."""
    defining = {out.id: op for block in blocks for op in block for out in op.outs}
    return _below(value, size, defining, facts) and _least(value, Sym.of(0), defining, facts)


def _below(value: Value, limit: Sym, defining: Mapping[int, Op], facts: Facts) -> bool:
    """Whether elements are known to be below a limit."""
    op = defining.get(value.id)
    match op:
        case Iota():
            ends = [op.start + op.out.type.axes[0].extent, *([] if op.hi is None else [op.hi])]
            return any(facts.prove_nonnegative(limit - end) for end in ends)
        case Elementwise("floordiv", (inner, by)) if (number := _number(by, defining)) is not None:
            # u // c < n  where  u < n c
            return number > 0 and _below(inner, limit * number, defining, facts)
        case Elementwise("mod", (_, by)) if (number := _number(by, defining)) is not None:
            return number > 0 and facts.prove_nonnegative(limit - number)
        case Elementwise("add", (inner, by)) if (number := _number(by, defining)) is not None:
            return _below(inner, limit - number, defining, facts)
        case _:
            return False


def _least(value: Value, limit: Sym, defining: Mapping[int, Op], facts: Facts) -> bool:
    """Whether elements are known not to be below a limit."""
    op = defining.get(value.id)
    match op:
        case Iota():
            starts = [op.start, *([] if op.lo is None else [op.lo])]
            return any(facts.prove_nonnegative(start - limit) for start in starts)
        case Elementwise("floordiv", (inner, by)) if (number := _number(by, defining)) is not None:
            return number > 0 and _least(inner, limit * number, defining, facts)
        case Elementwise("mod", (_, by)) if (number := _number(by, defining)) is not None:
            return number > 0 and facts.prove_nonnegative(-limit)
        case Elementwise("add", (inner, by)) if (number := _number(by, defining)) is not None:
            return _least(inner, limit - number, defining, facts)
        case _:
            return False


def _number(value: Value, defining: Mapping[int, Op]) -> int | None:
    """The integer that a value is everywhere."""
    op = defining.get(value.id)
    while isinstance(op, Full | Cast):
        op = defining.get(op.value.id if isinstance(op, Full) else op.arg.id)
    if isinstance(op, Constant) and isinstance(op.value, int):
        return int(op.value)
    return op.sym.constant if isinstance(op, FromSym) else None
