"""Loop-invariant tiles move in front of their loop.

    for j in range(0 : S by BN):                 qi = load q[b, h, i, :]
        s = dot(load q[b, h, i, :], …)     ->    for j in range(0 : S by BN):
                                                     s = dot(qi, …)

Loads move only from tensors that the nest does not write, and only where their scalar subscripts come from sizes and
loops (a subscript read from memory could be out of range where the loop has no trip).
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.passes.uses import all_ops, operands, syms_of


def run(block: t.Block) -> t.Block:
    """The block with invariant ops hoisted out of its loops, innermost first."""
    written = {op.access.tensor for op in all_ops(block) if isinstance(op, t.Store | t.Atomic)}
    return _block(block, written)


def _block(block: t.Block, written: set[str]) -> t.Block:
    ops: list[t.Op] = []
    for op in block.ops:
        match op:
            case t.For():
                body = _block(op.body, written)
                moved, kept = _split(op, body, written)
                ops += moved
                ops.append(replace(op, body=t.Block(tuple(kept))))
            case t.If():
                ops.append(
                    replace(
                        op, then=_block(op.then, written), otherwise=_block(op.otherwise, written)
                    )
                )
            case _:
                ops.append(op)
    return t.Block(tuple(ops))


def _split(loop: t.For, body: t.Block, written: set[str]) -> tuple[list[t.Op], list[t.Op]]:
    """Ops of the body that do not depend on the loop, and the rest."""
    inside: set[int] = {c.entry.id for c in loop.carried}
    for op in all_ops(body):
        inside |= {v.id for v in op.outs}
    moved: list[t.Op] = []
    kept: list[t.Op] = []
    for op in body.ops:
        if _movable(op, written) and not _depends(op, loop, inside):
            moved.append(op)
            inside -= {v.id for v in op.outs}
        else:
            kept.append(op)
    return moved, kept


def _movable(op: t.Op, written: set[str]) -> bool:
    match op:
        case t.Load():
            scalars = [term.index for term in op.access.terms if isinstance(term, t.AtScalar)]
            known = all(v.kind != "value" for s in scalars for v in s.variables)
            return op.access.tensor not in written and known
        case (
            t.Constant() | t.FromSym() | t.Scalar() | t.Iota() | t.Full() | t.Cast() | t.Rearrange()
        ):
            return True
        case t.Elementwise() | t.Bitcast() | t.Fill():
            return True
        case _:
            return False


def _depends(op: t.Op, loop: t.For, inside: set[int]) -> bool:
    if any(v.id in inside for v in operands(op)):
        return True
    for sym in syms_of(op):
        for var in sym.variables:
            if var == loop.index or (var.kind == "value" and var.key in inside):
                return True
            if var.kind == "trip" and var in _inner_trips(loop):
                return True
    return False


def _inner_trips(loop: t.For) -> set[object]:
    return {op.index for op in all_ops(loop.body) if isinstance(op, t.For)}
