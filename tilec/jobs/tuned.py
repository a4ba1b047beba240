"""Compiling with what the tuner found: which candidate each kernel of a file takes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.jobs.requests import parse_pairs
from tilec.source.diagnostics import Diagnostic, TileError

if TYPE_CHECKING:
    from tilec.analysing import AnalysedKernel
    from tilec.compiled import CompiledFile
    from tilec.plan.candidate import Choice, Dispatch
    from tilec.syntax.loading import Program as Files
    from tilec.tuning.subjects import Results


def tuned_choices(
    file: str,
    kernel: str | None,
    defines: Mapping[str, str],
    arch: str,
    *,
    settings: Sequence[str] = (),
    gpu: str | None = None,
    with_cache: bool = False,
    cpu_sizes: bool = False,
    missing: list[Diagnostic] | None = None,
) -> dict[str, Choice]:
    """The choice for each kernel that was tuned for `arch`: that of the key nearest to the sizes of `settings` and the first
    `example` clause (`example cpu` with `cpu_sizes`); where those do not give every size of the key, that of the only key.

    `gpu` restricts to results of that device, `with_cache` also looks at results that are in the cache alone. Nothing is
    chosen for a kernel with errors. W0604 is added to `missing` for a kernel whose results are all for other architectures.
    """
    if not _anything(file, with_cache):
        return {}
    from tilec.compiler import analyse_file
    from tilec.tuning.subjects import program_hash, results

    try:
        files, found, _ = analyse_file(file, kernel=kernel, defines=defines, arch=arch)
    except TileError:
        return {}  # the compilation that follows says the same
    chosen: dict[str, Choice] = {}
    for item in found:
        known = results(file, program_hash(files, item), with_cache=with_cache)
        if not known.found:
            continue
        if missing is not None and known.architectures and arch not in known.architectures:
            missing.append(no_results(item, arch, known))
        key = _key(files, item, settings, cpu_sizes)
        choice = known.choice(key, arch=arch, gpu=gpu)
        if choice is not None:
            chosen[item.syntax.name] = choice
    return chosen


def tuned_dispatches(
    file: str,
    kernel: str | None,
    defines: Mapping[str, str],
    archs: Sequence[str],
    most: int,
) -> tuple[dict[str, Dispatch], list[Diagnostic]]:
    """For each kernel with results beside its source the variants that one file holds of it, at most `most` an architecture beside the
    general one; and W0604 for each kernel with a `tune` clause and architecture without results. Nothing for a file with errors."""
    from tilec.compiler import analyse_file
    from tilec.syntax import ast
    from tilec.tuning.dispatch import choose_variants
    from tilec.tuning.subjects import program_hash, results

    try:
        files, found, _ = analyse_file(file, kernel=kernel, defines=defines, arch=archs[0])
    except TileError:
        return {}, []  # the compilation that follows says the same
    chosen: dict[str, Dispatch] = {}
    warnings: list[Diagnostic] = []
    for item in found:
        if not any(isinstance(clause, ast.Tune) for clause in item.syntax.clauses):
            continue
        known = results(file, program_hash(files, item), with_cache=False)
        fitting = {arch: known.fitting(arch) for arch in archs}
        warnings += [
            no_results(item, arch, known) for arch, searches in fitting.items() if not searches
        ]
        dispatch = choose_variants({a: f for a, f in fitting.items() if f}, most)
        if dispatch is not None:
            chosen[item.syntax.name] = dispatch
    return chosen, warnings


def no_results(item: AnalysedKernel, arch: str, known: Results) -> Diagnostic:
    """W0604: nothing that was found about a kernel holds for an architecture."""
    others = known.architectures
    named = ", ".join(others)
    return Diagnostic(
        "W0604",
        f"no result of `tilec tune` for `{item.syntax.name}` holds for {arch}",
        item.program.span,
        notes=(f"its results beside the source are for {named}" if others else "it has none",),
        helps=(
            f"compile with `--arch {others[-1]}`, or tune with `--arch {arch}`"
            if others
            else f"run `tilec tune` with `--arch {arch}`",
        ),
    )


def _anything(file: str, with_cache: bool) -> bool:
    """Whether there can be results, so that a file that was never tuned costs nothing."""
    from tilec.tuning.records import cache_folder, tuning_path

    return tuning_path(file).is_file() or (with_cache and cache_folder("").is_dir())


def _key(
    files: Files, item: AnalysedKernel, settings: Sequence[str], cpu_sizes: bool
) -> dict[str, Any] | None:
    """The sizes of a call by name; None where one is not known."""
    from tilec.runtime.arguments import bind_sizes, plan_without_launches
    from tilec.runtime.clauses import constants, examples

    plan = plan_without_launches(item.program)
    names = {v.name for v in (*plan.dims, *plan.strides)} | {s.name for s in plan.scalars}
    given = {n: v for n, v in parse_pairs(settings, "-s").items() if n in names}
    offered = examples(item.syntax, "cpu" if cpu_sizes else "", constants(files.main))
    try:
        sizes = bind_sizes(plan, given, offered[0] if offered else {})
    except TileError:
        return None
    return {**sizes.numbers, **sizes.scalars}


def compile_tuned(
    file: str, choices: Mapping[str, Choice], **options: Any
) -> tuple[CompiledFile, bool]:
    """`compile_file` with `choices`, and whether they were used: results of an older tilec may not fit any more. Raises as that."""
    from tilec.compiler import compile_file

    if not choices:
        return compile_file(file, **options), False
    try:
        compiled = compile_file(file, choices=choices, **options)
    except TileError as error:
        if not any(d.code.startswith("E06") for d in error.diagnostics):
            raise
        return compile_file(file, **options), False
    return _reading_results(file, compiled), True


def _reading_results(file: str, compiled: CompiledFile) -> CompiledFile:
    """What was compiled, with the file of results among the files that it depends on."""
    from tilec.tuning.records import tuning_path

    beside = tuning_path(file)
    read = (str(beside),) if Path(beside).is_file() else ()
    return replace(compiled, dependencies=(*compiled.dependencies, *read))


def compile_dispatched(
    file: str, *, most: int, split: bool = False, **options: Any
) -> CompiledFile:
    """`compile_file` with the variants that tuning found, at most `most` an architecture beside the general one; with the warnings of
    `tuned_dispatches`. Raises as that."""
    from tilec.compiler import compile_file

    dispatches, warnings = tuned_dispatches(
        file, options.get("kernel"), options.get("defines") or {}, options["archs"], most
    )
    compiled = compile_file(file, dispatches=dispatches, split=split, **options)
    compiled = replace(compiled, diagnostics=(*compiled.diagnostics, *warnings))
    return _reading_results(file, compiled)
