"""The programs that one kernel is compiled as: with which `auto` tile sizes, and beside it those for other sizes and addresses, and for
each outcome of what the host can ask."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from tilec.attempts import (
    beside_warpgroups,
    by_size_attempts,
    chosen_attempts,
    even_attempts,
    has_products,
    is_uneven,
    slots_of_warps,
    suits_warpgroups,
    table_attempts,
    tiles_are_open,
)
from tilec.lazy_dataclass import dataclass
from tilec.source.diagnostics import Sink
from tilec.targets.table import TARGETS

if TYPE_CHECKING:
    from tilec.ir.tile_ir import Program
    from tilec.passes.unswitch import Outcome, Version
    from tilec.plan.candidate import Candidate, Choice
    from tilec.syntax import ast
    from tilec.syntax.loading import Program as Files


@dataclass(frozen=True)
class Trials:
    """A kernel to be tried with tile sizes. `choice`: what tuning found; `elsewhere`: bracket parameters of other kernels; `outcomes`: what
    is taken for the case."""

    files: Files
    item: ast.Kernel
    defines: Mapping[str, str]
    choice: Choice
    elsewhere: Sequence[str]
    outcomes: tuple[Outcome, ...] = ()

    def tried(
        self,
        tiles: Sequence[int],
        chosen: Mapping[str, int] | None,
        sink: Sink,
        opened: bool = False,
    ) -> tuple[Program | None, Candidate | None]:
        """The kernel with some `auto` tile sizes, `chosen` going before `tiles`, all tile sizes being `auto` where they are `opened`; without a
        candidate or a program where `sink` says why."""
        from tilec.analysis.analyse import analyse
        from tilec.plan.parameters import make_candidate

        candidate = make_candidate(
            self.item,
            self.files.scope(self.files.main),
            self.defines,
            sink,
            elsewhere=self.elsewhere,
            product_tiles=tiles,
            chosen=chosen,
            opened=opened,
        )
        if candidate is None:
            return None, None
        kept = {n: v for n, v in self.choice.items() if not (opened and n in candidate.tiles)}
        candidate = candidate.with_choice(kept)
        program = analyse(self.files, self.item, self.files.main, candidate, sink)
        if program is not None and self.outcomes:
            from tilec.passes.unswitch import assuming

            program = assuming(program, self.outcomes)
        return program, candidate

    def again(
        self, tiles: Sequence[int], chosen: Mapping[str, int] | None = None
    ) -> tuple[Program, Candidate] | None:
        """The same, None where there is none."""
        program, candidate = self.tried(tiles, chosen, Sink())
        return None if program is None or candidate is None else (program, candidate)

    def opened(self, tiles: Sequence[int]) -> tuple[Program, Candidate] | None:
        """The same whatever tile sizes are given."""
        program, candidate = self.tried(tiles, None, Sink(), opened=True)
        return None if program is None or candidate is None else (program, candidate)


@dataclass(frozen=True)
class Planned:
    """What a kernel is compiled as, as `AnalysedKernel` has it, and what was said of it."""

    candidate: Candidate | None
    program: Program | None
    sink: Sink
    general: tuple[Program, Candidate] | None = None
    by_size: tuple[tuple[Program, Candidate], ...] = ()


def plan_kernel(trials: Trials, arch: str, smaller: int) -> Planned:
    """The first tile sizes that suit a kernel, and others that go with them; products of warps have none of the first `smaller`."""
    candidate, program, trial = None, None, Sink()
    attempts = table_attempts(arch, smaller)
    asked = suited = False
    shallow: tuple[Program, Candidate, Sink] | None = None
    while attempts:
        attempt = attempts.pop(0)
        trial = Sink()
        program, candidate = trials.tried(attempt.tiles, attempt.chosen, trial)
        if candidate is None:
            break
        if program is None or not (tiles_are_open(candidate) and has_products(program)):
            break
        others = [] if asked else chosen_attempts(program, arch, candidate, smaller)
        asked = True
        if others:
            attempts = others
            continue
        if attempt.uneven and not is_uneven(program):
            continue
        if attempt.warps:
            room = slots_of_warps(program, arch, candidate, attempt.chained)
            if room > 1:
                break
            shallow = shallow or ((program, candidate, trial) if room else None)
        elif suits_warpgroups(
            program, arch, candidate, attempt.streams, attempt.shared, attempt.apart
        ):
            suited = True
            break
    else:
        if shallow is not None:
            program, candidate, trial = shallow
    if program is None or candidate is None or trial.errors:
        return Planned(candidate, program, trial)
    if not suited:
        beside = None
        if not trials.outcomes and _needs_others_beside(program, candidate, arch):
            beside = beside_warpgroups(trials.opened, trials.opened, arch, smaller)
        return Planned(candidate, program, trial, beside)
    general = None
    tilings: list[tuple[Program, Candidate] | None] = []
    again = trials.again
    if attempt.shared:
        # beside tiles for several CTAs those that one has by itself
        own = [x for x in attempts if x.streams and not x.shared]
        alone = (again(x.tiles, x.chosen) for x in own)
        general = next((x for x in alone if x and suits_warpgroups(x[0], arch, x[1], True)), None)
    if attempt.streams:
        tilings = [again(x.tiles, x.chosen) for x in by_size_attempts(program, arch)]
    else:
        # a version has none: what is beside versions takes all outcomes
        if not trials.outcomes:
            general = beside_warpgroups(again, trials.opened, arch, smaller)
        if general is not None and general[1].values == candidate.values:
            general = None
        tilings = [again(x.tiles, x.chosen) for x in even_attempts(program, arch, candidate)]
    if attempt.uneven:
        others = [x for x in attempts if not x.uneven and not x.warps]
        wide = (again(x.tiles) for x in others)
        tilings = [next((x for x in wide if x and suits_warpgroups(x[0], arch, x[1])), None)]
    by_size = tuple(x for x in tilings if x and x[1].values != candidate.values)
    return Planned(candidate, program, trial, general, by_size)


def _needs_others_beside(program: Program, candidate: Candidate, arch: str) -> bool:
    """Whether tile sizes that are given suit the target's products of warpgroups and no products of warps."""
    if tiles_are_open(candidate) or not has_products(program):
        return False
    if "wgmma" not in TARGETS[arch].features or slots_of_warps(program, arch, candidate):
        return False
    return any(suits_warpgroups(program, arch, candidate, apart=x) for x in (False, True))


def versions(trials: Trials, planned: Planned, arch: str, smaller: int) -> tuple[Version, ...]:
    """The kernel for each outcome of what the host can ask, () where there is nothing, or for targets whose products know no better form."""
    if "wgmma" not in TARGETS[arch].features or planned.program is None or planned.sink.errors:
        return ()
    if not has_products(planned.program):
        return ()
    from tilec.passes.unswitch import MOST_BRANCHES, Version, condition_of

    question = condition_of(planned.program)
    if question is None or len(trials.outcomes) == MOST_BRANCHES:
        return ()
    found: list[Version] = []
    for answer in (True, False):
        outcomes = (*trials.outcomes, (question, answer))
        other = replace(trials, outcomes=outcomes)
        own = plan_kernel(other, arch, smaller)
        if own.program is None or own.candidate is None:
            return ()
        further = versions(other, own, arch, smaller)
        found += further or [Version(outcomes, own.program, own.candidate, own.by_size)]
    return tuple(found)
