"""Products with few rows beside PyTorch: verified, then timed with an L2 flushed by writing, flushed by reading, and back to back.

usage: python bench/skinny.py [--out FILE] [--rounds N] [--cases NAME[,NAME…]] [--rows M[,M…]] [--order nn|nt] [-D NAME=VALUE]…

Cases are N x K. Such a product is bound by reading the right matrix once, so what the L2 holds before matters: lines that a flush
has written must go back to memory while the product reads. Back to back are launches over 1 GB of different right matrices, in one
CUDA graph. The ratio is taken within each round, in rotated order; reported are its median, least and greatest over the rounds.
Exit status: 0, or 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from launchers import build_ahead, load
from records import beside_torch, write_rows

ARCH = "sm_90a"
FILE = "samples/gemm_skinny.tile"
CASES: dict[str, tuple[int, int, tuple[int, ...]]] = {
    "8192x8192": (8192, 8192, (1, 16, 64, 128)),
    "4096x4096": (4096, 4096, (1, 8, 32)),
    "28672x8192": (28672, 8192, (1, 16, 64, 128)),
    "8192x28672": (8192, 28672, (1, 16, 64, 128)),
}
"""N, K and numbers of rows by name."""
ROTATED_BYTES = 1 << 30
"""Of the right matrices that launches back to back go through: far more than the L2 keeps."""
FLUSH_BYTES = 256 << 20
SAMPLES = 20
"""Launches of a round behind a flush each."""
REPLAYS = 5
"""Of the graph in a round."""
LIMIT = 4e-3
"""Relative Frobenius error; the rounding of the result to bf16 alone is about 1.7e-3."""

Launch = Callable[[], object]


def rows_of(m: int) -> int:
    """The number of rows that a kernel for `m` rows is compiled for."""
    return max(8, 1 << (m - 1).bit_length())


def behind_flush(run: Launch, flush: Launch) -> float:
    """Median time of a launch in microseconds, each behind a flush of the L2."""
    events = [[torch.cuda.Event(enable_timing=True) for _ in range(2)] for _ in range(SAMPLES)]
    for start, end in events:
        flush()
        start.record()
        run()
        end.record()
    torch.cuda.synchronize()
    return float(statistics.median(start.elapsed_time(end) * 1e3 for start, end in events))


def graph_of(runs: list[Launch]) -> torch.cuda.CUDAGraph:
    """Launches one behind the other."""
    for run in runs[:2]:
        run()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for run in runs:
            run()
    return graph


def back_to_back(graph: torch.cuda.CUDAGraph, count: int) -> float:
    """Time of one of the graph's launches in microseconds."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    graph.replay()
    start.record()
    for _ in range(REPLAYS):
        graph.replay()
    end.record()
    torch.cuda.synchronize()
    return float(start.elapsed_time(end)) * 1e3 / (REPLAYS * count)


def race(contenders: Mapping[str, Callable[[], float]], rounds: int) -> dict[str, object]:
    """Medians of times, and of torch's to ours within each round with its range."""
    names = list(contenders)
    times: dict[str, list[float]] = {n: [] for n in names}
    for number in range(rounds):
        turn = number % len(names)
        for name in names[turn:] + names[:turn]:
            times[name].append(contenders[name]())
    ratios = [b / a for a, b in zip(times["tilec"], times["torch"], strict=True)]
    return {
        **{f"{n}_us": round(statistics.median(t), 2) for n, t in times.items()},
        "of_torch": round(statistics.median(ratios), 4),
        "range": [round(min(ratios), 4), round(max(ratios), 4)],
    }


def measure(
    name: str, order: str, m: int, options: argparse.Namespace, defines: dict[str, str]
) -> dict[str, object] | None:
    """One case, None where its result is wrong."""
    n, k, _ = CASES[name]
    count = max(2, -(-ROTATED_BYTES // (2 * n * k)))
    shape = (k, n) if order == "nn" else (n, k)
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    rights = [torch.randn(*shape, device="cuda", dtype=torch.bfloat16) for _ in range(count)]
    launch = load(FILE, f"gemm_skinny_{order}", ARCH, **{"ROWS": str(rows_of(m)), **defines})
    sizes = tuple({"M": m, "N": n, "K": k}[s] for s in launch.sizes)
    c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
    other = torch.empty_like(c)

    def ours(b: torch.Tensor) -> None:
        launch(a, b, c, *sizes)

    def theirs(b: torch.Tensor) -> None:
        torch.mm(a, b if order == "nn" else b.T, out=other)

    ours(rights[0])
    first = rights[0] if order == "nn" else rights[0].T
    expected = a.float() @ first.float()
    error = float((c.float() - expected).norm() / expected.norm())
    label = f"gemm_skinny_{order} {m}x{name}"
    if not error < LIMIT:
        print(f"{label}: error {error}", flush=True)
        return None
    del first, expected
    runs: dict[str, Callable[[torch.Tensor], object]] = {"tilec": ours, "torch": theirs}
    lines = torch.zeros(FLUSH_BYTES // 4, device="cuda", dtype=torch.int32)
    total = torch.zeros((), device="cuda", dtype=torch.int64)
    flushes: dict[str, Launch] = {
        "written": lines.zero_,
        "read": partial(torch.sum, lines, dim=0, out=total),
    }
    row: dict[str, object] = {"case": label, "error": round(error, 5)}
    for kind, flush in flushes.items():
        row[kind] = race(
            {
                who: partial(behind_flush, partial(run, rights[0]), flush)
                for who, run in runs.items()
            },
            options.rounds,
        )
    graphs = {who: graph_of([partial(run, b) for b in rights]) for who, run in runs.items()}
    row["back_to_back"] = race(
        {who: partial(back_to_back, graph, count) for who, graph in graphs.items()}, options.rounds
    )
    print(json.dumps(row), flush=True)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("--rows", default="")
    parser.add_argument("--order", choices=("nn", "nt"))
    parser.add_argument("-D", dest="defines", action="append", default=[])
    options = parser.parse_args()
    defines = dict(d.split("=", 1) for d in options.defines)
    orders = [options.order] if options.order else ["nn", "nt"]
    wanted = [
        (name, order, m)
        for name in options.cases.split(",")
        for order in orders
        for m in (map(int, options.rows.split(",")) if options.rows else CASES[name][2])
    ]
    kinds = dict.fromkeys((order, rows_of(m)) for _, order, m in wanted)
    build_ahead(
        [
            (FILE, f"gemm_skinny_{order}", ARCH, {"ROWS": str(rows), **defines})
            for order, rows in kinds
        ]
    )
    rows = [measure(name, order, m, options, defines) for name, order, m in wanted]
    right = [row for row in rows if row is not None]
    for kind in ("written", "read", "back_to_back"):
        ratios = [float(row[kind]["of_torch"]) for row in right]  # type: ignore[index]
        if ratios:
            mean = math.exp(statistics.fmean(map(math.log, ratios)))
            print(f"{kind}: {len(ratios)} products, geometric mean {mean:.3f} of torch")
    if options.out:
        head = beside_torch(
            ARCH,
            "verified; medians of launches behind a flush of 256 MB, and of a graph over 1 GB of right matrices; "
            "ratio of times, torch's to ours, within each round in rotated order: median and range",
        )
        write_rows(options.out, head, right)
    return 0 if len(right) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
