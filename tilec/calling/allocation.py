"""New arrays of the library that the caller's arrays come from."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import Any

from tilec.calling.arguments import ArrayView
from tilec.ir.dtypes import DType
from tilec.ir.tile_ir import Tensor
from tilec.source.diagnostics import fail

_TORCH = {
    "bool": "bool", "i4": "uint8", "u4": "uint8", "i8": "int8", "u8": "uint8", "i16": "int16", "u16": "uint16",
    "i32": "int32", "u32": "uint32", "i64": "int64", "u64": "uint64", "f16": "float16", "bf16": "bfloat16",
    "f32": "float32", "f64": "float64", "f8e4m3": "float8_e4m3fn", "f8e5m2": "float8_e5m2",
}  # fmt: skip


def torch_dtype(dtype: DType) -> Any:
    """PyTorch's dtype of a tensor's storage. PyTorch must be imported."""
    return getattr(sys.modules["torch"], _TORCH[dtype.name])


def new_output(tensor: Tensor, extents: Sequence[int], views: Sequence[ArrayView]) -> Any:
    """An array for an output, of the library and on the device of the first argument, its elements unspecified.

    `extents` are in elements of the language. Raises TileError (E0714) where the library of the arguments makes no arrays.
    """
    shape = tuple(extents)
    if tensor.dtype.bits == 4 and shape:
        shape = (*shape[:-1], -(-shape[-1] // 2))
    first = next((v for v in views if v.kind != "numpy"), None)
    if first is None:
        import numpy

        from tilec.reference.numbers import storage_dtype

        return numpy.empty(shape, storage_dtype(tensor.dtype))
    torch = sys.modules.get("torch")
    match first.kind:
        case "torch":
            assert torch is not None
            return torch.empty(shape, dtype=torch_dtype(tensor.dtype), device=first.owner.device)
        case "cupy":
            return _cupy_empty(shape, tensor.dtype)
        case "pycuda":
            from tilec.reference.numbers import storage_dtype

            gpuarray: Any = __import__("pycuda.gpuarray").gpuarray
            return gpuarray.empty(shape, storage_dtype(tensor.dtype))
        case _:
            if torch is not None and first.device is not None:
                return torch.empty(
                    shape, dtype=torch_dtype(tensor.dtype), device=f"cuda:{first.device}"
                )
            raise fail(
                "E0714",
                f"there is no way to make an array for `{tensor.name}` beside those of `{type(first.owner).__name__}`",
                help=f"make it and pass it as `{tensor.name}=…`",
            )


def _cupy_empty(shape: tuple[int, ...], dtype: DType) -> Any:
    from tilec.reference.numbers import storage_dtype

    cupy: Any = sys.modules["cupy"]
    try:
        return cupy.empty(shape, dtype=storage_dtype(dtype))
    except (TypeError, ValueError):
        # a dtype that CuPy does not know: its bits as unsigned integers
        return cupy.empty(shape, dtype=f"uint{max(8, dtype.bits)}")


def new_workspace(size: int, views: Sequence[ArrayView]) -> tuple[int, Any] | None:
    """(address, owner) of `size` bytes by the library of the first argument on a device; None where it has no allocator."""
    first = next((v for v in views if v.device is not None), None)
    if first is not None and first.kind == "torch":
        torch: Any = sys.modules["torch"]
        block = torch.empty(size, dtype=torch.uint8, device=first.owner.device)
        return int(block.data_ptr()), block
    if first is not None and first.kind == "cupy":
        block = sys.modules["cupy"].empty(size, dtype="uint8")
        return int(block.data.ptr), block
    return None
