"""The functions of the language."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import cast

from tilec.analysis.context import Context
from tilec.analysis.entities import (
    POISON,
    Entity,
    Integer,
    Known,
    Poison,
    SpanTile,
    Text,
    Tile,
    TypeOf,
    as_sym,
    describe,
    integer_dtype,
    stays_symbolic,
)
from tilec.analysis.operators import binary, product
from tilec.analysis.presence import span_presence
from tilec.analysis.reductions import reduce_builtin, reduce_with, scan, topk
from tilec.analysis.typing_rules import (
    elementwise,
    strong_dtype,
    unify,
    values_of,
)
from tilec.ir.dtypes import BOOL, F32, promote
from tilec.ir.symbolic import ceildiv, sym_max, sym_min
from tilec.ir.tile_ir import AtSpan, Axis, ElementwiseName, Full, TileType
from tilec.plan.constants import ConstantFault, fold_extreme, fold_function

Keywords = Mapping[str, Entity]

UNARY: tuple[ElementwiseName, ...] = (
    "abs", "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid", "floor", "ceil",
    "round",
)  # fmt: skip
"""Functions of one tile, element by element."""

REDUCTIONS = ("sum", "prod", "any", "all", "argmax", "argmin")
"""Reductions besides `min` and `max`."""

_KEYWORDS: dict[str, tuple[str, ...]] = {
    "min": ("axis",),
    "max": ("axis",),
    **dict.fromkeys(REDUCTIONS, ("axis",)),
    "cumsum": ("axis",),
    "cummax": ("axis",),
    "reduce": ("axis", "fn"),
    "topk": ("axis", "k"),
    "dot": ("as",),
    "span": ("until",),
}

_COUNTS: dict[str, tuple[int, int]] = {
    **dict.fromkeys(UNARY, (1, 1)),
    **dict.fromkeys(REDUCTIONS, (1, 2)),
    "pow": (2, 2),
    "fma": (3, 3),
    "where": (3, 3),
    "maximum": (2, 2),
    "minimum": (2, 2),
    "min": (1, 64),
    "max": (1, 64),
    "ceildiv": (2, 2),
    "cumsum": (1, 2),
    "cummax": (1, 2),
    "reduce": (1, 3),
    "topk": (1, 3),
    "zeros": (1, 64),
    "full": (2, 64),
    "dot": (2, 2),
    "span": (2, 2),
    "atomic_add": (0, 64),
    "atomic_max": (0, 64),
    "atomic_min": (0, 64),
}

FUNCTIONS = tuple(_COUNTS)
"""Names of all functions of the language."""


def call_builtin(cx: Context, name: str, arguments: list[Entity], keywords: Keywords) -> Entity:
    """A call of a function of the language; POISON after a message."""
    if name.startswith("atomic_"):
        return cx.error(
            "E0224",
            f"`{name}` is a statement of its own",
            help=f"write `{name}(t[i, j], e)` alone on a line; it has no result",
        )
    if any(isinstance(e, Poison) for e in (*arguments, *keywords.values())):
        return POISON
    allowed = _KEYWORDS.get(name, ())
    for keyword in keywords:
        if keyword not in allowed:
            return cx.error(
                "E0208",
                f"`{name}` has no keyword `{keyword}`",
                help=_instead_of_keyword(name, keyword, allowed),
            )
    low, high = _COUNTS[name]
    if not low <= len(arguments) <= high:
        wanted = f"{low}" if low == high else f"{low} to {high}" if high < 64 else f"at least {low}"
        return cx.error("E0207", f"`{name}` takes {wanted} arguments, not {len(arguments)}")
    if name in UNARY:
        return _unary(cx, name, arguments[0])
    if name in REDUCTIONS or (name in ("min", "max") and len(arguments) == 1):
        return reduce_builtin(cx, name, arguments, keywords)
    return _TABLE[name](cx, arguments, keywords)


def _instead_of_keyword(name: str, keyword: str, allowed: tuple[str, ...]) -> str:
    """The help for a keyword that the function `name` has not."""
    if "axis" in allowed and keyword in ("dim", "axes"):
        return "the axis is named `axis = n`"
    if "axis" in allowed and keyword in ("keepdims", "keepdim"):
        return "keep the axis with an index: `sum(x, axis = 1)[:, None]`"
    if keyword == "dtype" and name in ("zeros", "full"):
        return "the dtype comes first: `zeros(f32, i, j)`, `full(f32, v, i)`"
    if keyword == "dtype":
        return "convert the argument: `sum(x.to(f32))`"
    known = ", ".join(f"`{k}`" for k in allowed)
    if not known:
        return "it takes no keywords"
    return f"its keyword is {known}" if len(allowed) == 1 else f"its keywords are {known}"


def _unary(cx: Context, name: ElementwiseName, operand: Entity) -> Entity:
    if isinstance(operand, Known) and not isinstance(operand.value, bool):
        try:
            return Known(fold_function(name, operand.value))
        except ConstantFault as fault:
            return cx.error("E0321", str(fault))
    wanted = (
        F32
        if strong_dtype(operand) is None and name not in ("abs", "floor", "ceil", "round")
        else None
    )
    value = cx.materialise(operand, wanted, "number")
    if value is None:
        return POISON
    dtype = value.type.dtype
    weak = isinstance(operand, Tile) and operand.weak
    if wanted is not None:
        value, dtype = cx.cast(value, F32), F32
        weak = True
    if dtype.is_integer and name in ("floor", "ceil", "round"):
        return operand
    if not (dtype.is_float or (dtype.is_integer and name == "abs")):
        return cx.error(
            "E0320", f"`{name}` of `{dtype}`; it takes floats", help="convert with `.to(f32)`"
        )
    result = elementwise(cx, name, [value], dtype, name)
    return POISON if result is None else Tile(result, weak)


def _extreme(op: str) -> Callable[[Context, list[Entity], Keywords], Entity]:
    def apply(cx: Context, arguments: list[Entity], keywords: Keywords) -> Entity:
        if keywords:
            return cx.error(
                "E0208",
                f"`{op}` of several arguments compares them and has no axis",
                help=f"reduce one with `{op}(x, axis=1)`",
            )
        if all(isinstance(a, Known) for a in arguments):
            return Known(fold_extreme(op, [a.value for a in arguments if isinstance(a, Known)]))
        if all(stays_symbolic(a) for a in arguments):
            syms = [s for a in arguments if (s := as_sym(a)) is not None]
            dtype = None
            for argument in arguments:
                strong = integer_dtype(argument)
                dtype = strong if dtype is None or strong is None else promote(dtype, strong)
            return Integer(sym_min(syms) if op == "min" else sym_max(syms), dtype)
        result = arguments[0]
        for argument in arguments[1:]:
            result = _apply(cx, cast(ElementwiseName, op), (result, argument), op)
        return result

    return apply


def _apply(cx: Context, op: ElementwiseName, operands: tuple[Entity, ...], what: str) -> Entity:
    """An element-wise op whose operands and result have one dtype."""
    agreed = unify(cx, operands, what)
    if agreed is None:
        return POISON
    values = values_of(cx, operands, agreed[0])
    if values is None:
        return POISON
    result = elementwise(cx, op, values, agreed[0], what)
    return POISON if result is None else Tile(result, agreed[1])


def _pow(cx: Context, arguments: list[Entity], _: Keywords) -> Entity:
    return binary(cx, "**", arguments[0], arguments[1])


def _fma(cx: Context, arguments: list[Entity], _: Keywords) -> Entity:
    return _apply(cx, "fma", tuple(arguments), "fma")


def _where(cx: Context, arguments: list[Entity], _: Keywords) -> Entity:
    condition, *choices = arguments
    if isinstance(condition, Known):
        return choices[0] if condition.value else choices[1]
    chosen = cx.materialise(condition, None, "condition")
    if chosen is None:
        return POISON
    if chosen.type.dtype != BOOL:
        return cx.error(
            "E0323",
            f"the condition of `where` must be truth values, not {describe(condition)}",
            help="compare: `where(x != 0, …)`",
        )
    agreed = unify(cx, choices, "where")
    if agreed is None:
        return POISON
    values = values_of(cx, choices, agreed[0])
    if values is None:
        return POISON
    result = elementwise(cx, "where", [chosen, *values], agreed[0], "where")
    return POISON if result is None else Tile(result, agreed[1])


def _ceildiv(cx: Context, arguments: list[Entity], _: Keywords) -> Entity:
    a, b = (cx.sym_of(x, "an argument of `ceildiv`") for x in arguments)
    if a is None or b is None:
        return POISON
    if not b.terms:
        return cx.error("E0321", "`ceildiv` by zero")
    result = ceildiv(a, b)
    dtype = integer_dtype(arguments[0]) or integer_dtype(arguments[1])
    if result.constant is not None and dtype is None:
        return Known(result.constant)
    return Integer(result, dtype)


def _zeros(cx: Context, arguments: list[Entity], _: Keywords) -> Entity:
    return _full(cx, [arguments[0], Known(0), *arguments[1:]], {})


def _full(cx: Context, arguments: list[Entity], _: Keywords) -> Entity:
    dtype, number, *extents = arguments
    if not isinstance(dtype, TypeOf):
        return cx.error(
            "E0321",
            f"the first argument is a dtype, not {describe(dtype)}",
            help="write `zeros(f32, i, j)` or `full(f32, -inf, i)`",
        )
    value = cx.materialise(number, dtype.dtype, "number")
    if value is None:
        return POISON
    if value.type.axes:
        return cx.error("E0321", f"`full` takes a scalar, not {describe(number)}")
    if value.type.dtype != dtype.dtype:
        return cx.error(
            "E0304",
            f"`full` of `{dtype.dtype}` with `{value.type.dtype}`",
            help=f"convert the number with `.to({dtype.dtype})`",
        )
    axes: list[Axis] = []
    bounds: list[AtSpan | None] = []
    for extent in extents:
        axis = extent_axis(cx, extent)
        if axis is None:
            return POISON
        axes.append(axis)
        bounds.append(
            AtSpan(extent.start, extent.extent, extent.lo, extent.hi)
            if isinstance(extent, SpanTile)
            else None
        )
    if not axes:
        return Tile(value)
    return Tile(
        cx.emit(Full(value=value, bounds=tuple(bounds)), TileType(dtype.dtype, tuple(axes)))
    )


def extent_axis(cx: Context, extent: Entity) -> Axis | None:
    """The axis that an argument of `zeros` or `full` names; None after a message."""
    if isinstance(extent, SpanTile):
        presence = span_presence(extent.start, extent.extent, extent.lo, extent.hi, None, cx.facts)
        return cx.axis(extent.extent, presence)
    size = cx.sym_of(extent, "an extent")
    if size is None:
        return None
    if size.constant is not None and size.constant < 0:
        cx.error("E0322", f"the extent {size.constant} is negative")
        return None
    return cx.bounded_axis(size)


def _dot(cx: Context, arguments: list[Entity], keywords: Keywords) -> Entity:
    kind = keywords.get("as")
    if kind is None:
        return product(cx, arguments[0], arguments[1])
    if kind != Text("tf32"):
        return cx.error(
            "E0321", "`as` of `dot` is `tf32`", help="leave it out for the usual product"
        )
    return product(cx, arguments[0], arguments[1], precision="tf32")


def _span(cx: Context, arguments: list[Entity], keywords: Keywords) -> Entity:
    """`span(start, extent, until=e)`: bound [start, min(start+extent, e)). `span(0, C)` is a whole dimension that has an upper bound."""
    start = cx.sym_of(arguments[0], "the start of a span")
    extent = cx.sym_of(arguments[1], "the extent of a span", "E0315")
    if start is None or extent is None:
        return POISON
    if any(v.kind != "tile" for v in extent.variables):
        if start.constant == 0 and "until" not in keywords and cx.axis(extent).capacity is not None:
            return SpanTile(start, extent, None, None)
        return cx.error(
            "E0315",
            f"the extent of a span must be known at compile time, not `{extent}`",
            help="give the largest extent as a bracket parameter and end the span with `until=`",
        )
    if extent.constant is not None and extent.constant < 1:
        return cx.error("E0322", f"the extent of a span is at least 1, not {extent.constant}")
    hi = start + extent
    until = keywords.get("until")
    if until is not None:
        end = cx.sym_of(until, "`until`")
        if end is None:
            return POISON
        hi = end if cx.facts.prove_nonnegative(hi - end) else sym_min([hi, end])
    return SpanTile(start, extent, start, hi)


_TABLE: dict[str, Callable[[Context, list[Entity], Keywords], Entity]] = {
    "pow": _pow,
    "fma": _fma,
    "where": _where,
    "maximum": _extreme("max"),
    "minimum": _extreme("min"),
    "max": _extreme("max"),
    "min": _extreme("min"),
    "ceildiv": _ceildiv,
    "zeros": _zeros,
    "full": _full,
    "dot": _dot,
    "span": _span,
    "cumsum": lambda cx, a, k: scan(cx, "cumsum", a, k),
    "cummax": lambda cx, a, k: scan(cx, "cummax", a, k),
    "reduce": reduce_with,
    "topk": topk,
}
