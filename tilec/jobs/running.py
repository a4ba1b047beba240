"""The work of `tilec run`: files and kernels to verified results."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tilec.jobs.messages import Form, render
from tilec.jobs.requests import check_source, parse_archs, parse_pairs
from tilec.jobs.requiring import check_required, parse_required
from tilec.jobs.size_ranges import expand_settings
from tilec.source.diagnostics import Diagnostic, TileError, fail

if TYPE_CHECKING:
    from tilec.compiled import CompiledFile, CompiledKernel
    from tilec.emulator.machine import Emulator
    from tilec.plan.candidate import Choice
    from tilec.runtime.device import Gpu
    from tilec.runtime.kernel_run import KernelRunner
    from tilec.runtime.outcome import Outcome

EMULATED_ARCH = "sm_90"
"""What is compiled where no GPU says otherwise: the emulator knows the instructions of every table."""


@dataclass(frozen=True)
class RunRequest:
    """The command line of `tilec run`, option by option. `settings`, `defines` and `inputs` are `NAME=VALUE` texts, of which
    settings may name ranges; `tuned` is unset by `--no-tuned`, `dispatch` is `--tuned`; `required` are the texts of `--require`."""

    file: str | None = None
    kernel: str | None = None
    settings: tuple[str, ...] = ()
    defines: tuple[str, ...] = ()
    inputs: tuple[str, ...] = ()
    seed: int = 0
    size: str | None = None
    small: bool = False
    device: str = "auto"
    arch: str | None = None
    reference: str | None = None
    rtol: float | None = None
    atol: float | None = None
    bench: bool = False
    save: str | None = None
    json_path: str | None = None
    nvcc: str | None = None
    early: bool = False
    chaos: int | None = None
    counters: bool = False
    form: Form = "text"
    tuned: bool = True
    against: str | None = None
    csv_path: str | None = None
    plot_path: str | None = None
    dispatch: bool = False
    energy: bool = False
    required: tuple[str, ...] = ()


def run_files(request: RunRequest) -> int:
    """Run and verify; prints a table on standard output and messages on standard error. Returns the worst exit status.

    Raises TileError where the command line or the environment stops everything.
    """
    from tilec.emulator.machine import Emulator

    _check(request)
    requests = [replace(request, settings=s) for s in expand_settings(request.settings)]
    files = _files(request)
    with ExitStack() as stack:
        # the first file is analysed while the driver starts
        reader = stack.enter_context(ThreadPoolExecutor(1))
        first = reader.submit(_analyse, requests[0], files[0])
        gpu, note = _device(request, stack)
        if request.bench and (gpu is None or isinstance(gpu, Emulator)):
            raise fail("E0812", "`--bench` needs a GPU", note=note)
        if note:
            sys.stderr.write(f"note: {note}\n")
        outcomes: list[Outcome] = []
        status = 0
        for n, (one, file) in enumerate([(r, f) for f in files for r in requests]):
            try:
                analysed = first.result() if n == 0 else _analyse(one, file)
                outcomes += list(_run_file(one, file, gpu, analysed))
            except TileError as error:
                _show(request, error)
                status = max(status, error.exit_code)
        status = max([status, *(o.exit_code for o in outcomes)])
        _report(request, outcomes, gpu)
    return status


def _check(request: RunRequest) -> None:
    wanted = ("--early", request.early), ("--counters", request.counters)
    for option, given in (*wanted, ("--chaos", request.chaos is not None)):
        if given and request.device != "cpu":
            raise fail("E0709", f"`{option}` is about the emulator", help="add `--device cpu`")
    if request.early and request.chaos is not None:
        raise fail("E0709", "`--early` and `--chaos` are two orders of asynchronous copies")
    if request.bench and request.device == "cpu":
        raise fail("E0709", "`--bench` measures a GPU, and `--device cpu` uses none")
    if request.dispatch and not request.tuned:
        raise fail("E0709", "`--tuned` and `--no-tuned` exclude each other")
    if request.small and request.size:
        raise fail("E0709", "`--small` chooses the sizes, so it takes no `--size`")
    if request.small and request.inputs:
        raise fail("E0709", "`--small` chooses the sizes, so it takes no `--input`")
    about_times = ("--against", request.against), ("--plot", request.plot_path)
    for option, value in (*about_times, ("--energy", request.energy)):
        if value and not request.bench:
            raise fail("E0709", f"`{option}` is about times", help="add `--bench`")
    if request.energy:
        from tilec.runtime.energy import import_nvml

        import_nvml()
    if request.plot_path:
        from tilec.runtime.comparing import import_matplotlib

        plot_form(request.plot_path)
        import_matplotlib()
    if request.against == "torch":
        from tilec.runtime.against import find_torch

        find_torch()
    if request.small and request.bench:
        raise fail("E0709", "`--bench` measures at example sizes, not at those of `--small`")
    for settings in expand_settings(request.settings):
        parse_pairs(settings, "-s")
    parse_pairs(request.defines, "-D")
    parse_required(request.required)
    if request.required and request.device == "reference":
        raise fail("E0709", "`--require` is about compiled code, and `--device reference` has none")
    parse_pairs(request.inputs, "--input")
    if request.arch:
        parse_archs((request.arch,))


def _files(request: RunRequest) -> list[str]:
    if request.file is not None:
        check_source(request.file)
        return [request.file]
    found = sorted(str(p) for p in Path().glob("*.tile"))
    if not found:
        raise fail(
            "E0717", "the current folder has no `.tile` file", help="name one: `tilec run FILE`"
        )
    return found


def _device(request: RunRequest, stack: ExitStack) -> tuple[Gpu | Emulator | None, str]:
    """The GPU, or the emulator or None for the interpreter, and the reason. Raises TileError where what `--device` names
    is not there."""
    if request.device == "reference":
        return None, ""
    if request.device == "cpu":
        return _emulator(request), ""
    from tilec.runtime.device import open_gpu

    if request.device == "gpu":
        return stack.enter_context(open_gpu()), ""
    from tilec.toolchain.driver import query_driver

    driver = query_driver()
    if not driver.devices:
        return _without_gpu(request, f"no GPU ({driver.problem})")
    try:
        return stack.enter_context(open_gpu()), ""
    except TileError as error:
        first = error.diagnostics[0]
        advice = f"; {first.helps[0]}" if first.helps else ""
        return _without_gpu(request, f"{first.message}{advice}")


def _without_gpu(request: RunRequest, reason: str) -> tuple[Emulator | None, str]:
    """The emulator where it can be built, else the interpreter."""
    sizes = "at `example cpu` sizes"
    try:
        emulator = _emulator(request)
        emulator.build_too = True
        return emulator, f"{reason}: the emulator runs the generated code, {sizes}"
    except TileError as error:
        if error.exit_code != 3:
            raise
        return None, f"{reason}; {error.diagnostics[0].message}: the interpreter runs, {sizes}"


def _emulator(request: RunRequest) -> Emulator:
    """The emulator, its primitives built. Raises TileError (E0802, E0805)."""
    from tilec.emulator.build import host_toolchain
    from tilec.emulator.library import Mode, Schedule
    from tilec.emulator.machine import Emulator

    host_toolchain()
    mode: Mode = "chaos" if request.chaos is not None else "early" if request.early else "late"
    return Emulator(
        parse_archs((request.arch or EMULATED_ARCH,))[-1],
        Schedule(mode, request.chaos or 0),
        counting=request.counters,
    )


def _run_file(
    request: RunRequest, file: str, gpu: Gpu | Emulator | None, analysed: CompiledFile
) -> Iterator[Outcome]:
    from tilec.emulator.machine import Emulator
    from tilec.runtime.kernel_run import KernelRunner
    from tilec.syntax.loading import load

    required = parse_required(request.required)
    _check_settings(request, analysed)
    files = load(file)

    def warn(found: Sequence[Diagnostic]) -> None:
        sys.stderr.write(_rendered(request, found) + "\n")

    for compiled, error in _units(request, analysed, file, gpu):
        if error is not None:
            _show(request, error)
        elif request.device != "reference":
            check_required(compiled, required)
        if compiled.diagnostics and error is None:
            sys.stderr.write(_rendered(request, compiled.diagnostics) + "\n")
        # a kernel that cannot be compiled is interpreted, unless a device was asked for
        device = None if error and isinstance(gpu, Emulator) and request.device == "auto" else gpu
        if isinstance(device, Emulator):
            device.sources = {Path(m.source.name).name: m.source for m in files.modules}
        with KernelRunner(request, file, compiled, files, device, warn) as runner:
            for kernel in compiled.kernels:
                if error is None:
                    yield from _run_kernel(request, runner, kernel)
                elif device is not None:
                    yield _failed(request, runner, kernel, "", error)
                else:
                    for outcome in _run_kernel(request, runner, kernel):
                        status = max(outcome.exit_code, error.exit_code)
                        yield replace(outcome, exit_code=status)


def _units(
    request: RunRequest, analysed: CompiledFile, file: str, gpu: Gpu | Emulator | None
) -> Iterator[tuple[CompiledFile, TileError | None]]:
    """What to run: the file compiled as a whole; where a kernel cannot be compiled, each kernel by itself, that one only
    analysed, with its error. `--device reference` compiles nothing."""
    if request.device == "reference":
        yield analysed, None
        return
    try:
        whole = _compile(request, file, gpu, request.kernel)
    except TileError as error:
        if len(analysed.kernels) == 1:
            yield analysed, error
            return
    else:
        yield whole, None
        return
    for kernel in analysed.kernels:
        alone = replace(analysed, kernels=(kernel,))
        try:
            yield _compile(request, file, gpu, kernel.name), None
        except TileError as error:
            yield alone, error


def _run_kernel(
    request: RunRequest, runner: KernelRunner, kernel: CompiledKernel
) -> Iterator[Outcome]:
    try:
        cases = runner.cases(kernel)
    except TileError as error:
        _show(request, error)
        yield _failed(request, runner, kernel, "", error)
        return
    for sizes in cases:
        try:
            outcome = runner.run(kernel, sizes)
            if outcome.status == "failed":
                _show(request, _differs(outcome))
            note = (*_tuned_note(kernel), *_selected(kernel, outcome.variants))
            yield replace(outcome, details=(*outcome.details, *note))
        except TileError as error:
            _show(request, error)
            yield _failed(request, runner, kernel, str(sizes), error)
        except Exception as error:
            fault = _fault(error, runner.file, kernel.name, str(sizes))
            _show(request, fault)
            yield _failed(request, runner, kernel, str(sizes), fault)


def _tuned_note(kernel: CompiledKernel) -> tuple[str, ...]:
    """Which values come from the tuner."""
    origin = kernel.manifest.get("origin", {})
    values = kernel.manifest.get("candidate", {})
    tuned = [f"{n}={values[n]}" for n, of in origin.items() if of == "tuned" and n in values]
    return (f"tuned: {' '.join(tuned)}",) if tuned else ()


def _selected(kernel: CompiledKernel, launched: Sequence[str]) -> tuple[str, ...]:
    """Which of several tuned variants a call took, by the kernels that it launched."""
    for target in kernel.plan.targets:
        if target.selection is None:
            continue
        for alternative in target.selection.alternatives:
            if {a.kernel for s in alternative.steps for a in s.launches} & set(launched):
                return (f"tuned variant {alternative.number}: {alternative.label}",)
        return ("the general variant",)
    return ()


def _failed(
    request: RunRequest, runner: KernelRunner, kernel: CompiledKernel, sizes: str, error: TileError
) -> Outcome:
    from tilec.runtime.outcome import Outcome

    return Outcome(
        file=runner.file,
        kernel=kernel.name,
        sizes=sizes,
        status="failed",
        device=runner.where,
        details=tuple(d.message for d in error.diagnostics),
        seed=request.seed,
        exit_code=error.exit_code,
    )


def _fault(error: Exception, file: str, kernel: str, sizes: str) -> TileError:
    """An exception nobody expected in one kernel, so that the others still run."""
    from tilec.toolchain.fault import internal_fault

    files: dict[str, str | bytes] = {Path(file).name: Path(file).read_bytes()}
    return internal_fault(error, f"running `{kernel}` of `{file}` at {sizes}", files)


def _differs(outcome: Outcome) -> TileError:
    """The message for a result that did not verify."""
    where = f"`{outcome.kernel}` at {outcome.sizes}" if outcome.sizes else f"`{outcome.kernel}`"
    return TileError(
        [
            Diagnostic(
                "E0901",
                f"{where} computed on {outcome.device} differs from its reference",
                notes=outcome.details,
                helps=("`--rtol` and `--atol` replace the bounds; `--save DIR` keeps the arrays",),
            )
        ]
    )


def _analyse(request: RunRequest, file: str) -> CompiledFile:
    """The kernels as far as Tile IR, with plans that launch nothing. Raises TileError with every error of the program."""
    from tilec.compiler import compile_file
    from tilec.runtime.arguments import plan_without_launches

    analysed = compile_file(
        file, kernel=request.kernel, defines=parse_pairs(request.defines, "-D"), stop="tile-ir"
    )
    kernels = tuple(replace(k, plan=plan_without_launches(k.program)) for k in analysed.kernels)
    return replace(analysed, kernels=kernels, cu="")


def _compile(
    request: RunRequest, file: str, gpu: Gpu | Emulator | None, kernel: str | None
) -> CompiledFile:
    from tilec.emulator.machine import Emulator
    from tilec.jobs.tuned import compile_dispatched, compile_tuned, tuned_choices
    from tilec.tuning.dispatch import MOST

    archs: tuple[str, ...]
    if request.arch:
        archs = (request.arch,)
    elif gpu is not None:
        from tilec.runtime.launching import architecture_for

        archs = (architecture_for(gpu.capability),)
    else:
        archs = (EMULATED_ARCH,)
    defines = parse_pairs(request.defines, "-D")
    command = f"tilec run {Path(file).name}"
    if request.dispatch:
        return compile_dispatched(
            file, most=MOST, kernel=kernel, defines=defines, archs=archs, command=command
        )
    choices: dict[str, Choice] = {}
    missing: list[Diagnostic] = []
    if request.tuned and gpu is not None:
        choices = tuned_choices(
            file,
            kernel,
            defines,
            archs[0],
            settings=request.settings,
            gpu=gpu.name,
            with_cache=True,
            cpu_sizes=isinstance(gpu, Emulator) and request.size is None,
            missing=missing,
        )
    compiled, _ = compile_tuned(
        file,
        choices,
        kernel=kernel,
        defines=defines,
        archs=archs,
        command=command,
    )
    return replace(compiled, diagnostics=(*compiled.diagnostics, *missing))


def _check_settings(request: RunRequest, compiled: CompiledFile) -> None:
    """Raises TileError (E0712) where no kernel of a file that was named has what `-s` sets."""
    if request.file is None:
        return
    known: dict[str, None] = {}
    for kernel in compiled.kernels:
        plan = kernel.plan
        names = [v.name for v in (*plan.dims, *plan.strides)] + [s.name for s in plan.scalars]
        known.update(dict.fromkeys(names))
    statics = {name for k in compiled.kernels for name in k.program.statics}
    for name in parse_pairs(request.settings, "-s"):
        if name in known:
            continue
        if name in statics:
            raise fail(
                "E0712", f"`{name}` is a compile-time parameter", help=f"set it with `-D {name}=…`"
            )
        listed = ", ".join(f"`{n}`" for n in known) or "none"
        raise fail(
            "E0712", f"no kernel here has a size or scalar `{name}`", help=f"there are {listed}"
        )


def _report(request: RunRequest, outcomes: list[Outcome], gpu: Gpu | Emulator | None) -> None:
    from tilec.jobs.outputs import write_outputs
    from tilec.runtime.report import outcomes_json, outcomes_table

    if "-" not in (request.json_path, request.csv_path):
        sys.stdout.write(outcomes_table(outcomes) + "\n")
    if request.json_path:
        text = outcomes_json(outcomes, _facts(request, gpu))
        write_outputs({request.json_path: text.encode()})
    if request.csv_path:
        from tilec.runtime.comparing import outcomes_csv

        write_outputs({request.csv_path: outcomes_csv(outcomes).encode()})
    if request.plot_path:
        from tilec.runtime.comparing import plot

        write_outputs({request.plot_path: plot(outcomes, plot_form(request.plot_path))})


def plot_form(path: str) -> str:
    """The form of an image by its path: png, svg or pdf. Raises TileError (E0709)."""
    form = Path(path).suffix.removeprefix(".").lower()
    if form not in ("png", "svg", "pdf"):
        raise fail("E0709", f"`--plot {path}` names no png, svg or pdf file")
    return form


def _facts(request: RunRequest, gpu: Gpu | Emulator | None) -> dict[str, Any]:
    """What the results depend on besides the program."""
    from tilec.toolchain.driver import query_driver

    driver = query_driver()
    return {
        "commit": commit(),
        "device": gpu.name if gpu else "reference",
        "arch": gpu.arch if gpu else "",
        "driver": ".".join(map(str, driver.version)) if driver.version else "",
        "seed": request.seed,
        "defines": parse_pairs(request.defines, "-D"),
    }


def commit() -> str:
    """The commit of the checkout that runs, `-dirty` where files differ from it; "" for an installed wheel."""
    import subprocess

    root = Path(__file__).resolve().parent.parent.parent
    if not (root / ".git").exists():
        return ""
    words = [
        "git",
        "-C",
        str(root),
        "describe",
        "--always",
        "--dirty",
        "--abbrev=12",
        "--exclude=*",
    ]
    try:
        done = subprocess.run(words, capture_output=True, text=True, check=False, timeout=20)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return done.stdout.strip() if done.returncode == 0 else ""


def _rendered(request: RunRequest, diagnostics: Any) -> str:
    return render(diagnostics, request.form)


def _show(request: RunRequest, error: TileError) -> None:
    sys.stderr.write(_rendered(request, error.diagnostics) + "\n")
