"""Products of one row, one column, or one consumed element: padded to the instruction, nothing counted twice."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

ROW = """kernel p(x: {t}[M, K], w: {t}[K, N], s: f32[M]) -> (y: f32[M, N], top: f32[M, ceildiv(N, 16)]):
    schedule mma = {form}
    for r, j in parallel(M, N by 16):
        one = span(r, 1)
        acc = zeros(f32, one, j)
        for k in range(K by 16):
            acc += {left} @ {right}
        z = maximum(acc * s[one][:, None], -1.0)
        y[one, j] = z
        top[one, j.start // 16] = max(z, axis=1)
"""
COLUMN = """kernel p(x: {t}[M, K], w: {t}[K, N], s: f32[N]) -> (y: f32[M, N], total: f32[ceildiv(M, 16), N]):
    schedule mma = {form}
    for r, j in parallel(N, M by 16):
        one = span(r, 1)
        acc = zeros(f32, j, one)
        for k in range(K by 16):
            acc += {left} @ {right}
        z = acc + s[one][None, :]
        y[j, one] = z
        total[j.start // 16, one] = sum(z, axis=0)
"""
DEPTH = """kernel p(x: {t}[M, K], w: {t}[K, N]) -> y: f32[M, N]:
    schedule mma = {form}
    for i, j in parallel(M by 32, N by 32):
        acc = zeros(f32, i, j)
        for k in range(K):
            acc += {left} @ {right}
        y[i, j] = acc
    check y == x @ w
"""
SIDES = {
    "row": (ROW, "x[one, k]", "w[k, j]"),
    "column": (COLUMN, "x[j, k]", "w[k, one]"),
    "depth": (DEPTH, "x[i, span(k, 1)]", "w[span(k, 1), j]"),
    "new axis": (DEPTH, "x[i, k][:, None]", "w[k, j][None, :]"),
    "computed": (DEPTH, "(x[i, span(k, 1)] * x[i, span(k, 1)])", "w[span(k, 1), j]"),
}
SIZES = (("M=11", "N=40", "K=35"), ("M=16", "N=32", "K=16"), ("M=1", "N=1", "K=1"))


@pytest.mark.parametrize("form", ["mma", "wmma"])
@pytest.mark.parametrize("side", SIDES)
def test_an_axis_of_extent_one_verifies(side: str, form: str, tmp_path: Path) -> None:
    text, left, right = SIDES[side]
    if side == "computed":
        text = text.replace("    check y == x @ w\n", "")
    path = tmp_path / "p.tile"
    path.write_text(text.format(t="bf16", form=form, left=left, right=right), encoding="utf-8")
    for sizes in SIZES:
        for order in ({}, {"early": True}):
            found = outcomes(tmp_path, file=str(path), settings=sizes, **order)
            assert {o["status"] for o in found} == {"ok"}, (sizes, order)


def test_decoding_with_a_query_head_for_each_key_head_verifies(tmp_path: Path) -> None:
    file = str(SAMPLES / "decode.tile")
    for t in ("T=70", "T=128", "T=1"):
        settings = ("B=2", "H=3", t, "scale=0.1")
        found = outcomes(tmp_path, file=file, defines=("G=1",), settings=settings)
        assert {o["status"] for o in found} == {"ok"}
