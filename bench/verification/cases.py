"""Cases: sizes, seeded inputs with NaN beyond every bound, launches, and verification by other processes.

The GPU is used by this process alone; the interpreter, which takes far longer, runs in a pool that was started before.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, TypeVar

import numpy as np

from tilec.compiler import compile_file
from tilec.jobs.running import RunRequest
from tilec.reference.inputs import make_inputs
from tilec.reference.numbers import Array
from tilec.runtime.arguments import CallSizes, bind_sizes, check_call
from tilec.runtime.arrays import empty_array
from tilec.runtime.device import Gpu
from tilec.runtime.gpu_run import prepare_call
from tilec.runtime.kernel_run import KernelRunner
from tilec.runtime.sizes import ragged_sizes
from tilec.runtime.verify import (
    Case,
    Tolerance,
    failures,
    interpreted,
    interpreter_bounds,
    summary,
    verify,
)
from tilec.source.diagnostics import TileError
from tilec.syntax import ast
from verification.evidence import Evidence
from verification.kernels import Ready, Source, syntax_of

SEED = 20
MOST_SIZES = 26
"""Ragged size sets of a kernel, at most."""

EXAMPLE_OPERATIONS = 4 * 10**9
"""Operations of the interpreter above which an example size is verified on sampled instances."""

Arrays = dict[str, Array]


@dataclass(frozen=True)
class Job:
    """One call of one kernel: `beyond` sets everything outside of its bounds to NaN, `offsets` shift addresses by elements; `checked`:
    the kernel's `check` clauses are evaluated too."""

    source: Source
    sizes: CallSizes
    seed: int = SEED
    beyond: bool = False
    offsets: Mapping[str, int] = field(default_factory=dict)
    operations: int = 10**11
    checked: bool = True
    draw: Callable[[Job, Any], Arrays] | None = None
    """what makes the arguments of a program in place of `make_inputs`"""
    rtol: float | None = None
    """in place of the interpreter's bounds"""

    @property
    def numbers(self) -> dict[str, Any]:
        """Sizes, strides and scalars by name."""
        return {**self.sizes.numbers, **self.sizes.scalars}

    @property
    def words(self) -> str:
        """Sizes and what is special."""
        special = [f"{n} + {o}" for n, o in self.offsets.items()] + [
            "NaN beyond bounds"
        ] * self.beyond
        return f"{self.sizes}" + (f" ({', '.join(special)})" if special else "")


# ------------------------------------------------------------------------------------- inputs


def _packed(arrays: Arrays, names: tuple[str, ...]) -> None:
    """`starts` begin after row 0 and end before the last row; the rows outside are NaN."""
    starts = arrays["starts"]
    rows = arrays[names[0]].shape[0]
    if starts.size:
        first, last = rows // 7, rows - rows // 5
        starts[...] = np.clip(starts, first, last)
        starts[0], starts[-1] = first, last
        if starts.size == 1:
            first = last = 0
        for name in names:
            arrays[name][:first] = np.nan
            arrays[name][last:] = np.nan


def _lengths(arrays: Arrays) -> None:
    """Keys and values from `length[b]` on are NaN."""
    for b, length in enumerate(arrays["length"].tolist()):
        for name in ("k", "v"):
            arrays[name][b, :, length:, :] = np.nan


def _routed(arrays: Arrays) -> None:
    """Tokens that no row takes, and experts of no block, are NaN."""
    unused = np.setdiff1d(np.arange(arrays["x"].shape[0]), arrays["token"])
    arrays["x"][unused] = np.nan
    for name in ("gate", "up"):
        experts = np.setdiff1d(np.arange(arrays[name].shape[0]), arrays["expert_of_block"])
        arrays[name][experts] = np.nan


def _counted(arrays: Arrays) -> None:
    """Nothing but guard bands, which are NaN, is beyond these kernels' bounds."""


BEYOND: dict[str, Callable[[Arrays], None]] = {
    "packed": lambda a: _packed(a, ("q", "k", "v")),
    "grouped_gemm": lambda a: _packed(a, ("x",)),
    "flash_decode": _lengths,
    "moe_swiglu": _routed,
}
"""What sets everything beyond the bounds of a kernel's inputs to NaN; for the others the guard bands do."""


def inputs(job: Job, program: Any) -> Arrays:
    """The arguments of a call; the same in every process."""
    if job.draw is not None:
        return job.draw(job, program)
    arrays = make_inputs(program, job.sizes.numbers, dict(job.sizes.scalars), job.seed)
    if job.beyond:
        BEYOND.get(job.source.kernel, _counted)(arrays)
    return arrays


# ------------------------------------------------------------------------------------- sizes


def _runner(ready: Ready, **options: Any) -> KernelRunner:
    files, _ = syntax_of(ready.source)
    request = RunRequest(file=ready.source.path, kernel=ready.source.kernel, seed=SEED, **options)
    return KernelRunner(request, ready.source.path, ready.compiled, files, None)


def ragged(ready: Ready) -> list[CallSizes]:
    """20 size sets or more at the edges of a kernel's tiles; scalars as in its example, but for what bounds the rows of a group."""
    kernel = ready.kernel
    scalars = dict(example(ready).scalars)
    found: list[CallSizes] = []
    for wanted in ragged_sizes(kernel.program, MOST_SIZES):
        sizes = bound(ready, wanted, scalars)
        if sizes is not None and sizes not in found:
            found.append(sizes)
    return found


def bound(
    ready: Ready, wanted: Mapping[str, int], scalars: Mapping[str, Any] | None = None
) -> CallSizes | None:
    """A call at sizes made consistent, with the example's scalars or these; None where a contract on scalars, or between such sizes, refuses it."""
    dims = _consistent(dict(wanted))
    given = dict(example(ready).scalars if scalars is None else scalars)
    if "longest" in given:
        given["longest"] = max(dims.get("TOTAL", 0), dims.get("ROWS", 0)) + 5
    sizes = bind_sizes(ready.kernel.plan, {**dims, **given})
    try:
        check_call(ready.kernel.plan, sizes)
    except TileError:
        return None
    return sizes


def _consistent(dims: dict[str, int]) -> dict[str, int]:
    """Sizes whose relation no contract can state: ends of groups are one more than groups, and routed rows have an expert."""
    if "E1" in dims:
        dims["E1"] = dims["E"] + 1
    elif "E" in dims:
        dims["E"] = max(1, dims["E"])
    if dims.get("NSEQ1") == 0:
        dims["NSEQ1"] = 4
    return dims


def example(ready: Ready, device: str = "gpu") -> CallSizes:
    """The sizes of a kernel's `example` clause."""
    return _runner(ready, size=device).cases(ready.kernel)[0]


# ------------------------------------------------------------------------------------- running


class Verifiers:
    """Processes that interpret and compare. Enter before a GPU is opened."""

    def __init__(self, jobs: int):
        os.environ["OMP_NUM_THREADS"] = os.environ["OPENBLAS_NUM_THREADS"] = "2"
        self.jobs = jobs
        self.pool = self._start()
        self.waiting: dict[Future[dict[str, Any]], tuple[Job, Arrays | None]] = {}

    def _start(self) -> ProcessPoolExecutor:
        return ProcessPoolExecutor(self.jobs, mp_context=get_context("spawn"))

    def __enter__(self) -> Verifiers:
        return self

    def __exit__(self, *exception: object) -> None:
        if self.waiting:
            for process in list((self.pool._processes or {}).values()):
                process.terminate()
        self.pool.shutdown(wait=not self.waiting, cancel_futures=True)

    def submit(self, job: Job, outputs: Arrays | None) -> None:
        """Verify what a call wrote; None: interpret it first (a dry run)."""
        if getattr(self.pool, "_broken", False):
            self.pool = self._start()
        self.waiting[self.pool.submit(verified, job, outputs)] = (job, outputs)

    def collect(self, evidence: Evidence, deadline: float, late: str = "") -> None:
        """Wait until `deadline` and record. What is not verified by then is a failure that says so, or is counted as `late`. Where a process was
        killed, what it and the others had left is verified once more."""
        again = self._collect(evidence, deadline, late, retry=True)
        if again:
            evidence.notes.append(f"a verifying process was killed: {len(again)} cases once more")
            for job, outputs in again:
                self.submit(job, outputs)
            self._collect(evidence, deadline, late, retry=False)

    def _collect(
        self, evidence: Evidence, deadline: float, late: str, *, retry: bool
    ) -> list[tuple[Job, Arrays | None]]:
        wait_for(self.waiting, timeout=max(0.0, deadline - time.monotonic()))
        again = []
        for future, (job, outputs) in list(self.waiting.items()):
            if not future.done() and late:
                evidence.add(job.source.kernel, late)
                continue
            if not future.done():
                evidence.record(job.source.kernel, False, f"{job.words}: not verified in time")
                continue
            del self.waiting[future]
            error = future.exception()
            if isinstance(error, BrokenProcessPool) and retry:
                again.append((job, outputs))
            elif error:
                evidence.record(job.source.kernel, False, f"{job.words}: {error}")
            else:
                found = future.result()
                evidence.record(job.source.kernel, found.pop("ok"), found.pop("why"), **found)
        return again


@lru_cache(maxsize=64)
def _program(path: str, kernel: str, defines: tuple[tuple[str, str], ...]) -> Any:
    compiled = compile_file(path, kernel=kernel, defines=dict(defines), stop="tile-ir")
    return compiled.kernel(kernel).program


def verified(job: Job, outputs: Arrays | None) -> dict[str, Any]:
    """Interpret a call with bounds, compare, and say how; runs in a process of its own."""
    start = time.monotonic()
    source = job.source
    program = _program(source.path, source.kernel, tuple(sorted(source.defines.items())))
    files, syntax = syntax_of(source)
    case = Case(program, files, syntax, job.sizes, inputs(job, program), job.seed)
    if outputs is None:
        outputs = _interpreted(case)
    bounds = interpreter_bounds(case, limit=job.operations, processes=1)
    if job.beyond or not job.checked or not bounds.complete or job.sizes.dims.get("TOKENS") == 0:
        # the check clause multiplies zeros with the NaN beyond the bounds, takes whole arrays, and indexes row 0
        clauses = tuple(c for c in syntax.clauses if not isinstance(c, ast.Check))
        case = replace(case, kernel=replace(syntax, clauses=clauses))
    if job.rtol is not None and bounds.complete:
        bounds = replace(bounds, errors={n: np.zeros_like(e) for n, e in bounds.errors.items()})
    found = verify(case, outputs, bounds, Tolerance(job.rtol))
    wrong = failures(found)
    compared = sum(f.comparison.elements - f.comparison.unknown for f in found)
    ok = not wrong and bool(found)
    why = "; ".join(wrong) or bounds.problem or "nothing was compared"
    return {
        "ok": ok,
        "why": f"{job.words}: {why}",
        "sizes": job.numbers,
        "special": job.words[len(str(job.sizes)) :].strip(),
        "against": list(summary(found)),
        "compared": compared,
        "seed": job.seed,
        "seconds": round(time.monotonic() - start, 2),
    }


def _interpreted(case: Case) -> Arrays:
    env = case.sizes.environment
    outputs = {
        t.name: case.arrays[t.name].copy() if t.role == "inout" else empty_array(t, env)
        for t in case.written
    }
    interpreted(case, outputs)
    return outputs


T = TypeVar("T")


def in_turn(found: Sequence[Sequence[T]]) -> list[T]:
    """One of each in turn, so that a deadline cuts all of them alike."""
    longest = max(map(len, found), default=0)
    return [own[n] for n in range(longest) for own in found if n < len(own)]


def run_jobs(
    jobs: Iterable[Job],
    ready: Mapping[tuple[str, str], Ready],
    gpu: Gpu | None,
    verifiers: Verifiers,
    evidence: Evidence,
    deadline: float,
    *,
    ptx: bool = False,
) -> None:
    """Launch every job (none without a GPU) and hand what it wrote to the verifiers. The surroundings are checked here."""
    modules: dict[tuple[str, str], Any] = {}
    for job in jobs:
        key = (job.source.path, job.source.kernel)
        if time.monotonic() > deadline:
            evidence.record(job.source.kernel, False, f"{job.words}: not run in time")
            continue
        if gpu is None:
            verifiers.submit(job, None)
            continue
        kernel = ready[key].kernel
        try:
            if key not in modules:
                blob = ready[key].built.blob
                modules[key] = gpu.load(blob + b"\0" if ptx else blob)
            arrays = inputs(job, kernel.program)
            with prepare_call(
                gpu, kernel.plan, modules[key], job.sizes, arrays, offsets=job.offsets
            ) as call:
                call.launch()
                call.finish()
                outputs = call.results()
                call.check_surroundings()
        except Exception as error:
            # memory that cannot be given back after a fault hides the fault behind the driver's own error
            known = error.diagnostics if isinstance(error, TileError) else ()
            said = "; ".join(d.message for d in known) or f"{type(error).__name__}: {error}"
            evidence.record(job.source.kernel, False, f"{job.words}: {said}")
            if not known or any(d.code == "E0923" for d in known):
                evidence.notes.append(
                    f"the GPU stopped at {job.source.kernel}: nothing was launched after that"
                )
                break
            continue
        verifiers.submit(job, outputs)
    verifiers.collect(evidence, deadline)
