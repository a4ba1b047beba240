"""The least time that a loop of a kernel can take: what each engine of an SM has to do in one trip, and which of them takes longest.

Counted is what one CTA does in one trip of a loop, or once for an instance outside of all loops, in clocks of an SM that it has
for itself, at the highest clock of the device:

    tensor   multiply-adds of products; those of warpgroups at the rate that power allows for good, where that was measured
    MUFU     exponentials, logarithms, roots, reciprocals
    FMA      additions, multiplications and multiply-adds of floats; a product that is added at once is one of them
    issue    those of FMA with minima, maxima, choices and conversions, of which a quarter of an SM starts one for a warp in a clock, and
             what products of warpgroups take of that
    memory   bytes through the L2 cache; those that no other instance asks for at the rate of the DRAM

Comparisons, integers, shuffles and shared memory are not counted, and engines are taken to overlap perfectly: a kernel cannot be
faster, and may be slower.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.explain.work import Work, scopes
from tilec.ir import kernel_ir as k
from tilec.source.text import NOWHERE, Span
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.rates import RATES, bound_gigahertz

ENGINES = ("tensor", "MUFU", "FMA", "issue", "memory")
"""In the order in which they are named where several take equally long."""
LANES = 128
"""Of the instructions that an SM starts in a clock."""


@dataclass(frozen=True)
class Bound:
    """The bound of one scope. `loop` is the loop's C name, "" for what is done once an instance; `clocks` by engine; `at_most`: the
    rate that it allows on the representative device, such as `989 TFLOP/s`, "" where nothing says."""

    loop: str
    span: Span
    clocks: dict[str, float]
    at_most: str

    @property
    def limit(self) -> str:
        """The engine that takes longest."""
        return max(ENGINES, key=lambda name: self.clocks[name])

    @property
    def least(self) -> float:
        """Clocks of the engine that takes longest."""
        return self.clocks[self.limit]


def bounds(kernel: k.Kernel, arch: str) -> list[Bound]:
    """Of each loop of a kernel with work in it, and of what is done once an instance. `arch` is a key of the target tables."""
    return [
        _bound(scope, work, arch)
        for scope, work in scopes(kernel, arch)
        if work.macs or work.mufu or work.fma or work.fma64 or work.own or work.common
    ]


def engine_clocks(work: Work, arch: str, moved: float = 0.0) -> dict[str, float]:
    """Clocks of an SM at the device's highest clock by engine; `moved`: bytes that come from or go to the DRAM in any case."""
    rates, device, clock = RATES[arch], REPRESENTATIVES.get(arch), bound_gigahertz(arch)
    dram = 0.0
    if device is not None and clock is not None:
        dram = max(work.own, moved) * clock * device.multiprocessors / device.dram_gigabytes
    started = (work.fma + work.fma64 + work.alu) / LANES
    through = (work.own + work.common) / max(rates.l2_bytes, rates.cache_bytes)
    return {
        "tensor": work.macs,
        "MUFU": work.mufu / rates.mufu,
        "FMA": work.fma / rates.fma + work.fma64 / rates.fma64,
        "issue": rates.product_issue * work.asynchronous + started,
        "memory": max(through, dram),
    }


def _bound(scope: k.Loop | k.TileLoop | None, work: Work, arch: str) -> Bound:
    clocks = engine_clocks(work, arch)
    name = ""
    if isinstance(scope, k.Loop):
        name = scope.name
    elif scope is not None:
        name = next(axis.name for axis in scope.axes if axis.layout.streams)
    span = scope.span if scope is not None else NOWHERE
    return Bound(name, span, clocks, _at_most(work, max(clocks.values()), arch))


def _at_most(work: Work, clocks: float, arch: str) -> str:
    device, clock = REPRESENTATIVES.get(arch), bound_gigahertz(arch)
    if device is None or clock is None or not clocks:
        return ""
    each = clock * device.multiprocessors / clocks
    if work.flops:
        return f"{work.flops * each / 1e3:.0f} TFLOP/s on {device.name}"
    if work.own:
        return f"{work.own * each:.0f} GB/s on {device.name}"
    return ""
