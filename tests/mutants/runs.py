"""Running mutants on the emulator: many in one build, each at sizes at which its kernel is launched."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np

from tests.mutants.rewrites import Mutant, mutants
from tilec.compiled import CompiledFile, CompiledKernel
from tilec.compiler import compile_file
from tilec.emit.bodies import GuardedKernel, render_kernels
from tilec.emit.wgmma import forms_of
from tilec.emulator.build import FLAGS, host_toolchain
from tilec.emulator.library import HostKernel, Mode, Schedule
from tilec.emulator.machine import EmulatedModule, Emulator
from tilec.emulator.text import PRELUDE, product_text
from tilec.ir import asynchronous as a
from tilec.reference.inputs import make_inputs
from tilec.reference.numbers import storage_dtype
from tilec.runtime.arguments import CallSizes, bind_sizes, check_call
from tilec.runtime.clauses import find_kernel
from tilec.runtime.gpu_run import prepare_call
from tilec.runtime.launching import choose_target, concrete_launches
from tilec.runtime.sizes import ragged_sizes
from tilec.runtime.variant_sizes import variant_sizes
from tilec.runtime.verify import Bounds, Case, Tolerance, failures, interpreter_bounds, verify
from tilec.source.diagnostics import TileError
from tilec.syntax import ast
from tilec.syntax.loading import load
from tilec.toolchain.process import run_tool

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
ARCH = "sm_90"
BATCH = 24
MOST_RUNS = 20
OUTWARDS = (9, 20)
"""By how much ends of ranges are moved out of their tensor: part of a tile of 16, and more than one."""

INWARDS = 1
"""And inside, so that some rows are in no range."""

MODES: tuple[Mode, ...] = ("late", "early")


@dataclass(frozen=True)
class Subject:
    """A kernel of a sample whose mutants are run, with small tiles; `sizes` beside those of its variants. `ranges`: integer arrays
    whose neighbours bound ranges; they also run with ends outside and inside of what the ranges are of."""

    file: str
    kernel: str
    defines: tuple[tuple[str, str], ...] = ()
    scalars: tuple[tuple[str, float], ...] = ()
    sizes: tuple[tuple[tuple[str, int], ...], ...] = ()
    arch: str = ARCH
    ranges: tuple[str, ...] = ()

    @property
    def asynchronous(self) -> bool:
        """Whether the kernels in which roles differ are mutated, and no others."""
        return self.arch.endswith("a")


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant; `noticed` is a code, "differs", "traffic" where the same result
    moved more bytes, or empty where it survived."""

    kernel: str
    variant: str
    kind: str
    what: str
    noticed: str


def _wide(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Floats far below 0 with one high above the others in every other row, the first of them last: what a maximum that
    missed some, or met a 0 too many, makes overflow."""
    found = {}
    generator = np.random.Generator(np.random.PCG64(9))
    for name, array in arrays.items():
        if array.dtype.kind in "iub" or array.ndim < 2 or not array.size:
            found[name] = array
            continue
        wide = array.astype(np.float32) * 50 - 300
        rows = wide.reshape(-1, wide.shape[-1])
        for n in range(0, len(rows), 2):
            rows[n, -1 if n % 4 == 0 else generator.integers(rows.shape[1])] = 300
        found[name] = wide.astype(array.dtype)
    return found


def _opposed(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Floats of magnitude 10: those of the first array above 0, the others below, so that products are far below 0."""
    floats = [name for name, array in arrays.items() if array.dtype.kind not in "iub"]
    return {
        name: (np.abs(array.astype(np.float32)) * (10 if name == floats[0] else -10)).astype(
            array.dtype
        )
        if name in floats
        else array
        for name, array in arrays.items()
    }


def _bordered(arrays: Mapping[str, Any]) -> dict[str, Any]:
    """Floats of every other row large at both of its ends: what a row that took an element of its neighbours would show, however
    long it is."""
    found = {}
    for name, array in arrays.items():
        if array.dtype.kind in "iub" or array.ndim < 2 or not array.size:
            found[name] = array
            continue
        bordered = array.astype(np.float32)
        rows = bordered.reshape(-1, bordered.shape[-1])
        rows[::2, :8] = rows[::2, -8:] = 1e4
        found[name] = bordered.astype(array.dtype)
    return found


def _moved(arrays: Mapping[str, Any], names: tuple[str, ...], outwards: int) -> dict[str, Any]:
    """The first value of some arrays less by `outwards`, the last one more; what then lies outside of them is moved to them."""
    found = dict(arrays)
    for name in names:
        array = arrays[name].copy()
        first, last = array[0] - outwards, array[-1] + outwards
        array[0], array[-1] = first, last
        found[name] = np.clip(array, first, last) if first <= last else arrays[name]
    return found


def _alternating(arrays: Mapping[str, Any], names: tuple[str, ...]) -> dict[str, Any]:
    """Floats that are not a number in every other of the ranges that some arrays bound: what another range would take of them shows."""
    found = dict(arrays)
    for name in names:
        bounds = arrays[name]
        for other, array in arrays.items():
            if array.dtype.kind in "iub" or array.shape[0] != bounds[-1]:
                continue
            found[other] = found[other].copy()
            for begin, end in zip(bounds[1::2], bounds[2::2], strict=False):
                found[other][begin:end] = np.nan
    return found


_Traffic = dict[tuple[str, str], int]


@dataclass
class _Run:
    """A call, the kernels that it launches, and by the original: how many bytes it loads and stores in each mode in which it was run."""

    case: Case
    names: tuple[str, ...]
    traffic: dict[Mode, _Traffic] = field(default_factory=dict)

    @cached_property
    def bounds(self) -> Bounds:
        """What the call must compute; the first run asks."""
        return interpreter_bounds(self.case)

    @property
    def elements(self) -> int:
        """Of all arrays: what a call costs."""
        return sum(array.size for array in self.case.arrays.values())


class _Order:
    """Runs of a kernel, first those that noticed most mutants of the same kind, then those that noticed most, then the small ones."""

    def __init__(self, runs: Sequence[_Run]) -> None:
        self._runs = [(run, mode) for run in runs for mode in MODES]
        self._noticed: Counter[int] = Counter()
        self._of_kind: Counter[tuple[str, int]] = Counter()

    def __call__(self, kind: str) -> Iterator[tuple[int, _Run, Mode]]:
        """Every run once, with its number."""
        by_worth = sorted(
            range(len(self._runs)),
            key=lambda n: (
                -self._of_kind[kind, n],
                -self._noticed[n],
                self._runs[n][0].elements,
            ),
        )
        for n in by_worth:
            yield n, *self._runs[n]

    def note(self, kind: str, number: int) -> None:
        """A mutant of a kind was noticed by a run."""
        self._noticed[number] += 1
        self._of_kind[kind, number] += 1


class Laboratory:
    """One compiled kernel, and calls of it with their expected results."""

    def __init__(self, subject: Subject) -> None:
        path = str(SAMPLES / subject.file)
        self.subject = subject
        self.file: CompiledFile = compile_file(
            path, kernel=subject.kernel, defines=dict(subject.defines), archs=(subject.arch,)
        )
        self.kernel: CompiledKernel = self.file.kernels[0]
        files = load(path)
        syntax = find_kernel(files.main, subject.kernel)
        assert syntax is not None
        clauses = tuple(c for c in syntax.clauses if not isinstance(c, ast.Check))
        unchecked = replace(syntax, clauses=clauses)
        self.runs: dict[str, list[_Run]] = {}
        target = choose_target(self.kernel.plan, (9, 0))
        for sizes in self._sizes(target):
            launches = concrete_launches(
                self.kernel.plan, target, sizes, self._addresses(sizes), 1 << 40, multiprocessors=3
            )
            names = [launch.kernel for launch in launches]
            if not names or all(len(self.runs.get(n, [])) >= MOST_RUNS for n in names):
                continue
            if max(launch.grid for launch in launches) > 40:
                continue
            arrays = make_inputs(self.kernel.program, sizes.numbers, dict(sizes.scalars), 5)
            data = [arrays, _wide(arrays), _opposed(arrays), _bordered(arrays)]
            said = [syntax] * len(data)
            if moved := self.subject.ranges:
                # absent scores that count as 0 show where all others are far below
                data += [_moved(_opposed(arrays), moved, by) for by in OUTWARDS]
                data += [_moved(arrays, moved, -INWARDS), _alternating(arrays, moved)]
                # a check clause may multiply what is not a number by 0
                said = [syntax] * (len(data) - 1) + [unchecked]
            for given, spoken in zip(data, said, strict=True):
                case = Case(self.kernel.program, files, spoken, sizes, given, 5)
                run = _Run(case, tuple(names))
                for name in names:
                    self.runs.setdefault(name, []).append(run)

    def _addresses(self, sizes: CallSizes) -> dict[str, int]:
        return {
            t.name: ((n + 1) << 32) + sizes.offsets.get(t.name, 0) * storage_dtype(t.dtype).itemsize
            for n, t in enumerate(self.kernel.plan.parameters)
        }

    def _sizes(self, target: Any) -> Iterator[CallSizes]:
        program, plan = self.kernel.program, self.kernel.plan
        scalars = dict(self.subject.scalars)
        found: list[CallSizes] = []
        for numbers in self.subject.sizes:
            found.append(bind_sizes(plan, {}, {**scalars, **dict(numbers)}))
        for one in variant_sizes(program, target):
            bound = bind_sizes(plan, {}, {**scalars, **one.dims})
            found.append(replace(bound, offsets=one.offsets))
        # the subject's own sizes reach the variants for operands that begin elsewhere too
        elsewhere = [s.offsets for s in found if s.offsets][:1]
        found += [
            replace(s, offsets=offsets) for offsets in elsewhere for s in found if not s.offsets
        ][: len(self.subject.sizes)]
        for dims in ragged_sizes(program):
            found.append(bind_sizes(plan, {}, {**scalars, **dims}))
        found += [
            replace(s, dims={**s.dims, name: value - less})
            for s in found
            for less in (8, 1)
            for name, value in s.dims.items()
            if value >= 64
        ]
        # calls that differ in nothing but whose operand begins elsewhere come last: so few are run
        alike: Counter[tuple[tuple[str, int], ...]] = Counter()
        ranked: list[tuple[int, CallSizes]] = []
        for sizes in found:
            dims = tuple(sizes.dims.items())
            ranked.append((alike[dims] if sizes.offsets else 0, sizes))
            alike[dims] += bool(sizes.offsets)
        for _, sizes in sorted(ranked, key=lambda pair: pair[0]):
            try:
                check_call(plan, sizes)
            except TileError:
                continue
            yield sizes

    # ---- mutants

    def kernels(self) -> Sequence[Any]:
        """The kernels that some call launches; of an asynchronous subject those with roles, first the one with the longest axes."""
        launched = [low for low in self.kernel.lowered[self.subject.arch] if low.name in self.runs]
        if not self.subject.asynchronous:
            return launched
        roles = [low for low in launched if any(isinstance(op, a.Roles) for op in low.body)]
        return sorted(roles, key=lambda low: -self._longest(low.name))

    def _longest(self, name: str) -> int:
        """The greatest dimension of the calls that launch a kernel."""
        return max(max(run.case.sizes.dims.values()) for run in self.runs[name])

    def chosen(
        self, of: Callable[[Any], Iterable[Mutant]] = mutants
    ) -> Iterator[tuple[Any, list[Mutant]]]:
        """Each of `kernels` with its mutants. Those with roles differ in their stores or tiles: what changes an op as in one
        before is left out."""
        seen: Counter[tuple[str, str]] = Counter()
        for low in self.kernels():
            found = list(of(low))
            if self.subject.asynchronous:
                before, seen = seen, Counter((m.kind, m.what) for m in found) | seen
                met: Counter[tuple[str, str]] = Counter()
                kept = []
                for mutant in found:
                    change = mutant.kind, mutant.what
                    met[change] += 1
                    if met[change] > before[change]:
                        kept.append(mutant)
                found = kept
            yield low, found

    def verdicts(
        self,
        most: int | None = None,
        every: int = 1,
        of: Callable[[Any], Iterable[Mutant]] = mutants,
        part: tuple[int, int] = (0, 1),
        may_survive: Callable[[Verdict], object] = lambda verdict: False,
    ) -> Iterator[Verdict]:
        """The mutants `of` each kernel in order (every so many, at most `most`), run; of all batches of them the `part[0]`th of
        `part[1]` parts. Those that `may_survive` are not run: a survivor is one after all calls in all modes."""
        batches: list[tuple[str, list[Mutant]]] = []
        for low, found in self.chosen(of):
            chosen = []
            for mutant in found[::every][:most]:
                unnoticed = Verdict(self.kernel.name, low.name, mutant.kind, mutant.what, "")
                if may_survive(unnoticed):
                    yield unnoticed
                else:
                    chosen.append(mutant)
            batches += [(low.name, chosen[n : n + BATCH]) for n in range(0, len(chosen), BATCH)]
        number, parts = part
        batches = batches[len(batches) * number // parts : len(batches) * (number + 1) // parts]
        needed = {name for kernel, _ in batches for run in self.runs[kernel] for name in run.names}
        originals = self._library(
            [
                (low.name, replace(low, body_name=f"{low.body_name}_{n}"))
                for n, low in enumerate(self.kernel.lowered[self.subject.arch])
                if low.name in needed
            ]
        )
        for name, batch in batches:
            yield from self._batch(name, batch, originals)

    def _batch(
        self, name: str, batch: Sequence[Mutant], originals: Mapping[str, HostKernel]
    ) -> Iterator[Verdict]:
        named = [
            (
                f"{name}_m{n}",
                replace(m.kernel, name=f"{name}_m{n}", body_name=f"{name}_body_m{n}"),
            )
            for n, m in enumerate(batch)
        ]
        try:
            made = self._library(named)
        except TileError:
            if len(batch) > 1:
                for mutant in batch:
                    yield from self._batch(name, [mutant], originals)
                return
            mutant = batch[0]
            yield Verdict(self.kernel.name, name, mutant.kind, mutant.what, "not built")
            return
        order = _Order(self.runs[name])
        for (built, _), mutant in zip(named, batch, strict=True):
            kernels = {**originals, name: made[built]}
            noticed = ""
            for number, run, mode in order(mutant.kind):
                if mode not in run.traffic:
                    found, run.traffic[mode] = self._run(run, mode, originals)
                    assert not found, f"{name} at {run.case.sizes}: {found}"
                noticed, traffic = self._run(run, mode, kernels)
                if not noticed and traffic != run.traffic[mode]:
                    noticed = "traffic"
                if noticed:
                    order.note(mutant.kind, number)
                    break
            yield Verdict(self.kernel.name, name, mutant.kind, mutant.what, noticed)

    def _run(
        self, run: _Run, mode: Mode, kernels: Mapping[str, HostKernel]
    ) -> tuple[str, _Traffic]:
        """How a call of some kernels failed, "" where it did not, and how many bytes each of them moved."""
        emulator = Emulator(self.subject.arch, Schedule(mode), cache=None, counting=True)
        module = EmulatedModule("mutant.cu", "", None, dict(kernels))
        case = run.case
        try:
            with prepare_call(emulator, self.kernel.plan, module, case.sizes, case.arrays) as call:
                call.launch()
                outputs = call.results()
                call.check_surroundings()
        except TileError as error:
            return error.diagnostics[0].code, {}
        kept = dict(run.bounds.values)
        findings = verify(case, outputs, run.bounds, Tolerance())
        run.bounds.values.update(kept)
        traffic: _Traffic = {}
        for name, counters in emulator.counters.items():
            for c in counters:
                traffic[name, c.kind] = traffic.get((name, c.kind), 0) + c.bytes
        return "differs" if failures(findings) else "", traffic

    def _library(self, kernels: Sequence[tuple[str, Any]]) -> dict[str, HostKernel]:
        tools = host_toolchain()
        parts = [f'#include "{PRELUDE}"\n#line 1 "mutant.cu"\n']
        for _, kernel in kernels:
            texts = render_kernels([GuardedKernel(kernel, "", self.kernel.program)])
            parts += [*texts.bodies, *texts.wrappers]
        parts[1:1] = [product_text(form) for form in forms_of("".join(parts))]
        parts += [
            f'\nextern "C" __attribute__((visibility("default"))) int tilec_{name}('
            f"tilec_host::Launch* launch) {{ return tilec_host::enter(launch, &{name}, {kernel.cluster}); }}\n"
            for name, kernel in kernels
        ]
        with tempfile.TemporaryDirectory(prefix="tilec-mutants-") as made:
            folder = Path(made)
            (folder / "kernel.cc").write_text("\n".join(parts), encoding="utf-8")
            command = [str(tools.compiler.path), *FLAGS, f"-I{tools.folder}"]
            command += ["-shared", "kernel.cc", *tools.objects, "-o", "kernel.so"]
            ran = run_tool(command, cwd=folder)
            if ran.status != 0:
                from tilec.source.diagnostics import fail

                errors = [line for line in ran.output.splitlines() if "error" in line][:3]
                raise fail("E7003", "; ".join(errors) or f"status {ran.status}")
            library = folder / "kernel.so"
            return {name: HostKernel(library, f"tilec_{name}") for name, _ in kernels}
