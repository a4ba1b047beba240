"""Nsight Compute: what one launch moved and how busy it kept the SM, by hardware counters."""

from __future__ import annotations

import csv
import glob
import io
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tilec.toolchain.process import run_tool

_READ, _WRITTEN = "dram__bytes_read.sum", "dram__bytes_write.sum"
_WARPS = "sm__warps_active.avg.pct_of_peak_sustained_active"
_TENSOR = (
    "sm__pipe_tensor_cycles_active.avg.pct_of_peak_sustained_active",
    "sm__inst_executed_pipe_tensor.avg.pct_of_peak_sustained_active",
)
"""The tensor pipes' share; which name exists depends on the architecture."""

_RESIDENT = "sm__maximum_warps_per_active_cycle_pct"
"""The theoretical occupancy as ncu computes it, for comparison with ours."""

_UNITS = {"byte": 1.0, "Kbyte": 1e3, "Mbyte": 1e6, "Gbyte": 1e9, "Tbyte": 1e12}
_PLACES = ("/usr/local/cuda*/bin/ncu", "/opt/nvidia/nsight-compute/*/ncu")
_TIME_LIMIT = 600


@dataclass(frozen=True)
class Ncu:
    """An ncu that starts."""

    path: Path
    version: str


@dataclass(frozen=True)
class Counted:
    """One launch. Shares are between 0 and 1, None where the counter is not there."""

    kernel: str
    dram_bytes: float | None
    tensor_share: float | None
    achieved_occupancy: float | None
    theoretical_occupancy: float | None = None


def find_ncu(named: str = "auto", *, places: Sequence[str] = _PLACES) -> Ncu | str:
    """The ncu named, on the search path or of a toolkit, or why there is none."""
    if named != "auto":
        candidates = [shutil.which(named) or named]
    else:
        on_path = shutil.which("ncu")
        candidates = [on_path] if on_path else []
        for place in places:
            candidates += sorted(glob.glob(place), reverse=True)
    for path in candidates:
        if not os.access(path, os.X_OK):
            continue
        ran = run_tool([path, "--version"], timeout=60)
        if ran.status == 0:
            last = ran.output.strip().splitlines()[-1:] or [""]
            return Ncu(Path(path), last[0])
    return f"`{named}` does not start" if named != "auto" else "there is no ncu"


def measure(
    tool: Ncu, file: str, kernel: str, settings: Sequence[str], defines: Sequence[str]
) -> list[Counted] | str:
    """The launches of one call at its example sizes, in order, with cold caches and clocks left alone; or why ncu gave nothing."""
    said = ""
    for more in (*((t, _RESIDENT) for t in _TENSOR), (_RESIDENT,), ()):
        metrics = ",".join((_READ, _WRITTEN, _WARPS, *more))
        command = [str(tool.path), "--clock-control", "none", "--csv", "--metrics", metrics]
        # the fills and copies of the set-up are no kernels of the program
        command += ["--kernel-name-base", "function", "--kernel-name", f"regex:{kernel}"]
        command += [sys.executable, "-m", "tilec.jobs.profile_child", file, kernel]
        command += [" ".join(settings), " ".join(defines)]
        ran = run_tool(command, timeout=_TIME_LIMIT)
        found = parse_csv(ran.output)
        if ran.status == 0 and found:
            return found
        errors = [line for line in ran.output.splitlines() if line.startswith("==ERROR==")]
        said = (errors or ran.output.strip().splitlines()[-1:] or ["no output"])[0]
        if "metric" not in said.lower():
            break
    return said.removeprefix("==ERROR==").strip()


def parse_csv(output: str) -> list[Counted]:
    """The launches in what `ncu --csv` printed; lines before the table are passed over."""
    lines = output.splitlines()
    start = next((n for n, line in enumerate(lines) if line.startswith('"ID"')), None)
    if start is None:
        return []
    launches: dict[str, tuple[str, dict[str, float]]] = {}
    for row in csv.DictReader(io.StringIO("\n".join(lines[start:]))):
        number, name = row.get("Metric Value") or "", row.get("Metric Name") or ""
        values = launches.setdefault(row["ID"], (_plain(row["Kernel Name"]), {}))[1]
        try:
            value = float(number.replace(",", ""))
        except ValueError:
            continue  # `n/a`
        values[name] = value * _UNITS.get(row.get("Metric Unit") or "", 1.0)
    return [_counted(name, values) for name, values in launches.values()]


def _plain(name: str) -> str:
    """`f` for `f(const int *)`."""
    return name.partition("(")[0].strip()


def _counted(name: str, values: dict[str, float]) -> Counted:
    moved = [values[m] for m in (_READ, _WRITTEN) if m in values]
    tensor = next((values[m] / 100 for m in _TENSOR if m in values), None)
    warps, resident = (values[m] / 100 if m in values else None for m in (_WARPS, _RESIDENT))
    return Counted(name, sum(moved) if len(moved) == 2 else None, tensor, warps, resident)
