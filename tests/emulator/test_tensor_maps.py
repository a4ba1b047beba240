"""Tensor maps: the emulator's encoding, and the rules of the driver's."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from tilec.emulator.tensor_maps import BYTES, MAGIC, IllegalTensorMap, pack

LEGAL: dict[str, Any] = {
    "base": 4096,
    "element_bytes": 2,
    "dims": (100, 70),
    "strides": (208,),
    "box": (64, 128),
    "swizzle": 128,
}


def test_the_layout() -> None:
    packed = pack(**LEGAL)
    assert len(packed) == BYTES
    assert struct.unpack_from("<IBBBxQ", packed) == (MAGIC, 2, 2, 128, 4096)
    assert struct.unpack_from("<5Q", packed, 16) == (100, 70, 0, 0, 0)
    assert struct.unpack_from("<4Q", packed, 56) == (208, 0, 0, 0)
    assert struct.unpack_from("<5H", packed, 88) == (64, 128, 0, 0, 0)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"base": 4104}, "8 modulo 16"),
        ({"element_bytes": 3}, "not 3"),
        ({"dims": (100,)}, "the rank"),
        ({"dims": (100,) * 6, "strides": (16,) * 5, "box": (8,) * 6}, "the rank"),
        ({"dims": (0, 70)}, "axis 0 has 0"),
        ({"dims": (100, 2**32 + 1)}, "axis 1 has"),
        ({"strides": (200,)}, "multiple of 16"),
        ({"strides": (2**40,)}, "below 2^40"),
        ({"strides": (-16,)}, "below 2^40"),
        ({"box": (64, 257)}, "257 elements along axis 1"),
        ({"box": (64, 0)}, "0 elements along axis 1"),
        ({"box": (4, 8)}, "8 bytes, not a multiple"),
        ({"swizzle": 16}, "not 16"),
        ({"swizzle": 64}, "spans 64"),
    ],
)
def test_what_the_driver_would_not_encode(change: dict[str, Any], words: str) -> None:
    with pytest.raises(IllegalTensorMap, match=words.replace("^", r"\^")):
        pack(**{**LEGAL, **change})


def test_what_is_just_legal() -> None:
    pack(16, 1, (2**32,) * 5, (2**40 - 16,) * 4, (256,) * 5, 0)
