"""The least time that a loop of a kernel can take: what each engine of an SM has to do in one trip, and which of them takes longest.

Counted is what one CTA does in one trip of a loop, or once for an instance outside of all loops, in clocks of an SM that it has
for itself:

    tensor   multiply-adds of products
    MUFU     exponentials, logarithms, roots, reciprocals
    FMA      additions, multiplications and multiply-adds of floats; a product that is added at once is one of them
    memory   bytes through the L2 cache; those that no other instance asks for at the rate of the DRAM

Comparisons, selections, conversions, integers, shuffles and shared memory are not counted, and engines are taken to overlap
perfectly: a kernel cannot be faster, and may be slower.
"""

from __future__ import annotations

from dataclasses import dataclass

from tilec.explain.work import Work, scopes
from tilec.ir import kernel_ir as k
from tilec.source.text import NOWHERE, Span
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.rates import RATES, clock_gigahertz, dram_bytes

ENGINES = ("tensor", "MUFU", "FMA", "memory")
"""In the order in which they are named where several take equally long."""


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


def _bound(scope: k.Loop | k.TileLoop | None, work: Work, arch: str) -> Bound:
    rates, dram = RATES[arch], dram_bytes(arch)
    through_cache = (work.own + work.common) / rates.l2_bytes
    clocks = {
        "tensor": work.macs,
        "MUFU": work.mufu / rates.mufu,
        "FMA": work.fma / rates.fma + work.fma64 / rates.fma64,
        "memory": max(through_cache, work.own / dram if dram else 0.0),
    }
    name = ""
    if isinstance(scope, k.Loop):
        name = scope.name
    elif scope is not None:
        name = next(axis.name for axis in scope.axes if axis.layout.streams)
    span = scope.span if scope is not None else NOWHERE
    return Bound(name, span, clocks, _at_most(work, max(clocks.values()), arch))


def _at_most(work: Work, clocks: float, arch: str) -> str:
    device, clock = REPRESENTATIVES.get(arch), clock_gigahertz(arch)
    if device is None or clock is None or not clocks:
        return ""
    each = clock * device.multiprocessors / clocks
    if work.flops:
        return f"{work.flops * each / 1e3:.0f} TFLOP/s on {device.name}"
    if work.own:
        return f"{work.own * each:.0f} GB/s on {device.name}"
    return ""
