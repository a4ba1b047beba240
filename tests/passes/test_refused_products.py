"""Products that cannot be laid out say so."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import compile_file
from tilec.source.diagnostics import TileError


@pytest.mark.parametrize(
    ("left", "right", "store", "word"),
    [
        ("x[span(r, 1), k]", "w[k, j]", "y[span(r, 1), j]", "row"),
        ("x[j, k]", "w[k, span(r, 1)]", "y[j, span(r, 1)]", "column"),
    ],
)
def test_a_product_of_one_row_or_column(
    left: str, right: str, store: str, word: str, tmp_path: Path
) -> None:
    path = tmp_path / "p.tile"
    path.write_text(
        "kernel p(x: bf16[M, K], w: bf16[K, N]) -> y: f32[M, N]:\n"
        "    for r, j in parallel(M, N by 16):\n"
        "        one = span(r, 1)\n"
        + (
            "        acc = zeros(f32, one, j)\n"
            if word == "row"
            else "        acc = zeros(f32, j, one)\n"
        )
        + "        for k in range(K by 16):\n"
        f"            acc += {left} @ {right}\n"
        f"        {store} = acc\n",
        encoding="utf-8",
    )
    with pytest.raises(TileError) as caught:
        compile_file(str(path))
    (message,) = caught.value.diagnostics
    assert message.code == "E0515" and f"one {word} " in message.message
