"""Gathered tiles: no questions that the range of an index answers."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tilec.compiler import compile_file

RELATIVE = """
import std.softmax

kernel relative[D = 64, BM = 64, BN = 64](
    q: bf16[S, D], k: bf16[S, D], v: bf16[S, D], rel: f32[2 * 16 + 1], scale: f32) -> o: bf16[S, D]:
    require scale > 0.0
    for i in parallel(S by BM):
        state = softmax.begin(i, D)
        for j in range(S by BN):
            s = (q[i, :] @ k[j, :].T) * scale + rel.at[INDEX]
            state = softmax.step(state, s, v[j, :])
        o[i, :] = softmax.end(state)
"""

BACK = "(i[:, None] - j[None, :])"


@pytest.mark.parametrize(
    ("index", "asked"),
    [
        (f"maximum(-16, minimum(16, {BACK})) + 16", []),
        (f"{BACK} % 33", []),
        (f"where({BACK} < 0, 32, minimum(31, maximum({BACK}, 0)))", []),
        (f"minimum(32, {BACK})", [">= 0"]),
        (f"maximum(-16, minimum(16, {BACK})) + 17", ["< 33"]),
        (f"maximum(0, {BACK})", ["< 33"]),
        (f"maximum({BACK}, -2147483647) - 2", [">= 0", "< 33"]),  # it may wrap around
    ],
)
def test_what_is_asked_of_an_index(index: str, asked: list[str], tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(RELATIVE.replace("INDEX", index), encoding="utf-8")
    text = compile_file(str(path), archs=("sm_90a",), command="").cu
    (body,) = re.findall(r"^__device__.* relative_body\(.*?^}$", text, re.M | re.S)
    loads = re.findall(r"(\S+ = [^;]*?load_element\(rel[^;]*);", " ".join(body.split()))
    assert loads
    for load in loads:
        assert [q for q in (">= 0", "< 33") if q in load] == asked
