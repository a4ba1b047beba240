"""`topk` on the emulator against the interpreter, to the last bit: NaN, zeros of both signs, ties, fewer elements than k, bases anywhere."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.emulator.test_samples import outcomes
from tests.passes.test_topk import BLOCKS, ROWS, bits, elements
from tilec.compiler import compile_file
from tilec.emulator.library import Schedule
from tilec.emulator.machine import Emulator
from tilec.reference.interpreter import Interpreter
from tilec.runtime.arguments import bind_sizes
from tilec.runtime.gpu_run import prepare_call
from tilec.toolchain.cache import default_cache


@pytest.mark.parametrize(
    ("text", "dtype"),
    [(BLOCKS, "f32"), (ROWS, "bf16"), (ROWS, "f64"), (ROWS, "u32"), (ROWS, "f8e5m2")],
)
def test_every_element_is_the_interpreters(text: str, dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(text.format(t=dtype, k=6), encoding="utf-8")
    compiled = compile_file(str(path), archs=("sm_90",))
    (found,) = compiled.kernels
    for rows, columns, offset in ((9, 40, 0), (5, 37, 1), (8, 3, 0)):
        bound = bind_sizes(found.plan, {"R": str(rows), "C": str(columns)}, {})
        x = elements(dtype, rows, columns)
        for mode in ("late", "early"):
            emulator = Emulator("sm_90", Schedule(mode), cache=default_cache())
            module = emulator.module("k.cu", compiled.cu)
            with prepare_call(
                emulator, found.plan, module, bound, {"x": x}, offsets={"x": offset}
            ) as call:
                call.launch()
                call.finish()
                call.check_surroundings()
                results = call.results()
            wanted = {name: np.zeros_like(array) for name, array in results.items()}
            Interpreter(found.program, bound.numbers, {"x": x, **wanted}).run()
            for name, array in results.items():
                np.testing.assert_array_equal(bits(array), bits(wanted[name]), name)


LONG = """kernel k(x: bf16[R, C]) -> (v: f32[R, 3], p: i32[R, 3]):
    require C <= {most}
    for r in parallel(R):
        a, b = topk(x[r, :].to(f32), 3, axis=0)
        v[r, :] = exp(a - max(a)) / sum(exp(a - max(a)))
        p[r, :] = b

    example R = 2, C = {size}
"""
CHOSEN = """kernel k[BM = 64, BK = 32](x: bf16[M, K], w: bf16[K, 64]) -> (v: f32[M, 4], p: i32[M, 4]):
    for i in parallel(M by BM):
        s = zeros(f32, i, 64)
        for k in range(K by BK):
            s += x[i, k] @ w[k, :]
        a, b = topk(s, 4, axis=1)
        v[i, :] = a
        p[i, :] = b

    example M = 70, K = 48
"""


@pytest.mark.parametrize(
    ("text", "arch"),
    [
        (LONG.format(most=8192, size=5001), "sm_80"),
        (LONG.format(most=300000, size=70001), "sm_90"),
        (CHOSEN, "sm_80"),
        (CHOSEN, "sm_90a"),
    ],
)
def test_long_rows_and_products(text: str, arch: str, tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    for order in ({}, {"early": True}):
        (found,) = outcomes(tmp_path, file=str(path), arch=arch, **order)
        assert found["status"] == "ok"
