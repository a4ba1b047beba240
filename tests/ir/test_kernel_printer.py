"""Kernel IR as text."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import compile_file

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def printed(file: str, kernel: str, arch: str, **defines: str) -> list[str]:
    """The lines of the first variant."""
    path = str(SAMPLES / file)
    found = compile_file(path, kernel=kernel, archs=(arch,), defines=defines, stop="kernel-ir")
    text = found.kernel(kernel).kernel_ir[arch]
    assert "None" not in text and "object at" not in text
    return text.split("\n\n")[0].splitlines()


def test_roles_with_rings_and_maps() -> None:
    lines = printed("gemm.tile", "gemm_nt", "sm_90a", BM="128", BN="256", BK="64")
    stripped = [line.strip() for line in lines]
    assert "map a_map of a box 128 x 64 swizzle 128" in stripped
    assert "tile a_tiles bf16[128, 64] slots 4" in stripped
    assert "barrier a_b_full slots 4 arrivals 1" in stripped
    assert any(
        x.startswith("grid ") and x.endswith("# clusters of 2 along i_tile") for x in stripped
    )
    producer, consumer = stripped.index("producer"), stripped.index("consumer")
    copies = [x for x in stripped[producer:consumer] if x.startswith("TensorCopy a_map a_tiles")]
    assert copies == [
        "TensorCopy a_map a_tiles a_b_ring a_b_full coordinates (BK*k.3, BM*i.1) row_axis 1"
    ]
    (product,) = (x for x in stripped if x.startswith("WarpgroupProduct"))
    assert "a_tiles[a_b_ring.slot] b_tiles[a_b_ring.slot]" in product
    assert "continues (k.3 > 0)" in product
    assert "IfUniform = (k.3 > 0)" in stripped


def test_tiles_of_a_ring_have_slots() -> None:
    lines = printed("gemm.tile", "gemm_nn", "sm_80")
    (product,) = (line for line in lines if "  Product " in line)
    assert "a_tiles[k_tile.0 % " in product


@pytest.mark.parametrize(
    ("file", "kernel", "arch"),
    [
        ("attention.tile", "attention", "sm_90a"),
        ("softmax.tile", "softmax", "sm_90"),
        ("norms.tile", "layer_norm", "sm_90"),
    ],
)
def test_every_field_has_text(file: str, kernel: str, arch: str) -> None:
    assert len(printed(file, kernel, arch)) > 10
