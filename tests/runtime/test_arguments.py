"""Binding of sizes and the launcher's checks."""

from __future__ import annotations

import math
import random

import ml_dtypes
import numpy as np
import pytest

from tests.runtime.plans import scaled_rows, strided
from tilec.ir.dtypes import BF16, BOOL, F8E4M3, F8E5M2, F16, F32, I8
from tilec.ir.tile_ir import ScalarInput
from tilec.runtime.arguments import (
    CallSizes,
    bind_sizes,
    check_call,
    first_overlap,
    round_float,
    scalar_value,
    tensor_bytes,
    tensor_strides,
)
from tilec.source.diagnostics import TileError


def code_of(error: pytest.ExceptionInfo[TileError]) -> str:
    (diagnostic,) = error.value.diagnostics
    return diagnostic.code


def test_settings_win_over_shapes_and_examples() -> None:
    sizes = bind_sizes(scaled_rows(), {"M": "3"}, {"M": 9, "N": 8, "scale": 2.0})
    assert sizes.dims == {"M": 3, "N": 8}
    assert sizes.scalars == {"scale": 2.0}
    assert str(sizes) == "M=3 N=8 scale=2"


def test_defaults_are_rounded_to_the_dtype() -> None:
    sizes = bind_sizes(scaled_rows(), {"M": 1, "N": 8})
    assert sizes.scalars["scale"] == float(np.float32(0.1)) != 0.1


def test_dims_follow_from_arrays_through_linear_expressions() -> None:
    sizes = bind_sizes(strided(), {}, None, {"q": (6, 10), "z": (6, 6)})
    assert sizes.dims == {"M": 6, "N": 5}
    assert sizes.strides == {"lda": 5}


def test_the_dense_stride_is_the_default_and_can_be_set() -> None:
    assert bind_sizes(strided(), {"M": 4, "N": 7}).strides == {"lda": 7}
    assert bind_sizes(strided(), {"M": 4, "N": 7, "lda": 16}).strides == {"lda": 16}


@pytest.mark.parametrize(
    ("settings", "shapes", "code"),
    [
        ({"M": 4}, {}, "E0711"),
        ({"M": 4, "N": "four"}, {}, "E0712"),
        ({"M": 4, "N": 1.5}, {}, "E0712"),
        ({"M": 4, "N": -1}, {}, "E0712"),
        ({"M": 4, "N": 1 << 31}, {}, "E0712"),
        ({"M": 4, "N": 8, "K": 1}, {}, "E0712"),
        ({"M": 4, "N": 8, "scale": "big"}, {}, "E0712"),
        ({}, {"x": (4,)}, "E0714"),
        ({"M": 5}, {"x": (4, 8)}, "E0714"),
        ({}, {"x": (4, 8), "y": (4, 16)}, "E0714"),
    ],
)
def test_wrong_sizes(settings, shapes, code) -> None:
    with pytest.raises(TileError) as error:
        bind_sizes(scaled_rows(), settings, None, shapes)
    assert code_of(error) == code
    assert error.value.exit_code == 2


def test_a_bracket_parameter_is_named_as_one() -> None:
    with pytest.raises(TileError) as error:
        bind_sizes(scaled_rows(), {"M": 1, "N": 8, "BN": 64}, statics={"BN": 128})
    assert error.value.diagnostics[0].helps == ("set it with `-D BN=…`",)


def test_contracts_are_checked_in_order() -> None:
    check_call(scaled_rows(), CallSizes({"M": 0, "N": 8}, {"scale": 1.0}))
    with pytest.raises(TileError) as error:
        check_call(scaled_rows(), CallSizes({"M": 1, "N": 9}, {"scale": -1.0}))
    assert code_of(error) == "E0713"
    assert error.value.diagnostics[0].message == "`require N % 8 == 0` does not hold for N = 9"
    with pytest.raises(TileError) as error:
        check_call(scaled_rows(), CallSizes({"M": 1, "N": 8}, {"scale": -1.0}))
    assert "scale = -1.0" in error.value.diagnostics[0].message


def test_overlaps() -> None:
    plan, sizes = scaled_rows(), CallSizes({"M": 2, "N": 8}, {"scale": 1.0})
    assert first_overlap(plan, sizes, {"x": 4096, "y": 4096 + 32}) is None
    assert first_overlap(plan, sizes, {"x": 4096, "y": 4096 - 64}) is None
    assert first_overlap(plan, sizes, {"x": 4096, "y": 4096 + 31}) == ("y", "x")
    assert first_overlap(plan, sizes, {"x": 4096, "y": 4096 - 63}) == ("y", "x")
    with pytest.raises(TileError) as error:
        check_call(plan, sizes, {"x": 4096, "y": 4096})
    assert code_of(error) == "E0715"


def test_addresses_between_elements_are_refused() -> None:
    sizes = CallSizes({"M": 2, "N": 8}, {"scale": 1.0})
    check_call(scaled_rows(), sizes, {"x": 4098, "y": 8196})
    with pytest.raises(TileError, match="the address of `y` is not a multiple of 4") as error:
        check_call(scaled_rows(), sizes, {"x": 4098, "y": 8194})
    assert code_of(error) == "E0714"


def test_arguments_without_bytes_and_two_inputs_overlap_nothing() -> None:
    plan, empty = scaled_rows(), CallSizes({"M": 0, "N": 8}, {"scale": 1.0})
    assert first_overlap(plan, empty, {"x": 4096, "y": 4096}) is None
    inputs = CallSizes({"M": 2, "N": 2}, {}, {"lda": 2})
    places = {"x": 4096, "q": 4096, "h": 4096, "z": 0}
    assert first_overlap(strided(), inputs, places) is None
    assert first_overlap(strided(), inputs, {**places, "z": 4096}) == ("z", "x")


def test_bytes_follow_strides_and_four_bit_types() -> None:
    plan = strided()
    env = CallSizes({"M": 3, "N": 5}, {}, {"lda": 8}).environment
    x, q, h, _ = plan.parameters
    assert tensor_strides(x, env) == (8, 1)
    assert tensor_bytes(x, env) == 2 * 8 + 4 + 1
    assert tensor_bytes(q, env) == 15
    assert tensor_bytes(h, env) == 1
    assert tensor_bytes(x, {**env, "N": 0}) == 0


@pytest.mark.parametrize(
    ("dtype", "numpy_dtype"),
    [
        (F16, np.float16),
        (BF16, ml_dtypes.bfloat16),
        (F8E4M3, ml_dtypes.float8_e4m3fn),
        (F8E5M2, ml_dtypes.float8_e5m2),
        (F32, np.float32),
    ],
)
def test_floats_round_as_numpy_does(dtype, numpy_dtype) -> None:
    draw = random.Random(7)
    for _ in range(500):
        value = math.ldexp(draw.uniform(-1, 1), draw.randint(-30, 8))
        assert round_float(value, dtype) == float(np.array(value).astype(numpy_dtype))


def test_f8_saturates_and_wider_floats_overflow() -> None:
    assert round_float(1e6, F8E4M3) == 448.0
    assert round_float(-1e6, F8E5M2) == -57344.0
    assert round_float(1e6, F16) == math.inf
    assert round_float(-1e39, F32) == -math.inf


def test_scalars_of_other_kinds() -> None:
    flag, small = ScalarInput("flag", BOOL), ScalarInput("small", I8)
    assert scalar_value(flag, "true") is True
    assert scalar_value(flag, False) is False
    assert scalar_value(small, "-0x80") == -128
    for scalar, value in ((flag, "yes"), (small, 128), (small, "1.5"), (small, 1.5)):
        with pytest.raises(TileError) as error:
            scalar_value(scalar, value)
        assert code_of(error) == "E0712"
