"""How many CTAs of a kernel an SM holds, by the arithmetic of the CUDA occupancy calculator.

Source: `cuda_occupancy.h` of the toolkit describes it; the units are those of the CUDA C++ Programming Guide. Registers
are given to warps in blocks of 256 within a quarter of the SM, shared memory to CTAs in blocks of 128 bytes (256 before
sm_80) with 1 KB more for the system from sm_80 on.
"""

from __future__ import annotations

from typing import Literal

from tilec.lazy_dataclass import dataclass
from tilec.targets.table import Target

Limiter = Literal["registers", "shared memory", "warps", "CTAs", "none"]
"""What holds the number of CTAs down; `none`: every warp slot is taken."""

WARP = 32

WARPGROUP = 128
"""Threads of the four warps whose products are one instruction."""
REGISTER_UNIT = 256
"""Registers that a warp is given at a time."""
SHARED_RESERVE = 1024
"""Shared memory that the system keeps for each resident CTA (CUDA C++ Programming Guide)."""
PARTITIONS = 4
"""Parts of an SM with register files of their own."""


@dataclass(frozen=True)
class Occupancy:
    """`ctas` resident on an SM with `warps` in all; `share` of the warp slots; `limits` is the number of CTAs that each resource
    alone would allow."""

    ctas: int
    warps: int
    share: float
    limiter: Limiter
    limits: dict[str, int]


def occupancy(target: Target, threads: int, registers: int, shared: int) -> Occupancy:
    """For CTAs of `threads` with `registers` a thread and `shared` bytes, static and dynamic. 0 CTAs where one does not fit."""
    warps = -(-threads // WARP)
    slots = target.threads_per_sm // WARP
    limits = {
        "registers": _by_registers(target, warps, registers),
        "shared memory": _by_shared(target, shared),
        "warps": slots // warps,
        "CTAs": target.blocks_per_sm,
    }
    ctas = min(limits.values())
    limiter: Limiter = "none"
    if ctas * warps < slots:
        names: tuple[Limiter, ...] = ("registers", "shared memory", "warps", "CTAs")
        limiter = next(name for name in names if limits[name] == ctas)
    return Occupancy(ctas, ctas * warps, ctas * warps / slots, limiter, limits)


def warps_by_registers(target: Target, registers: int) -> int:
    """Warps of threads with `registers` that the registers of an SM are enough for."""
    for_warp = -(-max(1, registers) * WARP // REGISTER_UNIT) * REGISTER_UNIT
    return target.registers_per_sm // PARTITIONS // for_warp * PARTITIONS


def _by_registers(target: Target, warps: int, registers: int) -> int:
    if registers > target.registers_per_thread:
        return 0
    return warps_by_registers(target, registers) // warps


def _by_shared(target: Target, shared: int) -> int:
    unit, reserved = (128, 1024) if target.compute >= 80 else (256, 0)
    needed = -(-(shared + reserved) // unit) * unit
    if shared > target.shared_per_block_optin:
        return 0
    return target.shared_per_sm // needed if needed else target.blocks_per_sm
