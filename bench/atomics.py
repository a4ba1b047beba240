"""Atomic additions in vectors beside those of single elements, and beside PyTorch's `index_add_`.

usage: python bench/atomics.py [--out FILE] [--rounds N] [--build]

The form with elements is what the compiler writes for a target without vectors of atomics: neighbouring threads add neighbours. In
results/atomics_first.json each thread added its neighbours one by one instead. `anywhere` is the variant for tensors that begin at any
element. Every form is verified first, on small integers, whose sums are exact. `--build` only builds what the measurement loads.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path

import torch

sys.path.insert(0, str(Path(__file__).parent))
from launchers import Launcher, load
from records import beside_torch, write_rows

from tilec.targets.table import TARGETS

FILE = "bench/atomics.tile"
ARCH = "sm_90a"
ROWS, COLUMNS = 16384, 1024
TARGET_ROWS = (8192, 64)
TYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
PRODUCTS = ((256, 1024, 16384), (1024, 1024, 16384))
Calls = dict[str, Callable[[], object]]


@contextmanager
def without_vectors() -> Iterator[None]:
    """The target without vectors of atomics."""
    target = TARGETS[ARCH]
    TARGETS[ARCH] = replace(target, vector_atomics={})
    try:
        yield
    finally:
        TARGETS[ARCH] = target


def both(kernel: str, **defines: object) -> dict[str, Launcher]:
    """The launchers with vectors and with elements."""
    found = {"vectors": load(FILE, kernel, ARCH, **defines)}
    with without_vectors():
        found["elements"] = load(FILE, kernel, ARCH, **defines)
    return found


def verified(name: str, call: Callable[[], object], out: torch.Tensor, right: torch.Tensor) -> None:
    """Raises unless a call makes exactly `right` of ones."""
    out.fill_(1)
    call()
    if not torch.equal(out.double(), right + 1):
        raise SystemExit(f"{name} differs: {(out.double() - right - 1).abs().max().item()}")
    out.zero_()


def compared(name: str, calls: Calls, elements: float, rounds: int) -> dict[str, object]:
    """A row of the table: elements a second of each form, and the first one's ratio to each other within a round."""
    from interleaving import timed

    times: dict[str, list[float]] = {form: [] for form in calls}
    for _ in range(rounds):
        for form, call in calls.items():
            times[form].append(timed(call, warmup=5, rep=20))
    first, *others = times
    row: dict[str, object] = {"case": name}
    for form, found in times.items():
        row[f"{form}_us"] = round(statistics.median(found) * 1e3, 2)
        row[f"{form}_gelements"] = round(elements / statistics.median(found) * 1e-6, 1)
    for form in others:
        ratios = [b / a for a, b in zip(times[first], times[form], strict=True)]
        row[f"of_{form}"] = round(statistics.median(ratios), 3)
        row[f"worst_of_{form}"] = round(min(ratios), 3)
    print(json.dumps(row), flush=True)
    return row


def add_rows(kind: str, target_rows: int, rounds: int) -> dict[str, object]:
    """Rows added to few or many others."""
    dtype = TYPES[kind]
    at = torch.randint(0, target_rows, (ROWS,), device="cuda", dtype=torch.int32)
    # sums of f16 and bf16 are exact up to 2^8
    nonzero = 0.02 if target_rows < 1000 and kind != "f32" else 1.0
    x = torch.randint(-2, 3, (ROWS, COLUMNS), device="cuda").to(dtype)
    x *= torch.rand(ROWS, COLUMNS, device="cuda") < nonzero
    long = at.long()
    right = torch.zeros(target_rows, COLUMNS, device="cuda", dtype=torch.float64)
    right.index_add_(0, long, x.double())
    memory = torch.zeros(target_rows * COLUMNS + 1, device="cuda", dtype=dtype)
    out = memory[:-1].view(target_rows, COLUMNS)
    shifted = memory[1:].view(target_rows, COLUMNS)
    sizes = (ROWS, COLUMNS, target_rows)
    found = both("add_rows", T=kind)
    calls: Calls = {form: partial(run, x, at, out, *sizes) for form, run in found.items()}
    calls["anywhere"] = partial(found["vectors"], x, at, shifted, *sizes)
    calls["index_add"] = partial(out.index_add_, 0, long, x)
    for form, call in calls.items():
        verified(f"{kind} {form}", call, shifted if form == "anywhere" else out, right)
    name = f"add_rows {kind} {ROWS}x{COLUMNS} to {target_rows} rows"
    return compared(name, calls, float(x.numel()), rounds)


def split_product(shape: tuple[int, int, int], rounds: int) -> dict[str, object]:
    """Sums of accumulators in pairs; elements a second are those of the result that are added to."""
    m, n, k = shape
    a = torch.randint(-2, 3, (m, k), device="cuda").bfloat16()
    b = torch.randint(-2, 3, (k, n), device="cuda").bfloat16()
    c = torch.zeros(m, n, device="cuda")
    right = a.double() @ b.double()
    calls: Calls = {
        form: partial(run, a, b, c, m, k, n) for form, run in both("split_product").items()
    }
    for form, call in calls.items():
        verified(f"split_product {form}", call, c, right)
    name = f"split_product M={m} N={n} K={k}"
    return compared(name, calls, 16.0 * m * n, rounds)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--build", action="store_true")
    options = parser.parse_args()
    if options.build:
        for kind in TYPES:
            both("add_rows", T=kind)
        both("split_product")
        return
    torch.manual_seed(0)
    table = [
        add_rows(kind, target_rows, options.rounds) for kind in TYPES for target_rows in TARGET_ROWS
    ]
    table += [split_product(shape, options.rounds) for shape in PRODUCTS]
    if options.out:
        head = beside_torch(
            ARCH,
            "verified on integers, then triton do_bench medians with a cold L2, interleaved; `of_` is a form's time over that of "
            "vectors within each round, median",
        )
        write_rows(options.out, head, table)


if __name__ == "__main__":
    main()
