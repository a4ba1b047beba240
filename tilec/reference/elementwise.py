"""One function per element, on arrays in compute form, without rounding to a narrower type."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np

from tilec.ir.dtypes import DType
from tilec.ir.tile_ir import ElementwiseName
from tilec.reference.numbers import Array, compute_dtype, round_to, wrap

_erf = np.frompyfunc(math.erf, 1, 1)


def erf(x: Array) -> Array:
    """The error function in float64."""
    return np.asarray(_erf(x), np.float64)


def sigmoid(x: Array) -> Array:
    """1 / (1 + exp(-x)) without overflow on the way."""
    small = np.exp(-np.abs(x))
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


FUNCTIONS: dict[str, Callable[..., Any]] = {
    "exp": np.exp,
    "exp2": np.exp2,
    "log": np.log,
    "log2": np.log2,
    "sqrt": np.sqrt,
    "rsqrt": lambda x: 1.0 / np.sqrt(x),
    "sin": np.sin,
    "cos": np.cos,
    "tanh": np.tanh,
    "erf": erf,
    "sigmoid": sigmoid,
}
"""Functions of one float, evaluated in float64 and rounded after."""

_COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": np.equal,
    "ne": np.not_equal,
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
}

_BINARY: dict[str, Callable[..., Any]] = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "floordiv": np.floor_divide,
    "mod": np.mod,
    "min": np.minimum,
    "max": np.maximum,
    **_COMPARISONS,
}

_UNARY: dict[str, Callable[..., Any]] = {
    "neg": np.negative,
    "abs": np.abs,
    "floor": np.floor,
    "ceil": np.ceil,
    "round": np.rint,
}

_BITS: dict[str, Callable[..., Any]] = {
    "and": np.bitwise_and,
    "or": np.bitwise_or,
    "xor": np.bitwise_xor,
    "not": np.invert,
    "shl": np.left_shift,
    "shr": np.right_shift,
}


def evaluate(op: ElementwiseName, args: list[Array]) -> Array:
    """The function on arrays of one compute type; `x // 0` of integers gives 0."""
    if op in FUNCTIONS:
        return np.asarray(FUNCTIONS[op](args[0].astype(np.float64, copy=False)))
    if op in _UNARY:
        return np.asarray(_UNARY[op](*args))
    if op in _BITS:
        return np.asarray(_BITS[op](*args))
    if op in _BINARY:
        return np.asarray(_boolean(op, args) if args[0].dtype == np.bool_ else _BINARY[op](*args))
    match op:
        case "where":
            return np.where(*args)
        case "sub_if":
            x, y, condition = args
            return np.where(condition, x - y, x)
        case "fma":
            if args[0].dtype.kind == "f":
                a, b, c = (x.astype(np.float64, copy=False) for x in args)
                return np.asarray(a * b + c)
            return np.asarray(args[0] * args[1] + args[2])
        case "pow":
            return _power(*args)
        case _:
            raise KeyError(op)


def _boolean(op: str, args: list[Array]) -> Any:
    """Arithmetic of bool as NumPy has it: + is or, * and min is and."""
    match op:
        case "sub":
            return np.logical_xor(*args)
        case "min":
            return np.logical_and(*args)
        case "max":
            return np.logical_or(*args)
        case _:
            return _BINARY[op](*args)


def _power(base: Array, exponent: Array) -> Array:
    """Floats in float64; integers wrap, a negative exponent leaves 0 unless the base is 1 or -1."""
    if base.dtype.kind == "f":
        return np.asarray(np.power(base.astype(np.float64), exponent.astype(np.float64)))
    negative = exponent < 0
    raised = np.power(base, np.where(negative, 0, exponent).astype(exponent.dtype))
    odd = (exponent & 1).astype(np.bool_)
    unit = np.where(base == 1, 1, np.where((base.astype(np.int64) == -1), np.where(odd, -1, 1), 0))
    return np.where(negative, unit.astype(base.dtype), raised)


def finish(data: Array, dtype: DType) -> Array:
    """Round or wrap a result to the type of its tile."""
    if dtype.is_float:
        return round_to(data, dtype)
    if dtype.is_integer:
        return wrap(data, dtype)
    return data.astype(np.bool_, copy=False)


def convert(data: Array, source: DType, target: DType) -> Array:
    """`.to(target)`: float to integer truncates and saturates with NaN to 0, integers wrap, f8 saturates."""
    if target.is_float:
        return round_to(data, target)
    if target.kind == "bool":
        return np.asarray(data != 0)
    if source.is_float:
        whole = np.trunc(
            np.nan_to_num(data.astype(np.float64), nan=0.0, posinf=np.inf, neginf=-np.inf)
        )
        low, high = target.minimum, target.maximum
        inside = np.clip(whole, float(low), float(high))
        at_top = inside >= float(high)
        safe = np.where(at_top, 0.0, inside).astype(
            np.uint64 if target.kind == "uint" else np.int64
        )
        return np.where(at_top, np.asarray(high, safe.dtype), safe).astype(compute_dtype(target))
    return wrap(data, target)


def identity(op: str, dtype: DType) -> Any:
    """Neutral element of a reduction in compute form."""
    match op:
        case "sum" | "any":
            return 0
        case "prod" | "all":
            return 1
        case "max" | "argmax":
            return -np.inf if dtype.is_float else dtype.minimum if dtype.is_integer else 0
        case "min" | "argmin":
            return np.inf if dtype.is_float else dtype.maximum if dtype.is_integer else 1
        case _:
            raise KeyError(op)
