"""Timing with device events and a cold L2 cache, and the bandwidth that the device can reach."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from tilec.resources import resource_text
from tilec.runtime.device import Buffer, Gpu
from tilec.runtime.launching import ConcreteLaunch, PackedArgument
from tilec.runtime.outcome import Timing
from tilec.source.exhaustive import assert_never
from tilec.toolchain.build import Toolchain, compile_cubin
from tilec.toolchain.cache import Cache, cache_key

Flush = Literal["read", "write"]

WARM_UP = 10
"""Launches before the first timed one."""

RUNS_LEAST, RUNS_MOST = 20, 200
"""Timed launches of one kernel; between them as many as fit into BUDGET_MS."""

BUDGET_MS = 400.0
DIFFERENCE = 0.02
"""Medians that differ by more than this share are both reported."""

_FLUSH_LEAST = 256 << 20
"""Bytes of the flush buffer at least: filling the cache also covers the time the host needs to enqueue a launch."""

_COPY_BYTES = 1 << 30
_COPY_RUNS = 20


@dataclass
class CacheFlush:
    """Fills the L2 cache with other data. Made by `prepare_flush`."""

    gpu: Gpu
    buffer: Buffer
    sink: Buffer
    reader: list[tuple[Any, ConcreteLaunch]]

    def __call__(self, how: Flush) -> None:
        """Enqueue a pass over a buffer larger than the cache that reads it, or writes it (which leaves dirty lines)."""
        match how:
            case "read":
                self.gpu.launch(self.reader)
            case "write":
                self.gpu.fill(self.buffer.address, 0, self.buffer.size)
            case _:
                assert_never(how)

    def free(self) -> None:
        """Give the memory back."""
        self.gpu.free(self.buffer)
        self.gpu.free(self.sink)


def prepare_flush(gpu: Gpu, toolchain: Toolchain, cache: Cache | None) -> CacheFlush:
    """The flush for this device. Raises TileError as building and allocating do."""
    cubin = compile_cubin(
        resource_text("templates", "bench/read_buffer.cuh"),
        gpu.arch,
        toolchain=toolchain,
        cache=cache,
    ).blob
    module = gpu.load(cubin)
    peak = gpu.peak_bytes
    size = max(_FLUSH_LEAST, 4 * gpu.l2_bytes)
    buffer, sink = gpu.allocate("the flush buffer", size), gpu.allocate("its sink", 16)
    gpu.fill(buffer.address, 0, size)
    arguments = (
        PackedArgument("P", buffer.address),
        PackedArgument("q", size // 16),
        PackedArgument("P", sink.address),
    )
    reader = gpu.prepare(module, [ConcreteLaunch("read_buffer", 1024, 256, 0, 1, arguments)])
    gpu.peak_bytes = peak  # the kernel's own memory is what is reported
    return CacheFlush(gpu, buffer, sink, reader)


def measure(gpu: Gpu, flush: CacheFlush, how: Flush, launch: Callable[[], None]) -> list[float]:
    """Times of single calls of `launch` in µs, each with a cold cache, after WARM_UP others."""
    for _ in range(WARM_UP):
        flush(how)
        launch()
    gpu.finish("while warming up")
    first = sample(gpu, flush, how, launch, 3)
    runs = int(
        min(RUNS_MOST, max(RUNS_LEAST, BUDGET_MS * 1e3 / max(1e-3, statistics.median(first))))
    )
    return sample(gpu, flush, how, launch, runs)


def sample(
    gpu: Gpu, flush: CacheFlush, how: Flush, launch: Callable[[], None], runs: int
) -> list[float]:
    """Times of `runs` single calls in µs, each with a cold cache; the flush is not part of them. Waits for the end."""
    pairs = []
    for _ in range(runs):
        start, end = gpu.event(), gpu.event()
        flush(how)
        start.record()
        launch()
        end.record()
        pairs.append((start, end))
    gpu.finish("while it was timed")
    return [float(start.time_till(end)) * 1e3 for start, end in pairs]


def interleaved(
    gpu: Gpu, flush: CacheFlush, how: Flush, calls: Sequence[Callable[[], None]]
) -> list[list[float]]:
    """Times in µs of several calls measured in turn, so that clock and temperature are alike; otherwise as `measure`."""
    for _ in range(WARM_UP):
        for call in calls:
            flush(how)
            call()
    gpu.finish("while warming up")
    first = [_median(sample(gpu, flush, how, call, 3)) for call in calls]
    runs = int(min(RUNS_MOST, max(RUNS_LEAST, BUDGET_MS * 1e3 / max(1e-3, *first))))
    times: list[list[float]] = [[] for _ in calls]
    for _ in range(runs):
        for call, own in zip(calls, times, strict=True):
            own += sample(gpu, flush, how, call, 1)
    return times


def _median(times: Sequence[float]) -> float:
    return statistics.median(times)


def summarize(
    how: Flush,
    times: Sequence[float],
    moved: float | None,
    operations: float | None,
    copy: float | None,
) -> Timing:
    """Statistics of times in µs. `moved` bytes and `operations` of one call, `copy` the ceiling in GB/s."""
    ordered = sorted(times)
    median = statistics.median(ordered)
    rate = moved / median / 1e3 if moved and median > 0 else None
    return Timing(
        flush=how,
        mean=statistics.fmean(ordered),
        median=median,
        p20=quantile(ordered, 0.2),
        p80=quantile(ordered, 0.8),
        runs=len(ordered),
        warm_up=WARM_UP,
        gigabytes_per_second=rate,
        teraflops=operations / median / 1e6 if operations and median > 0 else None,
        share=rate / copy if rate and copy else None,
    )


def quantile(ordered: Sequence[float], share: float) -> float:
    """The value below which `share` of an ascending list lies, interpolated between neighbours."""
    position = share * (len(ordered) - 1)
    low = int(position)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (position - low) * (ordered[high] - ordered[low])


def both_where_different(read: Timing, write: Timing) -> tuple[Timing, ...]:
    """The timing after reading, and the one after writing too where their medians differ."""
    apart = abs(read.median - write.median) > DIFFERENCE * min(read.median, write.median)
    return (read, write) if apart else (read,)


def copy_bandwidth(gpu: Gpu, cache: Cache) -> float:
    """GB/s that a copy on this device moves (read and written bytes), measured once and kept in the cache."""
    version = gpu.driver.get_driver_version()
    key = cache_key("copy ceiling 1", gpu.name, str(version))
    if kept := cache.get(key):
        return float(json.loads(kept.blob))
    peak = gpu.peak_bytes
    source, target = (
        gpu.allocate("the copy", _COPY_BYTES),
        gpu.allocate("the copy", _COPY_BYTES),
    )
    try:
        times = []
        for run in range(_COPY_RUNS + 3):
            start, end = gpu.event(), gpu.event()
            start.record()
            gpu.copy(target.address, source.address, _COPY_BYTES)
            end.record()
            gpu.finish("while copying")
            if run >= 3:
                times.append(float(start.time_till(end)))
        bandwidth = 2 * _COPY_BYTES / statistics.median(times) / 1e6
    finally:
        gpu.free(source)
        gpu.free(target)
        gpu.peak_bytes = peak
    cache.put(key, json.dumps(bandwidth).encode(), {"kind": "ceiling", "device": gpu.name})
    return bandwidth
