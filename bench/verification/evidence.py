"""What a part found: counts, failures, and the cases behind them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any


class Refused(Exception):
    """The machine lacks what a part needs; the text says what."""


SHOWN = 20
"""Failures of a part that are printed; the JSON has all."""


@dataclass
class Evidence:
    """`counts` by kernel (or tool) and result; `failures` in words; `cases` what ran, with sizes; `notes` what did not."""

    part: str
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    cases: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def add(self, name: str, result: str, number: int = 1) -> None:
        """Count a result ("ok", "failed", "refused", …) of a kernel."""
        of_kernel = self.counts.setdefault(name, {})
        of_kernel[result] = of_kernel.get(result, 0) + number

    def record(self, name: str, ok: bool, words: str, **facts: Any) -> None:
        """Count one case; a failure is printed at once."""
        self.add(name, "ok" if ok else "failed")
        self.cases.append({"kernel": name, "ok": ok, **facts})
        if not ok:
            self.failures.append(f"{name}: {words}")
            if len(self.failures) <= SHOWN:
                print(f"FAILED {name}: {words[:400]}", flush=True)

    def total(self, result: str) -> int:
        """How many cases had a result."""
        return sum(c.get(result, 0) for c in self.counts.values())

    def as_json(self) -> dict[str, Any]:
        """Plain data."""
        return {
            "part": self.part,
            "seconds": round(time.monotonic() - self.started, 1),
            "ok": self.total("ok"),
            "failed": self.total("failed"),
            "counts": self.counts,
            "failures": self.failures,
            "notes": self.notes,
            "cases": self.cases,
        }
