"""Tensor maps as the emulator reads them: `CUtensorMap` of `templates/host/asynchronous.h`, 128 bytes, little endian.

| at | type | what |
|---|---|---|
| 0 | `uint32_t` | `MAGIC` |
| 4 | `uint8_t` | bytes of an element: 1, 2, 4 or 8 |
| 5 | `uint8_t` | rank, 1 to 5 |
| 6 | `uint8_t` | bytes that the swizzle spans: 0, 32, 64 or 128 |
| 7 | `uint8_t` | 1: loads are rounded to tf32 |
| 8 | `uint64_t` | address of the first element |
| 16 | `uint64_t[5]` | elements of each axis, the fastest first; 0 behind the rank |
| 56 | `uint64_t[4]` | bytes from one place to the next along axes 1 to 4 |
| 88 | `uint16_t[5]` | elements of the box |
"""

from __future__ import annotations

import struct
from collections.abc import Sequence

BYTES = 128
"""Size and alignment of a map."""

MAGIC = 0x70616D74

_LAYOUT = struct.Struct("<IBBBBQ5Q4Q5H30x")
assert _LAYOUT.size == BYTES


class IllegalTensorMap(ValueError):
    """What `cuTensorMapEncodeTiled` would not encode; the text says which rule."""


def pack(
    base: int,
    element_bytes: int,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
    rounds: bool = False,
) -> bytes:
    """A map. Axes come the fastest first; `strides` are in bytes, of every axis but the first. Raises IllegalTensorMap."""
    rule = broken_rule(base, element_bytes, dims, strides, box, swizzle)
    if rule is not None:
        raise IllegalTensorMap(rule)

    def filled(values: Sequence[int], count: int) -> list[int]:
        return [*values, *[0] * (count - len(values))]

    return _LAYOUT.pack(
        MAGIC,
        element_bytes,
        len(dims),
        swizzle,
        int(rounds),
        base,
        *filled(dims, 5),
        *filled(strides, 4),
        *filled(box, 5),
    )


def broken_rule(
    base: int,
    element_bytes: int,
    dims: Sequence[int],
    strides: Sequence[int],
    box: Sequence[int],
    swizzle: int,
) -> str | None:
    """The first rule of `cuTensorMapEncodeTiled` (CUDA driver API) that a map breaks, in words; None for a legal map."""
    if element_bytes not in (1, 2, 4, 8):
        return f"elements have 1, 2, 4 or 8 bytes, not {element_bytes}"
    if not 1 <= len(dims) <= 5 or len(box) != len(dims) or len(strides) != len(dims) - 1:
        return f"{len(dims)} axes, {len(strides)} strides, {len(box)} lengths of the box: the rank is 1 to 5"
    if base % 16 != 0 or not 0 <= base < 2**64:
        return f"the address is {base % 16} modulo 16"
    for axis, count in enumerate(dims):
        if not 1 <= count <= 2**32:
            return f"axis {axis} has {count} elements, of 1 to 2^32"
    for axis, stride in enumerate(strides, 1):
        if stride % 16 != 0 or not 0 <= stride < 2**40:
            return f"the stride of axis {axis} is {stride} bytes: a multiple of 16 below 2^40"
    for axis, count in enumerate(box):
        if not 1 <= count <= 256:
            return f"the box has {count} elements along axis {axis}, of 1 to 256"
    row = box[0] * element_bytes
    if row % 16 != 0:
        return f"a row of the box has {row} bytes, not a multiple of 16"
    if swizzle not in (0, 32, 64, 128):
        return f"a swizzle spans 32, 64 or 128 bytes, not {swizzle}"
    if swizzle and row > swizzle:
        return f"a row of the box has {row} bytes, and the swizzle spans {swizzle}"
    return None
