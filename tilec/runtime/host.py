"""Host expressions in Python: what the launcher computes in C, with the same results."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TypeAlias

from tilec.ir.launch import WORKSPACE, Aligned, AllOf, Always, AnyOf, Given, LaunchCondition
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import HostExpr, HostNumber, HostOp, HostScalar
from tilec.source.exhaustive import assert_never

HostValue: TypeAlias = "int | float | bool"
Environment: TypeAlias = Mapping[str, HostValue]
"""Values of dims, stride names, scalar parameters and tile sizes by name; a kernel's names are all different."""


def evaluate_sym(sym: Sym, env: Environment) -> int:
    """The number of a symbolic integer. Raises KeyError for a name without a value."""

    def value_of(variable: Var) -> int:
        return int(env[variable.name])

    return sym.evaluate(value_of)


def evaluate(expr: HostExpr, env: Environment) -> HostValue:
    """The value of a host expression. Raises KeyError for a name without a value.

    `and`, `or`, comparisons and `not` give a bool; `/` is a division of doubles, `//` and `%` floor; an integer
    division by zero gives 0, as `Sym.evaluate` does.
    """
    match expr:
        case Sym():
            return evaluate_sym(expr, env)
        case HostNumber():
            return expr.value
        case HostScalar():
            return env[expr.name]
        case HostOp():
            return _operate(expr, env)
    assert_never(expr)


def _operate(expr: HostOp, env: Environment) -> HostValue:
    if expr.op == "and":
        return all(bool(evaluate(a, env)) for a in expr.args)
    if expr.op == "or":
        return any(bool(evaluate(a, env)) for a in expr.args)
    values = [evaluate(a, env) for a in expr.args]
    if expr.op == "not":
        return not values[0]
    if expr.op == "-" and len(values) == 1:
        return -values[0]
    if expr.op in ("min", "max"):
        return _extreme(values, least=expr.op == "min")
    result = values[0]
    for value in values[1:]:
        result = _BINARY[expr.op](result, value)
    return result


def _extreme(values: list[HostValue], *, least: bool) -> HostValue:
    for value in values:
        if value != value:  # NaN propagates
            return value
    return min(values) if least else max(values)


def _divide(a: HostValue, b: HostValue) -> HostValue:
    if b:
        return a / b
    if a == 0 or a != a:
        return math.nan
    return math.copysign(math.inf, float(a)) * math.copysign(1.0, float(b))


def _floor_divide(a: HostValue, b: HostValue) -> HostValue:
    if b:
        return a // b
    return math.nan if isinstance(a, float) or isinstance(b, float) else 0


def _modulo(a: HostValue, b: HostValue) -> HostValue:
    if b:
        return a % b
    return math.nan if isinstance(a, float) or isinstance(b, float) else 0


_BINARY: Mapping[str, Callable[[HostValue, HostValue], HostValue]] = {
    "+": lambda a, b: a + b,
    "-": lambda a, b: a - b,
    "*": lambda a, b: a * b,
    "/": _divide,
    "//": _floor_divide,
    "%": _modulo,
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


def holds(condition: LaunchCondition, env: Environment, addresses: Mapping[str, int]) -> bool:
    """Whether a launch condition is true; `addresses` are those of the tensors by name, temps and the workspace included."""
    match condition:
        case Always():
            return True
        case Aligned():
            return addresses[condition.tensor] % condition.bytes == 0
        case AllOf():
            return all(holds(part, env, addresses) for part in condition.parts)
        case AnyOf():
            return any(holds(part, env, addresses) for part in condition.parts)
        case Given():
            return addresses.get(WORKSPACE, 0) != 0
        case _:
            return bool(evaluate(condition, env))
