"""Slices and reshapes of computed tiles become computations of the part, or of the shape, that is wanted.

    row = load x[r, :]                       row  = load x[r, :]                 for the sum alone
    y   = mul row (rsqrt (sum row))          left = load x[r, span(0, 32)]
    a   = slice y from 0         [32]   ->   a    = mul left (rsqrt (sum row))
    b   = reshape y              [4, 16]     part = load x.1[r, :, :]            x.1 = x.view(R, 4, 16)
                                             b    = mul part (rsqrt (sum row))

What they are made of moves along: each op between them and the loads has a twin beside it, of that part or shape. `eliminate_dead` drops
what nobody needs any more.
"""

from __future__ import annotations

from tilec.passes.reindex.run import run

__all__ = ["run"]
