"""Forms of attention beside plain attention, cuDNN and flex_attention; decoding beside what reading alone takes; memory.

usage: python bench/variants.py [--out FILE] [--rounds N] [--flex] [--cases NAME[,NAME…]] [PART…]

Parts: variants, heads, decode, memory. Every result is compared with PyTorch in float32 before it is timed; times are of calls taken in
turns with a cold L2, ratios are within each round, and the median over the rounds is reported. A *block* is 128 x 128 scores of which one
at least is not masked; `of_full` and `of_causal` are rates of such blocks beside those of plain attention without and with a causal mask, `of_short`
beside those of plain attention of as few keys as a row of the form sees: what it spends outside its trips is shared among as few.
`of_bound` is the time that `tilec explain` says is the least, over ours. Exit status: 0, or 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import statistics
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from interleaving import timed
from launchers import build_ahead, load
from records import beside_torch, write_rows
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

ARCH = "sm_90a"
FORMS = "bench/attention_forms.tile"
VARIANTS = "samples/attention_variants.tile"
BLOCK = 128
TOLERANCE = {torch.bfloat16: 1e-2, torch.float16: 3e-3, torch.float8_e4m3fn: 5e-2}
"""Relative Frobenius error by the operands' type."""

Mask = Callable[[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor]
"""Of batch, head, query and key, as flex_attention has it."""
Score = Callable[
    [torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor], torch.Tensor
]


@dataclass
class Case:
    """A program with its arguments; `extra` go between the values and the outputs, `scalars` behind the scale."""

    name: str
    path: str
    kernel: str
    defines: Mapping[str, object] = field(default_factory=dict)
    shape: tuple[int, int, int, int] = (4, 16, 4096, 128)
    """batch, heads, length, width"""
    keys: int | None = None
    """where there are not as many as queries"""
    dtype: torch.dtype = torch.bfloat16
    group: int = 1
    extra: tuple[torch.Tensor, ...] = ()
    scalars: tuple[float, ...] = ()
    lse: bool = False
    mask: Mask | None = None
    score: Score | None = None
    sink: torch.Tensor | None = None
    """a score for each head beside those of the keys"""
    base: str = "full"
    """the plain attention that its blocks are compared with"""
    short: str = ""
    """plain attention with as many blocks in a row"""


def index(*sizes: int) -> tuple[torch.Tensor, ...]:
    """Indices of batch, head, query and key that broadcast."""
    found = []
    for n, size in enumerate(sizes):
        shape = [1] * len(sizes)
        shape[n] = size
        found.append(torch.arange(size, device="cuda").view(shape))
    return tuple(found)


def expected(
    case: Case, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """The first two heads of the first sequence in float32, and their `lse`."""
    heads = min(2, q.shape[1])
    keys = k.repeat_interleave(case.group, 1) if case.group > 1 else k
    values = v.repeat_interleave(case.group, 1) if case.group > 1 else v
    a, b, c = (x[:1, :heads].float() for x in (q, keys, values))
    s = (a @ b.mT) * case.shape[3] ** -0.5
    at = index(1, heads, s.shape[2], s.shape[3])
    if case.score is not None:
        s = case.score(s, *at)
    if case.mask is not None:
        s = s.masked_fill(~case.mask(*at), -math.inf)
    lse = torch.logsumexp(s, 3)
    if case.sink is not None:
        lse = torch.logaddexp(lse, case.sink[None, :heads, None])
    p = torch.exp(s - lse.masked_fill(lse == -math.inf, 0.0)[..., None])
    return p @ c, lse


def blocks(case: Case) -> int:
    """Blocks with at least one score that is not masked, of all heads."""
    batch, heads, length, _ = case.shape
    side = -(-length // BLOCK)
    if case.mask is None:
        return batch * heads * side * -(-(case.keys or length) // BLOCK)
    total = 0
    for b in range(batch):
        at = index(1, heads, length, length)
        seen = case.mask(at[0] + b, *at[1:]).expand(1, -1, length, length)
        some = torch.nn.functional.max_pool2d(seen.half(), BLOCK, ceil_mode=True)
        total += int(some.sum()) * (heads // seen.shape[1])
    return total


def wrong(case: Case, o: torch.Tensor, want: torch.Tensor) -> float:
    """Relative Frobenius error of the first heads."""
    part = o[:1, : want.shape[1]].float()
    return float((part - want).norm() / want.norm())


def bound(case: Case, sizes: Mapping[str, int]) -> float | None:
    """The least microseconds of a launch that `tilec explain` prints for the case; where memory says which trips there are, of the one for calls
    that run all of them."""
    from tilec.compiler import compile_file
    from tilec.explain.total import total

    defines = {k: str(v) for k, v in case.defines.items()}
    compiled = compile_file(case.path, kernel=case.kernel, archs=(ARCH,), defines=defines)
    kernel = compiled.kernel(case.kernel)
    numbers = {**sizes, **{s.name: 1 for s in kernel.plan.scalars}}
    first, *others = kernel.lowered[ARCH]
    least = total(first, ARCH, numbers, 0.0)
    for other in others:
        if least is None and other.name == f"{first.name}_none":
            least = total(other, ARCH, numbers, 0.0)
    return None if least is None else least.least


def cases(names: list[str]) -> list[Case]:
    """The forms of attention that `variants` times, with random tables and masks."""
    batch, heads, length = 4, 16, 4096
    slope = 2.0 ** -torch.arange(1, heads + 1, device="cuda").float()
    seen = torch.rand(batch, length, length, device="cuda") < 0.7
    bias = torch.randn(heads, length, length, device="cuda", dtype=torch.bfloat16)
    side = length // BLOCK
    some = torch.rand(heads, side, side, device="cuda") < 0.5
    some[:, :, 0] = True

    def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
        return i >= j

    def window(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= j) & (i - j < 1024)

    def masked(b: Any, h: Any, i: Any, j: Any) -> Any:
        return seen[b, i, j]

    def sparse(b: Any, h: Any, i: Any, j: Any) -> Any:
        return some[h, i // BLOCK, j // BLOCK]

    def alibi(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + slope[h] * (j - i)

    def cap(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return 50.0 * torch.tanh(s / 50.0)

    def capped_alibi(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return alibi(cap(s, b, h, i, j), b, h, i, j)

    def biased(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
        return s + bias[h, i, j]

    found = [
        Case("full", FORMS, "full", lse=True),
        Case("causal", FORMS, "causal", mask=causal),
        Case("1024 keys", FORMS, "full", lse=True, keys=1024),
        Case("window", VARIANTS, "sliding_window", mask=window, base="causal", short="1024 keys"),
        Case("window with auto tiles", FORMS, "window", mask=window, base="causal", short="1024 keys"),
        Case("alibi", FORMS, "alibi", extra=(slope,), mask=causal, score=alibi, base="causal"),
        Case("sinks", FORMS, "sinks", extra=(slope,), mask=causal, sink=slope, base="causal"),
        Case("soft cap", FORMS, "soft_cap", scalars=(50.0,), score=cap),
        Case("soft cap and alibi", VARIANTS, "soft_cap_alibi", extra=(slope,), scalars=(50.0,),
             mask=causal, score=capped_alibi, base="causal"),
        Case("mask in memory", FORMS, "masked", extra=(seen,), lse=True, mask=masked),
        Case("bias in memory", FORMS, "biased", extra=(bias,), score=biased),
        Case("groups of 8", FORMS, "full", {"G": 8}, group=8, lse=True),
        Case("groups of 8 and causal", FORMS, "causal", {"G": 8}, group=8, mask=causal, base="causal"),
        Case("blocks of a table", FORMS, "block_sparse", extra=(some,), lse=True, mask=sparse),
        Case("f16", FORMS, "full", {"T": "f16"}, dtype=torch.float16, lse=True),
        Case("f8", FORMS, "f8", dtype=torch.float8_e4m3fn),
    ]  # fmt: skip
    wanted = {"full", "causal", *names, *(c.short for c in found if c.name in names)}
    return [c for c in found if not names or c.name in wanted]


def operands(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Random queries, keys and values."""
    batch, heads, length, width = case.shape
    few = heads // case.group, case.keys or length
    return tuple(
        torch.randn(batch, *size, width, device="cuda", dtype=torch.bfloat16).to(case.dtype)
        for size in ((heads, length), few, few)
    )  # type: ignore[return-value]


@dataclass
class Ready:
    """A case that gave the right result: its call, and the arguments of it."""

    call: Callable[[], object]
    inputs: tuple[torch.Tensor, ...]
    sizes: Mapping[str, int]
    workspace: int


def prepare(case: Case, options: argparse.Namespace) -> Ready | None:
    """Run it once and compare; None, and `options.failed`, where that is wrong."""
    batch, heads, length, width = case.shape
    q, k, v = operands(case)
    launch = load(case.path, case.kernel, ARCH, **case.defines)
    o = torch.full(case.shape, math.nan, device="cuda", dtype=torch.bfloat16)
    if case.dtype == torch.float16:
        o = o.half()
    outputs = (o,)
    if case.lse:
        outputs += (torch.full((batch, heads, length), math.nan, device="cuda"),)  # type: ignore[assignment]
    keys = case.keys or length
    known = {"B": batch, "H": heads, "S": length, "N": keys, "T": keys, "D": width}
    sizes = {n: known[n] for n in launch.sizes}
    arguments = (q, k, v, *case.extra, *outputs, *sizes.values(), width**-0.5, *case.scalars)
    launch(*arguments)
    torch.cuda.synchronize()
    want, lse = expected(case, q, k, v)
    off = wrong(case, o, want)
    if case.lse:
        found = outputs[1][:1, : lse.shape[1]]
        same = (found == lse) | ((found - lse).abs() < 2e-2)
        off = off if bool(same.all()) else math.nan
    if not off < TOLERANCE[case.dtype]:
        print(f"{case.name}: error {off}", flush=True)
        options.failed = True
        return None
    return Ready(partial(launch, *arguments), (q, k, v), sizes, launch.bytes(*sizes.values()))


def race(calls: Mapping[str, Callable[[], object]], rounds: int) -> dict[str, list[float]]:
    """Milliseconds of each call in each round, in random order."""
    names = list(calls)
    times: dict[str, list[float]] = {n: [] for n in names}
    for number in range(rounds):
        for name in random.Random(number).sample(names, len(names)):
            times[name].append(timed(calls[name], warmup=4, rep=20))
    return times


def ratio(theirs: list[float], ours: list[float], factor: float = 1.0) -> float:
    """How many times as fast as the other, within each round."""
    return round(statistics.median(b / a for a, b in zip(ours, theirs, strict=True)) * factor, 4)


def flex(case: Case, ready: Ready) -> Callable[[], object] | None:
    """The same by a compiled flex_attention, compared with ours' reference; None where it cannot."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    q, k, v = ready.inputs
    batch, heads, length, _ = case.shape
    try:
        mask = None
        if case.mask is not None:
            mask = create_block_mask(case.mask, batch, heads, length, length, device="cuda")  # type: ignore[arg-type]
        compiled = torch.compile(flex_attention, dynamic=False)
        run = partial(
            compiled,
            q,
            k,
            v,
            score_mod=case.score,
            block_mask=mask,
            enable_gqa=case.group > 1,
        )
        off = wrong(case, run(), expected(case, q, k, v)[0])
        if not off < TOLERANCE[case.dtype]:
            print(f"{case.name}: flex_attention has an error of {off}", flush=True)
        return run
    except Exception as fault:  # a rival that fails is not our fault: say so, and go on
        print(f"{case.name}: flex_attention failed: {str(fault)[:300]}", flush=True)
        return None


def variants(options: argparse.Namespace) -> list[dict[str, object]]:
    """Each form beside plain attention, at 4 x 16 heads of 4096 tokens and 128 columns."""
    rows: list[dict[str, object]] = []
    names = options.cases.split(",") if options.cases else []
    wanted = cases(names)
    build_ahead([(c.path, c.kernel, ARCH, dict(c.defines)) for c in wanted])
    plain: dict[str, tuple[Callable[[], object], int]] = {}
    for case in wanted:
        ready = prepare(case, options)
        if ready is None:
            continue
        count = blocks(case)
        calls = {"tilec": ready.call}
        if case.name in ("full", "causal", *(c.short for c in wanted)):
            plain[case.name] = (ready.call, count)
        for base in ("full", "causal"):
            if base in plain and case.name != base and (base == "full" or case.base == base):
                calls[base] = plain[base][0]
        if case.short:
            calls["short"] = plain[case.short][0]
        if options.flex and case.dtype != torch.float8_e4m3fn:
            other = flex(case, ready)
            if other is not None:
                calls["flex"] = other
        times = race(calls, options.rounds)
        ours = times["tilec"]
        middle = statistics.median(ours)
        flops = 4.0 * BLOCK * BLOCK * case.shape[3] * count
        least = bound(case, ready.sizes)
        row: dict[str, object] = {
            "case": case.name,
            "us": round(middle * 1e3, 1),
            "blocks": count,
            "block_tflops": round(flops / middle * 1e-9, 1),
            "workspace_bytes": ready.workspace,
        }
        for base in ("full", "causal"):
            if base in times:
                row[f"of_{base}"] = ratio(times[base], ours, count / plain[base][1])
        if "short" in times:
            row["of_short"] = ratio(times["short"], ours, count / plain[case.short][1])
        if "flex" in times:
            row["of_flex"] = ratio(times["flex"], ours)
        if least is not None:
            row["of_bound"] = round(least / (middle * 1e3), 4)
        rows.append(row)
        print(json.dumps(row), flush=True)
    if not names or "packed" in names:
        rows += packed(options, plain.get("causal"))
    return rows


def packed(
    options: argparse.Namespace, causal: tuple[Callable[[], object], int] | None
) -> list[dict[str, object]]:
    """Sequences of different lengths end to end, causal, 16384 tokens in all."""
    ends = [0, 4096, 5120, 7000, 11000, 12345, 16384]
    heads, width = 16, 128
    q, k, v = (
        torch.randn(ends[-1], heads, width, device="cuda", dtype=torch.bfloat16) for _ in range(3)
    )
    o = torch.full_like(q, math.nan)
    starts = torch.tensor(ends, device="cuda", dtype=torch.int32)
    longest = max(b - a for a, b in pairwise(ends))
    launch = load(VARIANTS, "packed", ARCH)
    known = {"TOTAL": ends[-1], "H": heads, "NSEQ1": len(ends)}
    sizes = [known[n] for n in launch.sizes]
    call = partial(launch, q, k, v, starts, o, *sizes, longest, width**-0.5)
    call()
    torch.cuda.synchronize()
    count = 0
    for a, b in pairwise(ends):
        part = [x[a:b, :2].transpose(0, 1)[None].float() for x in (q, k, v)]
        want = scaled_dot_product_attention(*part, is_causal=True)
        off = float((o[a:b, :2].transpose(0, 1)[None].float() - want).norm() / want.norm())
        if not off < TOLERANCE[torch.bfloat16]:
            print(f"packed: error {off}", flush=True)
            options.failed = True
            return []
        side = -(-(b - a) // BLOCK)
        count += heads * side * (side + 1) // 2
    calls = {"tilec": call}
    if causal is not None:
        calls["causal"] = causal[0]
    times = race(calls, options.rounds)
    middle = statistics.median(times["tilec"])
    flops = 4.0 * BLOCK * BLOCK * width * count
    row: dict[str, object] = {
        "case": "packed",
        "us": round(middle * 1e3, 1),
        "blocks": count,
        "block_tflops": round(flops / middle * 1e-9, 1),
    }
    if causal is not None:
        row["of_causal"] = ratio(times["causal"], times["tilec"], count / causal[1])
    print(json.dumps(row), flush=True)
    return [row]


def heads(options: argparse.Namespace) -> list[dict[str, object]]:
    """Other widths of heads beside cuDNN: 16384 tokens, about 2048 channels."""
    rows = []
    widths = [int(n) for n in options.cases.split(",")] if options.cases else [96, 256]
    lengths = (1024, 4096, 16384)
    settings = [(d, c) for d in widths for c in ("full", "causal")]
    build_ahead([(FORMS, c, ARCH, {"D": d}) for d, c in settings])
    for width, kernel in settings:
        for length in lengths:
            shape = (16384 // length, 2048 // width, length, width)
            case = Case(f"D{width} {length} {kernel}", FORMS, kernel, {"D": width}, shape)
            case.lse = kernel == "full"
            if kernel == "causal":
                case.mask = lambda b, h, i, j: i >= j
            ready = prepare(case, options)
            if ready is None:
                continue

            def cudnn(ready: Ready = ready, causal: bool = kernel == "causal") -> object:
                with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
                    return scaled_dot_product_attention(*ready.inputs, is_causal=causal)

            times = race({"tilec": ready.call, "cudnn": cudnn}, options.rounds)
            middle = statistics.median(times["tilec"])
            flops = 4.0 * shape[0] * shape[1] * length * length * width
            flops *= 0.5 if kernel == "causal" else 1
            row = {
                "case": case.name,
                "tflops": round(flops / middle * 1e-9, 1),
                "of_cudnn": ratio(times["cudnn"], times["tilec"]),
            }
            rows.append(row)
            print(json.dumps(row), flush=True)
    return rows


def decode(options: argparse.Namespace) -> list[dict[str, object]]:
    """One query a sequence: 8 sequences of 32768 keys. The limit is what the fastest of several reading kernels takes for the bytes."""
    rows = []
    batch, keys, width = 8, 32768, 128
    for query_heads, group in ((64, 8), (32, 4), (8, 1)):
        groups = query_heads // group
        q = torch.randn(batch, query_heads, width, device="cuda", dtype=torch.bfloat16)
        k, v = (
            torch.randn(batch, groups, keys, width, device="cuda", dtype=torch.bfloat16)
            for _ in range(2)
        )
        o = torch.full_like(q, math.nan)
        moved = 2.0 * k.numel() * 2
        length = torch.full((batch,), keys, device="cuda", dtype=torch.int32)
        launch = load("samples/decode.tile", "flash_decode", ARCH, G=group)
        known = {"B": batch, "H": query_heads, "T": keys}
        sizes = [known[n] for n in launch.sizes]
        call = partial(launch, q, k, v, length, o, *sizes, width**-0.5)
        call()
        torch.cuda.synchronize()
        want = torch.cat(
            [
                scaled_dot_product_attention(
                    q[b].view(groups, group, width).float(), k[b].float(), v[b].float()
                ).view(1, query_heads, width)
                for b in range(batch)
            ]
        )
        off = float((o.float() - want).norm() / want.norm())
        if not off < TOLERANCE[torch.bfloat16]:
            print(f"decode {query_heads} of {group}: error {off}", flush=True)
            options.failed = True
            continue
        calls: dict[str, Callable[[], object]] = {"tilec": call, **readers(k, v)}
        times = race(calls, options.rounds)
        middle = statistics.median(times["tilec"])
        limits = {n: statistics.median(t) for n, t in times.items() if n != "tilec"}
        best = min(limits, key=limits.__getitem__)
        row = {
            "case": f"decode {batch} x {keys}, {query_heads} heads on {groups}",
            "us": round(middle * 1e3, 1),
            "tbps": round(moved / middle * 1e-9, 3),
            "limit_tbps": {n: round(moved / t * 1e-9, 3) for n, t in limits.items()},
            "of_limit": ratio(times[best], times["tilec"]),
        }
        rows.append(row)
        print(json.dumps(row), flush=True)
    return rows


def readers(k: torch.Tensor, v: torch.Tensor) -> dict[str, Callable[[], object]]:
    """Kernels that do nothing but read both tensors."""
    library = reading_library()
    sink = torch.zeros(1, device="cuda", dtype=torch.int32)

    def read(which: int) -> None:
        stream = torch.cuda.current_stream().cuda_stream
        for x in (k, v):
            status = library.run(
                which, x.data_ptr(), x.numel() * x.element_size(), sink.data_ptr(), stream
            )
            if status:
                raise RuntimeError(f"the reading kernel returned {status}")

    return {
        "loads": partial(read, 0),
        "bulk": partial(read, 1),
        "torch": lambda: (k.view(torch.int32).amax(), v.view(torch.int32).amax()),
    }


def reading_library() -> Any:
    """bench/limits/read_limit.cu as a library."""
    import ctypes
    import os
    import tempfile

    from tilec.toolchain.build import find_toolchain
    from tilec.toolchain.shared_library import build_shared_library

    folder = Path(os.environ.get("TILEC_BENCH_DIR", tempfile.gettempdir()))
    path = folder / "read_limit.so"
    if not path.exists():
        text = (Path(__file__).parent / "limits" / "read_limit.cu").read_text()
        build_shared_library(text, [ARCH], path, toolchain=find_toolchain())
    library = ctypes.CDLL(str(path))
    library.run.argtypes = [ctypes.c_int, ctypes.c_void_p, ctypes.c_longlong] + [
        ctypes.c_void_p
    ] * 2
    return library


def memory(options: argparse.Namespace) -> list[dict[str, object]]:
    """Peak device memory beyond arguments and result, of one head from 4096 to 262144 tokens, beside PyTorch's backend that keeps all scores."""
    rows = []
    launch = load(FORMS, "full", ARCH)
    for length in (4096, 16384, 65536, 262144):
        case = Case(f"memory {length}", FORMS, "full", shape=(1, 1, length, 128), lse=True)
        q, k, v = operands(case)
        o = torch.empty_like(q)
        lse = torch.empty(1, 1, length, device="cuda")
        known = {"B": 1, "H": 1, "S": length, "N": length}
        sizes = [known[n] for n in launch.sizes]
        workspace = launch.bytes(*sizes)

        def ours() -> None:
            launch(q, k, v, o, lse, *sizes, 128**-0.5)  # noqa: B023

        def math_backend() -> object:
            with sdpa_kernel(SDPBackend.MATH):
                return scaled_dot_product_attention(q, k, v)  # noqa: B023

        row: dict[str, object] = {"case": case.name, "workspace_bytes": workspace}
        row["peak_bytes"] = peak(ours)
        row["torch_math_peak_bytes"] = peak(math_backend)
        rows.append(row)
        print(json.dumps(row), flush=True)
        if workspace or row["peak_bytes"]:
            options.failed = True
    return rows


def peak(call: Callable[[], object]) -> int | str:
    """Bytes that the allocator and the device give out beyond what is there before the call; a word where there are too few. The
    call was made once before: code and tables of the first call are not its memory."""
    try:
        call()
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()
        before = torch.cuda.memory_allocated()
        free = torch.cuda.mem_get_info()[0]
        call()
        torch.cuda.synchronize()
        allocated = torch.cuda.max_memory_allocated() - before
        beside = free - torch.cuda.mem_get_info()[0]
        return max(allocated, beside, 0)
    except torch.OutOfMemoryError:
        return "more than the device has"
    finally:
        torch.cuda.empty_cache()


PARTS: Mapping[str, Callable[[argparse.Namespace], list[dict[str, object]]]] = {
    "variants": variants,
    "heads": heads,
    "decode": decode,
    "memory": memory,
}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--flex", action="store_true")
    parser.add_argument("--cases", default="")
    parser.add_argument("parts", nargs="*", default=[])
    options = parser.parse_args()
    options.failed = False
    rows: list[dict[str, object]] = []
    for part, run in PARTS.items():
        if part in options.parts or not options.parts:
            rows += run(options)
    if options.out:
        head = beside_torch(
            ARCH,
            "verified, then triton do_bench medians with a cold L2, in random order; ratio within each round, median",
        )
        write_rows(options.out, head, rows)
    return 1 if options.failed else 0


if __name__ == "__main__":
    sys.exit(main())
