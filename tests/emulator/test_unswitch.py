"""Versions for what the host knows: each is launched for its outcome, and does what the program says."""

from __future__ import annotations

import pytest

from tests.emulator.asynchronous import Program

SWITCHED = """
import std.softmax

kernel switched[D = 64, BM = 64, BN = 64](
    q: bf16[H, S, D], k: bf16[H, S, D], v: bf16[H, S, D], causal: i32, scale: f32) -> o: bf16[H, S, D]:
    require scale > 0.0
    for h, i in parallel(H, S by BM):
        state = softmax.begin(i, D)
        end = S
        if causal != 0:
            end = min(S, i.stop)
        for j in range(0 : end by BN):
            s = (q[h, i, :] @ k[h, j, :].T) * scale
            state = softmax.step(state, where((i[:, None] >= j[None, :]) | (causal == 0), s, -inf), v[h, j, :])
        o[h, i, :] = softmax.end(state)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("switched") / "switched.tile"
    path.write_text(SWITCHED, encoding="utf-8")
    return Program(path, "switched", {})


@pytest.mark.parametrize(("causal", "form"), [(0, "then"), (-3, "otherwise")])
def test_each_outcome_has_its_version(program: Program, causal: int, form: str) -> None:
    ran = program.run({"H": 2, "S": 136, "causal": causal, "scale": 0.125})
    assert ran.launched == (f"switched_kernel_{form}",)
