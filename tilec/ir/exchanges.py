"""Kernel IR of what CTAs of a cluster send each other: bytes that the barrier of whoever gets them counts (PTX ISA, `st.async`).

No thread waits for another one's progress, only for the bytes. `slot` is the slot of a barrier's ring and None where it has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from tilec.ir import kernel_ir as k


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
class ReadyBarriers(k.Op):
    """One thread of the CTA initialises the kernel's barriers; a cluster's barrier behind it makes them known."""

    slots: tuple[tuple[str, int], ...]
    """(barrier, slots)"""


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
