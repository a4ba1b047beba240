"""Stores move down to the next op that could see them, so that neighbouring ones share one walk of the registers.

    store residual[r, :] = h                 inv = rsqrt(sum(h * h) / C + eps)
    inv = rsqrt(sum(h * h) / C + eps)   ->   store residual[r, :] = h
    store y[r, :] = h * inv * w              store y[r, :] = h * inv * w

A store stays above any access of its tensor and above loops, branches, prints and asserts.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import tile_ir as t


def run(block: t.Block) -> t.Block:
    """The block with its stores, and those of its inner blocks, moved down."""
    result: list[t.Op] = []
    pending: list[t.Store] = []

    def flush(which: list[t.Store]) -> None:
        result.extend(which)
        for op in which:
            pending.remove(op)

    for op in block.ops:
        match op:
            case t.Store():
                flush([p for p in pending if p.access.tensor == op.access.tensor])
                pending.append(op)
            case t.Load():
                if any(p.access.tensor == op.access.tensor for p in pending):
                    flush(list(pending))
                result.append(op)
            case t.For():
                flush(list(pending))
                result.append(replace(op, body=run(op.body)))
            case t.If():
                flush(list(pending))
                result.append(replace(op, then=run(op.then), otherwise=run(op.otherwise)))
            case t.Atomic() | t.Print() | t.Assert():
                flush(list(pending))
                result.append(op)
            case _:
                result.append(op)
    flush(list(pending))
    return t.Block(tuple(result))
