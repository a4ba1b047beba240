"""Two calls timed in turn with a cold L2: the ratio of their bandwidths within each round, its median over rounds."""

from __future__ import annotations

import json
import statistics
from collections.abc import Callable

from triton.testing import do_bench


def timed(function: Callable[[], object], warmup: int = 20, rep: int = 100) -> float:
    """Median milliseconds with a cold L2, of `rep` ms of calls after `warmup` ms."""
    return float(do_bench(function, warmup=warmup, rep=rep, return_mode="median"))


def compare(
    name: str,
    ours: Callable[[], object],
    theirs: Callable[[], object],
    moved: float,
    base: float,
    rounds: int,
    **durations: int,
) -> dict[str, object]:
    """`moved` and `base` are the bytes of the two; the ratio is of bytes per second. Prints the row; `durations` as in `timed`."""
    ratios, mine, other = [], [], []
    for _ in range(rounds):
        a, b = timed(ours, **durations), timed(theirs, **durations)
        mine.append(a)
        other.append(b)
        ratios.append((moved / a) / (base / b))
    row: dict[str, object] = {
        "case": name,
        "ratio": round(statistics.median(ratios), 4),
        "worst": round(min(ratios), 4),
        "us": round(statistics.median(mine) * 1e3, 2),
        "torch_us": round(statistics.median(other) * 1e3, 2),
        "tbps": round(moved / statistics.median(mine) * 1e-9, 3),
    }
    print(json.dumps(row), flush=True)
    return row
