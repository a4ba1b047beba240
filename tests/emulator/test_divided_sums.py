"""Accumulators that are divided by a number of their row: by one multiplication, by two where a row's number is tiny or huge."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.emulator.asynchronous import Arrays, Program
from tests.emulator.test_attention_forms import ops
from tilec.ir import kernel_ir as k

DIVIDED = """
kernel divided[BM = 64, BN = 64, BK = 32](a: bf16[M, K], b: bf16[K, N], by: f32[M]) -> c: T[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for l in range(K by BK):
            acc += a[i, l] @ b[l, j]
        c[i, j] = acc / by[i][:, None]

    example M = 64, N = 64, K = 64
    example cpu M = 64, N = 64, K = 64
"""


@pytest.mark.parametrize("dtype", ["bf16", "f32"])
@pytest.mark.parametrize(
    "rows", [[], [3.0, 2.0**127, -(2.0**-130), 2.0**-149, 0.0, np.inf, np.nan]]
)
def test_rows_are_divided_as_they_say(rows: list[float], dtype: str, tmp_path: Path) -> None:
    path = tmp_path / "divided.tile"
    path.write_text(DIVIDED.replace("T[M, N]", f"{dtype}[M, N]"), encoding="utf-8")
    program = Program(path, "divided", {})
    (low, *_) = program.kernel.lowered["sm_90a"]
    forms = [op for op in ops(low.body) if isinstance(op, k.IfAnyLane)]
    assert forms and all(op.otherwise for op in forms)

    def change(arrays: Arrays) -> None:
        arrays["a"][:8] = arrays["a"][:8] * 2.0**-110  # quotients by tiny numbers are numbers
        arrays["by"][: len(rows)] = rows

    ran = program.run({"M": 72, "N": 72, "K": 40}, change)
    assert ran.launched == ("divided_kernel",)
