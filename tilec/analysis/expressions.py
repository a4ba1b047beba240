"""Expressions to entities; ops are appended to the current block."""

from __future__ import annotations

import math
from typing import Literal, cast

from tilec.analysis import foreign
from tilec.analysis.access import index_tensor, load
from tilec.analysis.context import Context
from tilec.analysis.entities import (
    POISON,
    BuiltinRef,
    Entity,
    FnRef,
    Integer,
    Known,
    MethodRef,
    ModuleRef,
    Poison,
    ScalarRef,
    SpanTile,
    TensorRef,
    Text,
    Tile,
    TupleOf,
    TypeOf,
    describe,
)
from tilec.analysis.functions import FUNCTIONS, call_builtin
from tilec.analysis.methods import METHODS, call_method, index_value, transpose
from tilec.analysis.operators import (
    add_product,
    binary,
    condition_value,
    invert,
    negate,
    product,
    truth,
)
from tilec.analysis.scopes import Scope, closest
from tilec.analysis.typing_rules import elementwise, unify, values_of
from tilec.analysis.untaken import check_names
from tilec.ir.dtypes import DTYPES
from tilec.ir.symbolic import Sym, sym_max, sym_min
from tilec.ir.tile_ir import Scalar, TileType
from tilec.syntax import ast
from tilec.syntax.loading import Namespace

SPECIAL: dict[str, float] = {"inf": math.inf, "nan": math.nan}
"""Names of floats that have no literal."""


def evaluate(cx: Context, expr: ast.Expr) -> Entity:
    """What an expression stands for; POISON after a message."""
    with cx.at(expr.span):
        match expr:
            case ast.Number(value) | ast.Boolean(value):
                return Known(value)
            case ast.String(value):
                return Text(value)
            case ast.Name(name):
                return look_up(cx, name)
            case ast.Unary("-", operand):
                return negate(cx, evaluate(cx, operand))
            case ast.Unary("+", operand):
                return binary(cx, "+", Known(0), evaluate(cx, operand))
            case ast.Unary(op, operand):
                return invert(cx, evaluate(cx, operand), cast(Literal["~", "not"], op))
            case ast.Binary("and" | "or" as op, left, right):
                return _connect(cx, op, left, right)
            case ast.Binary("@", left, right):
                return product(cx, evaluate(cx, left), evaluate(cx, right))
            case ast.Binary("+", left, ast.Binary("@", a, b) as product_):
                start = evaluate(cx, left)
                with cx.at(product_.span):
                    first, second = evaluate(cx, a), evaluate(cx, b)
                return product(cx, first, second, start)
            case ast.Binary("+", ast.Binary("@", a, b), right):
                first, second = evaluate(cx, a), evaluate(cx, b)
                return product(cx, first, second, evaluate(cx, right))
            case ast.Binary("+", left, ast.Call(ast.Name("dot")) as product_):
                return add_product(cx, evaluate(cx, left), evaluate(cx, product_))
            case ast.Binary("+", ast.Call(ast.Name("dot")) as product_, right):
                result = evaluate(cx, product_)
                return add_product(cx, evaluate(cx, right), result)
            case ast.Binary(op, left, right) | ast.Compare(op, left, right):
                return binary(cx, op, evaluate(cx, left), evaluate(cx, right))
            case ast.Conditional():
                return _conditional(cx, expr)
            case ast.Call():
                return _call(cx, expr)
            case ast.Attribute(ast.Name(module), name) if foreign_module(cx, module):
                return cx.error(
                    "E0201",
                    f"the name `{module}` is not known here",
                    help=foreign.of_module(name, FUNCTIONS, (*DTYPES, *SPECIAL)),
                )
            case ast.Attribute(value, name):
                return attribute(cx, evaluate(cx, value), name)
            case ast.Index():
                return _index(cx, expr)
            case ast.TupleExpr(elements):
                return TupleOf(tuple(evaluate(cx, e) for e in elements))


def look_up(cx: Context, name: str) -> Entity:
    """A name's meaning: locals, then the file's declarations, dtypes, functions; POISON after E0201 or E0212."""
    binding = cx.scope.find(name)
    if binding is not None:
        entity = binding.entity
        if isinstance(entity, ScalarRef):
            return Tile(cx.emit(Scalar(name=entity.name), TileType(entity.dtype)))
        return entity
    bound = cx.files.scope(cx.scope.home).get(name)
    if isinstance(bound, Namespace):
        return ModuleRef(name, bound)
    if bound is not None:
        return declared(cx, bound.item, bound.module)
    if name in DTYPES:
        return TypeOf(DTYPES[name])
    if name in FUNCTIONS:
        return BuiltinRef(name)
    if name in SPECIAL:
        return Known(SPECIAL[name])
    if name in cx.scope.ended:
        reason, _ = cx.scope.ended[name]
        return cx.error(
            "E0212",
            f"`{name}` has ended with the {reason} that bound it",
            help=f"bind `{name}` before the {reason}, so that the {reason} changes it",
        )
    names = [*cx.scope.visible(), *cx.files.scope(cx.scope.home), *DTYPES, *FUNCTIONS, *SPECIAL]
    return cx.error(
        "E0201", f"the name `{name}` is not known here", help=foreign.unknown_name(name, names)
    )


def foreign_module(cx: Context, name: str) -> bool:
    """Whether a name stands for a module of Python: nothing here binds it."""
    unbound = cx.scope.find(name) is None and name not in cx.files.scope(cx.scope.home)
    return unbound and name in foreign.MODULES


def declared(cx: Context, item: ast.Fn | ast.Const | ast.Kernel, module: ast.Module) -> Entity:
    """A declaration of a file as an entity; a `const` is evaluated where it was written."""
    match item:
        case ast.Fn():
            return FnRef(item, module)
        case ast.Kernel(name):
            return cx.error(
                "E0222", f"the kernel `{name}` is not a value", help="a kernel calls only `fn`s"
            )
        case ast.Const(name, value):
            if id(item) in cx.consts:
                return cx.consts[id(item)]
            if item in cx.calls:
                return cx.error("E0206", f"the const `{name}` is defined by itself", item.span)
            scope = cx.scope
            cx.scope = Scope(module)
            cx.calls.append(item)
            try:
                with cx.block() as ops:
                    result = evaluate(cx, value)
            finally:
                cx.scope = scope
                cx.calls.pop()
            if ops or not isinstance(result, (Known, TypeOf, Poison)):
                result = cx.error(
                    "E0221",
                    f"the const `{name}` is not a compile-time number or dtype",
                    value.span,
                    help="use literals, other consts and arithmetic",
                )
            cx.consts[id(item)] = result
            return result


_OF_TILES = {
    "and": "of tiles write `(a < b) & (b < c)`",
    "or": "of tiles write `(a < b) | (b < c)`",
}
"""What stands for an operator of scalars."""


def _connect(cx: Context, op: Literal["and", "or"], left: ast.Expr, right: ast.Expr) -> Entity:
    first = evaluate(cx, left)
    if isinstance(first, Poison):
        evaluate(cx, right)
        return POISON
    known = truth(cx, first)
    if known is not None:
        return evaluate(cx, right) if known == (op == "and") else Known(op == "or")
    with cx.at(left.span):
        a = condition_value(cx, first, _OF_TILES[op])
    second = evaluate(cx, right)
    known = truth(cx, second)
    if known is not None and a is not None:
        return first if known == (op == "and") else Known(op == "or")
    if a is None:
        return POISON
    with cx.at(right.span):
        b = condition_value(cx, second, _OF_TILES[op])
    if b is None:
        return POISON
    result = elementwise(cx, op, [a, b], a.type.dtype, op)
    return POISON if result is None else Tile(result)


def _conditional(cx: Context, expr: ast.Conditional) -> Entity:
    condition = evaluate(cx, expr.condition)
    known = truth(cx, condition)
    if known is not None:
        check_names(cx, expr.otherwise if known else expr.then)
        return evaluate(cx, expr.then if known else expr.otherwise)
    if isinstance(condition, Poison):
        return POISON
    with cx.at(expr.condition.span):
        chosen = condition_value(cx, condition)
    a, b = evaluate(cx, expr.then), evaluate(cx, expr.otherwise)
    if chosen is None or isinstance(a, Poison) or isinstance(b, Poison):
        return POISON
    agreed = unify(cx, (a, b), "if … else")
    if agreed is None:
        return POISON
    values = values_of(cx, (a, b), agreed[0])
    if values is None:
        return POISON
    result = elementwise(cx, "where", [chosen, *values], agreed[0], "if … else")
    return POISON if result is None else Tile(result, agreed[1])


def _call(cx: Context, expr: ast.Call) -> Entity:
    function = evaluate(cx, expr.function)
    if isinstance(function, BuiltinRef) and function.name.startswith("atomic_"):
        return call_builtin(cx, function.name, [], {})
    arguments = [evaluate(cx, a) for a in expr.arguments]
    keywords: dict[str, Entity] = {}
    for keyword in expr.keywords:
        if keyword.name in keywords:
            cx.error("E0208", f"the keyword `{keyword.name}` is given twice", keyword.span)
        if keyword.name == "as" and isinstance(keyword.value, ast.Name):
            keywords["as"] = Text(keyword.value.id)
        else:
            keywords[keyword.name] = evaluate(cx, keyword.value)
    match function:
        case Poison():
            return POISON
        case FnRef(fn, home):
            if keywords:
                names = [p.id for p in fn.params]
                return _call_with_keywords(cx, function, arguments, keywords, names, expr)
            return cx.inline(cx, fn, home, arguments, expr.span)
        case BuiltinRef(name):
            return call_builtin(cx, name, arguments, keywords)
        case MethodRef(owner, name):
            return call_method(cx, owner, name, arguments, keywords)
        case _:
            return cx.error(
                "E0209",
                f"{describe(function)} is not a function",
                expr.function.span,
                help=f"the name `{expr.function.id}` is bound to a value here; rename that"
                if isinstance(expr.function, ast.Name) and expr.function.id in FUNCTIONS
                else "call a `fn` or a function of the language",
            )


def _call_with_keywords(
    cx: Context,
    function: FnRef,
    arguments: list[Entity],
    keywords: dict[str, Entity],
    names: list[str],
    expr: ast.Call,
) -> Entity:
    """A user's function called with `name=value` behind the positional arguments."""
    given = dict(zip(names, arguments, strict=False))
    for name, value in keywords.items():
        if name not in names or name in given:
            near = closest(name, names)
            return cx.error(
                "E0208",
                f"`{function.fn.name}` has no parameter `{name}`"
                if name not in names
                else f"the parameter `{name}` is given twice",
                help=f"did you mean `{near}`?"
                if near and near != name
                else f"its parameters are {', '.join(names)}",
            )
        given[name] = value
    ordered = [given[n] for n in names if n in given] if len(arguments) <= len(names) else arguments
    return cx.inline(cx, function.fn, function.home, ordered, expr.span)


def attribute(cx: Context, owner: Entity, name: str) -> Entity:
    """`owner.name`; POISON after a message."""
    match owner:
        case Poison():
            return POISON
        case ModuleRef(module, space):
            bound = space.names.get(name)
            if bound is None:
                near = closest(name, space.names)
                return cx.error(
                    "E0201",
                    f"the module `{module}` has no `{name}`",
                    help=f"did you mean `{module}.{near}`?"
                    if near
                    else f"it has {', '.join(space.names)}",
                )
            return declared(cx, bound.item, bound.module)
        case SpanTile(start, _, _, _) if name == "start":
            return Integer(start)
        case SpanTile() if name == "stop":
            return Integer(stop_of(cx, owner))
        case TensorRef() if name == "at" and not owner.at:
            return TensorRef(owner.name, owner.dtype, owner.dims, owner.view, at=True)
        case TensorRef(_, dtype, dims):
            if name == "dtype":
                return TypeOf(dtype)
            if name == "shape":
                return TupleOf(
                    tuple(Integer(d) if d.constant is None else Known(d.constant) for d in dims)
                )
            if name == "view":
                return MethodRef(owner, name)
        case Tile(value) if name == "dtype":
            return TypeOf(value.type.dtype)
        case SpanTile() if name == "dtype":
            return TypeOf(DTYPES["i32"])
        case Tile() | SpanTile() if name == "shape":
            axes = owner.type.axes if isinstance(owner, Tile) else (cx.axis(owner.extent),)
            return TupleOf(
                tuple(
                    Integer(a.extent) if a.extent.constant is None else Known(a.extent.constant)
                    for a in axes
                )
            )
        case Tile() if name == "T":
            return transpose(cx, owner)
    if name in METHODS and isinstance(owner, (Tile, Known, Integer, SpanTile)):
        return MethodRef(owner, name)
    return cx.error("E0209", f"{describe(owner)} has no `{name}`", help=_attributes(owner, name))


def _attributes(owner: Entity, name: str) -> str:
    """The help where `owner` has no `name`."""
    match owner:
        case Tile() | SpanTile() if instead := foreign.of_tile(name, FUNCTIONS):
            return instead
        case TensorRef():
            return "a tensor has `dtype`, `shape`, `at` and `view`; index it to get a tile"
        case SpanTile():
            return "a span has `start`, `stop`, `dtype`, `shape` and the methods of an integer tile"
        case Tile():
            return f"a tile has `T`, `dtype`, `shape` and the methods {', '.join(f'`{m}`' for m in METHODS)}"
        case _:
            return "only tensors, tiles, spans and modules have names behind a dot"


def stop_of(cx: Context, span: SpanTile) -> Sym:
    """`s.stop` = max(start, min(start + extent, hi)), without what is provable."""
    end = span.start + span.extent
    if span.hi is None or cx.facts.prove_nonnegative(span.hi - end):
        return end
    stop = span.hi if cx.facts.prove_nonnegative(end - span.hi) else sym_min([end, span.hi])
    if cx.facts.prove_nonnegative(stop - span.start):
        return stop
    return sym_max([span.start, stop])


def _index(cx: Context, expr: ast.Index) -> Entity:
    owner = evaluate(cx, expr.value)
    terms: list[Entity | ast.Slice | ast.NewAxis] = []
    poisoned = isinstance(owner, Poison)
    for index in expr.indices:
        if isinstance(index, (ast.Slice, ast.NewAxis)):
            terms.append(index)
        else:
            entity = evaluate(cx, index)
            poisoned |= isinstance(entity, Poison)
            terms.append(entity)
    if poisoned:
        return POISON
    spans = [i.span for i in expr.indices]
    match owner:
        case TensorRef():
            resolved = index_tensor(cx, owner, terms, spans)
            return POISON if resolved is None else load(cx, owner, resolved)
        case TupleOf(elements):
            number = (
                cx.static_number(cast(Entity, terms[0]), "a position") if len(terms) == 1 else None
            )
            if number is None:
                return POISON
            if not -len(elements) <= number < len(elements):
                return cx.error(
                    "E0319",
                    f"there is no position {number} in {describe(owner)}",
                    help=f"positions count from 0 to {len(elements) - 1}",
                )
            return elements[number]
        case Tile() | SpanTile():
            return index_value(cx, owner, terms)
        case _:
            return cx.error(
                "E0209", f"{describe(owner)} cannot be indexed", help="index a tensor or a tile"
            )
