"""Every kernel launched again and again beside disturbances: all results must be the first one's, bit by bit, and that one right.

A race that shows in one launch of a hundred is seen by no other part. Sizes are those at which loops have one, two and three trips and a CTA
several instances or one, since rings, fences and barriers meet their ends there.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import dataclass, field, replace
from typing import Any

from tilec.compiled import CompiledKernel
from tilec.ir import tile_ir as t
from tilec.passes.uses import all_ops
from tilec.runtime.arguments import CallSizes
from tilec.runtime.device import Buffer, Gpu, open_gpu
from tilec.runtime.gpu_run import WORKSPACE, DeviceCall, prepare_call
from tilec.runtime.host import evaluate_sym
from tilec.runtime.sizes import repaired, tile_extents
from tilec.source.diagnostics import TileError
from verification.cases import SEED, Arrays, Job, Verifiers, bound, example, in_turn, inputs, ragged
from verification.disturbance import KINDS, Disturbance, disturbing
from verification.evidence import Evidence
from verification.kernels import BENCH, SAMPLES, Ready, Source, build_all, sources

LAUNCHES = 105
"""Of a kernel at one size: each kind of disturbance in turn."""

MANY = 300
"""Instances, about: more than two for each SM."""

MOST_ELEMENTS = 1 << 24
"""Of a tensor."""

OPERATIONS = 2 * 10**8
"""Of the interpreter for one size; above it samples of the instances are verified."""

RAGGED = 2
BUILT, LAUNCHED = 0.5, 0.8
"""Shares of the time after which nothing more is built and launched; the rest is for verification."""


def repeat(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """Run the part for the samples and the kernels of `bench/`."""
    evidence = Evidence("repeat")
    paths = sorted([*SAMPLES.glob("*.tile"), *BENCH.glob("*.tile")])
    ready = built(evidence, sources(paths, only), arch, jobs, seconds)
    found = [
        [Job(r.source, s, operations=OPERATIONS, checked=False) for s in repeated_sizes(r)]
        for r in ready
    ]
    run_repeated(evidence, ready, found, arch, jobs, seconds, dry)
    return evidence


def built(
    evidence: Evidence, wanted: list[Source], arch: str, jobs: int, seconds: float
) -> list[Ready]:
    """What can be built within its share of the time; what is refused by the compiler is noted, what nvcc rejects has failed."""
    broken: list[tuple[Source, TileError]] = []
    until = evidence.started + BUILT * seconds
    ready, refused = build_all(wanted, arch, "cubin", jobs, broken, until)
    for source, error in broken:
        evidence.record(source.kernel, False, f"not built: {error}")
    codes = [e.diagnostics[0].code for _, e in refused]
    for code in sorted(set(codes)):
        names = [s.kernel for s, e in refused if e.diagnostics[0].code == code]
        evidence.notes.append(
            f"{len(names)} of {len(wanted)} are refused, {code}: {', '.join(names)}"
        )
    known = {s.kernel for s, _ in (*broken, *refused)} | {r.source.kernel for r in ready}
    for source in wanted:
        if source.kernel not in known:
            evidence.record(source.kernel, False, "not built in time")
    return ready


def unordered(kernel: CompiledKernel) -> bool:
    """Whether floats are added in an order that no two launches share."""
    return any(
        isinstance(op, t.Atomic) and op.op == "add" and op.value.type.dtype.is_float
        for nest in kernel.program.nests
        for op in all_ops(nest.body)
    )


# ------------------------------------------------------------------------------------- sizes


def repeated_sizes(ready: Ready) -> list[CallSizes]:
    """Few trips of loops in many instances, whole and ragged, and in one; then a few ragged sizes: those first that a deadline should not cut.
    Where a program asks about integer arguments, every other call has zeros."""
    found: list[CallSizes] = []
    base = example(ready)
    program = ready.kernel.program
    many = {trips: _with(program, base.dims, trips, MANY) for trips in (1, 2, 3)}
    one = {trips: _with(program, base.dims, trips, 1) for trips in (1, 3)}
    wanted = [_less(program, many[1], 8), _less(program, many[3], 1), one[1], many[2]]
    wanted += [_less(program, many[3], 8), one[3]]
    held = (repaired(program, dims, MOST_ELEMENTS * 2) for dims in wanted)
    calls = [bound(ready, dims) for dims in held if dims is not None]
    calls += [c for c in ragged(ready) if all(n > 0 for n in c.dims.values())][:RAGGED]
    for number, sizes in enumerate(c for c in calls if c is not None):
        scalars = dict(sizes.scalars)
        if number % 2:
            scalars |= {n: 0 for n, v in scalars.items() if isinstance(v, int) and n != "longest"}
        sizes = replace(sizes, scalars=scalars)
        if sizes not in found:
            found.append(sizes)
    return found


def _walked(program: t.Program) -> set[str]:
    """Dimensions over which loops run."""
    return {
        v.name
        for nest in program.nests
        for op in all_ops(nest.body)
        if isinstance(op, t.For)
        for v in op.trips.variables
        if v.kind == "dim"
    }


def _instances(program: t.Program, dims: Mapping[str, int]) -> int:
    """Of the nest that has the most; loaded numbers count as one."""
    env = {**program.tiles, **dims}
    most = 1
    for nest in program.nests:
        count = 1
        for axis in nest.grid:
            known = all(v.name in env for v in axis.trips.variables)
            count *= max(1, evaluate_sym(axis.trips, env)) if known else 1
        most = max(most, count)
    return most


def elements(program: t.Program, dims: Mapping[str, int]) -> int:
    """Of the largest tensor."""
    env = {**program.tiles, **dims}
    return max(math.prod(max(0, evaluate_sym(d, env)) for d in s.dims) for s in program.tensors)


def _with(
    program: t.Program, base: Mapping[str, int], trips: int, instances: int
) -> dict[str, int]:
    """The example's sizes with so many trips of each loop and about so many instances."""
    units = {v.name: max(tile_extents(program, v), default=1) for v in program.dims}
    walked = _walked(program)
    dims = {n: trips * units[n] if n in walked else v for n, v in base.items()}
    free = [
        v
        for v in {v.name for n in program.nests for a in n.grid for v in a.trips.variables}
        if v in dims and v not in walked
    ]
    free.sort()
    while True:  # smaller
        count, most = _instances(program, dims), elements(program, dims)
        if count < max(2, 2 * instances) and most <= MOST_ELEMENTS:
            break
        pool = [n for n in free if dims[n] > units[n]]
        if not pool and most > MOST_ELEMENTS:
            pool = [n for n in dims if dims[n] > units[n]]
        if not pool:
            break
        name = max(pool, key=lambda n: dims[n] / units[n])
        dims[name] = max(units[name], dims[name] // 2 // units[name] * units[name])
    while free and _instances(program, dims) < instances:  # larger
        name = min(free, key=lambda n: dims[n] / units[n])
        larger = {**dims, name: max(units[name], 2 * dims[name])}
        if elements(program, larger) > MOST_ELEMENTS:
            break
        if _instances(program, larger) == _instances(program, dims):
            break
        dims = larger
    count = _instances(program, dims)
    if count > instances and free:  # about as many
        name = max(free, key=lambda n: dims[n] / units[n])
        fewer = {**dims, name: -(-dims[name] // units[name] * instances // count) * units[name]}
        dims = fewer if fewer[name] > 0 else dims
    return dims


def _less(program: t.Program, dims: Mapping[str, int], by: int) -> dict[str, int]:
    """Every dimension of a tile or more a little shorter: by 8, which keeps rows at multiples of 16 bytes, or by 1, which does not."""
    found = dict(dims)
    for dim in program.dims:
        unit = max(tile_extents(program, dim), default=1)
        if dims[dim.name] >= unit > 8:
            found[dim.name] -= by
    return found


# ------------------------------------------------------------------------------------- launches


@dataclass
class Repeated:
    """What a kernel's launches at one size gave: the first result, or for unordered sums the least and the greatest of each element."""

    outputs: list[Arrays]
    launches: int = 0
    differing: int = 0
    kinds: dict[str, int] = field(default_factory=dict)
    """launches that differ, by disturbance"""
    elements: int = 0
    """that differed in any launch"""

    @property
    def words(self) -> str:
        """The differences in words, or ""."""
        if not self.differing:
            return ""
        by_kind = ", ".join(f"{n} {kind}" for kind, n in self.kinds.items())
        return f"{self.differing} of {self.launches} launches differ from the first ({by_kind}), in {self.elements} bytes"


class _Memory:
    """A buffer for PyTorch."""

    def __init__(self, buffer: Buffer):
        self.__cuda_array_interface__ = {
            "shape": (buffer.size,),
            "typestr": "|u1",
            "data": (buffer.address, False),
            "version": 3,
        }


_TORCH_NAMES = {"f32": "float32", "bf16": "bfloat16", "f16": "float16", "f64": "float64"}


def repetitions(
    gpu: Gpu, call: DeviceCall, disturbance: Disturbance, launches: int, until: float, loose: bool
) -> Repeated:
    """Launch a prepared call `launches` times, or until a time, and compare on the device. `loose`: by the ends of each element."""
    import torch

    def view(name: str) -> Any:
        return torch.as_tensor(_Memory(call.buffers[name]), device="cuda")

    written = [p for p in call.plan.parameters if p.role != "input" and call.buffers[p.name].size]
    views = {p.name: view(p.name) for p in written}
    typed = {
        p.name: views[p.name].view(getattr(torch, _TORCH_NAMES[p.dtype.name]))
        for p in written
        if loose and p.dtype.name in _TORCH_NAMES
    }
    before = {n: v.clone() for n, v in views.items()}
    call.launch()
    call.finish()
    found = Repeated([call.results()])
    first = {n: v.clone() for n, v in views.items()}
    least = {n: v.clone() for n, v in typed.items()}
    greatest = {n: v.clone() for n, v in typed.items()}
    differs = {n: torch.zeros_like(v, dtype=torch.bool) for n, v in views.items() if n not in typed}
    flags = []
    for number in range(launches):
        if number % len(KINDS) == 0 and time.monotonic() > until:
            break
        kind = KINDS[number % len(KINDS)]
        for name, seen in views.items():
            seen.copy_(before[name])
        if WORKSPACE in call.buffers and number % 3:
            space = call.buffers[WORKSPACE]
            gpu.fill(space.address, 0xFF if number % 3 == 1 else 0, space.size)
        if number % 2:
            torch.cuda.synchronize()
        disturbance.begin(kind)
        call.launch()
        if kind == "twice" and not any(p.role == "inout" for p in written):
            call.launch()
        any_differs = torch.zeros((), dtype=torch.bool, device="cuda")
        for name, seen in views.items():
            if name in typed:
                torch.minimum(least[name], typed[name], out=least[name])
                torch.maximum(greatest[name], typed[name], out=greatest[name])
                continue
            wrong = seen != first[name]
            differs[name] |= wrong
            any_differs |= wrong.any()
        flags.append((kind, any_differs))
    call.finish()
    found.launches = len(flags) + 1
    for kind, flag in flags:
        if bool(flag):
            found.differing += 1
            found.kinds[kind] = found.kinds.get(kind, 0) + 1
    found.elements = sum(int(d.sum()) for d in differs.values())
    if typed:
        found.outputs = []
        for ends in (least, greatest):
            for name, seen in typed.items():
                seen.copy_(ends[name])
            torch.cuda.synchronize()
            found.outputs.append(call.results())
    return found


def run_repeated(
    evidence: Evidence,
    ready: Sequence[Ready],
    found: Sequence[Sequence[Job]],
    arch: str,
    jobs: int,
    seconds: float,
    dry: bool,
    launches: int = LAUNCHES,
) -> None:
    """Launch the jobs `found` for each kernel so many times, one of each in turn; verify the first results by other processes."""
    queue = in_turn([[(item, job) for job in own] for item, own in zip(ready, found, strict=True)])
    print(f"{len(queue)} calls of {len(ready)} kernels, built", flush=True)
    until, deadline = (evidence.started + share * seconds for share in (LAUNCHED, 1.0))
    total = calls = 0
    with (
        Verifiers(jobs) as verifiers,
        nullcontext(None) if dry else open_gpu() as gpu,
        nullcontext(None) if gpu is None else disturbing(gpu, arch, SEED) as disturbance,
        ThreadPoolExecutor(3) as pool,
    ):
        modules: dict[str, Any] = {}
        for item, job, arrays in _ahead(pool, queue, gpu is None):
            name = item.source.kernel
            if gpu is None or disturbance is None:
                verifiers.submit(job, None)
                continue
            if time.monotonic() > until:
                break
            kernel = item.kernel
            loose = unordered(kernel)
            try:
                if item.compiled.cu not in modules:
                    modules[item.compiled.cu] = gpu.load(item.built.blob)
                module = modules[item.compiled.cu]
                with prepare_call(gpu, kernel.plan, module, job.sizes, arrays) as call:
                    own = repetitions(gpu, call, disturbance, launches, until, loose)
                    call.check_surroundings()
            except Exception as error:
                known = error.diagnostics if isinstance(error, TileError) else ()
                said = "; ".join(d.message for d in known) or f"{type(error).__name__}: {error}"
                evidence.record(name, False, f"{job.words}: {said}")
                if not known or any(d.code == "E0923" for d in known):
                    evidence.notes.append(f"the GPU stopped at {name}: nothing was launched after")
                    break
                continue
            total += own.launches
            calls += 1
            print(f"{name} {job.words}: {own.words or own.launches}", flush=True)
            evidence.add(name, "launches", own.launches)
            if own.differing:
                evidence.record(name, False, f"{job.words}: {own.words}", sizes=job.numbers)
            for outputs in own.outputs:
                verifiers.submit(job, outputs)
        print(f"{total} launches in {calls} calls", flush=True)
        verifiers.collect(evidence, deadline, late="not verified in time")
    if not dry:
        evidence.notes.append(
            f"{total} launches of {len(ready)} kernels in {calls} of {len(queue)} calls, in turn {', '.join(KINDS)}"
        )
        for item in ready:
            if not evidence.counts.get(item.source.kernel):
                evidence.record(item.source.kernel, False, "not run in time")
    loose_names = sorted({r.source.kernel for r in ready if unordered(r.kernel)})
    if loose_names:
        evidence.notes.append(
            f"{', '.join(loose_names)} add floats in any order: the least and the greatest of each element are within the bounds"
        )


def _ahead(
    pool: ThreadPoolExecutor, queue: Sequence[tuple[Ready, Job]], dry: bool
) -> Iterator[tuple[Ready, Job, Arrays]]:
    """Calls in order with their inputs, which are made while the calls before run."""
    waiting: deque[Future[Arrays]] = deque()
    try:
        for number, (item, job) in enumerate(queue):
            if dry:
                yield item, job, {}
                continue
            while len(waiting) < 4 and number + len(waiting) < len(queue):
                ready, other = queue[number + len(waiting)]
                waiting.append(pool.submit(inputs, other, ready.kernel.program))
            yield item, job, waiting.popleft().result()
    finally:
        for future in waiting:
            future.cancel()
