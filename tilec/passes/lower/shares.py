"""A product that CTAs of a cluster share: each runs its trips, then a warpgroup has the sums of all, and does the rest of the instance.

The shared memory of a warpgroup's sums is free when the one that sends them has been told so, and there when all bytes have landed: a pair of
barriers, as of a ring of one slot. Behind the last instance nothing is told any more, so that no CTA waits for the end of another.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.ir import asynchronous as a
from tilec.ir import exchanges as e
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.shares import AddShare, AwaitShare, ExpectShare, ReleaseShare, SendShare
from tilec.ir.symbolic import Sym, Var
from tilec.passes.lower.context import Context
from tilec.passes.splitting import Split
from tilec.targets.occupancy import WARPGROUP

RANK = Sym.of(Var("rank", "local"))
"""Number of the CTA in its cluster."""

VECTOR = 4
"""Sums that one instruction sends."""


class SharedSums:
    """Names of one nest's exchange, and its ops."""

    def __init__(self, context: Context, split: Split):
        self.context = context
        self.split = split
        entry = split.loop.carried[0].entry
        base = context.names.unique(f"{entry.name or 'sum'}_sums")
        unique = context.names.unique
        self.sent, self.added = unique(f"{base}_sent"), unique(f"{base}_added")
        self.full = a.Barrier(unique(f"{base}_full"), 1, 1)
        self.free = a.Barrier(unique(f"{base}_free"), 1, WARPGROUP // 32)
        rep = entry.type.dtype
        self.buffer = k.SharedBuffer(
            base, rep, split.bytes * 8 // rep.bits, "sums of another CTA", vector=VECTOR
        )
        context.shared.append(self.buffer)

    def before(self) -> list[k.Op]:
        """In front of all instances: the other CTAs run, and their barriers are ready."""
        return [
            e.ClusterWait(),
            a.RingDeclare(self.sent, 1, filled=False),
            a.RingDeclare(self.added, 1, filled=True),
        ]

    def trips(self, name: str, trips: k.Expr, body: tuple[k.Op, ...]) -> k.Loop:
        """This CTA's trips of the loop."""
        first = k.Index(RANK, I32)
        return k.Loop(name, trips, body, first, self.split.size, span=self.split.loop.span)

    def number(self) -> Sym:
        """How many trips this CTA has done before one of the loop's."""
        return Sym.of(self.split.loop.index) // self.split.size

    def rest(self, lower: Callable[[], None]) -> None:
        """What `lower` emits, once the sums are there; or send them to the CTA that does it."""
        context = self.context
        sums = context.fragments[self.split.loop.carried[0].result.id]
        outer, context.out = context.out, []
        context.limits.append({})
        lower()
        context.limits.pop()
        rest, context.out = tuple(context.out), outer
        other = k.Index(RANK * -1 + 1, I32)
        full, free = self.full.name, self.free.name
        take = (
            ExpectShare(full, self.added, self.split.bytes),
            AwaitShare(full, self.added),
            AddShare(sums, self.buffer.name),
            ReleaseShare(free, self.added, other),
            a.RingAdvance(self.added),
        )
        give = (
            a.BarrierWait(free, self.sent),
            SendShare(sums, self.buffer.name, other, full, self.sent),
            a.RingAdvance(self.sent),
        )
        # of two warpgroups each CTA finishes one, of one the first CTA
        turn = context.index(Sym.of(Var("warpgroup", "local")) % self.split.size)
        mine = k.Apply("eq", (turn, k.Index(RANK, I32)), BOOL)
        context.out.append(k.IfUniform(mine, (*take, *rest), give, span=self.split.loop.span))


def splits(sums: SharedSums | None, op: t.Op) -> bool:
    """Whether an op is the loop that CTAs share."""
    return sums is not None and op is sums.split.loop
