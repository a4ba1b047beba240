"""What a loop with products is written as: one body where no mask is in it, two where there is; one tile for one value."""

from __future__ import annotations

import re
from pathlib import Path

from tilec.compiler import compile_file

PRODUCT = """kernel k[BM = 64, BN = 64, BK = 32](a: bf16[M, K], b: bf16[K, N]) -> c: bf16[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += {left} @ b[k, j]
        c[i, j] = acc
"""
TWO = """kernel k[BM = 64, BN = 64, BK = 32](
    a: bf16[M, K], b: bf16[K, N], d: bf16[K, N], scale: f32) -> (c: bf16[M, N], e: bf16[M, N]):
    for i, j in parallel(M by BM, N by BN):
        first = zeros(f32, i, j)
        second = zeros(f32, i, j)
        for k in range(K by BK):
            scaled = (a[i, k].to(f32) * scale).to(bf16)
            first += scaled @ b[k, j]
            second += {other} @ d[k, j]
        c[i, j] = first
        e[i, j] = second
"""


def body(folder: Path, text: str) -> str:
    """The text of the kernel's aligned form."""
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    cu = compile_file(str(path), archs=("sm_80",)).cu
    found = re.search(r"__forceinline__ void k_body(?:_1)?\(.*?^}", cu, re.S | re.M)
    assert found is not None
    return found[0]


def products(text: str) -> int:
    """Product instructions in the text."""
    return text.count("accumulate_product<")


def test_a_body_without_masks_is_written_once(tmp_path: Path) -> None:
    text = body(tmp_path, PRODUCT.format(left="a[i, k]"))
    assert (
        products(text) == 2
    )  # a trip has two steps, between which the next trip's operands are read
    assert "_whole_end" not in text


def test_a_body_with_masks_is_written_for_the_interior_too(tmp_path: Path) -> None:
    text = body(tmp_path, PRODUCT.format(left="(a[i, k].to(f32) + 1.0).to(bf16)"))
    assert products(text) == 2
    assert "_whole_end" in text


def test_products_of_one_value_read_one_tile(tmp_path: Path) -> None:
    text = body(tmp_path, TWO.format(other="scaled"))
    assert text.count("is written before it is read") == 2  # interior and edges
    assert products(text) == 4


def test_products_of_two_values_have_two(tmp_path: Path) -> None:
    text = body(tmp_path, TWO.format(other="(a[i, k].to(f32) + scale).to(bf16)"))
    assert text.count("is written before it is read") == 4


ALONE = """\
kernel k(a: bf16[M, 64], b: bf16[64, N]) -> c: f32[M, N]:
    for i, j in parallel(M by 64, N by 64):
        c[i, j] = a[i, :] @ b[:, j]
"""


def test_operands_of_a_product_outside_of_loops_are_copied_at_once(tmp_path: Path) -> None:
    text = body(tmp_path, ALONE)
    assert text.count("cp_async_wait") == 1 and text.count("__syncthreads") == 2
    ends = text.index("cp_async_wait"), text.index("both operands are written before they are read")
    assert text.count("cp_async_commit", 0, ends[0]) == 2 and ends[0] < ends[1]
