"""`reduce` with functions that need not commute, along rows of every level and along either axis of a tile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file
from tilec.source.diagnostics import TileError

WELFORD = """fn merge(a, b):
    n = a[0] + b[0]
    d = b[1] - a[1]
    return n, a[1] + d * (b[0] / n), a[2] + b[2] + d * d * (a[0] * b[0] / n)

kernel k(x: {t}[R, C]) -> (mean: f32[R], var: f32[R]):
    require C <= 4096
    for r in parallel(R):
        row = x[r, :].to(f32)
        n, m, s = reduce((full(f32, 1.0, C), row, full(f32, 0.0, C)), 0, merge)
        mean[r] = m
        var[r] = s / n
"""
LAST = """fn last(a, b):
    return b if b >= 0 else a

kernel k(x: i32[R, C]) -> y: i32[R]:
    require C <= 4096
    for r in parallel(R):
        y[r] = reduce(x[r, :], 0, last)
"""
CHAIN = """fn chain(a, b):
    return a[0] * b[0], a[1] * b[0] + b[1]

kernel k[BR = {r}, BC = {c}](a: f32[R, C], b: f32[R, C]) -> (h: f32[R], g: f32[C]):
    for i in parallel(R by BR):
        s = zeros(f32, i)
        for j in range(C by BC):
            u, v = reduce((a[i, j], b[i, j]), 1, chain)
            s = s * u + v
        h[i] = s
    for j in parallel(C by BC):
        s = zeros(f32, j)
        for i in range(R by BR):
            u, v = reduce((a[i, j], b[i, j]), 0, chain)
            s = s * u + v
        g[j] = s
"""


def written(folder: Path, text: str) -> str:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("text", "lengths"),
    [(WELFORD.format(t="bf16"), (1, 513, 4096)), (WELFORD.format(t="f32"), (513,)), (LAST, (1, 513, 4096))],
)  # fmt: skip
def test_rows_of_every_length(tmp_path: Path, text: str, lengths: tuple[int, ...]) -> None:
    file = written(tmp_path, text)
    for columns in lengths:
        settings = (f"R={5 if columns < 1000 else 2}", f"C={columns}")
        found = outcomes(tmp_path, file=file, settings=settings, arch="sm_90")
        assert [o["status"] for o in found] == ["ok"], columns


@pytest.mark.parametrize(("r", "c"), [(8, 64), (64, 16), (1, 96), (16, 1)])
def test_both_axes_of_a_tile(tmp_path: Path, r: int, c: int) -> None:
    file = written(tmp_path, CHAIN.format(r=r, c=c))
    for sizes in (("R=70", "C=133"), ("R=16", "C=64")):
        found = outcomes(tmp_path, file=file, settings=sizes, arch="sm_80")
        assert [o["status"] for o in found] == ["ok"]


def test_not_along_the_sums_of_a_product(tmp_path: Path) -> None:
    product = """fn last(a, b):
    return b if b >= 0.0 else a

kernel k(x: f16[M, 32], w: f16[32, 64]) -> y: f32[M]:
    for i in parallel(M by 64):
        y[i] = reduce(x[i, :] @ w[:, :], 1, last)
"""
    with pytest.raises(TileError) as caught:
        compile_file(written(tmp_path, product), archs=("sm_80",))
    assert [d.code for d in caught.value.diagnostics] == ["E0512"]
