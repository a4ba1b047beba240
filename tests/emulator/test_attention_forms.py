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
from tilec.ir.dtypes import I32, U32

ROOT = Path(__file__).resolve().parents[2]
FORMS = ROOT / "bench" / "attention_forms.tile"
UNSEEN = ROOT / "bench" / "attention_unseen.tile"
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
    skipping = [brought.pop(f"{kernel}_kernel_skipping{x}", 2) for x in ("", "_none")]
    assert brought.pop(f"{kernel}_kernel") > 1 and min(skipping) > 1 and not any(brought.values())
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
@pytest.mark.parametrize(("rows", "keys"), [(1, 32), (64, 64), (130, 96), (257, 128)])
def test_brought_tiles_of_two_warpgroups(kernel: str, rows: int, keys: int) -> None:
    program = Program(FORMS, kernel, {"D": 64, "BM": 128, "BN": keys})
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
KEPT = {"D": 64, "BM": 64, "BN": 64, "WINDOW": 100}
"""All rows of a tile see a key of its first ones, so that references are kept."""


@pytest.mark.parametrize(
    ("kernel", "defines"), [*INDEXED.items(), ("window", KEPT), ("window", {**KEPT, "WINDOW": 30})]
)
def test_masks_and_distances_by_indices(kernel: str, defines: dict[str, int]) -> None:
    program = Program(FORMS, kernel, defines)
    (low, *_) = program.kernel.lowered["sm_90a"]
    held = [op.fragment for op in ops(low.body) if isinstance(op, k.Declare)]
    assert not any(f.rep == I32 and len(f.axes) == 2 for f in held)  # a constant and a number
    # two masks of an element are a bit of its row's word
    assert any(f.rep == U32 for f in held) is (kernel == "window")
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


@pytest.mark.parametrize("times", [1e30, 30.0, 1e-30])
def test_a_first_reference_that_is_raised_shows_in_no_result(times: float) -> None:
    """Also where scores are so large that nothing is added to a reference, or grow along the keys."""
    program = Program(FORMS, "window", KEPT)

    def change(arrays: Arrays) -> None:
        k = arrays["k"]
        growing = times * np.linspace(0, 1, k.shape[2])[:, None]
        k[:] = (k.astype(np.float32) * growing).astype(k.dtype)

    ran = program.run({"B": 1, "H": 1, "S": 200, "scale": 0.125}, change)
    assert ran.launched == ("window_kernel",)


def test_rows_that_see_their_first_key_late() -> None:
    """Weights are 0 until then, whatever the first score is; where scores are scaled up rows without a key take the branch."""
    program = Program(UNSEEN, "documents", TILES)
    at = np.arange(300)
    for scale, times in ((0.125, 1.0), (0.125, -1e18), (0.125, 1e18), (2.0, 1.0)):

        def change(arrays: Arrays, times: float = times) -> None:
            arrays["doc"][:] = np.where(at < 7, 3, at // 130)
            q = arrays["q"]
            q[:] = (q.astype(np.float32) * times).astype(q.dtype)
            k = arrays["k"]
            k[:] = (np.abs(k.astype(np.float32)) * abs(times)).astype(k.dtype)

        ran = program.run({"B": 1, "H": 1, "S": 300, "scale": scale}, change)
        assert ran.launched == ("documents_kernel",)


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
    # who is told asks for the next number behind the last product of an instance
    (walk,) = [op for op in roles.consumer if isinstance(op, a.Instances)]
    kinds = [type(op) for op in walk.body if isinstance(op, a.WarpgroupCommit | a.NextPlace)]
    assert walk.ahead and kinds[-2:] == [a.WarpgroupCommit, a.NextPlace]
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
    # the next one is found behind the start of the last product of an instance, and nowhere else
    (roles,) = [op for op in low.body if isinstance(op, a.Roles)]
    (walk,) = [op for op in roles.consumer if isinstance(op, a.Instances)]
    kinds = [type(op) for op in walk.body if isinstance(op, a.WarpgroupCommit | a.NextPlace)]
    assert walk.ahead == uneven and (kinds[-1:] == [a.NextPlace]) == uneven
    assert sum(isinstance(op, a.NextPlace) for op in ops(low.body)) == uneven


def test_trips_inside_of_what_memory_says_have_no_masks() -> None:
    program = Program(PACKED, "packed", TILES)
    (low, *_) = program.kernel.lowered["sm_90a"]
    (roles,) = [op for op in low.body if isinstance(op, a.Roles)]
    loops = [op for op in ops(roles.consumer) if isinstance(op, k.Loop)]
    whole, edges = (x for x in loops if any(isinstance(y, a.WarpgroupProduct) for y in x.body))
    masked = [sum("where" in repr(op) for op in ops(loop.body)) for loop in (whole, edges)]
    assert masked[0] < masked[1]
    # the tile in front of the loop passes by the sequence's mask where it begins inside, and by the diagonal's as well
    (walk,) = [op for op in roles.consumer if isinstance(op, a.Instances)]
    asked = [op for op in walk.body if isinstance(op, k.IfUniform)]
    nested = [x for op in asked for x in op.then if isinstance(x, k.IfUniform)]
    assert [("where" in repr(x.then), "where" in repr(x.otherwise)) for x in nested] == [
        (False, True)
    ]
    # a sequence that begins in front of the tensor, and one that ends behind it: what is outside is absent
    numbers = {"TOTAL": 200, "H": 1, "NSEQ1": 4, "longest": 200, "scale": 0.125}
    ran = program.run(numbers, lengths(-70, 66, 130, 300), checked=False)  # type: ignore[arg-type]
    assert ran.launched[-1] == "packed_kernel"


@pytest.mark.parametrize(("last", "column"), [(-np.inf, 8), (np.nan, 31)])
def test_what_is_no_number_behind_a_tile_stays_there(last: float, column: int) -> None:
    program = Program(FORMS, "window", INDEXED["window"])
    (low, *_) = program.kernel.lowered["sm_90a"]
    assert any(isinstance(op, a.ClearEdges) and op.beside_zeros for op in ops(low.body))

    def change(arrays: Arrays) -> None:
        arrays["v"][:, :, 128:, column] = last

    numbers = {"B": 1, "H": 1, "S": 140, "scale": 0.125}
    ran = program.run(numbers, change, checked=False)
    assert ran.launched == ("window_kernel",)
    assert np.isfinite(ran.outputs["o"][:, :, :128].astype(np.float32)).all()


def test_a_tile_whose_edge_was_looked_at_is_not_overwritten_too_soon() -> None:
    """One lane gives a slot back for all that have read it, in rings that more tiles pass than they have slots."""
    defines = {"D": 32, "BN": 16, "CAUSAL": "true"}
    program = Program(ROOT / "samples" / "attention.tile", "attention", defines)
    ran = program.run({"B": 1, "H": 3, "S": 264, "T": 200, "scale": 0.125})
    assert ran.launched == ("attention_kernel",)
