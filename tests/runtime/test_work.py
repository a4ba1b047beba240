"""Operations of products."""

from __future__ import annotations

from tests.ir.programs import gemm, vector_add
from tilec.runtime.arguments import CallSizes
from tilec.runtime.work import product_operations


def test_a_product_of_whole_blocks() -> None:
    sizes = CallSizes({"M": 160, "N": 320, "K": 800})
    assert product_operations(gemm(16, 8), sizes) == 2 * 160 * 320 * 800


def test_ragged_blocks_count_whole() -> None:
    assert (
        product_operations(gemm(16, 8), CallSizes({"M": 17, "N": 16, "K": 9})) == 2 * 32 * 16 * 16
    )


def test_nothing_to_multiply() -> None:
    assert product_operations(gemm(16, 8), CallSizes({"M": 0, "N": 16, "K": 9})) == 0
    assert product_operations(vector_add(), CallSizes({"N": 100})) is None
