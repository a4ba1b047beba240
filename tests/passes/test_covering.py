"""Shifted loads and fields of pairs: vectors that cover them, loaded once, elements picked from registers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file

FIR = """kernel k[TAPS = 6, BN = 128](x: {t}[N], h: f32[TAPS]) -> y: {t}[N]:
    for i in parallel(N by BN):
        acc = zeros(f32, i)
        for t in unroll(TAPS):
            acc += x[i + (2 - t)].fill({fill}).to(f32) * h[t]
        y[i] = acc
"""

STENCIL = """kernel k[BY = 4, BX = 32](u: f32[H, W]) -> v: f32[H, W]:
    for y, x in parallel(H by BY, W by BX):
        v[y, x] = u[y, x - 1].fill(1) + u[y, x + 1].fill(2) - u[y + 1, x].fill(0) * u[y, x]
"""

PAIRS = """kernel k[BN = 64](a: f32[N, 2], b: f32[N, 2]) -> c: f32[N, 2]:
    for i in parallel(N by BN):
        c[i, 0] = a[i, 0] * b[i, 0] - a[i, 1] * b[i, 1]
        c[i, 1] = a[i, 0] * b[i, 1] + a[i, 1] * b[i, 0]

    check:
        c[:, 0] == a[:, 0] * b[:, 0] - a[:, 1] * b[:, 1]
        c[:, 1] == a[:, 0] * b[:, 1] + a[:, 1] * b[:, 0]
"""

ROTATED = """kernel k[D = 32](inout x: f16[R, D], c: f32[D // 2]):
    for r in parallel(R):
        u = x.view(R, D // 2, 2)[r, :, 0].to(f32)
        v = x.view(R, D // 2, 2)[r, :, 1].to(f32)
        x.view(R, D // 2, 2)[r, :, 0] = u * c[:] - v
        x.view(R, D // 2, 2)[r, :, 1] = v * c[:] + u
"""

GREY = """kernel k[BN = 128](x: u8[N, 3]) -> y: u8[N]:
    for i in parallel(N by BN):
        y[i] = (x[i, 0].to(f32) * 0.3 + x[i, 1].to(f32) * 0.6 + x[i, 2].to(f32) * 0.1).to(u8)
"""


def verified(text: str, folder: Path, settings: tuple[str, ...]) -> str:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    found = outcomes(folder, file=str(path), arch="sm_80", settings=settings)
    assert [o["status"] for o in found] == ["ok"]
    return compile_file(str(path)).cu


@pytest.mark.parametrize(("t", "fill", "n"), [("f32", 0, 397), ("bf16", 3, 392)])
def test_shifted_loads_share_vectors(t: str, fill: int, n: int, tmp_path: Path) -> None:
    text = verified(FIR.format(t=t, fill=fill), tmp_path, (f"N={n}",))
    body = text.split("k_body(")[1].split("k_body_2(")[0]
    # shifts of -3 to 2: what is in front, the vector itself, and what is behind; once without edges, once with
    vector = {"f32": 4, "bf16": 8}[t]
    assert re.findall(r"= (load_covering\w*<\d+, \d+>)", body) == [
        f"load_covering<{vector}, 3>",
        f"load_covering_within<{vector}, 3>",
    ]
    assert "load_element(x" not in body
    whole = body.split("load_covering_within")[0].split("load_covering<")[1]
    assert "?" not in whole and whole.count("pick_vector<") == 6


@pytest.mark.parametrize("w", [100, 64, 3])
def test_stencils(w: int, tmp_path: Path) -> None:
    text = verified(STENCIL, tmp_path, ("H=9", f"W={w}"))
    assert "load_element(u" not in text.split("k_body(")[1].split("k_body_2(")[0]


@pytest.mark.parametrize("text", [PAIRS, ROTATED, GREY])
def test_fields_are_loaded_and_stored_together(text: str, tmp_path: Path) -> None:
    found = verified(text, tmp_path, ("R=3",) if text is ROTATED else ("N=213",))
    body = found.split("k_body(")[1].split("k_body_2(")[0]
    assert not re.search(r"(load|store)_element\([abcx]_at", body)
    assert ("store_woven" in body) == (text is not GREY)


def test_what_is_written_meanwhile_is_not_read(tmp_path: Path) -> None:
    # a field that no load asks for may be what another instance writes
    path = tmp_path / "k.tile"
    path.write_text(
        "kernel k[BN = 64](inout a: f32[N, 2]):\n"
        "    for i in parallel(N by BN):\n"
        "        a[i, 1] = a[i, 0] * 2.0\n",
        encoding="utf-8",
    )
    text = compile_file(str(path)).cu
    assert "load_covering" not in text and "store_woven" not in text
