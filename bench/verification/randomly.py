"""Random programs of `tests/fuzz` on the GPU at ragged sizes, beside the interpreter, each launched again and again."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.choices import Choices
from tests.fuzz.differential import ASYNCHRONOUS, inputs, tables_pay
from tests.fuzz.forms import generate
from tests.fuzz.kernels import Program
from tilec.runtime.arguments import bind_sizes, check_call
from tilec.source.diagnostics import TileError
from verification.cases import Arrays, Job
from verification.evidence import Evidence
from verification.kernels import Ready, Source
from verification.repeated import built, run_repeated

FIRST = 9_000_000
"""The first program's seed."""

PROGRAMS = {ASYNCHRONOUS: 150}
FEWER = 60
"""For every other architecture."""

LAUNCHES = 21


def random_programs(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """Run the part; `only` are seeds."""
    evidence = Evidence("random")
    bulk = arch == ASYNCHRONOUS
    number = PROGRAMS.get(arch, FEWER)
    seeds = list(map(int, only)) or range(FIRST, FIRST + number)
    programs = {f"p{seed}": generate(Choices(seed), seed, bulk) for seed in seeds}
    if bulk:
        programs = {n: p.suited() for n, p in programs.items()}
    with tempfile.TemporaryDirectory() as folder:
        wanted: list[Source] = []
        for name, program in programs.items():
            path = Path(folder) / f"{name}.tile"
            text = program.text(name, program.seed % len(program.tiles))
            path.write_text(text, encoding="utf-8")
            wanted.append(Source(str(path), name))
        with tables_pay():
            ready = built(evidence, wanted, arch, jobs, seconds)
        found = [_jobs(r, programs[r.source.kernel]) for r in ready]
        run_repeated(evidence, ready, found, arch, jobs, seconds, dry, LAUNCHES)
    return evidence


def _jobs(ready: Ready, program: Program) -> list[Job]:
    found = []
    for number, wanted in enumerate([*program.sizes, _larger(program)]):
        try:
            sizes = bind_sizes(ready.kernel.plan, {}, wanted)
            check_call(ready.kernel.plan, sizes)
        except TileError:
            continue
        draw = _special if number == 2 else _drawn
        found.append(Job(ready.source, sizes, program.seed + number, draw=draw))
    return found


def _larger(program: Program) -> dict[str, int]:
    """Several tiles in every dimension: rings that fill, CTAs of several instances. Multiples stay such."""
    found = {}
    for name in program.sizes[0]:
        most = max(sizes[name] for sizes in program.sizes)
        scalar = name[0] == "n"
        found[name] = most if scalar else min(most, 40) * 6 if name[0] == "R" else 4 * most
    return found


def _drawn(job: Job, program: Any) -> Arrays:
    return inputs(program, job.sizes, job.seed, special=False)


def _special(job: Job, program: Any) -> Arrays:
    with np.errstate(all="ignore"):
        return inputs(program, job.sizes, job.seed, special=True)
