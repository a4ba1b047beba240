"""The work of `tilec tune`: one request to searches, one after another."""

from __future__ import annotations

import os
import sys
from collections.abc import Generator
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from tilec.jobs.requests import check_source, parse_archs, parse_pairs
from tilec.jobs.size_ranges import expand_settings
from tilec.source.diagnostics import Sink, fail

if TYPE_CHECKING:
    from tilec.analysing import AnalysedKernel
    from tilec.compiled import CompiledFile
    from tilec.jobs.tuning_devices import Device
    from tilec.plan.candidate import Choice
    from tilec.plan.parameters import TuningSpace
    from tilec.runtime.arguments import CallSizes
    from tilec.syntax.loading import Program as Files
    from tilec.tuning.building import Alter
    from tilec.tuning.records import Found, Subject
    from tilec.tuning.search import Listener, Search
    from tilec.tuning.strategies import Kind


@dataclass(frozen=True)
class TuneRequest:
    """The command line of `tilec tune`, option by option. `jobs` None: one compiler a core, less one; `limit` in seconds; `patience` and
    `trials` as in Effort; `plot` a file."""

    file: str
    kernel: str | None = None
    settings: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    device: str = "auto"
    seed: int = 0
    rtol: float | None = None
    atol: float | None = None
    jobs: int | None = None
    limit: float | None = None
    again: bool = False
    nvcc: str | None = None
    arch: str | None = None
    search: Kind = "exhaustive"
    patience: int | None = None
    trials: int | None = None
    devices: str | None = None
    scheduler: str | None = None
    plot: str | None = None


def run_tune(
    request: TuneRequest, *, listener: Listener | None = None, alter: Alter | None = None
) -> int:
    """Tune; prints the best of each size set on standard output, progress and messages on standard error.

    Returns the exit status: 4 where no candidate verified. Raises TileError where the command line, the program or the
    environment stops everything.
    """
    from tilec.jobs.outputs import write_outputs
    from tilec.jobs.running import plot_form
    from tilec.tuning.pictures import Pictured, draw
    from tilec.tuning.progress import progress

    heard = listener or progress(sys.stderr)
    status = 0
    drawn: list[Pictured] = []
    with closing(searches(request, heard)) as wanted:
        for search in wanted:
            if alter is not None:
                search.alter = alter
            found = search.run()
            sys.stdout.write(outcome_text(found) + "\n")
            sys.stdout.flush()
            drawn.append(Pictured(found, search.operations, search.moved))
            if found.best is None:
                status = max(status, 4)
    if request.plot is not None:
        write_outputs({request.plot: draw(drawn, plot_form(request.plot))})
    return status


def searches(request: TuneRequest, listener: Listener) -> Generator[Search]:
    """The searches that a request asks for, in the order of kernels and sizes. Raises TileError: E0216 to E0218 in the program,
    E0720 nothing to tune, E0801 to E0812 what the machine lacks."""
    from tilec.compiler import analyse_file

    check_source(request.file)
    _check_options(request)
    defines = parse_pairs(request.defines, "-D")
    wanted = expand_settings(request.settings)
    files, found, sink = analyse_file(request.file, kernel=request.kernel, defines=defines)
    spaces = [(item, space) for item in found if (space := _space(request, files, item, sink))]
    sink.raise_if_errors()
    if not spaces:
        which = f"`{request.kernel}`" if request.kernel else "no kernel of the file"
        verb = "has no `tune` clause" if request.kernel else "has a `tune` clause"
        raise fail(
            "E0720",
            f"{which} {verb}",
            help="write for example `tune BM in (64, 128), warps in (4, 8) key (M, N)`",
        )
    device = _device(request)
    seen: set[str] = set()
    try:
        for item, space in spaces:
            for settings in wanted:
                for sizes in _sizes(files, item, settings, device):
                    search = _search(request, listener, device, files, item, space, sizes)
                    if search.subject.id not in seen:
                        seen.add(search.subject.id)
                        yield search
    finally:
        device.close()


def _check_options(request: TuneRequest) -> None:
    """Before anything is compiled: what the options need is there."""
    if request.arch is not None:
        parse_archs((request.arch,))
    if request.search == "tpe":
        from tilec.tuning.strategies import import_optuna

        import_optuna()
    if request.plot is not None:
        from tilec.jobs.running import plot_form
        from tilec.runtime.comparing import import_matplotlib

        plot_form(request.plot)
        import_matplotlib()


def _space(
    request: TuneRequest, files: Files, item: AnalysedKernel, sink: Sink
) -> TuningSpace | None:
    from tilec.plan.parameters import tuning_space
    from tilec.syntax import ast

    kernels = [i for i in files.main.items if isinstance(i, ast.Kernel)]
    elsewhere = [b.name for k in kernels if k is not item.syntax for b in k.brackets]
    defines = parse_pairs(request.defines, "-D")
    return tuning_space(item.syntax, files.scope(files.main), defines, sink, elsewhere=elsewhere)


def _device(request: TuneRequest) -> Device:
    from tilec.jobs.tuning_devices import choose_device

    return choose_device(request.device, request.arch, request.devices, request.scheduler)


def _sizes(
    files: Files, item: AnalysedKernel, settings: tuple[str, ...], device: Device
) -> list[CallSizes]:
    """The size sets: one an `example` clause, `-s` before it."""
    from tilec.runtime.arguments import bind_sizes, check_call, plan_without_launches
    from tilec.runtime.clauses import constants, examples

    plan = plan_without_launches(item.program)
    names = {v.name for v in (*plan.dims, *plan.strides)} | {s.name for s in plan.scalars}
    given = {n: v for n, v in parse_pairs(settings, "-s").items() if n in names}
    offered = examples(item.syntax, "cpu" if device.emulated else "", constants(files.main))
    found: list[CallSizes] = []
    for example in offered or [{}]:
        sizes = bind_sizes(plan, given, example, statics=item.program.statics)
        check_call(plan, sizes)
        if sizes not in found:
            found.append(sizes)
    return found


def _search(
    request: TuneRequest,
    listener: Listener,
    device: Device,
    files: Files,
    item: AnalysedKernel,
    space: TuningSpace,
    sizes: CallSizes,
) -> Search:
    import tilec
    from tilec.runtime.arguments import plan_without_launches
    from tilec.runtime.gpu_run import moved_bytes
    from tilec.runtime.verify import Tolerance
    from tilec.toolchain.build import find_toolchain
    from tilec.toolchain.cache import default_cache
    from tilec.tuning.protocol import Setup
    from tilec.tuning.records import Found, Subject, read_file, tuning_path
    from tilec.tuning.search import LIMIT, Effort, Search
    from tilec.tuning.subjects import call_key, program_hash

    cache = default_cache()
    toolchain = None if device.emulated else find_toolchain(request.nvcc, cache=cache)
    subject = Subject(
        kernel=item.syntax.name,
        program=program_hash(files, item),
        key=call_key(space.key, sizes),
        sizes={**sizes.numbers, **sizes.scalars},
        dtypes={t.name: str(t.dtype) for t in item.program.tensors if t.role != "temp"},
        gpu=device.name,
        arch=device.arch,
        nvcc=toolchain.nvcc.release if toolchain else "",
        tilec=tilec.__version__,
        seed=request.seed,
        within=str(Tolerance(request.rtol, request.atol)),
    )
    path = tuning_path(request.file)
    beside = None if request.again else read_file(path).get(subject.id)
    kept = None if request.again or beside else _in_cache(subject)
    defines = parse_pairs(request.defines, "-D")

    def compile_choice(choice: Choice) -> CompiledFile:
        from tilec.compiler import compile_file

        return compile_file(
            request.file,
            kernel=subject.kernel,
            defines=defines,
            archs=(device.arch,),
            command=f"tilec run {Path(request.file).name}",
            choices={subject.kernel: choice},
        )

    setup = Setup(
        request.file,
        subject.kernel,
        defines,
        replace(sizes),
        request.seed,
        request.rtol,
        request.atol,
        "cpu" if device.emulated else "gpu",
        device.arch,
        request.nvcc,
        "",
    )
    return Search(
        subject=subject,
        choices=space.choices,
        compile_choice=compile_choice,
        setup=setup,
        toolchain=toolchain,
        cache=cache,
        path=_writable(path),
        found=beside or kept or Found(subject),
        listener=listener,
        jobs=request.jobs or max(1, (os.cpu_count() or 2) - 1),
        limit=request.limit or LIMIT,
        restore=kept is not None,
        effort=Effort(request.search, request.patience, request.trials, request.seed),
        lanes=device.lanes(files.files),
        operations=_operations(files, item, sizes),
        moved=float(moved_bytes(plan_without_launches(item.program), sizes)),
    )


def _operations(files: Files, item: AnalysedKernel, sizes: CallSizes) -> float | None:
    """Of one call: what the `flops` clause says, else its products."""
    from tilec.runtime.clauses import constants, count
    from tilec.runtime.work import product_operations

    numbers = {n: v for n, v in item.program.statics.items() if isinstance(v, int | float)}
    known = {**constants(files.main), **numbers, **sizes.environment}
    said = count(item.syntax, "flops", known)
    return product_operations(item.program, sizes) if said is None else said


def _in_cache(subject: Subject) -> Found | None:
    from tilec.tuning.records import cached

    return next((f for f in cached(subject.program) if f.subject.id == subject.id), None)


def _writable(path: Path) -> Path | None:
    """The path, or None where its folder or the file is read-only: the result is then in the cache alone."""
    place = path if path.exists() else path.parent
    return path if os.access(place, os.W_OK) else None


def outcome_text(found: Found) -> str:
    """One line for standard output."""
    from tilec.tuning.records import choice_name, summary

    sizes = " ".join(f"{n}={v}" for n, v in found.subject.sizes.items())
    head = f"{found.subject.kernel} {sizes} on {found.subject.gpu}:"
    tail = f"({summary(list(found.trials.values()))})"
    if found.best is None:
        return f"{head} no candidate verified {tail}"
    gain = ""
    if found.best.untuned_microseconds and found.best.microseconds:
        ratio = found.best.untuned_microseconds / found.best.microseconds
        gain = f", untuned {found.best.untuned_microseconds:.1f} µs, {ratio:.2f}x"
    return f"{head} {choice_name(found.best.choice)}, {found.best.microseconds:.1f} µs{gain} {tail}"
