"""Functions that are cheap near 0: warps take the long form where an argument of theirs is far from there, and only there."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.asynchronous import Arrays, Program
from tests.emulator.test_attention_forms import FORMS, ops
from tilec.compiler import compile_file
from tilec.ir import kernel_ir as k

TILES = {"D": 64, "BM": 128, "BN": 64}
NUMBERS = {"B": 1, "H": 2, "S": 144, "scale": 0.125, "cap": 20.0}


@pytest.fixture(scope="module")
def program() -> Program:
    return Program(FORMS, "soft_cap", TILES)


def large(rows: slice) -> Callable[[Arrays], None]:
    """Scores of these rows far beyond the cap."""

    def change(arrays: Arrays) -> None:
        arrays["q"][:, :, rows] = (arrays["q"][:, :, rows].astype(np.float32) * 200.0).astype(
            arrays["q"].dtype
        )

    return change


@pytest.mark.parametrize("rows", [slice(0, 0), slice(0, 144), slice(17, 18), slice(143, 144)])
def test_scores_near_and_far(program: Program, rows: slice) -> None:
    for size in (144, 77):
        ran = program.run({**NUMBERS, "S": size}, large(rows))
        assert ran.launched == ("soft_cap_kernel",)
        assert np.isfinite(ran.outputs["o"].astype(np.float32)).all()


@pytest.mark.parametrize("cap", [1e-3, 2e4, 1e30])
def test_numbers_that_leave_the_polynomial_no_room(program: Program, cap: float) -> None:
    """What the argument is multiplied by is in the coefficients, whose powers have a range."""
    ran = program.run({**NUMBERS, "cap": cap}, large(slice(0, 0)))
    assert np.isfinite(ran.outputs["o"].astype(np.float32)).all()


def branches(text: str, folder: Path) -> list[k.IfAnyLane]:
    path = folder / "forms.tile"
    path.write_text(text, encoding="utf-8")
    (found,) = compile_file(
        str(path), kernel="soft_cap", archs=("sm_90a",), stop="kernel-ir"
    ).kernels
    body = ops(found.lowered["sm_90a"][0].body)
    both = [op for op in body if isinstance(op, k.IfAnyLane) and op.otherwise]
    return [op for op in both if "tanh" in repr(op)]


def test_both_forms_are_there_but_not_in_strict_mode(tmp_path: Path) -> None:
    kernels = FORMS.read_text(encoding="utf-8").split("\nkernel ")
    text = f"{kernels[0]}\nkernel " + next(x for x in kernels if x.startswith("soft_cap["))
    assert len(branches(text, tmp_path)) == 3  # in front of the loop, in whole trips, in the last
    strict = text.replace("\n    for b", "\n    schedule math = strict\n    for b", 1)
    assert strict != text and not branches(strict, tmp_path)
