"""What a call must compute, kept so that many candidates can be verified against it: an interval for each element.

`tilec.runtime.verify` compares one result with every oracle, and evaluates them each time. Here they are evaluated once; the element
must lie in the interpreter's interval and in that of the `check` clause. Where the interpreter ran a sample of the instances only,
the others are held to the check within SLACK times the greatest bound of the sample: every element is compared.

The bounds are those of the untuned program. Where a program rounds in between, as to the 16-bit operand of a second product, other tile sizes
round other numbers, and have other bounds: what lies outside is judged again by the candidate's own (`Oracle.judge_as`), for which the
values of the check are kept.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from tilec.ir.dtypes import DType
from tilec.reference.numbers import Array, to_compute
from tilec.runtime.verify import (
    Bounds,
    Case,
    Tolerance,
    elements,
    interpreter_bounds,
    stated_blocks,
)
from tilec.source.diagnostics import TileError, fail

SLACK = 4.0
"""How much larger than any bound of a sample that of an element outside of it may be."""

_BLOCK = 1 << 21
"""Elements handled at a time."""


_PARTS = ("low", "high", "free")
_CHECKED = ("values", "covered")
_COMPLETE = "complete"


@dataclass
class _Expected:
    """Intervals of one output's elements, flat; NaN at both ends: must be NaN. `free`: anything goes there."""

    dtype: DType
    low: Array
    high: Array
    free: Array

    def narrow(self, start: int, expected: Array, bound: Array) -> None:
        """Intersect the elements from `start` on with `expected` ± `bound`; infinite: it says nothing."""
        part = slice(start, start + expected.size)
        known = np.isfinite(bound)
        with np.errstate(all="ignore"):
            if self.low.dtype.kind == "f":
                middle = expected.astype(np.float64)
                low: Array = middle - bound
                high: Array = middle + bound
                if self.low.dtype == np.float32:  # rounded outwards
                    low = np.nextafter(low.astype(np.float32), np.float32(-np.inf))
                    high = np.nextafter(high.astype(np.float32), np.float32(np.inf))
                odd = ~np.isfinite(middle)
                low, high = np.where(odd, middle, low), np.where(odd, middle, high)
            else:
                width = np.where(known, np.floor(bound), 0).astype(np.int64)
                low, high = (expected.astype(np.int64) + sign * width for sign in (-1, 1))
            first = self.free[part]
            before_low, before_high = self.low[part], self.high[part]
            self.low[part] = np.where(
                known, np.where(first, low, np.maximum(before_low, low)), before_low
            )
            self.high[part] = np.where(
                known, np.where(first, high, np.minimum(before_high, high)), before_high
            )
        self.free[part] = first & ~known

    def wrong(self, stored: Array) -> tuple[int, int]:
        """How many elements lie outside, and the first of them."""
        flat = stored.reshape(-1)
        count, first = 0, -1
        for start in range(0, flat.size, _BLOCK):
            part = slice(start, start + _BLOCK)
            given = to_compute(flat[part], self.dtype)
            if self.low.dtype.kind != "f":
                given = given.astype(np.int64)
            good = (given >= self.low[part]) & (given <= self.high[part]) | self.free[part]
            if not good.all():
                if given.dtype.kind == "f":
                    good |= np.isnan(given) & np.isnan(self.low[part])
                bad = np.flatnonzero(~good)
                if bad.size and first < 0:
                    first = start + int(bad[0])
                count += int(bad.size)
        return count, first


@dataclass
class _Checked:
    """What the check clause says of one output, flat: in single precision where the output has 16 bits or fewer. Nothing where not
    `covered`."""

    values: Array
    covered: Array

    @classmethod
    def empty(cls, size: int, dtype: DType) -> _Checked:
        """Nothing is covered."""
        kind: Any = np.int64
        if dtype.is_float:
            kind = np.float64 if dtype.bits >= 32 else np.float32
        return cls(np.zeros(size, kind), np.zeros(size, np.bool_))


class Oracle:
    """Judges the outputs of one call. Made by `prepare_oracle`, or by `load_oracle` from what `save` wrote. `checked`: by output, where
    bounds and no tolerances are what it is compared within."""

    def __init__(
        self, case: Case, expected: Mapping[str, _Expected], checked: Mapping[str, _Checked]
    ) -> None:
        self.case = case
        self.expected = expected
        self.checked = checked

    def judge(self, outputs: Mapping[str, Array]) -> str:
        """Empty if every element of every output is as it must be, else a sentence about the first output that is not."""
        return self._judge(outputs, self.expected)

    def judge_as(self, case: Case, outputs: Mapping[str, Array]) -> str:
        """The same by the bounds of `case`, which is the same call of the program with other tile sizes."""
        bounds = interpreter_bounds(case)
        expected = dict(self.expected)
        for tensor in case.written:
            name = tensor.name
            checked = self.checked.get(name)
            if checked is None or name not in bounds.errors:
                continue  # within tolerances, or nothing is known of it
            kept = expected[name] = _from_interpreter(case, name, bounds, Tolerance())
            outside = _outside(bounds.errors[name], bounds.complete)
            for start in range(0, checked.values.size, _BLOCK):
                part = slice(start, start + _BLOCK)
                values = checked.values[part]
                bound = _bound(bounds.errors[name].reshape(-1)[part], outside, values)
                kept.narrow(start, values, np.where(checked.covered[part], bound, np.inf))
        return self._judge(outputs, expected)

    def _judge(self, outputs: Mapping[str, Array], expected: Mapping[str, _Expected]) -> str:
        for tensor in self.case.written:
            stored = elements(tensor, self.case.sizes, outputs[tensor.name])
            kept = expected[tensor.name]
            count, first = kept.wrong(stored)
            if count:
                place = ", ".join(str(int(n)) for n in np.unravel_index(first, stored.shape))
                have: Any = to_compute(stored.reshape(-1)[first : first + 1], tensor.dtype)[0]
                low, high = kept.low[first], kept.high[first]
                return (
                    f"{count} of {stored.size} elements of `{tensor.name}` are wrong; the first is [{place}]: "
                    f"{have:.6g}, must lie in [{low:.6g}, {high:.6g}]"
                )
        return ""

    def save(self, folder: Path) -> None:
        """Keep it in a folder; the last file says that all are there."""
        for name, kept in self.expected.items():
            for part in _PARTS:
                np.save(folder / f"{name}.{part}.npy", getattr(kept, part))
        for name, checked in self.checked.items():
            for part in _CHECKED:
                np.save(folder / f"{name}.{part}.npy", getattr(checked, part))
        (folder / _COMPLETE).touch()


def load_oracle(case: Case, folder: Path) -> Oracle | None:
    """What `save` kept for the same case; None where it kept nothing."""
    if not (folder / _COMPLETE).exists():
        return None
    expected, checked = {}, {}
    for tensor in case.written:
        low, high, free = (np.load(folder / f"{tensor.name}.{part}.npy") for part in _PARTS)
        expected[tensor.name] = _Expected(tensor.dtype, low, high, free)
        files = [folder / f"{tensor.name}.{part}.npy" for part in _CHECKED]
        if all(file.exists() for file in files):
            checked[tensor.name] = _Checked(*map(np.load, files))
    return Oracle(case, expected, checked)


def prepare_oracle(case: Case, tolerance: Tolerance) -> Oracle:
    """Evaluate interpreter and check. Raises TileError: E0902, E0903 faults of the program, E0905 a check that cannot be
    evaluated, E0925 where there is nothing to verify against."""
    bounds = interpreter_bounds(case)
    expected: dict[str, _Expected] = {}
    for tensor in case.written:
        expected[tensor.name] = _from_interpreter(case, tensor.name, bounds, tolerance)
    checked: dict[str, _Checked] = {}
    found = _add_check(case, bounds, tolerance, expected, checked)
    if not found and not bounds.errors:
        raise fail(
            "E0925",
            f"nothing to verify `{case.program.name}` against",
            note=bounds.problem or "there is no check clause",
        )
    return Oracle(case, expected, checked)


def _from_interpreter(case: Case, name: str, bounds: Bounds, tolerance: Tolerance) -> _Expected:
    """What the interpreter says of an output, whose values in `bounds` are given up."""
    tensor = case.program.tensor(name)
    dtype = tensor.dtype
    shape = elements(tensor, case.sizes, _template(case, name)).shape
    kind: Any = np.int64
    if dtype.is_float:
        kind = np.float64 if dtype.bits == 64 else np.float32
    size = int(np.prod(shape, dtype=np.int64))
    ends = (-np.inf, np.inf) if dtype.is_float else (0, 0)
    kept = _Expected(
        dtype, np.full(size, ends[0], kind), np.full(size, ends[1], kind), np.ones(size, np.bool_)
    )
    if name in bounds.values:
        values = bounds.values.pop(name).reshape(-1)
        errors = bounds.errors[name].reshape(-1)
        for start in range(0, size, _BLOCK):
            part = slice(start, start + _BLOCK)
            found = _loosened(values[part], errors[part].astype(np.float64), tolerance)
            kept.narrow(start, values[part], found)
    return kept


def _bound(errors: Array, outside: float, values: Array) -> Array:
    """The bound of these `errors` about the check's `values`, `outside` where the interpreter says nothing. Another evaluation in float64
    differs by a few of its own roundings, and `values` may be kept in single precision."""
    own = errors.astype(np.float64)
    own = np.where(np.isfinite(own), own, outside)
    if values.dtype.kind != "f":
        return own * (1 + 2.0**-20)
    unit = 2.0**-40 if values.dtype == np.float64 else 2.0**-23
    return own * (1 + 2.0**-20) + unit * np.abs(
        np.nan_to_num(values.astype(np.float64), posinf=0, neginf=0)
    )


def _template(case: Case, name: str) -> Array:
    from tilec.runtime.arrays import empty_array

    return empty_array(case.program.tensor(name), case.sizes.environment)


def _loosened(values: Array, errors: Array, tolerance: Tolerance) -> Array:
    if not tolerance.given:
        return errors
    loose = (tolerance.atol or 0.0) + (tolerance.rtol or 0.0) * np.abs(values.astype(np.float64))
    return np.where(np.isfinite(errors), loose, np.inf)


def _add_check(
    case: Case,
    bounds: Bounds,
    tolerance: Tolerance,
    expected: Mapping[str, _Expected],
    checked: dict[str, _Checked],
) -> bool:
    """Intersect with the check clause, and keep what it says; whether there was one that could be evaluated."""
    outside = {n: _outside(e, bounds.complete) for n, e in bounds.errors.items()}
    blocks = stated_blocks(case)
    found = False
    tolerated: set[str] = set()
    try:
        for block in blocks:
            found = True
            used = tolerance if tolerance.given else Tolerance(block.rtol, block.atol)
            if used.given:
                tolerated.add(block.name)
            values = block.expected.reshape(-1)
            rest = values.size // max(1, len(block.expected)) if block.expected.ndim else 1
            start = block.start * rest
            errors = bounds.errors.get(block.name)
            covered = None if block.covered is None else block.covered.reshape(-1)
            for first in range(0, values.size, _BLOCK):
                part = values[first : first + _BLOCK]
                bound = np.full(part.size, np.inf)
                if used.given:
                    with np.errstate(all="ignore"):
                        bound = (used.atol or 0.0) + (used.rtol or 0.0) * np.abs(
                            np.nan_to_num(part.astype(np.float64), posinf=0, neginf=0)
                        )
                elif errors is not None:
                    at = start + first
                    own = errors.reshape(-1)[at : at + part.size]
                    bound = _bound(own, outside[block.name], part)
                    kept = checked.setdefault(
                        block.name,
                        _Checked.empty(errors.size, case.program.tensor(block.name).dtype),
                    )
                    kept.values[at : at + part.size] = part
                    kept.covered[at : at + part.size] = True
                if covered is not None:
                    seen = covered[first : first + _BLOCK]
                    bound = np.where(seen, bound, np.inf)
                    if not used.given and errors is not None:
                        kept.covered[at : at + part.size] = seen
                expected[block.name].narrow(start + first, part, bound)
    except TileError as error:
        if not bounds.errors or any(d.code != "E0906" for d in error.diagnostics):
            raise
    for name in tolerated:  # a comparison within tolerances holds for every candidate
        checked.pop(name, None)
    return found


def _outside(errors: Array, complete: bool) -> float:
    """The bound of elements that the interpreter's sample says nothing about."""
    if complete:
        return float("inf")
    greatest = 0.0
    flat = errors.reshape(-1)
    for start in range(0, flat.size, _BLOCK):
        part = flat[start : start + _BLOCK]
        known = part[np.isfinite(part)]
        if known.size:
            greatest = max(greatest, float(known.max()))
    return SLACK * greatest if greatest else float("inf")
