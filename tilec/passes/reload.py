"""Operands that are loaded again where they are known already are loaded once.

    a = load q[b, h, i, :]                        a = load q[b, h, i, :]
    for j in range(N by BN): … a @ k[j] …         for j in range(N by BN): … a @ k[j] …
    b = load q[b, h, i, :]                  ->    for j in range(S by BN): … a @ n[j] …
    for j in range(S by BN): … b @ n[j] …

Each loop of a nest brings in front of it what it multiplies (`hoist`). Tiles that only products read have no registers that would be taken
from what is between.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.passes.schedule.clone import exchange
from tilec.passes.uses import Definitions, all_ops, is_multiplied


def run(block: t.Block) -> t.Block:
    """A nest's body without second loads of operands beside each other."""
    definitions = Definitions.of(block)
    written = {op.access.tensor for op in all_ops(block) if isinstance(op, t.Store | t.Atomic)}
    first: dict[tuple[t.Access, t.TileType], t.Value] = {}
    again: dict[int, t.Value] = {}
    ops: list[t.Op] = []
    for op in block.ops:
        if (
            isinstance(op, t.Load)
            and op.access.tensor not in written
            and is_multiplied(op.out, definitions)
        ):
            known = first.setdefault((op.access, op.out.type), op.out)
            if known is not op.out:
                again[op.out.id] = known
                continue
        ops.append(op)
    block = replace(block, ops=tuple(ops))
    return exchange(block, again) if again else block
