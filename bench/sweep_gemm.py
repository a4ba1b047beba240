"""Times products under given tiles, warps and stages beside cuBLAS: what the rules of the plan are drawn from.

usage: python bench/sweep_gemm.py [--out FILE] [--rounds N] [--shape MxNxK]…

The code is for sm_90, so that products are `mma.sync`. Each round begins with another configuration: what follows cuBLAS in time finds the
card at a lower clock. A shape with few rows has tiles of few rows too, and a kernel that says `require M <= ROWS`.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median

import torch
from triton.testing import do_bench

sys.path.insert(0, str(Path(__file__).parent))
from launchers import Launcher, load
from records import command, write_rows

from tilec.plan.product_tiles import Sides, estimate
from tilec.targets.table import TARGETS

Tile = tuple[int, int, int, int, int]

SQUARE: list[Tile] = [  # (BM, BN, BK, warps, stages)
    (128, 128, 64, 4, 2), (128, 128, 64, 4, 3), (128, 128, 64, 8, 3), (128, 128, 32, 4, 4), (128, 128, 32, 4, 6),
    (128, 256, 32, 8, 4), (128, 256, 32, 8, 6), (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 32, 8, 4),
    (256, 128, 64, 8, 3), (256, 128, 64, 8, 4), (256, 64, 64, 4, 3), (64, 256, 64, 4, 3), (128, 64, 64, 4, 4),
    (64, 128, 64, 4, 4), (64, 128, 64, 2, 4), (128, 64, 64, 2, 4), (64, 64, 64, 4, 4), (64, 64, 64, 2, 4),
    (128, 128, 128, 8, 3), (128, 192, 64, 8, 3), (192, 128, 64, 8, 3),
]  # fmt: skip
FEW_ROWS: list[Tile] = [
    (16, 64, 64, 2, 4), (16, 64, 128, 2, 4), (16, 64, 128, 4, 4), (16, 128, 64, 4, 4), (16, 128, 128, 4, 4),
    (16, 64, 256, 4, 3), (32, 64, 128, 4, 4), (32, 128, 64, 4, 4), (64, 64, 64, 4, 4), (64, 64, 128, 4, 4),
    (64, 128, 64, 4, 4), (64, 128, 64, 4, 3), (64, 256, 64, 4, 3), (128, 64, 64, 4, 4), (128, 128, 64, 4, 3),
]  # fmt: skip
MOST_ROWS = 64
"""Rows up to which a shape has few."""

SHAPES = ["4096x4096x4096", "2048x2048x2048", "16x8192x8192", "64x8192x8192"]

SOURCE = """kernel {name}[BM = {bm}, BN = {bn}, BK = {bk}](a: bf16[M, K], b: bf16[{b}]) -> c: bf16[M, N]:
{clauses}    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ {right}
        c[i, j] = acc
"""


@dataclass(frozen=True)
class Item:
    """One kernel of one file; `tile` None: what the compiler chooses, of at most `rows` rows where that is not 0."""

    kind: str
    tile: Tile | None
    rows: int
    path: str

    @property
    def kernel(self) -> str:
        return Path(self.path).stem


def write(folder: Path, kind: str, tile: Tile | None, rows: int) -> Item:
    """The file of one kernel."""
    bm, bn, bk, warps, stages = tile or ("auto",) * 5
    settings = f"    schedule warps = {warps}, stages = {stages}\n" if tile else ""
    name = f"g_{kind}_{bm}_{bn}_{bk}_{warps}_{stages}_{rows}"
    text = SOURCE.format(
        name=name, b="K, N" if kind == "nn" else "N, K", right="b[k, j]" if kind == "nn" else "b[j, k].T",
        bm=bm, bn=bn, bk=bk, clauses=(f"    require M <= {rows}\n" if rows else "") + settings,
    )  # fmt: skip
    path = folder / f"{name}.tile"
    path.write_text(text)
    return Item(kind, tile, rows, str(path))


def build(item: Item) -> Launcher | str:
    """The launcher, or why there is none: a configuration that does not fit is part of the table."""
    try:
        return load(item.path, item.kernel, "sm_90")
    except Exception as error:
        return str(error)[:100]


def timed(function: Callable[[], object]) -> float:
    """Median milliseconds with a cold L2."""
    return float(do_bench(function, warmup=4, rep=20, return_mode="median"))


def planned(item: Item, size: int) -> float | None:
    """What the plan expects of a tile, in clocks, where all sides that are not short are of `size`."""
    if item.tile is None:
        return None
    rows, columns, depth, warps, stages = item.tile
    sides = Sides(item.rows or None, None, 16)
    return estimate(TARGETS["sm_90"], sides, (rows, columns, depth), warps, stages, size)


def correlation(rows: list[dict[str, object]]) -> float:
    """Of the ranks of expected and measured times (Spearman's)."""
    known = [r for r in rows if r["planned"] is not None]
    times = [[float(str(r["planned"])) for r in known], [-float(str(r["tflops"])) for r in known]]
    ranks = [torch.tensor(t).argsort().argsort().float() for t in times]
    return round(float(torch.corrcoef(torch.stack(ranks))[0, 1]), 3)


def race(
    shape: tuple[int, int, int], items: list[Item], built: dict[Item, Launcher | str], rounds: int
) -> list[dict[str, object]]:
    """Verified, then timed in turns."""
    m, n, k = shape
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    bt = b.T.contiguous()
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    reference = (a @ b).float()
    runs: list[tuple[Item, Callable[[], object]]] = []
    for item in items:
        launch = built[item]
        if isinstance(launch, str):
            print(item.kind, item.tile, launch)
            continue
        right = b if item.kind == "nn" else bt
        c.fill_(float("nan"))
        launch(a, right, c, m, k, n)
        error = float((c.float() - reference).norm() / reference.norm())
        assert error < 3e-3, (item, error)
        runs.append((item, partial(launch, a, right, c, m, k, n)))
    ratios: dict[Item, list[float]] = {}
    times: dict[Item, list[float]] = {}
    for number in range(rounds):
        theirs = {
            "nn": timed(lambda: torch.mm(a, b, out=c)),
            "nt": timed(lambda: torch.mm(a, bt.T, out=c)),
        }
        first = number * len(runs) // rounds
        for item, run in (*runs[first:], *runs[:first]):
            ms = timed(run)
            times.setdefault(item, []).append(ms)
            ratios.setdefault(item, []).append(theirs[item.kind] / ms)
    return [
        {
            "shape": "x".join(map(str, shape)),
            "kind": item.kind,
            "tile": item.tile or "auto",
            "ratio": round(median(ratios[item]), 4),
            "tflops": round(2.0 * m * n * k / median(times[item]) * 1e-9, 1),
            "spread": round(max(times[item]) / min(times[item]) - 1, 3),
            "planned": planned(item, k),
        }
        for item, _ in runs
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--shape", action="append", default=[])
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp())
    wanted: dict[tuple[int, int, int], list[Item]] = {}
    for text in options.shape or SHAPES:
        m, n, k = map(int, text.split("x"))
        rows = m if m <= MOST_ROWS else 0
        tiles: list[Tile | None] = [None, *(FEW_ROWS if rows else SQUARE)]
        wanted[m, n, k] = [write(folder, d, t, rows) for d in ("nn", "nt") for t in tiles]
    every = list(dict.fromkeys(item for items in wanted.values() for item in items))
    with ThreadPoolExecutor(16) as pool:
        built = dict(zip(every, pool.map(build, every), strict=True))
    table: list[dict[str, object]] = []
    share: dict[str, float] = {}
    ranks: dict[str, float] = {}
    for shape, items in wanted.items():
        rows_of_shape = race(shape, items, built, options.rounds)
        table += rows_of_shape
        for kind in ("nn", "nt"):
            own = [r for r in rows_of_shape if r["kind"] == kind]
            rates = {str(r["tile"]): float(str(r["tflops"])) for r in own}
            name = f"{'x'.join(map(str, shape))} {kind}"
            ranks[name] = correlation(own)
            share[name] = round(rates["auto"] / max(rates.values()), 4)
    for row in sorted(
        table, key=lambda r: (str(r["shape"]), str(r["kind"]), -float(str(r["ratio"])))
    ):
        print(json.dumps(row), flush=True)
    print(json.dumps({"auto_of_best": share, "rank_correlation": ranks}), flush=True)
    if options.out:
        head = {
            "command": command(),
            "gpu": torch.cuda.get_device_name(),
            "operands": "bf16, code for sm_90",
            "method": "verified, then triton do_bench medians with a cold L2, in turns that begin elsewhere each round; ratio to cuBLAS within each round, median",
            "auto_of_best": share,
            "rank_correlation": ranks,
        }
        write_rows(options.out, head, table)


if __name__ == "__main__":
    main()
