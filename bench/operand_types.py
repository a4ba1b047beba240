"""Products of 8-bit, tf32 and f16 operands on the warpgroup path, in both orders of the right one, beside PyTorch: verified, then interleaved.

usage: python bench/operand_types.py [--out FILE] [--rounds N] [--cases NAME[,NAME…]] [-D NAME=VALUE]…

The rival has the right operand transposed in memory (NT), which is what cuBLASLt takes of 8 bits; of f16 each order has a rival in the same
order. `of_nt` is our own time for that order to ours for row-major operands (NN). Ratios are taken within each round, in random order; the
median over the rounds is reported.
Exit status: 0, or 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch
from triton.testing import do_bench

sys.path.insert(0, str(Path(__file__).parent))
from launchers import Launcher, load
from records import beside_torch, write_rows

ARCH = "sm_90a"
TEXT = """kernel product_{order}[BM = auto, BN = auto, BK = auto](a: {kind}[M, K], b: {kind}[{shape}]) -> c: {out}[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros({total}, i, j)
        for k in range(K by BK):
            acc += {product}
        c[i, j] = acc
"""


@dataclass(frozen=True)
class Kind:
    """Types of operands, result and sums in Tile, the size, and the greatest relative Frobenius error."""

    operand: str
    result: str
    total: str
    size: int
    limit: float


DTYPES = {
    "bf16": torch.bfloat16,
    "f16": torch.float16,
    "i32": torch.int32,
    "f32": torch.float32,
}
CASES = {
    "e4m3": Kind("f8e4m3", "bf16", "f32", 8192, 1e-2),
    "i8": Kind("i8", "i32", "i32", 8192, 0.0),
    "tf32": Kind("f32", "f32", "f32", 4096, 1e-3),
    "f16": Kind("f16", "f16", "f32", 8192, 1e-3),
}


def operands(kind: Kind) -> tuple[torch.Tensor, torch.Tensor]:
    """Random A, and B with the consumed axis last."""
    shape = (kind.size, kind.size)
    if kind.operand == "i8":
        a, b = (torch.randint(-128, 128, shape, device="cuda", dtype=torch.int8) for _ in "ab")
        return a, b
    a, b = (torch.randn(*shape, device="cuda") for _ in "ab")
    if kind.operand == "f16":
        return a.half(), b.half()
    if kind.operand == "f8e4m3":
        return a.to(torch.float8_e4m3fn), b.to(torch.float8_e4m3fn)
    return a, b


def rival(kind: Kind, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """PyTorch's product, with fast accumulation of fp8."""
    if kind.operand == "i8":
        return torch._int_mm(a, b.T)
    if kind.operand == "f8e4m3":
        one = torch.ones((), device="cuda")
        return torch._scaled_mm(a, b.T, one, one, out_dtype=torch.bfloat16, use_fast_accum=True)
    return torch.mm(a, b.T)


def error(actual: torch.Tensor, expected: torch.Tensor) -> float:
    """Relative Frobenius error."""
    difference = actual.double() - expected.double()
    return float(difference.norm() / expected.double().norm())


def race(contenders: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Times in milliseconds by contender and round."""
    names = list(contenders)
    times: dict[str, list[float]] = {n: [] for n in names}
    for number in range(rounds):
        for name in random.Random(number).sample(names, len(names)):
            times[name].append(do_bench(contenders[name], warmup=4, rep=20, return_mode="median"))
    return times


def launcher(kind: Kind, order: str, folder: Path, defines: dict[str, str]) -> Launcher:
    """Our product for an order of the right operand."""
    right = "b[k, j]" if order == "nn" else "b[j, k].T"
    tf32 = kind.operand == "f32"
    text = TEXT.format(
        order=order,
        kind=kind.operand,
        shape="K, N" if order == "nn" else "N, K",
        out=kind.result,
        total=kind.total,
        product=f"dot(a[i, k], {right}, as = tf32)" if tf32 else f"a[i, k] @ {right}",
    )
    path = folder / f"{kind.operand}_{order}.tile"
    path.write_text(text, encoding="utf-8")
    return load(str(path), f"product_{order}", ARCH, **defines)


def measure(
    name: str, folder: Path, options: argparse.Namespace, defines: dict[str, str]
) -> dict[str, object] | None:
    """One case, None where a result is wrong."""
    kind = CASES[name]
    a, b = operands(kind)
    expected = rival(kind, a, b)
    if kind.operand == "f8e4m3":
        expected = a.float() @ b.float().T
    sizes = dict.fromkeys("MNK", kind.size)
    contenders: dict[str, Callable[[], object]] = {"torch": partial(rival, kind, a, b)}
    for order, right in (("nt", b), ("nn", b.T.contiguous())):
        launch = launcher(kind, order, folder, defines)
        dtype = DTYPES[kind.result]
        c = torch.full((kind.size, kind.size), 77, device="cuda", dtype=dtype)
        call = partial(launch, a, right, c, *(sizes[s] for s in launch.sizes))
        call()
        wrong = error(c, expected)
        if not wrong <= kind.limit:
            print(f"{name} {order}: error {wrong}", flush=True)
            return None
        contenders[order] = call
        if kind.operand == "f16" and order == "nn":
            contenders["torch_nn"] = partial(torch.mm, a, right)
    times = race(contenders, options.rounds)
    flops = 2.0 * kind.size**3
    nt, nn, other = times["nt"], times["nn"], times["torch"]
    same = times.get("torch_nn", other)
    row: dict[str, object] = {
        "case": f"{name} {kind.size}",
        **{f"{n}_tflops": round(flops / statistics.median(t) * 1e-9, 1) for n, t in times.items()},
        "nt_of_torch": round(statistics.median(x / y for x, y in zip(other, nt, strict=True)), 4),
        "nn_of_torch": round(statistics.median(x / y for x, y in zip(same, nn, strict=True)), 4),
        "nn_of_nt": round(statistics.median(x / y for x, y in zip(nt, nn, strict=True)), 4),
    }
    print(json.dumps(row), flush=True)
    return row


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--cases", default=",".join(CASES))
    parser.add_argument("-D", dest="defines", action="append", default=[])
    options = parser.parse_args()
    defines = dict(d.split("=", 1) for d in options.defines)
    torch.backends.cuda.matmul.allow_tf32 = True
    with tempfile.TemporaryDirectory() as folder:
        rows = [measure(name, Path(folder), options, defines) for name in options.cases.split(",")]
    right = [row for row in rows if row is not None]
    if options.out:
        head = beside_torch(
            ARCH,
            "verified, then triton do_bench medians with a cold L2, in random order; ratio within each round, median",
        )
        write_rows(options.out, head, right)
    return 0 if len(right) == len(rows) else 1


if __name__ == "__main__":
    sys.exit(main())
