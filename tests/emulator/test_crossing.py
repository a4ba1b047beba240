"""Tiles that pass through shared memory from rows to columns, and walks of windows without masks."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file

PLAIN = """kernel k[BM = {m}, BN = {n}](x: {t}[M, N]) -> y: {t}[N, M]:
    for i, j in parallel(M by BM, N by BN):
        y[j, i] = x[i, j].T

    check y == x.T
"""
SCALED = """kernel k[BM = 64, BN = 32](x: {t}[B, M, N], s: f32[N]) -> y: {t}[B, N, M]:
    for b, i, j in parallel(B, M by BM, N by BN):
        t = x[b, i, j].to(f32)
        y[b, j, i] = t.T * s[j][:, None]
"""
SUMMED = """kernel k[BM = 32, BN = 64](x: f32[M, N], z: f32[N, M]) -> (y: f32[N, M], total: f32[N]):
    for j in parallel(N by BN):
        acc = zeros(f32, j)
        for i in range(M by BM):
            t = x[i, j].T + z[j, i]
            y[j, i] = t
            acc += sum(t, axis=1)
        total[j] = acc
"""
AWKWARD = """kernel k[BM = 48, BN = 80](x: f32[M, N]) -> y: f32[N, M]:
    for i, j in parallel(M by BM, N by BN):
        y[j, i] = x[i, j].T * 2.0
"""


def written(folder: Path, text: str) -> str:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(("m", "n"), [(64, 64), (32, 64), (128, 32), (16, 128)])
@pytest.mark.parametrize("dtype", ["f32", "bf16", "f64"])
def test_transposes(tmp_path: Path, m: int, n: int, dtype: str) -> None:
    file = written(tmp_path, PLAIN.format(m=m, n=n, t=dtype))
    for sizes in (("M=130", "N=67"), ("M=128", "N=192"), ("M=8", "N=200")):
        found = outcomes(tmp_path, file=file, settings=sizes, arch="sm_90")
        assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize("text", [SCALED.format(t="bf16"), SCALED.format(t="f32"), SUMMED, AWKWARD])
def test_other_tiles(tmp_path: Path, text: str) -> None:
    file = written(tmp_path, text)
    extra = ("B=2",) if "[B," in text else ()
    for sizes in (("M=130", "N=67"), ("M=128", "N=128"), ("M=36", "N=20")):
        for arch in ("sm_80", "sm_90"):
            found = outcomes(tmp_path, file=file, settings=(*extra, *sizes), arch=arch)
            assert [o["status"] for o in found] == ["ok"]


def test_both_sides_move_whole_vectors(tmp_path: Path) -> None:
    """Neither side moves single elements, and neighbouring CTAs write neighbouring bytes."""
    cu = compile_file(written(tmp_path, PLAIN.format(m=64, n=64, t="bf16")), archs=("sm_90",)).cu
    body = cu[cu.index("void k_body(") : cu.index("void k_body_2(")]
    assert "load_aligned<kWidthXCol>(x_at" in body and "store_whole(y_at" in body
    assert "load_element" not in body and "store_element" not in body
    assert "i_tile = instance % ceil_div(M, BM)" in body


MANY = """kernel k[BM = 64, BN = 64](a: f32[M, N], b: f32[M, N], c: f32[M, N], u: f32[N, M], v: f32[N, M]) -> y: f32[N, M]:
    for i, j in parallel(M by BM, N by BN):
        y[j, i] = a[i, j].T + b[i, j].T * u[j, i] + c[i, j].T * v[j, i]
"""


def test_as_many_as_there_is_room_for(tmp_path: Path) -> None:
    """Three tiles of 16 KB: two pass through shared memory, the third is read element by element."""
    file = written(tmp_path, MANY)
    cu = compile_file(file, archs=("sm_80",)).cu
    assert "a_columns" in cu and "b_columns" in cu and "c_columns" not in cu
    found = outcomes(tmp_path, file=file, settings=("M=70", "N=130"), arch="sm_80")
    assert [o["status"] for o in found] == ["ok"]


WINDOW = """kernel k(x: bf16[R, C], w: bf16[C], b: bf16[C]) -> y: bf16[R, C]:
    require C <= 20000
    for r in parallel(R):
        row = x[r, :].to(f32)
        mu = sum(row) / C
        d = row - mu
        y[r, :] = d * rsqrt(sum(d * d) / C + 1e-5) * w[:] + b[:]
"""


def test_windows_without_masks(tmp_path: Path) -> None:
    """Rows of every shift whose last step is empty, begins, and is nearly full; nothing beyond their ends is read."""
    file = written(tmp_path, WINDOW)
    cu = compile_file(file, archs=("sm_90",)).cu
    assert re.search(r"if \(C >= kThreadsC \* 32 - \(c_shift / 4\) \* 4\) \{", cu)
    assert "load_shifted<kWidthC, 8, true>(w, c_at)" in cu
    for size in (2049, 2050, 2051, 2052, 2043, 2045, 2047, 2551, 4097, 4099, 5111):
        found = outcomes(tmp_path, file=file, settings=("R=9", f"C={size}"), arch="sm_90")
        assert [o["status"] for o in found] == ["ok"], size
