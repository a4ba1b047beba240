"""What `tilec run` prints: a plain table, and the same as JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

import tilec
from tilec.runtime.outcome import Outcome, table


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
