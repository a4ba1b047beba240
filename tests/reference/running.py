"""Programs of one instance, run."""

from __future__ import annotations

from typing import Any

import numpy as np

from tests.ir.programs import Bench
from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import F32
from tilec.ir.verifier import verify
from tilec.reference.interpreter import Interpreter
from tilec.reference.numbers import array_shape, storage_dtype

Array = np.ndarray[Any, Any]


def execute(
    bench: Bench,
    arrays: dict[str, Array],
    scalars: dict[str, float] | None = None,
    parameters: tuple[ir.ScalarInput, ...] = (),
) -> dict[str, Array]:
    """Outputs of a program of one instance, poisoned before."""
    program = bench.program(parameters)
    verify(program)
    given = dict(arrays)
    for tensor in program.tensors:
        if tensor.role == "output":
            shape = tuple(d.constant or 0 for d in tensor.dims)
            given[tensor.name] = np.ones(
                array_shape(shape, tensor.dtype), storage_dtype(tensor.dtype)
            )
    Interpreter(program, {}, given, scalars).run()
    return {t.name: given[t.name] for t in program.tensors if t.role == "output"}


def partial() -> tuple[Bench, ir.Value, Array]:
    """A 3 × 5 tensor in a 4 × 8 tile."""
    bench = Bench()
    return (
        bench,
        bench.spanned("x", F32, (3, 5), (4, 8)),
        np.arange(1, 16, dtype=np.float32).reshape(3, 5),
    )
