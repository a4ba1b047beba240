"""Loops that a condition filters: right at many sizes and tables, and how fast a trip that survives is beside one of a loop without a filter.

usage: python bench/filters.py [--out FILE] [--rounds N] [--size N] [PART…]

Parts: right, products, attention. Results are compared with PyTorch in float32; times are of calls taken in turns with a cold L2. `of_dense` and
`of_full` are rates of blocks beside those of the same loop without a filter, within each round; the median over the rounds. Exit status: 0, or
1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from interleaving import timed
from launchers import build_ahead, load
from records import beside_torch, write_rows

ARCH = "sm_90a"
PRODUCTS = "bench/filters.tile"
FORMS = "bench/attention_forms.tile"
TABLES = ("none", "first", "last", "ends", "odd", "few", "half", "most", "all")


def table(kind: str, *shape: int) -> torch.Tensor:
    """Which blocks live."""
    shares = {"few": 0.1, "half": 0.5, "most": 0.9, "all": 2.0}
    found = torch.rand(shape, device="cuda") < shares.get(kind, 0.0)
    if kind in ("first", "ends"):
        found[..., 0] = True
    if kind in ("last", "ends"):
        found[..., -1] = True
    if kind == "odd":
        found[..., 1::2] = True
    return found


def product(kernel: str, alive: torch.Tensor | None, *sizes: int) -> tuple[Any, float]:
    """The call, and its relative Frobenius error; of a result that has to be 0, infinity if it is not."""
    m, n, k = sizes
    a = torch.randn(m, k, device="cuda", dtype=torch.bfloat16)
    b = torch.randn(k, n, device="cuda", dtype=torch.bfloat16)
    c = torch.full((m, n), math.nan, device="cuda", dtype=torch.bfloat16)
    launch = load(PRODUCTS, kernel, ARCH)
    known = {"M": m, "N": n, "K": k}
    tables = () if alive is None else (alive,)
    call = partial(launch, a, b, *tables, c, *(known[name] for name in launch.sizes))
    call()
    torch.cuda.synchronize()
    masked = a.float()
    if alive is not None:
        wide = alive.repeat_interleave(64, -1)[..., :k]
        masked = masked * (wide if alive.dim() == 1 else wide.repeat_interleave(128, 0)[:m])
    want = masked @ b.float()
    size = float(want.norm())
    off = float((c.float() - want).norm())
    return call, off / size if size else (0.0 if off == 0.0 else math.inf)


def attention(alive: torch.Tensor | None, *sizes: int) -> tuple[Any, float]:
    """The same for attention; NaN where `lse` is wrong."""
    batch, heads, rows, keys = sizes
    q = torch.randn(batch, heads, rows, 128, device="cuda", dtype=torch.bfloat16)
    k, v = (
        torch.randn(batch, heads, keys, 128, device="cuda", dtype=torch.bfloat16) for _ in range(2)
    )
    o = torch.full_like(q, math.nan)
    lse = torch.full((batch, heads, rows), math.nan, device="cuda")
    launch = load(FORMS, "full" if alive is None else "block_sparse", ARCH)
    known = {"B": batch, "H": heads, "S": rows, "N": keys}
    tables = () if alive is None else (alive,)
    numbers = [known[name] for name in launch.sizes]
    call = partial(launch, q, k, v, *tables, o, lse, *numbers, 128**-0.5)
    call()
    torch.cuda.synchronize()
    s = (q[:1].float() @ k[:1].float().mT) * 128**-0.5
    if alive is not None:
        wide = alive.repeat_interleave(128, 1)[:, :rows].repeat_interleave(128, 2)[..., :keys]
        s = s.masked_fill(~wide[None], -math.inf)
    sums = torch.logsumexp(s, 3)
    want = torch.exp(s - sums.masked_fill(sums == -math.inf, 0.0)[..., None]) @ v[:1].float()
    size = float(want.norm())
    off = float((o[:1].float() - want).norm())
    same = (lse[:1] == sums) | ((lse[:1] - sums).abs() < 2e-2)
    if not bool(same.all()):
        return call, math.nan
    return call, off / size if size else (0.0 if off == 0.0 else math.inf)


def right(options: argparse.Namespace) -> list[dict[str, object]]:
    """All kinds of tables at sizes with and without ends."""
    rows: list[dict[str, object]] = []
    for sizes in (
        (128, 128, 64),
        (8, 8, 8),
        (1000, 520, 1000),
        (136, 4096, 7000),
        (2048, 2048, 2048),
    ):
        for kind in TABLES:
            m, _, k = sizes
            worst = 0.0
            for kernel, shape in (
                ("blocks", (-(-m // 128), -(-k // 64))),
                ("steps", (-(-k // 64),)),
            ):
                worst = max(worst, product(kernel, table(kind, *shape), *sizes)[1])
            rows.append({"case": f"products {sizes} {kind}", "error": worst})
    for sizes in (
        (1, 2, 1, 1),
        (1, 2, 128, 128),
        (2, 3, 200, 300),
        (1, 2, 1000, 9000),
        (1, 4, 2048, 2048),
    ):
        for kind in TABLES:
            _, heads, s, n = sizes
            error = attention(table(kind, heads, -(-s // 128), -(-n // 128)), *sizes)[1]
            rows.append({"case": f"attention {sizes} {kind}", "error": error})
    for row in rows:
        if not float(str(row["error"])) < 1e-2:
            print(json.dumps(row), flush=True)
            options.failed = True
    print(f"right: {len(rows)} cases", flush=True)
    return rows


def beside(
    name: str, calls: dict[str, Any], counts: dict[str, int], rounds: int, flops: float
) -> dict[str, object]:
    """Times in turns; the rate of blocks of the first beside that of the last."""
    names = list(calls)
    times: dict[str, list[float]] = {n: [] for n in names}
    for number in range(rounds):
        turn = number % len(names)
        for one in names[turn:] + names[:turn]:
            times[one].append(timed(calls[one], warmup=4, rep=20))
    ours, base = names[0], names[-1]
    ratios = [b / a for a, b in zip(times[ours], times[base], strict=True)]
    middle = statistics.median(times[ours])
    row: dict[str, object] = {
        "case": name,
        "us": round(middle * 1e3, 1),
        "blocks": counts[ours],
        "block_tflops": round(flops * counts[ours] / middle * 1e-9, 1),
        f"of_{base}": round(statistics.median(ratios) * counts[ours] / counts[base], 4),
    }
    print(json.dumps(row), flush=True)
    return row


def products(options: argparse.Namespace) -> list[dict[str, object]]:
    """Square products beside the dense one."""
    n = options.size
    dense, off = product("dense", None, n, n, n)
    rows: list[dict[str, object]] = []
    grid = (n // 128, n // 64)
    for kernel, kind in (
        ("blocks", "half"),
        ("blocks", "few"),
        ("blocks", "all"),
        ("steps", "half"),
    ):
        alive = table(kind, *(grid if kernel == "blocks" else grid[1:]))
        call, error = product(kernel, alive, n, n, n)
        if not max(off, error) < 1e-2:
            print(f"{kernel} {kind}: error {error}", flush=True)
            options.failed = True
            continue
        living = int(alive.sum()) * (1 if kernel == "blocks" else grid[0])
        counts = {"ours": living, "dense": grid[0] * grid[1]}
        calls = {"ours": call, "dense": dense}
        name = f"{kernel} {n} {kind}"
        rows.append(beside(name, calls, counts, options.rounds, 2.0 * 128 * 64 * n))
    return rows


def forms(options: argparse.Namespace) -> list[dict[str, object]]:
    """4 x 16 heads of 4096 tokens and 128 columns beside plain attention."""
    sizes = (4, 16, 4096, 4096)
    full, off = attention(None, *sizes)
    rows: list[dict[str, object]] = []
    for kind in ("half", "few", "most", "all"):
        alive = table(kind, 16, 32, 32)
        call, error = attention(alive, *sizes)
        if not max(off, error) < 1e-2:
            print(f"attention {kind}: error {error}", flush=True)
            options.failed = True
            continue
        counts = {"ours": 4 * int(alive.sum()), "full": 64 * 1024}
        calls = {"ours": call, "full": full}
        flops = 4.0 * 128 * 128 * 128
        rows.append(beside(f"attention {kind}", calls, counts, options.rounds, flops))
    return rows


PARTS = {"right": right, "products": products, "attention": forms}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("parts", nargs="*", choices=[*PARTS, []], metavar="PART")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--size", type=int, default=8192)
    options = parser.parse_args()
    options.failed = False
    parts = options.parts or list(PARTS)
    wanted = [(PRODUCTS, name) for name in ("dense", "blocks", "steps")]
    wanted = wanted if set(parts) & {"right", "products"} else []
    wanted += [(FORMS, name) for name in ("full", "block_sparse")] if parts != ["products"] else []
    build_ahead([(path, name, ARCH, {}) for path, name in wanted])
    rows: list[dict[str, object]] = []
    torch.manual_seed(0)
    for part in parts:
        rows += PARTS[part](options)
    if options.out is not None:
        write_rows(options.out, beside_torch(ARCH), rows)
    return 1 if options.failed else 0


if __name__ == "__main__":
    sys.exit(main())
