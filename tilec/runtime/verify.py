"""Verifying what a kernel computed: the interpreter with bounds, the `check` clause, a function of the user's."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext, suppress
from dataclasses import dataclass, replace
from math import prod
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilec.forked import cores
from tilec.ir.dtypes import DType
from tilec.ir.tile_ir import Program, Tensor
from tilec.reference.bounds import Comparison, compare
from tilec.reference.check import Checked, check_blocks
from tilec.reference.interpreter import Interpreter
from tilec.reference.numbers import Array, unpack
from tilec.reference.sampling import LIMIT, select
from tilec.runtime.arguments import CallSizes, tensor_shape, tensor_strides
from tilec.runtime.host import HostValue
from tilec.source.diagnostics import TileError, fail
from tilec.syntax import ast
from tilec.syntax.loading import Program as Files

SHARE = 1 << 20
"""Elements of an output that one thread compares, in blocks."""

BLOCK = 1 << 16
"""Elements compared at a time. The allocator gives as much memory out again; what is larger comes as new pages from the system each
time, which takes longer than comparing does."""

MOST_THREADS = 4
"""Of a comparison: more wait for the interpreter's lock, between operations of some microseconds, longer than they compute."""

MOST_PROCESSES = 16
FOR_PROCESSES = 10**9
"""Operations of the interpreter from which several processes share its instances."""

MOST_CHECKED = 1 << 26
"""Elements of all outputs up to which what the checks say of them is kept: 8 bytes for each, at most."""

MOST_ELEMENTS = 1 << 28
"""Elements of an output up to which the interpreter is asked: it keeps 12 bytes for each."""


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
    `files`, `module` and `kernel` are the syntax that `program` was made from. `checked`: what its checks say, where that was evaluated ahead."""

    program: Program
    files: Files
    kernel: ast.Kernel
    sizes: CallSizes
    arrays: Mapping[str, Array]
    seed: int = 0
    checked: tuple[Checked, ...] | None = None

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
    """What the interpreter says about each output: float64 values, and float32 (or wider) bounds, infinite where it says
    nothing. `extent` is how much of it ran, `problem` why it did not. Comparing with the values takes them away: at large
    sizes they are the most memory of a verification."""

    values: dict[str, Array]
    errors: dict[str, Array]
    extent: str
    complete: bool
    problem: str = ""


def interpreter_bounds(
    case: Case, *, keep_values: bool = True, limit: int = LIMIT, processes: int | None = None
) -> Bounds:
    """Run the interpreter with bounds: every instance, or a sample where that is more than `limit` operations, in `processes` (None: on
    all cores, where there is enough to do). Raises TileError for a fault of the program (E0902, E0903)."""
    largest = max((prod(tensor_shape(t, case.sizes.environment)) for t in case.written), default=0)
    if largest > MOST_ELEMENTS:
        return Bounds(
            {}, {}, "", False, f"an output of {largest} elements is too large for the interpreter"
        )
    try:
        if processes is None:
            processes = min(cores(), MOST_PROCESSES)
        runner = Interpreter(
            case.program,
            case.sizes.numbers,
            _named(case),
            case.scalars,
            bounds=True,
            write=_silent,
            shared=processes > 1,
        )
        selection = select(runner, case.seed, limit)
        many = selection.operations > FOR_PROCESSES
        runner.run(selection.instances, processes=processes if many else 1)
    except TileError as error:
        if all(d.code == "E0906" for d in error.diagnostics):
            return Bounds({}, {}, "", False, error.diagnostics[0].message)
        raise
    values, errors = {}, {}
    for tensor in case.written:
        memory = runner.memories[tensor.name]
        if memory.mass is None and memory.error is not None:
            value, error_bound = memory.data, memory.error  # without the copy that `expected` makes
        else:
            expected = runner.expected(tensor.name)
            value, error_bound = expected.value, expected.bound
        if tensor.role == "inout" and not selection.complete:
            error_bound = np.where(memory.untouched(), np.float32(np.inf), error_bound)
        errors[tensor.name] = error_bound
        if keep_values:
            values[tensor.name] = value
    return Bounds(values, errors, selection.describe(), selection.complete)


def check_ahead(case: Case) -> Case:
    """The case with its checks evaluated, where what they give is not too much to keep; whether they can be is said when they are needed."""
    elements = sum(prod(tensor_shape(t, case.sizes.environment)) for t in case.written)
    if elements > MOST_CHECKED or case.checked is not None:
        return case
    with suppress(TileError):
        return replace(case, checked=tuple(stated_blocks(case)))
    return case


def stated_blocks(case: Case) -> Iterator[Checked]:
    """What the checks of a case say, in parts. Raises TileError (E0905, E0906)."""
    return check_blocks(
        case.kernel,
        case.files,
        case.files.main,
        case.program,
        case.sizes.numbers,
        case.arrays,
        case.scalars,
    )


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
) -> list[Finding]:
    """Compare outputs with every oracle there is.

    The interpreter's bound serves the other oracles too: they compute the same in float64. Raises TileError for a check
    clause that cannot be evaluated (E0905), and for a reference function that fails (E0718). No findings: nothing to
    verify against.
    """
    findings: list[Finding] = []
    stored = {t.name: elements(t, case.sizes, outputs[t.name]) for t in case.written}
    for tensor in case.written:
        value = bounds.values.pop(tensor.name, None)
        if value is not None:
            comparison = _compare(
                stored[tensor.name],
                value,
                _exactly(bounds.errors[tensor.name]),
                tensor.dtype,
                tolerance,
            )
            oracle = f"interpreter, {bounds.extent}"
            findings.append(Finding(tensor.name, oracle, str(tolerance), comparison))
        del value  # the check is evaluated without it in memory
    findings += _check_clause(case, stored, bounds, tolerance)
    if reference is not None:
        findings += _user_function(case, stored, bounds, tolerance, reference)
    return findings


def _check_clause(
    case: Case, stored: Mapping[str, Array], bounds: Bounds, tolerance: Tolerance
) -> list[Finding]:
    totals: dict[tuple[str, Tolerance], Comparison] = {}
    try:
        for block in stated_blocks(case) if case.checked is None else case.checked:
            used = tolerance if tolerance.given else Tolerance(block.rtol, block.atol)
            whole = stored[block.name]
            rows = slice(block.start, block.start + len(block.expected)) if whole.ndim else None
            one = _compare_flat(
                whole if rows is None else whole[rows],
                block.expected,
                _about(bounds, block.name, block.expected, used, block.covered, rows),
                case.program.tensor(block.name).dtype,
                used,
            )
            key = (block.name, used)
            first = block.start * prod(whole.shape[1:])
            totals[key] = _joined(totals.get(key), one, first)
    except TileError as error:
        if bounds.errors and all(d.code == "E0906" for d in error.diagnostics):
            return []  # too large; the interpreter's samples remain
        raise
    return [
        Finding(name, "check", str(used), _placed(total, stored[name].shape))
        for (name, used), total in totals.items()
    ]


BoundOf = Callable[[slice], Array]
"""Bounds of a range of elements in row-major order."""


def _exactly(error: Array) -> BoundOf:
    flat = error.reshape(-1)
    return lambda part: flat[part].astype(np.float64)


def _about(
    bounds: Bounds,
    name: str,
    expected: Array,
    tolerance: Tolerance,
    covered: Array | None = None,
    rows: slice | None = None,
) -> BoundOf:
    """The interpreter's bound about another float64 evaluation of the same `rows`, infinite where it says nothing and where
    `covered` is false; 0 (any finite number) where tolerances replace it."""
    error = None if tolerance.given else bounds.errors.get(name)
    silent = 0.0 if tolerance.given else np.inf
    flat_error = None if error is None else (error if rows is None else error[rows]).reshape(-1)
    flat_expected = expected.reshape(-1)
    flat_covered = None if covered is None else covered.reshape(-1)

    def bound(part: slice) -> Array:
        values = flat_expected[part]
        if flat_error is None:
            found = np.full(values.shape, silent)
        else:
            found = flat_error[part].astype(np.float64)
            if values.dtype.kind == "f":
                # the order of a float64 evaluation differs by a few of its own roundings
                found = found * (1 + 2.0**-20) + 2.0**-40 * np.abs(
                    np.nan_to_num(values, posinf=0, neginf=0)
                )
        return found if flat_covered is None else np.where(flat_covered[part], found, np.inf)

    return bound


def _compare(
    actual: Array, expected: Array, bound: BoundOf, dtype: DType, tolerance: Tolerance
) -> Comparison:
    """`tilec.reference.bounds.compare` in blocks, so that no bound of a whole array is in memory."""
    return _placed(_compare_flat(actual, expected, bound, dtype, tolerance), expected.shape)


def _placed(total: Comparison, shape: tuple[int, ...]) -> Comparison:
    """A comparison of flat arrays as one of arrays of this shape."""
    if total.worst_index is None:
        return total
    place = np.unravel_index(total.worst_index[0], shape) if shape else ()
    return replace(total, worst_index=tuple(int(n) for n in place))


def _compare_flat(
    actual: Array, expected: Array, bound: BoundOf, dtype: DType, tolerance: Tolerance
) -> Comparison:
    """The comparison with the worst element's place in row-major order."""
    flat_actual, flat_expected = actual.reshape(-1), expected.reshape(-1)

    def share(start: int) -> Comparison:
        end = min(start + SHARE, flat_expected.size)
        total: Comparison | None = None
        for first in range(start, max(end, start + 1), BLOCK):
            part = slice(first, min(first + BLOCK, end))
            one = compare(
                flat_actual[part],
                flat_expected[part],
                bound(part),
                dtype,
                rtol=tolerance.rtol,
                atol=tolerance.atol,
            )
            total = _joined(total, one, first)
        assert total is not None
        return total

    starts = range(0, max(1, flat_expected.size), SHARE)
    workers = min(len(starts), cores(), MOST_THREADS)
    total: Comparison | None = None
    # NumPy lets go of the interpreter's lock while it computes
    with ThreadPoolExecutor(workers) if workers > 1 else nullcontext() as pool:
        compared: Iterator[Comparison] = (
            map(share, starts) if pool is None else pool.map(share, starts)
        )
        for one in compared:
            total = _joined(total, one)
    assert total is not None
    return total


def _joined(total: Comparison | None, one: Comparison, first: int = 0) -> Comparison:
    """The comparison of a block that begins at element `first`, added to those before it."""
    if one.worst_index is not None:
        one = replace(one, worst_index=(one.worst_index[0] + first,))
    if total is None:
        return one
    worst = one if _share(one) > _share(total) else total
    return replace(
        worst,
        elements=total.elements + one.elements,
        mismatches=total.mismatches + one.mismatches,
        nan_mismatches=total.nan_mismatches + one.nan_mismatches,
        unknown=total.unknown + one.unknown,
        max_error=max(total.max_error, one.max_error),
    )


def _share(comparison: Comparison) -> float:
    """How much of its bound the worst element's error is; -1 where nothing was compared."""
    if comparison.worst_index is None:
        return -1.0
    distance = abs(comparison.worst_actual - comparison.worst_expected)
    if distance != distance:
        both = comparison.worst_actual != comparison.worst_actual and (
            comparison.worst_expected != comparison.worst_expected
        )
        return 0.0 if both else float("inf")
    if distance == 0:
        return 0.0
    return distance / comparison.worst_bound if comparison.worst_bound else float("inf")


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
        comparison = _compare(
            stored[output],
            expected,
            _about(bounds, output, expected, tolerance),
            tensor.dtype,
            tolerance,
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
