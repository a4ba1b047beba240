"""Seconds from an edit of one line of a product to its verified run on the GPU, as a JSON file.

usage: python bench/edit_time.py [--edits N] [--out FILE]

Each edit changes a constant of samples/gemm.tile, so that the kernel's text differs and nvcc builds it anew; then `tilec run` is
timed as a user starts it: a process of its own, at the sizes of `example`. A run before the first edit has filled the caches.
Exit status: 0 all runs verified, 3 no GPU, 4 a run did not verify.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from records import of_commit, write_record

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

SAMPLE = ROOT / "samples" / "gemm.tile"
KERNELS = ("gemm_nn", "")
"""One kernel, and all of the file."""


def edited(factor: float) -> str:
    """The sample with its results multiplied by a constant that one line defines."""
    text = SAMPLE.read_text(encoding="utf-8")
    for plain, scaled in (
        ("c[i, j] = acc\n", "c[i, j] = acc * FACTOR\n"),
        ("check c == a @ b\n", "check c == (a @ b) * FACTOR\n"),
        ("check c == a @ b.T\n", "check c == (a @ b.T) * FACTOR\n"),
    ):
        assert plain in text, f"{SAMPLE} has no line `{plain.strip()}`"
        text = text.replace(plain, scaled)
    return f"const FACTOR = {factor}\n{text}"


def timed(path: Path, kernel: str) -> tuple[float, bool, str]:
    """Seconds of `tilec run`, whether it verified, and what it printed."""
    command = [sys.executable, "-m", "tilec", "run", str(path), *([kernel] if kernel else [])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path[1:]])}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # as where tilec is installed
    start = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    return time.perf_counter() - start, done.returncode == 0, done.stdout + done.stderr


def main() -> int:
    """Edit, run, and write what it took."""
    from tilec.toolchain.driver import query_driver

    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--edits", type=int, default=5)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    devices = query_driver().devices
    if not devices:
        print(f"no GPU: {query_driver().problem}", file=sys.stderr)
        return 3
    found: dict[str, Any] = {
        **of_commit(devices[0].name),
        "processors": os.cpu_count(),
        "runs": [],
    }
    status = 0
    with tempfile.TemporaryDirectory(prefix="tilec-edit-") as made:
        path = Path(made) / "gemm.tile"
        for kernel in KERNELS:
            path.write_text(edited(1.0625), encoding="utf-8")
            timed(path, kernel)
            seconds = []
            for n in range(options.edits):
                path.write_text(edited(1.125 + n / 16), encoding="utf-8")
                took, verified, printed = timed(path, kernel)
                if not verified:
                    print(printed, file=sys.stderr)
                    status = 4
                seconds.append(round(took, 3))
            name = kernel or "all kernels"
            found["runs"].append(
                {
                    "kernel": name,
                    "seconds": seconds,
                    "median": statistics.median(seconds),
                    "verified": status == 0,
                }
            )
            print(f"{name}: {statistics.median(seconds):.2f} s of {seconds}")
    if options.out:
        write_record(options.out, found)
    return status


if __name__ == "__main__":
    sys.exit(main())
