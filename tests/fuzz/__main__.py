"""`python -m tests.fuzz`: random programs by number and seed; what is wrong is shrunk and saved as a case."""

from __future__ import annotations

import argparse
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.fuzz.cases import save
from tests.fuzz.choices import Choices, shrink
from tests.fuzz.differential import ASYNCHRONOUS, Problem, Tally, run_batch
from tests.fuzz.forms import generate

BATCH = 24


def problems_of(made: Sequence[int], seed: int, arch: str | None = None) -> list[Problem]:
    """What is wrong with the program of a sequence of choices."""
    tally = Tally()
    run_batch([generate(Choices(given=made), seed, arch == ASYNCHRONOUS)], tally, arch)
    return tally.problems


def kind_of(problem: Problem) -> str:
    """What two problems have in common that are the same fault, roughly."""
    first = problem.what.split(":")[0].split("`")[0]
    return first.split()[0] if first.startswith("E") else first[:20]


def shrunk(seed: int, kind: str, budget: int, arch: str | None = None) -> Problem | None:
    """The smallest program found with a problem of that kind."""
    choices = Choices(seed)
    generate(choices, seed, arch == ASYNCHRONOUS)

    def fails(made: Sequence[int]) -> bool:
        return any(kind_of(p) == kind for p in problems_of(made, seed, arch))

    made = shrink(choices.made, fails, budget)
    return next((p for p in problems_of(made, seed, arch) if kind_of(p) == kind), None)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("-n", type=int, default=200, help="how many programs")
    parser.add_argument("--seed", type=int, default=0, help="the first program's seed")
    parser.add_argument("--json", help="where to record the run")
    parser.add_argument("--shrink", type=int, default=150, help="questions asked to shrink one")
    parser.add_argument("--save", action="store_true", help="save what is wrong as cases")
    parser.add_argument("--arch", help="for this alone; else sm_90, and with products sm_90a too")
    options = parser.parse_args()
    bulk = options.arch == ASYNCHRONOUS
    tally, start, at = Tally(), time.time(), commit()
    for first in range(options.seed, options.seed + options.n, BATCH):
        seeds = range(first, min(first + BATCH, options.seed + options.n))
        known = len(tally.problems)
        run_batch([generate(Choices(s), s, bulk) for s in seeds], tally, options.arch)
        for problem in {p.program.seed: p for p in tally.problems[known:]}.values():
            print(f"seed {problem.program.seed}: {problem.what}", flush=True)
            if options.save:
                small = shrunk(problem.program.seed, kind_of(problem), options.shrink, options.arch)
                print(save(small or problem), flush=True)
        if options.json:
            record(Path(options.json), options, tally, time.time() - start, at)
    print(
        f"{tally.programs} programs, {tally.kernels} kernels, {len(tally.asynchronous)} programs with roles, {tally.launches} launches, {tally.with_roles} of them with roles, "
        f"{tally.elements} elements compared, {tally.scalars} calls confirmed by plain loops, {sum(tally.refused.values())} refused, "
        f"{len({p.program.seed for p in tally.problems})} with a problem, {time.time() - start:.0f} s"
    )
    print({name: round(value, 1) for name, value in tally.seconds.items()}, tally.refused)
    return 1 if tally.problems else 0


def commit() -> str:
    """What is checked out."""
    command = ["git", "rev-parse", "HEAD"]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()


def record(path: Path, options: argparse.Namespace, tally: Tally, seconds: float, at: str) -> None:
    """The run so far as JSON; `at` is the commit that it began with."""
    document = {
        "command": shlex.join(["python", "-m", "tests.fuzz", *sys.argv[1:]]),
        "programs": tally.programs,
        "seed": options.seed,
        "kernels": tally.kernels,
        "programs_with_roles": len(tally.asynchronous),
        "launches": tally.launches,
        "launches_with_roles": tally.with_roles,
        "elements_compared": tally.elements,
        "calls_confirmed_by_plain_loops": tally.scalars,
        "refused": dict(sorted(tally.refused.items())),
        "mismatches": sorted({p.program.seed for p in tally.problems}),
        "seconds": round(seconds),
        "commit": at,
    }
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
