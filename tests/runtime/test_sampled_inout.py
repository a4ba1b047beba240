"""An `inout` tensor whose instances were only sampled: what no sampled instance wrote is unknown, not unchanged."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from tilec.compiler import analyse_file
from tilec.ir.launch import LaunchPlan
from tilec.reference.inputs import make_inputs
from tilec.runtime.arguments import bind_sizes
from tilec.runtime.verify import Case, interpreter_bounds

NORMS = Path(__file__).resolve().parents[2] / "samples" / "norms.tile"


def test_rows_outside_the_sample_are_unknown() -> None:
    files, (found,), _ = analyse_file(str(NORMS), kernel="rms_norm_residual")
    program = found.program
    plan = LaunchPlan(program.name, program.tensors, program.dims, program.scalars, ())
    sizes = bind_sizes(plan, {"R": 400, "C": 64, "eps": 1e-6})
    arrays = make_inputs(program, sizes.numbers, dict(sizes.scalars), 3)
    bounds = interpreter_bounds(Case(program, files, found.syntax, sizes, arrays), limit=10_000)
    assert not bounds.complete
    unknown = np.isinf(bounds.errors["residual"]).all(axis=1)
    known = np.isfinite(bounds.errors["residual"]).any(axis=1)
    assert 0 < known.sum() < 400
    assert unknown.sum() == 400 - known.sum()
