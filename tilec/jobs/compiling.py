"""The work of `tilec compile`: one request to files on disk."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from tilec.jobs.messages import Form, render
from tilec.jobs.requests import check_source, parse_archs, parse_pairs
from tilec.jobs.requiring import check_required, parse_required
from tilec.lazy_dataclass import dataclass
from tilec.source.diagnostics import (
    Diagnostic,
    TileError,
    fail,
)

if TYPE_CHECKING:
    from tilec.compiled import CompiledFile
    from tilec.toolchain.build import Built

EMISSIONS = ("ast", "tile-ir", "kernel-ir", "cu", "ptx", "cubin", "manifest")
"""What `--emit` takes."""

_EXTENSIONS = {"cu": ".cu", "ptx": ".ptx", "cubin": ".cubin"}
"""Emissions that go to a file where `-o` is not given; the others go to standard output."""


@dataclass(frozen=True)
class CompileRequest:
    """The command line of `tilec compile`, option by option. `defines` are `NAME=VALUE` texts; `archs` empty means the
    default; `depfile` is also set where only its path or target was given; `tuned` is unset by `--no-tuned`; `if_changed`
    leaves a file alone that holds its bytes already; `dispatch` is `--tuned`, with at most `variants` tuned variants a kernel and
    architecture, and with `split` each in a file of its own; `required` are the texts of `--require`; `jobs` processes may compile, by default as
    many as there are cores."""

    file: str
    kernel: str | None = None
    output: str | None = None
    defines: tuple[str, ...] = ()
    archs: tuple[str, ...] = ()
    header: str | None = None
    emit: str = "cu"
    print_after: tuple[str, ...] = ()
    save_temps: str | None = None
    depfile: bool = False
    depfile_path: str | None = None
    depfile_target: str | None = None
    check_only: bool = False
    nvcc: str | None = None
    form: Form = "text"
    warnings_as_errors: bool = False
    no_warnings: bool = False
    tuned: bool = True
    if_changed: bool = False
    dispatch: bool = False
    variants: int | None = None
    split: bool = False
    required: tuple[str, ...] = ()
    jobs: int | None = None


def run_compile(request: CompileRequest) -> None:
    """Compile and write. Prints warnings and snapshots on standard error. Raises TileError; then nothing was written."""
    check_source(request.file)
    _check_options(request)
    archs = parse_archs(request.archs)
    if request.emit in ("ptx", "cubin", "kernel-ir") and len(archs) > 1:
        named = ", ".join(f"`{a}`" for a in archs)
        raise fail("E0708", f"`--emit {request.emit}` is for one architecture, not for {named}")
    required = parse_required(request.required)
    compiled, text = _compile(request, archs)
    check_required(compiled, required)
    warnings = () if request.no_warnings else compiled.diagnostics
    _stop_at_warnings(request, compiled)
    if warnings and not request.no_warnings:
        shown = render(warnings, request.form)
        sys.stderr.write(shown + "\n")
    for name in request.print_after:
        if name not in compiled.snapshots:
            raise fail(
                "E0719", f"no pass `{name}` ran", help="docs/architecture.md lists the passes"
            )
        sys.stderr.write(compiled.snapshots[name].rstrip() + "\n")
    if request.check_only:
        return
    built = _build(request, compiled) if request.emit in ("ptx", "cubin") else None
    if built:
        _show_losses(request, compiled, built)
    _write(request, compiled, text, built)


def _show_losses(request: CompileRequest, compiled: CompiledFile, built: Built) -> None:
    """Warnings about performance that nvcc lost."""
    from tilec.toolchain.losses import performance_warnings

    (arch,) = compiled.archs
    found = replace(compiled, diagnostics=performance_warnings(built.ptxas, arch))
    _stop_at_warnings(request, found)
    if found.diagnostics and not request.no_warnings:
        sys.stderr.write(render(found.diagnostics, request.form) + "\n")


def command_text(request: CompileRequest) -> str:
    """The command as the banner of the output shows it: what decides the bytes, no folder, so the same anywhere."""
    import shlex

    words = ["tilec", "compile", Path(request.file).name]
    if request.kernel:
        words.append(request.kernel)
    for name, value in sorted(parse_pairs(request.defines, "-D").items()):
        words += ["-D", f"{name}={value}"]
    for arch in parse_archs(request.archs):
        words += ["--arch", arch]
    if request.dispatch:
        words.append("--tuned")
    if request.variants is not None:
        words += ["--variants", str(request.variants)]
    if request.split:
        words.append("--split")
    return shlex.join(words)


def _check_options(request: CompileRequest) -> None:
    if request.check_only and (request.output or request.header or request.save_temps):
        raise fail(
            "E0709",
            "`--check-only` writes nothing, so it takes no `-o`, `--header` or `--save-temps`",
        )
    if request.required and request.emit in ("ast", "tile-ir"):
        raise fail(
            "E0709",
            f"`--require` is about compiled code, and `--emit {request.emit}` stops before that",
        )
    if request.depfile and request.depfile_path is None and output_path(request) == "-":
        raise fail(
            "E0709",
            "`-MD` with standard output needs a path for the dependency file",
            help="give `-MF FILE`",
        )
    _check_dispatch(request)


def _check_dispatch(request: CompileRequest) -> None:
    if request.dispatch and not request.tuned:
        raise fail("E0709", "`--tuned` and `--no-tuned` exclude each other")
    for option, given in (("--split", request.split), ("--variants", request.variants is not None)):
        if given and not request.dispatch:
            raise fail("E0709", f"`{option}` is about tuned variants", help="add `--tuned`")
    if request.split and request.emit != "cu":
        raise fail(
            "E0709", f"`--split` writes `.cu` files, and `--emit {request.emit}` another form"
        )
    if request.split and output_path(request) == "-":
        raise fail("E0709", "`--split` writes several files, which standard output is not")


def _stop_at(emit: str) -> Literal["ast", "tile-ir", "kernel-ir", "cu"]:
    match emit:
        case "ast" | "tile-ir" | "kernel-ir":
            return emit
        case _:
            return "cu"


def _compile(request: CompileRequest, archs: tuple[str, ...]) -> tuple[CompiledFile, str]:
    """The compiled file, and the text to emit ("" for what nvcc makes)."""
    from tilec.jobs.tuned import compile_dispatched, compile_tuned, tuned_choices
    from tilec.tuning.dispatch import MOST

    defines = parse_pairs(request.defines, "-D")
    stop = (
        "cu"
        if request.header or request.save_temps or request.check_only
        else _stop_at(request.emit)
    )
    options = {
        "kernel": request.kernel,
        "defines": defines,
        "archs": archs,
        "print_after": request.print_after,
        "stop": stop,
        "command": command_text(request),
        "jobs": _jobs(request),
    }
    if request.dispatch:
        most = MOST if request.variants is None else request.variants
        compiled = compile_dispatched(request.file, most=most, split=request.split, **options)
        return compiled, emitted_text(compiled, request.file, request.emit)
    # a candidate may not fit another target, so code for several takes none
    tuned = request.tuned and len(archs) == 1
    missing: list[Diagnostic] = []
    choices = {}
    if tuned:
        choices = tuned_choices(request.file, request.kernel, defines, archs[0], missing=missing)
    compiled, _ = compile_tuned(request.file, choices, **options)
    compiled = replace(compiled, diagnostics=(*compiled.diagnostics, *missing))
    return compiled, emitted_text(compiled, request.file, request.emit)


def _jobs(request: CompileRequest) -> int:
    """How many processes compile: one where Kernel IR is asked for or described, which does not pass from one to another."""
    if request.emit in ("kernel-ir", "manifest") or request.save_temps or request.required:
        return 1
    if request.jobs is not None:
        return request.jobs
    from tilec.forked import cores

    return cores()


def emitted_text(compiled: CompiledFile, file: str, emit: str) -> str:
    """One form of a compiled file as text; "" for the forms that nvcc makes."""
    match emit:
        case "ast":
            return _ast(file)
        case "tile-ir":
            from tilec.ir.printer import print_program

            return "\n".join(print_program(k.program).rstrip() + "\n" for k in compiled.kernels)
        case "kernel-ir":
            texts = [text for k in compiled.kernels for _, text in sorted(k.kernel_ir.items())]
            return "\n".join(text.rstrip() + "\n" for text in texts)
        case "manifest":
            return _manifest(compiled)
        case "cu":
            return compiled.cu
        case _:
            return ""


def _ast(file: str) -> str:
    from tilec.syntax.loading import load
    from tilec.syntax.printer import dump

    return dump(load(file).main)


def _manifest(compiled: CompiledFile) -> str:
    import json

    import tilec

    data = {
        "tilec": tilec.__version__,
        "source": compiled.source_name,
        "archs": list(compiled.archs),
        "kernels": [dict(k.manifest) for k in compiled.kernels],
    }
    return json.dumps(data, indent=2) + "\n"


def _stop_at_warnings(request: CompileRequest, compiled: CompiledFile) -> None:
    warnings = [d for d in compiled.diagnostics if d.level == "warning"]
    if request.warnings_as_errors and warnings:
        count = (
            "1 warning counts as an error"
            if len(warnings) == 1
            else f"{len(warnings)} warnings count as errors"
        )
        # the program's warnings first, so that the sentence that stops the work comes last
        raise TileError([*warnings, Diagnostic("E0650", f"{count} with `--warnings-as-errors`")])


def _build(request: CompileRequest, compiled: CompiledFile) -> Built:
    """What nvcc makes of the `.cu`, from the cache where it has been made before."""
    from tilec.toolchain.build import compile_cubin, compile_ptx, find_toolchain
    from tilec.toolchain.cache import default_cache

    cache = default_cache()
    toolchain = find_toolchain(request.nvcc, cache=cache)
    (arch,) = compiled.archs
    build = compile_ptx if request.emit == "ptx" else compile_cubin
    return build(compiled.cu, arch, toolchain=toolchain, cache=cache)


def _write(request: CompileRequest, compiled: CompiledFile, text: str, built: Built | None) -> None:
    from tilec.jobs.outputs import make_folder, write_outputs

    output = output_path(request)
    places = [(output, built.blob if built else text.encode())]
    places += [(part_path(output, n), t.encode()) for n, t in compiled.parts.items()]
    if request.header:
        places.append((request.header, compiled.header.encode()))
    if request.depfile:
        places.append(_depfile(request, compiled, output))
    _check_places([name for name, _ in places], compiled)
    files = dict(places)
    if request.save_temps:
        make_folder(request.save_temps)
        for name, stage in _stages(request, compiled, built).items():
            files[str(Path(request.save_temps) / name)] = stage
    write_outputs(files, if_changed=request.if_changed)
    if request.split:
        # what a build has to compile; how many there are depends on the results
        sys.stdout.write("".join(f"{n}\n" for n in (output, *_parts(output, compiled))))


def _check_places(outputs: Sequence[str], compiled: CompiledFile) -> None:
    """Raises TileError where an output would replace an input (E0704), or another output (E0709)."""
    from os.path import realpath

    taken = {realpath(d): "" for d in compiled.dependencies}
    for name in outputs:
        place = name if name == "-" else realpath(name)
        if taken.get(place) == "":
            raise fail(
                "E0704", f"the output `{name}` would replace a program", help="name another path"
            )
        if place in taken:
            raise fail("E0709", f"two outputs go to `{name}`", help="give each a path of its own")
        taken[place] = name


def output_path(request: CompileRequest) -> str:
    """`-o`, else `STEM.cu` (`.ptx`, `.cubin`) in the current folder, else standard output."""
    if request.output is not None:
        return request.output
    extension = _EXTENSIONS.get(request.emit)
    return Path(request.file).stem + extension if extension else "-"


def part_path(output: str, launcher: str) -> str:
    """Where `--split` writes a variant: `gemm.gemm_tuned1.cu` beside `gemm.cu`."""
    place = Path(output)
    return str(place.with_name(f"{place.stem}.{launcher}{place.suffix or '.cu'}"))


def _parts(output: str, compiled: CompiledFile) -> list[str]:
    return [part_path(output, name) for name in compiled.parts]


def _depfile(request: CompileRequest, compiled: CompiledFile, output: str) -> tuple[str, bytes]:
    from tilec.jobs.depfile import depfile_text, escape

    # what `-MT` gives is copied as it is, as compilers do: it may be several targets
    outputs = (output, *_parts(output, compiled))
    target = request.depfile_target or " ".join(map(escape, outputs))
    path = request.depfile_path or str(Path(output).with_suffix(".d"))
    return path, depfile_text(target, compiled.dependencies or (request.file,)).encode()


def _stages(
    request: CompileRequest, compiled: CompiledFile, built: Built | None
) -> Mapping[str, bytes]:
    """Every stage by file name."""
    stem = Path(request.file).stem
    texts = {
        f"{stem}.ast": emitted_text(compiled, request.file, "ast"),
        f"{stem}.tile-ir": emitted_text(compiled, request.file, "tile-ir"),
        f"{stem}.kernel-ir": emitted_text(compiled, request.file, "kernel-ir"),
        f"{stem}.cu": compiled.cu,
        **{part_path(f"{stem}.cu", name): text for name, text in compiled.parts.items()},
        f"{stem}.h": compiled.header,
        f"{stem}.json": _manifest(compiled),
    }
    files = {name: text.encode() for name, text in texts.items()}
    for index, (name, snapshot) in enumerate(compiled.snapshots.items()):
        files[f"{stem}.{index:02d}-{name}"] = snapshot.encode()
    if built:
        files[f"{stem}.{request.emit}"] = built.blob
        files[f"{stem}.nvcc.log"] = built.log.encode()
    return files
