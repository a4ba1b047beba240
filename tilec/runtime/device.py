"""One GPU through pycuda: context, memory with guard bands, modules, launches, events.

pycuda is imported when the GPU is opened, and the primary context is used, so that other libraries of the process
(PyTorch, CuPy) share it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from typing import TYPE_CHECKING, Any

from tilec.runtime.cuda_driver import PORTABLE_CLUSTER, DriverError, DriverLaunch, cuda_driver
from tilec.runtime.launching import ConcreteLaunch, architecture_for
from tilec.source.diagnostics import TileError, fail

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

GUARD_BYTES = 4096
"""Bytes of known content before and after each argument."""

GUARD_PATTERN = 0xFF
"""Every byte of a guard band: NaN in all float dtypes, so that a read beyond a bound shows in the result."""

_CHUNK = 1 << 30
"""Bytes of one call: pycuda's fills and copies take 32-bit sizes."""

_PLAIN_SHARED_BYTES = 48 << 10
"""Dynamic shared memory that needs no opt-in (CUDA programming guide, technical specifications)."""


@dataclass
class Buffer:
    """An argument's memory on the device: `address` is that of its first byte, `size` its bytes, bands around it."""

    name: str
    address: int
    size: int
    before: int
    after: int
    allocation: Any = field(repr=False)


@dataclass
class LoadedModule:
    """Machine code on the device: pycuda's module, and the driver's where a launch needs it."""

    module: Any
    cubin: bytes = field(repr=False)
    handle: int = 0


@dataclass
class Gpu:
    """A device with its primary context current. Made by `open_gpu`."""

    driver: Any
    """the module pycuda.driver"""
    device: Any
    modules: list[LoadedModule] = field(default_factory=list)
    peak_bytes: int = 0
    """greatest number of bytes allocated at a time, guard bands left out"""
    held_bytes: int = 0

    @property
    def name(self) -> str:
        """`NVIDIA H200`."""
        return str(self.device.name())

    @property
    def capability(self) -> tuple[int, int]:
        """Compute capability."""
        major, minor = self.device.compute_capability()
        return int(major), int(minor)

    @property
    def arch(self) -> str:
        """What a kernel for this device is compiled for: `sm_90a`. Raises TileError (E0812)."""
        return architecture_for(self.capability)

    @property
    def bus(self) -> str:
        """The PCI bus id: `0000:3B:00.0`."""
        return str(self.device.pci_bus_id())

    @property
    def l2_bytes(self) -> int:
        """Size of the L2 cache."""
        return int(self.device.get_attribute(self.driver.device_attribute.L2_CACHE_SIZE))

    @cached_property
    def multiprocessors(self) -> int:
        """How many there are."""
        attribute = self.driver.device_attribute.MULTIPROCESSOR_COUNT
        return int(self.device.get_attribute(attribute))

    # ---- memory

    def allocate(self, name: str, size: int, *, offset: int = 0) -> Buffer:
        """`size` bytes `offset` bytes after a 4096-byte boundary, guard bands around them filled.

        Raises TileError (E0813) where the memory does not suffice.
        """
        before = GUARD_BYTES + offset
        total = before + size + GUARD_BYTES
        try:
            allocation = self.driver.mem_alloc(total)
        except self.driver.MemoryError as error:
            free, whole = self.driver.mem_get_info()
            raise fail(
                "E0813",
                f"`{name}` needs {total >> 20} MB on the GPU, which has {free >> 20} of {whole >> 20} MB free",
                help="choose smaller sizes with `-s`",
            ) from error
        base = int(allocation)
        self.held_bytes += size
        self.peak_bytes = max(self.peak_bytes, self.held_bytes)
        buffer = Buffer(name, base + before, size, before, GUARD_BYTES, allocation)
        self.fill(base, GUARD_PATTERN, before)
        self.fill(buffer.address + size, GUARD_PATTERN, GUARD_BYTES)
        return buffer

    def free(self, buffer: Buffer) -> None:
        """Give a buffer's memory back."""
        buffer.allocation.free()
        self.held_bytes -= buffer.size

    def fill(self, address: int, byte: int, size: int) -> None:
        """Set `size` bytes."""
        for start in range(0, size, _CHUNK):
            self.driver.memset_d8(address + start, byte, min(_CHUNK, size - start))

    def upload(self, buffer: Buffer, data: npt.NDArray[Any]) -> None:
        """Copy a contiguous array into the buffer."""
        import numpy as np

        if data.nbytes:
            self.driver.memcpy_htod(
                buffer.address, np.ascontiguousarray(data).reshape(-1).view(np.uint8)
            )

    def download(self, buffer: Buffer, into: npt.NDArray[Any]) -> None:
        """Copy the buffer's bytes into a contiguous array of that many bytes."""
        import numpy as np

        if buffer.size:
            self.driver.memcpy_dtoh(into.reshape(-1).view(np.uint8), buffer.address)

    def broken_guard(self, buffer: Buffer) -> str:
        """Where a guard band was written to, in words; empty if both are whole."""
        import numpy as np

        def read(address: int, size: int) -> npt.NDArray[np.uint8]:
            band: npt.NDArray[np.uint8] = np.empty(size, np.uint8)
            self.driver.memcpy_dtoh(band, address)
            return band

        return broken_band(buffer, read)

    def copy(self, target: int, source: int, size: int) -> None:
        """Copy on the device."""
        for start in range(0, size, _CHUNK):
            self.driver.memcpy_dtod(target + start, source + start, min(_CHUNK, size - start))

    # ---- kernels

    def load(self, cubin: bytes) -> LoadedModule:
        """A module from machine code. Raises TileError (E0814)."""
        try:
            module = LoadedModule(self.driver.module_from_buffer(cubin), cubin)
        except self.driver.Error as error:
            raise refused("loading the kernel", error) from error
        self.modules.append(module)
        return module

    def prepare(
        self, module: LoadedModule, launches: Sequence[ConcreteLaunch]
    ) -> list[tuple[Any, ConcreteLaunch]]:
        """The functions of launches, ready for `enqueue`. Raises TileError (E0814)."""
        prepared: list[tuple[Any, ConcreteLaunch]] = []
        for launch in launches:
            try:
                direct = launch.has_maps or launch.cluster > PORTABLE_CLUSTER
                make = self._driver_launch if direct else self._function
                prepared.append((make(module, launch), launch))
            except (self.driver.Error, DriverError, AttributeError) as error:
                raise refused(f"preparing `{launch.kernel}`", error) from error
        return prepared

    def _function(self, module: LoadedModule, launch: ConcreteLaunch) -> Any:
        function = module.module.get_function(launch.kernel)
        if launch.shared_bytes > _PLAIN_SHARED_BYTES:
            attribute = self.driver.function_attribute.MAX_DYNAMIC_SHARED_SIZE_BYTES
            function.set_attribute(attribute, launch.shared_bytes)
        function.prepare(launch.format)
        return function

    def _driver_launch(self, module: LoadedModule, launch: ConcreteLaunch) -> DriverLaunch:
        driver = cuda_driver()
        if not module.handle:
            module.handle = driver.load(module.cubin)
        return driver.prepare(module.handle, launch)

    def enqueue(self, function: Any, launch: ConcreteLaunch, stream: Any = None) -> None:
        """Launch a prepared function on a stream of pycuda (None: the default one), without waiting. Raises TileError (E0814)
        where the driver refuses."""
        try:
            if isinstance(function, DriverLaunch):
                function(stream)
                return
            function.prepared_async_call(
                (launch.grid, 1),
                (launch.block, 1, 1),
                stream,
                *launch.values,
                shared_size=launch.shared_bytes,
            )
        except (self.driver.Error, DriverError) as error:
            raise refused(f"launching `{launch.kernel}`", error) from error

    def bound(self, function: Any, launch: ConcreteLaunch) -> Callable[[], None]:
        """A prepared launch on the default stream as a call without arguments, as short as it can be; raises what the driver's libraries
        raise (`launch_errors`)."""
        if isinstance(function, DriverLaunch):
            return function
        return partial(
            function.prepared_async_call,
            (launch.grid, 1),
            (launch.block, 1, 1),
            None,
            *launch.values,
            shared_size=launch.shared_bytes,
        )

    @property
    def launch_errors(self) -> tuple[type[Exception], ...]:
        """What a launch raises where the driver refuses."""
        return (self.driver.Error, DriverError)

    def launch(self, prepared: Sequence[tuple[Any, ConcreteLaunch]]) -> None:
        """Launch in order on the default stream, without waiting. Raises as `enqueue`."""
        for function, launch in prepared:
            self.enqueue(function, launch)

    def unload(self, kept: int = 0) -> None:
        """Give the modules back but the first `kept`."""
        for module in self.modules[kept:]:
            if module.handle:
                with suppress(DriverError):  # a context that a kernel broke gives nothing back
                    cuda_driver().unload(module.handle)
        del self.modules[kept:]

    def finish(self, doing: str) -> None:
        """Wait for everything. Raises TileError (E0923) where a kernel faulted."""
        try:
            self.driver.Context.synchronize()
        except self.driver.Error as error:
            raise fail(
                "E0923",
                f"the GPU stopped {doing}",
                note=f"the driver says: {driver_words(error)}",
                help="`compute-sanitizer` before the same command shows the line of the generated code",
            ) from error

    def event(self) -> Any:
        """A timing event."""
        return self.driver.Event()


def broken_band(buffer: Buffer, read: Callable[[int, int], npt.NDArray[np.uint8]]) -> str:
    """Where a guard band of `buffer` was written to, in words; `read` gives the bytes at an address."""
    import numpy as np

    base = buffer.address - buffer.before
    for start, size, words in (
        (base, buffer.before, "before its first byte"),
        (buffer.address + buffer.size, buffer.after, "after its last byte"),
    ):
        changed = np.flatnonzero(read(start, size) != GUARD_PATTERN)
        if changed.size:
            distance = size - int(changed[-1]) if start == base else int(changed[0]) + 1
            return f"{distance} bytes {words}"
    return ""


@contextmanager
def open_gpu(index: int = 0) -> Iterator[Gpu]:
    """The device's primary context, current inside the block.

    Raises TileError: E0811 pycuda is missing, E0812 no driver or no device.
    """
    driver = import_pycuda()
    try:
        driver.init()
        if index >= driver.Device.count():
            raise no_gpu("the driver sees no device")
        device = driver.Device(index)
        context = device.retain_primary_context()
        context.push()
    except driver.Error as error:
        raise no_gpu(driver_words(error)) from error
    gpu = Gpu(driver, device)
    try:
        yield gpu
    finally:
        gpu.unload()
        driver.Context.pop()


def import_pycuda() -> Any:
    """The module pycuda.driver. Raises TileError (E0811, E0812)."""
    try:
        import pycuda.driver as driver
    except ModuleNotFoundError as error:
        raise fail(
            "E0811",
            "running on a GPU needs pycuda, which is not installed",
            help="run `pip install 'tilec[gpu]'`, or use `--device reference`",
        ) from error
    except ImportError as error:
        raise no_gpu(f"pycuda cannot be loaded: {error}") from error
    return driver


def no_gpu(reason: str) -> TileError:
    """The message that there is no GPU."""
    return fail(
        "E0812",
        "there is no GPU that can be used",
        note=reason,
        help="`tilec doctor` shows the driver; `--device reference` verifies without a GPU",
    )


def refused(doing: str, error: BaseException) -> TileError:
    """The message for a driver call that failed while `doing`."""
    return fail("E0814", f"the CUDA driver refused {doing}", note=driver_words(error))


def driver_words(error: BaseException) -> str:
    """The first line of what the driver said."""
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
