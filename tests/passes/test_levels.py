"""Threads, vectors, CTAs and residency of row kernels follow the row's bytes and how many tensors a step reads."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilec.compiler import compile_file
from tilec.passes.levels import resident_ctas
from tilec.targets.table import TARGETS

ONE = """kernel k(x: {t}[R, C]) -> y: {t}[R, C]:
    require C <= 32768
    for r in parallel(R):
        row = x[r, :].to(f32)
        e = exp(row - max(row))
        y[r, :] = e / sum(e)
"""
TWO = """kernel k(x: {t}[R, C], w: {t}[C]) -> y: {t}[R, C]:
    require C <= 32768
    for r in parallel(R):
        row = x[r, :].to(f32)
        y[r, :] = row * sum(row * row) * w[:]
"""
THREE = """kernel k(x: {t}[R, C], w: {t}[C], b: {t}[C]) -> y: {t}[R, C]:
    require C <= 32768
    for r in parallel(R):
        row = x[r, :].to(f32)
        y[r, :] = row * sum(row * row) * w[:] + b[:]
"""


def configurations(folder: Path, text: str, arch: str = "sm_90") -> dict[int, tuple[int, int]]:
    """(threads, resident CTAs asked) of the aligned forms by the longest row."""
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    cu = compile_file(str(path), archs=(arch,)).cu
    found = re.findall(r"resident_ctas\((\d+), (\d+)\)\)\nk_kernel_c(\d+)\(", cu)
    return {int(c): (int(threads), int(ctas)) for threads, ctas, c in found}


@pytest.mark.parametrize(
    ("text", "dtype", "expected"),
    [
        (ONE, "bf16", {256: (128, 16), 1024: (64, 24), 4096: (128, 12), 8192: (128, 8)}),
        (ONE, "f32", {128: (128, 16), 1024: (64, 24), 4096: (128, 8), 8192: (256, 4)}),
        (TWO, "bf16", {512: (128, 16), 1024: (128, 16), 2048: (64, 24), 8192: (128, 8)}),
        (THREE, "bf16", {1024: (64, 20), 4096: (128, 10), 8192: (256, 5)}),
        (THREE, "f32", {1024: (128, 12), 4096: (256, 5), 16384: (512, 2)}),
    ],
)
def test_configurations(
    tmp_path: Path, text: str, dtype: str, expected: dict[int, tuple[int, int]]
) -> None:
    found = configurations(tmp_path, text.format(t=dtype))
    assert {c: found.get(c) for c in expected} == expected


def test_residency_counts_whole_warps_of_a_quarter() -> None:
    """40 registers a thread are 12 warps for each quarter of the SM, not 12.8."""
    assert resident_ctas(TARGETS["sm_90"], 64, 40) == 24
    assert resident_ctas(TARGETS["sm_90"], 128, 32) == 16
    assert resident_ctas(TARGETS["sm_86"], 128, 32) == 12
    assert resident_ctas(TARGETS["sm_90"], 1024, 200) == 1


SEVERAL = """kernel k(x: bf16[R, C]) -> (y: bf16[R, C], s: f32[R]):
    require C <= 32768
    for r in parallel(R):
        row = x[r, :].to(f32)
        y[r, :] = row - max(row)
        s[r] = sum(row)
"""


def test_several_stores_take_registers_of_the_table(tmp_path: Path) -> None:
    """Of parts of four vectors, where a target says so: 48 registers in the place of 40."""
    one = configurations(tmp_path, ONE.format(t="bf16"), "sm_80")
    several = configurations(tmp_path, SEVERAL, "sm_80")
    fewer = {1024: (64, 20), 2048: (64, 20), 4096: (128, 10)}
    assert {c: several[c] for c in fewer} == fewer
    assert {c: one[c][1] for c in fewer} == {1024: 24, 2048: 24, 4096: 12}
    assert {c: x for c, x in several.items() if c not in fewer} == {
        c: x for c, x in one.items() if c not in fewer
    }
    assert configurations(tmp_path, SEVERAL, "sm_90")[1024] == (64, 24)
