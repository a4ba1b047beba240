"""Candidates on their way to the machine: compiled, ranked, built in parallel."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, field

from tilec.compiled import CompiledFile, CompiledKernel
from tilec.ir.launch import LaunchPlan
from tilec.plan.candidate import Choice
from tilec.source.diagnostics import TileError
from tilec.toolchain.build import Built
from tilec.tuning.records import Status, Trial, choice_name

LIMITS_OF_TARGET = ("E0601", "E0602", "E0603")
"""Messages that say that a candidate does not fit the target."""

Alter = Callable[[Choice, str], str]
"""From a candidate and its generated text to the text that is built: how tests plant faults."""


def as_it_is(choice: Choice, cu: str) -> str:
    """The text as it was generated."""
    return cu


@dataclass(frozen=True)
class Compiled:
    """A candidate that fits the target; `cost` orders candidates, the likely fastest first."""

    choice: Choice
    kernel: CompiledKernel
    cu: str
    cost: float

    @property
    def name(self) -> str:
        """The candidate's."""
        return choice_name(self.choice)


@dataclass(frozen=True)
class Ready:
    """A candidate that can be measured: machine code, or the text for the emulator."""

    choice: Choice
    plan: LaunchPlan
    code: bytes

    @property
    def name(self) -> str:
        """The candidate's."""
        return choice_name(self.choice)


@dataclass
class Builder:
    """Compiles each candidate once. `compile_choice` compiles the kernel under a choice, `cost` estimates it, `build` is nvcc, None on
    the emulator; `jobs` builds run at a time."""

    compile_choice: Callable[[Choice], CompiledFile]
    cost: Callable[[CompiledKernel], float]
    build: Callable[[str], Built] | None
    jobs: int
    alter: Alter = as_it_is
    nvcc_calls: int = 0
    _compiled: dict[str, Compiled | Trial] = field(default_factory=dict)

    def compiled(self, choice: Choice) -> Compiled | Trial:
        """A candidate compiled and ranked, or what became of it."""
        name = choice_name(choice)
        if name not in self._compiled:
            self._compiled[name] = self._compile(choice)
        return self._compiled[name]

    def _compile(self, choice: Choice) -> Compiled | Trial:
        try:
            file = self.compile_choice(choice)
        except TileError as error:
            first = error.diagnostics[0]
            status: Status = "rejected" if first.code in LIMITS_OF_TARGET else "refused"
            return Trial(choice, status, detail=f"{first.code}: {first.message}")
        kernel = file.kernels[0]
        return Compiled(choice, kernel, self.alter(choice, file.cu), self.cost(kernel))

    def built(
        self, work: Sequence[Compiled], heard: Callable[[int, int], None]
    ) -> Iterator[Ready | Trial]:
        """Candidates as their machine code gets ready, the first of `work` first where several wait. Raises TileError where the machine
        lacks something."""
        if self.build is None:
            for one in work:
                yield Ready(one.choice, one.kernel.plan, one.cu.encode())
            return
        pool = ThreadPoolExecutor(max(1, self.jobs))
        try:
            waiting: dict[Future[Built], Compiled] = {
                pool.submit(self.build, one.cu): one for one in work
            }
            for done, future in enumerate(as_completed(waiting), 1):
                one = waiting[future]
                heard(done, len(work))
                try:
                    built = future.result()
                except TileError as error:
                    if error.exit_code == 3:
                        raise
                    yield Trial(one.choice, "refused", detail=error.diagnostics[0].message)
                    continue
                self.nvcc_calls += not built.cached
                yield Ready(one.choice, one.kernel.plan, built.blob)
        finally:
            pool.shutdown(wait=True, cancel_futures=True)
