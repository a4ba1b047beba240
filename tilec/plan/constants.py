"""Arithmetic of compile-time values, shared by the plan (defaults, `tune`) and the analysis (`const`, `if`)."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable

Constant = int | float | bool
"""A compile-time number."""


class ConstantFault(Exception):
    """A compile-time operation that has no value; the text says why, in lower case."""


_ARITHMETIC: dict[str, Callable[[Constant, Constant], Constant]] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "//": operator.floordiv,
    "%": operator.mod,
}
_INTEGER: dict[str, Callable[[int, int], int]] = {
    "&": operator.and_,
    "|": operator.or_,
    "^": operator.xor,
    "<<": operator.lshift,
    ">>": operator.rshift,
}
_COMPARE: dict[str, Callable[[Constant, Constant], bool]] = {
    "==": operator.eq,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}

_BITS = 64
"""Bits of the largest compile-time integer."""


def fold_binary(op: str, left: Constant, right: Constant) -> Constant:
    """`left op right` for numbers; ConstantFault where it has no value (division by zero, `&` of floats) or an integer
    of more than 64 bits."""
    result = _fold(op, left, right)
    if isinstance(result, int) and result.bit_length() > _BITS:
        raise ConstantFault("the result is too large")
    return result


def _fold(op: str, left: Constant, right: Constant) -> Constant:
    try:
        if op in _ARITHMETIC:
            return _ARITHMETIC[op](left, right)
        if op in _INTEGER:
            if isinstance(left, float) or isinstance(right, float):
                raise ConstantFault(f"`{op}` needs integers")
            if op in ("<<", ">>") and not 0 <= right < 64:
                raise ConstantFault("a shift is by 0 to 63")
            result = _INTEGER[op](left, right)
            both = isinstance(left, bool) and isinstance(right, bool)
            return bool(result) if both and op in ("&", "|", "^") else int(result)
        if op == "**":
            if (
                isinstance(left, int)
                and isinstance(right, int)
                and abs(right) > _BITS
                and abs(left) > 1
            ):
                raise ConstantFault("the result is too large")
            power = left**right
            if isinstance(power, complex):
                raise ConstantFault("a negative number has no real power of this exponent")
            return power
        return _COMPARE[op](left, right)
    except ZeroDivisionError:
        raise ConstantFault("division by zero") from None
    except OverflowError:
        raise ConstantFault("the result is too large") from None


def is_comparison(op: str) -> bool:
    """Whether `op` is one of the six comparisons."""
    return op in _COMPARE


def _round(x: Constant) -> Constant:
    return float(round(x)) if isinstance(x, float) and math.isfinite(x) else x


_UNARY: dict[str, Callable[[Constant], Constant]] = {
    "abs": abs,
    "exp": math.exp,
    "exp2": lambda x: 2.0**x,
    "log": math.log,
    "log2": math.log2,
    "sqrt": math.sqrt,
    "rsqrt": lambda x: 1.0 / math.sqrt(x),
    "sin": math.sin,
    "cos": math.cos,
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": lambda x: 1.0 / (1.0 + math.exp(-x)),
    "floor": lambda x: float(math.floor(x)) if isinstance(x, float) and math.isfinite(x) else x,
    "ceil": lambda x: float(math.ceil(x)) if isinstance(x, float) and math.isfinite(x) else x,
    "round": _round,
}


def fold_function(name: str, x: Constant) -> Constant:
    """`name(x)` for a number, in double precision; ConstantFault outside the function's domain."""
    try:
        return _UNARY[name](x)
    except (ValueError, ZeroDivisionError):
        raise ConstantFault(f"`{name}` has no value at {x}") from None
    except OverflowError:
        return math.inf


def fold_extreme(name: str, values: list[Constant]) -> Constant:
    """`min` or `max` of numbers; a NaN among them is the result."""
    for value in values:
        if isinstance(value, float) and math.isnan(value):
            return value
    return min(values) if name == "min" else max(values)
