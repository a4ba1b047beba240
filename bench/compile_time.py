"""What compiling takes, start-up included: the least wall time of several runs, each a process of its own, with tilec's modules as
bytecode, as they are where tilec is installed.

usage: python bench/compile_time.py [--rounds N] [--out FILE]
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from records import command, write_record

ROOT = Path(__file__).resolve().parent.parent
KERNELS = 200


def many_kernels(count: int) -> str:
    """A program of `count` different row softmaxes, sums and element-wise kernels."""
    texts: list[str] = []
    for n in range(count):
        match n % 3:
            case 0:
                text = (
                    f"kernel softmax_{n}(x: bf16[R, C]) -> y: bf16[R, C]:\n"
                    "    require C <= 131072\n"
                    "    for r in parallel(R):\n"
                    "        row = x[r, :].to(f32)\n"
                    "        e = exp(row - max(row))\n"
                    f"        y[r, :] = e / (sum(e) + {n}.0)\n"
                )
            case 1:
                text = (
                    f"kernel mean_{n}(x: f16[R, C]) -> y: f32[R]:\n"
                    f"    require C <= {4096 + n}\n"
                    "    for r in parallel(R):\n"
                    "        y[r] = sum(x[r, :].to(f32)) / C\n"
                )
            case _:
                text = (
                    f"kernel scale_{n}[BN = 1024](a: f32[N], b: f32[N]) -> c: f32[N]:\n"
                    "    for i in parallel(N by BN):\n"
                    f"        c[i] = a[i] * {n}.0 + b[i]\n"
                )
        texts.append(text)
    return "\n".join(texts)


def least_seconds(
    arguments: list[str], rounds: int, environment: dict[str, str]
) -> tuple[float, float]:
    """(wall, CPU) seconds of the quickest of `rounds` runs of `tilec`, each after a first that fills the caches."""
    command = [sys.executable, "-m", "tilec", *arguments]
    found: list[tuple[float, float]] = []
    for number in range(rounds + 1):
        before = os.times()
        start = time.perf_counter()
        subprocess.run(
            command,
            cwd=ROOT,
            env=environment,
            check=True,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        wall = time.perf_counter() - start
        after = os.times()
        used = after.children_user + after.children_system
        if number:
            found.append((wall, used - before.children_user - before.children_system))
    return min(found)


def main() -> int:
    """Prints and writes the figures; 1 where one is above its limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--out", type=Path, default=ROOT / "bench/results/compile_time.json")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        many = Path(folder) / "many.tile"
        many.write_text(many_kernels(KERNELS), encoding="utf-8")
        environment = {**os.environ, "PYTHONPYCACHEPREFIX": str(Path(folder) / "bytecode")}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        cases: list[tuple[str, list[str], float | None]] = [
            ("tilec --help", ["--help"], 0.15),
            (
                "tilec compile samples/attention.tile --emit tile-ir",
                ["compile", "samples/attention.tile", "--emit", "tile-ir"],
                0.5,
            ),
            (
                "tilec compile samples/softmax.tile -o -",
                ["compile", "samples/softmax.tile", "-o", "-"],
                0.5,
            ),
            (
                "tilec compile samples/attention.tile -o -",
                ["compile", "samples/attention.tile", "-o", "-"],
                0.5,
            ),
            (f"{KERNELS} kernels in one file", ["compile", str(many), "-o", "-"], 6.0),
            (
                f"{KERNELS} kernels in one file, --jobs 1",
                ["compile", str(many), "-o", "-", "--jobs", "1"],
                None,
            ),
        ]
        rows: list[dict[str, object]] = []
        above = 0
        for name, arguments, limit in cases:
            quick = limit is not None and limit < 1
            wall, used = least_seconds(arguments, options.rounds if quick else 2, environment)
            above += limit is not None and wall > limit
            rows.append(
                {
                    "case": name,
                    "seconds": round(wall, 3),
                    "cpu_seconds": round(used, 3),
                    "limit": limit,
                }
            )
            allowed = "" if limit is None else f" of {limit:.2f} s"
            print(f"{wall:7.3f} s{allowed} ({used:.3f} s CPU)  {name}", flush=True)
    load = os.getloadavg()[0] if hasattr(os, "getloadavg") else -1.0
    report = {
        "command": command(),
        "method": "least wall time of processes, caches warm; other work shares the machine if `load` is above 1",
        "python": platform.python_version(),
        "cores": os.cpu_count(),
        "load": round(load, 2),
        "cases": rows,
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    write_record(options.out, report)
    print(f"{len(rows)} cases, {above} above their limit; {options.out}")
    return 1 if above else 0


if __name__ == "__main__":
    sys.exit(main())
