"""Clauses of a kernel that the runtime reads from the syntax: `example`, `flops`, `bytes`."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal, TypeAlias

from tilec.plan.constants import ConstantFault, fold_binary
from tilec.source.diagnostics import fail
from tilec.syntax import ast

ClauseValue: TypeAlias = "int | float | bool"
Device: TypeAlias = 'Literal["", "cpu"]'


def find_kernel(module: ast.Module, name: str) -> ast.Kernel | None:
    """The kernel of that name in a file."""
    return next((i for i in module.items if isinstance(i, ast.Kernel) and i.name == name), None)


def constants(module: ast.Module) -> dict[str, ClauseValue]:
    """The `const` declarations of a file that are numbers."""
    known: dict[str, ClauseValue] = {}
    for item in module.items:
        if isinstance(item, ast.Const):
            try:
                known[item.name] = number(item.value, known)
            except KeyError:
                continue
    return known


def examples(
    kernel: ast.Kernel, device: Device, known: Mapping[str, ClauseValue]
) -> list[dict[str, ClauseValue]]:
    """The size sets of the `example` clauses for a device, in order. Raises TileError (E0712)."""
    found = []
    for clause in kernel.clauses:
        if isinstance(clause, ast.Example) and clause.device == device:
            found.append({s.name.id: _setting(s, known) for s in clause.settings})
    return found


def _setting(setting: ast.Setting, known: Mapping[str, ClauseValue]) -> ClauseValue:
    try:
        return number(setting.value, known)
    except KeyError:
        raise fail(
            "E0712",
            f"the value of `{setting.name.id}` is no constant",
            setting.value.span,
            help="write a number, or a `const` of this file",
        ) from None


def count(
    kernel: ast.Kernel, kind: Literal["flops", "bytes"], known: Mapping[str, ClauseValue]
) -> float | None:
    """The value of the `flops` or `bytes` clause under the sizes in `known`; None where there is none."""
    for clause in kernel.clauses:
        if isinstance(clause, ast.Count) and clause.kind == kind:
            try:
                return float(number(clause.value, known))
            except KeyError:
                raise fail(
                    "E0712",
                    f"`{kind}` speaks of something that has no value here",
                    clause.value.span,
                    help="use dimensions, scalars, bracket parameters and constants",
                ) from None
    return None


def number(expr: ast.Expr, known: Mapping[str, ClauseValue]) -> ClauseValue:
    """The value of a constant expression. Raises KeyError for a name without a value or another kind of expression."""
    match expr:
        case ast.Number() | ast.Boolean():
            return expr.value
        case ast.Name():
            return (
                {"inf": math.inf, "nan": math.nan}[expr.id]
                if expr.id in ("inf", "nan")
                else known[expr.id]
            )
        case ast.Unary():
            value = number(expr.operand, known)
            if expr.op == "not":
                return not value
            return -value if expr.op == "-" else +value
        case ast.Binary(op="and"):
            return bool(number(expr.left, known)) and bool(number(expr.right, known))
        case ast.Binary(op="or"):
            return bool(number(expr.left, known)) or bool(number(expr.right, known))
        case ast.Binary() | ast.Compare():
            return _fold(expr.op, number(expr.left, known), number(expr.right, known))
        case ast.Conditional():
            chosen = expr.then if number(expr.condition, known) else expr.otherwise
            return number(chosen, known)
        case ast.Call(function=ast.Name(id="min" | "max" | "ceildiv" as name)):
            values = [number(a, known) for a in expr.arguments]
            if name == "ceildiv" and len(values) == 2:
                return -_fold("//", -values[0], values[1])
            return min(values) if name == "min" else max(values)
        case _:
            raise KeyError(type(expr).__name__)


def _fold(op: str, left: ClauseValue, right: ClauseValue) -> ClauseValue:
    try:
        return fold_binary(op, left, right)
    except ConstantFault as fault:
        raise KeyError(str(fault)) from fault
