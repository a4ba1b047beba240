"""Kernels as operators of PyTorch, on the emulator: fake tensors, `torch.compile`, gradients. PyTorch's own checks decide."""

from __future__ import annotations

import importlib.util
import itertools
from pathlib import Path
from typing import Any

import pytest

import tilec
from tilec.calling.torch_op import fit
from tilec.source.diagnostics import TileError

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
NAMES = (f"tilec_tests::op{n}" for n in itertools.count())

PROGRAM = """
kernel scaled[T = f32](x: T[R, C], w: T[C], factor: f32 = 2.0) -> (y: T[R, C], total: T[R]):
    require C <= 4096
    for r in parallel(R):
        p = x[r, :] * x[r, :] * w[:]
        y[r, :] = p * factor.to(T)
        total[r] = sum(p)

    check:
        y == x * x * w[None, :] * factor
        total == sum(x * x * w[None, :], axis=1)

kernel scaled_backward[T = f32, BC = 16](x: T[R, C], w: T[C], factor: f32, dy: T[R, C], dtotal: T[R]) -> (dx: T[R, C], dw: T[C]):
    require C <= 4096
    for r in parallel(R):
        g = dy[r, :] * factor.to(T) + dtotal[r]
        dx[r, :] = g * x[r, :] * w[:] * 2.0
    for c in parallel(C by BC):
        sums = zeros(T, c)
        for r in range(R by 8):
            sums += sum((dy[r, c] * factor.to(T) + dtotal[r][:, None]) * x[r, c] * x[r, c], axis=0)
        dw[c] = sums

    check dx == dx

kernel twice(a: f32[N], b: f32[N]) -> c: f32[N]:
    for i in parallel(N by 256):
        c[i] = a[i] + b[i] * 2.0

    check c == a + b * 2.0

kernel in_place(inout a: f32[N]):
    for i in parallel(N by 256):
        a[i] = a[i] * 2.0
"""


@pytest.fixture
def torch(request: pytest.FixtureRequest) -> Any:
    if importlib.util.find_spec("torch") is None:
        pytest.skip(f"no PyTorch: would have run `{request.node.name}`")
    import torch

    torch._dynamo.reset()
    return torch


@pytest.fixture
def program(tmp_path: Path) -> Path:
    path = tmp_path / "program.tile"
    path.write_text(PROGRAM, encoding="utf-8")
    return path


def scaled(program: Path, backward: str = "kernel", **defines: Any) -> Any:
    """The operator of `scaled`, differentiated by a kernel or by a function."""
    kernel = tilec.compile(program, "scaled", device="cpu", **defines)
    if backward == "kernel":
        derived: Any = tilec.compile(program, "scaled_backward", device="cpu", **defines)
    else:

        def derived(x, w, factor, dy, dtotal):
            g = dy * factor + dtotal[:, None]
            return {"x": 2 * g * x * w, "w": (g * x * x).sum(0)}

    return tilec.torch.op(kernel, next(NAMES), backward=derived)


def expected(x: Any, w: Any, factor: float) -> tuple[Any, Any]:
    p = x * x * w
    return p * factor, p.sum(1)


BACKWARDS = pytest.mark.parametrize("backward", ["kernel", "function"])


@BACKWARDS
def test_gradients_agree_with_differences(backward: str, program: Path, torch: Any) -> None:
    op = scaled(program, backward, T="f64")
    x = torch.randn(5, 19, dtype=torch.float64, requires_grad=True)
    w = torch.randn(19, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda a, b: op(a, b, 3.0), (x, w))
    # one of both needs none
    assert torch.autograd.gradcheck(lambda a: op(a, w.detach(), 0.5), (x,))


@BACKWARDS
def test_pytorchs_own_checks(backward: str, program: Path, torch: Any) -> None:
    op = scaled(program, backward)
    x = torch.randn(4, 19, requires_grad=True)
    w = torch.randn(19, requires_grad=True)
    found = torch.library.opcheck(op, (x, w, 2.0))
    assert set(found.values()) == {"SUCCESS"} and "test_aot_dispatch_dynamic" in found


@BACKWARDS
def test_compiled_and_not_give_the_same(backward: str, program: Path, torch: Any) -> None:
    op = scaled(program, backward)

    def loss(x: Any, w: Any, function: Any) -> Any:
        y, total = function(x + 1, w, 3.0)
        # gradients with strides of 0, and of a transposed result
        return y.t().sum() + (total * total).sum()

    x, w = torch.randn(6, 33, requires_grad=True), torch.randn(33, requires_grad=True)
    compiled = torch.compile(lambda a, b: loss(a, b, op), fullgraph=True, backend="aot_eager")
    results = []
    for call in (lambda a, b: loss(a, b, expected), lambda a, b: loss(a, b, op), compiled):
        x.grad = w.grad = None
        value = call(x, w)
        value.backward()
        results.append((value.detach(), x.grad, w.grad))
    for found in results[1:]:
        for mine, theirs in zip(found, results[0], strict=True):
            torch.testing.assert_close(mine, theirs, rtol=1e-4, atol=1e-4)


def test_one_graph_for_all_sizes(program: Path, torch: Any) -> None:
    from torch._dynamo.testing import CompileCounterWithBackend

    op = tilec.torch.op(tilec.compile(program, "twice", device="cpu"), next(NAMES))
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(
        lambda a, b: op(a, b) + 1, fullgraph=True, dynamic=True, backend=counter
    )
    for n in (7, 300, 1000):
        a = torch.randn(n)
        torch.testing.assert_close(compiled(a, a), 3 * a + 1)
    assert counter.frame_count == 1


def test_a_sample_with_its_backward(torch: Any) -> None:
    forward = tilec.compile(SAMPLES / "softmax.tile", "softmax", device="cpu")
    backward = tilec.compile(SAMPLES / "backward.tile", "softmax_backward", device="cpu")
    op = tilec.torch.op(forward, next(NAMES), backward=backward)
    x = torch.randn(5, 130).to(torch.bfloat16).requires_grad_()
    weight = torch.randn(5, 130).to(torch.bfloat16)
    (op(x) * weight).sum().backward()
    found, x.grad = x.grad, None
    (torch.softmax(x.float(), 1) * weight.float()).sum().backward()
    torch.testing.assert_close(found, x.grad, rtol=0.05, atol=0.01)


def test_what_a_function_may_return(program: Path, torch: Any) -> None:
    kernel = tilec.compile(program, "twice", device="cpu")
    a, b = (torch.randn(9, requires_grad=True) for _ in range(2))

    def gradients(backward: Any) -> list[Any]:
        a.grad = b.grad = None
        tilec.torch.op(kernel, next(NAMES), backward=backward)(a, b).sum().backward()
        return [a.grad, b.grad]

    ones = torch.ones(9)
    for backward in (
        lambda dc: (dc, 2 * dc),
        lambda dc: {"a": dc, "b": 2 * dc},
        lambda dc, **others: {"da": dc + 0 * others["a"], "db": 2 * dc},
    ):
        found = gradients(backward)
        assert torch.equal(found[0], ones) and torch.equal(found[1], 2 * ones)
    assert torch.equal(gradients(lambda dc: (None, dc))[1], ones) and a.grad is None
    with pytest.raises(TypeError, match="1 gradients for the 2 tensors a, b"):
        gradients(lambda dc: dc)


def test_without_a_backward_there_is_no_gradient(program: Path, torch: Any) -> None:
    op = tilec.torch.op(tilec.compile(program, "twice", device="cpu"), next(NAMES))
    a = torch.randn(9, requires_grad=True)
    with pytest.raises(RuntimeError, match=r"gradient|autograd"):
        op(a, a).sum().backward()


@pytest.mark.parametrize(
    ("kernel", "backward", "word"),
    [
        ("twice", lambda a, dz: a, "takes `dz`"),
        ("twice", lambda grad: grad, "takes `grad`"),
        ("twice", "scaled_backward", "takes `x`"),
        ("scaled", "twice", "takes `a`"),
        ("in_place", lambda da: da, "in place"),
    ],
)
def test_a_backward_that_does_not_fit(kernel: str, backward: Any, word: str, program: Path) -> None:
    """Found before PyTorch is asked for."""
    if isinstance(backward, str):
        backward = tilec.compile(program, backward, device="cpu")
    with pytest.raises(TileError) as error:
        tilec.torch.op(tilec.compile(program, kernel, device="cpu"), backward=backward)
    (message,) = error.value.diagnostics
    assert message.code == "E0725" and word in message.message


def test_results_of_a_kernel_are_gradients(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "other.tile"
    path.write_text(
        PROGRAM.replace("-> (dx: T[R, C], dw", "-> (gx: T[R, C], dw")
        .replace("dx[", "gx[")
        .replace("dx == dx", "gx == gx")
    )
    syntax = tilec.compile(program, "scaled").syntax
    with pytest.raises(TileError, match="gives `gx`"):
        fit(syntax, tilec.compile(path, "scaled_backward"))
    found = fit(syntax, tilec.compile(program, "scaled_backward"))
    assert found.takes == ("x", "w", "factor", "dy", "dtotal")
    assert found.gives == ("dx", "dw")
