"""Joules of one call, from the counter that the GPU itself keeps.

The counter is that of `nvmlDeviceGetTotalEnergyConsumption` (NVML API reference): millijoules of the whole board since the driver was
loaded, on GPUs from Volta on. It advances in steps some tens of milliseconds apart, so calls are made for a while and what is counted
lies between two steps. Everything is in it: the memory, what an idle GPU takes, other programs on the same GPU.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

from tilec.runtime.outcome import Energy, Outcome, table
from tilec.source.diagnostics import fail

SECONDS = 2.0
"""How long calls are counted."""

WARM_UP = 0.5
"""Seconds of calls before: power follows load slowly."""

BATCH = 20e3
"""µs of calls between two looks at the counter, about."""


class EnergyCounter:
    """The counter of one GPU. Made by `open_counter`."""

    def __init__(self, nvml: Any, handle: Any, clock: Callable[[], float] = time.monotonic) -> None:
        self.nvml, self.handle, self.clock = nvml, handle, clock

    def millijoules(self) -> int:
        """What it says."""
        return int(self.nvml.nvmlDeviceGetTotalEnergyConsumption(self.handle))

    def measure(
        self, launch: Callable[[], None], finish: Callable[[], None], microseconds: float
    ) -> Energy:
        """Of one call of `launch`, which takes about so many µs: calls back to back, the caches warm. Raises TileError (E0820) where
        the counter does not advance."""
        calls = max(1, int(BATCH / max(1e-3, microseconds)))
        start = self.clock()
        made = 0
        first: tuple[int, int, float] | None = None
        last: tuple[int, int, float] | None = None
        before = -1
        while True:
            for _ in range(calls):
                launch()
            finish()
            made += calls
            now, count = self.clock(), self.millijoules()
            if now - start < WARM_UP:
                before = count
                continue
            if count != before:
                before = count
                last = (made, count, now)
                first = first or last
            if now - start > WARM_UP + SECONDS:
                break
        if first is None or last is None or last[0] == first[0]:
            raise fail("E0820", "the GPU's energy counter does not advance")
        joules = (last[1] - first[1]) / 1e3
        return Energy(joules / (last[0] - first[0]), joules / (last[2] - first[2]))


def open_counter(bus: str) -> EnergyCounter:
    """The counter of the GPU with this PCI bus id, such as `0000:3B:00.0`. Raises TileError (E0820) where there is none."""
    pynvml = import_nvml()
    try:
        pynvml.nvmlInit()
        counter = EnergyCounter(pynvml, pynvml.nvmlDeviceGetHandleByPciBusId(bus))
        counter.millijoules()
    except pynvml.NVMLError as error:
        raise fail(
            "E0820",
            "this GPU has no energy counter that can be read",
            note=f"NVML: {error}",
            help="leave `--energy` out",
        ) from error
    return counter


def import_nvml() -> Any:
    """The module. Raises TileError (E0820) without it."""
    try:
        import pynvml
    except ModuleNotFoundError as error:
        raise fail(
            "E0820",
            "`--energy` needs nvidia-ml-py, which is not installed",
            help="run `pip install 'tilec[tune]'`",
        ) from error
    return pynvml


def energy_table(outcomes: Sequence[Outcome]) -> str:
    """A line for each side of each outcome that was measured, "" where none was."""
    rows = [("kernel", "sizes", "by", "mJ a call", "W")]
    for outcome in outcomes:
        for by, energy in outcome.energy.items():
            rows.append(
                (
                    outcome.kernel,
                    outcome.sizes,
                    by,
                    f"{energy.joules * 1e3:.4g}",
                    f"{energy.watts:.0f}",
                )
            )
    return table(rows) if len(rows) > 1 else ""
