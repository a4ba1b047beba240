"""Tile dtypes in C."""

from __future__ import annotations

from tilec.ir import dtypes as d

DEVICE = {
    d.BOOL: "bool", d.I4: "i4_t", d.U4: "u4_t", d.I8: "int8_t", d.U8: "uint8_t", d.I16: "int16_t", d.U16: "uint16_t",
    d.I32: "int", d.U32: "unsigned", d.I64: "int64_t", d.U64: "uint64_t", d.F8E4M3: "f8e4m3_t", d.F8E5M2: "f8e5m2_t",
    d.F16: "f16_t", d.BF16: "bf16_t", d.F32: "float", d.F64: "double",
}  # fmt: skip
"""Types of kernel text."""

HOST = {
    d.BOOL: "uint8_t", d.I8: "int8_t", d.U8: "uint8_t", d.I16: "int16_t", d.U16: "uint16_t", d.I32: "int32_t",
    d.U32: "uint32_t", d.I64: "int64_t", d.U64: "uint64_t", d.F32: "float", d.F64: "double",
}  # fmt: skip
"""Types of the launcher's signature, valid in C and C++; the others are passed as `void`."""


def host_type(dtype: d.DType) -> str:
    """Pointee of a tensor, or type of a scalar, in the launcher's signature."""
    return HOST.get(dtype, "void")


def scalar_host_type(dtype: d.DType) -> str:
    """Type of a scalar parameter: narrow floats are passed as float, bool as int."""
    if dtype == d.BOOL:
        return "int"
    return HOST.get(dtype, "float")
