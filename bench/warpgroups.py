"""Products and attention on the warpgroup path beside PyTorch, and beside another implementation: verified, then interleaved.

usage: python bench/warpgroups.py [--out FILE] [--rounds N] [--beside FILE] [--cases NAME[,NAME…]] [--arch ARCH] [-D NAME=VALUE]… [PART…]

Parts: gemm, epilogue, attention. FILE of --beside is a Python module with `build()`, which returns libraries by name, and
`gemm(library, a, b, c)`, `attention(library, q, k, v, o)`, which return callables. The ratio is taken within each round, in random
order; the median over the rounds is reported. Exit status: 0, or 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention
from triton.testing import do_bench

sys.path.insert(0, str(Path(__file__).parent))
from launchers import build_ahead, load
from records import beside_torch, write_rows

ARCH = "sm_90a"
GEMM = {
    "8192": (8192, 8192, 8192),
    "4096": (4096, 4096, 4096),
    "16384x4096x4096": (16384, 4096, 4096),
    "4096x14336x4096": (4096, 14336, 4096),
    "2048": (2048, 2048, 2048),
    "4000": (4000, 4000, 4000),
    "4095x4097x4104": (4095, 4097, 4104),
    "4001": (4001, 4001, 4001),
    "1024": (1024, 1024, 1024),
    "1536": (1536, 1536, 1536),
    "2560": (2560, 2560, 2560),
    "3000": (3000, 3000, 3000),
    "3008": (3008, 3008, 3008),
    "5120": (5120, 5120, 5120),
    "6016": (6016, 6016, 6016),
    "512x4096x4096": (512, 4096, 4096),
    "2048x11008x4096": (2048, 11008, 4096),
}
"""M, N, K by name; without `--cases` the first six."""


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative Frobenius error."""
    return float((actual.float() - expected.float()).norm() / expected.float().norm())


def race(
    case: str, flops: float, contenders: Mapping[str, Callable[[], object]], rounds: int
) -> dict[str, object]:
    """Medians of rates, and of the ratios to the first contender within each round."""
    names = list(contenders)
    rates: dict[str, list[float]] = {n: [] for n in names}
    for number in range(rounds):
        # who stands in front of whom is another one in each round: what the card's clock allows hangs on it
        order = random.Random(f"{case} {number}").sample(names, len(names))
        for name in order:
            time = do_bench(contenders[name], warmup=4, rep=20, return_mode="median")
            rates[name].append(flops / time * 1e-9)
    ours = rates["tilec"]
    row: dict[str, object] = {
        "case": case,
        **{f"{n}_tflops": round(statistics.median(r), 1) for n, r in rates.items()},
        **{
            f"of_{n}": round(statistics.median(a / b for a, b in zip(ours, r, strict=True)), 4)
            for n, r in rates.items()
            if n != "tilec"
        },
    }
    print(json.dumps(row), flush=True)
    return row


def gemm(
    options: argparse.Namespace, defines: dict[str, str], beside: Any, libraries: Any
) -> list[dict[str, object]]:
    """Products of bf16 matrices, both orders of the right operand."""
    rows = []
    wanted = options.cases.split(",") if options.cases else list(GEMM)[:6]
    build_ahead([("samples/gemm.tile", f"gemm_{o}", ARCH, defines) for o in ("nn", "nt")])
    for name in wanted:
        m, n, k = GEMM[name]
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
        for order in ("nn", "nt"):
            shape = (k, n) if order == "nn" else (n, k)
            b = torch.randn(*shape, device="cuda", dtype=torch.bfloat16)
            right = b if order == "nn" else b.T
            expected = a @ right
            launch = load("samples/gemm.tile", f"gemm_{order}", ARCH, **defines)
            c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
            sizes = tuple({"M": m, "N": n, "K": k}[s] for s in launch.sizes)
            launch(a, b, c, *sizes)
            torch.cuda.synchronize()
            wrong = error(c, expected)
            if not wrong < 3e-3:
                print(f"gemm_{order} {name}: error {wrong}", flush=True)
                options.failed = True
                continue
            contenders: dict[str, Callable[[], object]] = {
                "tilec": partial(launch, a, b, c, *sizes),
                "torch": partial(torch.mm, a, right),
            }
            if beside is not None and all(x % 8 == 0 for x in (n, k)):
                other = torch.empty_like(c)
                contenders["beside"] = beside.gemm(libraries[f"gemm_{order}"], a, b, other)
            row = race(f"gemm_{order} {name}", 2.0 * m * n * k, contenders, options.rounds)
            row["workspace_bytes"] = launch.bytes(*sizes)
            rows.append(row)
    of_cube(rows)
    return rows


def of_cube(rows: list[dict[str, object]]) -> None:
    """Adds to each row its rate as a share of our own at 4096 with the same order of operands, where that was timed."""
    rates = {str(row["case"]): float(str(row["tilec_tflops"])) for row in rows}
    for row in rows:
        order, _ = str(row["case"]).split()
        cube = rates.get(f"{order} 4096")
        if cube:
            row["of_own_4096"] = round(rates[str(row["case"])] / cube, 4)
            print(f"{row['case']}: {row['tilec_tflops']} TFLOP/s, {row['of_own_4096']} of our 4096")


def epilogue(
    options: argparse.Namespace, defines: dict[str, str], beside: Any, libraries: Any
) -> list[dict[str, object]]:
    """A bias and an activation behind a product, in one launch, beside cuBLASLt's fused form and our plain product."""
    rows = []
    names = ("gemm_bias_relu", "gemm_bias_gelu")
    build_ahead(
        [(f"samples/{n}.tile", n, ARCH, defines) for n in names]
        + [("samples/gemm.tile", "gemm_nn", ARCH, defines)]
    )
    plain = load("samples/gemm.tile", "gemm_nn", ARCH, **defines)
    for m, n, k in ((8192, 8192, 8192), (4096, 14336, 4096), (4096, 4096, 1024)):
        a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16) * 0.1
        b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16) * 0.1
        for name in names:
            launch = load(f"samples/{name}.tile", name, ARCH, **defines)
            bias = torch.randn(n, device="cuda", dtype=torch.bfloat16)
            gelu = name.endswith("gelu")
            product = a.float() @ b.float() + bias.float()
            expected = (
                torch.nn.functional.gelu(product, approximate="tanh")
                if gelu
                else torch.relu(product)
            )
            c = torch.full((m, n), float("nan"), device="cuda", dtype=torch.bfloat16)
            order = {"M": m, "N": n, "K": k}
            sizes = tuple(order[s] for s in launch.sizes)
            launch(a, b, bias, c, *sizes)
            torch.cuda.synchronize()
            wrong = error(c, expected)
            if not wrong < 3e-3:
                print(f"{name} {m}x{n}x{k}: error {wrong}", flush=True)
                options.failed = True
                continue
            other = torch.empty_like(c)
            own = tuple(order[s] for s in plain.sizes)
            contenders: dict[str, Callable[[], object]] = {
                "tilec": partial(launch, a, b, bias, c, *sizes),
                "lt": partial(torch._addmm_activation, bias, a, b, use_gelu=gelu),
                "plain": partial(plain, a, b, other, *own),
            }
            rows.append(race(f"{name} {m}x{n}x{k}", 2.0 * m * n * k, contenders, options.rounds))
    return rows


def attention(
    options: argparse.Namespace, defines: dict[str, str], beside: Any, libraries: Any
) -> list[dict[str, object]]:
    """Forward attention of 16384 tokens and 2048 channels."""
    rows = []
    cases = [(d, s, c) for d in (128, 64) for s in (1024, 4096, 16384) for c in (False, True)]
    if options.cases:
        cases = [c for c in cases if f"{c[0]}x{c[1]}" in options.cases.split(",")]
    path = "samples/attention.tile"
    settings = {
        case: {"D": case[0], "CAUSAL": "true" if case[2] else "false", **defines} for case in cases
    }
    build_ahead([(path, "attention", ARCH, s) for s in settings.values()])
    for dim, length, causal in cases:
        heads, batch = 2048 // dim, 16384 // length
        q, k, v = (
            torch.randn(batch, heads, length, dim, device="cuda", dtype=torch.bfloat16)
            for _ in range(3)
        )
        o = torch.full_like(q, float("nan"))
        lse = torch.empty(batch, heads, length, device="cuda")
        launch = load(path, "attention", ARCH, **settings[dim, length, causal])
        sizes = tuple({"B": batch, "H": heads, "S": length, "T": length}[s] for s in launch.sizes)
        launch(q, k, v, o, lse, *sizes, dim**-0.5)
        expected = scaled_dot_product_attention(
            *(x[:1, :2].float() for x in (q, k, v)), is_causal=causal
        )
        torch.cuda.synchronize()
        name = f"attention D{dim} {length} {'causal' if causal else 'full'}"
        wrong = error(o[:1, :2], expected)
        if not wrong < 1e-2:
            print(f"{name}: error {wrong}", flush=True)
            options.failed = True
            continue
        run = partial(scaled_dot_product_attention, q, k, v, is_causal=causal)

        def backend(kind: SDPBackend, run: Callable[[], object] = run) -> object:
            with sdpa_kernel(kind):
                return run()

        contenders: dict[str, Callable[[], object]] = {
            "tilec": partial(launch, q, k, v, o, lse, *sizes, dim**-0.5),
            "cudnn": partial(backend, SDPBackend.CUDNN_ATTENTION),
            "flash": partial(backend, SDPBackend.FLASH_ATTENTION),
        }
        if beside is not None:
            form = f"attn{dim}%s_{'causal' if causal else 'full'}"
            short = form % "s"  # a build of its own for short rows, where there is one
            library = libraries[short if length <= 1024 and short in libraries else form % ""]
            contenders["beside"] = beside.attention(library, q, k, v, torch.empty_like(o))
        flops = 4.0 * batch * heads * length * length * dim * (0.5 if causal else 1)
        rows.append(race(name, flops, contenders, options.rounds))
    return rows


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--beside", type=Path)
    parser.add_argument("--cases", default="")
    parser.add_argument("--arch", default=ARCH)
    parser.add_argument("-D", dest="defines", action="append", default=[])
    parser.add_argument("parts", nargs="*", default=[])
    options = parser.parse_args()
    options.failed = False
    globals()["ARCH"] = options.arch
    defines = dict(d.split("=", 1) for d in options.defines)
    beside = libraries = None
    if options.beside:
        spec = importlib.util.spec_from_file_location("beside", options.beside)
        assert spec is not None and spec.loader is not None
        beside = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(beside)
        libraries = beside.build()
    rows: list[dict[str, object]] = []
    for part, run in (("gemm", gemm), ("epilogue", epilogue), ("attention", attention)):
        if part in options.parts or not options.parts:
            rows += run(options, defines, beside, libraries)
    ratios = [float(r["of_torch"]) for r in rows if "of_torch" in r]  # type: ignore[arg-type]
    if ratios:
        mean = math.exp(statistics.fmean(map(math.log, ratios)))
        print(f"{len(ratios)} products, geometric mean {mean:.3f} of torch")
    if options.out:
        head = beside_torch(
            ARCH,
            "verified, then triton do_bench medians with a cold L2, in random order; ratio within each round, median",
        )
        write_rows(options.out, head, rows)
    return 1 if options.failed else 0


if __name__ == "__main__":
    sys.exit(main())
