"""One search: every candidate of one kernel at one size set, built in parallel, measured one at a time, the fastest timed again."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tilec.compiled import CompiledFile
from tilec.ir.launch import LaunchPlan
from tilec.plan.candidate import Choice
from tilec.source.diagnostics import TileError
from tilec.toolchain.build import Built, Toolchain, compile_cubin
from tilec.toolchain.cache import Cache
from tilec.tuning.measurer import Measurer
from tilec.tuning.protocol import Measure, Measured, Setup
from tilec.tuning.records import (
    Best,
    Found,
    Status,
    Subject,
    Trial,
    append,
    best_json,
    choice_name,
    found_json,
    publish_found,
    trial_json,
)

FINALISTS = 4
"""The fastest candidates, timed again at length besides the untuned one once no compiler runs any more."""

NEAR = 1.15
"""A finalist is at most this much slower than the fastest."""

LIMIT = 30.0
"""Seconds for one candidate by default."""

LIMITS_OF_TARGET = ("E0601", "E0602", "E0603")
"""Messages that say that a candidate does not fit the target."""


class Listener(Protocol):
    """Hears how a search goes."""

    def begin(self, subject: Subject, total: int, known: int) -> None:
        """`total` candidates, of which the results of `known` are there already."""

    def tried(self, trial: Trial, done: int, total: int) -> None:
        """One more result."""

    def built(self, done: int, total: int) -> None:
        """One more was built, or taken from the cache."""

    def end(self, found: Found, nvcc_calls: int) -> None:
        """It is over."""


Alter = Callable[[Choice, str], str]
"""From a candidate and its generated text to the text that is built: how tests plant faults."""


def _as_it_is(choice: Choice, cu: str) -> str:
    return cu


@dataclass
class Search:
    """What a search needs. `compile_choice` compiles the kernel under a choice; `path` is where the lines go, None where that cannot
    be written; `found` what is known already."""

    subject: Subject
    choices: Sequence[Choice]
    compile_choice: Callable[[Choice], CompiledFile]
    setup: Setup
    toolchain: Toolchain | None
    cache: Cache
    path: Path | None
    found: Found
    listener: Listener
    jobs: int = 2
    limit: float = LIMIT
    alter: Alter = _as_it_is
    restore: bool = False
    """`found` is in the cache and not beside the source"""
    nvcc_calls: int = 0
    _ready: dict[str, tuple[LaunchPlan, bytes]] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    """names of the choices that were built first, by text"""

    def run(self) -> Found:
        """Measure what is not known yet. Raises TileError where nothing can be measured at all."""
        missing = [c for c in self.choices if choice_name(c) not in self.found.trials]
        self.listener.begin(self.subject, len(self.choices), len(self.choices) - len(missing))
        if self.restore and self.path is not None:
            append(self.path, *found_json(self.found))
        if not missing and self.found.best is not None:
            self.listener.end(self.found, 0)
            return self.found
        if self.path is not None:
            append(self.path, self.subject.as_json())
        with (
            tempfile.TemporaryDirectory(prefix="tilec-tune-") as folder,
            Measurer(replace(self.setup, folder=folder), self.limit) as measurer,
        ):
            for choice, plan, code in self._built(missing):
                self._measure(measurer, choice, plan, code)
            self._finals(measurer)
        publish_found(self.found)
        self.listener.end(self.found, self.nvcc_calls)
        return self.found

    # ---- building

    def _built(self, missing: Sequence[Choice]) -> Iterator[tuple[Choice, LaunchPlan, bytes]]:
        """Candidates as their machine code gets ready; those that do not fit, or whose text is that of another, are noted."""
        twins: dict[str, list[Choice]] = {}
        work: list[tuple[Choice, LaunchPlan, str]] = []
        for choice in missing:
            try:
                compiled = self.compile_choice(choice)
            except TileError as error:
                first = error.diagnostics[0]
                status: Status = "rejected" if first.code in LIMITS_OF_TARGET else "refused"
                self._note(Trial(choice, status, detail=f"{first.code}: {first.message}"))
                continue
            cu = self.alter(choice, compiled.cu)
            name = choice_name(choice)
            if cu in self._texts:
                twins.setdefault(self._texts[cu], []).append(choice)
                continue
            self._texts[cu] = name
            work.append((choice, compiled.kernels[0].plan, cu))
        for choice, plan, code in self._in_parallel(work):
            self._ready[choice_name(choice)] = plan, code
            yield choice, plan, code
        for first_name, others in twins.items():
            for choice in others:
                self._note(replace(self.found.trials[first_name], choice=choice))

    def _in_parallel(
        self, work: Sequence[tuple[Choice, LaunchPlan, str]]
    ) -> Iterator[tuple[Choice, LaunchPlan, bytes]]:
        if self.toolchain is None:
            for choice, plan, cu in work:
                yield choice, plan, cu.encode()
            return
        pool = ThreadPoolExecutor(max(1, self.jobs))
        try:
            waiting: dict[Future[Built], tuple[Choice, LaunchPlan]] = {
                pool.submit(self._build, cu): (choice, plan) for choice, plan, cu in work
            }
            for done, future in enumerate(as_completed(waiting), 1):
                choice, plan = waiting[future]
                self.listener.built(done, len(work))
                try:
                    built = future.result()
                except TileError as error:
                    if error.exit_code == 3:
                        raise
                    self._note(Trial(choice, "refused", detail=error.diagnostics[0].message))
                    continue
                self.nvcc_calls += not built.cached
                yield choice, plan, built.blob
        finally:
            pool.shutdown(wait=True, cancel_futures=True)

    def _build(self, cu: str) -> Built:
        assert self.toolchain is not None
        return compile_cubin(cu, self.setup.arch, toolchain=self.toolchain, cache=self.cache)

    # ---- measuring

    def _measure(self, measurer: Measurer, choice: Choice, plan: LaunchPlan, code: bytes) -> None:
        answer = measurer.measure(Measure(plan, code, self._fastest()))
        time = statistics.median(answer.times) if answer.times else None
        self._note(Trial(choice, answer.status, time, answer.detail))

    def _fastest(self) -> float | None:
        times = [
            t.microseconds
            for t in self.found.trials.values()
            if t.status == "ok" and t.microseconds is not None
        ]
        return min(times, default=None)

    def _note(self, trial: Trial) -> None:
        """Keep a result: at once in the file, so that what ends the tuner does not lose it."""
        self.found.trials[choice_name(trial.choice)] = trial
        if self.path is not None:
            append(self.path, trial_json(self.subject, trial))
        self.listener.tried(trial, len(self.found.trials), len(self.choices))

    def _finals(self, measurer: Measurer) -> None:
        """Time the fastest and the untuned candidate again, in two rounds, and write which is the best."""
        ranked = sorted(
            (t.microseconds, n, t)
            for n, t in self.found.trials.items()
            if t.status == "ok" and t.microseconds is not None and self._offered(n)
        )
        if not ranked:
            return
        near = [t for us, _, t in ranked[:FINALISTS] if us <= NEAR * ranked[0][0]]
        untuned = self.found.trials.get(choice_name({}))
        if untuned is not None and untuned.status == "ok" and untuned not in near:
            near.append(untuned)
        times: dict[str, list[float]] = {choice_name(t.choice): [] for t in near}
        for _ in range(2):
            for trial in near:
                name = choice_name(trial.choice)
                if self._code(trial.choice) is None:
                    continue
                plan, code = self._ready[name]
                answer: Measured = measurer.measure(Measure(plan, code, final=True))
                times[name] += answer.times
        medians = {
            choice_name(t.choice): statistics.median(times[choice_name(t.choice)])
            if times[choice_name(t.choice)]
            else t.microseconds or 0.0
            for t in near
        }
        # the untuned candidate where nothing is faster
        best = min(near, key=lambda t: (medians[choice_name(t.choice)], bool(t.choice)))
        self.found.best = Best(
            best.choice, medians[choice_name(best.choice)], medians.get(choice_name({}))
        )
        if self.path is not None:
            append(self.path, best_json(self.subject, self.found.best))

    def _offered(self, name: str) -> bool:
        return any(choice_name(c) == name for c in self.choices)

    def _code(self, choice: Choice) -> tuple[LaunchPlan, bytes] | None:
        """A finalist's machine code; built again where an earlier search measured it."""
        name = choice_name(choice)
        if name not in self._ready:
            try:
                compiled = self.compile_choice(choice)
            except TileError:
                return None
            cu = self.alter(choice, compiled.cu)
            twin = self._texts.get(cu)
            if twin in self._ready:
                self._ready[name] = self._ready[twin]
            else:
                work = [(choice, compiled.kernels[0].plan, cu)]
                self._ready.update((name, (p, c)) for _, p, c in self._in_parallel(work))
        return self._ready.get(name)
