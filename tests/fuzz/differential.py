"""Batches of random programs: one file, one build for the host, every candidate and order against the interpreter."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from tests.fuzz.kernels import Program
from tests.fuzz.scalars import BITS, FLOATS, Runner, Unknown
from tests.fuzz.scalars import Tile as Scalars
from tilec.compiled import CompiledFile, CompiledKernel
from tilec.compiler import compile_file
from tilec.emit.wgmma import forms_of
from tilec.emulator.build import FLAGS, host_toolchain
from tilec.emulator.library import HostKernel, Mode, Schedule
from tilec.emulator.machine import EmulatedModule, Emulator
from tilec.emulator.text import PRELUDE, cluster_of, kernel_texts, product_text
from tilec.ir import asynchronous as a
from tilec.ir import tile_ir as tile
from tilec.passes import copies
from tilec.reference.inputs import make_inputs, tensor_uses
from tilec.runtime.arguments import CallSizes, bind_sizes, check_call
from tilec.runtime.clauses import find_kernel
from tilec.runtime.gpu_run import prepare_call
from tilec.runtime.host import evaluate_sym
from tilec.runtime.verify import Bounds, Case, Tolerance, failures, interpreter_bounds, verify
from tilec.source.diagnostics import TileError
from tilec.syntax.loading import load
from tilec.toolchain.process import run_tool

ARCH = "sm_90"
ASYNCHRONOUS = "sm_90a"
"""Programs with products are compiled for it too, and compared where one of their kernels has roles."""
"""The kernels run once: building them costs more."""
MOST_SCALARS = 200000
"""Of the product of dims and tile sizes, up to which plain loops run a call."""

MODES: tuple[Mode, ...] = ("late", "early")

REFUSALS = frozenset(
    {"E0201", "E0204", "E0304", "E0316"}
    | {"E0403", "E0404", "E0405", "E0511", "E0514", "E0515", "E0601", "E0602", "E0603"}
)
"""Codes that a program of the generator may get: what a tile or a loop may not do is not all known to it."""


@dataclass(frozen=True)
class Problem:
    """What is wrong with a program: which candidate, at which sizes."""

    program: Program
    what: str
    candidate: int = 0
    sizes: Mapping[str, int] = field(default_factory=dict)
    mode: str = ""


@dataclass
class Tally:
    """What a run has done."""

    programs: int = 0
    kernels: int = 0
    asynchronous: set[int] = field(default_factory=set)
    """seeds of programs with a kernel in which roles differ"""
    launches: int = 0
    with_roles: int = 0
    """launches of such kernels"""
    elements: int = 0
    scalars: int = 0
    """calls that plain loops over scalars have confirmed"""
    refused: dict[str, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    seconds: dict[str, float] = field(default_factory=dict)

    def spent(self, what: str, since: float) -> None:
        """Adds time to a part."""
        self.seconds[what] = self.seconds.get(what, 0.0) + time.perf_counter() - since


@dataclass(frozen=True)
class _Compiled:
    program: Program
    candidate: int
    file: CompiledFile
    path: Path
    arch: str

    @property
    def kernel(self) -> CompiledKernel:
        return self.file.kernels[0]


def run_batch(programs: Sequence[Program], tally: Tally, arch: str | None = None) -> None:
    """Run programs together, for one architecture or for both of the default; what is wrong is added to the tally."""
    with tempfile.TemporaryDirectory(prefix="tilec-fuzz-") as made:
        folder = Path(made)
        compiled: list[_Compiled] = []
        for number, program in enumerate(programs):
            tally.programs += 1
            start = time.perf_counter()
            if arch is None or arch != ASYNCHRONOUS:
                compiled += _compile(program, f"p{number}", folder, tally, arch or ARCH)
            if program.has_products and arch in (None, ASYNCHRONOUS):
                more = _compile(program.suited(), f"a{number}", folder, tally, ASYNCHRONOUS)
                compiled += [one for one in more if _with_roles(one)]
            tally.spent("compile", start)
        start = time.perf_counter()
        libraries = _build(compiled, folder, tally)
        tally.spent("build", start)
        for one in compiled:
            if one.path in libraries:
                tally.kernels += 1
                if one.arch == ASYNCHRONOUS:
                    tally.asynchronous.add(one.program.seed)
                _check(one, libraries[one.path], tally)


def _with_roles(one: _Compiled) -> set[str]:
    """Names of the kernels in which roles differ."""
    lowered = one.kernel.lowered[one.arch]
    return {low.name for low in lowered if any(isinstance(op, a.Roles) for op in low.body)}


def _compile(program: Program, stem: str, folder: Path, tally: Tally, arch: str) -> list[_Compiled]:
    found = []
    for candidate in range(len(program.tiles)):
        name = f"{stem}_{candidate}"
        path = folder / f"{name}.tile"
        path.write_text(program.text(name, candidate), encoding="utf-8")
        try:
            with tables_pay():
                file = compile_file(str(path), archs=(arch,))
        except TileError as error:
            code = error.diagnostics[0].code
            tally.refused[code] = tally.refused.get(code, 0) + 1
            if code not in REFUSALS:
                what = f"refused: {code} {error.diagnostics[0].message}"
                tally.problems.append(Problem(program, what, candidate))
            continue
        except Exception as error:
            what = f"the compiler failed: {type(error).__name__}: {error}"
            tally.problems.append(Problem(program, what, candidate))
            continue
        found.append(_Compiled(program, candidate, file, path, arch))
    return found


@contextmanager
def tables_pay() -> Iterator[None]:
    """Tables of blocks are made however little there is to skip."""
    kept, copies.TABLE_SHARE = copies.TABLE_SHARE, 1e6
    try:
        yield
    finally:
        copies.TABLE_SHARE = kept


def _build(
    compiled: Sequence[_Compiled], folder: Path, tally: Tally
) -> dict[Path, dict[str, HostKernel]]:
    """One library for all kernels; where the host compiler rejects it, one for each program."""
    try:
        return _library(compiled, folder / "batch")
    except TileError as error:
        if len(compiled) == 1:
            message = " ".join((error.diagnostics[0].message, *error.diagnostics[0].notes))
            one = compiled[0]
            tally.problems.append(Problem(one.program, f"not built: {message}", one.candidate))
            return {}
    found: dict[Path, dict[str, HostKernel]] = {}
    for one in compiled:
        found |= _build([one], folder / one.path.stem, tally)
    return found


def _library(compiled: Sequence[_Compiled], stem: Path) -> dict[Path, dict[str, HostKernel]]:
    tools = host_toolchain()
    forms = {form: None for one in compiled for form in forms_of(one.file.cu)}
    parts = [f'#include "{PRELUDE}"\n', *map(product_text, forms)]
    entries: dict[Path, list[str]] = {}
    for one in compiled:
        parts += [
            f'#line {text.line} "{one.path.stem}.cu"\n{text.text}\n'
            for text in kernel_texts(one.file.cu)
        ]
        plan = one.kernel.plan.targets[0]
        names = [launch.kernel for step in plan.steps for launch in step.launches]
        entries[one.path] = names
        parts += [
            f'extern "C" __attribute__((visibility("default"))) int tilec_{name}('
            f"tilec_host::Launch* launch) {{ return tilec_host::enter(launch, &{name}, "
            f"{cluster_of(one.file.cu, name)}); }}\n"
            for name in names
        ]
    if not compiled:
        return {}
    stem.parent.mkdir(exist_ok=True)
    source, library = stem.with_suffix(".cc"), stem.with_suffix(".so")
    source.write_text("".join(parts), encoding="utf-8")
    command = [
        str(tools.compiler.path),
        *FLAGS,
        f"-I{tools.folder}",
        "-shared",
        str(source),
    ]
    ran = run_tool([*command, *tools.objects, "-o", str(library)], cwd=stem.parent)
    if ran.status != 0 or not library.is_file():
        errors = [line for line in ran.output.splitlines() if "error" in line][:3]
        from tilec.source.diagnostics import fail

        raise fail("E7003", "; ".join(errors) or f"status {ran.status}")
    return {
        path: {name: HostKernel(library, f"tilec_{name}") for name in names}
        for path, names in entries.items()
    }


def _check(one: _Compiled, kernels: dict[str, HostKernel], tally: Tally) -> None:
    module = EmulatedModule(f"{one.path.stem}.cu", one.file.cu, None, kernels)
    files = load(str(one.path))
    kernel = one.kernel
    syntax = find_kernel(files.main, kernel.name)
    assert syntax is not None
    program = one.program
    roles = _with_roles(one)

    def problem(what: str, sizes: Mapping[str, int], mode: str = "") -> None:
        tally.problems.append(Problem(program, what, one.candidate, sizes, mode))

    for number, wanted in enumerate(program.sizes):
        try:
            sizes = bind_sizes(kernel.plan, {}, wanted)
            check_call(kernel.plan, sizes)
        except TileError:
            continue
        try:
            start = time.perf_counter()
            arrays = inputs(kernel.program, sizes, program.seed + number, special=number == 2)
            case = Case(kernel.program, files, syntax, sizes, arrays, program.seed)
            bounds = interpreter_bounds(case)
            tally.spent("interpreter", start)
            start = time.perf_counter()
            if wrong := against_scalars(case, bounds):
                problem(f"plain loops: {wrong}", wanted)
                continue
            tally.scalars += wrong is not None
            tally.spent("plain loops", start)
        except TileError as error:
            problem(f"not interpreted: {error.diagnostics[0].message}", wanted)
            continue
        except Exception as error:
            problem(f"the interpreter failed: {type(error).__name__}: {error}", wanted)
            continue
        for mode in MODES:
            start = time.perf_counter()
            emulator = Emulator(one.arch, Schedule(mode, number), cache=None)
            try:
                with prepare_call(emulator, kernel.plan, module, sizes, arrays) as call:
                    call.launch()
                    outputs = call.results()
                    call.check_surroundings()
            except TileError as error:
                first = error.diagnostics[0]
                problem(f"{first.code} {first.message}; {'; '.join(first.notes)}", wanted, mode)
                continue
            finally:
                tally.spent("emulator", start)
            tally.launches += call.launches
            tally.with_roles += sum(name in roles for name in call.kernels)
            start = time.perf_counter()
            kept = dict(bounds.values.items())
            findings = verify(case, outputs, bounds, Tolerance())
            bounds.values.update(kept)
            tally.elements += sum(f.comparison.elements - f.comparison.unknown for f in findings)
            tally.spent("compare", start)
            if wrong := failures(findings):
                problem("; ".join(wrong), wanted, mode)


def against_scalars(case: Case, bounds: Bounds) -> str | None:
    """Compare the interpreter with plain loops over scalars; None where the call is too large or has a construct that they
    do not know, else what differs, "" for nothing."""
    program = case.program
    numbers = {**case.sizes.numbers, **case.scalars}
    statics = {n: v for n, v in program.statics.items() if isinstance(v, int)}
    runner = Runner(case.kernel, {**statics, **program.tiles, **numbers})
    known = {**statics, **program.tiles, **numbers}
    volume = prod(max(1, numbers[v.name]) for v in program.dims)
    volume *= prod(v for v in program.tiles.values())
    if volume > MOST_SCALARS:
        return None
    for tensor in program.tensors:
        shape = tuple(evaluate_sym(d, known) for d in tensor.dims)
        array = case.arrays.get(tensor.name)
        if tensor.dtype.name not in (*BITS, *FLOATS):
            return None
        if array is None:
            data = [0] * prod(shape)
        else:
            wide = array.astype(np.float64) if tensor.dtype.is_float else array
            data = wide.reshape(-1).tolist()
        present = [[True] * n for n in shape]
        runner.tensors[tensor.name] = Scalars(data, shape, present, tensor.dtype.name)
    try:
        runner.run()
    except Unknown:
        return None
    for tensor in case.written:
        found = runner.tensors[tensor.name]
        expected = bounds.values[tensor.name].reshape(-1).astype(np.float64)
        error = bounds.errors[tensor.name].reshape(-1).astype(np.float64)
        have = np.array(found.data, np.float64)
        with np.errstate(all="ignore"):
            room = error * 1.001 + 1e-9 * np.abs(np.nan_to_num(expected, posinf=0, neginf=0))
            alike = (have == expected) | (np.isnan(have) & np.isnan(expected)) | np.isinf(error)
            wrong = np.flatnonzero(~(alike | np.isnan(error) | (np.abs(have - expected) <= room)))
        if len(wrong):
            at = int(wrong[0])
            return f"`{tensor.name}` [{at}]: {have[at]:.9g}, the interpreter {expected[at]:.9g} ± {error[at]:.3g}"
    return ""


def inputs(program: tile.Program, sizes: CallSizes, seed: int, *, special: bool) -> dict[str, Any]:
    """Arguments, masks among them that are false on whole blocks, one of three times with a tensor of large elements; `special`: infinities, NaN,
    negative zeros and the extremes of integers among them."""
    arrays = make_inputs(program, sizes.numbers, dict(sizes.scalars), seed)
    generator = np.random.Generator(np.random.PCG64([seed, 77]))
    for array in arrays.values():
        if array.dtype == np.bool_ and array.ndim:
            # a mask that is false on whole blocks
            first = generator.integers(0, array.shape[-1] + 1)
            array[..., first : first + generator.integers(0, array.shape[-1] + 1)] = False
    if not special:
        wide = [t.name for t in program.tensors if t.dtype.is_float and t.dtype.bits > 8]
        loud = [name for name in wide if name in arrays]
        if loud and generator.random() < 0.3:
            # maxima that move, exponentials that vanish
            name = loud[generator.integers(0, len(loud))]
            arrays[name] = (arrays[name].astype(np.float64) * 16).astype(arrays[name].dtype)
        for tensor in program.tensors:
            array = arrays.get(tensor.name)
            if (
                array is not None
                and array.ndim
                and tensor.dtype.is_integer
                and generator.random() < 0.5
            ):
                # documents, say: neighbours are alike
                array.sort(axis=-1)
        return arrays
    named = tensor_uses(program)
    for tensor in program.tensors:
        array = arrays.get(tensor.name)
        if array is None or array.size == 0 or tensor.dtype.kind == "bool":
            continue
        ends: tuple[float, ...] = (np.inf, -np.inf, np.nan, -0.0)
        if tensor.dtype.is_integer:
            if tensor.name in named or tensor.dtype.bits < 8:
                continue
            ends = (tensor.dtype.minimum, tensor.dtype.maximum)
        flat = array.reshape(-1)
        for value in ends:
            if generator.random() < 0.5:
                flat[generator.integers(0, flat.size)] = value
    return arrays
