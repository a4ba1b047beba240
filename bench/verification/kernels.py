"""The kernels of the samples: compiled, and built by many processes at once before a GPU is used."""

from __future__ import annotations

import hashlib
import os
import tempfile
import time
from collections.abc import Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor, TimeoutError
from dataclasses import dataclass, field, replace
from math import inf
from multiprocessing import get_context
from pathlib import Path

from tilec.compiled import CompiledFile, CompiledKernel
from tilec.compiler import compile_file
from tilec.emit.entries import entries_text, entry_names
from tilec.emit.unit import HOST_HELPERS
from tilec.source.diagnostics import Diagnostic, TileError
from tilec.syntax import ast
from tilec.syntax.loading import Program as Files
from tilec.syntax.loading import load
from tilec.toolchain.build import BuildKind, Built, build, find_toolchain
from tilec.toolchain.cache import default_cache

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"
BENCH = ROOT / "bench"


@dataclass(frozen=True)
class Source:
    """A kernel of a file, with its compile-time parameters."""

    path: str
    kernel: str
    defines: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Ready:
    """A kernel, compiled and built; it can be sent to another process."""

    source: Source
    compiled: CompiledFile
    built: Built

    @property
    def kernel(self) -> CompiledKernel:
        """The kernel itself."""
        return self.compiled.kernel(self.source.kernel)


def sources(paths: Iterable[Path] | None = None, only: Iterable[str] = ()) -> list[Source]:
    """Every kernel of the samples (or of `paths`); `only` names some of them."""
    wanted = set(only)
    found = []
    for path in paths or sorted(SAMPLES.glob("*.tile")):
        names = [i.name for i in load(str(path)).main.items if isinstance(i, ast.Kernel)]
        found += [Source(str(path), n) for n in names if not wanted or n in wanted]
    return found


def build_all(
    wanted: Iterable[Source],
    arch: str,
    kind: BuildKind,
    jobs: int,
    broken: list[tuple[Source, TileError]] | None = None,
    until: float = inf,
) -> tuple[list[Ready], list[tuple[Source, TileError]]]:
    """Those that compile, built as `kind` (cubin, ptx or shared); the others with the reason. What nvcc rejects is appended to `broken`, without
    which it raises TileError; what is not ready `until` a time is left out."""
    compiled: list[tuple[Source, CompiledFile]] = []
    refused = []
    every = list(wanted)
    with ProcessPoolExecutor(jobs, mp_context=get_context("fork")) as pool:
        for source, found in zip(
            every, pool.map(_compiled, every, [arch] * len(every)), strict=True
        ):
            if isinstance(found, list):
                refused.append((source, TileError(found)))
            else:
                compiled.append((source, found))
    built = _built([c.cu for _, c in compiled], arch, kind, jobs, until)
    ready = []
    for (source, found), result in zip(compiled, built, strict=True):
        if isinstance(result, Built):
            ready.append(Ready(source, found, result))
        elif result is None:
            continue
        elif broken is None:
            raise result
        else:
            broken.append((source, result))
    return ready, refused


def _compiled(source: Source, arch: str) -> CompiledFile | list[Diagnostic]:
    """A kernel without what cannot be sent to another process, which nothing here asks for; or why it is refused."""
    try:
        found = compile_file(
            source.path, kernel=source.kernel, archs=(arch,), defines=dict(source.defines)
        )
    except TileError as error:
        return list(error.diagnostics)
    return replace(
        found, kernels=tuple(replace(k, lowered={}, describe=dict) for k in found.kernels)
    )


def build_texts(texts: list[str], arch: str, kind: BuildKind, jobs: int) -> list[Built]:
    """CUDA texts built at once, from the cache where they have been built before."""
    found = []
    for built in _built(texts, arch, kind, jobs):
        if isinstance(built, TileError):
            raise built
        assert built is not None
        found.append(built)
    return found


def _built(
    texts: list[str], arch: str, kind: BuildKind, jobs: int, until: float = inf
) -> list[Built | TileError | None]:
    """Each text built, or why not; None for one that was not ready `until` a time."""
    cache = default_cache()
    toolchain = find_toolchain(cache=cache)

    def one(text: str) -> Built | TileError | None:
        if time.monotonic() > until:
            return None
        if kind == "cubin" and HOST_HELPERS in text:
            # of the same entry points the same machine code, whatever the launchers are
            text = entries_text(text, entry_names(text))
        try:
            return build(kind, text, (arch,), toolchain=toolchain, cache=cache)
        except TileError as error:
            return error

    pool = ThreadPoolExecutor(jobs)
    waiting = [pool.submit(one, text) for text in texts]
    found: list[Built | TileError | None] = []
    for future in waiting:
        try:
            left = until - time.monotonic()
            found.append(future.result(None if until == inf else max(0.0, left)))
        except TimeoutError:
            found.append(None)
    # what still runs is left to itself: nobody waits for it
    pool.shutdown(wait=False, cancel_futures=True)
    return found


def library_path(text: str, built: Built) -> Path:
    """The shared library as a file."""
    folder = Path(os.environ.get("TILEC_BENCH_DIR", tempfile.gettempdir()))
    path = folder / f"verify_{hashlib.sha256(text.encode()).hexdigest()[:16]}.so"
    if not path.exists():
        part = path.with_suffix(f".{os.getpid()}")
        part.write_bytes(built.blob)
        part.rename(path)
    return path


def syntax_of(source: Source) -> tuple[Files, ast.Kernel]:
    """The files and the kernel's syntax."""
    files = load(source.path)
    for item in files.main.items:
        if isinstance(item, ast.Kernel) and item.name == source.kernel:
            return files, item
    raise KeyError(source.kernel)
