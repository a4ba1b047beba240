"""What a tensor map can describe: element types, swizzles and limits of `cuTensorMapEncodeTiled` (CUDA driver API)."""

from __future__ import annotations

from tilec.ir import dtypes as d
from tilec.lazy_dataclass import dataclass

RANK_LIMIT = 5
ALIGNMENT = 16
"""Bytes, of the base, the strides and the rows of the box."""
BOX_LIMIT = 256
DIM_LIMIT = 1 << 32
STRIDE_LIMIT = (1 << 40) - 1


@dataclass(frozen=True)
class Enumerator:
    """A value of an enumeration of the driver, by name and number."""

    name: str
    number: int


ELEMENT_TYPES: dict[d.DType, Enumerator] = {
    dtype: Enumerator(f"CU_TENSOR_MAP_DATA_TYPE_{name}", number)
    for name, number, dtypes in (
        ("UINT8", 0, (d.BOOL, d.I8, d.U8, d.F8E4M3, d.F8E5M2)),
        ("UINT16", 1, (d.I16, d.U16)),
        ("UINT32", 2, (d.U32,)),
        ("INT32", 3, (d.I32,)),
        ("UINT64", 4, (d.U64,)),
        ("INT64", 5, (d.I64,)),
        ("FLOAT16", 6, (d.F16,)),
        ("FLOAT32", 7, (d.F32,)),
        ("FLOAT64", 8, (d.F64,)),
        ("BFLOAT16", 9, (d.BF16,)),
        ("TFLOAT32", 11, (d.TF32,)),
    )
    for dtype in dtypes
}
"""CUtensorMapDataType; beside its size it matters where something is filled with NaN, and for TFLOAT32, whose loads are rounded to
the nearest, ties to even (NaN and infinities as they are)."""

SWIZZLES: dict[int, Enumerator] = {
    0: Enumerator("CU_TENSOR_MAP_SWIZZLE_NONE", 0),
    32: Enumerator("CU_TENSOR_MAP_SWIZZLE_32B", 1),
    64: Enumerator("CU_TENSOR_MAP_SWIZZLE_64B", 2),
    128: Enumerator("CU_TENSOR_MAP_SWIZZLE_128B", 3),
}
"""CUtensorMapSwizzle by its span in bytes."""


def box_fault(dtype: d.DType, dims: int, strides: int, box: tuple[int, ...], swizzle: int) -> str:
    """Why no map has so many dims and strides, such elements and such a box; "" where one can have them."""
    if dtype not in ELEMENT_TYPES:
        return f"elements of {dtype.bits} bits"
    if not 1 <= dims <= RANK_LIMIT or len(box) != dims:
        return f"{dims} dims and a box of {len(box)}"
    if strides != dims - 1:
        return f"{dims} dims and {strides} strides"
    if swizzle not in SWIZZLES:
        return f"a swizzle of {swizzle} bytes"
    if not all(1 <= extent <= BOX_LIMIT for extent in box):
        return f"a box of {' x '.join(map(str, box))} elements"
    row = box[0] * dtype.bits // 8
    if row % ALIGNMENT or (swizzle and row > swizzle):
        return f"rows of {row} bytes with a swizzle of {swizzle}"
    return ""
