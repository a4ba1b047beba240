"""Every sample at ragged sizes, with NaN beyond every bound."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import nullcontext

from tilec.runtime.device import open_gpu
from verification.cases import (
    BEYOND,
    Job,
    Verifiers,
    ragged,
    run_jobs,
)
from verification.evidence import Evidence
from verification.kernels import Ready, build_all, sources

WANTED = 20
"""Size sets of a kernel, at least."""


def ragged_part(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """All kernels at 20 size sets or more; those whose inputs bound something once more, with NaN beyond it."""
    evidence = Evidence("ragged")

    def wanted(ready: Ready) -> list[Job]:
        sizes = ragged(ready)
        found = [Job(ready.source, s) for s in sizes]
        if len(sizes) < WANTED:
            evidence.record(ready.source.kernel, False, f"only {len(sizes)} ragged size sets")
        if ready.source.kernel in BEYOND:
            found += [Job(ready.source, s, beyond=True) for s in sizes if all(s.dims.values())]
        return found

    return _run(evidence, wanted, arch, jobs, seconds, dry, only)


def _run(
    evidence: Evidence,
    wanted: Callable[[Ready], list[Job]],
    arch: str,
    jobs: int,
    seconds: float,
    dry: bool,
    only: list[str],
) -> Evidence:
    ready, refused = build_all(sources(only=only), arch, "cubin", jobs)
    evidence.notes += [
        f"{s.kernel} does not compile: {e.diagnostics[0].message}" for s, e in refused
    ]
    found = [wanted(r) for r in ready]
    # one of each kernel in turn, so that a deadline cuts all of them alike
    longest = max(map(len, found), default=0)
    queue = [own[n] for n in range(longest) for own in found if n < len(own)]
    print(f"{len(queue)} calls of {len(ready)} kernels, built", flush=True)
    by_key = {(r.source.path, r.source.kernel): r for r in ready}
    deadline = time.monotonic() + seconds
    with Verifiers(jobs) as verifiers, nullcontext(None) if dry else open_gpu() as gpu:
        run_jobs(queue, by_key, gpu, verifiers, evidence, deadline)
    return evidence
