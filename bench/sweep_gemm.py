"""Times products under given tiles, warps and stages beside cuBLAS: what the rules of the plan are drawn from.

usage: python bench/sweep_gemm.py [--out FILE] [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median

import torch
from triton.testing import do_bench

sys.path.insert(0, str(Path(__file__).parent))
from launchers import Launcher, load

Tile = tuple[int, int, int, int, int]

CONFIGURATIONS: list[Tile] = [  # (BM, BN, BK, warps, stages)
    (128, 128, 64, 4, 2), (128, 128, 64, 4, 3), (128, 128, 64, 8, 3), (128, 128, 32, 4, 4), (128, 128, 32, 4, 6),
    (128, 256, 32, 8, 4), (128, 256, 64, 8, 3), (128, 256, 64, 8, 4), (256, 128, 32, 8, 4), (256, 128, 64, 8, 3),
    (256, 128, 64, 8, 4), (256, 64, 64, 4, 3), (64, 256, 64, 4, 3), (128, 64, 64, 4, 4),
]  # fmt: skip

SOURCE = """kernel {name}(a: bf16[M, K], b: bf16[{b}]) -> c: bf16[M, N]:
    schedule warps = {warps}, stages = {stages}
    for i, j in parallel(M by {bm}, N by {bn}):
        acc = zeros(f32, i, j)
        for k in range(K by {bk}):
            acc += a[i, k] @ {right}
        c[i, j] = acc
"""


def timed(function: Callable[[], object]) -> float:
    """Median milliseconds with a cold L2."""
    return float(do_bench(function, warmup=5, rep=25, return_mode="median"))


def sources(folder: Path) -> list[tuple[str, Tile | str, str, str]]:
    """Kind, tile or "auto", file and kernel of all that is timed."""
    wanted: list[tuple[str, Tile | str, str, str]] = []
    for kind in ("nn", "nt"):
        wanted.append((kind, "auto", "samples/gemm.tile", f"gemm_{kind}"))
        for configuration in CONFIGURATIONS:
            bm, bn, bk, warps, stages = configuration
            name = f"g_{kind}_{bm}_{bn}_{bk}_{warps}_{stages}"
            text = SOURCE.format(
                name=name, b="K, N" if kind == "nn" else "N, K", right="b[k, j]" if kind == "nn" else "b[j, k].T",
                bm=bm, bn=bn, bk=bk, warps=warps, stages=stages,
            )  # fmt: skip
            path = folder / f"{name}.tile"
            path.write_text(text)
            wanted.append((kind, configuration, str(path), name))
    return wanted


def build(item: tuple[str, Tile | str, str, str]) -> Launcher | str:
    """The launcher, or why there is none: a configuration that does not fit is part of the table."""
    try:
        return load(item[2], item[3], "sm_90")
    except Exception as error:
        return str(error)[:100]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    wanted = sources(Path(tempfile.mkdtemp()))
    m = n = k = 4096
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    bt = b.T.contiguous()
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    reference = (a @ b).float()
    with ThreadPoolExecutor(16) as pool:
        built = list(pool.map(build, wanted))
    runs: list[tuple[str, Tile | str, Callable[[], object]]] = []
    for (kind, configuration, _, _), launch in zip(wanted, built, strict=True):
        if isinstance(launch, str):
            print(kind, configuration, launch)
            continue
        right = b if kind == "nn" else bt
        c.fill_(float("nan"))
        launch(a, right, c, m, k, n)
        error = float((c.float() - reference).norm() / reference.norm())
        assert error < 3e-3, (kind, configuration, error)
        runs.append((kind, configuration, partial(launch, a, right, c, m, k, n)))
    ratios: dict[tuple[str, Tile | str], list[float]] = {}
    times: dict[tuple[str, Tile | str], list[float]] = {}
    for _ in range(options.rounds):
        theirs = {
            "nn": timed(lambda: torch.mm(a, b, out=c)),
            "nt": timed(lambda: torch.mm(a, bt.T, out=c)),
        }
        for kind, configuration, run in runs:
            ms = timed(run)
            times.setdefault((kind, configuration), []).append(ms)
            ratios.setdefault((kind, configuration), []).append(theirs[kind] / ms)
    table = [
        {
            "kind": kind,
            "tile": configuration,
            "ratio": round(median(ratios[kind, configuration]), 4),
            "tflops": round(2.0 * m * n * k / median(times[kind, configuration]) * 1e-9, 1),
        }
        for kind, configuration, _ in runs
    ]
    share = {}
    for kind in ("nn", "nt"):
        rates = {str(r["tile"]): float(str(r["tflops"])) for r in table if r["kind"] == kind}
        share[kind] = round(rates["auto"] / max(rates.values()), 4)
    for row in sorted(table, key=lambda r: (str(r["kind"]), -float(str(r["ratio"])))):
        print(json.dumps(row), flush=True)
    print(json.dumps({"auto_of_best": share}), flush=True)
    if options.out:
        head = {
            "command": "python bench/sweep_gemm.py " + " ".join(sys.argv[1:]),
            "gpu": torch.cuda.get_device_name(),
            "shape": "4096^3 bf16, code for sm_90",
            "method": "verified, then triton do_bench medians with a cold L2, in turns; ratio to cuBLAS within each round, median",
            "auto_of_best": share,
        }
        Path(options.out).write_text(json.dumps({**head, "rows": table}, indent=1) + "\n")


if __name__ == "__main__":
    main()
