"""Where the numerics table allows more than one rounding of a result: functions whose results flow only into stores or products of 16
bits or fewer, and operands of products that a loop rescales."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import DType
from tilec.reference.tiles import Tile


def at_any_scale(given: Tile, rounded: Tile, dtype: DType) -> Tile:
    """A conversion to a float whose operand may have another scale while it is rounded: off by half an ulp, wherever in its binade the
    element then lies."""
    error = np.zeros(given.data.shape) if given.error is None else given.error
    with np.errstate(all="ignore"):
        size = np.abs(np.asarray(given.data, np.float64)) + error
        total = error + size * (dtype.epsilon / 2)
        total = np.where(np.isfinite(rounded.data), total, 0.0)
    known = 0.0 if rounded.error is None else rounded.error
    return Tile(rounded.data, rounded.present, np.maximum(total, known), rounded.spread)


def narrow_values(program: ir.Program) -> frozenset[int]:
    """Ids of float values each of whose uses ends, through element-wise ops, in a conversion to 16 bits or fewer, a store to or a
    product of such a type. What reaches nothing outside of the program is no use."""
    uses: dict[int, list[ir.Op | None]] = defaultdict(list)
    live = _live(program)
    for nest in program.nests:
        _collect(nest.body, uses, live)
    known: dict[int, bool] = {}

    def narrow(value: ir.Value) -> bool:
        if value.id not in known:
            known[value.id] = False
            users = uses[value.id]
            known[value.id] = bool(users) and all(accepts(op, value) for op in users)
        return known[value.id]

    def accepts(op: ir.Op | None, value: ir.Value) -> bool:
        match op:
            case ir.Cast():
                return op.out.type.dtype.is_float and op.out.type.dtype.bits <= 16
            case ir.Store():
                return value.type.dtype.bits <= 16
            case ir.Dot():
                return value.type.dtype.bits <= 16 and op.accumulate is not value
            case ir.Elementwise():
                return op.out.type.dtype.is_float and narrow(op.out)
            case ir.Rearrange() | ir.Reshape() | ir.Slice() | ir.Fill():
                return narrow(op.out)
            case _:
                return False

    every = [v for ops in uses.values() for op in ops if op is not None for v in op.outs]
    return frozenset(v.id for v in every if v.type.dtype.is_float and narrow(v))


def _live(program: ir.Program) -> set[int]:
    """Ids of the values that a store, a message or a branch depends on."""
    live: set[int] = set()
    known = -1
    while known < len(live):
        known = len(live)
        for nest in reversed(program.nests):
            _mark(nest.body, live)
    return live


def _mark(block: ir.Block, live: set[int]) -> None:
    """Adds what the live ops of a block read, from its end."""
    for op in reversed(block.ops):
        if not op.outs or any(v.id in live for v in op.outs) or isinstance(op, ir.For | ir.If):
            live.update(v.id for v in operands(op))
        match op:
            case ir.For():
                for carried in op.carried:
                    if carried.result.id in live or carried.entry.id in live:
                        live |= {carried.initial.id, carried.next.id}
                _mark(op.body, live)
            case ir.If():
                for merge in op.merges:
                    if merge.result.id in live:
                        live |= {merge.then.id, merge.otherwise.id}
                _mark(op.then, live)
                _mark(op.otherwise, live)
            case ir.ReduceWith():
                live.update(v.id for v in op.combine.outputs)
                _mark(op.combine.body, live)
            case _:
                pass


def _collect(block: ir.Block, uses: dict[int, list[ir.Op | None]], live: set[int]) -> None:
    """Users of every value; None stands for a use that is no op's operand."""
    for op in block.ops:
        if (
            op.outs
            and not any(v.id in live for v in op.outs)
            and not isinstance(op, ir.For | ir.If)
        ):
            continue
        for value in operands(op):
            uses[value.id].append(op)
        match op:
            case ir.For():
                _collect(op.body, uses, live)
                for carried in op.carried:
                    if carried.next.id in live:
                        uses[carried.initial.id].append(None)
                        uses[carried.next.id].append(None)
            case ir.If():
                _collect(op.then, uses, live)
                _collect(op.otherwise, uses, live)
                for merge in op.merges:
                    if merge.result.id in live:
                        uses[merge.then.id].append(None)
                        uses[merge.otherwise.id].append(None)
            case ir.ReduceWith():
                _collect(op.combine.body, uses, live)
                for value in op.combine.outputs:
                    uses[value.id].append(None)
            case _:
                pass


def operands(op: ir.Op) -> Iterable[ir.Value]:
    """Values that an op reads itself, those of its blocks and Syms excepted."""
    match op:
        case ir.Full():
            return (op.value,)
        case ir.Load():
            return _indices(op.access)
        case ir.Store() | ir.Atomic():
            return (op.value, *_indices(op.access))
        case ir.Elementwise() | ir.ReduceWith():
            return op.args
        case ir.Fill():
            return (op.arg, op.value)
        case (
            ir.Cast()
            | ir.Bitcast()
            | ir.Rearrange()
            | ir.Reshape()
            | ir.Slice()
            | ir.Reduce()
            | ir.Combine()
            | ir.Scan()
            | ir.TopK()
        ):
            return (op.arg,)
        case ir.Dot():
            return (op.a, op.b) if op.accumulate is None else (op.a, op.b, op.accumulate)
        case ir.If():
            return (op.condition,)
        case ir.Assert():
            return (op.condition,)
        case ir.Print():
            return tuple(p for p in op.parts if not isinstance(p, str))
        case _:
            return ()


def _indices(access: ir.Access) -> tuple[ir.Value, ...]:
    return tuple(t.index for t in access.terms if isinstance(t, ir.AtTile))
