"""DLPack's exchange table for the fake tensors, made by ctypes: what PyTorch offers from 2.10 on."""

from __future__ import annotations

import ctypes
from typing import Any

from tests.calling.fakes import FakeTorch, Tensor


class DlTensor(ctypes.Structure):
    _fields_ = [
        ("data", ctypes.c_void_p),
        ("device_type", ctypes.c_int32),
        ("device", ctypes.c_int32),
        ("rank", ctypes.c_int32),
        ("code", ctypes.c_uint8),
        ("bits", ctypes.c_uint8),
        ("lanes", ctypes.c_uint16),
        ("shape", ctypes.POINTER(ctypes.c_int64)),
        ("strides", ctypes.POINTER(ctypes.c_int64)),
        ("byte_offset", ctypes.c_uint64),
    ]


class Table(ctypes.Structure):
    _fields_ = [
        ("major", ctypes.c_uint32),
        ("minor", ctypes.c_uint32),
        ("previous", ctypes.c_void_p),
        ("others", ctypes.c_void_p * 3),
        ("view", ctypes.c_void_p),
        ("current_stream", ctypes.c_void_p),
    ]


View = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.POINTER(DlTensor))
Stream = ctypes.PYFUNCTYPE(
    ctypes.c_int, ctypes.c_int32, ctypes.c_int32, ctypes.POINTER(ctypes.c_void_p)
)
_CODES = {"torch.float32": (2, 32), "torch.float16": (2, 16), "torch.bfloat16": (4, 16)}
_CODES |= {"torch.uint8": (1, 8), "torch.int32": (0, 32)}


class Exchange:
    """The table; `asked` are the tensors that were read through it."""

    def __init__(self, torch: FakeTorch, version: tuple[int, int] = (1, 3)) -> None:
        self.asked: list[Tensor] = []
        self.kept: list[Any] = []

        def view(tensor: Tensor, out: Any) -> int:
            self.asked.append(tensor)
            numbers = ctypes.c_int64 * max(1, len(tensor.shape))
            shape, strides = numbers(*tensor.shape), numbers(*tensor.stride())
            self.kept = [*self.kept[-32:], shape, strides]
            code, bits = _CODES[tensor.dtype]
            device = tensor.get_device()
            out[0] = DlTensor(
                tensor.data_ptr() - 8, 2 if device >= 0 else 1, max(0, device), len(tensor.shape),
                code, bits, 1, shape, strides, 8,
            )  # fmt: skip
            return 0

        def current_stream(device_type: int, device: int, out: Any) -> int:
            assert device_type == 2
            out[0] = torch.stream or None
            return 0

        self.functions = View(view), Stream(current_stream)
        view_at, stream_at = (ctypes.cast(f, ctypes.c_void_p) for f in self.functions)
        self.table = Table(*version, None, (ctypes.c_void_p * 3)(), view_at, stream_at)
        make = ctypes.pythonapi.PyCapsule_New
        make.restype, make.argtypes = (
            ctypes.py_object,
            [ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p],
        )
        self.name = b"dlpack_exchange_api"
        self.capsule = make(ctypes.addressof(self.table), self.name, None)
