"""What the CUDA driver says of itself and its devices, through ctypes: no CUDA package is needed."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass

_ATTRIBUTE_MAJOR, _ATTRIBUTE_MINOR, _ATTRIBUTE_SMS = 75, 76, 16
"""CUdevice_attribute: compute capability major and minor, number of multiprocessors (CUDA driver API)."""

_NAME_BYTES = 256


@dataclass(frozen=True)
class Device:
    """One GPU. `memory_bytes` is its whole memory."""

    index: int
    name: str
    compute_capability: tuple[int, int]
    multiprocessors: int
    memory_bytes: int

    @property
    def arch(self) -> str:
        """`sm_90`."""
        return f"sm_{self.compute_capability[0]}{self.compute_capability[1]}"


@dataclass(frozen=True)
class Driver:
    """The driver. `version` is the newest CUDA that it speaks; `problem` is empty, or why no device can be used."""

    version: tuple[int, int] | None
    devices: tuple[Device, ...]
    problem: str


def query_driver(library: str = "libcuda.so.1") -> Driver:
    """Ask the driver library; never raises."""
    try:
        cuda = ctypes.CDLL(library)
    except OSError:
        return Driver(None, (), f"no driver: `{library}` cannot be loaded")
    try:
        return _asked(cuda)
    except AttributeError as error:
        # an older driver, or a stub in its place: a function that is not there is no reason to fall over
        return Driver(None, (), f"`{library}` is no driver that tilec knows: {error}")


def _asked(cuda: ctypes.CDLL) -> Driver:
    number = ctypes.c_int()
    version = None
    if cuda.cuDriverGetVersion(ctypes.byref(number)) == 0:
        version = (number.value // 1000, number.value % 1000 // 10)
    if status := cuda.cuInit(0):
        return Driver(version, (), f"cuInit answers {_error_name(cuda, status)}")
    count = ctypes.c_int()
    if status := cuda.cuDeviceGetCount(ctypes.byref(count)):
        return Driver(version, (), f"cuDeviceGetCount answers {_error_name(cuda, status)}")
    devices = tuple(_device(cuda, index) for index in range(count.value))
    return Driver(version, devices, "" if devices else "the driver sees no device")


def _device(cuda: ctypes.CDLL, index: int) -> Device:
    handle = ctypes.c_int()
    cuda.cuDeviceGet(ctypes.byref(handle), index)
    name = ctypes.create_string_buffer(_NAME_BYTES)
    cuda.cuDeviceGetName(name, _NAME_BYTES, handle)
    memory = ctypes.c_size_t()
    cuda.cuDeviceTotalMem_v2(ctypes.byref(memory), handle)

    def attribute(which: int) -> int:
        value = ctypes.c_int()
        cuda.cuDeviceGetAttribute(ctypes.byref(value), which, handle)
        return value.value

    return Device(
        index,
        name.value.decode(errors="replace"),
        (attribute(_ATTRIBUTE_MAJOR), attribute(_ATTRIBUTE_MINOR)),
        attribute(_ATTRIBUTE_SMS),
        memory.value,
    )


def _error_name(cuda: ctypes.CDLL, status: int) -> str:
    text = ctypes.c_char_p()
    if cuda.cuGetErrorName(status, ctypes.byref(text)) == 0 and text.value:
        return text.value.decode()
    return str(status)
