"""Two ways from a call to the GPU: pycuda, and the generated C launcher in a shared library.

pycuda launches on the default stream and on streams of its own; it cannot express a launch on another library's stream,
and it may not be installed. The C launcher takes any stream. Both run in the context that the caller's arrays live in:
the one current where the arrays are pycuda's, else the device's primary context.
"""

from __future__ import annotations

import ctypes
import hashlib
import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from tilec.compiled import CompiledFile, CompiledKernel
from tilec.emit.c_names import c_name
from tilec.emit.types import scalar_host_type
from tilec.resources import cache_directory, resource_text
from tilec.runtime.arguments import CallSizes, check_call
from tilec.runtime.device import Gpu, driver_words, import_pycuda, no_gpu, refused
from tilec.runtime.launching import ConcreteLaunch, choose_target, concrete_launches
from tilec.source.diagnostics import fail

if TYPE_CHECKING:
    from tilec.toolchain.build import Toolchain

_C_TYPES: Mapping[str, Any] = {
    "float": ctypes.c_float, "double": ctypes.c_double, "int": ctypes.c_int,
    "int8_t": ctypes.c_int8, "uint8_t": ctypes.c_uint8, "int16_t": ctypes.c_int16, "uint16_t": ctypes.c_uint16,
    "int32_t": ctypes.c_int32, "uint32_t": ctypes.c_uint32, "int64_t": ctypes.c_int64, "uint64_t": ctypes.c_uint64,
}  # fmt: skip


_PACKED = "host_packed_"
"""In front of a launcher's name: its packed entry."""

CALLS_KEPT = 512
"""Calls with sizes and addresses of their own whose evaluation is kept."""


@cache
def pycuda_is_there() -> bool:
    """Whether pycuda can be imported; nothing is imported to find out."""
    from importlib.util import find_spec

    return "pycuda.driver" in sys.modules or find_spec("pycuda") is not None


@dataclass
class PycudaLauncher:
    """The machine code of one file, launched by pycuda. `index` is the device."""

    blob: bytes
    index: int = 0
    _loaded: dict[bool, tuple[Gpu, Any]] = field(default_factory=dict)
    _primary: Any = None
    _ready: dict[Any, tuple[CallSizes, list[tuple[Any, ConcreteLaunch]]]] = field(
        default_factory=dict
    )

    def launch(
        self,
        kernel: CompiledKernel,
        sizes: CallSizes,
        addresses: Mapping[str, int],
        workspace: int,
        *,
        stream: Any = None,
        foreign: bool = True,
    ) -> None:
        """Check and enqueue. `foreign`: the arrays are not pycuda's, so that they live in the primary context; `stream` is
        None or a stream of pycuda. Raises TileError as `check_call`, and E0811, E0812, E0814."""
        # the entry keeps its sizes alive, so that their identity is theirs alone
        key = (foreign, id(sizes), tuple(addresses.values()), workspace)
        with self._context(foreign) as (gpu, module):
            if key not in self._ready:
                place = workspace if kernel.plan.workspace else None
                check_call(kernel.plan, sizes, addresses, place)
                target = choose_target(kernel.plan, gpu.capability)
                launches = concrete_launches(
                    kernel.plan,
                    target,
                    sizes,
                    addresses,
                    workspace,
                    multiprocessors=gpu.multiprocessors,
                )
                if len(self._ready) >= CALLS_KEPT:
                    self._ready.clear()
                self._ready[key] = (sizes, gpu.prepare(module, launches))
            for function, launch in self._ready[key][1]:
                gpu.enqueue(function, launch, stream)

    def bound(
        self, kernel: CompiledKernel, sizes: CallSizes
    ) -> Callable[[Sequence[int], int, int], None]:
        """As `CLauncher.bound`, on the default stream, for arrays that live in the primary context: what was launched before with these
        addresses is launched again."""
        known: dict[tuple[int, ...], list[Callable[[], None]]] = {}
        names = [t.name for t in kernel.plan.parameters]

        def call(addresses: Sequence[int], workspace: int, stream: int) -> None:
            key = (*addresses, workspace)
            calls = known.get(key)
            if calls is None:
                self.launch(kernel, sizes, dict(zip(names, addresses, strict=True)), workspace)
                gpu, _ = self._loaded[True]
                launches = self._ready[True, id(sizes), tuple(addresses), workspace][1]
                if len(known) >= CALLS_KEPT:
                    known.clear()
                known[key] = [gpu.bound(function, launch) for function, launch in launches]
                return
            gpu, _ = self._loaded[True]
            self._primary.push()
            try:
                for one in calls:
                    one()
            except gpu.launch_errors as error:
                raise refused(f"launching `{kernel.name}`", error) from error
            finally:
                gpu.driver.Context.pop()

        return call

    def allocate(self, size: int, *, foreign: bool) -> Any:
        """Device memory; `int()` of it is the address. Raises TileError (E0813)."""
        with self._context(foreign) as (gpu, _):
            try:
                return gpu.driver.mem_alloc(size)
            except gpu.driver.MemoryError as error:
                raise fail("E0813", f"the workspace needs {size >> 20} MB on the GPU") from error

    @contextmanager
    def _context(self, foreign: bool) -> Iterator[tuple[Gpu, Any]]:
        driver = import_pycuda()
        if not foreign:
            yield self._gpu(driver, driver.Context.get_device(), foreign)
            return
        try:
            if self._primary is None:
                driver.init()
                self._primary = driver.Device(self.index).retain_primary_context()
            self._primary.push()
        except driver.Error as error:
            raise no_gpu(driver_words(error)) from error
        try:
            yield self._gpu(driver, driver.Device(self.index), foreign)
        finally:
            driver.Context.pop()

    def _gpu(self, driver: Any, device: Any, foreign: bool) -> tuple[Gpu, Any]:
        if foreign not in self._loaded:
            gpu = Gpu(driver, device)
            self._loaded[foreign] = (gpu, gpu.load(self.blob))
        return self._loaded[foreign]


@dataclass
class CLauncher:
    """The launchers of one file in a shared library, called through ctypes or by their packed entries."""

    path: Path
    folder: tempfile.TemporaryDirectory[str] | None = None
    """of a library that no cache keeps: removed with this object"""
    _library: ctypes.CDLL | None = None

    def launch(
        self,
        kernel: CompiledKernel,
        sizes: CallSizes,
        addresses: Mapping[str, int],
        workspace: int,
        *,
        stream: int = 0,
    ) -> None:
        """Call the launcher, which checks as it does for a C program. Raises TileError as `check_call`, and E0814."""
        places = [addresses[t.name] for t in kernel.plan.parameters]
        self.bound(kernel, sizes)(places, workspace, stream)

    def bound(
        self, kernel: CompiledKernel, sizes: CallSizes
    ) -> Callable[[Sequence[int], int, int], None]:
        """The launcher for these sizes: called with addresses in the plan's order, the workspace's, and a stream's handle. Raises as
        `launch`."""
        function = self._function(kernel)
        numbers = _numbers(kernel, sizes)

        def call(addresses: Sequence[int], workspace: int, stream: int) -> None:
            if status := function(*addresses, *numbers, workspace, stream):
                self.refused(kernel, sizes, addresses, workspace, status)

        return call

    def packed(self, kernel: CompiledKernel, sizes: CallSizes) -> tuple[int, bytes]:
        """The address of the entry that takes all arguments as words of 8 bytes, and the words of the numbers: they stand between those
        of the addresses and those of workspace and stream."""
        entry = getattr(self._open(), f"{_PACKED}{c_name(kernel.name)}")
        address = ctypes.cast(entry, ctypes.c_void_p).value
        assert address is not None
        kinds = _number_types(kernel)
        numbers = _numbers(kernel, sizes)
        # the low bytes of a word: every host of CUDA is little-endian
        words = (bytes(kind(n)).ljust(8, b"\0") for kind, n in zip(kinds, numbers, strict=True))
        return address, b"".join(words)

    def refused(
        self,
        kernel: CompiledKernel,
        sizes: CallSizes,
        addresses: Sequence[int],
        workspace: int,
        status: int,
    ) -> NoReturn:
        """Raises what is wrong with a call that the launcher refused: as `check_call`, else E0814 with what the launcher says of its last
        call on this thread."""
        plan = kernel.plan
        known = {t.name: a for t, a in zip(plan.parameters, addresses, strict=True)}
        check_call(plan, sizes, known, workspace if plan.workspace else None)
        error = getattr(self._open(), f"{c_name(kernel.name)}_error")
        error.restype = ctypes.c_char_p
        said = (error() or b"").decode() or f"the launcher answers {status}"
        raise fail("E0814", f"the CUDA runtime refused launching `{kernel.name}`", note=said)

    def _open(self) -> ctypes.CDLL:
        if self._library is None:
            # symbols stay the library's own: its static runtime is no other library's business
            self._library = ctypes.CDLL(str(self.path), mode=ctypes.RTLD_LOCAL)
        return self._library

    def _function(self, kernel: CompiledKernel) -> Any:
        function = getattr(self._open(), c_name(kernel.name))
        pointers: list[Any] = [ctypes.c_void_p] * len(kernel.plan.parameters)
        function.argtypes = [*pointers, *_number_types(kernel), ctypes.c_void_p, ctypes.c_void_p]
        function.restype = ctypes.c_int
        return function


def _numbers(kernel: CompiledKernel, sizes: CallSizes) -> tuple[Any, ...]:
    """What a launcher takes between the addresses and the workspace."""
    plan = kernel.plan
    return (
        *(sizes.dims[v.name] for v in plan.dims),
        *(sizes.strides[v.name] for v in plan.strides),
        *(sizes.scalars[s.name] for s in plan.scalars),
    )


def _number_types(kernel: CompiledKernel) -> list[Any]:
    plan = kernel.plan
    kinds: list[Any] = [ctypes.c_int] * (len(plan.dims) + len(plan.strides))
    return kinds + [_C_TYPES[scalar_host_type(s.dtype)] for s in plan.scalars]


def library_text(compiled: CompiledFile) -> str:
    """A generated `.cu` as Python's library is built from: with an entry beside each launcher that takes its arguments as words."""
    entries = [
        f'extern "C" int {_PACKED}{name}(const uint64_t* words) {{\n'
        f"  return host_call_packed(&{name}, words);\n}}\n"
        for name in (c_name(kernel.name) for kernel in compiled.kernels)
    ]
    return "\n".join([compiled.cu + resource_text("templates", "python/packed.cuh"), *entries])


def build_c_launcher(
    compiled: CompiledFile, archs: Sequence[str], toolchain: Toolchain
) -> CLauncher:
    """The shared library of a file, built where the cache has none. Raises TileError as building does."""
    from tilec.toolchain.shared_library import build_shared_library

    text = library_text(compiled)
    identity = "\0".join([text, *archs, toolchain.nvcc.identity, toolchain.host.identity])
    name = f"{hashlib.sha256(identity.encode()).hexdigest()[:32]}.so"
    folder, temporary = kept_folder("launchers")
    path = folder / name
    if not path.is_file():
        build_shared_library(text, archs, path, toolchain=toolchain, cache=None)
    return CLauncher(path, temporary)


def kept_folder(name: str) -> tuple[Path, tempfile.TemporaryDirectory[str] | None]:
    """A folder of the cache for libraries, which are loaded from where they lie; where it cannot be written a temporary one, and the
    object that removes it."""
    folder = cache_directory() / name
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if os.access(folder, os.W_OK):
            return folder, None
    except OSError:
        pass
    temporary = tempfile.TemporaryDirectory(prefix=f"tilec-{name}-")
    return Path(temporary.name), temporary
