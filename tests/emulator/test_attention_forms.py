"""Forms of attention of bench/attention_forms.tile on the asynchronous path: masks and biases in lines of 16 bytes, and where rows begin
anywhere; packed sequences, most of whose tiles are dead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.emulator.asynchronous import Arrays, Program
from tilec.compiler import compile_file
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k

ROOT = Path(__file__).resolve().parents[2]
FORMS = ROOT / "bench" / "attention_forms.tile"
PACKED = ROOT / "samples" / "attention_variants.tile"
TILES = {"D": 64, "BM": 64, "BN": 64}


def ops(body: tuple[k.Op, ...]) -> list[k.Op]:
    """All ops of a body, inner ones too."""
    found: list[k.Op] = []
    for op in body:
        found.append(op)
        for name in ("body", "producer", "consumer", "then", "otherwise"):
            found += ops(getattr(op, name, ()))
    return found


def no_key_for_the_third(arrays: Arrays) -> None:
    """The third row sees no key, and of the fourth one the last alone."""
    if "mask" in arrays:
        arrays["mask"][:, 2:4] = False
        arrays["mask"][:, 3, -1] = True


@pytest.mark.parametrize("kernel", ["masked", "biased"])
def test_tiles_beside_the_products_come_in_lines(kernel: str) -> None:
    program = Program(FORMS, kernel, TILES)
    spread = {
        low.name: sum(isinstance(op, k.SpreadLine) for op in ops(low.body))
        for low in program.kernel.lowered["sm_90a"]
    }
    assert spread.pop(f"{kernel}_kernel") > 1 and not any(spread.values())
    numbers = {"B": 1, "H": 1, "S": 72, "scale": 0.125}
    # rows of whole lines, of whole pairs, and rows that begin anywhere
    for keys, form in ((144, ""), (102, "_pairs"), (101, "_any_out")):
        ran = program.run({**numbers, "N": keys}, no_key_for_the_third)
        assert ran.launched == (f"{kernel}_kernel{form}",)
        if kernel == "masked":
            assert (ran.outputs["o"][0, 0, 2] == 0).all() and ran.outputs["lse"][0, 0, 2] == -np.inf
            assert np.isfinite(ran.outputs["lse"][0, 0, 3])
        assert np.isfinite(ran.outputs["o"].astype(np.float32)).all()


def lengths(*ends: int) -> object:
    """Sequences that end there."""

    def change(arrays: Arrays) -> None:
        arrays["starts"][:] = ends

    return change


def test_dead_tiles_are_left_at_once() -> None:
    program = Program(PACKED, "packed", TILES)
    (low, *_) = program.kernel.lowered["sm_90a"]
    assert sum(isinstance(op, a.NextUnless) for op in ops(low.body)) == 2  # of either role
    # the longest first, and a CTA for each: memory says how long they take
    assert [d.backwards for d in low.grid] == [False, False, True]
    assert not any(d.uneven for d in low.grid)
    target = program.kernel.plan.targets[0]
    (first, *_) = [x for step in target.steps for x in step.launches]
    assert first.resident == 0
    numbers = {"TOTAL": 200, "H": 2, "NSEQ1": 5, "longest": 200, "scale": 0.125}
    program.run(numbers, lengths(0, 130, 130, 137, 200))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kernel", "uneven"), [("causal", True), ("paged", False)])
def test_what_all_have_something_of_is_dealt_to_ctas_that_stay(kernel: str, uneven: bool) -> None:
    (found,) = compile_file(str(FORMS), kernel=kernel, archs=("sm_90a",), stop="kernel-ir").kernels
    low = found.lowered["sm_90a"][0]
    assert low.producers and not any(isinstance(op, a.NextUnless) for op in ops(low.body))
    (first, *_) = [x for step in found.plan.targets[0].steps for x in step.launches]
    assert first.resident == 1 and low.grid[-1].uneven == uneven
