"""Kernels that read and write memory once, beside PyTorch's copy: cross-entropy, backward passes, a transpose, vector add.

usage: python bench/streams.py [--out FILE] [--rounds N]

The rival of each is a copy of as many bytes as the kernel must move; of vector add it is `torch.add`. The transpose stands beside
what a transposing copy gives here: written by hand in six shapes (limits/transpose_limit.cu), cuBLAS' geam, PyTorch's.
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from interleaving import compare
from launchers import build_ahead, load
from records import beside_torch, write_rows

ARCH = "sm_90"
LIMIT = Path(__file__).parent / "limits" / "transpose_limit.cu"
SHAPES = ("32x32", "64x64", "128x32", "32x128", "128x64", "64x128")
TILES = ((64, 64), (32, 64), (64, 32))
DURATIONS = {"warmup": 10, "rep": 50}
Row = dict[str, object]


def copy_of(moved: float) -> Callable[[], object]:
    """PyTorch's copy of so many bytes, half of them read."""
    x = torch.randn(int(moved) // 8, device="cuda")
    return partial(torch.empty_like(x).copy_, x)


def near(actual: torch.Tensor, right: torch.Tensor, what: str, absolute: float = 1e-5) -> None:
    """Raises unless every element agrees to the rounding of its type."""
    relative = 2.0**-8 if actual.dtype == torch.bfloat16 else 1e-4
    error = (actual.double() - right).abs()
    if not bool((error <= relative * right.abs() + absolute).all()):
        raise SystemExit(f"{what} differs: {error.max().item()}")


def cross_entropy(rounds: int) -> list[Row]:
    """Loss and gradient: logits are read once, gradients written once."""
    rows = []
    for r, c in ((8192, 8192), (4096, 32768), (1024, 262144)):
        x = torch.randn(r, c, device="cuda").bfloat16()
        label = torch.randint(0, c, (r,), device="cuda", dtype=torch.int32)
        loss, dx = torch.empty(r, device="cuda"), torch.empty_like(x)
        moved = 4.0 * x.numel()
        copy = copy_of(moved)
        for kernel in ("cross_entropy", "online_cross_entropy"):
            run = load("samples/cross_entropy.tile", kernel, ARCH)
            dx.fill_(7.0)
            run(x, label, loss, dx, r, c, 1.0)
            for part in (slice(0, 64), slice(r - 64, r)):
                wide = x[part].double().requires_grad_()
                losses = torch.nn.functional.cross_entropy(
                    wide, label[part].long(), reduction="none"
                )
                losses.sum().backward()
                assert wide.grad is not None
                near(loss[part], losses.detach(), f"{kernel} {r}x{c}: loss")
                near(dx[part], wide.grad, f"{kernel} {r}x{c}: gradient")
            call = partial(run, x, label, loss, dx, r, c, 1.0)
            rows.append(
                compare(f"{kernel} bf16 {r}x{c}", call, copy, moved, moved, rounds, **DURATIONS)
            )
    return rows


def backward(rounds: int) -> list[Row]:
    """Gradient of softmax: two tensors are read, one written."""
    r = c = 8192
    y = torch.softmax(torch.randn(r, c, device="cuda"), 1).bfloat16()
    dy, dx = torch.randn_like(y), torch.empty_like(y)
    run = load("samples/backward.tile", "softmax_backward", ARCH)
    run(y, dy, dx, r, c)
    p, g = y[:64].double(), dy[:64].double()
    near(dx[:64], p * (g - (p * g).sum(1, keepdim=True)), "softmax_backward", 1e-8)
    moved = 6.0 * y.numel()
    call = partial(run, y, dy, dx, r, c)
    return [
        compare(
            f"softmax_backward bf16 {r}x{c}",
            call,
            copy_of(moved),
            moved,
            moved,
            rounds,
            **DURATIONS,
        )
    ]


def limit_library() -> ctypes.CDLL:
    """The transposing copies by hand."""
    name = hashlib.sha256(LIMIT.read_bytes()).hexdigest()[:16]
    folder = Path(os.environ.get("TILEC_BENCH_DIR", tempfile.gettempdir()))
    library = folder / f"transpose_limit_{name}.so"
    if not library.exists():
        words = ["nvcc", "-std=c++17", "-O3", "-arch=sm_90", "-shared", "-Xcompiler", "-fPIC"]
        subprocess.run([*words, "-o", str(library), str(LIMIT)], check=True)
    return ctypes.CDLL(str(library))


def geam(x: torch.Tensor, y: torch.Tensor) -> Callable[[], object]:
    """cuBLAS' transposing copy of a square matrix, as a call."""
    blas = ctypes.CDLL("libcublas.so." + torch.version.cuda.split(".")[0])
    handle = ctypes.c_void_p()
    if blas.cublasCreate_v2(ctypes.byref(handle)):
        raise SystemExit("cublasCreate_v2 failed")
    blas.cublasSetStream_v2(handle, ctypes.c_void_p(torch.cuda.current_stream().cuda_stream))
    n = ctypes.c_int(x.shape[0])
    one, zero = ctypes.c_float(1.0), ctypes.c_float(0.0)
    a, c = ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr())
    numbers = (ctypes.byref(one), a, n, ctypes.byref(zero), c, n, c, n)
    return partial(blas.cublasSgeam, handle, ctypes.c_int(1), ctypes.c_int(0), n, n, *numbers)


def transpose(rounds: int) -> list[Row]:
    """8192 x 8192 of f32, ours at several tiles and everybody else's."""
    n = 8192
    x = torch.randn(n, n, device="cuda")
    y = torch.empty_like(x)
    moved = 8.0 * x.numel()
    library = limit_library()
    stream = torch.cuda.current_stream().cuda_stream
    calls: dict[str, Callable[[], object]] = {}
    for bm, bn in TILES:
        run = load("samples/elements.tile", "transpose", ARCH, BM=bm, BN=bn)
        calls[f"transpose f32 {n}x{n} BM={bm} BN={bn}"] = partial(run, x, y, n, n)
    for number, shape in enumerate(SHAPES):
        for down in (0, 1):
            pointers = (ctypes.c_void_p(x.data_ptr()), ctypes.c_void_p(y.data_ptr()))
            calls[f"by hand {shape}{' down' if down else ''}"] = partial(
                library.run, number, *pointers, n, n, down, ctypes.c_void_p(stream)
            )
    calls["cuBLAS geam"] = geam(x, y)
    calls["torch y.copy_(x.t())"] = partial(y.copy_, x.t())
    copy = copy_of(moved)
    rows = []
    for name, call in calls.items():
        y.fill_(7.0)
        call()
        if not torch.equal(y, x.t()):
            raise SystemExit(f"{name} differs")
        rows.append(compare(name, call, copy, moved, moved, rounds, **DURATIONS))
    return rows


def vector_add(rounds: int) -> list[Row]:
    """2^28 elements beside `torch.add`."""
    n = 2**28
    a, b = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    c, d = torch.empty_like(a), torch.empty_like(a)
    rows = []
    for block in (1024, 512):
        add = load("samples/vector_add.tile", "vector_add", ARCH, BN=block)
        add(a, b, c, n)
        assert torch.equal(c, a + b)
        rival = partial(torch.add, a, b, out=d)
        call = partial(add, a, b, c, n)
        rows.append(
            compare(
                f"vector_add f32 2^28 BN={block}",
                call,
                rival,
                12.0 * n,
                12.0 * n,
                rounds,
                **DURATIONS,
            )
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    build_ahead(
        [
            ("samples/cross_entropy.tile", "cross_entropy", ARCH, {}),
            ("samples/cross_entropy.tile", "online_cross_entropy", ARCH, {}),
            ("samples/backward.tile", "softmax_backward", ARCH, {}),
            *(("samples/vector_add.tile", "vector_add", ARCH, {"BN": n}) for n in (1024, 512)),
            *(("samples/elements.tile", "transpose", ARCH, {"BM": m, "BN": n}) for m, n in TILES),
        ]
    )
    table: list[Row] = []
    faults: list[str] = []
    for part in (cross_entropy, backward, transpose, vector_add):
        try:
            table += part(options.rounds)
        except SystemExit as fault:
            faults.append(str(fault))
        torch.cuda.empty_cache()
    if options.out:
        head = beside_torch(
            ARCH,
            "verified, then triton do_bench medians with a cold L2, interleaved; ratio of bytes per second within each round, median",
        )
        write_rows(options.out, head, table)
    if faults:
        raise SystemExit("; ".join(faults))


if __name__ == "__main__":
    main()
