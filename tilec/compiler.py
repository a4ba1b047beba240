"""The whole compiler as one call: `.tile` file to `.cu` text."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from functools import partial
from typing import TYPE_CHECKING, Literal

from tilec.analysing import AnalysedKernel as AnalysedKernel
from tilec.analysing import analyse_file as analyse_file
from tilec.attempts import has_products, tiles_are_open
from tilec.compiled import CompiledFile, CompiledKernel
from tilec.lazy_dataclass import dataclass
from tilec.source.codes.compiling import TOO_LARGE
from tilec.source.diagnostics import Diagnostic, Sink, TileError, fail
from tilec.targets.table import DEFAULT_ARCH, TARGETS, WARP_TILES

if TYPE_CHECKING:
    from tilec.dispatching import Tuned
    from tilec.emit.unit import UnitKernel, UnitSection
    from tilec.ir.launch import TargetPlan
    from tilec.ir.tile_ir import Program
    from tilec.plan.candidate import Choice, Dispatch
    from tilec.syntax import ast

Observer = Callable[[str, str, str, object], None]
"""Called with a kernel's name, an architecture, a pass' name and its result: a `Program`, a `Kernel`, or what a pass decides."""

Stop = Literal["ast", "tile-ir", "kernel-ir", "cu"]

KERNELS_A_PROCESS = 4
"""A process is worth while for so many kernels: making one and passing its results takes as long as compiling one or two."""


def compile_file(
    path: str,
    *,
    kernel: str | None = None,
    defines: Mapping[str, str] | None = None,
    archs: Sequence[str] = (DEFAULT_ARCH,),
    print_after: Sequence[str] = (),
    stop: Stop = "cu",
    command: str = "",
    choices: Mapping[str, Choice] | None = None,
    dispatches: Mapping[str, Dispatch] | None = None,
    split: bool = False,
    observe: Observer | None = None,
    jobs: int = 1,
) -> CompiledFile:
    """Compile the kernels of a file for the given architectures, as far as `stop` asks for; `choices` as in `analyse_file`; `observe`
    sees the program after each pass. Kernels that `dispatches` names get the variants that it lists, among which the launcher selects;
    with `split` each variant is a unit of its own. Where there are many kernels, up to `jobs` processes compile them (no `observe`
    then); the result is the same but for `lowered` and `manifest`, which are then empty. Raises TileError with every diagnostic. The same input gives
    the same bytes on any machine."""
    files, found, sink = analyse_file(
        path, kernel=kernel, defines=defines, choices=choices, arch=archs[0]
    )
    others = _other_tiles(found, path, kernel, defines, archs, choices)
    name = files.main.source.name
    snapshots: dict[str, str] = {}
    compiled: list[CompiledKernel] = []
    failures: list[Diagnostic] = []
    if stop in ("ast", "tile-ir"):
        compiled = [_analysed_only(item) for item in found]
        return CompiledFile(
            name, tuple(archs), "", "", tuple(compiled), files.files, tuple(sink.diagnostics)
        )
    failures += _clashes([item.program for item in found], dispatches if split else None)

    def analyse_choice(name: str, arch: str, choice: Choice) -> AnalysedKernel:
        more = {"kernel": name, "defines": defines, "choices": {name: choice}}
        return analyse_file(path, arch=arch, **more)[1][0]  # type: ignore[arg-type]

    def outcome(number: int) -> _Outcome:
        item = found[number]
        items = {arch: others[arch][number] if arch in others else item for arch in archs}
        dispatch = (dispatches or {}).get(item.syntax.name)
        smaller = 0
        while True:
            done = _outcome(
                items, print_after, dispatch, analyse_choice, observe, split, render=stop == "cu"
            )
            smaller += 1
            if not _too_large(done, items, smaller):
                return done
            more = {"kernel": item.syntax.name, "defines": defines, "choices": choices}
            items = {
                arch: analyse_file(path, arch=arch, smaller=smaller, **more)[1][0]  # type: ignore[arg-type]
                for arch in archs
            }

    jobs = min(jobs, len(found) // KERNELS_A_PROCESS)
    outcomes: list[_Outcome | None] = [None] * len(found)
    if jobs > 1 and observe is None:
        from tilec.forked import forked
        from tilec.source.text import NOWHERE

        common = [NOWHERE, *(module.source for module in files.modules)]
        common += [one.program for items in (found, *others.values()) for one in items]
        outcomes = forked(len(found), lambda n: outcome(n).as_texts(), jobs, common)
    sections: list[UnitSection] = []
    parts: dict[str, UnitSection] = {}
    for number, done in enumerate(outcomes):
        # what a process did not bring is done here, where an exception has its traceback
        done = done or outcome(number)
        for diagnostic in done.warnings:
            sink.add(diagnostic)
        failures += done.failures
        for pass_name, text in done.snapshots.items():
            snapshots[pass_name] = snapshots.get(pass_name, "") + text
        compiled += done.compiled
        sections += done.sections
        parts |= done.parts
    if failures:
        raise TileError([*sink.diagnostics, *failures])
    cu = header = ""
    texts: dict[str, str] = {}
    if stop == "cu":
        from tilec.emit.unit import render_header, unit_text

        cu, header = unit_text(name, command, sections), render_header(name, sections)
        texts = {part: unit_text(name, command, [own]) for part, own in parts.items()}
    return CompiledFile(
        name,
        tuple(archs),
        cu,
        header,
        tuple(compiled),
        tuple(files.files),
        tuple(sink.diagnostics),
        snapshots,
        texts,
    )


@dataclass(frozen=True)
class _Outcome:
    """What became of one kernel; `compiled` and its `sections` of the unit are one each, or none where it failed. `parts`: the
    sections of variants that are units of their own."""

    warnings: tuple[Diagnostic, ...]
    failures: tuple[Diagnostic, ...]
    snapshots: Mapping[str, str]
    compiled: tuple[CompiledKernel, ...] = ()
    sections: tuple[UnitSection, ...] = ()
    parts: Mapping[str, UnitSection] = field(default_factory=dict)

    def as_texts(self) -> _Outcome:
        """Without Kernel IR and what describes it, most of what would have to pass from process to process."""
        compiled = tuple(replace(c, lowered={}, describe=dict) for c in self.compiled)
        return replace(self, compiled=compiled)


def _outcome(
    items: Mapping[str, AnalysedKernel],
    print_after: Sequence[str],
    dispatch: Dispatch | None,
    analyse_choice: Callable[[str, str, Choice], AnalysedKernel],
    observe: Observer | None,
    split: bool,
    *,
    render: bool,
) -> _Outcome:
    """One kernel compiled, by architecture, and its texts where `render` asks for them. An error of the program is an outcome."""
    snapshots: dict[str, str] = {}
    sink = Sink()
    try:
        unit, result = _compile_kernel(
            items, print_after, snapshots, sink, dispatch, analyse_choice, observe
        )
    except TileError as error:
        return _Outcome(tuple(sink.diagnostics), error.diagnostics, snapshots)
    sections: tuple[UnitSection, ...] = ()
    parts: dict[str, UnitSection] = {}
    if render:
        from tilec.emit.unit import render_section, split_unit

        own: Mapping[str, UnitKernel] = {}
        if split and unit.is_tuned:
            unit, own = split_unit(unit)
        sections = (render_section(unit),)
        parts = {name: render_section(part) for name, part in own.items()}
    return _Outcome(tuple(sink.diagnostics), (), snapshots, (result,), sections, parts)


def _too_large(done: _Outcome, items: Mapping[str, AnalysedKernel], smaller: int) -> bool:
    """Whether a kernel failed for tiles that are too large, and there are smaller ones to take for them."""
    too_large = {failure.code for failure in done.failures} & TOO_LARGE
    given = any(tiles_are_open(item.candidate) for item in items.values())
    return bool(too_large) and given and smaller < len(WARP_TILES)


def _other_tiles(
    found: Sequence[AnalysedKernel],
    path: str,
    kernel: str | None,
    defines: Mapping[str, str] | None,
    archs: Sequence[str],
    choices: Mapping[str, Choice] | None,
) -> dict[str, list[AnalysedKernel]]:
    """The kernels for the other architectures, whose `auto` tile sizes of products are their own."""
    if not any(tiles_are_open(one.candidate) and has_products(one.program) for one in found):
        return {}
    return {
        arch: analyse_file(path, kernel=kernel, defines=defines, choices=choices, arch=arch)[1]
        for arch in archs[1:]
    }


def _clashes(programs: Sequence[Program], split: Mapping[str, Dispatch] | None) -> list[Diagnostic]:
    """Kernels whose names, or names that the generated code makes of them, are one in C++. `split`: what has launchers beside its own."""
    from tilec.emit.c_names import c_name

    owners: dict[str, str] = {}
    found: list[Diagnostic] = []
    for program in programs:
        base = c_name(program.name)
        for name in (
            base,
            f"{base}_error",
            f"{base}_workspace_bytes",
            f"{base}_kernel",
            f"{base}_body",
            *_launchers_apart(program.name, split),
        ):
            other = owners.setdefault(name, program.name)
            if other != program.name:
                message = f"`{other}` and `{program.name}` both give `{name}` in C++"
                found += fail("E0517", message, program.span, help="rename one of them").diagnostics
                break
    return found


def _launchers_apart(kernel: str, split: Mapping[str, Dispatch] | None) -> list[str]:
    """The names of the launchers of variants that are units of their own, and of what says why they refused."""
    if split is None or kernel not in split:
        return []
    numbers = range(1, len(split[kernel].choices) + 1)
    names = [f"{kernel}beside_warpgroups", *(f"{kernel}_tuned{n}" for n in numbers)]
    return [*names, *(f"{n}_error" for n in names)]


def _analysed_only(item: AnalysedKernel) -> CompiledKernel:
    from tilec.ir.launch import LaunchPlan

    program = item.program
    plan = LaunchPlan(program.name, program.tensors, program.dims, program.scalars, ())
    return CompiledKernel(program.name, program, plan, {}, dict)


def _compile_kernel(
    items: Mapping[str, AnalysedKernel],
    print_after: Sequence[str],
    snapshots: dict[str, str],
    sink: Sink,
    dispatch: Dispatch | None,
    analyse_choice: Callable[[str, str, Choice], AnalysedKernel],
    observe: Observer | None = None,
) -> tuple[UnitKernel, CompiledKernel]:
    from tilec.emit.bodies import GuardedKernel
    from tilec.emit.c_names import c_name
    from tilec.emit.unit import UnitKernel
    from tilec.passes import pipeline

    archs = list(items)
    item = items[archs[0]]
    program = item.program
    lowered: list[pipeline.Lowered] = []
    tuned: dict[str, tuple[Tuned, ...]] = {}
    several = len(archs) > 1
    for arch in archs:

        def snapshot(pass_name: str, result: object, arch: str = arch) -> None:
            if observe is not None:
                observe(program.name, arch, pass_name, result)
            if pass_name in print_after:
                key = f"{pass_name}"
                text = f"// after {pass_name}, {program.name}, {arch}\n{_text(result)}"
                snapshots[key] = snapshots.get(key, "") + text.rstrip("\n") + "\n\n"

        suffix = arch if several else ""
        low = pipeline.run(
            items[arch].program,
            TARGETS[arch],
            items[arch].candidate,
            c_name,
            suffix,
            snapshot,
            items[arch].general,
            items[arch].by_size,
            items[arch].versions,
        )
        if dispatch is not None and dispatch.numbers(arch):
            from tilec.dispatching import lower_choices

            analyse = partial(analyse_choice, item.syntax.name, arch)
            general = items[arch].program
            low, tuned[arch] = lower_choices(
                general, low, dispatch, analyse, suffix, snapshot, sink
            )
        lowered.append(low)
    plan = pipeline.plan_of(program, lowered)
    kernels = tuple(
        GuardedKernel(kernel, _guard(arch, archs), own, _variant_of(kernel.name, low.target))
        for arch, low in zip(archs, lowered, strict=True)
        for kernel, own in zip(low.kernels, low.programs, strict=True)
    )
    warned = {w.span: w for low in reversed(lowered) for w in reversed(low.warnings)}
    for warning in reversed(warned.values()):
        sink.add(warning)

    def describe() -> Mapping[str, object]:
        manifest: dict[str, object] = {
            "kernel": program.name,
            "candidate": {
                **{n: str(v) for n, v in item.candidate.values.items()},
                **{
                    n: str(getattr(item.candidate, n))
                    for n in ("warps", "stages")
                    if n in item.candidate.origin
                },
            },
            "origin": dict(item.candidate.origin),
            "targets": {low.target.arch: list(low.decisions) for low in lowered},
        }
        if dispatch is not None and tuned:
            from tilec.dispatching import selection_manifest

            manifest["tuned"] = selection_manifest(dispatch, tuned)
        return manifest

    by_arch = {low.target.arch: low.kernels for low in lowered}
    whole = replace(program, tensors=plan.tensors)
    unit = UnitKernel(_signature(item.syntax), whole, plan, kernels)
    return unit, CompiledKernel(program.name, program, plan, by_arch, describe)


def _variant_of(kernel: str, target: TargetPlan) -> int:
    """The number of the tuned variant that launches a kernel, 0 for the general one."""
    tuned = target.selection.alternatives if target.selection else ()
    for alternative in tuned:
        launches = (x for step in alternative.steps for a in step.launches for x in a.every)
        if any(a.kernel == kernel for a in launches):
            return alternative.number
    return 0


def _text(result: object) -> str:
    from tilec.ir.kernel_ir import Kernel
    from tilec.ir.kernel_printer import print_kernel
    from tilec.ir.printer import print_program
    from tilec.ir.tile_ir import Program

    match result:
        case Program():
            return print_program(result)
        case Kernel():
            return print_kernel(result)
        case _:
            return "\n".join(map(str, result)) if isinstance(result, tuple) else str(result)


def _guard(arch: str, archs: Sequence[str]) -> str:
    """The preprocessor condition under which the code of an architecture has a body, beside that of others or of what its own features
    are missing in: nvcc -arch=sm_90a makes code for compute_90 too."""
    own = TARGETS[arch]
    if arch.endswith("a"):
        return f"defined(__CUDA_ARCH_FEAT_SM{own.compute}_ALL)"
    if len(archs) == 1:
        return ""
    newer = [TARGETS[a].macro for a in archs if TARGETS[a].compute > own.compute]
    upper = f" && __CUDA_ARCH__ < {min(newer)}" if newer else ""
    return f"__CUDA_ARCH__ >= {own.macro}{upper}"


def _signature(kernel: ast.Kernel) -> str:
    """The kernel's head as written, on one line."""
    starts = [part.span.start for part in (*kernel.clauses, *kernel.body) if part.span.end]
    text = kernel.span.source.text[kernel.span.start : min(starts, default=kernel.span.end)]
    lines = [line.split("#")[0].strip() for line in text.splitlines()]
    head = " ".join(line for line in lines if line).rstrip().rstrip(":").rstrip()
    return head.replace("( ", "(").replace(" )", ")").replace("[ ", "[").replace(" ]", "]")
