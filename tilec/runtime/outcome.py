"""What running a kernel gave: its times, those of what it was compared with, energy; and the plain table that such things are shown in."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

Status = Literal["ok", "failed", "built"]
"""`built`: compiled and built, nothing was run."""


@dataclass(frozen=True)
class Timing:
    """Times of one kernel in µs, cold L2: `flush` says whether the cache was filled by reading or by writing. `share` is
    gigabytes_per_second over the copy bandwidth measured on this device."""

    flush: Literal["read", "write"]
    mean: float
    median: float
    p20: float
    p80: float
    runs: int
    warm_up: int
    gigabytes_per_second: float | None
    teraflops: float | None
    share: float | None


@dataclass(frozen=True)
class Comparison:
    """The kernel (`ours`) and another implementation (`theirs`), measured in turn. `mode` says how PyTorch was called: as a captured
    graph, or eagerly, its launches one by one. Peaks count arguments and what was allocated besides."""

    against: str
    mode: Literal["graph", "eager"]
    ours: Timing
    theirs: Timing
    our_peak_megabytes: float
    their_peak_megabytes: float
    max_error: float
    allclose: bool
    within: str

    @property
    def ratio(self) -> float | None:
        """How many times as fast the kernel is, by medians."""
        return self.theirs.median / self.ours.median if self.ours.median > 0 else None


@dataclass(frozen=True)
class Energy:
    """`joules` of one call, and the `watts` at which the GPU ran meanwhile."""

    joules: float
    watts: float


@dataclass(frozen=True)
class Outcome:
    """One kernel at one size set. `verified` says against what, with which tolerances; `details` what went wrong or
    what was left out."""

    file: str
    kernel: str
    sizes: str
    status: Status
    device: str
    verified: tuple[str, ...] = ()
    details: tuple[str, ...] = ()
    seed: int = 0
    milliseconds: float | None = None
    peak_megabytes: float | None = None
    nvcc_calls: int = 0
    timings: tuple[Timing, ...] = ()
    exit_code: int = 0
    values: Mapping[str, float] = field(default_factory=dict)
    variants: tuple[str, ...] = ()
    """compiled kernels that were launched"""
    compiled: tuple[str, ...] = ()
    """all kernels among which the launcher chooses"""
    comparison: Comparison | None = None
    """with `--against`"""
    energy: Mapping[str, Energy] = field(default_factory=dict)
    """with `--energy`: of the kernel ("tilec") and of what it was compared with, by name"""
    counters: tuple[Mapping[str, Any], ...] = ()
    """of the emulator, one for each line, with `--counters`"""


def table(rows: Sequence[Sequence[str]]) -> str:
    """Rows in aligned columns, two blanks between them, no blanks at the end of a line."""
    if not rows:
        return ""
    widths = [max(len(row[c]) for row in rows if c < len(row)) for c in range(max(map(len, rows)))]
    lines = [
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=False)).rstrip()
        for row in rows
    ]
    return "\n".join(lines)
