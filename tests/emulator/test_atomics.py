"""Atomics of vectors in whole kernels: at ragged sizes, at shifted addresses, on rows that several instances add to."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import tilec
from tests.emulator.test_samples import outcomes

ROWS = """kernel k(x: {t}[R, C], at: i32[R], inout out: {t}[S, C]):
    require C <= 4096
    require S >= 1
    for r in parallel(R):
        atomic_add(out[at[r], :], x[r, :])
"""
TILES = """kernel k[BR = 16, BC = 64](x: f32[R, C], at: i32[R], inout out: {t}[S, C]):
    for i, j in parallel(R by BR, C by BC):
        rows = at[i]
        atomic_add(out[rows, j], (x[i, j] * 2.0).to({t}))
"""
CUT = """kernel k[BR = 16, BC = 64](y: f32[N], x: f32[R], inout out: {t}[R, C]):
    require N <= C
    for i, j in parallel(R by BR, N by BC):
        atomic_add(out[i, j], (x[i][:, None] * y[j][None, :]).to({t}))
"""
COLUMNS = """kernel k[BR = 64, BC = 64](x: {t}[R, C], inout y: f32[C]):
    for i, j in parallel(R by BR, C by BC):
        atomic_add(y[j], sum(x[i, j].to(f32), axis=0))
"""
SPLIT = """kernel k[BM = 64, BN = 64, BK = 32, SPLITS = 3](a: {t}[M, K], b: {t}[K, N], inout c: f32[M, N]):
    for i, j, s in parallel(M by BM, N by BN, SPLITS):
        chunk = ceildiv(ceildiv(K, SPLITS), BK) * BK
        acc = zeros(f32, i, j)
        for k in range(s * chunk : min(K, (s + 1) * chunk) by BK):
            acc += a[i, k] @ b[k, j]
        atomic_add(c[i, j], acc)
"""
ORDERS: list[dict[str, Any]] = [{}, {"early": True}]


def written(folder: Path, text: str) -> str:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
@pytest.mark.parametrize(
    ("text", "dtype"),
    [(ROWS, "f32"), (TILES, "f16"), (TILES, "bf16"), (CUT, "f32"), (CUT, "f16"), (COLUMNS, "bf16")],
)
def test_every_variant_at_ragged_sizes(
    tmp_path: Path, text: str, dtype: str, arch: str, order: dict[str, Any]
) -> None:
    file = written(tmp_path, text.format(t=dtype))
    found = outcomes(tmp_path, file=file, small=True, arch=arch, **order)
    assert len(found) >= 15
    assert {o["status"] for o in found} == {"ok"}


@pytest.mark.parametrize("order", [*ORDERS, {"chaos": 1}])
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
@pytest.mark.parametrize(
    "sizes", [("M=70", "N=136", "K=500"), ("M=65", "N=72", "K=96"), ("M=130", "N=133", "K=200")]
)
def test_products_that_add_up(
    tmp_path: Path, arch: str, sizes: tuple[str, ...], order: dict[str, Any]
) -> None:
    file = written(tmp_path, SPLIT.format(t="bf16"))
    found = outcomes(tmp_path, file=file, settings=sizes, arch=arch, **order)
    assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, ml_dtypes.bfloat16])
@pytest.mark.parametrize("size", [8, 120, 121])
def test_small_integers_are_added_exactly(tmp_path: Path, dtype: Any, size: int) -> None:
    """Rows meet in a few others, in any order; a NaN and an infinity stay in their elements."""
    name = {4: "f32"}.get(np.dtype(dtype).itemsize, "f16" if dtype is np.float16 else "bf16")
    kernel = tilec.compile(written(tmp_path, ROWS.format(t=name)), device="cpu", arch="sm_90")
    rng = np.random.default_rng(3)
    x = rng.integers(-2, 3, (40, size)).astype(dtype)
    at = rng.integers(0, 3, 40).astype(np.int32)
    out = rng.integers(-9, 9, (3, size)).astype(dtype)
    x[0, 1], x[1, size - 1] = np.nan, np.inf
    expected = out.astype(np.float64)
    np.add.at(expected, at, x.astype(np.float64))
    kernel(x, at, out)
    np.testing.assert_array_equal(out.astype(np.float64), expected)


@pytest.mark.parametrize("size", [40, 41])
def test_indices_out_of_range_add_nothing(tmp_path: Path, size: int) -> None:
    kernel = tilec.compile(
        written(tmp_path, TILES.format(t="f16")), device="cpu", arch="sm_90", BR=8, BC=32
    )
    at = np.array([0, 3, -1, 2, 4, -(2**31), 2**31 - 1, 3, 1], np.int32)
    x = np.random.default_rng(4).integers(-4, 5, (9, size)).astype(np.float32)
    out = np.ones((4, size), np.float16)
    inside = (at >= 0) & (at < 4)
    expected = np.ones((4, size))
    np.add.at(expected, at[inside], 2 * x[inside])
    kernel(x, at, out)
    np.testing.assert_array_equal(out, expected)


def test_a_vector_is_one_request(tmp_path: Path) -> None:
    """A warp's request of 16 bytes a lane, in place of four of 4 bytes."""
    stores = {}
    for arch in ("sm_80", "sm_90"):
        file = written(tmp_path, ROWS.format(t="f32"))
        settings = ("R=8", "C=1024", "S=3")
        (found,) = outcomes(tmp_path, file=file, settings=settings, arch=arch, counters=True)
        assert found["status"] == "ok"
        counted = [c for c in found["counters"] if c["kind"] == "store"]
        stores[arch] = sum(c["requests"] for c in counted)
    assert stores == {"sm_80": 8 * 1024 // 32, "sm_90": 8 * 1024 // 128}
