"""What a part found: counts, failures, and the cases behind them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import Any


class Refused(Exception):
    """The machine lacks what a part needs; the text says what."""


SHOWN = 20
"""Failures of a part that are printed; the JSON has all."""


MADE: list[Evidence] = []
"""Those of this process, in order: what a part has found so far where it is stopped."""

SUMMED = ("compared", "elements", "seconds")
"""Facts of cases of which a kernel's row has the sum."""


@dataclass
class Evidence:
    """`counts` by kernel (or tool) and result; `failures` in words; `cases` what ran, with sizes; `notes` what did not."""

    part: str
    counts: dict[str, dict[str, int]] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    cases: list[dict[str, Any]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def __post_init__(self) -> None:
        MADE.append(self)

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
            "failures": self.failures,
            "notes": self.notes,
            "kernels": [self._row(name) for name in self.counts],
        }

    def _row(self, name: str) -> dict[str, Any]:
        """All cases of a kernel: counts, sums, and the different values of everything else."""
        cases = [c for c in self.cases if c["kernel"] == name]
        row: dict[str, Any] = {"kernel": name, **self.counts[name]}
        for fact in dict.fromkeys(f for c in cases for f in c):
            if fact in ("kernel", "ok", "special"):
                continue
            found = [_shown(c, fact) for c in cases if fact in c]
            if fact in SUMMED:
                row[fact] = round(sum(found), 2)
            else:
                different = [v for n, v in enumerate(found) if v not in found[:n]]
                row[fact] = different[0] if len(different) == 1 else different
        return row


def _shown(case: dict[str, Any], fact: str) -> Any:
    """A fact of a case; sizes as words, with what is special about them."""
    value = case[fact]
    if fact == "sizes" and isinstance(value, dict):
        words = " ".join(
            f"{n}={v:g}" if isinstance(v, float) else f"{n}={v}" for n, v in value.items()
        )
        return f"{words} {case.get('special', '')}".strip()
    if fact == "against":  # without the numbers of elements, of which there is a sum
        return [w.split(":")[0].split(",")[0] for w in value]
    return float(value) if fact in SUMMED and isinstance(value, str) else value
