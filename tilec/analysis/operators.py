"""Operators on entities: folding, symbolic integers, spans, then element-wise ops and products."""

from __future__ import annotations

from typing import Literal

from tilec.analysis.context import Context
from tilec.analysis.entities import (
    POISON,
    Entity,
    Integer,
    Known,
    Poison,
    SpanTile,
    Tile,
    as_sym,
    describe,
    integer_dtype,
    stays_symbolic,
)
from tilec.analysis.typing_rules import (
    broadcast_axes,
    elementwise,
    show_extent,
    unify,
    values_of,
)
from tilec.ir.dtypes import BOOL, F32, F64, I32, DType, promote
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import Dot, ElementwiseName, TileType, Value
from tilec.plan.constants import ConstantFault, fold_binary, is_comparison

_OPS: dict[str, ElementwiseName] = {
    "+": "add",
    "-": "sub",
    "*": "mul",
    "/": "div",
    "//": "floordiv",
    "%": "mod",
    "**": "pow",
    "&": "and",
    "|": "or",
    "^": "xor",
    "<<": "shl",
    ">>": "shr",
    "==": "eq",
    "!=": "ne",
    "<": "lt",
    "<=": "le",
    ">": "gt",
    ">=": "ge",
}


def binary(cx: Context, op: str, left: Entity, right: Entity) -> Entity:
    """`left op right` for every operator but `@`, `and`, `or`; comparisons included."""
    if isinstance(left, Poison) or isinstance(right, Poison):
        return POISON
    if isinstance(left, Known) and isinstance(right, Known):
        try:
            return Known(fold_binary(op, left.value, right.value))
        except ConstantFault as fault:
            return cx.error("E0321", f"`{op}` has no value here: {fault}")
    moved = _span_arithmetic(cx, op, left, right)
    if moved is not None:
        return moved
    if stays_symbolic(left) and stays_symbolic(right):
        symbolic = _symbolic(cx, op, left, right)
        if symbolic is not None:
            return symbolic
    for operand in (left, right):
        if not isinstance(operand, (Known, Integer, Tile, SpanTile)):
            return cx.not_a_value(operand, "number")
    agreed = unify(cx, (left, right), op)
    if agreed is None:
        return POISON
    weak = agreed[1]
    dtype = _operand_dtype(cx, op, agreed[0], weak)
    if dtype is None:
        return POISON
    values = values_of(cx, (left, right), dtype)
    if values is None:
        return POISON
    result = elementwise(cx, _OPS[op], values, BOOL if is_comparison(op) else dtype, op)
    return POISON if result is None else Tile(result, weak)


def _operand_dtype(cx: Context, op: str, dtype: DType, weak: bool) -> DType | None:
    """The dtype that the operator computes in; None after a message where it has none for this one."""
    if op == "/" and not dtype.is_float:
        if weak:
            return F32
        cx.error(
            "E0305",
            f"`/` of integers (`{dtype}`)",
            help="write `//` for the floor of the quotient, or convert with `.to(f32)`",
        )
        return None
    if (op in ("&", "|", "^") and dtype.is_float) or (op in ("<<", ">>") and not dtype.is_integer):
        cx.error(
            "E0304",
            f"`{op}` has no meaning for `{dtype}`",
            help="convert with `.to(i32)`, or `.bitcast(u32)`",
        )
        return None
    if dtype == BOOL and op in ("+", "-", "*", "/", "//", "%", "**"):
        cx.error(
            "E0304",
            f"`{op}` of two truth values",
            help="convert with `.to(i32)`, or use `&`, `|`, `^`",
        )
        return None
    return dtype


def _symbolic(cx: Context, op: str, left: Entity, right: Entity) -> Entity | None:
    """Integer scalars as polynomials; None where the op isn't one of them."""
    a, b = as_sym(left), as_sym(right)
    assert a is not None and b is not None
    first, second = integer_dtype(left), integer_dtype(right)
    if max(_weight(a), _weight(b)) > WEIGHT_LIMIT:
        return None
    dtype = first or second if first is None or second is None else promote(first, second)
    if op in ("//", "%") and not b.terms:
        return cx.error("E0321", f"`{op}` by zero")
    match op:
        case "+":
            return Integer(a + b, dtype)
        case "-":
            return Integer(a - b, dtype)
        case "*":
            return Integer(a * b, dtype)
        case "//":
            return Integer(a // b, dtype)
        case "%":
            return Integer(a % b, dtype)
        case _ if is_comparison(op) and (a - b).constant is not None:
            return Known(fold_binary(op, (a - b).constant or 0, 0))
        case _:
            return None


WEIGHT_LIMIT = 64
"""Factors in a polynomial beyond which integer scalars are computed by the kernel and no longer known as polynomials."""


def _weight(sym: Sym) -> int:
    """Number of factors of all terms, the same inside applications."""
    total = 0
    for monomial, _ in sym.terms:
        total += 1
        for atom in monomial:
            total += 1 if isinstance(atom, Var) else 1 + sum(map(_weight, atom.args))
    return total


def _span_arithmetic(cx: Context, op: str, left: Entity, right: Entity) -> Entity | None:
    """`s + e`, `e + s`, `s - e` move a span; `s // c`, `s % c` by the language's rule. None: ordinary arithmetic."""
    if op == "+" and isinstance(right, SpanTile) and not isinstance(left, SpanTile):
        left, right = right, left
    if not isinstance(left, SpanTile):
        return None
    by = as_sym(right) if stays_symbolic(right) else None
    if by is None:
        return None
    if op in ("+", "-"):
        return shift(left, by if op == "+" else -by)
    if op not in ("//", "%"):
        return None
    if not _extent_divides(cx, left, by):
        cx.quotients[left.extent] = by
        return None
    quotient = left.start // by
    if op == "//":
        return Integer(quotient)
    return shift(left, -(quotient * by))


def shift(span: SpanTile, by: Sym) -> SpanTile:
    """The span with its start and its bound moved."""
    return SpanTile(
        span.start + by,
        span.extent,
        None if span.lo is None else span.lo + by,
        None if span.hi is None else span.hi + by,
    )


def _extent_divides(cx: Context, span: SpanTile, divisor: Sym) -> bool:
    """Whether the span starts at a multiple of its extent and literals or a `require` say that the extent divides the divisor."""
    if span.start.divided_by(span.extent) is None:
        return False
    if divisor.terms and divisor.divided_by(span.extent) is not None:
        return True
    return (divisor, span.extent) in cx.divides


def negate(cx: Context, operand: Entity) -> Entity:
    """`-x`."""
    match operand:
        case Known(value) if not isinstance(value, bool):
            return Known(-value)
        case Poison():
            return operand
    if stays_symbolic(operand):
        sym = as_sym(operand)
        assert sym is not None
        return Integer(-sym, integer_dtype(operand))
    return _unary(cx, "neg", operand, "-")


def invert(cx: Context, operand: Entity, op: Literal["~", "not"]) -> Entity:
    """`~x` (bitwise, logical on bool tiles) and `not x` (of a scalar truth value)."""
    if isinstance(operand, Poison):
        return operand
    if isinstance(operand, Known):
        if op == "not" or isinstance(operand.value, bool):
            return Known(not operand.value)
        if isinstance(operand.value, int):
            return Known(~operand.value)
    if op == "not":
        value = condition_value(cx, operand, "of tiles write `~c`")
        if value is None:
            return POISON
        result = elementwise(cx, "not", [value], BOOL, op)
        return POISON if result is None else Tile(result)
    return _unary(cx, "not", operand, "~")


def _unary(cx: Context, op: Literal["neg", "not"], operand: Entity, what: str) -> Entity:
    value = cx.materialise(operand, None, "number")
    if value is None:
        return POISON
    dtype = value.type.dtype
    if (dtype == BOOL and op == "neg") or (dtype.is_float and op == "not"):
        return cx.error(
            "E0304", f"`{what}` has no meaning for `{dtype}`", help="convert with `.to(i32)`"
        )
    result = elementwise(cx, op, [value], dtype, what)
    weak = isinstance(operand, Tile) and operand.weak
    return POISON if result is None else Tile(result, weak)


def condition_value(cx: Context, entity: Entity, of_tiles: str = "") -> Value | None:
    """A scalar truth value; None after a message. `of_tiles`: the help where it is a tile, for an operator that has another form for them."""
    value = cx.materialise(entity, None, "condition")
    if value is None:
        return None
    if value.type.axes:
        cx.error(
            "E0311",
            f"a condition must be a scalar, not {describe(entity)}",
            help=of_tiles
            or "choose element by element with `where(c, a, b)`, or reduce with `any(c)` or `all(c)`",
        )
        return None
    if value.type.dtype != BOOL:
        cx.error(
            "E0323",
            f"a condition must be a truth value, not {describe(entity)}",
            help="compare it: `x != 0`",
        )
        return None
    return value


def truth(cx: Context, entity: Entity) -> bool | None:
    """The value of a compile-time condition, None for a run-time one. Numbers count as in Python."""
    if isinstance(entity, Known):
        return bool(entity.value)
    return None


def dot_operands(cx: Context, left: Entity, right: Entity) -> tuple[Value, Value] | None:
    """The two factors of a product, checked and in one dtype; None after a message."""
    values: list[Value] = []
    for operand, side in ((left, "left"), (right, "right")):
        if isinstance(operand, Poison):
            return None
        value = cx.materialise(operand, None, "tile")
        if value is None:
            return None
        if value.type.rank < 2:
            cx.error(
                "E0306",
                f"the {side} operand of `@` must have at least two axes, not {describe(operand)}",
                help=_instead_of_product(left, right, side),
            )
            return None
        for axis in value.type.axes:
            if not axis.is_static:
                cx.error(
                    "E0307",
                    f"an axis of the run-time extent `{axis.extent}` is no operand of `@`",
                    help=f"loop over it in spans: `for k in range({axis.extent} by BK)`, or make `{axis.extent}` a bracket parameter",
                )
                return None
        values.append(value)
    a, b = values
    if a.type.axes[-1].extent != b.type.axes[-2].extent:
        inner, outer = a.type.axes[-1].extent, b.type.axes[-2].extent
        cx.error(
            "E0306",
            f"`@` of `{shape(a)}` and `{shape(b)}`: the inner extents {show_extent(cx, inner)} and {show_extent(cx, outer)} do not agree",
            help="the last axis of the left and the last but one of the right operand are summed over; transpose one with `.T`",
        )
        return None
    dtype = product_dtype(cx, a.type.dtype, b.type.dtype)
    if dtype is None:
        return None
    if a.type.dtype == b.type.dtype or a.type.dtype.bits == 8 == b.type.dtype.bits:
        return a, b
    return cx.cast(a, dtype), cx.cast(b, dtype)


def _rank(operand: Entity) -> int:
    """How many axes a factor has."""
    match operand:
        case Tile(value):
            return value.type.rank
        case SpanTile():
            return 1
        case _:
            return 0


def _instead_of_product(left: Entity, right: Entity, side: str) -> str:
    """The help where the operand of that side has fewer than two axes."""
    ranks = [_rank(left), _rank(right)]
    if 0 in ranks:
        return "numbers are multiplied by `*`"
    if ranks == [1, 1]:
        return "the product of two rows is `sum(a * b)`"
    example = "x[None, :] @ b" if side == "left" else "a @ x[:, None]"
    return f"give it one with `{example}`, or write `sum(a * x[None, :], axis=1)`"


def product_dtype(cx: Context, left: DType, right: DType) -> DType | None:
    """The common dtype of the factors; None after a message."""
    byte_integers = left.is_integer and right.is_integer and left.bits <= 8 and right.bits <= 8
    common = left if byte_integers and left.bits == right.bits else promote(left, right)
    if common is None:
        cx.error(
            "E0304",
            f"`@` of `{left}` and `{right}` has no common dtype",
            help=f"convert one operand with `.to({left})` or `.to({right})`"
            if left.is_float == right.is_float
            else f"convert the integer with `.to({right if right.is_float else left})`",
        )
        return None
    if not common.is_float and not byte_integers:
        cx.error(
            "E0308",
            f"`@` of `{left}` and `{right}` is not available",
            help="factors are f8 to f64, or i8, u8, i4, u4 (accumulated in i32); convert with `.to`",
        )
        return None
    return common


def product(
    cx: Context,
    left: Entity,
    right: Entity,
    accumulate: Entity | None = None,
    precision: Literal["", "tf32"] = "",
) -> Entity:
    """`left @ right`, or `accumulate + left @ right` as one op where shapes and dtypes allow it."""
    operands = dot_operands(cx, left, right)
    if operands is None or isinstance(accumulate, Poison):
        return POISON
    a, b = operands
    if precision == "tf32" and a.type.dtype != F32:
        return cx.error(
            "E0308", f"`as = tf32` needs f32 factors, not `{a.type.dtype}`", help="leave `as` out"
        )
    dtype = F64 if a.type.dtype == F64 else F32 if a.type.dtype.is_float else I32
    outer = broadcast_axes(
        cx, [TileType(dtype, a.type.axes[:-2]), TileType(dtype, b.type.axes[:-2])], "@"
    )
    if outer is None:
        return POISON
    axes = (*outer, a.type.axes[-2], b.type.axes[-1])
    if accumulate is not None and isinstance(accumulate, Tile):
        start = accumulate.value
        same = [x.extent for x in start.type.axes] == [x.extent for x in axes]
        if same and (start.type.dtype == dtype or accumulate.weak):
            start = cx.cast(start, dtype)
            joined = broadcast_axes(cx, [TileType(dtype, axes), start.type], "+")
            if joined is None:
                return POISON
            return Tile(
                cx.emit(
                    Dot(a=a, b=b, accumulate=start, precision=precision), TileType(dtype, joined)
                )
            )
    result = Tile(cx.emit(Dot(a=a, b=b, precision=precision), TileType(dtype, axes)))
    return result if accumulate is None else binary(cx, "+", accumulate, result)


def add_product(cx: Context, start: Entity, result: Entity) -> Entity:
    """`start + result`, as one op where `result` is the product that was emitted last."""
    ops = cx.blocks[-1]
    last = ops[-1] if ops else None
    alone = isinstance(last, Dot) and last.accumulate is None
    if isinstance(last, Dot) and alone and isinstance(result, Tile) and last.out is result.value:
        ops.pop()
        with cx.at(last.span):
            return product(cx, Tile(last.a), Tile(last.b), start, last.precision)
    return binary(cx, "+", start, result)


def shape(value: Value) -> str:
    """`bf16[BM, BK]`."""
    return f"{value.type.dtype}[{', '.join(str(a.extent) for a in value.type.axes)}]"
