"""Tiles whose columns are kept and whose rows are reduced, wider than a thread of few holds."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes

BATCH_NORM = """kernel k[BC = {c}, BN = {n}](x: bf16[N, C], g: f32[C], b: f32[C]) -> (y: bf16[N, C], mean: f32[C]):
    for c in parallel(C by BC):
        s = zeros(f32, c)
        q = zeros(f32, c)
        for n in range(N by BN):
            t = x[n, c].to(f32)
            s += sum(t, axis=0)
            q += sum(t * t, axis=0)
        m = s / N
        r = rsqrt(max(q / N - m * m, 0.0) + 0.5) * g[c]
        for n in range(N by BN):
            y[n, c] = (x[n, c].to(f32) - m) * r + b[c]
        mean[c] = m
"""


@pytest.mark.parametrize(("c", "n"), [(32, 64), (64, 128)])
def test_batch_norm(tmp_path: Path, c: int, n: int) -> None:
    path = tmp_path / "k.tile"
    path.write_text(BATCH_NORM.format(c=c, n=n), encoding="utf-8")
    for sizes in (("N=150", "C=70"), ("N=128", "C=64")):
        found = outcomes(tmp_path, file=str(path), settings=sizes, arch="sm_80")
        assert [o["status"] for o in found] == ["ok"]
