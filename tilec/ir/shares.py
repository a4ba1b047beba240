"""Kernel IR of CTAs of a cluster that share the consumed axis of a product: each adds up its part, and one of them all parts.

loop k_tile from rank in steps of 2
  …                                             acc of this CTA's trips
if (warpgroup % 2 == rank)
  expect_share acc_sums_full                    the bytes that the other CTA's warpgroup sends
  await_share acc_sums_full
  add_share acc += acc_sums
  release_share acc_sums_free                   unless this was the last instance
  …                                             the rest of the instance
else
  barrier_wait acc_sums_free
  send_share acc -> acc_sums
"""

from __future__ import annotations

from tilec.ir.kernel_expressions import Expr
from tilec.ir.kernel_ir import Fragment, Op
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class ExpectShare(Op):
    """One thread of a warpgroup announces the bytes that another CTA sends it."""

    barrier: str
    ring: str
    bytes: int


@dataclass(frozen=True)
class AwaitShare(Op):
    """What another CTA has sent is there, in the phase of the ring's place."""

    barrier: str
    ring: str


@dataclass(frozen=True)
class AddShare(Op):
    """By a warpgroup: adds to its accumulators those that the same warpgroup of another CTA has sent."""

    target: Fragment
    buffer: str


@dataclass(frozen=True)
class ReleaseShare(Op):
    """Each warp tells CTA `rank` that it has read what came from there, where another exchange follows."""

    barrier: str
    ring: str
    rank: Expr


@dataclass(frozen=True)
class SendShare(Op):
    """By a warpgroup: its accumulators to the same warpgroup of CTA `rank`, whose barrier counts the bytes."""

    source: Fragment
    buffer: str
    rank: Expr
    barrier: str
    ring: str
