"""Products and attention on the sm_80 path beside PyTorch: verified, then interleaved, ratio within each round.

usage: python bench/products.py [--out FILE] [--rounds N] [--sweep] [PART...]    parts: gemm epilogue attention
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import torch
from torch.nn.functional import scaled_dot_product_attention
from triton.testing import do_bench

sys.path.insert(0, str(Path(__file__).parent))
from launchers import build_ahead, load
from records import beside_torch, write_rows

ARCH = "sm_90"


def timed(function: Callable[[], object]) -> float:
    """Median milliseconds with a cold L2."""
    return float(do_bench(function, warmup=20, rep=100, return_mode="median"))


def compare(
    name: str, ours: Callable[[], object], theirs: Callable[[], object], flops: float, rounds: int
) -> dict[str, object]:
    """Ratio of rates, ours to theirs."""
    ratios, mine, other = [], [], []
    for _ in range(rounds):
        a, b = timed(ours), timed(theirs)
        mine.append(a)
        other.append(b)
        ratios.append(b / a)
    row = {
        "case": name,
        "ratio": round(statistics.median(ratios), 4),
        "tflops": round(flops / statistics.median(mine) * 1e-9, 1),
        "torch_tflops": round(flops / statistics.median(other) * 1e-9, 1),
    }
    print(json.dumps(row), flush=True)
    return row


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative Frobenius error."""
    return float((actual.float() - expected.float()).norm() / expected.float().norm())


def gemm(rounds: int, sweep: bool) -> list[dict[str, object]]:
    result = []
    m = n = k = 4096
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    bt = torch.randn(n, k, device="cuda", dtype=torch.bfloat16)
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    configurations: list[dict[str, object]] = [{}]
    if sweep:
        configurations += [
            {"BM": 128, "BN": 128, "BK": 64},
            {"BM": 128, "BN": 256, "BK": 32},
            {"BM": 256, "BN": 128, "BK": 32},
            {"BM": 128, "BN": 256, "BK": 64},
        ]
    build_ahead(
        [
            ("samples/gemm.tile", kernel, ARCH, d)
            for d in configurations
            for kernel in ("gemm_nn", "gemm_nt")
        ]
    )
    for defines in configurations:
        for kernel, right, reference in (("gemm_nn", b, a @ b), ("gemm_nt", bt, a @ bt.T)):
            launch = load("samples/gemm.tile", kernel, ARCH, **defines)
            c.fill_(float("nan"))
            launch(a, right, c, m, k, n)
            assert error(c, reference) < 3e-3, f"{kernel} {defines} {error(c, reference)}"
            theirs = partial(torch.mm, a, b) if kernel == "gemm_nn" else partial(torch.mm, a, bt.T)
            name = f"{kernel} 4096^3 {' '.join(f'{x}={y}' for x, y in defines.items()) or 'auto'}"
            result.append(
                compare(
                    name, partial(launch, a, right, c, m, k, n), theirs, 2.0 * m * n * k, rounds
                )
            )
    return result


def epilogue(rounds: int, sweep: bool) -> list[dict[str, object]]:
    """A product with bias and ReLU beside our plain product."""
    m = n = k = 4096
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
    c = torch.empty(m, n, device="cuda", dtype=torch.bfloat16)
    files = [("samples/gemm_bias_relu.tile", "gemm_bias_relu"), ("samples/gemm.tile", "gemm_nn")]
    build_ahead([(file, kernel, ARCH, {}) for file, kernel in files])
    fused, plain = (load(file, kernel, ARCH) for file, kernel in files)
    fused(a, b, bias, c, m, k, n)
    assert error(c, torch.relu(a @ b + bias)) < 4e-3
    ours, theirs = partial(fused, a, b, bias, c, m, k, n), partial(plain, a, b, c, m, k, n)
    name = "gemm_bias_relu 4096^3, beside gemm_nn"
    return [compare(name, ours, theirs, 2.0 * m * n * k, rounds)]


def attention(rounds: int, sweep: bool) -> list[dict[str, object]]:
    result = []
    heads, dim, length = 16, 128, 4096
    batch = 16384 // length
    q, k, v = (
        torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16)
        for _ in range(3)
    )
    o = torch.empty_like(q)
    lse = torch.empty(batch, heads, length, device="cuda")
    scale = dim**-0.5
    configurations: list[dict[str, object]] = [{}]
    if sweep:
        configurations += [{"BM": 128, "BN": 64}, {"BM": 64, "BN": 64}, {"BM": 64, "BN": 128}]
    build_ahead(
        [
            ("samples/attention.tile", "attention", ARCH, {"CAUSAL": c, **d})
            for d in configurations
            for c in ("true", "false")
        ]
    )
    for causal in (False, True):
        expected = scaled_dot_product_attention(
            q[:1].float(), k[:1].float(), v[:1].float(), is_causal=causal
        )
        for defines in configurations:
            launch = load(
                "samples/attention.tile",
                "attention",
                ARCH,
                CAUSAL="true" if causal else "false",
                **defines,
            )
            o.fill_(float("nan"))
            sizes = (batch, heads, length, length)
            launch(q, k, v, o, lse, *sizes, scale)
            assert error(o[:1], expected) < 1e-2, f"attention {defines} {error(o[:1], expected)}"
            with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.FLASH_ATTENTION):
                flops = 4.0 * batch * heads * length * length * dim * (0.5 if causal else 1)
                name = f"attention {'causal' if causal else 'full'} D128 {length} {' '.join(f'{x}={y}' for x, y in defines.items())}"
                result.append(
                    compare(
                        name,
                        partial(launch, q, k, v, o, lse, *sizes, scale),
                        partial(scaled_dot_product_attention, q, k, v, is_causal=causal),
                        flops,
                        rounds,
                    )
                )
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("parts", nargs="*")
    options = parser.parse_args()
    table: list[dict[str, object]] = []
    for part, run in (("gemm", gemm), ("epilogue", epilogue), ("attention", attention)):
        if not options.parts or part in options.parts:
            table += run(options.rounds, options.sweep)
    if options.out:
        head = beside_torch(
            ARCH,
            "verified, then triton do_bench medians with a cold L2, interleaved; ratio within each round, median",
        )
        write_rows(options.out, head, table)


if __name__ == "__main__":
    main()
