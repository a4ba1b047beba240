"""Kernel IR of CTAs that hold a row together: how they meet, what they send each other, and how clusters take one row after the other.

What is stored is there when all threads of the cluster have met. What is sent is counted by a barrier of whoever gets it (PTX ISA,
`st.async`): no thread waits for another one's progress, only for the bytes. `slot` is the slot of a barrier's ring and None where it has one.
"""

from __future__ import annotations

from typing import ClassVar, Literal

from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import DType
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class StoreCluster(k.Op):
    """`shared.buffer[offset] = value` in every CTA of the cluster, by one warp that holds the value in all lanes."""

    buffer: str
    offset: k.Expr
    value: k.Expr

    @property
    def reads(self) -> tuple[str, ...]:
        return k.shared_reads(self.value)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.buffer,)


@dataclass(frozen=True)
class ClusterArrive(k.Op):
    """This thread runs, which `ClusterWait` waits for: shared memory of a CTA is there when its threads are. `memory`: it has read
    and written what it has to, too."""

    memory: bool = False


@dataclass(frozen=True)
class ClusterWait(k.Op):
    """All threads of the cluster have arrived; `memory` as in ClusterArrive. `first`: only in the first turn of a cluster that stays.
    `copied`: threads arrive here too, when what they copied (FillSlice) has landed."""

    memory: bool = False
    first: bool = False
    copied: bool = False


@dataclass(frozen=True)
class ClusterLeave(k.Op):
    """Behind the turns: threads that had none arrive, when what they copied has landed."""


@dataclass(frozen=True)
class FillSlice(k.Op):
    """The vector at `pointer + offset`, on which no turn depends, to the thread's place of the current step in `buffer`; each of the
    CTA's teams copies some steps. Nothing waits."""

    proxy: ClassVar[Literal["none", "generic", "async"]] = "async"
    token: ClassVar[Literal["none", "cp_async", "bulk", "wgmma", "mbarrier"]] = "cp_async"
    buffer: str
    rep: DType
    axis: k.LoopAxis
    pointer: str
    offset: k.Expr


@dataclass(frozen=True)
class LoadSlice(k.Op):
    """The thread's vector of the current step in `buffer` into the current vector of `target`; zeros where a guard fails."""

    target: k.Fragment
    buffer: str
    axis: k.LoopAxis
    guards: tuple[k.Expr, ...] = ()


@dataclass(frozen=True)
class InstanceQueue(k.Op):
    """The body for instance `item`, the number of this cluster first, then for those that the cluster is given: each turn draws the
    next one (DrawItem), tells it to the other CTAs (AnnounceItem) and learns it (TakeItem), `counter` counting what is given out."""

    counter: str
    body: tuple[k.Op, ...]

    @property
    def reads(self) -> tuple[str, ...]:
        return k.collected(self.body, "reads")

    @property
    def writes(self) -> tuple[str, ...]:
        return k.collected(self.body, "writes")


@dataclass(frozen=True)
class DrawItem(k.Op):
    """`drawn` of the cluster's first thread: the next instance that no cluster has. The kernel in front, which clears the counter, has
    ended by then."""

    counter: str


@dataclass(frozen=True)
class AnnounceItem(k.Op):
    """`drawn` to every CTA of the cluster, by its first warp; where there is a `barrier` it counts the bytes; `slot` is
    the barrier's and the instance's of the turn, None where there is one."""

    buffer: str
    barrier: str = ""
    slot: k.Expr | None = None


@dataclass(frozen=True)
class TakeItem(k.Op):
    """`following`: the instance that was announced in this turn."""

    buffer: str
    slot: k.Expr | None = None


@dataclass(frozen=True)
class Near(k.Op):
    """`const name`: what a warp takes for the result of a reduction of which `partial` is its own part, see Relative. "exp": its own,
    0 for -inf; "spread": that of a row all of whose elements are like its own."""

    kind: Literal["exp", "spread"]
    name: str
    partial: k.Fragment
    axis: k.LoopAxis
    extent: k.Expr


@dataclass(frozen=True)
class LaunchDependents(k.Op):
    """The kernel behind this one in the stream may begin; it waits for this one's end where it needs what this one does."""


@dataclass(frozen=True)
class EndWhere(k.Op):
    """The kernel ends at once where the number at `flag`, which a launch in front of it has written, is not zero, or, with `zero`, where it
    is."""

    flag: str
    zero: bool


@dataclass(frozen=True)
class ReadyBarriers(k.Op):
    """One thread of the CTA initialises the kernel's barriers; a cluster's barrier behind it makes them known."""


@dataclass(frozen=True)
class ExpectSent(k.Op):
    """One thread of the CTA announces the bytes that all CTAs send it, for each barrier: its phase ends when they have landed."""

    sent: tuple[tuple[str, k.Index], ...]
    """(barrier, bytes)"""
    slot: k.Expr | None


@dataclass(frozen=True)
class SendCluster(k.Op):
    """`shared.buffer[offset] = value`, of 4 or 8 bytes, in every CTA of the cluster, whose barrier counts it, by one warp that holds
    the value in all lanes. `meets`: its lanes meet before, so that who gets the bytes knows that they have read what they had to."""

    buffer: str
    offset: k.Expr
    value: k.Expr
    barrier: str
    slot: k.Expr | None
    meets: bool = True

    @property
    def reads(self) -> tuple[str, ...]:
        return k.shared_reads(self.value)

    @property
    def writes(self) -> tuple[str, ...]:
        return (self.buffer,)


@dataclass(frozen=True)
class AwaitSent(k.Op):
    """Waits for the phase of this parity; `hazard` as in CtaSync."""

    barrier: str
    slot: k.Expr | None
    parity: k.Expr
    hazard: str
