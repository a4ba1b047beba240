"""Operands that are the same for all rows, kept in shared memory by clusters that stay; teams that share them."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiled import CompiledFile
from tilec.compiler import compile_file
from tilec.emulator.library import Mode, Schedule
from tilec.emulator.machine import Emulator
from tilec.reference.inputs import make_inputs
from tilec.runtime.arguments import bind_sizes
from tilec.runtime.gpu_run import prepare_call
from tilec.source.diagnostics import TileError

SCALED = """kernel k(x: {t}[R, C], w: {t}[C]) -> (y: {t}[R, C], s: f32[R]):
    require C <= 262144
    for r in parallel(R):
        row = x[r, :].to(f32)
        total = sum(row * row)
        y[r, :] = row * rsqrt(total / C + 1e-6) * w[:]
        s[r] = total
"""
SHIFTED = """kernel k(x: {t}[R, C], w: {t}[C], b: {t}[C]) -> (y: {t}[R, C], s: f32[R]):
    require C <= 262144
    for r in parallel(R):
        row = x[r, :].to(f32)
        total = sum(row)
        y[r, :] = (row - total / C) * w[:] + b[:]
        s[r] = total
"""
TWICE = """kernel k(x: f32[R, C], w: f32[C], b: f32[C], inout h: f32[C]) -> (y: f32[R, C], z: f32[R, C], s: f32[R]):
    require C <= 262144
    for r in parallel(R):
        row = x[r, :]
        total = sum(row)
        spread = sum((row - total / C) * (row - total / C) * w[:])
        y[r, :] = row * spread * w[:] + b[:]
        z[r, :] = row * w[:]
        s[r] = total
"""


def written(folder: Path, text: str) -> str:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize(
    ("text", "dtype", "size"),
    [
        (SCALED, "f32", 20000),
        (SCALED, "bf16", 65544),
        (SHIFTED, "f32", 32768),
        (SHIFTED, "f32", 16388),
        (SHIFTED, "f32", 16385),
        (SHIFTED, "bf16", 131072),
        (TWICE, "f32", 20000),
    ],
)
def test_rows(tmp_path: Path, text: str, dtype: str, size: int) -> None:
    file = written(tmp_path, text.format(t=dtype))
    for order in ({}, {"early": True}):
        for rows in (1, 4):
            settings = (f"R={rows}", f"C={size}")
            found = outcomes(tmp_path, file=file, settings=settings, arch="sm_90", **order)
            assert [o["status"] for o in found] == ["ok"]


@pytest.fixture(scope="module")
def shifted(tmp_path_factory: pytest.TempPathFactory) -> CompiledFile:
    file = written(tmp_path_factory.mktemp("slices"), SHIFTED.format(t="f32"))
    return compile_file(file, archs=("sm_90",), command="")


def run(compiled: CompiledFile, cu: str, rows: int = 3, mode: Mode = "late") -> None:
    found = compiled.kernel("k")
    bound = bind_sizes(found.plan, {"R": str(rows), "C": "20000"}, {})
    arrays = make_inputs(found.program, bound.numbers, dict(bound.scalars), 0)
    emulator = Emulator("sm_90", Schedule(mode))
    with prepare_call(emulator, found.plan, emulator.module("k.cu", cu), bound, arrays) as call:
        call.launch()
        sums = call.results()["s"]
    assert np.allclose(sums, arrays["x"].astype(np.float64).sum(axis=1), rtol=1e-4, atol=1e-2)


def test_teams_where_two_ctas_have_no_room(tmp_path: Path) -> None:
    """One slice stays with each of the two CTAs of an SM, two are shared by the teams of one."""
    one = compile_file(written(tmp_path, SCALED.format(t="f32")), archs=("sm_90",)).cu
    assert "w_slice" in one and " == team" not in one
    two = compile_file(written(tmp_path, SHIFTED.format(t="f32")), archs=("sm_90",)).cu
    assert "w_slice" in two and "b_slice" in two and "c_step % 2 == team" in two
    assert re.search(r"__launch_bounds__\(1024, resident_ctas\(1024, 1\)\)\nk_kernel_c32768\(", two)
    assert (
        "_slice"
        not in compile_file(written(tmp_path, SHIFTED.format(t="f32")), archs=("sm_80",)).cu
    )


def test_only_what_no_row_changes(tmp_path: Path) -> None:
    """An operand of each row, one that the kernel writes, and one read before the clusters meet come from memory."""
    beside = SHIFTED.replace("b: {t}[C]", "b: {t}[R, C]").replace("b[:]", "b[r, :]").format(t="f32")
    cu = compile_file(written(tmp_path, beside), archs=("sm_90",)).cu
    assert "w_slice" in cu and "b_slice" not in cu and "b_at_slice" not in cu
    before = SCALED.replace("row = x[r, :].to(f32)", "row = x[r, :].to(f32) * w[:].to(f32)")
    cu = compile_file(written(tmp_path, before.format(t="f32")), archs=("sm_90",)).cu
    body = cu[cu.index("while (item") :]
    first, meets = body.index("load_aligned<kWidthC>(w + c_at)"), body.index("cluster_acquire")
    assert first < meets < body.index("load_aligned<kWidthC>(shared.w_slice")


def test_each_part_is_needed(shifted: CompiledFile) -> None:
    """Without a wait for the copies, the meeting, or what tells the teams apart the emulator objects."""
    body = re.search(r"void k_body_\d+\([^{]*\{(?:(?!\n\}).)*w_slice.*?\n\}", shifted.cu, re.S)
    assert body is not None
    text = body[0]
    run(shifted, shifted.cu)
    run(shifted, shifted.cu, rows=1)
    run(shifted, shifted.cu, mode="chaos")
    meets = re.search(r"if \(turn == 0\) \{\n\s+cp_async_wait<0>\(\);\n.*?\}\n", text, re.S)
    assert meets is not None
    leaves = text.index("// no row was left")
    changes = [
        (text.replace("cp_async_wait<0>();", "", 1), 3),
        (text.replace(meets[0], ""), 3),
        (text[:leaves] + text[leaves:].replace("cluster_release();", ""), 1),
        (text[:leaves] + text[leaves:].replace("cp_async_wait<0>();", ""), 1),
        (re.sub(r"next_item\[team \* 2 \+ turn % 2\],(?=\s+drawn)", "next_item[turn % 2],", text), 3),
    ]
    for changed, rows in changes:
        assert changed != text
        with pytest.raises(TileError):
            run(shifted, shifted.cu.replace(text, changed), rows)


def test_every_row_once(shifted: CompiledFile) -> None:
    """Any number of rows for any number of clusters of two teams."""
    found = shifted.kernel("k")
    for rows in (1, 2, 5, 8):
        bound = bind_sizes(found.plan, {"R": str(rows), "C": "16640"}, {})
        arrays = make_inputs(found.program, bound.numbers, dict(bound.scalars), 0)
        expected = arrays["x"].astype(np.float64).sum(axis=1)
        for clusters in (1, 2):
            emulator = Emulator("sm_90", Schedule("late"))
            emulator.multiprocessors = 2 * clusters
            module = emulator.module("k.cu", shifted.cu)
            with prepare_call(emulator, found.plan, module, bound, arrays) as call:
                for _ in range(2):
                    call.launch()
                got = call.results()["s"]
            assert np.allclose(got, expected, rtol=1e-4, atol=1e-2)
