"""Sums of loops without products: threads exchange what they added up behind the loop, not in each trip."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tests.explain.compiled import kernels
from tilec.compiler import compile_file

COLUMNS = """kernel k[BC = 64, BR = 32](x: {t}[M, N, C], z: {t}[C]) -> y: {t}[C]:
    for c in parallel(C by BC):
        s = {first}
        for m in range(M):
            for r in range(N by BR):
                s += sum(x[m, r, c].fill(0), axis=0)
        y[c] = s

    check y == sum(sum(x, axis=0), axis=0){more}
"""

STATISTICS = """kernel k[BC = 2048](x: f32[R, C]) -> (mean: f32[R], largest: f32[R], weighed: f32[R]):
    for r in parallel(R):
        total = 1.0
        m = -inf
        l = 0.0
        for c in range(C by BC):
            t = x[r, c]
            total += sum(t)
            n = maximum(m, max(t))
            l = l * exp(m - n) + sum(exp(t - n))
            m = n
        mean[r] = total / C
        largest[r] = m
        weighed[r] = l

    check:
        mean == (sum(x, axis=1) + 1.0) / C
        largest == max(x, axis=1)
        weighed == sum(exp(x - max(x, axis=1)[:, None]), axis=1)
"""


def body_of(text: str, folder: Path, *settings: str) -> str:
    """The text of the first body of a program that the emulator has verified."""
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    found = outcomes(folder, file=str(path), arch="sm_80", settings=settings)
    assert [o["status"] for o in found] == ["ok"]
    return compile_file(str(path)).cu.split("k_body(")[1].split("k_body_2(")[0]


def barriers_in_loops(body: str) -> int:
    """Barriers in what loops over trips repeat: at more than the body's own margin."""
    return len(re.findall(r"^   +__syncthreads", body, re.MULTILINE))


@pytest.mark.parametrize(
    ("t", "first", "more"), [("f32", "z[c]", " + z"), ("i32", "zeros(i32, c)", "")]
)
def test_loops_in_loops_add_up_without_barriers(
    t: str, first: str, more: str, tmp_path: Path
) -> None:
    text = COLUMNS.format(t=t, first=first, more=more)
    body = body_of(text, tmp_path, "M=3", "N=70", "C=68")
    assert barriers_in_loops(body) == 0 and body.count("__syncthreads") == 1
    # all threads that there are rows for add up
    assert "r_lane = thread / 16;" in body and "r_at = r_lane;" in body


def test_what_each_trip_needs_is_exchanged_in_each(tmp_path: Path) -> None:
    body = body_of(STATISTICS, tmp_path, "R=3", "C=5000")
    assert set(re.findall(r"shared\.(\w+)_partial\[", body)) == {"max_t", "total_3", "l_3"}
    loop = body.split("for (int c_tile")[1].split("\n  }\n")[0]
    assert set(re.findall(r"shared\.(\w+)_partial\[", loop)) == {"max_t"}


def test_what_is_read_meanwhile_is_not_deferred(tmp_path: Path) -> None:
    text = """kernel k[BC = 2048](x: f32[R, C]) -> (y: f32[R, T], last: f32[R]):
    require T == ceildiv(C, 2048)
    for r in parallel(R):
        total = 0.0
        for c in range(C by BC):
            total += sum(x[r, c])
            y[r, c.start // 2048] = total
        last[r] = total
"""
    body = body_of(text, tmp_path, "R=3", "C=5000", "T=3")
    assert barriers_in_loops(body) > 0


def test_few_instances_have_more_threads(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(COLUMNS.format(t="f32", first="z[c]", more=" + z"), encoding="utf-8")
    found = compile_file(str(path), archs=("sm_90a",))
    variants = {x.name: x for x in kernels.__wrapped__(str(path), "k", "sm_90a")}
    usual = variants["k_kernel"].threads // variants["k_kernel"].batch
    assert variants["k_kernel_few"].threads == 512 > usual
    # a quarter of an H200's threads; or trips that many more parts are nothing beside
    bound = rf"host_ceil_div\(C, 64\) < {132 * 512 // usual}\s"
    assert re.search(bound + r"+&& .* >= 4\) \|\| .* >= 16\)\) \{", found.cu)
