"""Slices and reshapes of computed tiles on the emulator, in rows, blocks, loops and products."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tests.passes.test_reindex import HALVES, text_of

KERNELS = (
    "both halves of a row",
    "a cut span",
    "the end of a gather",
    "points of two axes",
    "what a loop carries",
    "what a branch yields, in parts",
    "what is overwritten later",
    "a slice of parts",
    "a transpose in parts",
    "numbers in parts",
    "slices of blocks",
    "gathered rows",
)
PRODUCTS = """kernel k[BM = 64, BK = 32](x: bf16[M, K], w: bf16[K, 128]) -> y: bf16[M, 64]:
    for i in parallel(M by BM):
        h = zeros(f32, i, 128)
        for k in range(K by BK):
            h += x[i, k] @ w[k, :]
        g = h[:, 0:64]
        y[i, :] = g * sigmoid(g) * h[:, 64:128]

    example M = 70, K = 50
"""


@pytest.mark.parametrize("order", [{}, {"early": True}])
def test_rows_blocks_and_loops(order: dict[str, bool], tmp_path: Path) -> None:
    parts = [
        f"{text_of(name).replace('kernel k[', f'kernel k{n}[').rstrip()}\n\n    example R = 6, s = 3\n"
        for n, name in enumerate(KERNELS)
    ]
    path = tmp_path / "k.tile"
    path.write_text("\n".join(parts), encoding="utf-8")
    found = outcomes(tmp_path, file=str(path), **order)
    assert [o["status"] for o in found] == ["ok"] * len(KERNELS)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_halves_of_a_product(arch: str, tmp_path: Path) -> None:
    for text in (PRODUCTS, HALVES.rstrip() + "\n\n    example R = 6, K = 21\n"):
        if arch == "sm_90a" and text is not PRODUCTS:
            continue
        path = tmp_path / "k.tile"
        path.write_text(text.replace("f32[R, K]", "bf16[R, K]").replace("f32[K,", "bf16[K,"))
        for order in ({}, {"early": True}):
            (found,) = outcomes(tmp_path, file=str(path), arch=arch, **order)
            assert found["status"] == "ok"
