"""Every kernel with arguments at the ends of their types: scores of 1e30, infinities, NaN, rows of one value, denormals, integers at their bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.ir import tile_ir as t
from tilec.passes.uses import all_ops
from tilec.reference.inputs import make_inputs, tensor_uses
from tilec.reference.numbers import Array
from verification.cases import Arrays, Job, ragged
from verification.evidence import Evidence
from verification.kernels import BENCH, SAMPLES, Ready, sources
from verification.repeated import built, elements, run_repeated

LAUNCHES = 7
MOST_ELEMENTS = 1 << 16
"""Of a tensor at the ragged sizes that are taken, the largest of up to so many."""


def extremes(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """Run the part for the samples and the kernels of `bench/`."""
    evidence = Evidence("extremes")
    paths = sorted([*SAMPLES.glob("*.tile"), *BENCH.glob("*.tile")])
    ready = built(evidence, sources(paths, only), arch, jobs, seconds)
    found = [_jobs(r) for r in ready]
    run_repeated(evidence, ready, found, arch, jobs, seconds, dry, LAUNCHES)
    return evidence


def _jobs(ready: Ready) -> list[Job]:
    program = ready.kernel.program
    whole = [s for s in ragged(ready) if all(n > 0 for n in s.dims.values())]
    whole.sort(key=lambda s: elements(program, s.dims))
    small = [s for s in whole if elements(program, s.dims) <= MOST_ELEMENTS]
    sizes = (small or whole[:1])[-1]
    steep = any(
        isinstance(op, t.Elementwise) and op.op in ("exp", "exp2")
        for nest in program.nests
        for op in all_ops(nest.body)
    )
    return [
        Job(
            ready.source,
            sizes,
            checked=False,
            draw=draw,
            rtol=RTOL if steep and draw is large else None,
        )
        for draw in DRAWS
    ]


Change = Callable[[t.Tensor, Array, np.random.Generator], None]


def _changed(job: Job, program: t.Program, change: Change) -> Arrays:
    """The arguments with every tensor changed whose elements index nothing and bound nothing."""
    arrays = make_inputs(program, job.sizes.numbers, dict(job.sizes.scalars), job.seed)
    fixed = tensor_uses(program)
    for place, tensor in enumerate(program.tensors):
        array = arrays.get(tensor.name)
        if array is None or not array.size or (tensor.name in fixed and tensor.dtype.is_integer):
            continue
        with np.errstate(all="ignore"):
            change(tensor, array, np.random.Generator(np.random.PCG64([job.seed, place, 5])))
    return arrays


def _scaled(exponents: dict[str, int]) -> Change:
    def change(tensor: t.Tensor, array: Array, generator: np.random.Generator) -> None:
        exponent = exponents.get(tensor.dtype.name)
        if exponent is not None:
            wide = array.astype(np.float64) * 2.0**exponent
            array[...] = wide.astype(array.dtype)

    return change


def large(job: Job, program: Any) -> Arrays:
    """Products of two elements are about 1e30, or of f16 near its end."""
    return _changed(job, program, _scaled({"f32": 50, "bf16": 50, "f64": 300, "f16": 8}))


def tiny(job: Job, program: Any) -> Arrays:
    """Denormals."""
    return _changed(job, program, _scaled({"f32": -130, "bf16": -130, "f64": -1030, "f16": -16}))


def rows(job: Job, program: Any) -> Arrays:
    """One or two rows of every other tensor have one value: an end, an infinity, NaN, zero; rows of masks are false, integers at a bound."""

    def change(tensor: t.Tensor, array: Array, generator: np.random.Generator) -> None:
        flat = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
        if generator.random() < 0.5:
            for row in generator.integers(0, len(flat), 2):
                flat[row] = _end(tensor, generator)

    return _changed(job, program, change)


def scattered(job: Job, program: Any) -> Arrays:
    """An element of every other tensor, or of more a few, is such a value."""

    def change(tensor: t.Tensor, array: Array, generator: np.random.Generator) -> None:
        flat = array.reshape(-1)
        if generator.random() < 0.5:
            for place in generator.integers(0, flat.size, 1 + flat.size // 20000):
                flat[place] = _end(tensor, generator)

    return _changed(job, program, change)


def ends(job: Job, program: Any) -> Arrays:
    """Integers are at their bounds, floats about 0 and 1."""

    def change(tensor: t.Tensor, array: Array, generator: np.random.Generator) -> None:
        if tensor.dtype.is_integer and tensor.dtype.bits >= 8:
            low, high = tensor.dtype.minimum, tensor.dtype.maximum
            pool = np.array([low, high, low + 1, high // 2], array.dtype)
            array[...] = generator.choice(pool, array.shape)

    return _changed(job, program, change)


def lowest(job: Job, program: Any) -> Arrays:
    """All integers are the least of their type, and every f32 is -inf in half of the rows: biases of rows without keys."""

    def change(tensor: t.Tensor, array: Array, generator: np.random.Generator) -> None:
        if tensor.dtype.is_integer and tensor.dtype.bits >= 8:
            array[...] = tensor.dtype.minimum
        elif tensor.dtype.name == "bool" or tensor.dtype.name == "f32":
            flat = array.reshape(-1, array.shape[-1]) if array.ndim else array.reshape(1, 1)
            flat[generator.random(len(flat)) < 0.5] = (
                False if tensor.dtype.name == "bool" else -np.inf
            )

    return _changed(job, program, change)


DRAWS = (large, tiny, rows, scattered, ends, lowest)

RTOL = 2.0**-5
"""Of results behind exponentials of such scores, of which the interpreter's bounds say nothing: weights are 0 or 1 then."""


def _end(tensor: t.Tensor, generator: np.random.Generator) -> Any:
    """An end of a type."""
    dtype = tensor.dtype
    if not dtype.is_float:
        return 0 if dtype.bits < 8 else generator.choice([dtype.minimum, dtype.maximum])
    return generator.choice([np.inf, -np.inf, np.nan, 0.0, -0.0, 1e30, -1e30, 1e-40])
