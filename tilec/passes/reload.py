"""Operands that are loaded again where they are known already are loaded once.

    a = load q[b, h, i, :]                        a = load q[b, h, i, :]
    for j in range(N by BN): … a @ k[j] …         for j in range(N by BN): … a @ k[j] …
    b = load q[b, h, i, :]                  ->    for j in range(S by BN): … a @ n[j] …
    for j in range(S by BN): … b @ n[j] …

Each loop of a nest brings in front of it what it multiplies (`hoist`). Tiles that only products read have no registers that would be taken
from what is between.

`apart` is for engines that read a tile in shared memory along one of its axes: one that products consume along both is loaded for each, and
rings see that the second is in the slots of the first.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.passes.products import origin_of
from tilec.passes.schedule.clone import Numbers, exchange
from tilec.passes.uses import Definitions, all_ops, is_multiplied


def run(block: t.Block) -> t.Block:
    """A nest's body without second loads of operands beside each other."""
    written = {op.access.tensor for op in all_ops(block) if isinstance(op, t.Store | t.Atomic)}
    again: dict[int, t.Value] = {}
    block = _once(block, Definitions.of(block), written, again)
    return exchange(block, again) if again else block


def _once(
    block: t.Block, definitions: Definitions, written: set[str], again: dict[int, t.Value]
) -> t.Block:
    """The block, and those inside of it, without them; `again` gets what stands for each."""
    first: dict[tuple[t.Access, t.TileType], t.Value] = {}
    ops: list[t.Op] = []
    for op in block.ops:
        match op:
            case t.Load() if op.access.tensor not in written:
                if is_multiplied(op.out, definitions):
                    known = first.setdefault((op.access, op.out.type), op.out)
                    if known is not op.out:
                        again[op.out.id] = known
                        continue
            case t.For():
                op = replace(op, body=_once(op.body, definitions, written, again))
            case t.If():
                then, otherwise = (
                    _once(b, definitions, written, again) for b in (op.then, op.otherwise)
                )
                op = replace(op, then=then, otherwise=otherwise)
            case _:
                pass
        ops.append(op)
    return replace(block, ops=tuple(ops))


def apart(block: t.Block) -> t.Block:
    """A nest's body in which products consume each loaded tile along one of its axes."""
    definitions = Definitions.of(block)
    consumed: dict[int, list[int]] = {}
    for op in all_ops(block):
        for base, axis in _consumed(op, definitions):
            if isinstance(definitions.defining.get(base.id), t.Load):
                consumed.setdefault(base.id, []).append(axis)
    first = {number: axes[0] for number, axes in consumed.items() if len(set(axes)) > 1}
    return _apart(block, definitions, first, Numbers([t.Nest((), block)]), {}) if first else block


def _consumed(op: t.Op, definitions: Definitions) -> tuple[tuple[t.Value, int], ...]:
    """Of the operands of a product what they are transpositions of, and which axis of that it consumes."""
    if not isinstance(op, t.Dot) or op.out.type.rank != 2:
        return ()
    return origin_of(op.a, 1, definitions), origin_of(op.b, 0, definitions)


def _apart(
    block: t.Block,
    definitions: Definitions,
    first: Mapping[int, int],
    numbers: Numbers,
    twins: dict[int, t.Value],
) -> t.Block:
    """The block; `first` says along which axis its first product consumes a tile, `twins` gets what the others read in place of it."""
    ops: list[t.Op] = []
    for op in block.ops:
        if isinstance(op, t.For):
            op = replace(op, body=_apart(op.body, definitions, first, numbers, twins))
        elif isinstance(op, t.If):
            then, otherwise = (
                _apart(b, definitions, first, numbers, twins) for b in (op.then, op.otherwise)
            )
            op = replace(op, then=then, otherwise=otherwise)
        elif isinstance(op, t.Dot):
            read = [op.a, op.b]
            for n, (base, axis) in enumerate(_consumed(op, definitions)):
                if first.get(base.id, axis) != axis:
                    read[n] = twins[read[n].id]
            op = replace(op, a=read[0], b=read[1])
        ops.append(op)
        if isinstance(op, t.Load) and op.out.id in first:
            twins[op.out.id] = numbers.fresh(op.out)
            ops.append(replace(op, outs=(twins[op.out.id],)))
        elif isinstance(op, t.Rearrange) and op.arg.id in twins:
            twins[op.out.id] = numbers.fresh(op.out)
            ops.append(replace(op, outs=(twins[op.out.id],), arg=twins[op.arg.id]))
    return replace(block, ops=tuple(ops))
