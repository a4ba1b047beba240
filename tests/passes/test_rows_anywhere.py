"""Operands whose rows begin anywhere in memory, which no bulk copy brings: what lies behind a row does not count."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tilec.compiler import compile_file

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

BATCHED = """kernel k[BM = 64, BN = 128, BK = {bk}](a: {t}[B, M, K], b: {t}[B, N, K]) -> c: f32[B, M, N]:
    for n, i, j in parallel(B, M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[n, i, k] @ b[n, j, k].T
        c[n, i, j] = acc
"""


@pytest.mark.parametrize(
    ("file", "kernel", "settings"),
    [
        ("gemm", "gemm_nn", ("M=131", "N=261", "K=135")),
        ("gemm", "gemm_nt", ("M=131", "N=261", "K=135")),
        ("gemm", "gemm_nn", ("M=65", "N=261", "K=64")),
        ("quantised", "gemm_fp8_blocks", ("M=33", "N=137", "K=301")),
        ("matrix_vector_and_groups", "gemm_split_k", ("M=70", "N=137", "K=501")),
    ],
)
@pytest.mark.parametrize("order", [{}, {"early": True}])
def test_samples_verify(
    file: str, kernel: str, settings: tuple[str, ...], order: dict[str, bool], tmp_path: Path
) -> None:
    path = SAMPLES / f"{file}.tile"
    found = outcomes(
        tmp_path, file=str(path), kernel=kernel, arch="sm_90a", settings=settings, **order
    )
    assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize(("t", "bk"), [("bf16", 64), ("f8e4m3", 128)])
def test_what_lies_behind_a_row_does_not_count(t: str, bk: int, tmp_path: Path) -> None:
    # the next row, and the next matrix, begin where a row of 37 elements ends
    path = tmp_path / "k.tile"
    path.write_text(BATCHED.format(t=t, bk=bk), encoding="utf-8")
    text = compile_file(str(path), archs=("sm_90a",)).cu
    assert "k_kernel_any(" in text and "k_kernel(" in text
    settings = ("B=3", "M=9", "N=13", f"K={bk + 37}")
    found = outcomes(tmp_path, file=str(path), arch="sm_90a", settings=settings)
    assert [o["status"] for o in found] == ["ok"]


def test_rows_that_are_always_aligned_need_no_other_form() -> None:
    text = compile_file(str(SAMPLES / "attention.tile"), archs=("sm_90a",)).cu
    assert "attention_kernel_any_out(" in text
