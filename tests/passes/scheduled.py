"""Nests of programs that a test wrote, as the schedule and the asynchronous form see them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from tilec.compiler import analyse_file
from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.verifier import verify
from tilec.passes import eliminate_dead, hoist, sink_stores, warpgroup_forms
from tilec.passes.asynchronous import Asynchronous
from tilec.passes.schedule.clone import Numbers
from tilec.passes.schedule.rotate import rotate
from tilec.passes.uses import all_ops
from tilec.reference.inputs import make_inputs
from tilec.reference.interpreter import Interpreter
from tilec.reference.numbers import array_shape, storage_dtype
from tilec.runtime.host import evaluate_sym
from tilec.targets.table import TARGETS

ARCH = "sm_90a"


class Source:
    """The first nest of a kernel, cleaned up as in front of the schedule."""

    def __init__(self, text: str, folder: Path, defines: Mapping[str, Any] | None = None) -> None:
        path = folder / "k.tile"
        path.write_text(text, encoding="utf-8")
        words = {n: str(v) for n, v in (defines or {}).items()}
        _, (found, *_), _ = analyse_file(str(path), defines=words, arch=ARCH)
        self.program, self.candidate = found.program, found.candidate
        nest = self.program.nests[0]
        self.nest = replace(nest, body=sink_stores.run(hoist.run(eliminate_dead.run(nest.body))))

    def with_nest(self, nest: t.Nest) -> t.Program:
        """The program with another first nest, verified."""
        program = replace(self.program, nests=(nest, *self.program.nests[1:]))
        verify(program)
        return program

    def rotated(self) -> tuple[t.Nest, bool]:
        """The nest after rotation, and whether there was any."""
        numbers, facts = Numbers(self.program.nests), Facts.of(self.program)
        body, done = rotate(self.nest.body, numbers, facts, {})
        return replace(self.nest, body=body), done

    def form(self) -> Asynchronous | str:
        """The asynchronous form without copies of operands, or why there is none."""
        if not any(isinstance(op, t.Dot) for op in all_ops(self.nest.body)):
            return ""
        forms, reason = warpgroup_forms.as_it_stands(
            self.program, self.nest, TARGETS[ARCH], self.candidate
        )
        return forms[0].variant.asynchronous or "" if forms else reason


def bounds(
    program: t.Program, sizes: Mapping[str, int], scalars: Mapping[str, float] | None = None
) -> dict[str, tuple[Any, Any]]:
    """For the same inputs the value of each output, and what any allowed execution may differ by."""
    given = dict(scalars or {})
    arrays = make_inputs(program, sizes, given, 11)
    runner = Interpreter(program, sizes, arrays, given, bounds=True)
    runner.run()
    found = {x.name: runner.expected(x.name) for x in program.tensors if x.role == "output"}
    return {name: (e.value, e.bound) for name, e in found.items()}


def interpret(
    program: t.Program, sizes: Mapping[str, int], scalars: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Outputs of the interpreter for seeded inputs."""
    given = dict(scalars or {})
    arrays = make_inputs(program, sizes, given, 11)
    known = {**program.statics, **program.tiles, **sizes}
    for tensor in program.tensors:
        if tensor.role == "output":
            shape = tuple(evaluate_sym(d, known) for d in tensor.dims)
            arrays[tensor.name] = np.ones(
                array_shape(shape, tensor.dtype), storage_dtype(tensor.dtype)
            )
    Interpreter(program, sizes, arrays, given).run()
    return {x.name: arrays[x.name] for x in program.tensors if x.role == "output"}
