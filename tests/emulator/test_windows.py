"""Rows that start anywhere: aligned vectors of the window around them, nothing read or written outside."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilec
from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file

SOFTMAX = """kernel k(x: {t}[R, C]) -> y: {t}[R, C]:
    require C <= 12000
    for r in parallel(R):
        row = x[r, :].to(f32)
        e = exp(row - max(row))
        y[r, :] = e / sum(e)
"""
LAYER = """kernel k(x: {t}[B, R, C], w: {t}[C], b: f32[C]) -> (y: {t}[B, R, C], mean: f32[B, R]):
    require C <= 5000
    for n, r in parallel(B, R):
        row = x[n, r, :].to(f32)
        mu = sum(row) / C
        d = row - mu
        y[n, r, :] = d * rsqrt(sum(d * d) / C + 1e-5) * w[:] + b[:]
        mean[n, r] = mu
"""
INOUT = """kernel k(x: {t}[R, C], inout h: {t}[R, C]) -> (y: f32[R, C], at: i32[R]):
    require C <= 3000
    for r in parallel(R):
        s = x[r, :].to(f32) + h[r, :].to(f32)
        h[r, :] = s
        at[r] = argmax(s)
        y[r, :] = s * sum(s * s)
"""
CAST = """kernel k(x: u8[R, C]) -> y: f32[R, C]:
    require C <= 40000
    for r in parallel(R):
        y[r, :] = x[r, :].to(f32)
"""
SIZES = (1, 7, 8, 9, 191, 377, 378, 1003, 1273, 2555, 4097)


def written(folder: Path, text: str) -> str:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("dtype", ["bf16", "f32", "f64"])
@pytest.mark.parametrize("size", SIZES)
def test_rows(tmp_path: Path, dtype: str, size: int) -> None:
    file = written(tmp_path, SOFTMAX.format(t=dtype))
    found = outcomes(tmp_path, file=file, settings=("R=5", f"C={size}"), early=True)
    assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize("text", [LAYER, INOUT])
@pytest.mark.parametrize("dtype", ["bf16", "f16", "f32"])
@pytest.mark.parametrize("size", (9, 377, 1001, 2557))
def test_weights_and_outputs_of_other_types(
    tmp_path: Path, text: str, dtype: str, size: int
) -> None:
    settings = ["R=5", f"C={size}"] + ["B=2"] * (text is LAYER)
    file = written(tmp_path, text.format(t=dtype))
    found = outcomes(tmp_path, file=file, settings=tuple(settings), chaos=1)
    assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize("size", (1, 5, 517, 21001))
def test_bytes_walked(tmp_path: Path, size: int) -> None:
    file = written(tmp_path, CAST)
    found = outcomes(tmp_path, file=file, settings=("R=3", f"C={size}"))
    assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize("size", (377, 1001, 4097))
def test_special_rows(tmp_path: Path, size: int) -> None:
    """What a neighbouring row holds never shows."""
    x = np.random.default_rng(0).standard_normal((9, size)).astype(np.float32)
    x[1] = -np.inf
    x[2, size // 2] = np.nan
    x[3] *= 1e30
    x[4] = -np.inf
    x[4, -1] = 2.0
    x[5, 0] = np.inf
    x[6] = -200.0
    x[7] = 1e4 + x[7]
    x = x.astype(ml_dtypes.bfloat16)
    k = tilec.compile(written(tmp_path, SOFTMAX.format(t="bf16")), device="cpu")
    y = k(x).astype(np.float64)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(1, keepdims=True))
        expected = e / e.sum(1, keepdims=True)
    assert (np.isnan(y) == np.isnan(expected)).all()
    good = ~np.isnan(expected)
    assert np.allclose(y[good], expected[good], rtol=2**-8, atol=1e-30)


def test_a_window_reads_whole_vectors(tmp_path: Path) -> None:
    file = written(tmp_path, SOFTMAX.format(t="bf16"))
    (outcome,) = outcomes(tmp_path, file=file, settings=("R=8", "C=1009"), counters=True)
    loads = [c for c in outcome["counters"] if c["kind"] == "load"]
    # 127 vectors a row, four warps' requests and a half; elements one by one would be 8 times as many
    assert sum(c["requests"] for c in loads) <= 8 * 5 + 8


def test_what_has_no_window(tmp_path: Path) -> None:
    """Rows that start differently, at a scalar that is loaded, or at a multiple anyway."""
    other = SOFTMAX.format(t="f32").replace("-> y: f32[R, C]", "-> y: f32[R, B, C]")
    other = other.replace("y[r, :] =", "y[r, 0, :] =")
    gathered = SOFTMAX.format(t="f32").replace("x: f32[R, C]", "x: f32[R, C], at: i32[R]")
    gathered = gathered.replace("x[r, :]", "x[at[r], :]")
    whole = SOFTMAX.format(t="f32").replace("require C", "require C % 4 == 0\n    require C")
    for text, windows in (
        (other, False),
        (gathered, False),
        (whole, False),
        (SOFTMAX.format(t="f32"), True),
    ):
        cu = compile_file(written(tmp_path, text), archs=("sm_80",)).cu
        assert ("load_window<" in cu) == windows, text
