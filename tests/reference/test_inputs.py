"""Seeded inputs, sampling of instances."""

from __future__ import annotations

import numpy as np
import pytest

from tests.ir.programs import gemm, vector_add
from tests.reference.samples import sample, written
from tilec.reference.inputs import make_inputs, tensor_uses
from tilec.reference.interpreter import Interpreter
from tilec.reference.numbers import unpack
from tilec.reference.sampling import LIMIT, SAMPLES, choose, operations, select
from tilec.source.diagnostics import TileError


def test_the_same_seed_gives_the_same_inputs() -> None:
    first, again = (make_inputs(gemm(), {"M": 9, "N": 8, "K": 7}, seed=4) for _ in range(2))
    other = make_inputs(gemm(), {"M": 9, "N": 8, "K": 7}, seed=5)
    assert sorted(first) == ["a", "b"] and first["a"].shape == (9, 7)
    assert (first["a"] == again["a"]).all() and (first["a"] != other["a"]).any()
    assert (first["a"].ravel()[:5] != first["b"].ravel()[:5]).any()


def test_floats_are_standard_normal() -> None:
    a = make_inputs(vector_add(), {"N": 20000})["a"]
    assert a.dtype == np.float32 and abs(a.mean()) < 0.05 and abs(a.std() - 1) < 0.05


def test_large_inputs_are_drawn_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fits one part is the same whatever else is drawn; the parts differ."""
    whole = make_inputs(gemm(), {"M": 9, "N": 8, "K": 7}, seed=4)["a"].ravel()
    monkeypatch.setattr("tilec.reference.inputs.PART", 20)
    first, again = (
        make_inputs(gemm(), {"M": 9, "N": 8, "K": 7}, seed=4)["a"].ravel() for _ in range(2)
    )
    assert (first == again).all() and (first[:20] == whole[:20]).all()
    assert len({part.tobytes() for part in (first[:20], first[20:40], first[40:60])}) == 3
    assert abs(first[20:].astype(np.float32).mean()) < 1
    monkeypatch.setattr("tilec.reference.inputs.BLOCK", 3)  # of one buffer, no matter how long
    assert (make_inputs(gemm(), {"M": 9, "N": 8, "K": 7}, seed=4)["a"].ravel() == first).all()


def test_indices_of_a_gather_mostly_exist() -> None:
    case = sample("matrix_vector_and_groups.tile", "moe_swiglu")
    inputs = make_inputs(case.program, case.sizes | {"ROWS": 2000})
    token, expert = inputs["token"], inputs["expert_of_block"]
    assert token.max() < case.sizes["TOKENS"] and token.min() == -1
    assert 0.01 < (token == -1).mean() < 0.2
    assert expert.min() >= 0 and expert.max() < case.sizes["E"]


def test_starts_are_sorted_from_nothing_to_everything() -> None:
    for file, name, tensor, total in (
        ("matrix_vector_and_groups.tile", "grouped_gemm", "starts", "ROWS"),
        ("attention_variants.tile", "packed", "starts", "TOTAL"),
    ):
        case = sample(file, name)
        starts = make_inputs(case.program, case.sizes, case.scalars)[tensor]
        assert starts[0] == 0 and starts[-1] == case.sizes[total]
        assert (np.diff(starts) >= 0).all()


def test_lengths_lie_within_the_dimension_that_they_bound() -> None:
    case = sample("decode.tile", "flash_decode")
    uses = tensor_uses(case.program)
    assert list(uses) == ["length"] and not uses["length"].paired
    length = make_inputs(case.program, case.sizes | {"B": 500}, case.scalars)["length"]
    assert (
        length.min() >= 0
        and length.max() <= case.sizes["T"]
        and length.max() > 0.9 * case.sizes["T"]
    )


def test_other_types() -> None:
    text = """
kernel k(f: f8e4m3[N], b: bool[N], i: i8[N], u: u4[N], d: f64[N], p: f32[N] strides (3), c: u4[N], t: f32[20]) -> y: f32[N]:
    for n in parallel(N by 4):
        y[n] = p[n] + t[c[n].to(i32)]
"""
    case = written(text, "k")
    inputs = make_inputs(case.program, {"N": 64})
    assert inputs["b"].dtype == np.bool_ and inputs["b"].any() and not inputs["b"].all()
    assert inputs["i"].min() >= -8 and inputs["i"].max() < 8 and inputs["i"].dtype == np.int8
    assert (
        inputs["u"].shape == (32,)
        and unpack(inputs["u"], (64,), case.program.tensor("u").dtype).max() < 16
    )
    codes = unpack(inputs["c"], (64,), case.program.tensor("c").dtype)
    assert inputs["c"].shape == (32,) and codes.max() == 15
    assert np.isfinite(inputs["f"].astype(np.float32)).all()
    assert inputs["d"].dtype == np.float64
    assert inputs["p"].shape == (63 * 3 + 1,)
    assert make_inputs(case.program, {"N": 0})["p"].shape == (0,)


# ---- sampling


def test_chosen_instances_include_corners_edges_and_ragged_ends() -> None:
    chosen = choose((40, 50, 6), seed=1)
    assert len(chosen) >= SAMPLES and len(set(chosen)) == len(chosen) and chosen == sorted(chosen)
    for corner in ((0, 0, 0), (39, 49, 5), (39, 0, 5), (0, 49, 0)):
        assert corner in chosen
    for axis, last in ((0, 39), (1, 49), (2, 5)):
        assert sum(c[axis] == last for c in chosen) >= 6
    assert chosen == choose((40, 50, 6), seed=1) != choose((40, 50, 6), seed=2)
    assert choose((3, 4)) == [(i, j) for i in range(3) for j in range(4)]
    assert choose((5, 0)) == [] and choose(()) == [()]
    assert len(choose((65,))) >= SAMPLES


def test_operations_count_products_and_instances() -> None:
    program = gemm(16, 8)
    work = operations(program, {"M": 160, "N": 160, "K": 800}, 0)
    assert work > 2 * 160 * 160 * 800
    double = operations(program, {"M": 320, "N": 160, "K": 800}, 0)
    assert double == 2 * work
    assert operations(program, {"M": 0, "N": 160, "K": 800}, 0) == 0


def test_loops_that_hang_on_loaded_values_count_at_their_longest() -> None:
    case = sample("attention_variants.tile", "packed")
    sizes = {"TOTAL": 8192, "H": 16, "NSEQ1": 9}
    whole = 2 * 2 * 8192 * 8192 * 128 * 16 * 8
    assert operations(case.program, sizes, 0) >= whole


def test_loops_over_a_part_of_what_is_loaded_count_that_part() -> None:
    case = sample("decode.tile", "flash_decode")
    sizes = {"B": 8, "H": 64, "T": 32768}
    products = 2 * 2 * 8 * 64 * 32768 * 128
    assert products <= operations(case.program, sizes, 0) <= LIMIT


def test_large_runs_are_sampled_and_small_ones_are_not() -> None:
    sizes = {"M": 200, "N": 300, "K": 20}
    arrays = make_inputs(gemm(), sizes)
    machine = Interpreter(gemm(), sizes, arrays, bounds=True)
    everything = select(machine)
    assert (
        everything.complete and everything.instances is None and "all 247" in everything.describe()
    )
    some = select(machine, limit=1)
    assert not some.complete and some.instances is not None and len(some.instances) == some.sampled
    assert f"{some.sampled} of 247 instances" in some.describe()
    machine.run(some.instances)
    bound = machine.expected("c").bound
    known = np.isfinite(bound)
    assert known[0, 0] and known[-1, -1] and 0 < known.mean() < 1


def test_earlier_nests_run_whole_or_not_at_all() -> None:
    case = sample("matrix_vector_and_groups.tile", "gemm_split_k")
    inputs = make_inputs(case.program, case.sizes)
    machine = Interpreter(case.program, case.sizes, inputs, bounds=True)
    first = operations(case.program, case.sizes, 0)
    selection = select(machine, limit=first)
    assert selection.instances is not None
    assert sum(i.nest == 0 for i in selection.instances) == len(list(machine.instances(0)))
    with pytest.raises(TileError) as caught:
        select(machine, limit=first - 1)
    assert caught.value.diagnostics[0].code == "E0906"
