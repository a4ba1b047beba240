"""Calls of generated launchers through ctypes, with addresses of any memory: no array library."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tilec.compiled import CompiledKernel
from tilec.emit.c_names import c_name
from tilec.runtime.arguments import CallSizes
from verification.kernels import Ready, library_path

_C_SCALARS = {
    "bool": ctypes.c_bool,
    "i8": ctypes.c_int8,
    "u8": ctypes.c_uint8,
    "i16": ctypes.c_int16,
    "u16": ctypes.c_uint16,
    "i32": ctypes.c_int32,
    "u32": ctypes.c_uint32,
    "i64": ctypes.c_int64,
    "u64": ctypes.c_uint64,
    "f64": ctypes.c_double,
}
"""ctypes of scalar parameters; every other float is passed as `float`."""


class Call:
    """One kernel's launcher in its shared library."""

    def __init__(self, kernel: CompiledKernel, library: Path):
        self.kernel = kernel
        self.plan = kernel.plan
        loaded = ctypes.CDLL(str(library))
        name = c_name(kernel.name)
        self.function = getattr(loaded, name)
        self._error = getattr(loaded, f"{name}_error")
        self._error.restype = ctypes.c_char_p
        self._bytes = getattr(loaded, f"{name}_workspace_bytes")
        self._bytes.restype = ctypes.c_size_t
        pointers: list[Any] = [ctypes.c_void_p] * len(self.plan.parameters)
        numbers: list[Any] = [ctypes.c_int] * (len(self.plan.dims) + len(self.plan.strides))
        scalars = [_C_SCALARS.get(s.dtype.name, ctypes.c_float) for s in self.plan.scalars]
        self.function.argtypes = [
            *pointers,
            *numbers,
            *scalars,
            ctypes.c_void_p,
            ctypes.c_void_p,
        ]

    @property
    def error(self) -> str:
        """Why the last call was refused, or ""."""
        return str(self._error().decode())

    def workspace_bytes(self, sizes: CallSizes) -> int:
        """Bytes of workspace of a call."""
        return int(self._bytes(*(sizes.dims[v.name] for v in self.plan.dims)))

    def __call__(
        self, addresses: Mapping[str, int], sizes: CallSizes, workspace: int = 0, **dims: int
    ) -> int:
        """The launcher's status, on the default stream; `dims` replace sizes."""
        numbers = {**sizes.dims, **sizes.strides, **dims}
        arguments: list[Any] = [addresses[t.name] for t in self.plan.parameters]
        arguments += [numbers[v.name] for v in (*self.plan.dims, *self.plan.strides)]
        arguments += [sizes.scalars[s.name] for s in self.plan.scalars]
        return int(self.function(*arguments, workspace or None, None))


def call_of(ready: Ready) -> Call:
    """The launcher of a kernel that was built as a shared library."""
    return Call(ready.kernel, library_path(ready.compiled.cu, ready.built))
