"""What a candidate will take, from its launches and the tables alone: to try the promising ones first.

A roofline with the corrections that tell candidates of one kernel apart:

- CTAs come in *waves* of as many as are resident at once; a last wave that is partly full takes as long as a full one.
- Tiles that reach past an edge are computed whole.
- Each instance asks the caches for its tiles: small tiles ask for the same bytes more often.
- What is resident must keep enough bytes under way to cover the latency of memory (Little's law).

It orders, and drops nothing: candidates that share a bound get much the same number.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tilec.compiled import CompiledKernel
from tilec.ir.launch import Launch
from tilec.runtime.arguments import CallSizes
from tilec.runtime.gpu_run import moved_bytes
from tilec.runtime.host import evaluate_sym
from tilec.runtime.launching import concrete_launches
from tilec.runtime.work import product_operations, requested_bytes
from tilec.source.diagnostics import TileError
from tilec.targets.devices import REPRESENTATIVES, Representative
from tilec.targets.occupancy import occupancy
from tilec.targets.table import DEFAULT_ARCH, TARGETS, Target

LAUNCH = 2.0
"""µs between the starts of two kernels that follow each other in a stream, measured."""

LATENCY = 0.8
"""µs from a request to DRAM to its answer, about."""

CACHE = 2.5
"""How many times the bandwidth of DRAM the L2 cache delivers, about."""

SYNCHRONOUS = 0.62
"""Share of the tensor cores' peak that `mma.sync` reaches on a target whose warpgroups have products of their own, measured."""


@dataclass(frozen=True)
class Estimate:
    """`microseconds` of one call; `resident` CTAs on a multiprocessor and `waves` of the launch with the most threads; `bound`
    is what takes longest."""

    microseconds: float
    resident: int
    waves: float
    bound: str


def estimate(kernel: CompiledKernel, arch: str, sizes: CallSizes) -> Estimate | None:
    """One call of a kernel compiled for one architecture; None where it launches nothing, or where its sizes do not fit."""
    target, device = TARGETS[arch], REPRESENTATIVES.get(arch, REPRESENTATIVES[DEFAULT_ARCH])
    plan = kernel.plan
    addresses = {t.name: (n + 1) << 40 for n, t in enumerate(plan.parameters)}
    try:
        launches = concrete_launches(
            plan,
            plan.targets[0],
            sizes,
            addresses,
            1 << 50,
            multiprocessors=device.multiprocessors,
        )
    except TileError:
        return None
    if not launches:
        return None
    planned = {a.kernel: a for step in plan.targets[0].every_step for a in step.launches}
    # copies in front of a launch are not what is chosen among
    largest = max((x for x in launches if x.kernel in planned), key=lambda x: x.grid * x.block)
    resident, under_way = _resident(kernel, arch, target, planned[largest.kernel])
    # CTAs that walk several instances: the instances come in waves all the same
    ctas = max(largest.grid, evaluate_sym(planned[largest.kernel].grid, sizes.environment))
    waves = ctas / (resident * device.multiprocessors)
    uneven = -(-waves // 1) / waves
    parts = _parts(kernel, arch, target, device, sizes, under_way)
    if "L2" in parts:
        # CTAs of a cluster share one of two operands
        parts["L2"] *= (largest.cluster + 1) / (2 * largest.cluster)
    bound = max(parts, key=lambda n: parts[n])
    total = LAUNCH * len(launches) + parts[bound] * uneven
    return Estimate(total, resident, waves, bound)


def _resident(
    kernel: CompiledKernel, arch: str, target: Target, launch: Launch
) -> tuple[int, float]:
    """CTAs on a multiprocessor, and the bytes that they can have under way together."""
    ir = next(k for k in kernel.lowered[arch] if k.name == launch.kernel)
    # the launch bound makes the compiler stay below this
    registers = target.registers_per_sm // (ir.threads * max(1, ir.blocks_per_sm))
    registers = min(target.registers_per_thread, registers // 8 * 8)
    fits = occupancy(target, ir.threads, max(1, registers), ir.shared_bytes)
    resident = launch.resident or max(1, fits.ctas)
    decisions: Mapping[str, Any] = next(
        d for d in kernel.manifest["targets"][arch] if d["kernel"] == ir.name
    )
    held = 4.0 * ir.threads * decisions["held_registers"]
    return resident, resident * max(float(ir.shared_bytes), held)


def _parts(
    kernel: CompiledKernel,
    arch: str,
    target: Target,
    device: Representative,
    sizes: CallSizes,
    under_way: float,
) -> dict[str, float]:
    """µs by what they are spent on, if nothing else were to be done."""
    gigabytes = device.dram_gigabytes
    needed = gigabytes * 1e3 * LATENCY / device.multiprocessors
    covered = min(1.0, under_way / needed) if under_way else 1.0
    parts = {"DRAM": moved_bytes(kernel.plan, sizes) / (gigabytes * 1e3 * covered)}
    requested = requested_bytes(kernel.program, sizes)
    if requested is not None:
        parts["L2"] = requested / (gigabytes * 1e3 * CACHE * covered)
    operations = product_operations(kernel.program, sizes)
    if operations is not None:
        peak = device.tensor_teraflops
        roles = any(k.producers for k in kernel.lowered[arch])
        if "wgmma" in target.features and not roles:
            peak *= SYNCHRONOUS
        parts["products"] = operations / (peak * 1e6)
    return parts
