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


ESCAPES = """kernel k[BY = 8, BX = 128](step: f32) -> n: i32[H, W]:
    for y, x in parallel(H by BY, W by BX):
        c = x.to(f32)[None, :] * step + y.to(f32)[:, None] + zeros(f32, y, x)
        z = zeros(f32, y, x)
        count = zeros(i32, y, x)
        for it in range(64):
            inside = z * z <= 4.0
            z = where(inside, z * z + c, z)
            count += inside.to(i32)
        n[y, x] = count
"""


def test_values_that_only_copies_are_read_of_have_no_say(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(ESCAPES, encoding="utf-8")
    first = compile_file(str(path), archs=("sm_80",)).kernels[0].lowered["sm_80"][0]
    axes = {axis.extent.constant or str(axis.extent) for axis in first.axes}
    assert axes == {"BX", "BY"}


BODIES = """kernel k[BM = 128, BN = 128](p: f32[N, 3], mass: f32[N]) -> a: f32[N]:
    for i in parallel(N by BM):
        acc = zeros(f32, i)
        for j in range(N by BN):
            x = p[j, 0][None, :] - p[i, 0][:, None]
            y = p[j, 1][None, :] - p[i, 1][:, None]
            w = mass[j][None, :] * rsqrt(x * x + y * y + 1.0)
            acc += sum(exp(w * x), axis=1) * sum(exp(w * y), axis=1) + max(exp(w), axis=1)
        a[i] = acc
"""


def test_what_fits_no_registers_is_walked_beside_what_a_loop_carries(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(BODIES, encoding="utf-8")
    names = [
        kernel.name
        for kernel in compile_file(str(path), archs=("sm_80",)).kernels[0].lowered["sm_80"]
    ]
    assert any("walk" in name for name in names), names
