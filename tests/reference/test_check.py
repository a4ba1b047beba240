"""The check clause as an oracle of its own."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.reference.samples import Sample, written
from tilec.reference import check as check_module
from tilec.reference.check import Checked, evaluate_check
from tilec.reference.inputs import make_inputs
from tilec.source.diagnostics import TileError

Array = np.ndarray[Any, Any]
HEAD = """
const TWO = 2

fn half(x):
    y = x / TWO
    return y

fn both(x):
    return x, x + 1.0

fn larger(a, b):
    return maximum(a, b)

kernel k[D = 3, FLAG = true](x: f32[M, N], z: i32[M], s: f32 = 0.1) -> y: f32[M, N]:
    for m in parallel(M):
        require_nothing = 0.0
        y[m, 0] = require_nothing
"""


def case(body: str) -> Sample:
    """A kernel whose check is `body`, indented by four."""
    return written(
        HEAD + "\n" + "".join(f"    {line}\n" for line in body.strip().splitlines()), "k"
    )


def evaluated(body: str, x: Array, z: Array | None = None) -> list[Checked]:
    """What a check says about 2-D x."""
    sample = case(body)
    sizes = {"M": x.shape[0], "N": x.shape[1]}
    arrays = {"x": x.astype(np.float32), "z": np.zeros(x.shape[0], np.int32) if z is None else z}
    return evaluate_check(
        sample.kernel, sample.files, sample.files.main, sample.program, sizes, arrays
    )


X = np.array([[1.0, -2.0, 3.5], [0.25, 5.0, -6.0]])
EXPRESSIONS = {
    "x + 1": X + 1,
    "-x": -X,
    "x * D": X * 3,
    "x / 2 - x // 2": X / 2 - X // 2,
    "x % 2.0": X % 2,
    "x ** 2": X**2,
    "where(x > 0.0, x, 0.0)": np.maximum(X, 0),
    "where((x > 0.0) & ~(x > 2.0), 1.0, 0.0)": ((X > 0) & (X <= 2)) * 1.0,
    "(x if FLAG else -x)": X,
    "half(x)": X / 2,
    "exp(x) + tanh(x) + abs(x)": np.exp(X) + np.tanh(X) + np.abs(X),
    "sum(x, axis=1)[:, None]": X.sum(1)[:, None],
    "max(x, axis=0)[None, :] + x": X.max(0)[None, :] + X,
    "maximum(x, min(x))": np.maximum(X, X.min()),
    "max(x, 0.0, 1.0)": np.maximum(X, 1),
    "(x @ x.T) @ x": X @ X.T @ X,
    "x + arange(N)": X + np.arange(3),
    "x * arange(M)[:, None]": X * np.arange(2)[:, None],
    "repeat(x[:, 0:1], N, axis=1)": np.repeat(X[:, :1], 3, 1),
    "x[1, :] + zeros(f32, M, N)": X[1] + np.zeros((2, 3)),
    "full(f32, 2.5, M, N)": np.full((2, 3), 2.5),
    "x[z, :]": X[[1, 0]],
    "x[0, (z[:, None] + arange(N)) % 3]": X[0, [[1, 2, 0], [0, 1, 2]]],
    "cumsum(x, axis=1)": np.cumsum(X, 1),
    "cummax(x, axis=0)": np.maximum.accumulate(X, 0),
    "x * s": X * float(np.float32(0.1)),
    "(x * 100.0).to(i8).to(f32)": np.clip(np.trunc(X * 100), -128, 127),
    "(x + 0.001).to(bf16)": None,
    "argmax(x, axis=1)[:, None] * 1.0 + x": X.argmax(1)[:, None] + X,
    "reduce(x, 1, larger)[:, None] + x": X.max(1)[:, None] + X,
    "x.reshape(N, M).reshape(M, N)": X,
    "ceildiv(N, 2) * x": 2 * X,
    "x * (1.0 if N == 3 and not FLAG == false else 0.0)": X,
}


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_expressions(expression: str) -> None:
    (result,) = evaluated(f"check y == {expression}", X, np.array([1, 0], np.int32))
    wanted = EXPRESSIONS[expression]
    if wanted is None:
        assert (np.abs(result.expected - X) < 0.05).all()
        assert (result.expected.astype(np.float32).view(np.uint32) & 0xFFFF == 0).all()
    else:
        np.testing.assert_allclose(
            result.expected, np.broadcast_to(wanted, X.shape), rtol=1e-12, atol=1e-12
        )
    assert result.covered is None


def test_blocks_loops_and_tolerances() -> None:
    body = """
check:
    total = zeros(f32, M)
    for n in range(N):
        total = total + x[:, n]
    a, b = both(x)
    total += 1.0
    if FLAG:
        y[:, 0] == total
    else:
        y == a
    y[0, 1:3] == b[0, 1:3]
"""
    (result,) = evaluated(body, X)
    np.testing.assert_allclose(result.expected[:, 0], X.sum(1) + 1)
    np.testing.assert_allclose(result.expected[0, 1:], X[0, 1:] + 1)
    assert result.covered is not None
    assert result.covered.tolist() == [[True, True, True], [True, False, False]]
    (loose,) = evaluated("check y == x within rtol 0.5, atol 1e-3", X)
    assert loose.rtol == 0.5 and loose.atol == 1e-3


def test_top_k_and_tuples() -> None:
    body = """
check:
    v, i = topk(x, 2, axis=1)
    y[:, 0:2] == v
"""
    (result,) = evaluated(body, X)
    assert result.expected[:, :2].tolist() == [[3.5, 1.0], [5.0, 0.25]]


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("check y == nothing", "`nothing` is not known"),
        ("check y == x @ x", "do not fit"),
        ("check y == x + x.T", "do not fit"),
        ("check y == x[5, :]", "not in 0 … 1"),
        ("check y == x[-1, :]", "not in 0 … 1"),
        ("check y == x[z, z[:, None] + arange(N)]", "beside an index of several axes"),
        ("check y == f32", "no array or number"),
        ("check y == half(x, x)", "`half` takes 1 arguments"),
        ("check x == x", "compares an output"),
        ("check y == (x if x > 0.0 else x)", "a condition is a scalar"),
        ("check y == sum(x, axis=0)[0:2]", "shapes do not fit"),
        ("check y == x.nothing", "`.nothing` has no meaning"),
        ("check y == tanh(x, x)", "do not fit"),
        ("check y == argmax(x)", "needs `axis`"),
    ],
)
def test_what_cannot_be_evaluated(body: str, message: str) -> None:
    with pytest.raises(TileError) as caught:
        evaluated(body, X)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E0905" and message in diagnostic.message


SAFE = [
    "check y == x + 1.0",
    "check y == exp(x - max(x, axis=1)[:, None]) / sum(exp(x), axis=1)[:, None]",
    "check y == x * arange(M)[:, None]",
    "check y == x + zeros(f32, M, N) + z[:, None]",
    "check y == (x @ repeat(x[:, 0:1], N, axis=1).T) @ x",
    "check y == (x * 2.0) @ full(f32, 0.5, N, N)",
]


@pytest.mark.parametrize("body", SAFE)
def test_blocks_of_the_leading_dimension_give_the_same(
    body: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    generator = np.random.default_rng(1)
    x = generator.standard_normal((23, 7))
    z = np.arange(23, dtype=np.int32)
    (whole,) = evaluated(body, x, z)
    monkeypatch.setattr(check_module, "AT_ONCE", 10)
    monkeypatch.setattr(check_module, "IN_A_BLOCK", 30)
    (blocks,) = evaluated(body, x, z)
    np.testing.assert_allclose(blocks.expected, whole.expected, rtol=1e-12)


def test_blocks_bound_the_arrays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "AT_ONCE", 1000)
    monkeypatch.setattr(check_module, "IN_A_BLOCK", 700)
    monkeypatch.setattr(check_module, "AT_MOST", 1000)
    x = np.random.default_rng(2).standard_normal((200, 7))
    (result,) = evaluated("check y == exp(x) + 1.0", x)
    np.testing.assert_allclose(result.expected, np.exp(x.astype(np.float32).astype(np.float64)) + 1)
    # a sum over the leading dimension needs all of it
    with pytest.raises(TileError) as caught:
        evaluated("check y == x + sum(x, axis=0)[None, :]", x)
    assert caught.value.diagnostics[0].code == "E0906"


GROUPS = """
kernel k[G = 4](q: f32[B, H, D], k: f32[B, H // G, T, D]) -> o: f32[B, H, D]:
    require H % G == 0 and D <= 8
    for b, h in parallel(B, H):
        o[b, h, :] = q[b, h, :]

    check:
        w = exp(q[:, :, None, :] @ repeat(k, G, axis=1).T)
        o == (w @ repeat(k, G, axis=1))[:, :, 0, :] + TERM
"""


def grouped(term: str) -> tuple[Array, Array]:
    """What a check with heads that share keys says, and the same by einsum; `term` is added to both as zeros."""
    sample = written(GROUPS.replace("TERM", term), "k")
    sizes = {"B": 3, "H": 8, "T": 50, "D": 4}
    inputs = make_inputs(sample.program, sizes)
    (result,) = evaluate_check(
        sample.kernel, sample.files, sample.files.main, sample.program, sizes, inputs
    )
    q, k = (inputs[n].astype(np.float64) for n in ("q", "k"))
    keys = np.repeat(k, 4, 1)
    w = np.exp(np.einsum("bhd,bhtd->bht", q, keys))
    return result.expected, np.einsum("bht,bhtd->bhd", w, keys)


def test_products_with_what_repeats_need_it_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check_module, "AT_ONCE", 10)
    monkeypatch.setattr(check_module, "IN_A_BLOCK", 10)
    # the keys of a block, or the weights of all its heads, but not the keys of each head
    monkeypatch.setattr(check_module, "AT_MOST", 2 * 50 * 4)
    np.testing.assert_allclose(*grouped("0.0"), rtol=1e-6)
    # what is done to each head's own keys does need them
    with pytest.raises(TileError) as caught:
        grouped("0.0 * sum(repeat(k, G, axis=1) * 1.0, axis=2)")
    assert caught.value.diagnostics[0].code == "E0906"
    monkeypatch.setattr(check_module, "AT_MOST", 8 * 50 * 4)
    np.testing.assert_allclose(*grouped("0.0 * sum(repeat(k, G, axis=1) * 1.0, axis=2)"), rtol=1e-6)


def test_work_is_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    x = np.ones((30, 7))
    monkeypatch.setattr(check_module, "WORK", 200_000)
    assert evaluated("check y == (x @ x.T) @ x * 0.0 + x", x)[0].covered is None
    monkeypatch.setattr(check_module, "WORK", 1000)
    with pytest.raises(TileError) as caught:
        evaluated("check y == (x @ x.T) @ x", x)
    assert caught.value.diagnostics[0].code == "E0906"


def test_inout_on_the_right_is_what_came_in() -> None:
    text = """
kernel k(inout x: f32[N]) -> y: f32[N]:
    for n in parallel(N):
        t = x[n] + 1.0
        y[n] = t * 2.0
        x[n] = t

    check:
        x == x + 1.0
        y == (x + 1.0) * 2.0
"""
    sample = written(text, "k")
    inputs = make_inputs(sample.program, {"N": 5})
    results = evaluate_check(
        sample.kernel, sample.files, sample.files.main, sample.program, {"N": 5}, inputs
    )
    assert [r.name for r in results] == ["x", "y"]
    np.testing.assert_allclose(results[1].expected, 2 * results[0].expected)


def test_functions_of_imported_modules() -> None:
    text = """
import std.softmax

kernel k(x: f32[N]) -> y: f32[N]:
    for n in parallel(N):
        y[n] = x[n]

    check y == softmax.end((x, where(x == x, 2.0, 2.0), x[:, None]))[:, 0]
"""
    sample = written(text, "k")
    x = np.array([1.0, 4.0], np.float32)
    (result,) = evaluate_check(
        sample.kernel, sample.files, sample.files.main, sample.program, {"N": 2}, {"x": x}
    )
    assert result.expected.tolist() == [0.5, 2.0]


def test_a_kernel_without_a_check_has_no_results() -> None:
    assert evaluated("example M = 2, N = 3", X) == []
