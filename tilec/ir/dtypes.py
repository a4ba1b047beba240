"""Element types of Tile and how they promote."""

from __future__ import annotations

from typing import Literal

from tilec.lazy_dataclass import dataclass

Kind = Literal["bool", "int", "uint", "float"]


@dataclass(frozen=True)
class DType:
    """An element type. `bits` is its storage (4 for i4 and u4, two to a byte); `mantissa` and `exponent` count bits of a float
    (mantissa without the hidden one)."""

    name: str
    kind: Kind
    bits: int
    mantissa: int = 0
    exponent: int = 0

    @property
    def is_float(self) -> bool:
        """f8 to f64."""
        return self.kind == "float"

    @property
    def is_integer(self) -> bool:
        """Signed or unsigned, not bool."""
        return self.kind in ("int", "uint")

    @property
    def epsilon(self) -> float:
        """Distance from 1 to the next larger value (floats)."""
        return 2.0**-self.mantissa

    @property
    def minimum(self) -> int:
        """Least value of an integer type."""
        return -(1 << (self.bits - 1)) if self.kind == "int" else 0

    @property
    def maximum(self) -> int:
        """Greatest value of an integer type."""
        return (1 << (self.bits - 1)) - 1 if self.kind == "int" else (1 << self.bits) - 1

    def __str__(self) -> str:
        return self.name


BOOL = DType("bool", "bool", 8)
I4 = DType("i4", "int", 4)
U4 = DType("u4", "uint", 4)
I8 = DType("i8", "int", 8)
U8 = DType("u8", "uint", 8)
I16 = DType("i16", "int", 16)
U16 = DType("u16", "uint", 16)
I32 = DType("i32", "int", 32)
U32 = DType("u32", "uint", 32)
I64 = DType("i64", "int", 64)
U64 = DType("u64", "uint", 64)
F8E4M3 = DType("f8e4m3", "float", 8, 3, 4)
F8E5M2 = DType("f8e5m2", "float", 8, 2, 5)
F16 = DType("f16", "float", 16, 10, 5)
BF16 = DType("bf16", "float", 16, 7, 8)
F32 = DType("f32", "float", 32, 23, 8)
TF32 = DType("tf32", "float", 32, 10, 8)
"""What tensor cores take of an f32: no dtype of the language, but what a bulk copy rounds to."""
F64 = DType("f64", "float", 64, 52, 11)

DTYPES: dict[str, DType] = {
    d.name: d
    for d in (
        BOOL,
        I4,
        U4,
        I8,
        U8,
        I16,
        U16,
        I32,
        U32,
        I64,
        U64,
        F8E4M3,
        F8E5M2,
        F16,
        BF16,
        F32,
        F64,
    )
}
"""All element types by name."""


def promote(a: DType, b: DType) -> DType | None:
    """The type of `a op b` for two strong operands by NumPy's rules, or None where Tile asks for `.to`:
    bf16 with f16, f8e4m3 with f8e5m2, an integer with a float, u64 with a signed integer."""
    if a == b:
        return a
    if a.kind == "bool":
        return b
    if b.kind == "bool":
        return a
    if a.is_float and b.is_float:
        if a.bits == b.bits:
            return None
        return a if a.bits > b.bits else b
    if a.is_float or b.is_float:
        return None
    if a.kind == b.kind:
        return a if a.bits > b.bits else b
    signed, unsigned = (a, b) if a.kind == "int" else (b, a)
    if signed.bits > unsigned.bits:
        return signed
    return {4: I8, 8: I16, 16: I32, 32: I64}.get(unsigned.bits)
