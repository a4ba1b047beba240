"""Reading a DLPack capsule through ctypes: where an array lies, without the library that made it.

The structures are those of `dlpack.h` (DLTensor, DLManagedTensor; version 0.x, which `__dlpack__` gives unless a newer one
is asked for).
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from typing import Any

from tilec.source.diagnostics import fail

_HOST, _CUDA, _CUDA_MANAGED = (1, 3), 2, 13
"""DLDeviceType: host memory (kDLCPU, kDLCUDAHost), kDLCUDA, kDLCUDAManaged."""

_CODES = {0: "i", 1: "u", 2: "f", 4: "bf", 6: "bool", 7: "f8e3m4", 10: "f8e4m3", 12: "f8e5m2"}
"""DLDataTypeCode."""


class _Tensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device_id", ctypes.c_int32),
        ("ndim", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


@dataclass(frozen=True)
class Exchanged:
    """What a capsule says; `capsule` keeps the memory alive. `device` None is host memory."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    dtype: str
    itemsize: int
    device: int | None
    capsule: Any


def view_of_capsule(array: Any) -> Exchanged:
    """Ask `array` for a capsule and read it. Raises TileError (E0714) for memory that neither host nor CUDA device has."""
    capsule = array.__dlpack__()
    pointer_of = ctypes.pythonapi.PyCapsule_GetPointer
    pointer_of.restype = ctypes.c_void_p
    pointer_of.argtypes = [ctypes.py_object, ctypes.c_char_p]
    tensor = _Tensor.from_address(pointer_of(capsule, b"dltensor"))
    if tensor.device_type in _HOST:
        device = None
    elif tensor.device_type in (_CUDA, _CUDA_MANAGED):
        device = int(tensor.device_id)
    else:
        raise fail(
            "E0714", f"the array lies in memory of kind {tensor.device_type} of DLPack, not CUDA's"
        )
    name = _CODES.get(tensor.code, f"code{tensor.code}_")
    dtype = name if name.startswith(("f8", "bool")) else f"{name}{tensor.bits}"
    shape = tuple(int(tensor.shape[n]) for n in range(tensor.ndim))
    strides = tuple(int(tensor.strides[n]) for n in range(tensor.ndim)) if tensor.strides else None
    return Exchanged(
        int(tensor.data or 0) + int(tensor.byte_offset),
        shape,
        strides,
        dtype,
        max(1, tensor.bits // 8),
        device,
        capsule,
    )
