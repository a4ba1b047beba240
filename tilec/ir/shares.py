"""Kernel IR of CTAs of a cluster that share the consumed axis of a product: each adds up its part, and one of them all parts.

loop k_tile from rank in steps of 2
  …                                             acc of this CTA's trips
if (warpgroup % 2 == rank)
  add_share acc += acc_sums                      what the other CTA's warpgroup has sent
  …                                             the rest of the instance
else
  send_share acc -> acc_sums
"""

from __future__ import annotations

from tilec.ir.kernel_expressions import Expr
from tilec.ir.kernel_ir import Fragment, Op
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class SendShare(Op):
    """By a warpgroup: its accumulators to the same warpgroup of CTA `rank`, whose barrier `full` counts the bytes, as soon as `free`
    says that those of the exchange before have been read. `sent` is the place in a ring of one slot."""

    source: Fragment
    buffer: str
    rank: Expr
    full: str
    free: str
    sent: str


@dataclass(frozen=True)
class AddShare(Op):
    """By a warpgroup: adds to its accumulators those of the same warpgroup of CTA `rank`, all `bytes` of them, and tells it that they have
    been read where another exchange may follow. `added` is the place in a ring of one slot."""

    target: Fragment
    buffer: str
    rank: Expr
    bytes: int
    full: str
    free: str
    added: str
