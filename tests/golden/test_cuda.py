"""The CUDA of every sample that compiles, as files, and of some for warpgroups; `--update` rewrites them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.conftest import Golden
from tilec.compiler import compile_file
from tilec.source.diagnostics import TileError
from tilec.toolchain.build import compile_cubin, find_toolchain
from tilec.toolchain.losses import losses
from tilec.toolchain.matrix import STRICT

HERE = Path(__file__).resolve().parent
SAMPLES = sorted((HERE.parents[1] / "samples").glob("*.tile"))
NOT_YET = {"E0510", "E0512", "E0513", "E0514"}
"""Codes of what has no CUDA form yet, or none for the default architecture."""
FOR_SM_90A = {
    "attention": ("attention", {}),
    "attention_causal": ("attention", {"CAUSAL": "true"}),
    "filters": ("../bench/filters", {}),
    "gemm": ("gemm", {}),
    "gemm_bias_relu": ("gemm_bias_relu", {}),
    "gemm_skinny": ("gemm_skinny", {}),
    "gemm_skinny_split": ("gemm_skinny", {"ROWS": "128"}),
    "softmax": ("softmax", {}),
}
"""Golden files for sm_90a, with the sample and settings of each: products of warpgroups fed by bulk copies, rows in clusters."""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_the_text_is_the_golden_one(sample: Path, golden: Golden) -> None:
    path = HERE / f"{sample.stem}.cu"
    try:
        text = compile_file(str(sample), command=f"tilec compile {sample.name} --arch sm_80").cu
    except TileError as error:
        assert {d.code for d in error.diagnostics} <= NOT_YET
        assert not path.exists(), f"{path.name} is golden, and {sample.name} no longer compiles"
        return
    golden(path, text)


@pytest.fixture(params=FOR_SM_90A)
def sm_90a_text(request: pytest.FixtureRequest) -> tuple[Path, str]:
    name, defines = FOR_SM_90A[request.param]
    sample = HERE.parents[1] / "samples" / f"{name}.tile"
    settings = "".join(f" -D {n}={v}" for n, v in defines.items())
    command = f"tilec compile {sample.name} --arch sm_90a{settings}"
    text = compile_file(str(sample), command=command, archs=("sm_90a",), defines=defines).cu
    return HERE / f"{request.param}.sm_90a.cu", text


def test_the_text_for_sm_90a_is_the_golden_one(
    sm_90a_text: tuple[Path, str], golden: Golden
) -> None:
    golden(*sm_90a_text)


def test_nvcc_takes_the_text_for_sm_90a(sm_90a_text: tuple[Path, str]) -> None:
    """No warning, spill, stack frame, or product that ptxas makes wait."""
    _, text = sm_90a_text
    built = compile_cubin(text, "sm_90a", toolchain=find_toolchain(), options=STRICT)
    assert losses(built.ptxas) == ()
