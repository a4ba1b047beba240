"""The order of a body's ops: what is done once a row comes as soon as it can, in front of what is done for each element.

x = sub_if(s, m_new, far)           x = sub_if(s, m_new, far)           a rare subtraction, which is a branch, then
p = exp2(x * c - r)                 a = exp2(m * c - m_new * c)         the few long functions of rows,
a = exp2(m * c - m_new * c)   ->    p = exp2(x * c - r)                 and what waits for them runs beside the others
acc = acc * a                       acc = acc * a
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.passes.retire import LONG
from tilec.passes.uses import operands, syms_of


def rows_first(block: t.Block) -> t.Block:
    """The block with its ops so ordered, loops and rare branches inside too. Ops with effects keep their order."""
    ops: list[t.Op] = []
    for op in block.ops:
        if isinstance(op, t.For):
            op = replace(op, body=rows_first(op.body))
        elif isinstance(op, t.If) and op.rare:
            op = replace(op, then=rows_first(op.then))
        ops.append(op)
    home = {v.id: n for n, op in enumerate(ops) for v in op.outs}
    needs: list[set[int]] = []
    for op in ops:
        read = [v.id for v in operands(op)]
        for sym in syms_of(op):
            read += [v.key for v in sym.variables if v.kind == "value"]
        if isinstance(op, t.For):
            read += [v for inner in op.body.ops for v in _read(inner)]
        needs.append({home[v] for v in read if v in home})
    last = -1
    for n, op in enumerate(ops):
        if _moves(op):
            continue
        # what has an effect stays where it is: behind all that stood in front of it, in front of all that stood behind
        needs[n] |= set(range(last + 1, n)) | ({last} if last >= 0 else set())
        for m in range(n + 1, len(ops)):
            needs[m].add(n)
        last = n
    early = {v.id for op in ops if _is_branch(op) for v in operands(op)}
    done: set[int] = set()
    order: list[int] = []
    while len(order) < len(ops):
        ready = [n for n in range(len(ops)) if n not in done and needs[n] <= done]
        chosen = min(ready, key=lambda n: (_rank(ops[n], early), n))
        done.add(chosen)
        order.append(chosen)
    return t.Block(tuple(ops[n] for n in order))


def _read(op: t.Op) -> list[int]:
    found = [v.id for v in operands(op)]
    for sym in syms_of(op):
        found += [v.key for v in sym.variables if v.kind == "value"]
    if isinstance(op, t.For):
        found += [v for inner in op.body.ops for v in _read(inner)]
        found += [c.next.id for c in op.carried]
    return found


def _moves(op: t.Op) -> bool:
    return isinstance(
        op,
        t.Elementwise | t.Cast | t.Bitcast | t.Rearrange | t.Fill | t.Full | t.Iota | t.Constant
        | t.FromSym | t.Scalar | t.Reduce | t.Survivors | t.Survivor,
    )  # fmt: skip


def _rank(op: t.Op, early: set[int]) -> int:
    """The lower, the sooner. `early`: what branches read."""
    if _is_branch(op) or (isinstance(op, t.Rearrange) and op.out.id in early):
        return 0
    if not _is_row(op):
        return 3
    return 2 if isinstance(op, t.Elementwise) and op.op in LONG else 1


def _is_branch(op: t.Op) -> bool:
    """A rare subtraction is a branch: in front of it runs what may beside products, and what follows it is one block."""
    return isinstance(op, t.Elementwise) and op.op == "sub_if"


def _is_row(op: t.Op) -> bool:
    """Whether an op makes scalars or rows from such, so that it may come first."""
    kinds = t.Elementwise | t.Cast | t.Rearrange | t.Constant | t.Full | t.Survivor
    return isinstance(op, kinds) and all(v.type.rank < 2 for v in (*op.outs, *operands(op)))
