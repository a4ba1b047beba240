"""Kernels as Python functions on a GPU: PyTorch's tensors and streams, graphs, both launchers, copies of NumPy arrays, profiles."""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import tilec
from tilec.calling.fast_call import FAST_WAY, extension
from tilec.toolchain.driver import query_driver

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = ROOT / "samples"

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def gpu_here(request) -> None:
    """Skip where there is no device, saying what would have run."""
    driver = query_driver()
    if not driver.devices:
        pytest.skip(f"no GPU ({driver.problem}): would have run `{request.node.name}`")


@pytest.fixture
def torch(request):
    """PyTorch with a GPU."""
    if importlib.util.find_spec("torch") is None:
        pytest.skip(f"no PyTorch: would have run `{request.node.name}`")
    import torch

    return torch


def test_numpy_arrays_are_copied() -> None:
    k = tilec.compile(SAMPLES / "vector_add.tile")
    a = np.arange(100_003, dtype=np.float32)
    tilec.assert_close(k(a, a), 2 * a)
    assert k.last_path == "pycuda with copies"


CALLS = [
    ("gemm", "gemm_nn", (("bf16", 512, 264), ("bf16", 264, 320)), {}),
    ("gemm", "gemm_nt", (("bf16", 37, 264), ("bf16", 41, 264)), {}),
    ("softmax", "softmax", (("bf16", 37, 1003),), {}),
    ("norms", "layer_norm", (("bf16", 64, 512), ("bf16", 512), ("bf16", 512)), {"eps": 0.25}),
    ("attention", "attention", (("bf16", 1, 2, 200, 128),) * 3, {"scale": 0.09}),
    ("matrix_vector_and_groups", "gemm_split_k", (("bf16", 70, 500), ("bf16", 500, 136)), {}),
]


@pytest.mark.parametrize(("file", "name", "shapes", "scalars"), CALLS)
def test_both_launchers_compute_the_same_bits(file, name, shapes, scalars, torch) -> None:
    dtypes = {"bf16": torch.bfloat16}
    arrays = [torch.randn(s, device="cuda").to(dtypes[d]) for d, *s in shapes]
    found = []
    for launcher, path in (("pycuda", "pycuda"), ("c", "c launcher")):
        k = tilec.compile(SAMPLES / f"{file}.tile", name, launcher=launcher)
        result = k(*arrays, **scalars)
        assert k.last_path == path
        found.append(result if isinstance(result, tuple) else (result,))
    torch.cuda.synchronize()
    for one, other in zip(*found, strict=True):
        assert torch.equal(one.view(torch.uint8), other.view(torch.uint8))


def test_a_product_on_pytorchs_stream(torch) -> None:
    k = tilec.compile(SAMPLES / "gemm.tile")
    a, b = (torch.randn(1024, 1024, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    tilec.assert_close(k(a, b), a @ b, atol=0.5)
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        # the kernel must wait for what its stream holds
        c = torch.zeros_like(a)
        torch.cuda._sleep(50_000_000)
        c.copy_(a)
        d = k(c, b)
    assert k.last_path.startswith("c launcher")
    stream.synchronize()
    tilec.assert_close(d, a @ b, atol=0.5)


def test_the_fast_call_computes_the_same_bits(torch, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TILEC_FAST_CALL", raising=False)
    extension.cache_clear()
    if extension() is None:
        pytest.skip("no extension: would have called kernels through it")
    k = tilec.compile(SAMPLES / "norms.tile", "layer_norm")
    w = torch.randn(512, device="cuda", dtype=torch.bfloat16)
    for shift in (0, 1, 8):
        # the same form with other addresses, also with those that other variants are for
        memory = torch.randn(64 * 512 + shift, device="cuda").to(torch.bfloat16)
        x = memory[shift:].view(64, 512)
        found = k(x, torch.nn.Parameter(w), w, eps=0.25)
        assert shift == 0 or k.last_path == FAST_WAY
        wanted = tilec.Kernel.__call__(k, x, w, w, eps=0.25)
        assert k.last_path == "c launcher"
        for one, other in zip(found, wanted, strict=True):
            assert torch.equal(one, other)
    assert k._fast_forms.by_table == hasattr(torch.Tensor, "__dlpack_c_exchange_api__")
    with pytest.raises(tilec.TileError, match="different places"):
        k(x, w.cpu(), w, eps=0.25)
    add = tilec.compile(SAMPLES / "vector_add.tile")
    a = torch.arange(1000, device="cuda", dtype=torch.float32)
    out = torch.empty_like(a)
    for _ in range(3):
        assert add(a, a, c=out) is out
    assert add.last_path == FAST_WAY
    tilec.assert_close(out, 2 * a)
    for _ in range(2):
        with pytest.raises(tilec.TileError) as error:
            add(a, a, c=a)
        assert [d.code for d in error.value.diagnostics] == ["E0715"]


def test_a_captured_graph_replays(torch) -> None:
    k = tilec.compile(SAMPLES / "decode.tile")
    q = torch.randn(2, 16, 128, device="cuda", dtype=torch.bfloat16)
    keys, values = (
        torch.randn(2, 2, 300, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )
    length = torch.tensor([300, 77], device="cuda", dtype=torch.int32)
    side = torch.cuda.Stream()
    with torch.cuda.stream(side):
        k(q, keys, values, length, scale=0.09)
    side.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        out = k(q, keys, values, length, scale=0.09)
    q.mul_(0.5)
    graph.replay()
    torch.cuda.synchronize()
    tilec.assert_close(out, k(q, keys, values, length, scale=0.09))


def test_torch_compile_keeps_an_operator_whole(torch) -> None:
    k = tilec.compile(SAMPLES / "gemm_bias_relu.tile")
    op = k.torch_op("tilec_tests::linear_relu")
    a, b = (torch.randn(128, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    bias = torch.randn(128, device="cuda", dtype=torch.bfloat16)
    fused = torch.compile(lambda a, b, c: op(a, b, c) + 1, fullgraph=True)
    tilec.assert_close(fused(a, b, bias), torch.relu(a @ b + bias) + 1, atol=0.25)
    torch.library.opcheck(op, (a, b, bias))


@pytest.fixture
def softmax_op(torch):
    """The sample's softmax, differentiated by the sample's backward, as an operator; registered once for the process."""
    if not hasattr(torch.ops.tilec_tests, "softmax"):
        forward = tilec.compile(SAMPLES / "softmax.tile", "softmax")
        backward = tilec.compile(SAMPLES / "backward.tile", "softmax_backward")
        tilec.torch.op(forward, "tilec_tests::softmax", backward=backward)
    return torch.ops.tilec_tests.softmax.default


def test_an_operator_with_a_backward_is_pytorchs(torch, softmax_op) -> None:
    x = torch.randn(37, 1000, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn_like(x)
    found = torch.library.opcheck(softmax_op, (x,))
    assert set(found.values()) == {"SUCCESS"}
    compiled = torch.compile(lambda a: (softmax_op(a * 2) * weight).sum(), fullgraph=True)
    gradients = []
    for call in (compiled, lambda a: (torch.softmax(a * 2, 1) * weight).sum()):
        x.grad = None
        call(x).backward()
        gradients.append(x.grad)
    tilec.assert_close(gradients[0], gradients[1], rtol=0.05, atol=0.01)


def test_a_step_of_training_in_a_cuda_graph(torch, softmax_op) -> None:
    x = torch.randn(64, 1024, device="cuda", dtype=torch.bfloat16, requires_grad=True)
    weight = torch.randn_like(x)

    def step():
        x.grad = None
        y = softmax_op(x)
        (y * weight).sum().backward()
        return y

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        step()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        y = step()
    gradient = x.grad
    with torch.no_grad():
        x.copy_(torch.randn_like(x))
    graph.replay()
    torch.cuda.synchronize()
    again = x.detach().clone().requires_grad_()
    (torch.softmax(again, 1) * weight).sum().backward()
    tilec.assert_close(y.detach(), torch.softmax(again.detach(), 1), rtol=0.02, atol=0.001)
    tilec.assert_close(gradient, again.grad, rtol=0.05, atol=0.01)


def test_cuda_graphs_of_torch_compile(torch, softmax_op) -> None:
    compiled = torch.compile(lambda a: softmax_op(a) * 2, mode="reduce-overhead", fullgraph=True)
    for _ in range(4):
        x = torch.randn(64, 1024, device="cuda", dtype=torch.bfloat16)
        with torch.no_grad():
            tilec.assert_close(compiled(x), torch.softmax(x, 1) * 2, rtol=0.02, atol=0.001)


def test_times_with_a_cold_cache(torch) -> None:
    k = tilec.compile(SAMPLES / "vector_add.tile")
    a = torch.randn(1 << 20, device="cuda")
    measured = k.benchmark(a, a, repeat=20)
    assert measured.clock == "torch events" and measured.cold
    assert 0 < measured.p20 <= measured.median <= measured.p80


def test_arrays_of_pycuda() -> None:
    script = (
        "import numpy as np, pycuda.autoinit, pycuda.gpuarray as g, tilec\n"
        f"k = tilec.compile({str(SAMPLES / 'vector_add.tile')!r})\n"
        "a = g.to_gpu(np.arange(1000, dtype=np.float32))\n"
        "c = k(a, a)\n"
        "assert k.last_path == 'pycuda', k.last_path\n"
        "tilec.assert_close(c, 2 * np.arange(1000, dtype=np.float32))\n"
        "print(tilec.benchmark(k, a, a, repeat=3).clock)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=ROOT)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "pycuda events"


def test_what_ncu_counts_is_near_the_estimate() -> None:
    # far more than what of the result stays in the L2
    elements = 1 << 28
    command = [sys.executable, "-m", "tilec", "profile", "samples/vector_add.tile", "--json"]
    command += ["-s", f"N={elements}"]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, timeout=900)
    assert done.returncode == 0, done.stderr
    data = json.loads(done.stdout)
    (launch,) = data["launches"]
    if launch["source"] == "estimated":
        pytest.skip(f"no counters: would have compared DRAM bytes ({data['notes']})")
    computed = {k["kernel"]: k["occupancy"] for k in data["kernels"]}[launch["kernel"]]
    assert launch["theoretical_occupancy"] in (None, pytest.approx(computed, abs=0.001))
    assert launch["dram_bytes"] == pytest.approx(3 * 4 * elements, rel=0.05)


def test_the_words_for_the_gpu() -> None:
    device = query_driver().devices[0]
    assert tilec.cuda_available()
    assert tilec.gpu_name() == device.name
    assert tilec.compute_capability() == device.compute_capability
