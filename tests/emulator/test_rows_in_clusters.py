"""Rows that the registers of a cluster hold: partial reductions through the shared memory of all its CTAs."""

from __future__ import annotations

import re
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilec
from tests.emulator.test_samples import outcomes
from tilec.compiled import CompiledFile
from tilec.compiler import compile_file
from tilec.emulator.library import Schedule
from tilec.emulator.machine import Emulator
from tilec.reference.inputs import make_inputs
from tilec.runtime.arguments import bind_sizes
from tilec.runtime.gpu_run import prepare_call
from tilec.source.diagnostics import TileError

SOFTMAX = """kernel k(x: {t}[R, C]) -> y: {t}[R, C]:
    require C <= 262144
    for r in parallel(R):
        row = x[r, :].to(f32)
        e = exp(row - max(row))
        y[r, :] = e / sum(e)
"""
ONE_EXCHANGE = """kernel k(x: bf16[R, C]) -> (y: bf16[R, C], s: f32[R]):
    require C <= 262144
    for r in parallel(R):
        row = x[r, :].to(f32)
        total = sum(row * row)
        y[r, :] = row * rsqrt(total / C)
        s[r] = total
"""
SCALARS = """kernel k(x: {t}[R, C], w: f32[C], inout h: {t}[R, C]) -> (at: i32[R], some: i32[R]):
    require C <= 262144
    for r in parallel(R):
        s = x[r, :].to(f32) + h[r, :].to(f32)
        at[r] = argmax(s)
        some[r] = any(s > 3.0).to(i32)
        h[r, :] = s * rsqrt(sum(s * s) / C) * w[:]
"""


def written(folder: Path, text: str) -> str:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return str(path)


@pytest.mark.parametrize("text", [SOFTMAX, SCALARS])
@pytest.mark.parametrize(
    ("dtype", "size"), [("bf16", 65544), ("bf16", 65537), ("f32", 70000), ("f32", 32769)]
)
def test_rows(tmp_path: Path, text: str, dtype: str, size: int) -> None:
    file = written(tmp_path, text.format(t=dtype))
    for order in ({}, {"early": True}):
        settings = ("R=2", f"C={size}")
        found = outcomes(tmp_path, file=file, settings=settings, arch="sm_90", **order)
        assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize(
    ("dtype", "size"), [("bf16", 131073), ("bf16", 262144), ("bf16", 163841), ("f32", 262144)]
)
def test_eight_and_sixteen_ctas(tmp_path: Path, dtype: str, size: int) -> None:
    file = written(tmp_path, SOFTMAX.format(t=dtype))
    found = outcomes(tmp_path, file=file, settings=("R=1", f"C={size}"), arch="sm_90")
    assert [o["status"] for o in found] == ["ok"]


def test_special_rows(tmp_path: Path) -> None:
    size = 66000
    x = np.random.default_rng(0).standard_normal((6, size)).astype(np.float32)
    x[1] = -np.inf
    x[2, 40000] = np.nan
    x[3] *= 1e30
    x[4] = -np.inf
    x[4, -1] = 2.0
    x = x.astype(ml_dtypes.bfloat16)
    k = tilec.compile(written(tmp_path, SOFTMAX.format(t="bf16")), device="cpu", arch="sm_90")
    y = k(x).astype(np.float64)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        e = np.exp(wide - wide.max(1, keepdims=True))
        expected = e / e.sum(1, keepdims=True)
    assert (np.isnan(y) == np.isnan(expected)).all()
    good = ~np.isnan(expected)
    assert np.allclose(y[good], expected[good], rtol=2**-7, atol=1e-30)


@pytest.fixture(scope="module")
def softmax(tmp_path_factory: pytest.TempPathFactory) -> CompiledFile:
    file = written(tmp_path_factory.mktemp("rows"), SOFTMAX.format(t="bf16"))
    return compile_file(file, archs=("sm_90",), command="")


def run(compiled: CompiledFile, cu: str) -> None:
    found = compiled.kernel("k")
    bound = bind_sizes(found.plan, {"R": "3", "C": "65544"}, {})
    arrays = make_inputs(found.program, bound.numbers, dict(bound.scalars), 0)
    emulator = Emulator("sm_90", Schedule("late"))
    with prepare_call(emulator, found.plan, emulator.module("k.cu", cu), bound, arrays) as call:
        call.launch()


def queue_of(cu: str) -> str:
    """The first body whose clusters are given one row after the other."""
    found = re.search(r"void k_body_\d+\([^{]*\{[^}]*\}[^}]*barrier_init.*?\n\}", cu, re.S)
    assert found is not None
    return found[0]


def codes_without(compiled: CompiledFile, changes: dict[str, str]) -> list[str]:
    """What the emulator says to the text with each place that matches a pattern replaced."""
    run(compiled, compiled.cu)
    body = queue_of(compiled.cu)
    codes = []
    for pattern, instead in changes.items():
        places = list(re.finditer(pattern, body))
        assert places, pattern
        for place in places:
            text = body[: place.start()] + instead + body[place.end() :]
            with pytest.raises(TileError) as caught:
                run(compiled, compiled.cu.replace(body, text))
            codes.append(caught.value.diagnostics[0].code)
    return codes


def test_each_part_of_an_exchange_is_needed(softmax: CompiledFile) -> None:
    changes = {
        r"if \(turn == 0\) cluster_acquire\(\);[^\n]*": "",
        r"barrier_wait_cluster\([^;]*;[^\n]*": "",
        r"barrier_init_fence\(\);": "",
        r"barrier_arrive_expect\([^;]*;": "",
        r"max_row_partial\[kThreadsC / 32 \* \(turn % 2\) \+": "max_row_partial[",
        r"next_item\[turn % 2\],(?=\s+drawn)": "next_item[0],",
    }
    expected = ["E0945", "E0933", "E0939", "E0935", "E0933", "E0933"]
    assert codes_without(softmax, changes) == expected


def test_lanes_meet_before_they_send(tmp_path: Path) -> None:
    compiled = compile_file(written(tmp_path, ONE_EXCHANGE), archs=("sm_90",), command="")
    assert codes_without(compiled, {r"sync_warp\(\);\n": ""}) == ["E0933"]


def test_what_no_barrier_counts_meets_as_a_cluster(tmp_path: Path) -> None:
    """Results of one byte are stored, and all threads of the cluster meet behind them."""
    text = SCALARS.format(t="bf16")
    cu = compile_file(written(tmp_path, text), archs=("sm_90",), command="").cu
    assert "cluster_sync_memory" in cu and "send_to_rank" not in cu


BETWEEN = """kernel k(x: f32[R, C]) -> (y: f32[R, C], t: f32[R]):
    require C <= 262144
    for r in parallel(R):
        row = x[r, :]
        m = max(row)
        twice = m * 2.0
        s = sum(exp(row - m) * (row + twice))
        y[r, :] = exp(row - m) / s
        t[r] = twice
"""
LATER = """kernel k(x: f32[R, C]) -> (y: f32[R, C], l: f32[R]):
    require C <= 262144
    for r in parallel(R):
        row = x[r, :]
        m = max(row)
        s = sum(exp(row - m))
        y[r, :] = row - m - log(s)
        l[r] = m + log(s)
"""


@pytest.mark.parametrize(("text", "merged"), [(BETWEEN, False), (LATER, True)])
def test_what_needs_the_first_result_before_keeps_its_exchange(
    tmp_path: Path, text: str, merged: bool
) -> None:
    file = written(tmp_path, text)
    cu = compile_file(file, archs=("sm_90",), command="").cu
    assert ("combine_exponentials_by_lanes<" in cu) == merged
    settings = ("R=2", "C=33000")
    found = outcomes(tmp_path, file=file, settings=settings, arch="sm_90")
    assert [o["status"] for o in found] == ["ok"]


NORM = """kernel k(x: {t}[R, C], w: {t}[C], b: {t}[C]) -> (y: {t}[R, C], m: f32[R]):
    require C <= 262144
    for r in parallel(R):
        row = x[r, :].to(f32)
        mu = sum(row) / C
        d = row - mu
        y[r, :] = d * rsqrt(sum(d * d) / C + 1e-5) * w[:] + b[:]
        m[r] = mu
"""


@pytest.mark.parametrize(
    ("dtype", "size"),
    [("bf16", 32776), ("bf16", 65537), ("bf16", 131072), ("f32", 16388), ("f32", 40000)],
)
def test_means_and_spreads_share_an_exchange(tmp_path: Path, dtype: str, size: int) -> None:
    """Rows far from 0, rows of one number, and rows with a NaN or an infinity."""
    compiled = compile_file(written(tmp_path, NORM.format(t=dtype)), archs=("sm_90",), command="")
    assert "combine_spreads_by_lanes" in compiled.cu
    rng = np.random.default_rng(0)
    kind = np.float32 if dtype == "f32" else ml_dtypes.bfloat16
    x = rng.standard_normal((6, size)).astype(np.float32)
    x[1] += 1000
    x[2] = 3.0
    x[3, size // 2] = np.nan
    x[4, -1] = np.inf
    x[5] *= 1e12
    x = x.astype(kind)
    w, b = (rng.standard_normal(size).astype(kind) for _ in range(2))
    kernel = tilec.compile(written(tmp_path, NORM.format(t=dtype)), device="cpu", arch="sm_90")
    y, m = kernel(x, w, b)
    with np.errstate(all="ignore"):
        wide = x.astype(np.float64)
        mean = wide.mean(1)
        d = wide - mean[:, None]
        expected = d / np.sqrt((d * d).mean(1, keepdims=True) + 1e-5) * w.astype(np.float64)
        expected += b.astype(np.float64)
    y = y.astype(np.float64)
    assert (np.isnan(y) == np.isnan(expected)).all()
    good = [0, 1, 2, 5]
    rounding = 2**-8 if dtype == "bf16" else 2e-4
    assert np.allclose(y[good], expected[good], rtol=rounding, atol=2e-3)
    assert np.allclose(m[good], mean[good], rtol=1e-5, atol=1e-5)


def test_rows_are_given_out_once_each(tmp_path: Path) -> None:
    """Seven rows for one cluster, or for as many as there are; without the counter's reset rows are left out."""
    compiled = compile_file(written(tmp_path, ONE_EXCHANGE), archs=("sm_90",), command="")
    found = compiled.kernel("k")
    for rows in ("1", "7"):
        bound = bind_sizes(found.plan, {"R": rows, "C": "65544"}, {})
        arrays = make_inputs(found.program, bound.numbers, dict(bound.scalars), 0)
        expected = (arrays["x"].astype(np.float64) ** 2).sum(axis=1)
        for resident in (1, 3):
            emulator = Emulator("sm_90", Schedule("late"))
            emulator.multiprocessors = 2 * resident
            module = emulator.module("k.cu", compiled.cu)
            with prepare_call(emulator, found.plan, module, bound, arrays) as call:
                for _ in range(2):
                    call.launch()
                got = call.results()["s"]
            assert np.allclose(got, expected, rtol=1e-4)


def test_only_where_the_target_has_clusters(softmax: CompiledFile, tmp_path: Path) -> None:
    assert "__cluster_dims__(8, 1, 1)" in softmax.cu
    older = compile_file(written(tmp_path, SOFTMAX.format(t="bf16")), archs=("sm_80",)).cu
    assert "cluster" not in older and "k_kernel_walk" in older
    once = "kernel k(x: bf16[R, C]) -> y: f32[R]:\n    require C <= 262144\n    for r in parallel(R):\n        y[r] = sum(x[r, :].to(f32))\n"
    assert "cluster" not in compile_file(written(tmp_path, once), archs=("sm_90",)).cu
