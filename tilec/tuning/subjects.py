"""What a tuning result is about: the hash of a program, the key of a call; and which result a call uses."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from tilec.analysing import AnalysedKernel
from tilec.ir.selection import Number
from tilec.plan.candidate import Choice
from tilec.runtime.arguments import CallSizes
from tilec.syntax import ast
from tilec.syntax.loading import Program as Files
from tilec.tuning.records import EMULATOR, Found, cached, nearest, read_file, tuning_path


def program_hash(files: Files, item: AnalysedKernel) -> str:
    """A hash of a kernel's meaning and of its check: its Tile IR, which holds tile sizes by name, the bracket parameters that were
    not chosen by `auto`, `check` clauses, and every function and constant that they could use. Comments and other kernels do
    not matter."""
    from tilec.ir.printer import print_program

    origin = item.candidate.origin
    statics = {
        n: v for n, v in item.program.statics.items() if origin.get(n) not in ("auto", "tuned")
    }
    parts = [print_program(replace(item.program, statics=statics, tiles={}))]
    parts += [repr(c) for c in item.syntax.clauses if isinstance(c, ast.Check)]
    parts += [repr(i) for m in files.modules for i in m.items if isinstance(i, ast.Fn | ast.Const)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:16]


def call_key(names: Sequence[str], sizes: CallSizes) -> dict[str, Number]:
    """The sizes that the `key` of a `tune` clause names; all dims without one."""
    known: dict[str, Number] = {**sizes.numbers, **sizes.scalars}
    return {n: known[n] for n in names if n in known} if names else {**sizes.dims}


@dataclass(frozen=True)
class Results:
    """The finished searches about one kernel of one file; later ones count more, those beside the source most."""

    found: tuple[Found, ...]

    def fitting(self, arch: str, gpu: str | None = None) -> list[Found]:
        """Those for an architecture, on `gpu` if one is named, else on any but the emulator. A result holds for the architecture that it
        was compiled for and for no other one: `sm_90a` has instructions that `sm_90` has not."""
        return [
            f
            for f in self.found
            if f.subject.arch == arch
            and (f.subject.gpu == gpu if gpu is not None else f.subject.gpu != EMULATOR)
        ]

    @property
    def architectures(self) -> tuple[str, ...]:
        """Those that there are results of a GPU for, in order of first appearance."""
        return tuple(dict.fromkeys(f.subject.arch for f in self.found if f.subject.gpu != EMULATOR))

    def choice(
        self, key: Mapping[str, Number] | None, *, arch: str, gpu: str | None = None
    ) -> Choice | None:
        """The best candidate of the nearest key for an architecture, on `gpu` if one is named, else on any but the emulator;
        where no key is given that of the only one. None where nothing fits, and where the untuned candidate is the best."""
        fitting = self.fitting(arch, gpu)
        if key is None:
            keys = {tuple(sorted(f.subject.key.items())) for f in fitting}
            chosen = fitting[-1] if len(keys) == 1 else None
        else:
            chosen = nearest(fitting, key)
        return (chosen.best.choice or None) if chosen and chosen.best else None


def results(file: str, program: str, *, with_cache: bool) -> Results:
    """The finished searches about a program: in the cache, and beside its source."""
    fitting: dict[str, Found] = {}
    for one in [*(cached(program) if with_cache else ()), *read_file(tuning_path(file)).values()]:
        if one.subject.program == program and one.best is not None:
            fitting.pop(one.subject.id, None)
            fitting[one.subject.id] = one
    return Results(tuple(fitting.values()))
