"""Running sums and maxima along rows of every level, along columns, in tiles of products, beside reductions."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file
from tilec.source.diagnostics import TileError

ROWS = """kernel k(x: {t}[R, C]) -> y: {a}[R, C]:
    require C <= {most}
    for r in parallel(R):
        y[r, :] = {op}(x[r, :]{c}, axis=0)

    check y == {op}(x, axis=1)
"""
SPANS = """kernel k[BR = {r}, BC = {c}](x: f32[R, C]) -> (y: f32[R, C], z: f32[R, C]):
    for i, j in parallel(R by BR, C by BC):
        t = x[i, j]
        y[i, j] = cumsum(t, axis=0) - sum(t, axis=0)[None, :]
        z[i, j] = cummax(t * t, axis=1)
"""
CARRIED = """kernel k[B = 96](x: f32[R, C]) -> y: f32[R, C]:
    for r in parallel(R):
        before = 0.0
        for c in range(C by B):
            t = x[r, c]
            y[r, c] = cumsum(t, axis=0) + before
            before += sum(t)

    check y == cumsum(x, axis=1)
"""
SCORES = """kernel k[BM = 32, BN = 32](q: f16[M, 32], k: f16[N, 32]) -> y: f32[M, N]:
    for i, j in parallel(M by BM, N by BN):
        y[i, j] = cumsum(q[i, :] @ k[j, :].T, axis={axis})
"""
COMPACTED = """kernel k[B = 256](x: f32[R, C], keep: bool[R, C]) -> (y: f32[R, C], n: i32[R]):
    for r in parallel(R):
        count = 0
        for c in range(C by B):
            kept = keep[r, c].to(i32)
            at = count + cumsum(kept, axis=0) - 1
            y[r, where(keep[r, c], at, -1)] = x[r, c]
            count += sum(kept)
        n[r] = count
"""


def written(folder: Path, text: str) -> str:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("t", "a", "op", "c"),
    [
        ("f32", "f32", "cumsum", ""),
        ("bf16", "f32", "cumsum", ".to(f32)"),
        ("i32", "i32", "cumsum", ""),
        ("f16", "f16", "cummax", ""),
    ],
)
def test_rows_of_every_length(tmp_path: Path, t: str, a: str, op: str, c: str) -> None:
    """Rows of a part of a warp, of several in a CTA, of several warps and steps, that begin anywhere."""
    file = written(tmp_path, ROWS.format(t=t, a=a, op=op, c=c, most=4096))
    for columns in (1, 64, 1000, 4096):
        settings = (f"R={5 if columns < 1000 else 2}", f"C={columns}")
        found = outcomes(tmp_path, file=file, settings=settings, arch="sm_90")
        assert [o["status"] for o in found] == ["ok"], columns


@pytest.mark.parametrize(("r", "c"), [(8, 64), (64, 32), (1, 128), (16, 1)])
def test_both_axes_of_a_tile(tmp_path: Path, r: int, c: int) -> None:
    file = written(tmp_path, SPANS.format(r=r, c=c))
    for sizes in (("R=70", "C=133"), ("R=64", "C=64")):
        found = outcomes(tmp_path, file=file, settings=sizes, arch="sm_80")
        assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize("text", [CARRIED, COMPACTED])
def test_carried_from_span_to_span(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text)
    for sizes in (("R=3", "C=500"), ("R=2", "C=96"), ("R=2", "C=7")):
        found = outcomes(tmp_path, file=file, settings=sizes, arch="sm_80")
        assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize("axis", [0, 1])
def test_not_along_the_sums_of_a_product(tmp_path: Path, axis: int) -> None:
    with pytest.raises(TileError) as caught:
        compile_file(written(tmp_path, SCORES.format(axis=axis)), archs=("sm_80",))
    assert [d.code for d in caught.value.diagnostics] == ["E0512"]


def test_rows_that_no_cta_holds_are_refused(tmp_path: Path) -> None:
    text = ROWS.format(t="f32", a="f32", op="cumsum", c="", most=262144)
    with pytest.raises(TileError) as caught:
        compile_file(written(tmp_path, text), archs=("sm_90",))
    assert [d.code for d in caught.value.diagnostics] == ["E0601"]
    assert "walk it in spans" in caught.value.diagnostics[0].render()
    assert compile_file(written(tmp_path, text.replace("262144", "32768")), archs=("sm_90",)).cu
