"""Arrays of other libraries as addresses, shapes and strides; nothing is copied and no library is imported.

A library's array is recognised by what it offers: PyTorch tensors by `data_ptr`, host arrays of NumPy by their type, CuPy,
pycuda and Numba by `__cuda_array_interface__`, everything else by DLPack.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, Literal

from tilec.calling.dlpack import view_of_capsule
from tilec.ir.launch import LaunchPlan
from tilec.ir.symbolic import Sym
from tilec.ir.tile_ir import Tensor
from tilec.source.diagnostics import fail

Kind = Literal["torch", "numpy", "cupy", "pycuda", "cuda", "dlpack"]
"""The library of an array; `cuda` is any other with `__cuda_array_interface__`."""

_TORCH = {
    "torch.bool": "bool", "torch.int8": "i8", "torch.uint8": "u8", "torch.int16": "i16", "torch.uint16": "u16",
    "torch.int32": "i32", "torch.uint32": "u32", "torch.int64": "i64", "torch.uint64": "u64", "torch.float16": "f16",
    "torch.bfloat16": "bf16", "torch.float32": "f32", "torch.float64": "f64", "torch.float8_e4m3fn": "f8e4m3",
    "torch.float8_e5m2": "f8e5m2",
}  # fmt: skip
_NUMPY = {
    "bool": "bool", "int8": "i8", "uint8": "u8", "int16": "i16", "uint16": "u16", "int32": "i32", "uint32": "u32",
    "int64": "i64", "uint64": "u64", "float16": "f16", "bfloat16": "bf16", "float32": "f32", "float64": "f64",
    "float8_e4m3fn": "f8e4m3", "float8_e5m2": "f8e5m2",
}  # fmt: skip
_KINDS = {"b": "bool", "i": "i", "u": "u", "f": "f"}
_NARROW = frozenset({"bf16", "f16", "f8e4m3", "f8e5m2"})
"""Floats that other libraries often hold as integers or raw bytes of the same width."""


@dataclass(frozen=True)
class ArrayView:
    """An array of another library: `shape` and `strides` in its elements, `dtype` by tilec's name (`raw16` for bytes without a
    type), `device` the index of the GPU or None for host memory, `stream` what the array says its data is ready on."""

    kind: Kind
    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...] | None
    """None: dense"""
    dtype: str
    itemsize: int
    device: int | None
    owner: Any
    stream: int | None = None

    @property
    def dense(self) -> bool:
        """Whether the elements lie row by row without gaps; axes of extent 1 do not count."""
        if self.strides is None or not all(self.shape):
            return True
        step = 1
        for extent, stride in zip(reversed(self.shape), reversed(self.strides), strict=True):
            if extent > 1 and stride != step:
                return False
            step *= extent
        return True

    @property
    def steps(self) -> tuple[int, ...]:
        """The strides in elements, those of a dense array too."""
        if self.strides is not None:
            return self.strides
        steps, step = [], 1
        for extent in reversed(self.shape):
            steps.append(step)
            step *= max(1, extent)
        return tuple(reversed(steps))


def view_of(array: Any) -> ArrayView | None:
    """The view of an array, None for what is no array."""
    if _is_torch(array):
        return _torch_view(array)
    if _is_numpy(array):
        return _numpy_view(array)
    interface = getattr(array, "__cuda_array_interface__", None)
    if interface is not None:
        return _cuda_view(array, interface)
    if hasattr(array, "__dlpack__"):
        found = view_of_capsule(array)
        return ArrayView(
            "dlpack",
            found.address,
            found.shape,
            found.strides,
            found.dtype,
            found.itemsize,
            found.device,
            (array, found.capsule),
        )
    return None


def _is_torch(array: Any) -> bool:
    torch = sys.modules.get("torch")
    return torch is not None and isinstance(array, torch.Tensor)


def _is_numpy(array: Any) -> bool:
    numpy = sys.modules.get("numpy")
    return numpy is not None and isinstance(array, numpy.ndarray)


def _torch_view(array: Any) -> ArrayView:
    device = array.device
    index: int | None = None
    if device.type == "cuda":
        index = 0 if device.index is None else int(device.index)
    return ArrayView(
        "torch",
        int(array.data_ptr()),
        tuple(map(int, array.shape)),
        tuple(map(int, array.stride())),
        _TORCH.get(str(array.dtype), str(array.dtype)),
        int(array.element_size()),
        index,
        array,
    )


def memoryless_view(array: Any) -> ArrayView:
    """The view of a PyTorch tensor that may have no memory (while `torch.compile` traces); its address is 0, its extents may be
    PyTorch's symbols."""
    index = array.device.index if array.device.type == "cuda" else None
    return ArrayView(
        "torch", 0, tuple(array.shape), tuple(array.stride()),
        _TORCH.get(str(array.dtype), str(array.dtype)), int(array.element_size()), index, array,
    )  # fmt: skip


def _numpy_view(array: Any) -> ArrayView:
    size = int(array.dtype.itemsize)
    strides = tuple(int(s) // size for s in array.strides) if size else None
    return ArrayView(
        "numpy", int(array.ctypes.data), tuple(map(int, array.shape)), strides,
        _numpy_name(array.dtype), size, None, array,
    )  # fmt: skip


def _numpy_name(dtype: Any) -> str:
    if dtype.kind == "V" and dtype.name not in _NUMPY:
        return f"raw{8 * dtype.itemsize}"
    return _NUMPY.get(dtype.name, str(dtype.name))


def _cuda_view(array: Any, interface: dict[str, Any]) -> ArrayView:
    typestr = str(interface["typestr"])
    size = int(typestr[2:])
    kind = typestr[1]
    if kind == "V":
        # pycuda and CuPy hold the dtypes of ml_dtypes as raw bytes in the interface, by name on the array
        named = _NUMPY.get(getattr(getattr(array, "dtype", None), "name", ""), "")
        dtype = named or f"raw{8 * size}"
    elif kind == "b":
        dtype = "bool"
    else:
        dtype = f"{_KINDS.get(kind, kind)}{8 * size}"
    shape = tuple(map(int, interface["shape"]))
    strides = interface.get("strides")
    stream = interface.get("stream")
    # 1 is the legacy default stream, which is 0 elsewhere
    return ArrayView(
        _library(array),
        int(interface["data"][0]),
        shape,
        None if strides is None else tuple(int(s) // size for s in strides),
        dtype,
        size,
        _device_of(array),
        array,
        None if stream is None else (0 if int(stream) == 1 else int(stream)),
    )


def _library(array: Any) -> Kind:
    module = type(array).__module__.partition(".")[0]
    if module == "cupy":
        return "cupy"
    return "pycuda" if module == "pycuda" else "cuda"


def _device_of(array: Any) -> int:
    device = getattr(array, "device", None)
    return int(getattr(device, "id", 0) or 0)


def storage_view(view: ArrayView, tensor: Tensor) -> ArrayView:
    """The view as an argument for `tensor`: its dtype, extents in elements of the language, dense unless the parameter
    declares strides. Raises TileError (E0714)."""
    dtype = tensor.dtype
    fits = view.dtype == dtype.name
    if dtype.bits == 4:
        fits = view.dtype == "u8"
    elif dtype.name in _NARROW:
        fits = fits or view.dtype in (f"raw{dtype.bits}", f"u{dtype.bits}")
    if not fits:
        raise fail(
            "E0714",
            f"`{tensor.name}` is {dtype}, and the array {view.dtype}",
            help="convert the array first, for example with `.to(torch.…)` or `.astype(…)`"
            if dtype.bits != 4
            else "pass the packed bytes: unsigned 8-bit integers, two elements each",
        )
    if tensor.strides is None and not view.dense:
        raise fail(
            "E0714",
            f"`{tensor.name}` is dense, and the array's strides are {list(view.strides or ())}",
            note="nothing is copied behind the caller's back",
            help="pass `array.contiguous()` (NumPy: `np.ascontiguousarray`), or declare `strides (…)` in the program",
        )
    return view


def extents(view: ArrayView, tensor: Tensor) -> tuple[int, ...]:
    """The extents in elements of the language: two for each byte along the last axis of a 4-bit tensor."""
    if tensor.dtype.bits == 4 and view.shape:
        return (*view.shape[:-1], 2 * view.shape[-1])
    return view.shape


def strides_of(
    plan: LaunchPlan, given: Mapping[str, ArrayView], shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, int]:
    """The names that only strides bind: those of the arrays given; for an output that is yet to be made those that make it
    dense, where the arrays given tell its extents."""
    bound = {v.name for t in plan.parameters for d in t.dims for v in d.variables}
    extents_known: dict[str, int] = {}
    for tensor in plan.parameters:
        for dim, extent in zip(tensor.dims, shapes.get(tensor.name, ()), strict=False):
            for variable in dim.variables:
                if dim == Sym.of(variable):
                    extents_known[variable.name] = extent
    found: dict[str, int] = {}
    for tensor in plan.parameters:
        if tensor.strides is None:
            continue
        view = given.get(tensor.name)
        try:
            steps = view.steps if view is not None else _dense_steps(tensor, extents_known)
        except KeyError:
            continue
        for stride, step in zip(tensor.strides, steps, strict=False):
            for variable in stride.variables:
                if stride == Sym.of(variable) and variable.name not in bound:
                    found.setdefault(variable.name, step)
    return found


def _dense_steps(tensor: Tensor, known: Mapping[str, int]) -> tuple[int, ...]:
    """Row-major strides. Raises KeyError for an extent that is not known."""
    steps, step = [], 1
    for dim in reversed(tensor.dims):
        steps.append(step)
        step *= max(1, dim.evaluate(lambda v: known[v.name]))
    return tuple(reversed(steps))


def current_stream(views: Sequence[ArrayView]) -> int:
    """The handle of the stream that the callers' library works on: PyTorch's or CuPy's current one, else what an array says,
    else 0, the default stream."""
    for view in views:
        if view.kind == "torch" and view.device is not None:
            return int(sys.modules["torch"].cuda.current_stream(view.owner.device).cuda_stream)
    for view in views:
        if view.kind == "cupy":
            return int(sys.modules["cupy"].cuda.get_current_stream().ptr)
    return next((v.stream for v in views if v.stream is not None), 0)


def device_guard(views: Sequence[ArrayView]) -> AbstractContextManager[Any]:
    """PyTorch's or CuPy's device of the arrays made current: the C launcher asks the runtime which one it is."""
    for view in views:
        if view.kind == "torch" and view.device is not None:
            guard: AbstractContextManager[Any] = sys.modules["torch"].cuda.device(view.device)
            return guard
        if view.kind == "cupy":
            device: AbstractContextManager[Any] = sys.modules["cupy"].cuda.Device(view.device)
            return device
    return nullcontext()


def stream_handle(stream: Any) -> int:
    """The handle of a stream given by the caller: an integer, or a stream object of PyTorch, CuPy or pycuda."""
    for name in ("cuda_stream", "ptr", "handle"):
        if hasattr(stream, name):
            return int(getattr(stream, name) or 0)
    return int(stream)


def torch_name(text: str) -> str:
    """tilec's name of PyTorch's dtype `torch.float16`; the text itself where there is none."""
    return _TORCH.get(text, text)
