"""`require`: conditions that hold now, contracts of the launcher, and what follows from both."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Literal, cast

from tilec.analysis.context import Context
from tilec.analysis.declarations import names_in
from tilec.analysis.entities import Integer, Known, Poison, ScalarRef, as_sym, describe
from tilec.analysis.operators import binary
from tilec.ir.symbolic import Apply, Sym, Var
from tilec.ir.tile_ir import Contract, HostExpr, HostNumber, HostOp, HostScalar
from tilec.plan.constants import ConstantFault, fold_binary, is_comparison
from tilec.syntax import ast

HostName = Literal[
    "+",
    "-",
    "*",
    "/",
    "//",
    "%",
    "min",
    "max",
    "==",
    "!=",
    "<",
    "<=",
    ">",
    ">=",
    "and",
    "or",
    "not",
]

_FLIPPED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


def conjuncts(expr: ast.Expr) -> Iterator[ast.Expr]:
    """The parts of a condition that all must hold."""
    if isinstance(expr, ast.Binary) and expr.op == "and":
        yield from conjuncts(expr.left)
        yield from conjuncts(expr.right)
    else:
        yield expr


def require(cx: Context, clause: ast.Require, facts: list[HostExpr]) -> list[Contract]:
    """Check what is decided now, learn what the rest says, and give the contracts that the launcher checks."""
    contracts: list[Contract] = []
    for part in conjuncts(clause.condition):
        with cx.at(part.span):
            condition = host(cx, part)
            if condition is None:
                continue
            decided = _decided(cx, condition)
            if decided is False:
                cx.error(
                    "E0219",
                    f"`{part.span.text or 'the condition'}` does not hold",
                    note=_values(cx, part),
                    help="choose other values: `-D NAME=VALUE`",
                )
                continue
            if decided is None and not _is_condition(condition):
                cx.error(
                    "E0220", "`require` needs a condition", help="compare: `require K % 8 == 0`"
                )
                continue
            learn(cx, part, condition, facts)
            empty = _without_values(cx)
            if empty is not None:
                cx.error(
                    "E0219",
                    f"no `{empty}` fulfils `{part.span.text}` and what is required before it",
                    help="a size is at least 0 and below 2^31",
                )
                cx.facts.unlearn_upper(empty)
                continue
            if decided is None:
                contracts.append(Contract(condition, part.span.text, part.span))
    return contracts


def _without_values(cx: Context) -> Var | None:
    """A size whose known bounds exclude each other."""
    for var, high in cx.facts.upper.items():
        low = cx.facts.range_of(var)[0]
        if low is not None and low > high:
            return var
    return None


def _is_condition(condition: HostExpr) -> bool:
    match condition:
        case HostOp(op):
            return is_comparison(op) or op in ("and", "or", "not")
        case HostNumber(value):
            return isinstance(value, bool)
        case HostScalar():
            return True
        case Sym():
            return False


def _values(cx: Context, part: ast.Expr) -> str:
    shown = []
    for name in dict.fromkeys(n.id for n in names_in(part)):
        if name in cx.candidate.values:
            shown.append(f"{name} = {cx.candidate.values[name]}")
    return ", ".join(shown)


def host(cx: Context, expr: ast.Expr) -> HostExpr | None:
    """A condition or number that the launcher can evaluate; None after a message."""
    with cx.at(expr.span):
        match expr:
            case ast.Binary("@"):
                pass
            case ast.Binary(op, left, right) | ast.Compare(op, left, right):
                a, b = host(cx, left), host(cx, right)
                return None if a is None or b is None else combine(cx, op, a, b)
            case ast.Unary("not", operand):
                a = host(cx, operand)
                if isinstance(a, HostNumber):
                    return HostNumber(not a.value)
                return None if a is None else HostOp("not", (a,))
            case ast.Unary("-", operand):
                a = host(cx, operand)
                if isinstance(a, HostNumber):
                    return HostNumber(-a.value)
                if isinstance(a, Sym):
                    return -a
                return None if a is None else HostOp("-", (HostNumber(0), a))
            case ast.Call(ast.Name("min" | "max" as op), arguments) if len(arguments) > 1:
                parts = [host(cx, x) for x in arguments]
                if all(isinstance(p, Sym) for p in parts):
                    pass
                elif any(p is None for p in parts):
                    return None
                else:
                    return HostOp(cast(HostName, op), tuple(p for p in parts if p is not None))
            case ast.Name(name):
                binding = cx.scope.find(name)
                if binding is not None and isinstance(binding.entity, ScalarRef):
                    return HostScalar(name)
            case _:
                pass
        with cx.block() as ops:
            entity = cx.evaluate(cx, expr)
        if isinstance(entity, Poison):
            return None
        sym = as_sym(entity)
        if not ops and sym is not None:
            return sym
        if not ops and isinstance(entity, Known):
            return HostNumber(entity.value)
        cx.error(
            "E0220",
            f"`require` speaks of sizes, scalars and bracket parameters, not of {describe(entity)}",
            help="`assert` checks values inside the kernel in debug builds",
        )
        return None


def combine(cx: Context, op: str, left: HostExpr, right: HostExpr) -> HostExpr | None:
    """`left op right` on the host, folded where it can be; None after a message."""
    if isinstance(left, Sym) and isinstance(right, Sym):
        folded = None
        if _folds(op, left, right):
            with cx.block() as ops:
                folded = binary(cx, op, _entity(left), _entity(right))
            folded = None if ops else folded
        if isinstance(folded, Poison):
            return None
        if folded is not None:
            sym = as_sym(folded)
            if sym is not None:
                return sym
            if isinstance(folded, Known):
                return HostNumber(folded.value)
    elif isinstance(left, HostNumber) and isinstance(right, HostNumber) and op not in ("and", "or"):
        try:
            return HostNumber(fold_binary(op, left.value, right.value))
        except ConstantFault as fault:
            cx.error("E0321", f"`{op}` has no value here: {fault}")
            return None
    elif isinstance(left, HostNumber) and op in ("and", "or"):
        return right if bool(left.value) == (op == "and") else left
    if op not in ("+", "-", "*", "/", "//", "%", "and", "or") and not is_comparison(op):
        cx.error("E0220", f"`{op}` has no meaning in `require`")
        return None
    return HostOp(cast(HostName, op), (left, right))


def _folds(op: str, left: Sym, right: Sym) -> bool:
    if op in ("+", "-", "*"):
        return True
    if op in ("//", "%"):
        return bool(right.terms) or right.constant == 0
    return is_comparison(op) and (left - right).constant is not None


def _entity(sym: Sym) -> Known | Integer:
    return Integer(sym) if sym.constant is None else Known(sym.constant)


def _decided(cx: Context, condition: HostExpr) -> bool | None:
    """The truth of a condition that speaks of bracket parameters only, None for the others."""
    match condition:
        case HostNumber(value):
            return bool(value)
        case HostOp("and" | "or" as op, args):
            parts = [_decided(cx, a) for a in args]
            if None in parts:
                return None
            return all(parts) if op == "and" else any(parts)
        case HostOp("not", (inner,)):
            known = _decided(cx, inner)
            return None if known is None else not known
        case HostOp(op, (Sym() as left, Sym() as right)) if is_comparison(op):
            a, b = cx.facts.numeric(left).constant, cx.facts.numeric(right).constant
            return None if a is None or b is None else bool(fold_binary(op, a, b))
        case _:
            return None


def learn(cx: Context, part: ast.Expr, condition: HostExpr, facts: list[HostExpr]) -> None:
    """Take a condition that holds as known: bounds, divisors, signs."""
    if isinstance(part, ast.Compare) and part.op == "==":
        _learn_divisor(cx, part.left, part.right)
        _learn_divisor(cx, part.right, part.left)
    if not isinstance(condition, HostOp) or len(condition.args) != 2:
        return
    op, (left, right) = condition.op, condition.args
    if isinstance(left, Sym) and isinstance(right, Sym):
        positive: list[Sym] = []
        match op:
            case "<":
                positive = [right - left]
            case "<=":
                positive = [right - left + 1]
            case ">":
                positive = [left - right]
            case ">=":
                positive = [left - right + 1]
            case "==":
                positive = [left - right + 1, right - left + 1]
                for one, other in ((left, right), (right, left)):
                    if all(v.kind == "tile" for v in one.variables) and one.variables:
                        cx.divides.append((other, one))
            case _:
                pass
        for fact in positive:
            if _is_remainder(left) or _is_remainder(right):
                continue
            if any(v.kind != "tile" for v in fact.variables):
                cx.facts.learn(fact)
                facts.append(fact)
        return
    if isinstance(right, HostScalar):
        op, left, right = cast(HostName, _FLIPPED.get(op, op)), right, left
    number = (
        right.value
        if isinstance(right, HostNumber)
        else right.constant
        if isinstance(right, Sym)
        else None
    )
    if not isinstance(left, HostScalar) or number is None:
        return
    if (op == ">" and number >= 0) or (op in (">=", "==") and number > 0):
        facts.append(left)


def _is_remainder(sym: Sym) -> bool:
    """`a % b` alone, which `divisors` says better."""
    atoms = sym.terms[0][0] if len(sym.terms) == 1 else ()
    return len(atoms) == 1 and isinstance(atoms[0], Apply) and atoms[0].op == "%"


def _learn_divisor(cx: Context, remainder: ast.Expr, zero: ast.Expr) -> None:
    """`a % b == 0`."""
    if not (isinstance(remainder, ast.Binary) and remainder.op == "%"):
        return
    if not (isinstance(zero, ast.Number) and zero.value == 0):
        return
    a, b = host(cx, remainder.left), host(cx, remainder.right)
    if isinstance(a, Sym) and isinstance(b, Sym):
        cx.divides.append((a, b))
        number = cx.facts.numeric(b).constant
        if number is not None:
            cx.facts.learn_divisor(a, number)
