"""Sizes at the ends: 2^32 elements, sizes near 2^31, grids beyond 65,535, sizes 0 and 1, shifted and overlapping addresses."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilec.runtime.arguments import CallSizes, check_call, tensor_bytes
from tilec.runtime.device import open_gpu
from tilec.source.diagnostics import TileError
from verification.calls import Call, call_of
from verification.cases import BEYOND, Job, Verifiers, ragged, run_jobs
from verification.evidence import Evidence
from verification.kernels import Ready, build_all, sources

PROGRAM = """\
kernel doubled_flat[BN = 1024](a: i8[N]) -> c: i8[N]:
    for i in parallel(N by BN):
        c[i] = a[i] + a[i]

kernel doubled_blocks[BM = 16, BN = 256](a: i8[M, N]) -> c: i8[M, N]:
    for i, j in parallel(M by BM, N by BN):
        c[i, j] = a[i, j] + a[i, j]

kernel doubled_columns[BM = 64](a: i8[M, N]) -> c: i8[M, N]:
    for i, j in parallel(M by BM, N):
        c[i, j] = a[i, j] + a[i, j]

kernel doubled_loop[BN = 4096](a: i8[N]) -> c: i8[N]:
    for p in parallel(1):
        for i in range(N by BN):
            c[i] = a[i] + a[i]
"""
TOP = (1 << 31) - 1
FLAT = (TOP, TOP - 1, TOP - 1022, TOP - 1023, TOP - 1024, TOP - 2047, TOP - 4096)
"""Sizes near 2^31: the last tile full, ragged, of one element; where N + BN - 1 leaves 32 bits and where it does not."""
BLOCKS = ((65536, 65536), (65537, 65521), (2, TOP), (TOP, 2))
GUARD = 4096
PATTERN = 0x5A


def limits(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """Run the part. PyTorch makes and compares the large arrays."""
    evidence = Evidence("limits")
    deadline = time.monotonic() + seconds
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "large.tile"
        path.write_text(PROGRAM, encoding="utf-8")
        large, broken = build_all(sources([path]), arch, "shared", jobs)
        for source, error in broken:
            evidence.record(source.kernel, False, error.diagnostics[0].message)
        shared, refused = build_all(sources(only=only), arch, "shared", jobs)
        cubins, _ = build_all(sources(only=only), arch, "cubin", jobs)
        evidence.notes += [
            f"{s.kernel} does not compile: {e.diagnostics[0].message}" for s, e in refused
        ]
        with Verifiers(jobs) as verifiers, nullcontext(None) if dry else open_gpu() as gpu:
            shifted = [j for r in cubins for j in [*_shifted(r), *smallest(r)]]
            by_key = {(r.source.path, r.source.kernel): r for r in cubins}
            run_jobs(shifted, by_key, gpu, verifiers, evidence, deadline)
        for ready in shared:
            _refusals(ready, evidence)
        if not dry:
            _large({r.source.kernel: r for r in large}, evidence, deadline)
            _many_heads(shared, evidence)
    return evidence


def _shifted(ready: Ready) -> Iterator[Job]:
    """One ragged size with all addresses shifted by one element, then each alone; not those of 4 bits."""
    sizes = _middle(ready)
    names = [t.name for t in ready.kernel.plan.parameters if t.dtype.bits >= 8]
    for offsets in (dict.fromkeys(names, 1), *({n: 1} for n in names)):
        yield Job(ready.source, sizes, offsets=offsets)


def _middle(ready: Ready) -> CallSizes:
    """A ragged size set without a 0: the first, tile + 1."""
    return next(s for s in ragged(ready) if all(s.dims.values()))


def smallest(ready: Ready) -> Iterator[Job]:
    """Every size 1, every size 0, each size alone 1 and 0, as far as contracts allow."""
    base = _middle(ready)
    names = list(base.dims)
    wanted = [dict.fromkeys(names, v) for v in (1, 0)]
    wanted += [{**base.dims, n: v} for n in names for v in (1, 0)]
    seen: list[dict[str, int]] = []
    for dims in wanted:
        sizes = replace(base, dims=dims)
        try:
            check_call(ready.kernel.plan, sizes)
        except TileError:
            continue
        if dims not in seen and not _names_absent(ready, dims):
            seen.append(dims)
            yield Job(ready.source, sizes)


def _names_absent(ready: Ready, dims: dict[str, int]) -> bool:
    """Whether integer inputs would have to name elements of an empty dimension: a fault of the program."""
    named: tuple[str, ...] = ("PAGES", "MOST")
    if ready.source.kernel in BEYOND:
        named += ("E", "E1", "NSEQ1")
    return any(v == 0 for n, v in dims.items() if n in named)


def _refusals(ready: Ready, evidence: Evidence) -> None:
    """Negative sizes and overlapping outputs: nothing is launched, and the sentence says why. It needs no GPU: addresses are never read."""
    sizes = _middle(ready)
    call = call_of(ready)
    plan = ready.kernel.plan
    env = sizes.environment
    places, at = {}, 1 << 40
    for tensor in plan.parameters:
        places[tensor.name] = at
        at += tensor_bytes(tensor, env) // 4096 * 4096 + 8192
    for dim in plan.dims:
        _refused(call, ready, evidence, sizes, places, f"{dim.name} is negative", {dim.name: -1})
    written = [t for t in plan.parameters if t.role != "input"]
    for one in written:
        for other in plan.parameters:
            if other is one or not (tensor_bytes(one, env) and tensor_bytes(other, env)):
                continue
            last = (tensor_bytes(other, env) - 1) // 16 * 16
            moved = {**places, one.name: places[other.name] + last}
            _refused(call, ready, evidence, sizes, moved, "overlaps", {})


def _refused(
    call: Call,
    ready: Ready,
    evidence: Evidence,
    sizes: CallSizes,
    places: dict[str, int],
    sentence: str,
    dims: dict[str, int],
) -> None:
    name = ready.kernel.name
    workspace = 1 << 50 if ready.kernel.plan.workspace else 0
    status = call(places, sizes, workspace, **dims)
    said = call.error
    ok = status == 1 and sentence in said
    evidence.record(name, ok, f"status {status}, `{said}`", refused=sentence, said=said)


@contextmanager
def _guarded(torch: Any, count: int) -> Iterator[Any]:
    whole = torch.full((count + 2 * GUARD,), PATTERN, dtype=torch.int8, device="cuda")
    yield whole, whole[GUARD : GUARD + count]


def _large(ready: dict[str, Ready], evidence: Evidence, deadline: float) -> None:
    import torch

    calls = {n: call_of(r) for n, r in ready.items()}
    cases = [("doubled_flat", (n,)) for n in FLAT] + [
        ("doubled_loop", (TOP,)),
        ("doubled_loop", (TOP - 4096,)),
    ]
    cases += [("doubled_blocks", b) for b in BLOCKS] + [("doubled_columns", b) for b in BLOCKS]
    generator = torch.Generator(device="cuda").manual_seed(7)
    most = max(_product(dims) for _, dims in cases)
    source = torch.randint(-128, 128, (most,), dtype=torch.int8, device="cuda", generator=generator)
    for name, dims in cases:
        if time.monotonic() > deadline:
            evidence.record(name, False, f"{dims}: not run in time", sizes=list(dims))
            continue
        count = _product(dims)
        sizes = CallSizes(dict(zip(("N",) if len(dims) == 1 else ("M", "N"), dims, strict=True)))
        with _guarded(torch, count) as (whole, inner):
            status = calls[name]({"a": source.data_ptr(), "c": inner.data_ptr()}, sizes)
            torch.cuda.synchronize()
            if status:
                words = f"{dims}: status {status}, `{calls[name].error}`"
                evidence.record(name, False, words, sizes=list(dims))
                continue
            wrong = _differences(torch, inner, source, count)
            intact = bool((whole[:GUARD] == PATTERN).all() and (whole[-GUARD:] == PATTERN).all())
            words = (
                f"{dims}: {wrong} elements differ, guard bands {'intact' if intact else 'written'}"
            )
            evidence.record(name, intact and not wrong, words, sizes=list(dims), elements=count)
        del whole, inner


def _differences(torch: Any, found: Any, source: Any, count: int) -> int:
    wrong, step = 0, 1 << 28
    for first in range(0, count, step):
        part = source[first : min(first + step, count)]
        wrong += int((found[first : first + part.numel()] != part + part).sum())
    return wrong


def _product(dims: tuple[int, ...]) -> int:
    total = 1
    for dim in dims:
        total *= dim
    return total


def _many_heads(shared: list[Ready], evidence: Evidence) -> None:
    """70,000 pairs of batch and head, in three shapes, beside float32 products of PyTorch."""
    import torch

    found = [r for r in shared if r.source.kernel == "attention"]
    if not found:
        return
    call = call_of(found[0])
    scale, depth, length = 128**-0.5, 128, 20
    for batches, heads in ((70, 1000), (70000, 1), (1, 70000)):
        torch.manual_seed(11)
        shape = (batches, heads, length, depth)
        q, k, v = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(3))
        o = torch.full(shape, float("nan"), device="cuda", dtype=torch.bfloat16)
        lse = torch.full(shape[:3], float("nan"), device="cuda")
        places = {"q": q, "k": k, "v": v, "o": o, "lse": lse}
        sizes = CallSizes({"B": batches, "H": heads, "S": length, "T": length}, {"scale": scale})
        status = call({n: t.data_ptr() for n, t in places.items()}, sizes)
        torch.cuda.synchronize()
        s = (q.double() @ k.double().mT) * scale
        p = torch.softmax(s, dim=3)
        error = (o.double() - p @ v.double()).abs()
        # p and o are rounded to bf16 (2^-9 each), once more for the order of sums
        limit = 2.0**-7 * (p @ v.double().abs()) + 1e-6
        log_error = (lse.double() - torch.logsumexp(s, dim=3)).abs()
        ok = status == 0 and bool((error <= limit).all()) and bool((log_error <= 1e-3).all())
        words = f"B {batches}, H {heads}: status {status}, error {error.max().item():.3g}"
        evidence.record("attention", ok, words, sizes={"B": batches, "H": heads, "S": length})
