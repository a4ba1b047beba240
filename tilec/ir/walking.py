"""Walking Tile IR: what an op reads, and the ops of nested blocks."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym, Var


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
        case t.Survivors():
            inside = {v.id for v in own_values(op.survives)}
            read = [v for x in all_ops(op.survives.body) for v in operands(x)]
            read += op.survives.outputs
            return tuple(v for v in dict.fromkeys(read) if v.id not in inside)
        case t.Survivor():
            return (op.of,)
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
            case t.Survivors():
                yield from all_ops(op.survives.body)
            case _:
                pass


def syms_of(op: t.Op) -> Iterator[Sym]:
    """The symbolic integers that an op computes with, those of its access included, nested blocks not; of a question about trips what it
    reads of what is around it."""
    match op:
        case t.FromSym():
            yield op.sym
        case t.Iota():
            yield op.start
            yield from (s for s in (op.lo, op.hi) if s is not None)
        case t.For():
            yield op.trips
        case t.Full():
            for bound in op.bounds:
                if bound is not None:
                    yield from _term_syms(bound)
        case t.Load() | t.Store() | t.Atomic():
            for term in op.access.terms:
                yield from _term_syms(term)
        case t.Survivors():
            yield op.trips
            inside = {v.id for v in own_values(op.survives)}
            read = {v for x in all_ops(op.survives.body) for v in free_variables(x)}
            yield from (Sym.of(v) for v in sorted(read) if v.kind != "value" or v.key not in inside)
        case t.Survivor():
            yield op.number
        case _:
            pass


def _term_syms(term: t.IndexTerm) -> Iterator[Sym]:
    match term:
        case t.AtScalar():
            yield term.index
        case t.AtSpan():
            yield term.start
            yield from (s for s in (term.lo, term.hi) if s is not None)
        case _:
            pass


def free_variables(op: t.Op) -> frozenset[Var]:
    """The variables of an op's symbolic integers."""
    return frozenset(v for sym in syms_of(op) for v in sym.variables)


def variable_of(value: t.Value) -> Var:
    """The variable that stands for an integer scalar in a Sym."""
    return Var(value.name or f"v{value.id}", "value", value.id)


def own_values(region: t.Region) -> Iterator[t.Value]:
    """The values that a region binds or defines."""
    yield from region.inputs
    for op in all_ops(region.body):
        yield from op.outs
