"""Building a `.cu` text with nvcc: cubin, PTX or object, with what ptxas said about each kernel."""

from __future__ import annotations

import re
import shlex
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tilec.source.diagnostics import TileError, fail
from tilec.source.exhaustive import assert_never
from tilec.toolchain.cache import Cache, cache_key
from tilec.toolchain.fault import save_bundle
from tilec.toolchain.host_compiler import HostCompiler, find_host_compiler
from tilec.toolchain.nvcc import Nvcc, find_nvcc
from tilec.toolchain.process import Ran, run_tool
from tilec.toolchain.ptxas import (
    KernelResources,
    PtxasReport,
    Remark,
    parse_ptxas,
    report_from_json,
)

BuildKind = Literal["cubin", "ptx", "object", "shared"]
"""`cubin` and `ptx` are for one architecture, `object` and `shared` carry machine code for each one given."""

COMMON_FLAGS = ("-std=c++17", "-Xptxas", "-v")
"""What every build uses."""

SPLIT_COMPILE = (12, 4)
"""The first nvcc that is asked to compile the kernels of a `.cu` at once, on all cores. Machine code is the same, in two thirds of the
time for the two kernels of `samples/gemm.tile` on two cores."""

_SOURCE = "kernel.cu"
_ERRORS_SHOWN = 4


@dataclass(frozen=True)
class Toolchain:
    """An nvcc and the host compiler that it is given with `-ccbin`."""

    nvcc: Nvcc
    host: HostCompiler


@dataclass(frozen=True)
class Built:
    """The result of one build. `log` is all that nvcc printed; `cached` tells that no nvcc ran."""

    kind: BuildKind
    blob: bytes
    ptxas: PtxasReport
    log: str
    cached: bool

    @property
    def report(self) -> tuple[KernelResources, ...]:
        """Resources of each kernel, in ptxas' order."""
        return self.ptxas.kernels

    @property
    def remarks(self) -> tuple[Remark, ...]:
        """ptxas' remarks, in its order."""
        return self.ptxas.remarks


def find_toolchain(nvcc: str | None = None, *, cache: Cache | None = None) -> Toolchain:
    """nvcc (named by `nvcc`, or found) and a host compiler that it accepts. Raises TileError (E0801, E0802)."""
    found = find_nvcc(nvcc, cache=cache)
    return Toolchain(found, find_host_compiler(found))


def compile_cubin(
    cu_text: str,
    arch: str,
    *,
    toolchain: Toolchain,
    options: Sequence[str] = (),
    cache: Cache | None = None,
) -> Built:
    """Machine code for `arch` (`sm_90a`). Raises TileError (E0803, E0805, E7002)."""
    return build("cubin", cu_text, (arch,), toolchain=toolchain, options=options, cache=cache)


def compile_ptx(
    cu_text: str,
    arch: str,
    *,
    toolchain: Toolchain,
    options: Sequence[str] = (),
    cache: Cache | None = None,
) -> Built:
    """PTX for `arch` (`sm_90a` or `compute_90a`); its report is empty. Raises as `compile_cubin`."""
    return build("ptx", cu_text, (arch,), toolchain=toolchain, options=options, cache=cache)


def compile_object(
    cu_text: str,
    archs: Sequence[str],
    *,
    toolchain: Toolchain,
    options: Sequence[str] = (),
    cache: Cache | None = None,
) -> Built:
    """A position-independent object file with machine code for each of `archs`. Raises as `compile_cubin`."""
    return build("object", cu_text, archs, toolchain=toolchain, options=options, cache=cache)


def build(
    kind: BuildKind,
    cu_text: str,
    archs: Sequence[str],
    *,
    toolchain: Toolchain,
    options: Sequence[str] = (),
    cache: Cache | None = None,
) -> Built:
    """Run nvcc in a folder of its own, or take the result from `cache`.

    Raises TileError: E0803 for an architecture this nvcc does not know, E0805 where the machine is at fault, E7002
    where nvcc rejects the text.
    """
    flags = [*_kind_flags(kind, archs), *COMMON_FLAGS, *options]
    if kind == "cubin" and toolchain.nvcc.version >= SPLIT_COMPILE:
        flags += ["--split-compile", "0"]
    identities = (toolchain.nvcc.identity, toolchain.host.identity)
    key = cache_key("build 1", kind, *identities, "\0".join(flags), cu_text)
    if cache and (kept := cache.get(key)):
        return Built(kind, kept.blob, report_from_json(kept.meta["ptxas"]), kept.meta["log"], True)
    with tempfile.TemporaryDirectory(prefix="tilec-") as folder:
        (Path(folder) / _SOURCE).write_text(cu_text, encoding="utf-8")
        output = Path(folder) / "result"
        command = [str(toolchain.nvcc.path), "-ccbin", str(toolchain.host.path), *flags]
        ran = run_tool([*command, _SOURCE, "-o", output.name], cwd=Path(folder))
        if ran.status != 0 or not output.is_file():
            raise explain_failure(ran, cu_text, archs, toolchain)
        blob = output.read_bytes()
    built = Built(kind, blob, parse_ptxas(ran.output), ran.output, False)
    if cache:
        meta = {
            "kind": kind,
            "archs": list(archs),
            "tools": list(identities),
            "flags": flags,
            "ptxas": built.ptxas.as_json(),
            "log": built.log,
        }
        cache.put(key, blob, meta)
    return built


def _kind_flags(kind: BuildKind, archs: Sequence[str]) -> list[str]:
    each = [f for a in archs for f in ("-gencode", f"arch={_virtual(a)},code={a}")]
    match kind:
        case "cubin":
            (arch,) = archs
            return ["-cubin", f"-arch={arch}"]
        case "ptx":
            (arch,) = archs
            return ["-ptx", f"-arch={_virtual(arch)}"]
        case "object":
            return ["-c", "-Xcompiler", "-fPIC", *each]
        case "shared":
            return ["-shared", "-Xcompiler", "-fPIC", "-cudart", "static", *each]
    assert_never(kind)


def _virtual(arch: str) -> str:
    """`compute_90a` for `sm_90a`."""
    return arch.replace("sm_", "compute_")


_UNKNOWN_ARCH = re.compile(r"Unsupported gpu architecture '(\w+)'|Value '(\w+)' is not defined")
_ERROR = re.compile(r"\berror\b|\bfatal\b", re.IGNORECASE)
_SOURCE_ERROR = re.compile(rf"{_SOURCE}\(\d+\): |^ptxas .*\b(error|fatal)\b", re.MULTILINE)
_MACHINE = (
    "No space left",
    "out of memory",
    "Cannot allocate memory",
    "No such file or directory",
    "unsupported GNU version",
    "Permission denied",
    "died due to signal",
    "Could not open",
    "Failed to preprocess host compiler properties",
)


def explain_failure(
    ran: Ran, cu_text: str, archs: Sequence[str], toolchain: Toolchain
) -> TileError:
    """The TileError for a failed run of nvcc; saves a reproducer bundle where the generated text is at fault."""
    nvcc = toolchain.nvcc
    if unknown := _UNKNOWN_ARCH.search(ran.output):
        return fail(
            "E0803",
            f"nvcc {nvcc.version_text} does not know `{unknown[1] or unknown[2]}`",
            note=f"it is `{nvcc.path}`, {nvcc.why}",
            help="choose another `--arch`, or a toolkit that knows this one with `--nvcc`",
        )
    lines = [line.strip() for line in ran.output.splitlines() if line.strip()]
    errors = [line for line in lines if _ERROR.search(line)] or lines
    said = "; ".join(errors[:_ERRORS_SHOWN]) or f"no output, status {ran.status}"
    rejected = bool(_SOURCE_ERROR.search(ran.output))
    if not rejected and (ran.status < 0 or ran.status in (124, 127) or _machine(lines)):
        return fail(
            "E0805",
            f"`{nvcc.path}` could not do its work",
            note="; ".join(lines[:_ERRORS_SHOWN]) or f"no output, status {ran.status}",
            help="`tilec doctor` shows which compiler, toolkit and host compiler are used",
        )
    bundle = save_bundle(
        {
            _SOURCE: cu_text,
            "command.txt": shlex.join(ran.command) + "\n",
            "log.txt": ran.output,
            "tools.txt": f"{nvcc.identity}\n{toolchain.host.identity}\n{' '.join(archs)}\n",
        }
    )
    where = f"; the generated file, the command and the log are in `{bundle}`" if bundle else ""
    return fail(
        "E7002",
        "nvcc rejected the generated code",
        note=said + where,
        help="this is a fault of tilec, not of the program: please report it with that folder",
    )


def _machine(lines: Sequence[str]) -> bool:
    return any(sign in line for line in lines for sign in _MACHINE)


def disassemble(cubin: bytes, cuobjdump: Path) -> str:
    """The machine code of `cubin` as text. Raises TileError (E0805) where cuobjdump does not do its work."""
    with tempfile.TemporaryDirectory(prefix="tilec-") as folder:
        path = Path(folder) / "kernel.cubin"
        path.write_bytes(cubin)
        ran = run_tool([str(cuobjdump), "-sass", str(path)])
    if ran.status != 0:
        first = ran.output.strip().splitlines()[:1]
        raise fail("E0805", f"`{cuobjdump}` could not do its work", note="".join(first))
    return ran.output
