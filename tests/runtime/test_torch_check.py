"""The check clause on tensors: every sample that PyTorch can evaluate, and what it cannot, with NumPy in PyTorch's place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.runtime.fake_torch import Tensor, fake_torch
from tilec.compiler import analyse_file
from tilec.reference.check import evaluate_check
from tilec.reference.inputs import make_inputs
from tilec.runtime.arguments import bind_sizes, plan_without_launches, tensor_shape
from tilec.runtime.clauses import constants, examples
from tilec.runtime.torch_check import TorchCheck
from tilec.runtime.verify import elements
from tilec.source.diagnostics import TileError

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
ROUNDINGS = 12
"""Roundings to the element type, each of a value as large as the largest result, that a chain of operations may add."""

SAMPLE_KERNELS = [
    ("vector_add.tile", "vector_add"),
    ("gemm.tile", "gemm_nn"),
    ("gemm.tile", "gemm_nt"),
    ("gemm_bias_gelu.tile", "gemm_bias_gelu"),
    ("softmax.tile", "softmax"),
    ("attention.tile", "attention"),
    ("attention_variants.tile", "sliding_window"),
    ("attention_variants.tile", "packed"),
    ("norms.tile", "layer_norm"),
    ("quantised.tile", "gemm_w4a16"),
    ("quantised.tile", "cast_fp8_rows"),
]


def evaluated(
    path: str, kernel: str, sizes: dict[str, Any], wide: bool = False
) -> tuple[dict[str, Any], list[Any]]:
    """What the fake gives, and what the float64 evaluation says."""
    files, (item,), _ = analyse_file(path, kernel=kernel)
    plan = plan_without_launches(item.program)
    call = bind_sizes(plan, sizes)
    arrays = make_inputs(item.program, call.numbers, dict(call.scalars), 0)
    torch = fake_torch()
    env = call.environment
    outputs = {
        t.name: (tensor_shape(t, env), t.dtype)
        for t in item.program.tensors
        if t.role in ("output", "inout")
    }
    check = TorchCheck(
        torch,
        "cuda",
        item.syntax,
        files,
        item.program,
        call.numbers,
        dict(call.scalars),
        {},
        outputs,
        wide=wide,
    )
    check.inputs = {
        t.name: check.calculated(Tensor(elements(t, call, arrays[t.name])), t.dtype)
        for t in item.program.tensors
        if t.name in arrays
    }
    expected = evaluate_check(
        item.syntax, files, files.main, item.program, call.numbers, arrays, dict(call.scalars)
    )
    return check(), expected


@pytest.mark.parametrize(("file", "kernel"), SAMPLE_KERNELS)
def test_samples_agree_with_the_float64_evaluation(file: str, kernel: str) -> None:
    path = str(SAMPLES / file)
    files, (item,), _ = analyse_file(path, kernel=kernel)
    (sizes, *_) = examples(item.syntax, "cpu", constants(files.main))
    results, expected = evaluated(path, kernel, dict(sizes))
    assert expected
    for part in expected:
        got = results[part.name].data.astype(np.float64)
        assert got.shape == part.expected.shape
        known = np.isfinite(part.expected)
        largest = max(1e-3, float(np.abs(part.expected[known]).max()))
        assert np.abs(got - part.expected)[known].max() <= ROUNDINGS * 2.0**-8 * largest


def one(tmp_path: Path, check: str, **sizes: int) -> tuple[dict[str, Any], list[Any]]:
    text = f"""\
const TWO = 2
fn halved(v):
    w = v / TWO
    return w
kernel k(x: f32[M, N], n: i32[N]) -> y: f32[M, N]:
    for i, j in parallel(M by 8, N by 8):
        y[i, j] = x[i, j]
{check}
"""
    path = tmp_path / "k.tile"
    path.write_text(text)
    return evaluated(str(path), "k", {"M": 5, "N": 7, **sizes})


@pytest.mark.parametrize(
    "check",
    [
        "check y == maximum(x, 0.5) + minimum(0.25, x) - max(x, 0.0, 1.0)",
        "check y == halved(x) * (3 if M > 4 else 1) + TWO ** 2 % 3",
        "check y == where(x > 0.0, x, 0.0) + where(arange(N)[None, :] < 3, 1.0, 2.0)",
        "check y == x * (n // 2 % 3)[None, :]",
        "check y == cumsum(x, axis=1) - x[:, 1:2] + x[0, :][None, :]",
        "check y == sigmoid(x) + rsqrt(abs(x) + 1.0) + fma(x, 2.0, 1.0) + pow(abs(x), 2.0)",
        "check y == x.to(bf16).to(f32) + sum(x) + max(x, axis=0)[None, :]",
        "check y == (x.T).T + zeros(f32, M, N) + full(f32, 2.0, M, N)",
        "check y == x.reshape(N, M).reshape(M, N) + repeat(x[:, 0:1], N, axis=1)",
        "check:\n        for r in range(M):\n            y[r, :] == x[r, :] * r",
        "check:\n        t = x\n        t += 1.0\n        if N > 3:\n            t = t * 2.0\n        y == t",
    ],
)
def test_forms_of_the_language(tmp_path: Path, check: str) -> None:
    results, expected = one(tmp_path, f"    {check}")
    (part,) = expected
    assert np.allclose(results["y"].data, part.expected, rtol=1e-5, atol=1e-5)


def test_of_equal_elements_the_first_is_compared() -> None:
    """bf16 scores of 64 experts: many tokens have equal ones, of which `torch.topk` may take any."""
    results, expected = evaluated(str(SAMPLES / "routing.tile"), "routing", {"T": 300}, wide=True)
    place = next(part for part in expected if part.name == "expert")
    assert np.array_equal(results["expert"].data, place.expected)
    any_of_them, _ = evaluated(str(SAMPLES / "routing.tile"), "routing", {"T": 300})
    assert not np.array_equal(any_of_them["expert"].data, place.expected)


def test_what_a_statement_says_twice_is_computed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = []
    original = fake_torch

    def counting() -> Any:
        torch = original()
        exp = torch.exp
        torch.exp = lambda x: counted.append(1) or exp(x)
        return torch

    monkeypatch.setattr(f"{__name__}.fake_torch", counting)
    one(tmp_path, "    check y == exp(x) / sum(exp(x), axis=1)[:, None]")
    assert len(counted) == 1


@pytest.mark.parametrize(
    "check", ["check y == x + (arange(N).reshape(1, N) @ arange(N).reshape(N, 1)).to(f32)"]
)
def test_what_pytorch_cannot_do_is_a_message(tmp_path: Path, check: str) -> None:
    with pytest.raises(TileError) as caught:
        one(tmp_path, f"    {check}")
    (message,) = caught.value.diagnostics
    assert message.code == "E0816"
    assert "product of" in message.message
