"""What a product holds in registers at a time follows from the target's table."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file
from tilec.ir import kernel_ir as k

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

PROMOTED = """kernel k[BM = 128, BN = 96, BK = 64](a: {t}[M, K], b: {t}[N, K], s: f32[M]) -> c: f32[M, N]:
    schedule warps = {warps}
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += (a[i, k] @ b[j, k].T) * s[i][:, None]
        c[i, j] = acc
    check c == (a.to(f32) @ b.to(f32).T) * s[:, None]
"""


def products(ops: tuple[k.Op, ...]) -> list[k.Product]:
    found: list[k.Product] = []
    for op in ops:
        if isinstance(op, k.Product):
            found.append(op)
        for name in ("body", "then", "otherwise"):
            found += products(getattr(op, name, ()))
    return found


@pytest.mark.parametrize(
    ("arch", "expected"),
    # operands of 8-bit floats are widened first where the hardware multiplies no such floats by `mma.sync`
    [("sm_89", [0, 0]), ("sm_90", [0, 2]), ("sm_100", [0, 2]), ("sm_120", [0, 0])],
)
def test_operands_of_few_columns_at_a_time(arch: str, expected: list[int]) -> None:
    file = str(SAMPLES / "quantised.tile")
    found = compile_file(file, kernel="gemm_fp8_blocks", archs=(arch,), stop="kernel-ir")
    kernels = found.kernels[0].lowered[arch]
    assert [p.columns_at_once for kernel in kernels for p in products(kernel.body)] == expected


def test_few_columns_at_a_time_verify(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(PROMOTED.format(t="bf16", warps=4), encoding="utf-8")
    kernels = (
        compile_file(str(path), archs=("sm_80",), stop="kernel-ir").kernels[0].lowered["sm_80"]
    )
    assert any(p.columns_at_once == 2 for kernel in kernels for p in products(kernel.body))
    for sizes in (("M=130", "N=72", "K=72"), ("M=33", "N=7", "K=65")):
        found = outcomes(tmp_path, file=str(path), settings=sizes)
        assert {o["status"] for o in found} == {"ok"}
