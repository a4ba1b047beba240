"""Forms of attention of bench/attention_forms.tile on the asynchronous path: masks and biases that the producer brings, and where rows
begin anywhere; packed sequences, most of whose tiles are dead."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.emulator.asynchronous import Arrays, Program
from tilec.compiler import compile_file
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import I32

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
def test_tiles_beside_the_products_are_brought_by_the_producer(kernel: str) -> None:
    program = Program(FORMS, kernel, TILES)
    brought = {
        low.name: sum(isinstance(op, a.TileLoad) for op in ops(low.body))
        for low in program.kernel.lowered["sm_90a"]
    }
    assert brought.pop(f"{kernel}_kernel") > 1 and not any(brought.values())
    numbers = {"B": 1, "H": 1, "S": 72, "scale": 0.125}
    # rows of whole lines, of whole pairs, and rows that begin anywhere
    for keys, form in ((144, ""), (102, "_pairs"), (101, "_any_out")):
        ran = program.run({**numbers, "N": keys}, no_key_for_the_third)
        assert ran.launched == (f"{kernel}_kernel{form}",)
        if kernel == "masked":
            assert (ran.outputs["o"][0, 0, 2] == 0).all() and ran.outputs["lse"][0, 0, 2] == -np.inf
            assert np.isfinite(ran.outputs["lse"][0, 0, 3])
        assert np.isfinite(ran.outputs["o"].astype(np.float32)).all()


@pytest.mark.parametrize("kernel", ["masked", "biased"])
@pytest.mark.parametrize("rows", [1, 64, 130, 257])
def test_brought_tiles_of_two_warpgroups(kernel: str, rows: int) -> None:
    program = Program(FORMS, kernel, {"D": 64, "BM": 128, "BN": 64})
    numbers = {"B": 2, "H": 2, "S": rows, "N": 208, "scale": 0.125}
    ran = program.run(numbers, no_key_for_the_third if rows > 3 else None)
    assert ran.launched == (f"{kernel}_kernel",)


@pytest.mark.parametrize("dtype", ["f16", "i8", "f8e4m3"])
def test_brought_tiles_of_other_elements(dtype: str) -> None:
    program = Program(FORMS, "biased", {"D": 64, "BM": 64, "BN": 64, "T": dtype})
    body = ops(program.kernel.lowered["sm_90a"][0].body)
    assert any(isinstance(op, a.TileLoad) for op in body)
    ran = program.run({"B": 1, "H": 2, "S": 70, "N": 112, "scale": 0.125})
    assert ran.launched == ("biased_kernel",)


CAUSAL_BIAS = """
import std.softmax

kernel causal_bias[D = 64, BM = auto, BN = auto](
    q: bf16[H, S, D], k: bf16[H, S, D], v: bf16[H, S, D], bias: bf16[S, S], scale: f32) -> o: bf16[H, S, D]:
    require scale > 0.0
    for h, i in parallel(H, S by BM):
        state = softmax.begin(i, D)
        for j in range(0 : min(S, i.stop) by BN):
            s = (q[h, i, :] @ k[h, j, :].T) * scale + bias[i, j].to(f32)
            state = softmax.step(state, where(i[:, None] >= j[None, :], s, -inf), v[h, j, :])
        o[h, i, :] = softmax.end(state)

    check:
        s = (q @ k.T) * scale + bias[None, :, :]
        s = where(arange(S)[:, None] >= arange(S)[None, :], s, -inf)
        p = exp(s - max(s, axis=2)[:, :, None])
        o == (p @ v) / sum(p, axis=2)[:, :, None]
    example H = 2, S = 1024, scale = 0.125
    example cpu H = 1, S = 72, scale = 0.125
"""


def test_warpgroups_with_trips_of_their_own_give_brought_tiles_back(tmp_path: Path) -> None:
    path = tmp_path / "causal_bias.tile"
    path.write_text(CAUSAL_BIAS, encoding="utf-8")
    program = Program(path, "causal_bias", {})
    body = ops(program.kernel.lowered["sm_90a"][0].body)
    assert any(isinstance(op, a.TileLoad) for op in body)
    for rows in (8, 200, 392):
        ran = program.run({"H": 2, "S": rows, "scale": 0.125})
        assert ran.launched == ("causal_bias_kernel",)


INDEXED = {
    "alibi": {"D": 64, "BM": 128, "BN": 64},
    "window": {"D": 64, "BM": 128, "BN": 64, "WINDOW": 100},
}


@pytest.mark.parametrize("kernel", INDEXED)
def test_masks_and_distances_by_indices(kernel: str) -> None:
    program = Program(FORMS, kernel, INDEXED[kernel])
    (low, *_) = program.kernel.lowered["sm_90a"]
    held = [op.fragment for op in ops(low.body) if isinstance(op, k.Declare)]
    assert not any(f.rep == I32 and len(f.axes) == 2 for f in held)  # a constant and a number
    for rows in (1, 65, 130, 300):
        ran = program.run({"B": 1, "H": 2, "S": rows, "scale": 0.125})
        assert ran.launched == (f"{kernel}_kernel",)


def test_rows_that_begin_with_a_weight() -> None:
    """What a sum begins with is carried beside what the lanes add up, and takes the same factors."""
    program = Program(FORMS, "sinks", {"D": 64, "BM": 128, "BN": 64})
    steps = program.kernel.manifest["targets"]["sm_90a"][0]["schedule"]  # type: ignore[index]
    assert {"defer_sums", "keep_references"} <= set(steps)
    for sink in (-np.inf, -300.0, 0.0, 40.0):

        def change(arrays: Arrays, sink: float = sink) -> None:
            arrays["sink"][:] = sink

        for rows in (1, 130, 300):
            ran = program.run({"B": 1, "H": 2, "S": rows, "scale": 0.125}, change)
            assert ran.launched == ("sinks_kernel",)


def lengths(*ends: int) -> object:
    """Sequences that end there."""

    def change(arrays: Arrays) -> None:
        arrays["starts"][:] = ends

    return change


def test_dead_tiles_are_left_at_once() -> None:
    program = Program(PACKED, "packed", TILES)
    (low, *_) = program.kernel.lowered["sm_90a"]
    # the role that draws numbers asks, and tells the others what there is to do
    (roles,) = [op for op in low.body if isinstance(op, a.Roles)]
    assert sum(isinstance(op, a.NextUnless) for op in ops(roles.producer)) == 1
    assert sum(isinstance(op, a.TellInstance) for op in ops(roles.producer)) == 2
    assert not any(isinstance(op, a.NextUnless) for op in ops(roles.consumer))
    # the longest first, by CTAs that stay
    assert [d.backwards for d in low.grid] == [True, False, False]
    assert not any(d.uneven for d in low.grid)
    target = program.kernel.plan.targets[0]
    (first, *_) = [x for step in target.steps for x in step.launches]
    assert first.resident == 1 and [x.kernel for x in first.before] == ["packed_kernel_cleared"]
    numbers = {"TOTAL": 200, "H": 2, "NSEQ1": 5, "longest": 200, "scale": 0.125}
    program.run(numbers, lengths(0, 130, 130, 137, 200))  # type: ignore[arg-type]


@pytest.mark.parametrize(("kernel", "uneven"), [("causal", True), ("paged", False)])
def test_what_all_have_something_of_is_dealt_to_ctas_that_stay(kernel: str, uneven: bool) -> None:
    (found,) = compile_file(str(FORMS), kernel=kernel, archs=("sm_90a",), stop="kernel-ir").kernels
    low = found.lowered["sm_90a"][0]
    assert low.producers and not any(isinstance(op, a.NextUnless) for op in ops(low.body))
    (first, *_) = [x for step in found.plan.targets[0].steps for x in step.launches]
    assert first.resident == 1 and low.grid[-1].uneven == uneven
