"""The widths of stores that nvcc makes of whole vectors: where it loses sight of the address it would store words."""

from __future__ import annotations

import re
from pathlib import Path

from tilec.compiler import compile_file
from tilec.toolchain.build import compile_ptx, find_toolchain

PRODUCT = """kernel product[BM = 32, BN = 64, BK = 32](
    a: bf16[M, K], b: bf16[K, N]) -> (c: bf16[M, N], d: f32[M, N]):
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
        d[i, j] = acc
"""


def test_results_of_products_are_stored_whole(tmp_path: Path) -> None:
    """Lines of four lanes in 16 bytes, pairs of accumulators in 8."""
    file = tmp_path / "product.tile"
    file.write_text(PRODUCT, encoding="utf-8")
    text = compile_file(str(file), archs=("sm_80",)).cu
    ptx = compile_ptx(text, "sm_80", toolchain=find_toolchain()).blob.decode()
    body = ptx.split(".entry product_kernel(")[1].split(".entry ")[0]
    assert set(re.findall(r"\bst\.global\.(\S+)", body)) == {"v2.u64", "f64"}
