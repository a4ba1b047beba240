"""Bounds of the running error analysis, and the comparison with them."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ir.programs import Bench
from tests.reference.samples import written
from tilec.compiler import compile_file
from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import BF16, BOOL, DTYPES, F16, F32, I32, DType
from tilec.ir.symbolic import Sym
from tilec.reference.blas import one_thread
from tilec.reference.bounds import Comparison, compare
from tilec.reference.interpreter import Expected, Interpreter, walk
from tilec.reference.numbers import to_double
from tilec.reference.precision import at_any_scale, narrow_values
from tilec.reference.running_error import COARSE, BoundedArithmetic
from tilec.reference.tiles import Tile
from tilec.runtime import verify
from tilec.runtime.verify import Tolerance

Array = np.ndarray[Any, Any]
FAST, STRICT = BoundedArithmetic(), BoundedArithmetic(strict=True)


def tile(values: object, error: object = None) -> Tile:
    """A tile of float64 values, or of bools, with a bound."""
    data = np.asarray(values)
    data = data if data.dtype == np.bool_ else data.astype(np.float64)
    bound = None if error is None else np.broadcast_to(np.asarray(error, np.float64), data.shape)
    return Tile(data, (None,) * data.ndim, bound)


def bound(result: Tile) -> Array:
    """The bound as an array."""
    return np.zeros(result.data.shape) if result.error is None else result.error


# ---- comparison


def test_equal_nan_and_infinity_agree() -> None:
    special = np.array([np.nan, np.inf, -np.inf, 0.0], np.float32)
    found = compare(special, special.astype(np.float64), 0.0, F32)
    assert found.agrees and found.elements == 4 and found.max_error == 0
    assert compare(special, special.astype(np.float64), 0.0, F32, rtol=1e-3).agrees


def test_no_element_may_differ() -> None:
    expected = np.zeros(1000)
    actual = np.zeros(1000, np.float32)
    actual[417] = 1e-3
    found = compare(actual, expected, 1e-4, F32)
    assert not found.agrees and found.mismatches == 1
    assert found.worst_index == (417,) and found.max_error == pytest.approx(1e-3)
    assert "[417]" in found.describe() and "1 of 1000" in found.describe()


@pytest.mark.parametrize(
    ("actual", "expected"), [(np.nan, 1.0), (1.0, np.nan), (np.inf, -np.inf), (np.inf, 1e9)]
)
def test_special_values_differ(actual: float, expected: float) -> None:
    found = compare(np.array([0, actual], np.float32), np.array([0, expected]), 1e9, F32)
    assert found.mismatches == 1 and found.worst_index == (1,)
    assert found.nan_mismatches == int(math.isnan(actual) or math.isnan(expected))


def test_an_infinite_bound_compares_nothing() -> None:
    found = compare(
        np.array([5.0, 1.0], np.float32), np.array([0.0, 1.0]), np.array([np.inf, 0]), F32
    )
    assert found.agrees and found.unknown == 1


def test_blocks_and_shares_compare_as_the_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever is compared at a time, by whichever thread: counts, the worst element and its place."""
    rng = np.random.default_rng(3)
    expected = rng.standard_normal((41, 7))
    actual = (expected + rng.standard_normal((41, 7)) * 1e-3).astype(np.float32)
    bounds = np.where(rng.random((41, 7)) < 0.4, np.inf, 1e-3)
    expected[30, 2], bounds[30, 2] = np.nan, 1e-3

    def compared() -> tuple[Comparison, Comparison]:
        flat = bounds.reshape(-1)
        one = verify._compare(actual, expected, lambda part: flat[part], F32, Tolerance())
        return compare(actual, expected, bounds, F32), one

    whole = compared()
    assert (
        str(whole[0]) == str(whole[1]) and whole[0].mismatches > 1 and whole[0].nan_mismatches == 1
    )
    assert whole[0].worst_index == (30, 2) and whole[0].unknown == np.isinf(bounds).sum()
    monkeypatch.setattr("tilec.reference.bounds._BLOCK", 5)
    monkeypatch.setattr(verify, "BLOCK", 9)
    monkeypatch.setattr(verify, "SHARE", 20)
    assert list(map(str, compared())) == list(map(str, whole))


def test_tolerances_replace_the_bound() -> None:
    actual, expected = np.array([1.01, 100.5], np.float32), np.array([1.0, 100.0])
    assert not compare(actual, expected, 0.0, F32).agrees
    assert compare(actual, expected, 0.0, F32, rtol=0.011).agrees
    assert not compare(actual, expected, 10.0, F32, atol=0.1).agrees
    assert compare(actual, expected, 0.0, F32, rtol=0.006, atol=0.006).agrees


def test_integers_beyond_float64_are_compared_exactly() -> None:
    one = np.array([2**62 + 1])
    assert compare(one, one.copy(), 0.0, DTYPES["i64"]).agrees
    assert compare(np.zeros((0, 3), np.float32), np.zeros((0, 3)), 0.0, F32).worst_index is None
    scalar = compare(np.asarray(1.0, np.float32), np.asarray(2.0), 0.0, F32)
    assert scalar.worst_index == () and scalar.mismatches == 1


# ---- operations


def within(op: str, dtype: DType, *args: Array) -> None:
    """What float32 or a narrow type computes lies within the bound, which is no wider than some ulps."""
    with np.errstate(all="ignore"):
        result = FAST.elementwise(op, [tile(a) for a in args], dtype)
        narrow = {
            "add": np.add,
            "mul": np.multiply,
            "div": np.divide,
            "exp": np.exp,
            "tanh": np.tanh,
        }
        kind = {F32: np.float32, F16: np.float16, BF16: ml_dtypes.bfloat16}[dtype]
        computed = narrow[op](*(a.astype(np.float32) for a in args)).astype(kind)
    found = compare(computed, result.data, bound(result), dtype)
    assert found.agrees, found.describe()
    finite = np.isfinite(result.data) & (np.abs(result.data) > 1e-30)
    assert (bound(result)[finite] <= 40 * dtype.epsilon * np.abs(result.data[finite])).all()


@pytest.mark.parametrize("dtype", [F32, F16, BF16])
@pytest.mark.parametrize("op", ["add", "mul", "div", "exp", "tanh"])
def test_computed_values_lie_within_the_bound(op: str, dtype: DType) -> None:
    generator = np.random.default_rng(2)
    kind = {F32: np.float32, F16: np.float16, BF16: ml_dtypes.bfloat16}[dtype]
    args = [generator.standard_normal(2000).astype(kind).astype(np.float64) for _ in range(2)]
    within(op, dtype, *args[: 1 if op in ("exp", "tanh") else 2])


def test_exact_results_have_no_bound() -> None:
    result = FAST.elementwise("add", [tile([1.0, 2.0]), tile([2.0, 4.0])], F32)
    assert result.error is None
    result = FAST.elementwise("mul", [tile([3.0]), tile([5.0])], BF16)
    assert result.error is None


def test_table_of_numerics() -> None:
    x = np.array([3.0])
    ulp = 2.0**-23
    exp = bound(FAST.elementwise("exp", [tile(x)], F32))[0]
    assert exp == pytest.approx((2 + 1.2 * 3 + 0.5) * ulp * math.exp(3), rel=0.2)
    strict = bound(STRICT.elementwise("exp", [tile(x)], F32))[0]
    assert strict <= 2 * ulp * math.exp(3)
    near_one = bound(FAST.elementwise("log", [tile([1 + 2.0**-20])], F32))[0]
    assert near_one == pytest.approx(2.0**-21, rel=0.01)
    wide = bound(FAST.elementwise("tanh", [tile(x)], F32, narrow=False))[0]
    coarse = bound(FAST.elementwise("tanh", [tile(x)], F32, narrow=True))[0]
    assert wide < 20 * ulp and coarse == pytest.approx(COARSE, rel=0.01)
    division = [
        bound(a.elementwise("div", [tile([1.0]), tile([3.0])], F32))[0] for a in (FAST, STRICT)
    ]
    assert division[0] == pytest.approx(4.5 * ulp / 3, rel=0.2) and division[1] <= ulp / 3


def test_a_difference_counts_with_its_operands_in_exp() -> None:
    moved = FAST.elementwise("sub", [tile([30.0]), tile([30.0])], F32)
    folded = bound(FAST.elementwise("exp", [moved], F32))[0]
    plain = bound(FAST.elementwise("exp", [tile([0.0])], F32))[0]
    assert folded > 30 * 2.0**-23 > plain


def test_errors_propagate() -> None:
    a, b = tile([2.0], 1e-3), tile([5.0], 1e-2)
    assert bound(FAST.elementwise("add", [a, b], F32))[0] == pytest.approx(1.1e-2, rel=1e-3)
    assert bound(FAST.elementwise("mul", [a, b], F32))[0] == pytest.approx(2.501e-2, rel=1e-3)
    assert bound(FAST.elementwise("div", [a, b], F32))[0] == pytest.approx(
        1e-3 / 5 + 0.4e-2 / 5, rel=1e-2
    )
    assert bound(FAST.elementwise("exp", [a], F32))[0] == pytest.approx(
        math.exp(2) * 1e-3, rel=1e-2
    )
    assert bound(FAST.elementwise("max", [a, b], F32))[0] == 1e-2
    assert np.isinf(bound(FAST.elementwise("div", [b, tile([1e-3], 1e-2)], F32))[0])
    assert np.isinf(bound(FAST.elementwise("log", [tile([1e-3], 1e-2)], F32))[0])


def test_steps_and_comparisons_that_rounding_may_decide() -> None:
    x = tile([2.999, 2.5], 0.01)
    assert bound(FAST.elementwise("floor", [x], F32)).tolist() == [1.0, 0.0]
    less = FAST.elementwise("lt", [x, tile([3.0, 3.0])], BOOL)
    assert bound(less).tolist() == [1.0, 0.0]
    chosen = FAST.elementwise("where", [less, tile([10.0, 10.0]), tile([4.0, 4.0])], F32)
    assert chosen.data.tolist() == [10, 10] and bound(chosen).tolist() == [6.0, 0.0]
    same = FAST.elementwise("where", [less, tile([7.0, 7.0]), tile([7.0, 7.0])], F32)
    assert same.error is None
    whole = FAST.cast(x, F32, I32)
    assert whole.data.tolist() == [2, 2] and bound(whole).tolist() == [1.0, 0.0]
    certain = FAST.elementwise("eq", [tile([-np.inf]), tile([-np.inf])], BOOL)
    assert certain.error is None and certain.data.all()
    finite = FAST.elementwise("eq", [tile([1.0], 0.5), tile([-np.inf])], BOOL)
    assert finite.error is None and not finite.data.any()


def test_a_certain_operand_decides_a_logical_op() -> None:
    doubtful, yes, no = tile([True], 1.0), tile([True]), tile([False])
    assert FAST.elementwise("and", [doubtful, no], BOOL).error is None
    assert FAST.elementwise("or", [doubtful, yes], BOOL).error is None
    assert bound(FAST.elementwise("and", [doubtful, yes], BOOL))[0] > 0


def test_conversions_round_or_keep_excess_precision() -> None:
    x = 1 + 2.0**-9 + 2.0**-12
    result = FAST.cast(tile([x]), F32, BF16)
    assert result.data[0] == x
    assert bound(result)[0] == pytest.approx(x - 1)
    assert FAST.cast(tile([1.5]), F32, BF16).error is None
    saturated = FAST.cast(tile([1e4]), F32, DTYPES["f8e4m3"])
    assert saturated.data[0] == 448 and bound(saturated)[0] == 0
    near = FAST.cast(tile([1.0 + 2.0**-8], 2.0**-9), F32, BF16)
    # one of the neighbours, whichever side of the middle the value lies on
    assert bound(near)[0] == pytest.approx(2.0**-8)


def test_overflow_is_an_infinity_or_unknown() -> None:
    big = FAST.elementwise("mul", [tile([1e30]), tile([1e30])], F32)
    assert np.isinf(big.data[0]) and big.error is None
    edge = FAST.elementwise("add", [tile([3.4028e38], 1e35), tile([0.0])], F32)
    assert np.isinf(bound(edge)[0])


def test_an_exponential_far_below_zero_is_zero() -> None:
    for op in ("exp", "exp2"):
        found = FAST.elementwise(op, [tile([-1e15, -1e15, 1.0], [6e7, 1e15, 2.0])], F32)
        assert bound(found)[0] <= 2.0**-126
        assert bound(found)[1] >= 1 and bound(found)[2] >= np.exp2(3.0) - np.exp2(1.0)


def test_an_overflow_whose_sign_the_order_decides_is_unknown() -> None:
    rows = np.array([[3e38, -3e38, -3e38, 0.0], [3e38, 3e38, 3e38, 0.0], [1.0, -3e38, 2.0, 0.0]])
    every = [FAST.reduce("sum", tile(rows), (1,), F32), FAST.scan("sum", tile(rows), 1, F32)]
    ones = tile(np.ones((4, 1)))
    every.append(FAST.dot(tile(rows), ones, (BF16, BF16, F32), None, ""))
    for result in every:
        last = bound(result).reshape(3, -1)[:, -1]
        value = np.asarray(result.data).reshape(3, -1)[:, -1]
        assert np.isinf(last[0])
        assert value[1] == np.inf and last[1] == 0
        assert np.isfinite(last[2])


def test_denormals_may_be_flushed_unless_strict() -> None:
    tiny = [tile([1e-39]), tile([1.0])]
    assert bound(FAST.elementwise("mul", tiny, F32))[0] >= 1e-39
    assert bound(STRICT.elementwise("mul", tiny, F32))[0] < 1e-44


def test_sums_in_any_order() -> None:
    generator = np.random.default_rng(4)
    x = generator.standard_normal(4096).astype(np.float32)
    result = FAST.reduce("sum", tile(x), (0,), F32)
    forward = np.float32(0)
    for element in x:
        forward += element
    for computed in (forward, x.sum(), np.sort(x).sum()):
        assert abs(float(computed) - float(result.data)) <= float(bound(result))
    assert float(bound(result)) < 1.0


def test_products_by_the_accumulation_of_their_type() -> None:
    generator = np.random.default_rng(5)
    a, b = generator.standard_normal((2, 8, 64)).astype(np.float32)
    half = FAST.dot(tile(a), tile(b.T), (BF16, BF16, F32), None, "")
    f8 = FAST.dot(tile(a), tile(b.T), (DTYPES["f8e4m3"], DTYPES["f8e4m3"], F32), None, "")
    tf32 = FAST.dot(tile(a), tile(b.T), (F32, F32, F32), None, "tf32")
    exact = a.astype(np.float64) @ b.T.astype(np.float64)
    assert (np.abs(a @ b.T - exact) <= bound(half)).all()
    floor = 2.0**-13 * 64 * np.abs(a).max(1)[:, None] * np.abs(b).max(1)[None, :]
    assert (bound(f8) >= floor).all() and (bound(tf32) > 10 * bound(half)).all()


def test_indices_of_near_ties_are_unknown() -> None:
    x = tile([[1.0, 1.001, 0.0], [1.0, 2.0, 0.0]], 0.01)
    result = FAST.reduce("argmax", x, (1,), F32)
    assert result.data.tolist() == [1, 1] and bound(result).tolist() == [np.inf, 0.0]
    assert FAST.reduce("argmax", tile([1.0, 1.0]), (0,), F32).error is None
    values, indices = FAST.topk(x, 1, 2, F32)
    assert values.data[1].tolist() == [2, 1] and (bound(values) == 0.01).all()
    assert bound(indices).tolist() == [[np.inf, np.inf], [0.0, 0.0]]
    # the first and the last are known, though nobody knows which of the others is second
    values, indices = FAST.topk(tile([9.0, 1.0, 5.0, 5.001, 3.0], 0.01), 0, 4, F32)
    assert values.data.tolist() == [9.0, 5.001, 5.0, 3.0] and indices.data.tolist() == [0, 3, 2, 4]
    assert bound(indices).tolist() == [0.0, np.inf, np.inf, 0.0]
    # the next one behind counts too
    assert bound(FAST.topk(tile([2.0, 1.0, 1.001], 0.01), 0, 2, F32)[1]).tolist() == [0.0, np.inf]


def test_scans_and_other_reductions_of_uncertain_values() -> None:
    x = tile([1.0, 3.0, 2.0], 0.5)
    assert bound(FAST.scan("sum", x, 0, F32)).tolist() == pytest.approx([1, 2, 3], rel=1e-5)
    assert bound(FAST.scan("max", x, 0, F32)).tolist() == [0.5, 0.5, 0.5]
    assert bound(FAST.reduce("max", x, (0,), F32)) == 0.5
    assert bound(FAST.reduce("prod", x, (0,), F32)) >= 1.5 * 3.5 * 2.5 - 6
    flags = tile([True, False], 1.0)
    assert bound(FAST.reduce("any", flags, (0,), BOOL)) > 0


# ---- whole programs


def bounded(bench: Bench, arrays: dict[str, Array]) -> dict[str, Expected]:
    """What each output of a program of one instance may hold."""
    program = bench.program()
    machine = Interpreter(program, {}, arrays, bounds=True)
    machine.run()
    return {t.name: machine.expected(t.name) for t in program.tensors if t.role == "output"}


def test_elements_never_stored_are_unknown() -> None:
    bench = Bench()
    bench.output("y", bench.spanned("x", F32, (3,), (5,)))
    found = bounded(bench, {"x": np.arange(3, dtype=np.float32)})["y"]
    assert found.bound.tolist() == [0, 0, 0, np.inf, np.inf]


def test_a_branch_that_rounding_may_take_leaves_stores_unknown() -> None:
    text = """
kernel k(x: f32[N]) -> (y: f32[N], z: f32[N]):
    for n in parallel(N):
        s = exp(x[n])
        if s > 1.0:
            y[n] = 1.0
        else:
            y[n] = 2.0
        z[n] = s
"""
    case = written(text, "k")
    machine = Interpreter(
        case.program, {"N": 2}, {"x": np.array([1e-9, 3.0], np.float32)}, bounds=True
    )
    machine.run()
    assert machine.expected("y").bound.tolist() == [np.inf, 0.0]


def test_atomic_sums_are_bounded_in_any_order() -> None:
    bench = Bench()
    index, x = bench.input("i", I32, 500), bench.input("x", F32, 500)
    bench.tensors.append(ir.Tensor("y", F32, (Sym.of(1),), "inout"))
    bench.build.ops.append(ir.Atomic("add", ir.Access("y", (ir.AtTile(index),)), x))
    program = bench.program()
    data = np.random.default_rng(6).standard_normal(500).astype(np.float32)
    arrays = {"i": np.zeros(500, np.int32), "x": data, "y": np.zeros(1, np.float32)}
    machine = Interpreter(program, {}, arrays, bounds=True)
    machine.run()
    expected = machine.expected("y")
    assert arrays["y"][0] == 0
    total = np.float32(0)
    for element in sorted(data):
        total += element
    assert 0 < expected.bound[0] < 0.1
    assert abs(float(total) - expected.value[0]) <= expected.bound[0]


def test_what_is_added_to_counts_in_the_bound_of_an_atomic_sum() -> None:
    """A small number is rounded to the last place of the large one that is there; what nothing is added to stays exact."""
    bench = Bench()
    x = bench.input("x", F32, 2)
    bench.tensors.append(ir.Tensor("y", F32, (Sym.of(3),), "inout"))
    at = bench.input("i", I32, 2)
    bench.build.ops.append(ir.Atomic("add", ir.Access("y", (ir.AtTile(at),)), x))
    first = np.array([3.0, np.inf, 5.0], np.float32)
    small = np.array([1e-4, 1e-4], np.float32)
    arrays = {"x": small, "i": np.array([0, 1], np.int32), "y": first}
    machine = Interpreter(bench.program(), {}, arrays, bounds=True)
    machine.run()
    expected = machine.expected("y")
    rounded = float(np.float32(3) + np.float32(1e-4))
    assert 0 < abs(rounded - expected.value[0]) <= expected.bound[0] < 1e-6
    assert expected.value[1] == np.inf and expected.bound[1] < 1
    assert (expected.value[2], expected.bound[2]) == (5.0, 0.0)


def test_a_cast_after_a_cast_does_not_lose_the_first() -> None:
    bench = Bench()
    x = bench.input("x", F32, 2)
    half = bench.build.add(ir.Cast(x, outs=(bench.build.value(BF16, 2),)))
    wide = bench.build.add(ir.Cast(half, outs=(bench.build.value(F32, 2),)))
    bits = bench.build.add(ir.Bitcast(wide, outs=(bench.build.value(I32, 2),)))
    bench.output("y", wide)
    bench.output("bits", bits)
    found = bounded(bench, {"x": np.array([1.0, 1.003], np.float32)})
    assert found["y"].bound[0] == 0 and found["y"].bound[1] > 1e-4
    assert found["bits"].bound.tolist() == [0, np.inf]


# ---- what is computed in fewer passes


@pytest.mark.parametrize("dtype", [F32, BF16, F16])
@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("scale", [1.0, 1e-30, 1e-42, 1e38, 3e4])
def test_the_usual_way_to_settle_gives_the_same_bits(
    monkeypatch: pytest.MonkeyPatch, dtype: DType, strict: bool, scale: float
) -> None:
    generator = np.random.default_rng(3)
    arithmetic = BoundedArithmetic(strict)
    usual = 0
    for odd in ((), (0.0,), (np.inf,), (np.nan,), (-np.inf, 0.0)):
        value = generator.standard_normal((7, 9)) * scale
        value[: len(odd), 3] = odd
        for error in (np.abs(value) * 2.0**-20, np.full(value.shape, scale * 1e-3)):
            with np.errstate(all="ignore"):
                usual += arithmetic.usual(value, error, dtype) is not None
                found = arithmetic.settle(value, error, dtype)
                with monkeypatch.context() as patch:
                    patch.setattr(BoundedArithmetic, "usual", lambda *given: None)
                    expected = arithmetic.settle(value, error, dtype)
            np.testing.assert_array_equal(found.data, expected.data)
            assert (found.error is None) == (expected.error is None)
            if found.error is not None and expected.error is not None:
                np.testing.assert_array_equal(found.error, expected.error)
    assert usual > 0 or scale != 1.0


def test_sums_of_integers_that_a_rounding_may_change() -> None:
    types = (DTYPES["i8"], DTYPES["i8"], I32)
    a, b = np.array([[2, -3], [4, 5]], np.int8), np.array([[7, 1], [-2, 6]], np.int8)
    sure = Tile(b, (None, None))
    unsure = Tile(a, (None, None), np.array([[1.0, 0.0], [0.0, 0.0]]))
    assert FAST.dot(Tile(a, (None, None)), sure, types, None, "").error is None
    left = FAST.dot(unsure, sure, types, None, "")
    assert left.data.tolist() == (a.astype(int) @ b).tolist()
    assert bound(left).tolist() == [[7, 1], [0, 0]]
    assert bound(FAST.dot(sure, unsure, types, left, "")).tolist() == [[14, 1], [2, 0]]


def test_the_usual_way_is_that_of_a_product(monkeypatch: pytest.MonkeyPatch) -> None:
    generator = np.random.default_rng(4)
    arithmetic = BoundedArithmetic()
    left, right = (Tile(generator.standard_normal((16, 16)), (None, None)) for _ in range(2))
    sums = Tile(np.ones((16, 16)), (None, None), np.full((16, 16), 1e-6))
    found = arithmetic.dot(left, right, (BF16, BF16, F32), sums, "")
    with monkeypatch.context() as patch:
        patch.setattr(BoundedArithmetic, "usual", lambda *given: None)
        expected = arithmetic.dot(left, right, (BF16, BF16, F32), sums, "")
    np.testing.assert_array_equal(found.data, expected.data)
    assert found.error is not None and expected.error is not None
    np.testing.assert_array_equal(found.error, expected.error)


def test_bf16_is_widened_exactly() -> None:
    words = np.arange(1 << 16, dtype=np.uint16).view(ml_dtypes.bfloat16)
    np.testing.assert_array_equal(to_double(words, BF16), words.astype(np.float64))
    rows = words.reshape(256, 256)[:, 3:17]
    np.testing.assert_array_equal(to_double(rows, BF16), rows.astype(np.float64))


def test_products_are_the_same_with_one_thread() -> None:
    left, right = np.arange(512.0 * 64).reshape(512, 64), np.ones((64, 512))
    with one_thread(), one_thread():
        alone = left @ right
    np.testing.assert_array_equal(alone, left @ right)


@pytest.mark.parametrize("dtype", [BF16, F16])
def test_a_conversion_at_any_scale_is_off_by_half_an_ulp_of_its_size(dtype: DType) -> None:
    unit = dtype.epsilon / 2
    given = tile([1.0, -3.0, 0.0, 2.0**-20, np.inf, np.nan], [0, 0.25, 0, 0, 0, 0])
    rounded = FAST.cast(given, F32, dtype)
    found = bound(at_any_scale(given, rounded, dtype))
    # 1, and a power of two that a type has no denormal for, are exact at the program's own scale
    assert bound(rounded)[0] == 0 and found[0] == unit
    assert found[1] == pytest.approx(0.25 + 3.25 * unit, rel=1e-9) and found[2] == 0
    assert found[3] == max(2.0**-20 * unit, bound(rounded)[3])
    assert (found[4:] == 0).all()
    # what any scale between 2^-8 and 2^8 gives is within it
    x = np.random.default_rng(1).uniform(0.5, 1, 4000)
    for factor in (1.0, 1.37, 2.0**-8, 255.9):
        scaled = FAST.cast(tile(x * factor), F32, dtype)
        other = np.abs(scaled.data + bound(scaled)) / factor
        exact = tile(x)
        wide = bound(at_any_scale(exact, FAST.cast(exact, F32, dtype), dtype))
        assert (np.abs(other - x) <= wide * (1 + 1e-12)).all()


@pytest.mark.parametrize(("stored", "narrow"), [("o", True), ("o + l[:, None]", False)])
def test_what_nobody_reads_asks_for_no_accuracy(stored: str, narrow: bool, tmp_path: Path) -> None:
    """A sigmoid that is multiplied with 16 bits and summed: only a sum that is stored needs more."""
    path = tmp_path / "p.tile"
    path.write_text(
        "kernel p[D = 16, B = 16](x: bf16[S, D]) -> y: f32[S, D]:\n"
        "    for i in parallel(S by B):\n"
        "        l = zeros(f32, i)\n"
        "        o = zeros(f32, i, D)\n"
        "        for j in range(S by B):\n"
        "            p = sigmoid(x[i, :] @ x[j, :].T)\n"
        "            l += sum(p, axis=1)\n"
        "            o += p.to(bf16) @ x[j, :]\n"
        f"        y[i, :] = {stored}\n",
        encoding="utf-8",
    )
    program = compile_file(str(path), stop="tile-ir").kernels[0].program
    found = narrow_values(program)
    sigmoids = [
        op.out.id for op in walk(program) if isinstance(op, ir.Elementwise) and op.op == "sigmoid"
    ]
    assert sigmoids and all((number in found) is narrow for number in sigmoids)
