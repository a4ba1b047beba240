"""Tiles that accumulators pad: what lies behind a tile's own rows and columns belongs to its neighbour, and is not stored."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.asynchronous import Program
from tests.passes.scheduled import Source
from tilec.passes.asynchronous import Asynchronous

SCALED = """kernel k[BM = 64, BN = 64, BK = 32, T = f32](a: bf16[M, K], b: bf16[K, N], down: f32[M], along: f32[N]) -> c: T[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += (a[i, k] @ b[k, j]) * along[j] * down[i][:, None]
        c[i, j] = acc
"""
WHOLE = """kernel k[BM = 64, BN = 24, BK = 32](a: bf16[M, K], b: bf16[K, BN]) -> c: f32[M, BN]:
    for i in parallel(M by BM):
        acc = zeros(f32, i, BN)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, :]
        c[i, :] = acc
"""
TILES = [(64, 24), (64, 40), (128, 56), (96, 64), (80, 24), (192, 32)]


@pytest.mark.parametrize("dtype", ["f32", "bf16"])
@pytest.mark.parametrize(("rows", "columns"), TILES)
def test_padding_is_not_stored(rows: int, columns: int, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(SCALED, encoding="utf-8")
    program = Program(path, "k", {"BM": rows, "BN": columns, "T": dtype})
    for m, n, k in ((200, 136, 64), (rows, columns, 32)):
        ran = program.run({"M": m, "N": n, "K": k})
        assert set(ran.launched) & program.asynchronous


@pytest.mark.parametrize(
    ("text", "columns", "leaves"),
    [
        (SCALED, 32, True),
        (SCALED, 24, False),
        # all columns: what pads them lies outside of the tensor
        (WHOLE, 24, True),
    ],
)
def test_which_tiles_leave_by_bulk_copies(
    text: str, columns: int, leaves: bool, tmp_path: Path
) -> None:
    form = Source(text, tmp_path, {"BN": columns}).form()
    assert isinstance(form, Asynchronous)
    assert (form.departure is not None) is leaves
