"""Branches that only choose between scalars become selections: bounds of loops and addresses then are sums and choices that every role
can work out for itself.

    end = S                                       end = where(causal != 0, min(S, i.stop), S)
    if causal != 0:                        ->
        end = min(S, i.stop)

Loads stay in their branches: a place that is out of range there need not be asked about elsewhere.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.passes.uses import all_ops

MOST = 16
"""Ops of both branches: more are not worth computing where they are not asked for."""

_PURE = (t.Elementwise, t.Cast, t.Bitcast, t.Constant, t.FromSym, t.Scalar)


def run(block: t.Block) -> t.Block:
    """The block with selections in place of such branches, innermost first."""
    ops: list[t.Op] = []
    for op in block.ops:
        match op:
            case t.For():
                ops.append(replace(op, body=run(op.body)))
            case t.If():
                branch = replace(op, then=run(op.then), otherwise=run(op.otherwise))
                ops += _selected(branch) if _chooses(branch) else [branch]
            case _:
                ops.append(op)
    return t.Block(tuple(ops))


def _chooses(branch: t.If) -> bool:
    inner = [*all_ops(branch.then), *all_ops(branch.otherwise)]
    pure = all(isinstance(op, _PURE) and not op.out.type.rank for op in inner)
    return (
        pure
        and len(inner) <= MOST
        and bool(branch.merges)
        and not any(merge.result.type.rank for merge in branch.merges)
    )


def _selected(branch: t.If) -> list[t.Op]:
    chosen = [
        t.Elementwise(
            outs=(merge.result,),
            op="where",
            args=(branch.condition, merge.then, merge.otherwise),
            span=branch.span,
        )
        for merge in branch.merges
    ]
    return [*branch.then.ops, *branch.otherwise.ops, *chosen]
