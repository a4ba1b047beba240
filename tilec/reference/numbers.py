"""NumPy forms of the element types.

*Storage* is what lies in a user's array: bfloat16 and the f8 types from ml_dtypes, 4-bit types packed two to a
byte along the last dimension, low nibble first. *Compute* is what the interpreter calculates with: every float
narrower than f64 as float32 holding a value of the narrow type, i4/u4 as int8/uint8.
"""

from __future__ import annotations

from functools import cache
from typing import Any, TypeAlias

import ml_dtypes
import numpy as np
import numpy.typing as npt

from tilec.ir.dtypes import DType

Array: TypeAlias = npt.NDArray[Any]
"""An array of any element type."""

_STORAGE: dict[str, Any] = {
    "bool": np.bool_,
    "i4": np.uint8,
    "u4": np.uint8,
    "i8": np.int8,
    "u8": np.uint8,
    "i16": np.int16,
    "u16": np.uint16,
    "i32": np.int32,
    "u32": np.uint32,
    "i64": np.int64,
    "u64": np.uint64,
    "f8e4m3": ml_dtypes.float8_e4m3fn,
    "f8e5m2": ml_dtypes.float8_e5m2,
    "f16": np.float16,
    "bf16": ml_dtypes.bfloat16,
    "f32": np.float32,
    "f64": np.float64,
}
_GREATEST = {"f8e4m3": 448.0, "f8e5m2": 57344.0, "f16": 65504.0}
_GREATEST |= {"bf16": float.fromhex("0x1.fep127"), "f32": float(np.finfo(np.float32).max)}
_GREATEST |= {"f64": float(np.finfo(np.float64).max)}


@cache
def storage_dtype(dtype: DType) -> np.dtype[Any]:
    """Element type of a user's array; bytes of two elements for i4 and u4."""
    found: np.dtype[Any] = np.dtype(_STORAGE[dtype.name])
    return found


@cache
def compute_dtype(dtype: DType) -> np.dtype[Any]:
    """Element type of a tile in the interpreter."""
    if dtype.is_float:
        return np.dtype(np.float64) if dtype.bits == 64 else np.dtype(np.float32)
    if dtype.bits == 4:
        return np.dtype(np.int8 if dtype.kind == "int" else np.uint8)
    return storage_dtype(dtype)


def greatest(dtype: DType) -> float:
    """Greatest finite value of a float type."""
    return _GREATEST[dtype.name]


def least_normal(dtype: DType) -> float:
    """Least positive normal value of a float type."""
    return float(2.0 ** (2 - (1 << (dtype.exponent - 1))))


def round_to(data: Array, dtype: DType) -> Array:
    """Floats rounded to the nearest value of `dtype`, in compute form; f8 beyond its range saturates, NaN stays NaN."""
    target = compute_dtype(dtype)
    if dtype.bits >= 32:
        return data.astype(target, copy=False)
    if dtype.bits == 8:
        limit = greatest(dtype)
        data = np.clip(data, -limit, limit)
    return data.astype(storage_dtype(dtype)).astype(target)


def wrap(data: Array, dtype: DType) -> Array:
    """Integers reduced to the range of `dtype`, in compute form."""
    if dtype.bits == 4:
        low: Array = data.astype(np.uint8) & np.uint8(15)
        if dtype.kind == "uint":
            return low
        signed: Array = (low ^ np.uint8(8)).astype(np.int8) - np.int8(8)
        return signed
    return data.astype(compute_dtype(dtype), copy=False)


def to_compute(stored: Array, dtype: DType) -> Array:
    """Compute form of elements in storage form (not packed)."""
    return stored.astype(compute_dtype(dtype), copy=False)


def to_double(stored: Array, dtype: DType) -> Array:
    """Float elements in storage form (not packed) or wide as float64, a copy."""
    if dtype.name == "bf16" and stored.dtype.itemsize == 2:
        # the upper half of a float32: several times faster than ml_dtypes' conversion
        words = stored.view(np.uint16).astype(np.uint32)
        words <<= np.uint32(16)
        return words.view(np.float32).astype(np.float64)
    return stored.astype(np.float64)


def to_storage(data: Array, dtype: DType) -> Array:
    """Storage form (not packed) of elements in compute form."""
    if dtype.bits == 4:
        return data
    return data.astype(storage_dtype(dtype), copy=False)


def unpack(packed: Array, shape: tuple[int, ...], dtype: DType) -> Array:
    """Elements of packed 4-bit storage in compute form; `packed` holds at least half as many bytes as `shape` has elements."""
    count = 1
    for extent in shape:
        count *= extent
    flat = packed.reshape(-1)[: (count + 1) // 2]
    nibbles = np.stack([flat & np.uint8(15), flat >> np.uint8(4)], axis=-1).reshape(-1)[:count]
    return wrap(nibbles, dtype).reshape(shape)


def pack(data: Array) -> Array:
    """Bytes of 4-bit elements, flat; the number of elements is even."""
    nibbles = data.reshape(-1).astype(np.uint8) & np.uint8(15)
    packed: Array = nibbles[0::2] | (nibbles[1::2] << np.uint8(4))
    return packed


def array_shape(shape: tuple[int, ...], dtype: DType) -> tuple[int, ...]:
    """Shape of a user's array for a tensor of these dimensions: the last one halved for 4-bit types."""
    return (*shape[:-1], (shape[-1] + 1) // 2) if dtype.bits == 4 else shape
