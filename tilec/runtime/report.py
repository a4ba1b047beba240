"""What `tilec run` prints: a plain table, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

import tilec

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


def outcomes_json(outcomes: Sequence[Outcome], facts: Mapping[str, Any]) -> str:
    """All outcomes, with facts about the device and the command, as JSON text."""
    data = {
        "tilec": tilec.__version__,
        **facts,
        "counts": {
            status: sum(o.status == status for o in outcomes)
            for status in ("ok", "built", "failed")
        },
        "outcomes": [_as_json(o) for o in outcomes],
    }
    return json.dumps(data, indent=2) + "\n"


def _as_json(outcome: Outcome) -> dict[str, Any]:
    data = asdict(outcome)
    if outcome.comparison is not None:
        data["comparison"]["ratio"] = outcome.comparison.ratio
    return data


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


def outcomes_table(outcomes: Sequence[Outcome]) -> str:
    """One line an outcome, its timings below it, then a line of counts."""
    rows = [("kernel", "sizes", "device", "result", "verified against")]
    rows += [
        (o.kernel, o.sizes, o.device, o.status, "; ".join(o.verified) or "–") for o in outcomes
    ]
    parts = [table(rows)]
    timed = [o for o in outcomes if o.timings]
    if timed:
        parts.append(timings_table(timed))
    if any(o.comparison for o in outcomes):
        from tilec.runtime.comparing import comparison_table

        parts.append(comparison_table(outcomes))
    if any(o.energy for o in outcomes):
        from tilec.runtime.energy import energy_table

        parts.append(energy_table(outcomes))
    parts += variant_lines(outcomes)
    notes: dict[str, list[str]] = {}
    for outcome in outcomes:
        if outcome.status != "failed":
            for detail in outcome.details:
                notes.setdefault(detail, []).append(outcome.kernel)
    parts += [f"{', '.join(dict.fromkeys(kernels))}: {note}" for note, kernels in notes.items()]
    counts = [
        f"{sum(o.status == s for o in outcomes)} {s}"
        for s in ("ok", "built", "failed")
        if any(o.status == s for o in outcomes)
    ]
    parts.append(", ".join(counts) or "nothing ran")
    return "\n\n".join(parts)


def variant_lines(outcomes: Sequence[Outcome]) -> list[str]:
    """For each kernel with several variants how many of them ran, and which did not."""
    ran: dict[str, set[str]] = {}
    compiled: dict[str, tuple[str, ...]] = {}
    for outcome in outcomes:
        if len(outcome.compiled) > 1:
            compiled[outcome.kernel] = outcome.compiled
            ran.setdefault(outcome.kernel, set()).update(outcome.variants)
    lines = []
    for kernel, names in compiled.items():
        missing = [name for name in names if name not in ran[kernel]]
        line = f"{kernel}: {len(names) - len(missing)} of {len(names)} compiled variants ran"
        if missing and len(missing) <= 4:
            line += f", not {', '.join(missing)}"
        lines.append(line)
    return lines


def timings_table(outcomes: Sequence[Outcome]) -> str:
    """The timings of outcomes, one line each."""
    head = (
        "kernel",
        "L2",
        "median µs",
        "mean",
        "p20",
        "p80",
        "GB/s",
        "of copy",
        "TFLOP/s",
        "peak MB",
        "runs",
    )
    rows = [head]
    for outcome in outcomes:
        for t in outcome.timings:
            rows.append(
                (
                    outcome.kernel,
                    f"cold ({t.flush})",
                    f"{t.median:.1f}",
                    f"{t.mean:.1f}",
                    f"{t.p20:.1f}",
                    f"{t.p80:.1f}",
                    _number(t.gigabytes_per_second, ".0f"),
                    _number(t.share, ".1%"),
                    _number(t.teraflops, ".1f"),
                    _number(outcome.peak_megabytes, ".0f"),
                    f"{t.runs} after {t.warm_up}",
                )
            )
    return table(rows)


def _number(value: float | None, form: str) -> str:
    return "–" if value is None else format(value, form)
