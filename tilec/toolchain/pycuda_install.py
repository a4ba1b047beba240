"""`python -m tilec.toolchain.pycuda_install`: install pycuda where there is a GPU, or say what it lacks.

PyPI has pycuda as source only, so that pip compiles it: that needs a C++ compiler, Python's headers, the toolkit's
`cuda.h` and the driver's library. What is missing is named with the command that installs it, and the exit status
stays 0: without pycuda tilec goes on without a GPU.
"""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Mapping
from pathlib import Path

from tilec.source.diagnostics import TileError
from tilec.toolchain.driver import query_driver
from tilec.toolchain.host_compiler import HostCompiler, find_host_compiler
from tilec.toolchain.nvcc import Nvcc, find_nvcc

REQUIREMENT = "pycuda>=2024.1"
"""What pip is asked for; the same as the extra `gpu`."""

_LOG_LINES = 15


def missing_for_pycuda(nvcc: Nvcc | None, host: HostCompiler | None, python_include: Path) -> str:
    """The first thing that building pycuda lacks, with the command that installs it; empty if all is there."""
    if host is None:
        return "a C++ compiler (g++) is missing: run `apt-get install g++`"
    if not (python_include / "Python.h").is_file():
        version = f"{sys.version_info[0]}.{sys.version_info[1]}"
        return (
            f"the header `Python.h` is missing below `{python_include}`: "
            f"run `apt-get install python{version}-dev`"
        )
    for header in ("cuda.h", "cudaProfiler.h"):
        if nvcc is None or not any((folder / header).is_file() for folder in nvcc.include_dirs):
            return (
                f"the header `{header}` is missing: run `pip install 'tilec[nvcc]'` or install the "
                "CUDA toolkit"
            )
    return ""


def explain_log(log: str) -> str:
    """The missing header, library or program that a failed build names, else its last lines."""
    if header := re.search(r"fatal error: (\S+): No such file", log):
        return f"the header `{header[1]}` is missing"
    if library := re.search(r"cannot find -l(\S+?):? ", log + " "):
        return f"the library `lib{library[1]}.so` is missing"
    if program := re.search(r"(?:command|error: command) '([^']+)' failed: No such file", log):
        return f"the program `{program[1]}` is missing"
    return "pip said: " + "\n  ".join(log.strip().splitlines()[-_LOG_LINES:])


def build_environment(
    nvcc: Nvcc, host: HostCompiler, folder: Path, driver_library: Path | None
) -> Mapping[str, str]:
    """The variables for pip: the toolkit's programs, headers and libraries, and pycuda's own settings in `folder`.

    pycuda reads `~/.aksetup-defaults.py`: cuRAND is switched off there (the Python packages of the toolkit lack it).
    The driver's library has no name without a version on many machines; `folder` gives it one.
    """
    (folder / ".aksetup-defaults.py").write_text(
        f"CUDA_ENABLE_CURAND = False\nCUDA_ROOT = {str(nvcc.program.parent.parent)!r}\n"
    )
    libraries = [str(d) for d in nvcc.library_dirs]
    if driver_library:
        (folder / "libcuda.so").symlink_to(driver_library)
        libraries.insert(0, str(folder))
    home = Path.home()
    variables = dict(os.environ)
    variables.setdefault("PIP_CACHE_DIR", str(home / ".cache" / "pip"))
    settings = [home / ".config" / "pip" / "pip.conf", home / ".pip" / "pip.conf"]
    for file in settings:
        if file.is_file():
            variables.setdefault("PIP_CONFIG_FILE", str(file))
    separator = os.pathsep
    return {
        **variables,
        "HOME": str(folder),
        "CXX": str(host.path),
        "PATH": str(nvcc.program.parent) + separator + variables.get("PATH", os.defpath),
        "CPATH": separator.join(str(d) for d in nvcc.include_dirs),
        "LIBRARY_PATH": separator.join(libraries),
    }


def loaded_library(name: str, maps: Path = Path("/proc/self/maps")) -> Path | None:
    """Where a library that this process has loaded lies; None if it has not."""
    try:
        text = maps.read_text()
    except OSError:
        return None
    found = re.search(rf"(/\S*/{re.escape(name)}\S*)", text)
    return Path(found[1]) if found else None


def install() -> str:
    """Install pycuda if there is a GPU; returns one line on what came of it."""
    driver = query_driver()
    if not driver.devices:
        return f"no GPU here ({driver.problem}): going on without pycuda"
    if importlib.util.find_spec("pycuda"):
        return "pycuda is installed"
    nvcc: Nvcc | None = None
    host: HostCompiler | None = None
    problem = ""
    try:
        nvcc = find_nvcc()
        host = find_host_compiler(nvcc)
    except TileError as error:
        problem = "; ".join([error.diagnostics[0].message, *error.diagnostics[0].helps])
    lacking = missing_for_pycuda(nvcc, host, Path(sysconfig.get_paths()["include"]))
    if nvcc is None or host is None or lacking:
        return f"pycuda cannot be built: {problem or lacking}; going on without a GPU"
    print("building pycuda (a few minutes, once)", flush=True)
    with tempfile.TemporaryDirectory(prefix="tilec-") as folder:
        variables = build_environment(nvcc, host, Path(folder), loaded_library("libcuda.so"))
        done = subprocess.run(
            [sys.executable, "-m", "pip", "install", "--disable-pip-version-check", REQUIREMENT],
            env=variables,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    if done.returncode == 0:
        return "pycuda is installed"
    reason = explain_log(done.stdout.decode(errors="replace"))
    return f"pycuda cannot be built: {reason}; going on without a GPU"


if __name__ == "__main__":
    print(install())
