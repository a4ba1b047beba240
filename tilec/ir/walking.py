"""Walking Tile IR: what an op reads, and the ops of nested blocks."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.ir import tile_ir as t


def operands(op: t.Op) -> tuple[t.Value, ...]:
    """Values that an op reads, index tiles included; of a For or If the initial values and the condition only."""
    match op:
        case t.Full():
            return (op.value,)
        case t.Load():
            return index_tiles(op.access)
        case t.Elementwise():
            return op.args
        case (
            t.Cast()
            | t.Bitcast()
            | t.Rearrange()
            | t.Reshape()
            | t.Slice()
            | t.Reduce()
            | t.Combine()
            | t.Scan()
            | t.TopK()
        ):
            return (op.arg,)
        case t.Fill():
            return (op.arg, op.value)
        case t.ReduceWith():
            return op.args
        case t.Dot():
            return (op.a, op.b) if op.accumulate is None else (op.a, op.b, op.accumulate)
        case t.Store() | t.Atomic():
            return (op.value, *index_tiles(op.access))
        case t.For():
            return tuple(c.initial for c in op.carried)
        case t.If() | t.Assert():
            return (op.condition,)
        case t.Print():
            return tuple(p for p in op.parts if isinstance(p, t.Value))
        case _:
            return ()


def index_tiles(access: t.Access) -> tuple[t.Value, ...]:
    """The index tiles of an access."""
    return tuple(term.index for term in access.terms if isinstance(term, t.AtTile))


def all_ops(block: t.Block) -> Iterator[t.Op]:
    """Every op of a block, an outer one before its inner ones."""
    for op in block.ops:
        yield op
        match op:
            case t.For():
                yield from all_ops(op.body)
            case t.If():
                yield from all_ops(op.then)
                yield from all_ops(op.otherwise)
            case _:
                pass
