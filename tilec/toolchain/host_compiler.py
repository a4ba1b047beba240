"""Finding the host C++ compiler that nvcc preprocesses and links with."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from tilec.source.diagnostics import fail
from tilec.toolchain.nvcc import Nvcc
from tilec.toolchain.process import run_tool

_OLDEST = 7
"""g++ 7 is the first with C++17."""

_NEWEST_TRIED = 20


@dataclass(frozen=True)
class HostCompiler:
    """A host C++ compiler; `version` is its major version."""

    path: Path
    version: int
    release: str
    why: str

    @property
    def identity(self) -> str:
        """What a cache key takes of it."""
        return f"host {self.release}"


def newest_host_version(nvcc: Nvcc) -> int | None:
    """The newest major version of g++ that this toolkit accepts, read from its `crt/host_config.h`; None if unknown."""
    for folder in nvcc.include_dirs:
        header = folder / "crt" / "host_config.h"
        if header.is_file():
            text = header.read_text(errors="replace")
            if found := re.search(r"gcc versions later than (\d+) are not supported", text):
                return int(found[1])
    return None


def find_host_compiler(
    nvcc: Nvcc | None = None, *, environment: Mapping[str, str] | None = None
) -> HostCompiler:
    """The host compiler: `TILEC_CXX`, `NVCC_CCBIN`, `g++`, then `g++-N` from the newest that `nvcc` accepts down.

    Raises TileError (E0802) if there is none, or if the one named does not start.
    """
    variables = os.environ if environment is None else environment
    newest = newest_host_version(nvcc) if nvcc else None
    passed_over: list[str] = []
    for name, why, demanded in _candidates(variables, newest):
        found = shutil.which(name, path=variables.get("PATH", os.defpath))
        compiler = _identify(found, why) if found else None
        if compiler is None:
            if demanded:
                raise fail("E0802", f"`{name}`, {why}, is no compiler that starts", help=_HELP)
            continue
        if demanded or newest is None or compiler.version <= newest:
            return compiler
        passed_over.append(f"`{found}` is version {compiler.version}")
    if passed_over and nvcc:
        raise fail(
            "E0802",
            f"nvcc {nvcc.version_text} accepts g++ up to version {newest}",
            note=", ".join(passed_over),
            help=f"install g++-{newest}, or name a compiler with `TILEC_CXX`",
        )
    raise fail("E0802", "there is no host C++ compiler", help=_HELP)


_HELP = "install g++, for example with `apt-get install g++`, or name one with `TILEC_CXX`"


def _candidates(
    variables: Mapping[str, str], newest: int | None
) -> Iterator[tuple[str, str, bool]]:
    for variable in ("TILEC_CXX", "NVCC_CCBIN"):
        if named := variables.get(variable):
            yield named, f"named by `{variable}`", True
    yield "g++", "on the search path", False
    for version in range(newest or _NEWEST_TRIED, _OLDEST - 1, -1):
        yield f"g++-{version}", "on the search path", False


def _identify(path: str, why: str) -> HostCompiler | None:
    ran = run_tool([path, "-dumpfullversion", "-dumpversion"], timeout=60)
    release = ran.output.strip()
    found = re.match(r"(\d+)(\.\d+)*$", release)
    if ran.status != 0 or not found:
        return None
    return HostCompiler(Path(path), int(found[1]), release, why)
