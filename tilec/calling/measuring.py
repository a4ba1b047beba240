"""Timing any callable, and comparing arrays."""

from __future__ import annotations

import statistics
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

Clock = Literal["torch events", "pycuda events", "host clock"]

RUNS_LEAST, RUNS_MOST, BUDGET_US = 20, 200, 400_000.0
"""Timed calls where `repeat` is not given: as many as fit into the budget."""

_FLUSH_BYTES = 256 << 20

TOLERANCES = {
    "float64": (1e-7, 1e-7), "float32": (1.3e-6, 1e-5), "float16": (1e-3, 1e-5), "bfloat16": (1.6e-2, 1e-5),
    "float8_e4m3fn": (0.13, 1e-3), "float8_e5m2": (0.26, 1e-3),
}  # fmt: skip
"""(rtol, atol) by dtype: a few ulp; the wider of both arrays' counts. Integers and bools must be equal."""


@dataclass(frozen=True)
class Measurement:
    """Times of single calls in µs. `clock` is what measured them, `cold` whether the L2 cache was filled with other data before
    each."""

    times: tuple[float, ...]
    clock: Clock
    cold: bool

    @property
    def mean(self) -> float:
        """Mean, µs."""
        return statistics.fmean(self.times)

    @property
    def median(self) -> float:
        """Median, µs."""
        return statistics.median(self.times)

    @property
    def p20(self) -> float:
        """The time that a fifth of the calls undercuts, µs."""
        return _quantile(self.times, 0.2)

    @property
    def p80(self) -> float:
        """The time that a fifth of the calls exceeds, µs."""
        return _quantile(self.times, 0.8)

    def __str__(self) -> str:
        cache = ", cold L2" if self.cold else ""
        return (
            f"{self.median:.2f} µs (p20 {self.p20:.2f}, p80 {self.p80:.2f}, mean {self.mean:.2f}, "
            f"{len(self.times)} calls, {self.clock}{cache})"
        )


def _quantile(times: tuple[float, ...], share: float) -> float:
    from tilec.runtime.bench import quantile

    return quantile(sorted(times), share)


def benchmark(
    function: Callable[..., Any],
    *arguments: Any,
    warmup: int = 10,
    repeat: int | None = None,
    flush: bool = True,
    **named: Any,
) -> Measurement:
    """Time `function(*arguments, **named)`: single calls after `warmup` others, by device events where PyTorch or pycuda has a GPU, else by
    the host's clock. `flush` fills the L2 cache before each call on a GPU; `repeat` is the number of timed calls.

    Raises ValueError for negative numbers.
    """
    if warmup < 0 or (repeat is not None and repeat < 1):
        raise ValueError("warmup is at least 0 and repeat at least 1")

    def call() -> None:
        function(*arguments, **named)

    for _ in range(warmup):
        call()
    timer = _timer(flush)
    if repeat is None:
        first = statistics.median(timer.times(call, 3))
        repeat = int(min(RUNS_MOST, max(RUNS_LEAST, BUDGET_US / max(1e-3, first))))
    return Measurement(tuple(timer.times(call, repeat)), timer.clock, timer.cold)


@dataclass
class _HostTimer:
    clock: Clock = "host clock"
    cold: bool = False

    def times(self, call: Callable[[], None], runs: int) -> list[float]:
        found = []
        for _ in range(runs):
            start = time.perf_counter()
            call()
            found.append((time.perf_counter() - start) * 1e6)
        return found


class _TorchTimer:
    clock: Clock = "torch events"

    def __init__(self, torch: Any, flush: bool) -> None:
        self.torch = torch
        self.cold = flush
        self.block = torch.empty(_FLUSH_BYTES, dtype=torch.uint8, device="cuda") if flush else None

    def times(self, call: Callable[[], None], runs: int) -> list[float]:
        pairs = []
        self.torch.cuda.synchronize()
        for _ in range(runs):
            start, end = (self.torch.cuda.Event(enable_timing=True) for _ in range(2))
            if self.block is not None:
                self.block.zero_()
            start.record()
            call()
            end.record()
            pairs.append((start, end))
        self.torch.cuda.synchronize()
        return [float(start.elapsed_time(end)) * 1e3 for start, end in pairs]


class _PycudaTimer:
    clock: Clock = "pycuda events"

    def __init__(self, driver: Any, flush: bool) -> None:
        self.driver = driver
        self.cold = flush
        self.block = driver.mem_alloc(_FLUSH_BYTES) if flush else None

    def times(self, call: Callable[[], None], runs: int) -> list[float]:
        pairs = []
        self.driver.Context.synchronize()
        for _ in range(runs):
            start, end = self.driver.Event(), self.driver.Event()
            if self.block is not None:
                self.driver.memset_d8(int(self.block), 0, _FLUSH_BYTES)
            start.record()
            call()
            end.record()
            pairs.append((start, end))
        self.driver.Context.synchronize()
        return [float(start.time_till(end)) * 1e3 for start, end in pairs]


def _timer(flush: bool) -> _HostTimer | _TorchTimer | _PycudaTimer:
    """PyTorch's events where it works on a GPU, pycuda's where its user has a context, else the host's clock."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_available():
        return _TorchTimer(torch, flush)
    driver: Any = sys.modules.get("pycuda.driver")
    if driver is not None:
        try:
            driver.Context.get_device()
            return _PycudaTimer(driver, flush)
        except driver.Error:
            pass
    return _HostTimer()


def assert_close(
    actual: Any, expected: Any, *, rtol: float | None = None, atol: float | None = None
) -> None:
    """Raise AssertionError unless |actual - expected| <= atol + rtol·|expected| for every element, saying how many differ, by how
    much at most and where. NaN equals NaN, an infinity the same one. Tolerances default to `TOLERANCES`; shapes must agree.
    """
    import numpy as np

    left, right = _host(actual), _host(expected)
    if left.shape != right.shape:
        raise AssertionError(f"shapes differ: {left.shape} and {right.shape}")
    pairs = [TOLERANCES.get(a.dtype.name, (0.0, 0.0)) for a in (left, right)]
    relative = max(p[0] for p in pairs) if rtol is None else rtol
    absolute = max(p[1] for p in pairs) if atol is None else atol
    exact = left.dtype.kind in "iub" and right.dtype.kind in "iub"
    if exact and rtol is None and atol is None:
        wrong = left != right
        a, b = left.astype(object), right.astype(object)
    else:
        a, b = left.astype(np.float64), right.astype(np.float64)
        with np.errstate(invalid="ignore"):
            near = np.abs(a - b) <= absolute + relative * np.abs(b)
        same = (a == b) | (np.isnan(a) & np.isnan(b))
        wrong = ~(same | (near & np.isfinite(b)))
    if not wrong.any():
        return
    with np.errstate(invalid="ignore"):
        error = np.where(wrong, np.abs((a - b).astype(np.float64)), -1.0)
    error = np.where(np.isnan(error), np.inf, error)
    place = tuple(int(n) for n in np.unravel_index(int(np.argmax(error)), error.shape))
    raise AssertionError(
        f"{int(wrong.sum())} of {wrong.size} elements differ by more than {absolute:g} + {relative:g}·|expected|; "
        f"the greatest error is {float(error[place]):g} at {list(place)}: {a[place]!s} instead of {b[place]!s}"
    )


def _host(array: Any) -> Any:
    """The array in host memory as NumPy's."""
    import ml_dtypes
    import numpy as np

    torch = sys.modules.get("torch")
    if torch is not None and isinstance(array, torch.Tensor):
        held = array.detach().cpu()
        narrow = {
            "torch.bfloat16": ml_dtypes.bfloat16,
            "torch.float8_e4m3fn": ml_dtypes.float8_e4m3fn,
            "torch.float8_e5m2": ml_dtypes.float8_e5m2,
        }.get(str(held.dtype))
        if narrow is None:
            return held.numpy()
        bits = torch.uint8 if held.element_size() == 1 else torch.int16
        return held.contiguous().view(bits).numpy().view(narrow)
    if hasattr(array, "get"):  # CuPy, pycuda
        return np.asarray(array.get())
    return np.asarray(array)
