"""W0601: a row that does not fit registers is read again, which is said with the line and the bound that would help."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import compile_file
from tilec.source.diagnostics import Diagnostic

SOFTMAX = """kernel k(x: bf16[R, C]) -> y: bf16[R, C]:
    require C <= {bound}
    for r in parallel(R):
        row = x[r, :].to(f32)
        e = exp(row - max(row))
        y[r, :] = e / sum(e)
"""
ONCE = """kernel k(x: f32[R, C]) -> y: f32[R]:
    require C <= 1000000
    for r in parallel(R):
        y[r] = sum(x[r, :])
"""


def warnings(folder: Path, text: str, *archs: str) -> list[Diagnostic]:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return list(compile_file(str(path), archs=archs or ("sm_80",), stop="kernel-ir").diagnostics)


@pytest.mark.parametrize("archs", [("sm_80",), ("sm_75", "sm_80", "sm_90")])
def test_a_long_row_is_named_once(tmp_path: Path, archs: tuple[str, ...]) -> None:
    (warning,) = warnings(tmp_path, SOFTMAX.format(bound=131072), *archs)
    assert warning.code == "W0601"
    assert warning.span is not None and warning.span.line == 4
    assert "`x`" in warning.message and "read 3 times" in warning.message
    assert warning.notes == ("the bound on `C` is 131072",)
    (help,) = warning.helps
    assert help.startswith("`require C <= ")


def test_the_bound_that_it_proposes_removes_it(tmp_path: Path) -> None:
    (warning,) = warnings(tmp_path, SOFTMAX.format(bound=131072))
    bound = int(warning.helps[0].split("<= ")[1].split("`")[0])
    assert warnings(tmp_path, SOFTMAX.format(bound=bound)) == []
    assert len(warnings(tmp_path, SOFTMAX.format(bound=2 * bound))) == 1


def test_a_row_that_is_read_once_is_no_matter(tmp_path: Path) -> None:
    assert warnings(tmp_path, ONCE) == []


def test_rounds_of_a_loop_count(tmp_path: Path) -> None:
    rounds = "a, b = topk(x[r, :], 7, axis=0)\n        y[r] = sum(a)"
    text = ONCE.replace("y[r] = sum(x[r, :])", rounds)
    (warning,) = warnings(tmp_path, text)
    assert "read 7 times" in warning.message


def test_a_tile_proposes_a_smaller_one(tmp_path: Path) -> None:
    text = """kernel k(x: f32[R, C]) -> y: f32[R, C]:
    for i, j in parallel(R by 4096, C by 4096):
        t = x[i, j]
        y[i, j] = t / sum(t)
"""
    (warning,) = warnings(tmp_path, text)
    assert warning.notes == ("a tile has 4096 elements along that axis",)
    assert warning.helps == ("a smaller tile keeps them in registers",)
