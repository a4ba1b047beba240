"""Loops with products one after the other, which carry the same rows on over other tensors: rings and accumulators that both use."""

from __future__ import annotations

import numpy as np
import pytest

from tests.emulator.asynchronous import Arrays, Program

CACHED = """
import std.softmax

kernel cached[D = 64, BM = 64, BN = 64](
    q: bf16[S, D], k: bf16[S, D], v: bf16[S, D], old_k: bf16[N, D], old_v: bf16[N, D], scale: f32) -> o: bf16[S, D]:
    require scale > 0.0
    for i in parallel(S by BM):
        state = softmax.begin(i, D)
        for j in range(N by BN):
            s = (q[i, :] @ old_k[j, :].T) * scale
            state = softmax.step(state, s, old_v[j, :])
        for j in range(0 : min(S, i.stop) by BN):
            s = (q[i, :] @ k[j, :].T) * scale
            state = softmax.step(state, where(i[:, None] >= j[None, :], s, -inf), v[j, :])
        o[i, :] = softmax.end(state)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Program:
    path = tmp_path_factory.mktemp("cached") / "cached.tile"
    path.write_text(CACHED, encoding="utf-8")
    return Program(path, "cached", {})


@pytest.mark.parametrize(("rows", "keys"), [(136, 200), (1, 64), (72, 1)])
def test_trips_of_both_loops_in_any_number(program: Program, rows: int, keys: int) -> None:
    ran = program.run({"S": rows, "N": keys, "scale": 0.125})
    assert ran.launched == ("cached_kernel",)


@pytest.mark.parametrize("larger", ["k", "old_k"])
def test_references_of_one_loop_serve_the_next(program: Program, larger: str) -> None:
    """Also where the scores of the other one are so large, or so small, that rows begin anew."""

    def change(arrays: Arrays) -> None:
        keys = arrays[larger]
        keys[:] = (keys.astype(np.float32) * 40).astype(keys.dtype)

    ran = program.run({"S": 72, "N": 136, "scale": 0.125}, change)
    assert ran.launched == ("cached_kernel",)
