"""Verifying what a kernel computed: the interpreter with bounds, the `check` clause, a function of the user's."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.lib.stride_tricks import as_strided

from tilec.ir.tile_ir import Tensor
from tilec.reference.bounds import Comparison
from tilec.reference.numbers import Array, unpack
from tilec.runtime.arguments import CallSizes, tensor_shape, tensor_strides


@dataclass(frozen=True)
class Tolerance:
    """`--rtol` and `--atol`; both None: the bounds of the numerics table."""

    rtol: float | None = None
    atol: float | None = None

    def __str__(self) -> str:
        if self.rtol is None and self.atol is None:
            return "numerics bound"
        return f"rtol {self.rtol or 0:g}, atol {self.atol or 0:g}"


@dataclass(frozen=True)
class Finding:
    """The comparison of one output with one oracle."""

    output: str
    oracle: str
    comparison: Comparison


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


def summary(findings: list[Finding], tolerance: Tolerance) -> tuple[str, ...]:
    """One phrase an oracle, saying how much it compared and within what."""
    phrases: dict[str, tuple[int, int]] = {}
    for finding in findings:
        count, unknown = phrases.get(finding.oracle, (0, 0))
        phrases[finding.oracle] = (
            count + finding.comparison.elements,
            unknown + finding.comparison.unknown,
        )
    lines = []
    for oracle, (count, unknown) in phrases.items():
        left_out = f", {unknown} without a bound" if unknown else ""
        lines.append(f"{oracle} ({count} elements{left_out}, {tolerance})")
    return tuple(lines)


def failures(findings: list[Finding]) -> tuple[str, ...]:
    """One sentence for each comparison that failed."""
    return tuple(
        f"`{f.output}` against {f.oracle}: {f.comparison.describe()}"
        for f in findings
        if not f.comparison.agrees
    )


def copied(arrays: Mapping[str, Array]) -> dict[str, Array]:
    """Copies, for an oracle that writes into what it is given."""
    return {name: array.copy() for name, array in arrays.items()}
