"""Row kernels at every length from 256 to 262144, both dtypes, beside PyTorch's copy; `bench/rows.py --cells` runs it.

Each cell is verified in the process that times it: the first and the last rows against float64, and rows with infinities,
NaN and huge values. Builds are made first, a process for each kernel. `--beside` names a shared library of hand-written kernels, timed in
the same rounds: `rows_run(i, x, weight, bias, y, rows, columns, eps, 0, stream)` launches entry `i` of `rows_count()`, and an operation and
dtype (`rows_text(i)` begins with them) have an entry for each length.
"""

from __future__ import annotations

import ctypes
import json
import multiprocessing
import os
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

import torch
from interleaving import compare
from launchers import Launcher, load

ARCH = "sm_90"
ROWS = {
    256: 262144,
    1000: 65536,
    1024: 65536,
    4096: 16384,
    4097: 16384,
    8192: 16384,
    32768: 4096,
    131072: 2048,
    262144: 1024,
}
"""Rows of bf16 by their length; of f32 there are half as many."""  # fmt: skip
DTYPES = {"bf16": torch.bfloat16, "f32": torch.float32}
OTHER = {"bf16": "f32", "f32": "bf16"}
TEXTS = {
    "softmax": """kernel softmax(x: {t}[R, C]) -> y: {t}[R, C]:
    require C <= 262144
    for r in parallel(R):
        row = x[r, :].to(f32)
        e = exp(row - max(row))
        y[r, :] = e / sum(e)
""",
    "rms_norm": """kernel rms_norm(x: {t}[R, C], weight: {t}[C], eps: f32 = 1e-6) -> y: {t}[R, C]:
    require C <= 262144
    for r in parallel(R):
        row = x[r, :].to(f32)
        y[r, :] = row * rsqrt(sum(row * row) / C + eps) * weight[:]
""",
    "layer_norm": """kernel layer_norm(x: {t}[R, C], weight: {t}[C], bias: {t}[C], eps: f32 = 1e-5) -> y: {t}[R, C]:
    require C <= 262144
    for r in parallel(R):
        row = x[r, :].to(f32)
        mu = sum(row) / C
        d = row - mu
        y[r, :] = d * rsqrt(sum(d * d) / C + eps) * weight[:] + bias[:]
""",
    "cast": """kernel cast(x: {t}[R, C]) -> y: {o}[R, C]:
    require C <= 262144
    for r in parallel(R):
        y[r, :] = x[r, :]
""",
}
EDGE = 64
"""Rows verified at either end."""


def write_texts(folder: Path) -> dict[tuple[str, str], str]:
    """The programs as files, by kernel and dtype."""
    folder.mkdir(parents=True, exist_ok=True)
    paths = {}
    for kernel, text in TEXTS.items():
        for dtype in DTYPES:
            path = folder / f"{kernel}_{dtype}.tile"
            path.write_text(text.format(t=dtype, o=OTHER[dtype]), encoding="utf-8")
            paths[kernel, dtype] = str(path)
    return paths


def _build(path: str, kernel: str) -> None:
    load(path, kernel, ARCH)


def built(jobs: int) -> dict[tuple[str, str], Launcher]:
    """All launchers. No GPU may be in use yet: the processes are forked."""
    base = Path(os.environ.get("TILEC_BENCH_DIR", tempfile.gettempdir()))
    paths = write_texts(base / "row_cells")
    started = time.monotonic()
    context = multiprocessing.get_context("fork")
    with ProcessPoolExecutor(jobs, mp_context=context) as pool:
        waiting = [pool.submit(_build, path, kernel) for (kernel, _), path in paths.items()]
        for one in waiting:
            one.result()
    print(json.dumps({"built": len(paths), "seconds": round(time.monotonic() - started, 1)}))
    return {key: load(path, key[0], ARCH) for key, path in paths.items()}


def expected(kernel: str, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
    """The result in float64."""
    x, w, b = x.double(), w.double(), b.double()
    match kernel:
        case "softmax":
            return torch.softmax(x, 1)
        case "rms_norm":
            return x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6) * w
        case "layer_norm":
            return torch.nn.functional.layer_norm(x, (x.shape[1],), w, b, 1e-5)
        case _:
            return x


def call(
    kernel: str, run: Launcher, x: torch.Tensor, w: torch.Tensor, b: torch.Tensor, y: torch.Tensor
) -> Callable[[], None]:
    """The launch of a kernel on these tensors."""
    sizes = x.shape
    match kernel:
        case "rms_norm":
            return partial(run, x, w, y, *sizes, 1e-6)
        case "layer_norm":
            return partial(run, x, w, b, y, *sizes, 1e-5)
        case _:
            return partial(run, x, y, *sizes)


def verify(what: str, y: torch.Tensor, right: torch.Tensor) -> None:
    """Raises unless every element agrees to the rounding of its type, NaN with NaN."""
    if not bool((torch.isnan(y) == torch.isnan(right)).all()):
        raise SystemExit(f"{what}: NaN in other places")
    error = (y.double() - right).abs()
    relative = 2.0**-8 if y.dtype == torch.bfloat16 else 2e-5
    limit = relative * right.abs() + (2e-4 if "layer" in what else 1e-6)
    bad = ~torch.isnan(right) & ~torch.isinf(right) & (error > limit)
    if bool(bad.any()):
        raise SystemExit(f"{what} differs by {error[bad].max().item()}")


def special(columns: int, dtype: torch.dtype) -> torch.Tensor:
    """Rows that break careless reductions."""
    x = torch.randn(9, columns, device="cuda")
    x[1] = -torch.inf
    x[2, columns // 2] = torch.nan
    x[3] *= 1e30
    x[4] = -torch.inf
    x[4, -1] = 2.0
    x[5] = -200.0
    x[6] = 0.0
    x[7, 0] = torch.inf
    return x.to(dtype)


class ByHand:
    """The kernels of a library as calls."""

    def __init__(self, path: str) -> None:
        self.library = ctypes.CDLL(str(Path(path).resolve()))
        self.library.rows_text.restype = ctypes.c_char_p
        pointers = [ctypes.c_void_p] * 4
        self.library.rows_run.argtypes = [
            ctypes.c_int, *pointers, ctypes.c_long, ctypes.c_int, ctypes.c_float, ctypes.c_int, ctypes.c_void_p,
        ]  # fmt: skip
        self.entries: dict[tuple[str, str, int], int] = {}
        lengths: dict[tuple[str, str], Iterator[int]] = {}
        for i in range(self.library.rows_count()):
            operation, dtype = self.library.rows_text(i).decode().split(", ")[:2]
            left = lengths.setdefault((operation, dtype), iter(ROWS))
            self.entries[operation, dtype, next(left)] = i

    def call(
        self, kernel: str, dtype: str, tensors: tuple[torch.Tensor, ...]
    ) -> Callable[[], None] | None:
        """The launch for `tensors` x, weight, bias, y; None where the library has no such kernel."""
        rows, columns = tensors[0].shape
        operation = kernel.split("_")[0].upper()
        entry = self.entries.get((operation, dtype, columns))
        if entry is None:
            return None
        places = [tensor.data_ptr() for tensor in tensors]
        stream = torch.cuda.current_stream().cuda_stream
        eps = 1e-6 if kernel == "rms_norm" else 1e-5

        def run() -> None:
            if self.library.rows_run(entry, *places, rows, columns, eps, 0, stream) != 0:
                raise SystemExit(f"the hand-written {kernel} {dtype} {columns} failed")

        return run


def cells(
    rounds: int, jobs: int, columns: list[int] | None = None, beside: str | None = None
) -> list[dict[str, object]]:
    """Every cell: verified, then interleaved with the copy, the median of the ratios within a round."""
    launchers = built(jobs)
    by_hand = ByHand(beside) if beside else None
    table: list[dict[str, object]] = []
    for c, count in ROWS.items():
        if columns and c not in columns:
            continue
        for name, dtype in DTYPES.items():
            r = count if name == "bf16" else count // 2
            x = torch.randn(r, c, device="cuda").to(dtype)
            w = torch.randn(c, device="cuda").to(dtype)
            b = torch.randn(c, device="cuda").to(dtype)
            z = torch.empty_like(x)
            rare = special(c, dtype)
            for kernel in TEXTS:
                cast = kernel == "cast"
                y = torch.empty(r, c, device="cuda", dtype=DTYPES[OTHER[name]] if cast else dtype)
                what = f"{kernel} {name} {r}x{c}"
                y.fill_(7.0)
                ours = call(kernel, launchers[kernel, name], x, w, b, y)
                ours()
                for part in (slice(0, EDGE), slice(r - EDGE, r)):
                    verify(what, y[part], expected(kernel, x[part], w, b))
                if kernel == "softmax":
                    probe = torch.full_like(rare, 7.0)
                    call(kernel, launchers[kernel, name], rare, w, b, probe)()
                    verify(f"{what}, special rows", probe, expected(kernel, rare, w, b))
                base = 2.0 * x.numel() * x.element_size()
                moved = x.numel() * (x.element_size() + y.element_size())
                copy = partial(z.copy_, x)
                hand = by_hand.call(kernel, name, (x, w, b, y)) if by_hand else None
                if hand is not None:
                    y.fill_(7.0)
                    hand()
                    verify(f"{what} by hand", y[:EDGE], expected(kernel, x[:EDGE], w, b))
                table.append(
                    compare(what, ours, copy, moved, base, rounds, hand, warmup=15, rep=60)
                )
            del x, z
            torch.cuda.empty_cache()
    return table


def as_table(rows: list[dict[str, object]]) -> str:
    """The ratios, a line for each length, a column for each kernel and dtype."""
    found = {str(row["case"]): row["ratio"] for row in rows}
    heads = [(kernel, dtype) for kernel in TEXTS for dtype in DTYPES]
    lines = ["C".rjust(7) + "".join(f"{k[:7]} {d}".rjust(13) for k, d in heads)]
    for c, count in ROWS.items():
        values = [
            found.get(f"{k} {d} {count if d == 'bf16' else count // 2}x{c}", "") for k, d in heads
        ]
        if any(v != "" for v in values):
            lines.append(str(c).rjust(7) + "".join(str(v).rjust(13) for v in values))
    return "\n".join(lines)
