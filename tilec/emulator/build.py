"""Building kernels for the host: the precompiled primitives once, then a small library for each kernel that is launched."""

from __future__ import annotations

import atexit
import os
import shutil
import tempfile
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilec.emulator.library import HostKernel
from tilec.emulator.text import PRELUDE, RUNTIME_FILES, prelude, text_of, unit
from tilec.resources import cache_directory, resource_text
from tilec.source.diagnostics import TileError, fail
from tilec.toolchain.cache import Cache, cache_key
from tilec.toolchain.fault import save_bundle
from tilec.toolchain.host_compiler import HostCompiler, find_host_compiler
from tilec.toolchain.process import Ran, run_tool

FLAGS = (
    "-std=c++17",
    "-O0",
    "-fPIC",
    "-fvisibility=hidden",
    "-ffp-contract=off",
    "-fno-math-errno",
    "-w",
    "-DTILEC_DEBUG=1",
    "-D__CUDA_ARCH_FEAT_SM90_ALL",  # what code for sm_90a alone has its bodies under
)
"""What a kernel is compiled with. Products and sums are not contracted: the emulator's results are those of the text. The compiler would
optimise for longer than most kernels run, whose time is that of the primitives, which are optimised."""


@dataclass(frozen=True)
class HostToolchain:
    """A host compiler and the folder with the primitives built by it."""

    compiler: HostCompiler
    folder: Path
    identity: str
    options: tuple[str, ...] = ()

    @property
    def objects(self) -> tuple[str, ...]:
        """What every kernel is linked with, and by what: gold takes a fifth of the usual linker's time."""
        objects = (n.replace(".cc", ".o") for n in RUNTIME_FILES if n.endswith(".cc"))
        linker = ("-fuse-ld=gold",) if shutil.which("ld.gold") else ()
        return (*linker, *(str(self.folder / name) for name in objects))


@cache
def host_toolchain(options: tuple[str, ...] = ()) -> HostToolchain:
    """The primitives, built once for a compiler and kept. Raises TileError (E0802, E7003)."""
    compiler = find_host_compiler()
    files = {name: resource_text("templates", f"host/{name}") for name in RUNTIME_FILES}
    files[PRELUDE] = prelude()
    flags = (*FLAGS, *options)
    machine = os.uname().machine
    key = cache_key("emulator 1", compiler.identity, machine, *flags, *files.values())
    folder = cache_directory().absolute() / "emulator" / key[:32]
    if (folder / "complete").is_file():
        return HostToolchain(compiler, folder, key, options)
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        work = Path(tempfile.mkdtemp(prefix=".new-", dir=folder.parent))
    except OSError:
        # no folder to keep it in: for this process only
        work = Path(tempfile.mkdtemp(prefix="tilec-emulator-"))
        atexit.register(shutil.rmtree, work, ignore_errors=True)
        _build_primitives(compiler, flags, files, work)
        return HostToolchain(compiler, work, key, options)
    try:
        _build_primitives(compiler, flags, files, work)
        os.rename(work, folder)
    except OSError:
        # another process was faster
        shutil.rmtree(work, ignore_errors=True)
    except TileError:
        shutil.rmtree(work, ignore_errors=True)
        raise
    if not (folder / "complete").is_file():
        raise fail("E0805", f"the emulator cannot be kept in `{folder.parent}`")
    return HostToolchain(compiler, folder, key, options)


def _build_primitives(
    compiler: HostCompiler, flags: tuple[str, ...], files: dict[str, str], folder: Path
) -> None:
    for name, text in files.items():
        (folder / name).write_text(text, encoding="utf-8")
    path = str(compiler.path)
    commands = (
        [path, *flags, "-O3", "-c", *(n for n in files if n.endswith(".cc"))],
        [path, *flags, "-x", "c++-header", PRELUDE, "-o", f"{PRELUDE}.gch"],
    )
    for command in commands:
        ran = run_tool(command, cwd=folder)
        if ran.status != 0:
            raise _rejected(ran, files)
    (folder / "complete").write_text("", encoding="utf-8")


def build_kernel(
    cu: str, kernel: str, name: str, tools: HostToolchain, cache: Cache | None
) -> HostKernel:
    """The `__global__` function `kernel` of a `.cu`, ready to be launched; `name` is the file's name in messages of the
    compiler. Raises TileError (E7003) where the host compiler rejects the text."""
    source = unit(text_of(cu, kernel), kernel, name)
    key = cache_key("emulated kernel 1", tools.identity, source)
    kept = cache.get(key) if cache else None
    with tempfile.TemporaryDirectory(prefix="tilec-") as made:
        folder = Path(made)
        library = folder / "kernel.so"
        if kept is not None:
            library.write_bytes(kept.blob)
        else:
            (folder / "kernel.cc").write_text(source, encoding="utf-8")
            command = [str(tools.compiler.path), *FLAGS, *tools.options]
            command += [f"-I{tools.folder}", "-shared"]
            command += ["kernel.cc", *tools.objects, "-o", library.name]
            ran = run_tool(command, cwd=folder)
            if ran.status != 0 or not library.is_file():
                raise _rejected(ran, {"kernel.cc": source})
            if cache:
                cache.put(key, library.read_bytes(), {"kind": "emulated kernel", "kernel": kernel})
        return HostKernel(library)


def _rejected(ran: Ran, files: dict[str, str]) -> TileError:
    lines = [line.strip() for line in ran.output.splitlines() if line.strip()]
    errors = [line for line in lines if "error" in line] or lines
    bundle = save_bundle(
        {**files, "command.txt": " ".join(ran.command) + "\n", "log.txt": ran.output}
    )
    where = f"; the text, the command and the log are in `{bundle}`" if bundle else ""
    return fail(
        "E7003",
        "the host compiler rejected the generated code",
        note=("; ".join(errors[:4]) or f"no output, status {ran.status}") + where,
        help="this is a fault of tilec, not of the program: please report it with that folder",
    )
