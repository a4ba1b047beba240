"""Row kernels and vector add beside PyTorch's copy and add: verified, then interleaved, ratios within each round.

usage: python bench/rows.py [--out FILE] [--rounds N] [--quick] [--cells [--columns C,C] [--jobs N]]
"""

from __future__ import annotations

import argparse
import sys
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from interleaving import compare
from launchers import load
from records import beside_torch, write_rows
from row_cells import as_table, cells

ARCH = "sm_90"


def close(actual: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    """Raises unless every element agrees to the rounding of its type."""
    error = (actual.double() - expected).abs()
    limit = (
        2.0**-8 * expected.abs() + 1e-6
        if actual.dtype == torch.bfloat16
        else 1e-5 * expected.abs() + 1e-6
    )
    if not bool((error <= limit).all()):
        raise SystemExit(f"{what} differs: {error.max().item()}")


def rows(rounds: int, shapes: list[tuple[int, int]]) -> list[dict[str, object]]:
    result = []
    softmax = load("samples/softmax.tile", "softmax", ARCH)
    rms = load("samples/norms.tile", "rms_norm", ARCH)
    residual_norm = load("samples/norms.tile", "rms_norm_residual", ARCH)
    layer = load("samples/norms.tile", "layer_norm", ARCH)
    for r, c in shapes:
        x = torch.randn(r, c, device="cuda", dtype=torch.bfloat16)
        w = torch.randn(c, device="cuda", dtype=torch.bfloat16)
        b = torch.randn(c, device="cuda", dtype=torch.bfloat16)
        y = torch.empty_like(x)
        z = torch.empty_like(x)
        size = 2.0 * x.numel() * 2
        copy = partial(z.copy_, x)
        softmax(x, y, r, c)
        part = slice(0, min(r, 512))
        close(y[part], torch.softmax(x[part].double(), 1), f"softmax {r}x{c}")
        close(y[-64:], torch.softmax(x[-64:].double(), 1), f"softmax {r}x{c}")
        result.append(
            compare(f"softmax {r}x{c}", partial(softmax, x, y, r, c), copy, size, size, rounds)
        )
        rms(x, w, y, r, c, 1e-6)
        d = x[part].double()
        close(
            y[part],
            d * torch.rsqrt((d * d).mean(1, keepdim=True) + 1e-6) * w.double(),
            f"rms {r}x{c}",
        )
        result.append(
            compare(
                f"rms_norm {r}x{c}", partial(rms, x, w, y, r, c, 1e-6), copy, size, size, rounds
            )
        )
        mean = torch.empty(r, device="cuda")
        rstd = torch.empty(r, device="cuda")
        if c <= 65536:
            layer(x, w, b, y, mean, rstd, r, c, 1e-5)
            expected = torch.nn.functional.layer_norm(d, (c,), w.double(), b.double(), 1e-5)
            error = (y[part].double() - expected).abs()
            assert bool((error <= 2.0**-8 * expected.abs() + 2e-4).all()), (
                f"layer {r}x{c} {error.max()}"
            )
            result.append(
                compare(
                    f"layer_norm {r}x{c}",
                    partial(layer, x, w, b, y, mean, rstd, r, c, 1e-5),
                    copy,
                    size,
                    size,
                    rounds,
                )
            )
            res = torch.randn_like(x)
            h = x[part].double() + res[part].double()
            residual_norm(x, res, w, y, r, c, 1e-6)
            close(
                y[part],
                h * torch.rsqrt((h * h).mean(1, keepdim=True) + 1e-6) * w.double(),
                f"residual {r}x{c}",
            )
            result.append(
                compare(
                    f"rms_norm_residual {r}x{c}",
                    partial(residual_norm, x, res, w, y, r, c, 1e-6),
                    copy,
                    2 * size,
                    size,
                    rounds,
                )
            )
    return result


def vectors(rounds: int, exponents: list[int]) -> list[dict[str, object]]:
    result = []
    for block in (1024, 2048, 512):
        add = load("samples/vector_add.tile", "vector_add", ARCH, BN=block)
        for exponent in exponents:
            n = 2**exponent
            a = torch.randn(n, device="cuda")
            b = torch.randn(n, device="cuda")
            c = torch.empty_like(a)
            d = torch.empty_like(a)
            add(a, b, c, n)
            assert torch.equal(c, a + b)
            size = 12.0 * n
            result.append(
                compare(
                    f"vector_add 2^{exponent} BN={block}",
                    partial(add, a, b, c, n),
                    partial(torch.add, a, b, out=d),
                    size,
                    size,
                    rounds,
                )
            )
    return result


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--cells", action="store_true", help="lengths from 256 to 262144 instead")
    parser.add_argument("--columns", help="only these lengths of --cells")
    parser.add_argument("--beside", help="with --cells: a library of hand-written kernels")
    parser.add_argument("--jobs", type=int, default=16)
    options = parser.parse_args()
    shapes = [(8192, 8192), (32768, 1024)]
    if not options.quick:
        shapes += [
            (262144, 256),
            (65536, 1000),
            (16384, 4096),
            (16384, 4097),
            (4096, 32768),
            (2048, 131072),
        ]
    if options.cells:
        wanted = [int(c) for c in options.columns.split(",")] if options.columns else None
        table = cells(options.rounds, options.jobs, wanted, options.beside)
        print(as_table(table))
    else:
        table = vectors(options.rounds, [24, 28]) + rows(options.rounds, shapes)
    if options.out:
        head = beside_torch(
            ARCH,
            "verified against float64, then triton do_bench medians with a cold L2, interleaved; ratio within each round, median",
        )
        write_rows(options.out, head, table)


if __name__ == "__main__":
    main()
