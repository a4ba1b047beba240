"""Computed occupancy beside Nsight Compute's for the samples, and counted bytes of DRAM beside its counters for streaming kernels.

usage: python bench/profiles.py [--out FILE] [--jobs N] [--seconds N]

Runs `tilec profile FILE --json` of each sample twice, the first time with `--ncu off`, and compares. Streaming kernels are those
whose call moves each argument once; they are measured at sizes far beyond the L2.
Exit status: 0 all equal, 3 no GPU or an ncu that this machine refuses, 4 something differs.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from records import of_commit, write_record

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

STREAMING = {
    "vector_add": ("N=134217728",),
    "softmax": ("R=32768", "C=8192"),
    "rms_norm": ("R=32768", "C=8192"),
    "layer_norm": ("R=32768", "C=8192"),
    "rms_norm_residual": ("R=32768", "C=8192"),
    "softmax_backward": ("R=32768", "C=8192"),
    "swiglu": ("R=32768", "C=8192"),
    "rope": ("T=65536", "H=32", "D=128"),
    "transpose": ("M=32768", "N=8192"),
    "dropout": ("N=268435456",),
    "cast_fp8_rows": ("R=32768", "C=8192"),
    "residual_norm_fp8": ("R=32768", "C=8192"),
}
"""Each argument is read or written once. Sizes of half a gigabyte and more: some 20 MB of what a kernel writes are still in the L2, and
in no counter, when it ends."""

WITHIN = 0.05


def profiled(file: str, kernel: str, ncu: str, environment: dict[str, str]) -> dict[str, Any]:
    """What `tilec profile` says of one kernel."""
    words = [sys.executable, "-m", "tilec", "profile", file, kernel, "--json", "--ncu", ncu]
    words += [word for size in STREAMING.get(kernel, ()) for word in ("-s", size)]
    ran = subprocess.run(
        words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    if ran.returncode:
        return {"failed": (ran.stderr or ran.stdout)[-400:]}
    found: dict[str, Any] = json.loads(ran.stdout)
    return found


def compared(kernel: str, measured: dict[str, Any], estimated: dict[str, Any]) -> dict[str, Any]:
    """One kernel's row: per launch the two occupancies, and the bytes of the whole call."""
    computed = {u["kernel"]: u["occupancy"] for u in measured["kernels"]}
    launches = [
        {
            "kernel": launch["kernel"],
            "computed": round(computed[launch["kernel"]], 4),
            "ncu": launch["theoretical_occupancy"],
            "achieved": launch["achieved_occupancy"],
            "tensor_share": launch["tensor_share"],
            "dram_bytes": launch["dram_bytes"],
        }
        for launch in measured["launches"]
        if launch["source"] == "ncu"
    ]
    row: dict[str, Any] = {"kernel": kernel, "launches": launches, "notes": measured["notes"]}
    row["occupancy_equal"] = bool(launches) and all(
        x["ncu"] is not None and abs(x["computed"] - x["ncu"]) < 0.005 for x in launches
    )
    counted = sum(x["dram_bytes"] or 0 for x in estimated["launches"])
    seen = sum(x["dram_bytes"] or 0 for x in launches)
    if kernel in STREAMING and counted and seen:
        row["counted_bytes"], row["ncu_bytes"] = counted, seen
        row["bytes_ratio"] = round(counted / seen, 4)
    return row


def main() -> int:
    """Profile all, compare, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--jobs", type=int, default=min(8, os.cpu_count() or 1))
    parser.add_argument("--seconds", type=float, default=180.0)
    options = parser.parse_args()
    from tilec.toolchain.driver import query_driver

    devices = query_driver().devices
    if not devices:
        print(f"no GPU: {query_driver().problem}", file=sys.stderr)
        return 3
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    lines = [
        line.split()
        for line in (ROOT / "samples" / "compiled.txt").read_text().splitlines()
        if line and line[0].islower()
    ]
    wanted = [(f"samples/{words[0]}", words[1]) for words in lines]
    with ThreadPoolExecutor(options.jobs) as pool:
        estimated = list(pool.map(lambda w: profiled(*w, "off", environment), wanted))
    deadline = time.monotonic() + options.seconds

    def row(wanted_kernel: tuple[str, str], estimate: dict[str, Any]) -> dict[str, Any]:
        file, kernel = wanted_kernel
        if time.monotonic() > deadline:
            return {"kernel": kernel, "failed": "not run in time"}
        found = profiled(file, kernel, "auto", environment)
        failed = found.get("failed") or estimate.get("failed")
        return {"kernel": kernel, "failed": failed} if failed else compared(kernel, found, estimate)

    # Nsight Compute takes the GPU for one process at a time; their inputs are made side by side
    with ThreadPoolExecutor(min(options.jobs, 6)) as pool:
        rows = list(pool.map(row, wanted, estimated))
    for found in rows:
        print(json.dumps({k: v for k, v in found.items() if k != "launches"}), flush=True)
    measured = [r for r in rows if r.get("launches")]
    equal = [r for r in measured if r["occupancy_equal"]]
    streaming = [r for r in measured if "bytes_ratio" in r]
    close = [r for r in streaming if abs(r["bytes_ratio"] - 1) <= WITHIN]
    print(f"occupancy: {len(equal)} of {len(measured)} as ncu; {len(wanted)} kernels")
    print(f"bytes of DRAM: {len(close)} of {len(streaming)} within {WITHIN:.0%}")
    if options.out:
        data = {
            **of_commit(devices[0].name),
            "occupancy_equal": f"{len(equal)} of {len(measured)}",
            "bytes_within": f"{len(close)} of {len(streaming)}",
            "kernels": rows,
        }
        write_record(options.out, data)
    if not measured:
        return 3
    return 0 if len(equal) == len(wanted) and len(close) == len(streaming) else 4


if __name__ == "__main__":
    sys.exit(main())
