"""Every sample at ragged sizes, with NaN beyond every bound; the forms of attention that the benches time, too."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import replace
from math import prod

from tilec.runtime.device import open_gpu
from verification.cases import (
    BEYOND,
    Job,
    Verifiers,
    in_turn,
    ragged,
    run_jobs,
)
from verification.evidence import Evidence
from verification.kernels import BENCH, Ready, build_all, sources
from verification.limits import smallest

WANTED = 20
"""Size sets of a kernel, at least."""

FORMS = ("attention_forms", "attention_unseen", "filters")
"""Files of `bench/` whose kernels are verified like the samples."""

FORM_SIZES = 8
"""Ragged size sets of each of these kernels, beside sizes of 1 and 0."""


def ragged_part(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """All kernels at 20 size sets or more; those whose inputs bound something once more, with NaN beyond it."""
    evidence = Evidence("ragged")
    ready, refused = build_all(sources(only=only), arch, "cubin", jobs)
    evidence.notes += [
        f"{s.kernel} does not compile: {e.diagnostics[0].message}" for s, e in refused
    ]
    found = [jobs_of(r) for r in ready]
    for one, own in zip(ready, found, strict=True):
        sizes = [job for job in own if not job.beyond]
        if len(sizes) < WANTED:
            evidence.record(one.source.kernel, False, f"only {len(sizes)} ragged size sets")
    run(evidence, ready, found, jobs, seconds, dry)
    return evidence


def forms(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """The kernels of FORMS at ragged sizes, then every size 1, every size 0, each alone. Their `check` clauses, which know nothing of rows
    without keys, are left out: the interpreter's bounds decide."""
    evidence = Evidence("forms")
    paths = [BENCH / f"{name}.tile" for name in FORMS]
    ready, refused = build_all(sources(paths, only), arch, "cubin", jobs)
    for source, error in refused:
        evidence.record(source.kernel, False, f"refused: {error.diagnostics[0].message}")
    found = [[_answered(job, n) for n, job in enumerate([*_whole(r), *smallest(r)])] for r in ready]
    run(evidence, ready, found, jobs, seconds, dry)
    return evidence


def _whole(ready: Ready) -> list[Job]:
    """A kernel's ragged sizes without a 0, those with the fewest elements."""
    found = [job for job in jobs_of(ready) if all(job.sizes.dims.values())]
    return sorted(found, key=lambda job: prod(job.sizes.dims.values()))[:FORM_SIZES]


def _answered(job: Job, number: int) -> Job:
    """A job without `check` clauses; in every other one arguments that a branch asks about are 0."""
    scalars = dict(job.sizes.scalars)
    if number % 2:
        scalars |= {n: 0 for n, v in scalars.items() if isinstance(v, int) and n != "longest"}
    return replace(job, sizes=replace(job.sizes, scalars=scalars), checked=False)


def jobs_of(ready: Ready, most: int | None = None) -> list[Job]:
    """A kernel's ragged sizes, `most` of them; where its inputs bound something those once more, with NaN beyond it."""
    sizes = ragged(ready)[:most]
    found = [Job(ready.source, s) for s in sizes]
    if ready.source.kernel in BEYOND:
        found += [Job(ready.source, s, beyond=True) for s in sizes if all(s.dims.values())]
    return found


def run(
    evidence: Evidence,
    ready: Sequence[Ready],
    found: Sequence[Sequence[Job]],
    jobs: int,
    seconds: float,
    dry: bool,
) -> None:
    """Launch and verify the jobs `found` for each kernel: one of each in turn, so that a deadline cuts all of them alike."""
    queue = in_turn(found)
    print(f"{len(queue)} calls of {len(ready)} kernels, built", flush=True)
    by_key = {(r.source.path, r.source.kernel): r for r in ready}
    deadline = time.monotonic() + seconds
    with Verifiers(jobs) as verifiers, nullcontext(None) if dry else open_gpu() as gpu:
        run_jobs(queue, by_key, gpu, verifiers, evidence, deadline)
