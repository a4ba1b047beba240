"""Finding nvcc: a toolkit of the system, or the one that Python packages carry."""

from __future__ import annotations

import glob
import json
import os
import re
import shlex
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from tilec.source.diagnostics import TileError, fail
from tilec.toolchain.cache import Cache, cache_key
from tilec.toolchain.process import run_tool

NvccKind = Literal["option", "environment", "system", "wheel"]
"""How an nvcc was found."""

SYSTEM_PATTERN = "/usr/local/cuda*/bin/nvcc"
"""Where installers put the toolkit."""


@dataclass(frozen=True)
class Nvcc:
    """An nvcc that starts: `path` is what to run, `program` the real program where that is a wrapper script.

    A wrapper that the user named is run as such; one that was merely found is not.
    """

    path: Path
    program: Path
    version: tuple[int, int]
    release: str
    kind: NvccKind
    why: str
    include_dirs: tuple[Path, ...]
    library_dirs: tuple[Path, ...]

    @property
    def identity(self) -> str:
        """What a cache key takes of it: the full release, not the place."""
        return f"nvcc {self.release}"

    @property
    def version_text(self) -> str:
        """`13.0`."""
        return f"{self.version[0]}.{self.version[1]}"


@dataclass(frozen=True)
class _Identity:
    """What nvcc says of itself; cached, so that a repeated `tilec run` starts no nvcc."""

    real: str
    version: tuple[int, int]
    release: str
    include_dirs: tuple[str, ...]
    library_dirs: tuple[str, ...]


_NO_NVCC_HELP = "install the CUDA toolkit, or run `pip install 'tilec[nvcc]'`; `--nvcc` or `TILEC_NVCC` names one"


def find_nvcc(
    explicit: str | None = None,
    *,
    environment: Mapping[str, str] | None = None,
    system_pattern: str = SYSTEM_PATTERN,
    python_path: Sequence[str] | None = None,
    cache: Cache | None = None,
) -> Nvcc:
    """The nvcc to use; `explicit` is the option of the command line.

    The first that starts of: `explicit`, `TILEC_NVCC`, `CUDA_HOME`, `CUDA_PATH`, the search path, `system_pattern`
    (newest first), the packages below `python_path` (default: `sys.path`). Raises TileError (E0801) if there is none,
    or if one named by the option or by `TILEC_NVCC` does not start.
    """
    variables = os.environ if environment is None else environment
    passed_over: list[str] = []
    for path, kind, why, demanded in _candidates(explicit, variables, system_pattern, python_path):
        identity = _identify(path, cache) if path.is_file() else "there is no such file"
        if isinstance(identity, _Identity):
            program = Path(identity.real)
            return Nvcc(
                path if demanded else program,
                program,
                identity.version,
                identity.release,
                kind,
                why,
                tuple(map(Path, identity.include_dirs)),
                tuple(map(Path, identity.library_dirs)),
            )
        if demanded:
            raise fail(
                "E0801",
                f"`{path}`, {why}, is no nvcc that starts",
                note=identity,
                help=_NO_NVCC_HELP,
            )
        if path.is_file():
            passed_over.append(f"`{path}`: {identity}")
    raise fail("E0801", "there is no nvcc", note="; ".join(passed_over), help=_NO_NVCC_HELP)


def _candidates(
    explicit: str | None,
    variables: Mapping[str, str],
    system_pattern: str,
    python_path: Sequence[str] | None,
) -> Iterator[tuple[Path, NvccKind, str, bool]]:
    """(path, kind, why, whether the user named it) in the order of the search."""
    search = variables.get("PATH", os.defpath)
    if explicit:
        yield _named(explicit, search), "option", "named by `--nvcc`", True
    if named := variables.get("TILEC_NVCC"):
        yield _named(named, search), "environment", "named by `TILEC_NVCC`", True
    for variable in ("CUDA_HOME", "CUDA_PATH"):
        if home := variables.get(variable):
            yield Path(home) / "bin" / "nvcc", "environment", f"below `{variable}`", False
    if found := shutil.which("nvcc", path=search):
        yield Path(found), "system", "on the search path", False
    for system in sorted(glob.glob(system_pattern), key=_natural, reverse=True):
        yield Path(system), "system", f"matches `{system_pattern}`", False
    for path in wheel_nvccs(sys.path if python_path is None else python_path):
        yield path, "wheel", "from the Python packages of `tilec[nvcc]`", False


def _named(name: str, search: str) -> Path:
    """A name without a slash is looked up on the search path; a folder stands for its `bin/nvcc`."""
    if "/" not in name:
        return Path(shutil.which(name, path=search) or name)
    return Path(name) / "bin" / "nvcc" if Path(name).is_dir() else Path(name)


def wheel_nvccs(python_path: Sequence[str]) -> list[Path]:
    """Every nvcc that packages below `python_path` carry, the newest CUDA first (`nvidia/cu13/bin/nvcc`)."""
    found = []
    for folder in python_path:
        nvidia = Path(folder or ".") / "nvidia"
        found += [*nvidia.glob("cu[0-9]*/bin/nvcc"), *nvidia.glob("cuda_nvcc/bin/nvcc")]
    return sorted(dict.fromkeys(found), key=lambda p: _natural(str(p)), reverse=True)


def _natural(text: str) -> list[tuple[int, str]]:
    """A key under which `cuda-13.0` comes after `cuda-9.2`."""
    return [(int(d or 0), t) for d, t in re.findall(r"(\d+)|(\D+)", text)]


def _identify(path: Path, cache: Cache | None) -> _Identity | str:
    """What the nvcc at `path` is, or why it is none."""
    real = path.resolve()
    key = cache_key("nvcc identity 1", _fingerprint(real))
    kept = cache.get(key) if cache else None
    if kept and kept.meta.get("real_fingerprint") == _fingerprint(Path(kept.meta["real"])):
        return _identity_from_json(kept.meta)
    version = run_tool([str(path), "--version"], timeout=60)
    release = re.search(r"release (\d+)\.(\d+), V([\d.]+)", version.output)
    if version.status != 0 or not release:
        return (
            version.output.strip().splitlines()[0] if version.output.strip() else "it says nothing"
        )
    # A dry run shows where the real program of a wrapper script is, and its folders.
    dry = run_tool([str(path), "-dryrun", "-E", "none.cu"], timeout=60).output
    settings = dict(re.findall(r"^#\$ (\w+)=\s*(.*)$", dry, re.MULTILINE))
    if here := settings.get("_HERE_"):
        program = Path(here) / "nvcc"
        real = program.resolve() if program.is_file() else real
    identity = _Identity(
        str(real),
        (int(release[1]), int(release[2])),
        release[3],
        _folders(settings, "-I", ("INCLUDES", "SYSTEM_INCLUDES")),
        _folders(settings, "-L", ("LIBRARIES",)),
    )
    if cache:
        cache.put(key, b"", {**asdict(identity), "real_fingerprint": _fingerprint(real)})
    return identity


def _identity_from_json(meta: Mapping[str, Any]) -> _Identity:
    major, minor = meta["version"]
    return _Identity(
        meta["real"],
        (major, minor),
        meta["release"],
        tuple(meta["include_dirs"]),
        tuple(meta["library_dirs"]),
    )


def _folders(settings: Mapping[str, str], flag: str, names: Sequence[str]) -> tuple[str, ...]:
    """The folders that exist among the flags of a dry run, resolved."""
    found: list[str] = []
    for name in names:
        for word in shlex.split(settings.get(name, "")):
            path = Path(word.removeprefix(flag))
            if word != "-isystem" and path.is_dir():
                found.append(str(path.resolve()))
    return tuple(dict.fromkeys(found))


def _fingerprint(path: Path) -> str:
    """Changes when the file does; empty if there is none."""
    try:
        status = path.stat()
    except OSError:
        return ""
    return json.dumps([str(path), status.st_size, status.st_mtime_ns])


def runtime_link_flags(nvcc: Nvcc, *, static: bool = False) -> list[str]:
    """Flags with which g++ links an object that calls the CUDA runtime.

    The Python packages have no `libcudart.so` without a version, so `-lcudart` does not find it there: the file is
    then named with its version. Raises TileError (E0805) if the runtime is not there.
    """
    name = "libcudart_static.a" if static else "libcudart.so"
    for folder in nvcc.library_dirs:
        if static and (folder / name).is_file():
            return [f"-L{folder}", "-lcudart_static", "-ldl", "-lrt", "-lpthread"]
        if static:
            continue
        if (folder / name).exists():
            return [f"-L{folder}", "-lcudart", f"-Wl,-rpath,{folder}"]
        if versioned := sorted(folder.glob("libcudart.so.*")):
            return [f"-L{folder}", f"-l:{versioned[-1].name}", f"-Wl,-rpath,{folder}"]
    raise _no_runtime(name, nvcc)


def _no_runtime(name: str, nvcc: Nvcc) -> TileError:
    return fail(
        "E0805",
        f"`{name}` of the toolkit at `{nvcc.path}` is not there",
        help="install the CUDA runtime of the same toolkit, or `pip install 'tilec[nvcc]'`",
    )


def find_cuobjdump(nvcc: Nvcc, *, search: str | None = None) -> Path:
    """The cuobjdump beside nvcc, else on the search path. Raises TileError (E0804) if there is none."""
    beside = nvcc.program.parent / "cuobjdump"
    if os.access(beside, os.X_OK):
        return beside
    if found := shutil.which("cuobjdump", path=search):
        return Path(found)
    raise fail(
        "E0804",
        "there is no `cuobjdump`",
        help="install the CUDA toolkit, or run `pip install nvidia-cuda-cuobjdump`",
    )
