"""One search: candidates of one kernel at one size set, built in parallel, measured one at a time in each lane, the fastest raced again."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Protocol

from tilec.compiled import CompiledFile, CompiledKernel
from tilec.plan.candidate import Choice
from tilec.toolchain.build import Built, Toolchain, compile_cubin
from tilec.toolchain.cache import Cache
from tilec.tuning.building import Alter, Builder, Compiled, Ready, as_it_is
from tilec.tuning.cost import estimate
from tilec.tuning.lanes import Lane, Lanes, local_lanes, measure_all
from tilec.tuning.protocol import Measure, Measured, Race, Setup
from tilec.tuning.records import (
    Best,
    Found,
    Subject,
    Trial,
    append,
    best_json,
    choice_name,
    found_json,
    publish_found,
    trial_json,
)
from tilec.tuning.strategies import PATIENCE, Kind, make_strategy, since_better

FINALISTS = 4
"""The fastest candidates, timed again at length besides the untuned one once no compiler runs any more."""

NEAR = 1.15
"""A finalist is at most this much slower than the fastest."""

LIMIT = 30.0
"""Seconds for one candidate by default."""


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


@dataclass(frozen=True)
class Effort:
    """How far a search goes. `patience`: measured candidates in a row that were no better, after which it ends, None for that of the
    kind; `trials`: candidates measured at most; `seed` of a sampler."""

    kind: Kind = "exhaustive"
    patience: int | None = None
    trials: int | None = None
    seed: int = 0

    @property
    def stops(self) -> bool:
        """Whether it may end before all were tried."""
        return self.within is not None or self.trials is not None

    @property
    def within(self) -> int | None:
        """The patience that holds."""
        return PATIENCE[self.kind] if self.patience is None else self.patience


@dataclass
class Search:
    """What a search needs. `compile_choice` compiles the kernel under a choice; `path` is where the lines go, None where that cannot
    be written; `found` what is known already; `lanes` opens the places where it measures."""

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
    alter: Alter = as_it_is
    restore: bool = False
    """`found` is in the cache and not beside the source"""
    effort: Effort = field(default_factory=Effort)
    lanes: Lanes = local_lanes
    operations: float | None = None
    """of one call, None where nothing counts them"""
    moved: float = 0.0
    """bytes that one call moves at least"""
    _builder: Builder = field(init=False)
    _ready: dict[str, Ready] = field(default_factory=dict)
    _texts: dict[str, str] = field(default_factory=dict)
    """names of the choices that were built first, by text"""

    @property
    def nvcc_calls(self) -> int:
        """How many there were; what came from the cache does not count."""
        return self._builder.nvcc_calls

    def run(self) -> Found:
        """Measure what is not known yet. Raises TileError where nothing can be measured at all."""
        build = self._build if self.toolchain is not None else None
        self._builder = Builder(self.compile_choice, self._cost, build, self.jobs, self.alter)
        missing = [c for c in self.choices if choice_name(c) not in self.found.trials]
        self.listener.begin(self.subject, len(self.choices), len(self.choices) - len(missing))
        if self.restore and self.path is not None:
            append(self.path, *found_json(self.found))
        if self._is_over(missing):
            self.listener.end(self.found, 0)
            return self.found
        if self.path is not None:
            append(self.path, self.subject.as_json())
        with (
            tempfile.TemporaryDirectory(prefix="tilec-tune-") as folder,
            self.lanes(replace(self.setup, folder=folder), self.limit) as lanes,
        ):
            self._try(lanes)
            self._finals(lanes)
        publish_found(self.found)
        self.listener.end(self.found, self.nvcc_calls)
        return self.found

    def _is_over(self, missing: Sequence[Choice]) -> bool:
        """Whether an earlier search has done what this one would do."""
        if self.found.best is None:
            return False
        return not missing or (self.effort.stops and self._enough())

    # ---- trying

    def _try(self, lanes: Sequence[Lane]) -> None:
        """Batch after batch until there is none, or none got better for long enough."""
        strategy = make_strategy(
            self.effort.kind,
            self.choices,
            self._ranked,
            step=max(4, 2 * len(lanes), min(self.jobs, 16)),
            seed=self.effort.seed,
            stops=self.effort.stops,
        )
        while not self._enough():
            batch = strategy.batch(self.found.trials)
            if self.effort.trials is not None:
                batch = batch[: max(0, self.effort.trials - self._measured())]
            if not batch:
                return
            measure_all(lanes, self._built(batch), self._fastest, self._measured_one)
            self._copy_twins(batch)

    def _enough(self) -> bool:
        if not self.effort.stops:
            return False
        if self.effort.trials is not None and self._measured() >= self.effort.trials:
            return True
        within = self.effort.within
        return within is not None and since_better(self.found.trials.values()) >= within

    def _measured(self) -> int:
        """Candidates that reached the machine."""
        return sum(
            t.status not in ("rejected", "refused") and not t.twin
            for t in self.found.trials.values()
        )

    def _ranked(self, choices: Sequence[Choice]) -> list[Compiled]:
        """Those that fit the target, the likely fastest first; the others are noted."""
        fitting = []
        for choice in choices:
            compiled = self._builder.compiled(choice)
            if isinstance(compiled, Trial):
                self._note(compiled)
            else:
                fitting.append(compiled)
        return sorted(fitting, key=lambda c: c.cost)

    def _cost(self, kernel: CompiledKernel) -> float:
        found = estimate(kernel, self.setup.arch, self.setup.sizes)
        return float("inf") if found is None else found.microseconds

    def _built(self, batch: Sequence[Choice]) -> Iterator[Ready]:
        """Candidates as their machine code gets ready, less those whose text another one has."""
        work: list[Compiled] = []
        for choice in batch:
            compiled = self._builder.compiled(choice)
            if isinstance(compiled, Trial):
                self._note(compiled)
            elif self._texts.setdefault(compiled.cu, compiled.name) == compiled.name:
                work.append(compiled)
        for one in self._builder.built(work, self.listener.built):
            if isinstance(one, Trial):
                self._note(one)
            else:
                self._ready[one.name] = one
                yield one

    def _copy_twins(self, batch: Sequence[Choice]) -> None:
        """The results of candidates whose text another one has."""
        for choice in batch:
            compiled = self._builder.compiled(choice)
            if isinstance(compiled, Trial) or compiled.name in self.found.trials:
                continue
            twin = self._texts[compiled.cu]
            self._note(replace(self.found.trials[twin], choice=choice, twin=twin))

    def _build(self, cu: str) -> Built:
        assert self.toolchain is not None
        return compile_cubin(cu, self.setup.arch, toolchain=self.toolchain, cache=self.cache)

    def _measured_one(self, ready: Ready, answer: Measured) -> None:
        time = statistics.median(answer.times) if answer.times else None
        self._note(Trial(ready.choice, answer.status, time, answer.detail))

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

    # ---- the end

    def _finals(self, lanes: Sequence[Lane]) -> None:
        """Race the fastest and the untuned candidate, and write which is the best."""
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
        times = self._raced(lanes[0], [t.choice for t in near])
        medians = {}
        for trial in near:
            name = choice_name(trial.choice)
            own = times.get(name)
            medians[name] = statistics.median(own) if own else trial.microseconds or 0.0
        # the untuned candidate where nothing is faster
        best = min(near, key=lambda t: (medians[choice_name(t.choice)], bool(t.choice)))
        self.found.best = Best(
            best.choice,
            medians[choice_name(best.choice)],
            medians.get(choice_name({})),
            self.effort.kind,
        )
        if self.path is not None:
            append(self.path, best_json(self.subject, self.found.best))

    def _raced(self, lane: Lane, choices: Sequence[Choice]) -> dict[str, list[float]]:
        """Times of the finalists, one call of each in turn; one after the other where not all of them can be held at once."""
        entries = [ready for choice in choices if (ready := self._code(choice)) is not None]
        answer = lane.race(Race(tuple((r.plan, r.code) for r in entries)))
        if answer.status == "ok":
            return {r.name: list(times) for r, times in zip(entries, answer.times, strict=True)}
        times: dict[str, list[float]] = {r.name: [] for r in entries}
        for _ in range(2):
            for r in entries:
                times[r.name] += lane.measure(Measure(r.plan, r.code, final=True)).times
        return times

    def _offered(self, name: str) -> bool:
        return any(choice_name(c) == name for c in self.choices)

    def _code(self, choice: Choice) -> Ready | None:
        """A finalist's machine code; built again where an earlier search measured it."""
        name = choice_name(choice)
        if name not in self._ready:
            compiled = self._builder.compiled(choice)
            if isinstance(compiled, Trial):
                return None
            twin = self._ready.get(self._texts.get(compiled.cu, ""))
            if twin is not None:
                self._ready[name] = replace(twin, choice=choice)
            for one in self._builder.built([] if twin else [compiled], self.listener.built):
                if isinstance(one, Ready):
                    self._ready[name] = one
        return self._ready.get(name)
