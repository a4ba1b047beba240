"""Host expressions in Python."""

from __future__ import annotations

import math

import pytest

from tilec.ir.launch import Aligned, AllOf, Always
from tilec.ir.symbolic import Sym, Var, ceildiv
from tilec.ir.tile_ir import HostNumber, HostOp, HostScalar
from tilec.runtime.host import evaluate, evaluate_sym, holds

K, SCALE = Sym.of(Var("K", "dim")), HostScalar("scale")
ENV = {"K": 130, "scale": 0.5, "BK": 64}


def num(value: int | float | bool) -> HostNumber:
    return HostNumber(value)


@pytest.mark.parametrize(
    ("op", "args", "expected"),
    [
        ("+", (K, num(1)), 131),
        ("-", (num(1), K), -129),
        ("-", (K,), -130),
        ("*", (K, SCALE), 65.0),
        ("/", (K, num(4)), 32.5),
        ("//", (num(-7), num(2)), -4),
        ("%", (num(-7), num(4)), 1),
        ("//", (K, num(0)), 0),
        ("%", (K, num(0)), 0),
        ("min", (K, num(7), SCALE), 0.5),
        ("max", (K, num(7)), 130),
        ("==", (HostOp("%", (K, num(8))), num(2)), True),
        ("!=", (K, num(130)), False),
        ("<", (SCALE, num(1)), True),
        (">=", (SCALE, num(1)), False),
        ("and", (num(True), HostOp(">", (SCALE, num(0.0)))), True),
        ("or", (num(False), num(False)), False),
        ("not", (num(False),), True),
    ],
)
def test_operations(op, args, expected) -> None:
    value = evaluate(HostOp(op, args), ENV)
    assert value == expected
    assert isinstance(value, bool) == isinstance(expected, bool)


def test_division_of_floats_by_zero_is_what_c_says() -> None:
    assert evaluate(HostOp("/", (num(1.0), num(0.0))), {}) == math.inf
    assert evaluate(HostOp("/", (num(-1.0), num(0.0))), {}) == -math.inf
    assert math.isnan(evaluate(HostOp("/", (num(0.0), num(0.0))), {}))


def test_nan_propagates_through_min_and_max() -> None:
    assert math.isnan(evaluate(HostOp("max", (num(1.0), num(math.nan))), {}))
    assert math.isnan(evaluate(HostOp("min", (num(math.nan), num(1.0))), {}))


def test_syms_take_dims_and_tiles_by_name() -> None:
    assert evaluate_sym(ceildiv(K, Sym.of(Var("BK", "tile"))), ENV) == 3


def test_a_name_without_a_value_is_a_key_error() -> None:
    with pytest.raises(KeyError):
        evaluate(HostOp(">", (HostScalar("missing"), num(0))), ENV)


def test_launch_conditions() -> None:
    even = HostOp("==", (HostOp("%", (K, num(2))), num(0)))
    assert holds(Always(), {}, {})
    assert holds(AllOf(()), {}, {})
    assert holds(AllOf((even, Aligned("x", 16))), ENV, {"x": 4096})
    assert not holds(AllOf((even, Aligned("x", 16))), ENV, {"x": 4104})
    assert not holds(AllOf((HostOp("not", (even,)), Aligned("x", 16))), ENV, {"x": 4096})
