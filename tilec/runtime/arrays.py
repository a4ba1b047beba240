"""Host arrays for Tile's dtypes: in storage form, as `tilec.reference.numbers` says."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np

from tilec.ir.dtypes import DType
from tilec.ir.launch import LaunchPlan
from tilec.ir.tile_ir import Tensor
from tilec.reference.numbers import Array, array_shape, storage_dtype
from tilec.runtime.arguments import CallSizes, tensor_bytes, tensor_shape
from tilec.runtime.host import Environment
from tilec.source.diagnostics import fail

FLOAT_POISON = 0xFF
"""Every byte of an output before a launch: NaN in all float dtypes."""

INTEGER_POISON = 0xA5
"""The same for integers and bool."""


def poison(dtype: DType) -> int:
    """The byte that an output of `dtype` is filled with before a launch."""
    return FLOAT_POISON if dtype.is_float else INTEGER_POISON


def storage_shape(tensor: Tensor, env: Environment) -> tuple[int, ...]:
    """Shape of a parameter's array: its dims (the last one halved for 4-bit types), or a flat buffer where it
    declares strides."""
    if tensor.strides is not None:
        return (tensor_bytes(tensor, env) // storage_dtype(tensor.dtype).itemsize,)
    return array_shape(tensor_shape(tensor, env), tensor.dtype)


def empty_array(tensor: Tensor, env: Environment) -> Array:
    """An array for a parameter, every byte poisoned."""
    array: Array = np.empty(storage_shape(tensor, env), storage_dtype(tensor.dtype))
    array.reshape(-1).view(np.uint8)[...] = poison(tensor.dtype)
    return array


def load_array(path: str, tensor: Tensor) -> Array:
    """A parameter's array from a `.npy` file, in storage dtype.

    numpy writes the dtypes of ml_dtypes as raw bytes, and other programs as unsigned integers of the same width; both
    are taken as the parameter's dtype. Raises TileError (E0714).
    """
    try:
        with open(path, "rb") as file:
            array = np.load(file, allow_pickle=False)
    except (OSError, ValueError, EOFError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        first = reason.splitlines()[0].lower() if reason else "unknown reason"
        raise fail("E0714", f"cannot read the array `{path}`: {first}") from error
    if not isinstance(array, np.ndarray):
        raise fail(
            "E0714", f"`{path}` holds several arrays", help="save one array with `numpy.save`"
        )
    return as_storage(array, tensor, path)


def as_storage(array: Array, tensor: Tensor, name: str) -> Array:
    """`array` as contiguous elements of the parameter's storage dtype. Raises TileError (E0714) for another dtype."""
    wanted = storage_dtype(tensor.dtype)
    if array.dtype != wanted:
        raw = array.dtype.kind == "V" or array.dtype == np.dtype(f"u{wanted.itemsize}")
        if not raw or array.dtype.itemsize != wanted.itemsize or wanted.kind not in "Vf":
            raise fail(
                "E0714",
                f"`{tensor.name}` is {tensor.dtype}, and `{name}` holds {array.dtype}",
                help=f"convert it to {wanted} before saving",
            )
        array = np.ascontiguousarray(array).view(wanted)
    return np.ascontiguousarray(array)


def save_arrays(folder: str, arrays: Mapping[str, Array]) -> None:
    """Write each array to `folder`/NAME.npy, made if it is missing. Raises TileError (E0704)."""
    from tilec.jobs.outputs import make_folder, unwritable

    make_folder(folder)
    for name, array in arrays.items():
        path = Path(folder) / f"{name}.npy"
        try:
            np.save(path, array)
        except OSError as error:
            raise unwritable(str(path), error) from error


def dims_from_arrays(plan: LaunchPlan, arrays: Mapping[str, Array]) -> dict[str, tuple[int, ...]]:
    """Shapes in elements by parameter, for those whose array tells them: not the flat buffers of strided ones."""
    shapes = {}
    for tensor in plan.parameters:
        array = arrays.get(tensor.name)
        if array is None or tensor.strides is not None:
            continue
        shape = array.shape
        if tensor.dtype.bits == 4 and shape:
            shape = (*shape[:-1], 2 * shape[-1])
        shapes[tensor.name] = shape
    return shapes


def check_lengths(plan: LaunchPlan, sizes: CallSizes, arrays: Mapping[str, Array]) -> None:
    """Raises TileError (E0714) where the flat buffer of a strided parameter is too short."""
    for tensor in plan.parameters:
        array = arrays.get(tensor.name)
        if array is None or tensor.strides is None:
            continue
        needed = tensor_bytes(tensor, sizes.environment)
        if array.nbytes < needed:
            raise fail(
                "E0714",
                f"`{tensor.name}` needs {needed} bytes by its strides, and the array has {array.nbytes}",
            )
