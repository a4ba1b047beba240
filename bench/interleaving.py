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
    by_hand: Callable[[], object] | None = None,
    **durations: int,
) -> dict[str, object]:
    """`moved` and `base` are the bytes of the two; the ratio is of bytes per second. `by_hand` moves as many as ours and is timed in the
    same rounds: the ratio of the times is `of_hand`. Prints the row; `durations` as in `timed`."""
    ratios, mine, other, of_hand = [], [], [], []
    for _ in range(rounds):
        a, b = timed(ours, **durations), timed(theirs, **durations)
        if by_hand is not None:
            of_hand.append(timed(by_hand, **durations) / a)
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
    if of_hand:
        row["of_hand"] = round(statistics.median(of_hand), 4)
    print(json.dumps(row), flush=True)
    return row
