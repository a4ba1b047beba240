"""Verifying what a kernel computed: the interpreter with bounds, the `check` clause, a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilec.ir.tile_ir import Program, Tensor
from tilec.reference.bounds import Comparison, compare
from tilec.reference.check import evaluate_check
from tilec.reference.interpreter import Expected, Interpreter
from tilec.reference.numbers import Array, unpack
from tilec.reference.sampling import select
from tilec.runtime.arguments import CallSizes, tensor_shape, tensor_strides
from tilec.runtime.host import HostValue
from tilec.source.diagnostics import TileError, fail
from tilec.syntax import ast
from tilec.syntax.loading import Program as Files


@dataclass(frozen=True)
class Tolerance:
    """`--rtol` and `--atol`; both None: the bounds of the numerics table."""

    rtol: float | None = None
    atol: float | None = None

    @property
    def given(self) -> bool:
        """One of them replaces the bounds."""
        return self.rtol is not None or self.atol is not None

    def __str__(self) -> str:
        if not self.given:
            return "numerics bound"
        return f"rtol {self.rtol or 0:g}, atol {self.atol or 0:g}"


@dataclass(frozen=True)
class Finding:
    """The comparison of one output with one oracle; `within` are the tolerances in words."""

    output: str
    oracle: str
    within: str
    comparison: Comparison


@dataclass(frozen=True)
class Case:
    """One call that is to be verified. `arrays` are inputs and `inout` parameters as before the launch, in storage form;
    `files`, `module` and `kernel` are the syntax that `program` was made from."""

    program: Program
    files: Files
    kernel: ast.Kernel
    sizes: CallSizes
    arrays: Mapping[str, Array]
    seed: int = 0

    @property
    def scalars(self) -> dict[str, HostValue]:
        """Values of the scalar parameters."""
        return dict(self.sizes.scalars)

    @property
    def written(self) -> list[Tensor]:
        """Outputs and `inout` parameters."""
        return [t for t in self.program.tensors if t.role in ("output", "inout")]


Reference = Callable[..., Any]
"""The user's function: inputs by name in float64, scalars by name, to the outputs."""


@dataclass(frozen=True)
class Bounds:
    """What the interpreter says about each output, how much of it ran, and why nothing was said."""

    expected: Mapping[str, Expected]
    extent: str
    complete: bool
    problem: str = ""


def interpreter_bounds(case: Case) -> Bounds:
    """Run the interpreter with bounds: every instance, or a sample where that is too much. Raises TileError for a fault of
    the program (E0902, E0903)."""
    try:
        runner = Interpreter(
            case.program, case.sizes.numbers, _named(case), case.scalars, bounds=True, write=_silent
        )
        selection = select(runner, case.seed)
        runner.run(selection.instances)
    except TileError as error:
        if all(d.code == "E0906" for d in error.diagnostics):
            return Bounds({}, "", False, error.diagnostics[0].message)
        raise
    expected = {t.name: runner.expected(t.name) for t in case.written}
    return Bounds(expected, selection.describe(), selection.complete)


def interpreted(case: Case, outputs: Mapping[str, Array]) -> None:
    """Run the interpreter as a kernel would: writes into `outputs` (and copies of `inout` parameters among them)."""
    arrays = {**_named(case), **outputs}
    Interpreter(case.program, case.sizes.numbers, arrays, case.scalars, write=_silent).run()


def _silent(text: str) -> None:
    """`print` of a kernel is no part of a verification."""


def _named(case: Case) -> dict[str, Array]:
    return {
        name: array.copy() if _is_inout(case, name) else array
        for name, array in case.arrays.items()
    }


def _is_inout(case: Case, name: str) -> bool:
    return case.program.tensor(name).role == "inout"


def verify(
    case: Case,
    outputs: Mapping[str, Array],
    bounds: Bounds,
    tolerance: Tolerance,
    reference: Reference | None = None,
    *,
    use_interpreter: bool = True,
) -> list[Finding]:
    """Compare outputs with every oracle there is.

    The interpreter's bound serves the other oracles too: they compute the same in float64. Raises TileError for a check
    clause that cannot be evaluated (E0905), and for a reference function that fails (E0718). No findings: nothing to
    verify against.
    """
    findings: list[Finding] = []
    stored = {t.name: elements(t, case.sizes, outputs[t.name]) for t in case.written}
    if use_interpreter:
        oracle = f"interpreter, {bounds.extent}"
        for tensor in case.written:
            if tensor.name in bounds.expected:
                expected = bounds.expected[tensor.name]
                comparison = compare(
                    stored[tensor.name],
                    expected.value,
                    expected.bound,
                    tensor.dtype,
                    rtol=tolerance.rtol,
                    atol=tolerance.atol,
                )
                findings.append(Finding(tensor.name, oracle, str(tolerance), comparison))
    findings += _check_clause(case, stored, bounds, tolerance)
    if reference is not None:
        findings += _user_function(case, stored, bounds, tolerance, reference)
    return findings


def _check_clause(
    case: Case, stored: Mapping[str, Array], bounds: Bounds, tolerance: Tolerance
) -> list[Finding]:
    try:
        checks = evaluate_check(
            case.kernel,
            case.files,
            case.files.main,
            case.program,
            case.sizes.numbers,
            case.arrays,
            case.scalars,
        )
    except TileError as error:
        if bounds.expected and all(d.code == "E0906" for d in error.diagnostics):
            return []  # too large; the interpreter's samples remain
        raise
    findings = []
    for check in checks:
        used = tolerance if tolerance.given else Tolerance(check.rtol, check.atol)
        covered = None if check.covered is None else ~check.covered
        bound = _bound(bounds, check.name, check.expected, used)
        if covered is not None:
            bound = np.where(covered, np.inf, bound)
        tensor = case.program.tensor(check.name)
        comparison = compare(
            stored[check.name], check.expected, bound, tensor.dtype, rtol=used.rtol, atol=used.atol
        )
        findings.append(Finding(check.name, "check", str(used), comparison))
    return findings


def _bound(bounds: Bounds, name: str, expected: Array, tolerance: Tolerance) -> Array:
    """The interpreter's bound about another float64 evaluation of the same; infinite where it says nothing, 0 (any finite
    number) where tolerances replace it."""
    if tolerance.given:
        return np.zeros(expected.shape)
    if name not in bounds.expected:
        return np.full(expected.shape, np.inf)
    bound = np.asarray(bounds.expected[name].bound, np.float64)
    if expected.dtype.kind != "f":
        return bound
    # the order of a float64 evaluation differs by a few of its own roundings
    with np.errstate(all="ignore"):
        return np.asarray(bound * (1 + 2.0**-20) + 2.0**-40 * np.abs(np.nan_to_num(expected)))


def _user_function(
    case: Case,
    stored: Mapping[str, Array],
    bounds: Bounds,
    tolerance: Tolerance,
    reference: Reference,
) -> list[Finding]:
    given: dict[str, Any] = {}
    for tensor in case.program.tensors:
        if tensor.name in case.arrays:
            values = elements(tensor, case.sizes, case.arrays[tensor.name])
            given[tensor.name] = values.astype(np.float64) if tensor.dtype.is_float else values
    name = getattr(reference, "__name__", "reference")
    try:
        answer = reference(**given, **case.scalars)
    except Exception as error:
        raise fail(
            "E0718",
            f"the reference `{name}` failed: {type(error).__name__}: {error}",
            help="it is called with the inputs and scalars by name",
        ) from error
    findings = []
    for output, value in _answers(case.written, answer, name).items():
        tensor = case.program.tensor(output)
        expected = np.asarray(value)
        if expected.shape != stored[output].shape:
            raise fail(
                "E0718",
                f"the reference `{name}` gives `{output}` the shape {list(expected.shape)}, "
                f"and the kernel {list(stored[output].shape)}",
            )
        bound = _bound(bounds, output, expected, tolerance)
        comparison = compare(
            stored[output], expected, bound, tensor.dtype, rtol=tolerance.rtol, atol=tolerance.atol
        )
        findings.append(Finding(output, name, str(tolerance), comparison))
    return findings


def _answers(written: Sequence[Tensor], answer: Any, name: str) -> dict[str, Any]:
    """Outputs by name from a dict, a tuple in the order of the outputs, or one array."""
    names = [t.name for t in written]
    if isinstance(answer, Mapping):
        unknown = sorted(set(map(str, answer)) - set(names))
        if unknown:
            raise fail("E0718", f"the reference `{name}` gives `{unknown[0]}`, which is no output")
        return dict(answer)
    values = answer if isinstance(answer, tuple) else (answer,)
    if len(values) != len(names):
        raise fail(
            "E0718",
            f"the reference `{name}` gives {len(values)} outputs, and the kernel has {len(names)}",
        )
    return dict(zip(names, values, strict=True))


def load_reference(text: str) -> Reference:
    """The function that `module:function` names; the current folder is looked in first. Raises TileError (E0718)."""
    import importlib
    import sys

    module_name, colon, function_name = text.partition(":")
    if not (module_name and colon and function_name):
        raise fail("E0718", f"`{text}` is not of the form `module:function`")
    sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module_name), function_name)
    except Exception as error:
        raise fail("E0718", f"cannot load `{text}`: {type(error).__name__}: {error}") from error
    finally:
        sys.path.remove("")
    if not callable(function):
        raise fail("E0718", f"`{text}` is no function")
    chosen: Reference = function
    return chosen


def elements(tensor: Tensor, sizes: CallSizes, array: Array) -> Array:
    """A parameter's elements in its own dims from its array: 4-bit types unpacked, strides followed."""
    env = sizes.environment
    shape = tensor_shape(tensor, env)
    if tensor.dtype.bits == 4:
        return unpack(array, shape, tensor.dtype)
    if tensor.strides is None:
        return array
    flat = array.reshape(-1)
    steps = tuple(s * flat.itemsize for s in tensor_strides(tensor, env))
    if not all(shape):
        return np.empty(shape, flat.dtype)
    return as_strided(flat, shape, steps)


def summary(findings: Sequence[Finding]) -> tuple[str, ...]:
    """One phrase an oracle: how many elements were compared and within what."""
    counts: dict[tuple[str, str], tuple[int, int]] = {}
    for finding in findings:
        key = (finding.oracle, finding.within)
        compared, unknown = counts.get(key, (0, 0))
        left_out = finding.comparison.unknown
        counts[key] = (compared + finding.comparison.elements - left_out, unknown + left_out)
    lines = []
    for (oracle, within), (compared, unknown) in counts.items():
        rest = f", {unknown} without a bound" if unknown else ""
        lines.append(f"{oracle}: {compared} elements{rest}, {within}")
    return tuple(lines)


def failures(findings: Sequence[Finding]) -> tuple[str, ...]:
    """One sentence for each comparison that failed."""
    return tuple(
        f"`{f.output}` against {f.oracle} ({f.within}): {f.comparison.describe()}"
        for f in findings
        if not f.comparison.agrees
    )
