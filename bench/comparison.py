"""The verified times of samples beside PyTorch on the same inputs: `tilec run --bench --against torch --json -` of each, as one table.

usage: python bench/comparison.py [--out FILE]

PyTorch evaluates the `check` clause: products through cuBLAS, the rest operation by operation. Exit status: 0, 1 where a run fails
or does not verify, 3 without a GPU.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

from records import of_commit, write_rows

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

CASES = (
    ("gemm.tile", "gemm_nn"),
    ("gemm_bias_relu.tile", "gemm_bias_relu"),
    ("softmax.tile", "softmax"),
    ("attention.tile", "attention"),
)


def measured(file: str, kernel: str) -> dict[str, Any]:
    """What one run says; `failed` in place of times where it does not verify."""
    words = ["run", f"samples/{file}", kernel, "--bench", "--against", "torch", "--json", "-"]
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{os.environ.get('PYTHONPATH', '')}"}
    ran = subprocess.run(
        [sys.executable, "-m", "tilec", *words],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    row: dict[str, Any] = {"kernel": kernel, "command": shlex.join(["tilec", *words])}
    if ran.returncode:
        return {**row, "failed": (ran.stderr or ran.stdout)[-600:]}
    found = json.loads(ran.stdout)
    return {**row, "table": _short(found), "run": found}


def main() -> int:
    """Run all, print, write."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    from tilec.toolchain.driver import query_driver

    devices = query_driver().devices
    if not devices:
        print(f"no GPU: {query_driver().problem}", file=sys.stderr)
        return 3
    rows = []
    for case in CASES:
        row = measured(*case)
        rows.append(row)
        print(json.dumps(row.get("table", row)), flush=True)
    if options.out:
        write_rows(options.out, of_commit(devices[0].name), rows)
    return 1 if any("failed" in row for row in rows) else 0


def _short(found: dict[str, Any]) -> dict[str, Any]:
    """The figures of a row of the table."""
    (outcome,) = found["outcomes"]
    comparison = outcome["comparison"]
    return {
        "kernel": outcome["kernel"],
        "sizes": outcome["sizes"],
        "status": outcome["status"],
        "tilec_us": round(comparison["ours"]["median"], 2),
        "torch_us": round(comparison["theirs"]["median"], 2),
        "ratio": round(comparison["ratio"], 3),
        "teraflops": comparison["ours"]["teraflops"],
        "gigabytes_per_second": comparison["ours"]["gigabytes_per_second"],
        "torch": comparison["mode"],
        "max_error": comparison["max_error"],
        "allclose": comparison["allclose"],
    }


if __name__ == "__main__":
    sys.exit(main())
