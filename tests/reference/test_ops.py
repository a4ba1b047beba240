"""Every op of Tile IR against NumPy written by hand."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.ir.programs import Bench, axis
from tests.reference.running import execute, partial
from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import BF16, BOOL, DTYPES, F16, F32, F64, I8, I32, U4, DType
from tilec.ir.symbolic import Sym
from tilec.reference.numbers import pack, storage_dtype, unpack

Array = np.ndarray[Any, Any]


def mapped(op: str, dtype: DType, result: DType, *arrays: Array) -> Array:
    """One element-wise op on whole tensors."""
    bench = Bench()
    loaded = [bench.input(f"x{n}", dtype, *a.shape) for n, a in enumerate(arrays)]
    shape = arrays[0].shape
    out = bench.build.value(result, *shape)
    bench.output("y", bench.build.add(ir.Elementwise(op, tuple(loaded), outs=(out,))))
    return execute(bench, {f"x{n}": a for n, a in enumerate(arrays)})["y"]


X = np.array([-2.5, -1.0, -0.5, -0.0, 0.0, 0.5, 1.5, 2.5, 3.0, np.inf, -np.inf, np.nan], np.float32)
Y = np.array([1.0, -2.0, 0.25, 1.0, -3.0, 0.5, np.nan, 2.0, 1e-3, 2.0, 1.0, 0.0], np.float32)
UNARY: dict[str, Callable[[Array], Array]] = {
    "neg": np.negative,
    "abs": np.abs,
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": lambda x: np.array([math.erf(v) for v in x]),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.round,
}
BINARY: dict[str, Callable[[Array, Array], Array]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "pow": np.power,
    "min": np.minimum,
    "max": np.maximum,
}
COMPARISONS: dict[str, Callable[[Array, Array], Array]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}


@pytest.mark.parametrize("op", UNARY)
def test_functions_of_f32(op: str) -> None:
    with np.errstate(all="ignore"):
        wanted = UNARY[op](X.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(mapped(op, F32, F32, X), wanted)


@pytest.mark.parametrize("op", BINARY)
def test_arithmetic_of_f32(op: str) -> None:
    with np.errstate(all="ignore"):
        wanted = BINARY[op](X, Y)
    np.testing.assert_allclose(mapped(op, F32, F32, X, Y), wanted, rtol=1e-6)


@pytest.mark.parametrize("op", COMPARISONS)
def test_comparisons(op: str) -> None:
    np.testing.assert_array_equal(mapped(op, F32, BOOL, X, Y), COMPARISONS[op](X, Y))


@pytest.mark.parametrize("dtype", [F16, BF16])
def test_narrow_floats_round_after_each_operation(dtype: DType) -> None:
    kind = storage_dtype(dtype)
    a = np.linspace(-3, 3, 101, dtype=np.float32).astype(kind)
    b = np.linspace(1, 7, 101, dtype=np.float32).astype(kind)
    for op in ("add", "mul", "div"):
        exact = BINARY[op](a.astype(np.float64), b.astype(np.float64))
        np.testing.assert_array_equal(mapped(op, dtype, dtype, a, b), exact.astype(kind))


def test_integers_wrap_and_floor() -> None:
    a = np.array([127, -128, 100, -7, 7, -7, 5], np.int8)
    b = np.array([1, 1, 100, 2, -2, -2, 0], np.int8)
    assert mapped("add", I8, I8, a, b).tolist() == [-128, -127, -56, -5, 5, -9, 5]
    assert mapped("mul", I8, I8, a, b).tolist() == [127, -128, 16, -14, -14, 14, 0]
    assert mapped("floordiv", I8, I8, a, b).tolist()[:6] == [127, -128, 1, -4, -4, 3]
    assert mapped("mod", I8, I8, a, b).tolist()[:6] == [0, 0, 0, 1, -1, -1]
    assert mapped("neg", I8, I8, a).tolist()[1] == -128
    assert mapped("and", I8, I8, a, b).tolist() == (a & b).tolist()
    assert mapped("xor", I8, I8, a, b).tolist() == (a ^ b).tolist()
    assert mapped("not", I8, I8, a).tolist() == (~a).tolist()
    shift = np.array([1, 2, 3, 1, 1, 0, 4], np.int8)
    assert mapped("shl", I8, I8, a, shift).tolist() == (a << shift).tolist()
    assert mapped("shr", I8, I8, a, shift).tolist() == (a >> shift).tolist()
    powers = mapped(
        "pow", I8, I8, np.array([2, -1, 3, 2], np.int8), np.array([7, -3, 2, -1], np.int8)
    )
    assert powers.tolist() == [-128, -1, 9, 0]


def test_bools_are_logical() -> None:
    a, b = np.array([True, True, False, False]), np.array([True, False, True, False])
    assert mapped("and", BOOL, BOOL, a, b).tolist() == [True, False, False, False]
    assert mapped("or", BOOL, BOOL, a, b).tolist() == [True, True, True, False]
    assert mapped("xor", BOOL, BOOL, a, b).tolist() == [False, True, True, False]
    assert mapped("not", BOOL, BOOL, a).tolist() == [False, False, True, True]


def test_four_bit_types_are_packed_low_nibble_first() -> None:
    assert unpack(np.array([0x21, 0xF3], np.uint8), (4,), U4).tolist() == [1, 2, 3, 15]
    assert unpack(np.array([0x8F], np.uint8), (2,), DTYPES["i4"]).tolist() == [-1, -8]
    values = np.arange(16, dtype=np.uint8).reshape(2, 8)
    packed = pack(values).reshape(2, 4)
    bench = Bench()
    x = bench.input("x", U4, 2, 8)
    bench.output(
        "y", bench.build.add(ir.Elementwise("add", (x, x), outs=(bench.build.value(U4, 2, 8),)))
    )
    result = execute(bench, {"x": packed})["y"]
    assert result.shape == (2, 4)
    assert (unpack(result, (2, 8), U4) == (values * 2) % 16).all()


def test_where_and_fma() -> None:
    bench = Bench()
    x, y = bench.input("x", F32, 12), bench.input("y", F32, 12)
    flag = bench.build.add(ir.Elementwise("lt", (x, y), outs=(bench.build.value(BOOL, 12),)))
    where = ir.Elementwise("where", (flag, x, y), outs=(bench.build.value(F32, 12),))
    bench.output("least", bench.build.add(where))
    fma = ir.Elementwise("fma", (x, y, x), outs=(bench.build.value(F32, 12),))
    bench.output("fma", bench.build.add(fma))
    found = execute(bench, {"x": X, "y": Y})
    np.testing.assert_array_equal(found["least"], np.where(X < Y, X, Y))
    with np.errstate(all="ignore"):
        wanted = (X.astype(np.float64) * Y + X).astype(np.float32)
    np.testing.assert_array_equal(found["fma"], wanted)


def cast(x: Array, source: DType, target: DType) -> Array:
    """`.to(target)` of a whole tensor."""
    bench = Bench()
    value = bench.input("x", source, *x.shape)
    bench.output("y", bench.build.add(ir.Cast(value, outs=(bench.build.value(target, *x.shape),))))
    return execute(bench, {"x": x})["y"]


def test_float_to_integer_truncates_and_saturates() -> None:
    x = np.array([2.9, -2.9, np.nan, np.inf, -np.inf, 300.0, -300.0, 1e30], np.float32)
    assert cast(x, F32, I8).tolist() == [2, -2, 0, 127, -128, 127, -128, 127]
    assert cast(x, F32, DTYPES["u8"]).tolist() == [2, 0, 0, 255, 0, 255, 0, 255]
    assert cast(x, F32, DTYPES["i64"]).tolist()[3:] == [2**63 - 1, -(2**63), 300, -300, 2**63 - 1]
    assert cast(x, F32, DTYPES["u64"]).tolist()[3:] == [2**64 - 1, 0, 300, 0, 2**64 - 1]
    assert cast(x, F32, BOOL).tolist() == [True] * 8


def test_narrow_floats_round_to_even_and_f8_saturates() -> None:
    x = np.array([1.0, 448.0, 449.0, 1e9, -np.inf, np.nan, 0.0019], np.float32)
    f8 = cast(x, F32, DTYPES["f8e4m3"]).astype(np.float32)
    np.testing.assert_array_equal(f8, [1, 448, 448, 448, -448, np.nan, 2.0**-9])
    f8 = cast(x, F32, DTYPES["f8e5m2"]).astype(np.float32)
    assert f8[3] == 57344 and f8[4] == -57344 and np.isnan(f8[5])
    half = np.array([1 + 2.0**-8, 1 + 3 * 2.0**-8], np.float32)
    assert cast(half, F32, BF16).astype(np.float32).tolist() == [1.0, 1 + 2.0**-6]
    assert np.isinf(cast(np.array([1e5], np.float32), F32, F16).astype(np.float32)[0])


def test_integers_wrap_when_converted() -> None:
    x = np.array([300, -1, 128], np.int32)
    assert cast(x, I32, I8).tolist() == [44, -1, -128]
    assert cast(x, I32, DTYPES["u8"]).tolist() == [44, 255, 128]
    assert cast(x, I32, F32).tolist() == [300.0, -1.0, 128.0]
    assert cast(np.array([True, False]), BOOL, F32).tolist() == [1.0, 0.0]


def test_bitcast_keeps_bits() -> None:
    bench = Bench()
    x = bench.input("x", F32, 3)
    bench.output("y", bench.build.add(ir.Bitcast(x, outs=(bench.build.value(I32, 3),))))
    h = bench.input("h", BF16, 3)
    bench.output("z", bench.build.add(ir.Bitcast(h, outs=(bench.build.value(DTYPES["u16"], 3),))))
    data = np.array([1.0, -0.0, np.inf], np.float32)
    half = data.astype(ml_dtypes.bfloat16)
    found = execute(bench, {"x": data, "h": half})
    np.testing.assert_array_equal(found["y"], data.view(np.int32))
    np.testing.assert_array_equal(found["z"], half.view(np.uint16))


# ---- presence


def test_reductions_skip_absent_coordinates_and_keep_other_axes() -> None:
    for op, function in (("sum", np.sum), ("max", np.max), ("min", np.min), ("prod", np.prod)):
        bench, x, data = partial()
        rows = bench.build.value(F32, axis(4, ir.Below(Sym.of(3))))
        one = bench.build.add(ir.Reduce(op, x, (1,), outs=(rows,)))
        bench.output("rows", one)
        both = ir.Reduce(op, x, (0, 1), outs=(bench.build.value(F32),))
        bench.output("whole", bench.build.add(both))
        found = execute(bench, {"x": data})
        # the absent row is not stored: what was there stays
        np.testing.assert_allclose(found["rows"], [*function(data, axis=1), 1.0])
        np.testing.assert_allclose(found["whole"], function(data), rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "identity"), [("sum", 0), ("prod", 1), ("max", -np.inf), ("min", np.inf)]
)
def test_nothing_present_gives_the_identity(op: str, identity: float) -> None:
    bench = Bench()
    x = bench.spanned("x", F32, (0,), (4,))
    bench.output("y", bench.build.add(ir.Reduce(op, x, (0,), outs=(bench.build.value(F32),))))
    assert execute(bench, {"x": np.zeros(0, np.float32)})["y"] == identity


def test_extremes_of_integers_and_their_identity() -> None:
    bench = Bench()
    x = bench.spanned("x", I8, (0,), (4,))
    for op in ("max", "min"):
        bench.output(op, bench.build.add(ir.Reduce(op, x, (0,), outs=(bench.build.value(I8),))))
    found = execute(bench, {"x": np.zeros(0, np.int8)})
    assert found["max"] == -128 and found["min"] == 127


def test_maxima_propagate_nan() -> None:
    bench = Bench()
    x = bench.input("x", F32, 3)
    bench.output("y", bench.build.add(ir.Reduce("max", x, (0,), outs=(bench.build.value(F32),))))
    assert np.isnan(execute(bench, {"x": np.array([1, np.nan, 2], np.float32)})["y"])


def test_sums_of_narrow_floats_accumulate_in_f32() -> None:
    bench = Bench()
    x = bench.input("x", BF16, 1024)
    bench.output("y", bench.build.add(ir.Reduce("sum", x, (0,), outs=(bench.build.value(BF16),))))
    data = np.full(1024, 1.0, ml_dtypes.bfloat16)
    assert execute(bench, {"x": data})["y"] == 1024.0


def test_argmax_takes_the_first_present() -> None:
    bench, x, data = partial()
    data[:] = 1.0
    data[1, 3] = data[1, 4] = 7.0
    data *= -1
    rows = axis(4, ir.Below(Sym.of(3)))
    for op in ("argmax", "argmin"):
        bench.output(
            op, bench.build.add(ir.Reduce(op, x, (1,), outs=(bench.build.value(I32, rows),)))
        )
    found = execute(bench, {"x": data})
    assert found["argmax"].tolist() == [0, 0, 0, 1]
    assert found["argmin"].tolist() == [0, 3, 0, 1]


def test_any_and_all() -> None:
    bench = Bench()
    x = bench.spanned("x", BOOL, (3,), (4,))
    for op in ("any", "all"):
        bench.output(op, bench.build.add(ir.Reduce(op, x, (0,), outs=(bench.build.value(BOOL),))))
    found = execute(bench, {"x": np.array([True, True, True])})
    assert found["any"] and found["all"]


def test_scans_skip_absent_coordinates() -> None:
    bench, x, data = partial()
    out = ir.TileType(F32, x.type.axes)
    for op in ("sum", "max"):
        bench.build.count += 1
        value = ir.Value(bench.build.count, out)
        bench.output(op, bench.build.add(ir.Scan(op, x, 1, outs=(value,))))
    found = execute(bench, {"x": data})
    np.testing.assert_array_equal(found["sum"][:3, :5], np.cumsum(data, 1))
    np.testing.assert_array_equal(found["max"][:3, :5], np.maximum.accumulate(data, 1))
    assert (found["sum"][3:] == 1).all() and (found["sum"][:, 5:] == 1).all()


def test_topk_orders_and_never_takes_the_absent() -> None:
    bench = Bench()
    x = bench.spanned("x", F32, (5,), (8,))
    outs = (bench.build.value(F32, 3), bench.build.value(I32, 3))
    bench.build.ops.append(ir.TopK(x, 0, 3, outs=outs))
    bench.output("values", outs[0])
    bench.output("indices", outs[1])
    found = execute(bench, {"x": np.array([-4, -1, -2, -1, -9], np.float32)})
    assert found["values"].tolist() == [-1, -1, -2]
    assert found["indices"].tolist() == [1, 3, 2]


def test_fill_makes_everything_present() -> None:
    bench, x, data = partial()
    seven = bench.build.add(ir.Constant(7.0, outs=(bench.build.value(F32),)))
    bench.output("y", bench.build.add(ir.Fill(x, seven, outs=(bench.build.value(F32, 4, 8),))))
    wanted = np.full((4, 8), 7.0, np.float32)
    wanted[:3, :5] = data
    np.testing.assert_array_equal(execute(bench, {"x": data})["y"], wanted)


def test_presences_of_operands_intersect() -> None:
    bench = Bench()
    a = bench.spanned("a", F32, (3,), (8,))
    b = bench.spanned("b", F32, (5,), (8,))
    out = bench.build.value(F32, axis(8, ir.Below(Sym.of(3)), ir.Below(Sym.of(5))))
    bench.output("y", bench.build.add(ir.Elementwise("add", (a, b), outs=(out,))))
    found = execute(bench, {"a": np.full(3, 2.0, np.float32), "b": np.full(5, 3.0, np.float32)})
    assert found["y"].tolist() == [5, 5, 5, 1, 1, 1, 1, 1]


def test_products_skip_what_is_absent_in_either_operand() -> None:
    bench = Bench()
    a = bench.spanned("a", BF16, (3, 5), (4, 8))
    b = bench.spanned("b", BF16, (4, 2), (8, 2))
    out = bench.build.value(F32, axis(4, ir.Below(Sym.of(3))), 2)
    bench.output("y", bench.build.add(ir.Dot(a, b, outs=(out,))))
    generator = np.random.default_rng(0)
    left = generator.integers(-4, 5, (3, 5)).astype(ml_dtypes.bfloat16)
    left[:, 4] = np.nan  # absent in b
    right = generator.integers(-4, 5, (4, 2)).astype(ml_dtypes.bfloat16)
    found = execute(bench, {"a": left, "b": right})["y"]
    wanted = left[:, :4].astype(np.float32) @ right.astype(np.float32)
    np.testing.assert_array_equal(found[:3], wanted)
    assert (found[3] == 1).all()


def test_products_of_integers_tf32_and_batches() -> None:
    bench = Bench()
    a, b = bench.input("a", I8, 2, 3, 4), bench.input("b", I8, 2, 4, 5)
    start = bench.build.add(ir.Constant(10, outs=(bench.build.value(I32),)))
    whole = bench.build.add(ir.Full(start, outs=(bench.build.value(I32, 2, 3, 5),)))
    bench.output("y", bench.build.add(ir.Dot(a, b, whole, outs=(bench.build.value(I32, 2, 3, 5),))))
    c = bench.input("c", F32, 1, 1)
    bench.output(
        "z", bench.build.add(ir.Dot(c, c, None, "tf32", outs=(bench.build.value(F32, 1, 1),)))
    )
    generator = np.random.default_rng(1)
    left = generator.integers(-128, 128, (2, 3, 4)).astype(np.int8)
    right = generator.integers(-128, 128, (2, 4, 5)).astype(np.int8)
    one = np.array([[1 + 2.0**-11 + 2.0**-13]], np.float32)
    found = execute(bench, {"a": left, "b": right, "c": one})
    assert (found["y"] == left.astype(np.int32) @ right.astype(np.int32) + 10).all()
    assert found["z"][0, 0] == np.float32((1 + 2.0**-10) ** 2)


def test_f64_stays_f64() -> None:
    x = np.array([0.1, 0.2])
    assert mapped("add", F64, F64, x, x).tolist() == [0.2, 0.4]
