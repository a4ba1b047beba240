"""Instances that copies of the process run give what they give one after the other, and the first one's error."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.jobs.front_half import compile_front
from tilec.ir.tile_ir import Program
from tilec.reference.inputs import make_inputs
from tilec.reference.interpreter import Interpreter
from tilec.source.diagnostics import TileError

PRODUCT = """kernel k(a: bf16[M, K], b: bf16[K, N]) -> c: bf16[M, N]:
    for i, j in parallel(M by 16, N by 16):
        acc = zeros(f32, i, j)
        for k in range(K by 16):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
"""
TWO_NESTS = """kernel k(x: f32[M, N]) -> y: f32[M, N]:
    require N <= 64
    temp s: f32[M]
    for i in parallel(M):
        s[i] = sum(x[i, :])
    for i in parallel(M):
        y[i, :] = x[i, :] - s[M - 1 - i]
"""
FAULTY = """kernel k(x: f32[M, N]) -> y: f32[M, N]:
    require N <= 64
    for i in parallel(M):
        assert i < 3, "no more"
        y[i, :] = x[i, :]
"""
ADDED = """kernel k(x: f32[M, N], inout s: f32[N]):
    require N <= 64
    for i in parallel(M):
        atomic_add(s[:], x[i, :])
"""


def program(folder: Path, text: str) -> Program:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return compile_front(str(path)).kernels[0].program


def ran(found: Program, sizes: dict[str, int], processes: int) -> list[np.ndarray]:
    machine = Interpreter(found, sizes, make_inputs(found, sizes), bounds=True, shared=True)
    machine.run(processes=processes)
    written = [t.name for t in found.tensors if t.role in ("output", "inout")]
    return [
        part for n in written for part in (machine.expected(n).value, machine.expected(n).bound)
    ]


@pytest.mark.parametrize(
    ("text", "sizes"),
    [(PRODUCT, {"M": 70, "N": 50, "K": 40}), (TWO_NESTS, {"M": 61, "N": 9}), (ADDED, {"M": 33, "N": 5})],
)  # fmt: skip
def test_the_results_are_the_same(tmp_path: Path, text: str, sizes: dict[str, int]) -> None:
    found = program(tmp_path, text)
    alone = ran(found, sizes, 1)
    assert len(alone) >= 2 and all(np.isfinite(part).all() for part in alone)
    for processes in (2, 5):
        for one, other in zip(ran(found, sizes, processes), alone, strict=True):
            np.testing.assert_array_equal(one, other)


def test_the_first_error_is_raised(tmp_path: Path) -> None:
    found = program(tmp_path, FAULTY)
    sizes = {"M": 40, "N": 3}
    for processes in (1, 4):
        with pytest.raises(TileError) as caught:
            ran(found, sizes, processes)
        (first,) = caught.value.diagnostics
        assert (first.code, first.notes) == ("E0903", ("`i` trip 3",)), first
