"""Launches through the driver's own library: kernels with parameters that pycuda cannot lay out.

A tensor map is aligned to 128 bytes (64 before CUDA 13) in the constant bank, where parameters begin at an odd place, so
that the layout of pycuda's parameter buffer is not the kernel's. `cuLaunchKernel` is given an address for each parameter
and puts it where the kernel expects it. Everything works in the context that is current.
"""

from __future__ import annotations

import ctypes
from functools import cache
from typing import Any

from tilec.ir.tensor_maps import ELEMENT_TYPES, SWIZZLES
from tilec.runtime.launching import MAP_BYTES, ConcreteLaunch, ConcreteMap

_INTERLEAVE_NONE, _FILL_ZEROS, _PROMOTION_128 = 0, 0, 2
_MOST_SHARED = 8
_LARGE_CLUSTERS = 14

PORTABLE_CLUSTER = 8
"""CTAs of a cluster that every device with clusters takes; more must be allowed for each function (CUDA C++ Programming Guide)."""
"""CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES"""


class DriverError(Exception):
    """What the driver answered."""


class CudaDriver:
    """The library by its path or name."""

    def __init__(self, library: str) -> None:
        try:
            self._library: Any = ctypes.CDLL(library)
        except OSError as error:
            raise DriverError(f"`{library}` cannot be loaded: {error}") from error

    def _call(self, name: str, *arguments: Any) -> None:
        try:
            function = getattr(self._library, name)
        except AttributeError as error:
            raise DriverError(f"the driver has no {name}: it is older than CUDA 12") from error
        if status := function(*arguments):
            text = ctypes.c_char_p()
            named = self._library.cuGetErrorName(status, ctypes.byref(text)) == 0 and text.value
            answer = text.value.decode() if named and text.value else str(status)
            raise DriverError(f"{name} answers {answer}")

    def load(self, cubin: bytes) -> int:
        """A module. Raises DriverError."""
        module = ctypes.c_void_p()
        self._call("cuModuleLoadData", ctypes.byref(module), cubin)
        return int(module.value or 0)

    def unload(self, module: int) -> None:
        """Give a module back. Raises DriverError."""
        self._call("cuModuleUnload", ctypes.c_void_p(module))

    def encode(self, wanted: ConcreteMap) -> bytes:
        """The bytes of a tensor map. Raises DriverError."""
        room = (ctypes.c_uint8 * (2 * MAP_BYTES))()
        place = _aligned(room)
        rank = len(wanted.dims)
        sizes, counts = ctypes.c_uint64 * rank, ctypes.c_uint32 * rank
        self._call(
            "cuTensorMapEncodeTiled",
            ctypes.c_void_p(place),
            ctypes.c_int(ELEMENT_TYPES[wanted.dtype].number),
            ctypes.c_uint32(rank),
            ctypes.c_void_p(wanted.base),
            sizes(*wanted.dims),
            sizes(*wanted.strides),
            counts(*wanted.box),
            counts(*[1] * rank),
            ctypes.c_int(_INTERLEAVE_NONE),
            ctypes.c_int(SWIZZLES[wanted.swizzle].number),
            ctypes.c_int(_PROMOTION_128),
            ctypes.c_int(_FILL_ZEROS),
        )
        return ctypes.string_at(place, MAP_BYTES)

    def prepare(self, module: int, launch: ConcreteLaunch) -> DriverLaunch:
        """A launch that is ready. Raises DriverError."""
        function = ctypes.c_void_p()
        name = launch.kernel.encode()
        self._call("cuModuleGetFunction", ctypes.byref(function), ctypes.c_void_p(module), name)
        if launch.shared_bytes:
            shared = ctypes.c_int(launch.shared_bytes)
            self._call("cuFuncSetAttribute", function, ctypes.c_int(_MOST_SHARED), shared)
        if launch.cluster > PORTABLE_CLUSTER:
            self._call(
                "cuFuncSetAttribute", function, ctypes.c_int(_LARGE_CLUSTERS), ctypes.c_int(1)
            )
        return DriverLaunch(self, function, launch)

    def launch(self, function: Any, launch: ConcreteLaunch, addresses: Any, stream: int) -> None:
        """Enqueue on a stream, by its handle. Raises DriverError."""
        numbers = (launch.grid, 1, 1, launch.block, 1, 1, launch.shared_bytes)
        where = ctypes.c_void_p(stream or None)
        self._call("cuLaunchKernel", function, *map(ctypes.c_uint, numbers), where, addresses, None)


class DriverLaunch:
    """One launch with its parameters in memory."""

    def __init__(self, driver: CudaDriver, function: Any, launch: ConcreteLaunch) -> None:
        packed = launch.packed_with(driver.encode)
        self._driver, self._function, self._launch = driver, function, launch
        self._memory = (ctypes.c_uint8 * (len(packed) + MAP_BYTES))()
        start = _aligned(self._memory)
        ctypes.memmove(start, packed, len(packed))
        self._addresses = (ctypes.c_void_p * len(launch.offsets))(
            *(start + offset for offset in launch.offsets)
        )

    def __call__(self, stream: Any = None) -> None:
        """Enqueue on a stream of pycuda, or the default one. Raises DriverError."""
        handle = int(stream.handle) if stream is not None else 0
        self._driver.launch(self._function, self._launch, self._addresses, handle)


def _aligned(memory: ctypes.Array[Any]) -> int:
    """The first address in `memory` where a map may lie."""
    address = ctypes.addressof(memory)
    return address + -address % MAP_BYTES


@cache
def cuda_driver(library: str = "libcuda.so.1") -> CudaDriver:
    """The driver's library, opened once. Raises DriverError."""
    return CudaDriver(library)
