"""The environment check: facts about the machine, collected and not printed."""

from __future__ import annotations

import importlib.util
import platform
import warnings
from dataclasses import asdict, dataclass
from typing import Any, Literal

import tilec
from tilec.source.diagnostics import TileError
from tilec.toolchain.driver import Device, Driver, query_driver
from tilec.toolchain.host_compiler import find_host_compiler
from tilec.toolchain.nvcc import Nvcc, find_cuobjdump, find_nvcc

Fit = Literal["fits", "fits, without PTX", "driver too old", "unknown"]
"""Whether the driver runs what the toolkit builds (CUDA compatibility guide: any driver of the same major version runs
machine code; PTX of a toolkit newer than the driver is not compiled; an older major version runs nothing)."""


@dataclass(frozen=True)
class Check:
    """One line of the check. `found` is what is there, or why it is not; `help` says what to do."""

    name: str
    ok: bool
    found: str
    help: str = ""


@dataclass(frozen=True)
class Health:
    """Everything the check knows. `driver` and `toolkit` are CUDA versions, None where there is none."""

    tilec: str
    python: str
    driver: tuple[int, int] | None
    toolkit: tuple[int, int] | None
    fit: Fit
    devices: tuple[Device, ...]
    checks: tuple[Check, ...]

    @property
    def can_build(self) -> bool:
        """nvcc and a host compiler are there."""
        return all(c.ok for c in self.checks if c.name in ("nvcc", "host compiler"))

    def as_json(self) -> dict[str, Any]:
        """Plain data, versions as `13.0`."""
        return {
            "tilec": self.tilec,
            "python": self.python,
            "driver": version_text(self.driver),
            "toolkit": version_text(self.toolkit),
            "fit": self.fit,
            "can_build": self.can_build,
            "devices": [{**asdict(d), "arch": d.arch} for d in self.devices],
            "checks": [asdict(c) for c in self.checks],
        }


def version_text(version: tuple[int, int] | None) -> str | None:
    """`13.0`, or None."""
    return f"{version[0]}.{version[1]}" if version else None


def judge_fit(driver: tuple[int, int] | None, toolkit: tuple[int, int] | None) -> Fit:
    """Whether a driver that speaks CUDA `driver` runs what `toolkit` builds."""
    if driver is None or toolkit is None:
        return "unknown"
    if driver >= toolkit:
        return "fits"
    return "fits, without PTX" if driver[0] == toolkit[0] else "driver too old"


def examine(nvcc: str | None = None, *, driver: Driver | None = None) -> Health:
    """Look at the machine; `nvcc` is the option of the command line. Never raises for what is missing."""
    checks = [Check("python", True, platform.python_version())]
    spoken = query_driver() if driver is None else driver
    toolkit, tool_checks = _tools(nvcc)
    checks += tool_checks
    fit = judge_fit(spoken.version, toolkit)
    checks.append(
        Check("driver", spoken.version is not None, f"CUDA {version_text(spoken.version)}")
        if spoken.version
        else Check("driver", False, spoken.problem, "install the NVIDIA driver to run on a GPU")
    )
    if spoken.version and toolkit:
        checks.append(_fit_check(fit, spoken.version, toolkit))
    for device in spoken.devices:
        gigabytes = device.memory_bytes / 2**30
        text = f"{device.name}, {device.arch}, {gigabytes:.0f} GiB, {device.multiprocessors} SMs"
        checks.append(Check(f"GPU {device.index}", True, text))
    if spoken.version and not spoken.devices:
        checks.append(Check("GPU", False, spoken.problem))
    checks.append(_pycuda())
    return Health(
        tilec.__version__,
        platform.python_version(),
        spoken.version,
        toolkit,
        fit,
        spoken.devices,
        tuple(checks),
    )


def _tools(named: str | None) -> tuple[tuple[int, int] | None, list[Check]]:
    """The toolkit's version, and the checks of nvcc, the host compiler and cuobjdump."""
    nvcc: Nvcc | None = None
    try:
        nvcc = find_nvcc(named)
        checks = [Check("nvcc", True, f"{nvcc.release} at {nvcc.path}, {nvcc.why}")]
    except TileError as error:
        checks = [_missing("nvcc", error)]
    try:
        host = find_host_compiler(nvcc)
    except TileError as error:
        checks.append(_missing("host compiler", error))
    else:
        checks.append(
            Check("host compiler", True, f"g++ {host.release} at {host.path}, {host.why}")
        )
    if nvcc is None:
        return None, checks
    try:
        checks.append(Check("cuobjdump", True, str(find_cuobjdump(nvcc))))
    except TileError as error:
        checks.append(_missing("cuobjdump", error))
    return nvcc.version, checks


def _missing(name: str, error: TileError) -> Check:
    first = error.diagnostics[0]
    return Check(name, False, "; ".join((first.message, *first.notes)), "; ".join(first.helps))


def _fit_check(fit: Fit, driver: tuple[int, int], toolkit: tuple[int, int]) -> Check:
    text = f"driver {version_text(driver)}, toolkit {version_text(toolkit)}: {fit}"
    advice = {
        "driver too old": f"update the driver, or use a toolkit of CUDA {driver[0]}",
        "fits, without PTX": "build for the GPU's own architecture, as tilec does",
    }
    return Check("versions", fit != "driver too old", text, advice.get(fit, ""))


def _pycuda() -> Check:
    advice = "run `pip install 'tilec[gpu]'` to run on a GPU"
    if importlib.util.find_spec("pycuda") is None:
        return Check("pycuda", False, "not installed", advice)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            import pycuda.driver
    except Exception as error:  # a broken extension module raises what it likes
        return Check("pycuda", False, f"{type(error).__name__}: {error}", advice)
    version = ".".join(map(str, pycuda.VERSION))
    return Check("pycuda", True, f"{version}, built for CUDA {pycuda.driver.get_version()[0]}")
