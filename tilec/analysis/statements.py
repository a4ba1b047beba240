"""Statements: bindings, stores, branches on scalars, calls of the user's functions."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from tilec.analysis.access import Resolved, index_tensor
from tilec.analysis.context import Context
from tilec.analysis.entities import (
    POISON,
    Entity,
    Integer,
    Known,
    Poison,
    SpanTile,
    TensorRef,
    Tile,
    TupleOf,
    describe,
    describe_type,
)
from tilec.analysis.expressions import evaluate
from tilec.analysis.loops import run_range, run_unroll
from tilec.analysis.merging import run_if
from tilec.analysis.operators import binary, condition_value, product, truth
from tilec.analysis.scopes import Scope
from tilec.analysis.typing_rules import aligned, strong_dtype
from tilec.analysis.untaken import bound_names, check_names
from tilec.ir.dtypes import DType
from tilec.ir.tile_ir import (
    Assert,
    Atomic,
    Axis,
    Load,
    Print,
    Store,
    TileType,
    Value,
)
from tilec.source.diagnostics import Label
from tilec.source.text import Span
from tilec.syntax import ast

INLINE_LIMIT = 20_000
"""Calls expanded in one kernel."""

_ATOMICS: dict[str, Literal["add", "max", "min"]] = {
    "atomic_add": "add",
    "atomic_max": "max",
    "atomic_min": "min",
}


def execute(cx: Context, statements: Iterable[ast.Stmt]) -> None:
    """Run statements in the current scope and block."""
    for statement in statements:
        with cx.at(statement.span):
            _execute_one(cx, statement)


def _execute_one(cx: Context, statement: ast.Stmt) -> None:
    match statement:
        case ast.Assign(ast.Name() as name, value):
            bind_name(cx, name, evaluate(cx, value))
        case ast.Assign(ast.TupleExpr(targets), value):
            _unpack(cx, targets, evaluate(cx, value))
        case ast.Assign(ast.Index() as target, value):
            _store(cx, target, evaluate(cx, value))
        case ast.Assign():
            cx.error("E0224", "this is nothing to assign to")
        case ast.AugAssign(op, ast.Name() as name, value):
            expression = ast.Binary(op, name, value, span=statement.span)
            bind_name(cx, name, evaluate(cx, expression))
        case ast.AugAssign(op, ast.Index() as target, value):
            _update(cx, op, target, value)
        case ast.AugAssign():
            cx.error("E0224", "this is nothing to assign to")
        case ast.For(_, "parallel"):
            cx.error(
                "E0213",
                "`parallel` is a statement of the kernel's top level",
                help="name all grid loops in one: `for i, j in parallel(M by BM, N by BN)`; inside use `range`",
            )
        case ast.For(_, "range"):
            run_range(cx, statement, execute)
        case ast.For():
            run_unroll(cx, statement, execute)
        case ast.If(condition, then, otherwise):
            entity = evaluate(cx, condition)
            known = truth(cx, entity)
            if known is not None:
                check_names(cx, otherwise if known else then)
                execute(cx, then if known else otherwise)
                return
            with cx.at(condition.span):
                chosen = condition_value(cx, entity)
            run_if(cx, chosen, statement, execute)
        case ast.Assert(condition, message):
            entity = evaluate(cx, condition)
            known = truth(cx, entity)
            if known:
                return
            if known is False:
                cx.error("E0219", f"the assertion is false: {message or condition.span.text}")
                return
            with cx.at(condition.span):
                holds = condition_value(cx, entity)
            if holds is not None:
                cx.add(Assert(span=cx.span, condition=holds, message=message))
        case ast.Print(arguments):
            _print(cx, arguments)
        case ast.ExprStmt(value):
            _effect(cx, value)
        case ast.Return():
            cx.error(
                "E0224", "`return` belongs at the end of a `fn`", help="store the value: `o[i] = …`"
            )


def bind_name(cx: Context, name: ast.Name, entity: Entity) -> None:
    """`name = entity`, with the checks of what may be bound."""
    binding = cx.scope.find(name.id)
    if binding is not None and binding.kind != "local":
        what = {"span": "loop variable", "dimension": "dimension", "parameter": "parameter"}
        cx.error(
            "E0203",
            f"`{name.id}` is a {what[binding.kind]} and is not bound again",
            name.span,
            secondary=(Label(binding.span, "declared here"),) if binding.span else (),
            help="choose another name",
        )
        cx.scope.bind(name.id, POISON, binding.kind, binding.span)
        return
    if (isinstance(entity, TensorRef) and entity.at) or not isinstance(
        entity, (Known, Integer, Tile, SpanTile, TensorRef, TupleOf, Poison)
    ):
        entity = cx.not_a_value(entity)
    entity = cx.name_value(entity, name.id)
    cx.scope.bind(name.id, entity, span=name.span)


def _unpack(cx: Context, targets: tuple[ast.Expr, ...], entity: Entity) -> None:
    elements: tuple[Entity, ...] = (POISON,) * len(targets)
    if isinstance(entity, TupleOf) and len(entity.elements) == len(targets):
        elements = entity.elements
    elif not isinstance(entity, Poison):
        cx.error(
            "E0207",
            f"{describe(entity)} is unpacked into {len(targets)} names",
            help="the counts must be equal"
            if isinstance(entity, TupleOf)
            else "only a tuple can be unpacked",
        )
    for target, element in zip(targets, elements, strict=True):
        if isinstance(target, ast.Name):
            bind_name(cx, target, element)
        else:
            cx.error("E0224", "only names can be unpacked into", target.span)


def _target(cx: Context, target: ast.Index, what: str) -> tuple[TensorRef, Resolved] | None:
    """The tensor and the place of a store; None after a message."""
    with cx.at(target.span):
        owner = evaluate(cx, target.value)
        terms: list[Entity | ast.Slice | ast.NewAxis] = []
        bad = isinstance(owner, Poison)
        for index in target.indices:
            if isinstance(index, (ast.Slice, ast.NewAxis)):
                terms.append(index)
            else:
                entity = evaluate(cx, index)
                bad |= isinstance(entity, Poison)
                terms.append(entity)
        if isinstance(owner, TensorRef):
            cx.stored.add(owner.name)
        if bad:
            return None
        if not isinstance(owner, TensorRef):
            cx.error(
                "E0224",
                f"{describe(owner)} is not stored to",
                help="elements of a tile do not change; build a new tile with `where`",
            )
            return None
        if cx.tensors[owner.name].role == "input":
            cx.error(
                "E0210",
                f"the input `{owner.name}` is {what}",
                help=f"declare it `inout {owner.name}: …`, or name it among the outputs",
            )
            return None
        resolved = index_tensor(cx, owner, terms, [i.span for i in target.indices])
        return None if resolved is None else (owner, resolved)


def _store(cx: Context, target: ast.Index, entity: Entity) -> None:
    place = _target(cx, target, "written")
    if place is None or isinstance(entity, Poison):
        return
    tensor, resolved = place
    value = stored_value(cx, tensor.dtype, resolved.axes, entity, tensor.name)
    if value is not None:
        cx.add(Store(span=cx.span, access=resolved.access, value=value))


def _turned(shape: tuple[Axis, ...], axes: tuple[Axis, ...]) -> str:
    """The help where a tile lies across the block that it is stored to, or nothing."""
    across = [a.extent for a in reversed(shape)] == [a.extent for a in axes]
    return "`.T` swaps its axes" if across else ""


def stored_value(
    cx: Context, dtype: DType, axes: tuple[Axis, ...], entity: Entity, name: str
) -> Value | None:
    """The value as a store takes it: the tensor's dtype, the access' rank; None after a message."""
    strong = strong_dtype(entity)
    if strong is not None and strong != dtype and not (strong.is_float and dtype.is_float):
        cx.error(
            "E0310",
            f"`{strong}` is stored to `{name}`, which is `{dtype}`",
            help=f"convert with `.to({dtype})`; only floats are rounded by a store",
        )
        return None
    if (
        isinstance(entity, Tile)
        and entity.weak
        and entity.type.dtype.is_float
        and not dtype.is_float
    ):
        cx.error(
            "E0310",
            f"a float is stored to `{name}`, which is `{dtype}`",
            help=f"convert with `.to({dtype})`",
        )
        return None
    value = cx.materialise(entity, dtype)
    if value is None:
        return None
    shape = value.type.axes
    fits = len(shape) <= len(axes) and all(
        v.extent == a.extent or v.is_one
        for v, a in zip(reversed(shape), reversed(axes), strict=False)
    )
    if not fits:
        place = f"[{', '.join(str(a.extent) for a in axes)}]" if axes else "one element"
        cx.error(
            "E0309",
            f"{describe_type(value.type)} does not fit the block of `{name}`, which is {place}",
            help=_turned(shape, axes)
            or "a store takes the block's shape, an axis of extent 1, or a scalar",
        )
        return None
    value = cx.cast(value, dtype)
    return aligned(cx, value, len(axes))


def _update(cx: Context, op: str, target: ast.Index, value: ast.Expr) -> None:
    """`t[i, j] op= e`."""
    place = _target(cx, target, "written")
    if place is None:
        evaluate(cx, value)
        return
    tensor, resolved = place
    type_ = TileType(tensor.dtype, resolved.axes)
    with cx.at(target.span):
        old = Tile(cx.emit(Load(access=resolved.access), type_))
    if op == "+" and isinstance(value, ast.Binary) and value.op == "@":
        new = product(cx, evaluate(cx, value.left), evaluate(cx, value.right), old)
    else:
        new = binary(cx, op, old, evaluate(cx, value))
    if isinstance(new, Poison):
        return
    stored = stored_value(cx, tensor.dtype, resolved.axes, new, tensor.name)
    if stored is not None:
        cx.add(Store(span=cx.span, access=resolved.access, value=stored))


def _print(cx: Context, arguments: tuple[ast.Expr, ...]) -> None:
    parts: list[str | Value] = []
    for argument in arguments:
        if isinstance(argument, ast.String):
            parts.append(argument.value)
            continue
        with cx.at(argument.span):
            entity = evaluate(cx, argument)
            value = cx.materialise(entity, None)
            if value is None:
                continue
            if value.type.axes:
                cx.error(
                    "E0311",
                    f"`print` takes strings and scalars, not {describe(entity)}",
                    help="reduce it: `print(max(x))`",
                )
                continue
        parts.append(value)
    cx.add(Print(span=cx.span, parts=tuple(parts)))


def _effect(cx: Context, expr: ast.Expr) -> None:
    """A call for its effect."""
    if isinstance(expr, ast.Call) and isinstance(expr.function, ast.Name):
        op = _ATOMICS.get(expr.function.id)
        if op is not None and cx.scope.find(expr.function.id) is None:
            _atomic(cx, op, expr)
            return
    entity = evaluate(cx, expr)
    if not isinstance(entity, Poison):
        cx.error(
            "E0224",
            f"{describe(entity)} is computed and dropped",
            help="bind it to a name or store it",
        )


def _atomic(cx: Context, op: Literal["add", "max", "min"], call: ast.Call) -> None:
    if len(call.arguments) != 2 or call.keywords or not isinstance(call.arguments[0], ast.Index):
        cx.error(
            "E0207",
            f"`atomic_{op}` takes a place and a value",
            help=f"write `atomic_{op}(t[i, j], e)`",
        )
        return
    place = _target(cx, call.arguments[0], "written")
    entity = evaluate(cx, call.arguments[1])
    if place is None or isinstance(entity, Poison):
        return
    tensor, resolved = place
    if tensor.dtype.bits < 16 or tensor.dtype.kind == "bool":
        cx.error(
            "E0320",
            f"`atomic_{op}` on `{tensor.dtype}`",
            help="atomics are for dtypes of 16, 32 and 64 bits",
        )
        return
    value = stored_value(cx, tensor.dtype, resolved.axes, entity, tensor.name)
    if value is not None:
        cx.add(Atomic(span=cx.span, op=op, access=resolved.access, value=value))


def inline(
    cx: Context, fn: ast.Fn, home: ast.Module, arguments: list[Entity], span: Span
) -> Entity:
    """Expand a call of a user's function; POISON after a message."""
    if any(isinstance(a, Poison) for a in arguments):
        return POISON
    if any(f is fn for f in cx.calls):
        start = next(n for n, f in enumerate(cx.calls) if f is fn)
        cycle = [f.name for f in cx.calls[start:]] + [fn.name]
        return cx.error(
            "E0206",
            f"the fn `{fn.name}` calls itself",
            span,
            note=f"the cycle is {' → '.join(f'`{n}`' for n in cycle)}",
            help="write a loop; a `fn` is expanded where it is called",
        )
    if len(arguments) != len(fn.params):
        return cx.error(
            "E0207",
            f"`{fn.name}` takes {len(fn.params)} arguments, not {len(arguments)}",
            span,
            secondary=(Label(fn.params[0].span.to(fn.params[-1].span), "its parameters"),)
            if fn.params
            else (),
        )
    cx.inlined += 1
    if cx.inlined > INLINE_LIMIT:
        return cx.error(
            "E0502", f"more than {INLINE_LIMIT} calls are expanded in this kernel", span
        )
    caller = cx.scope
    cx.scope = Scope(home, bound_somewhere=bound_names(fn.body))
    for number, parameter in enumerate(fn.params):
        if parameter.id in [p.id for p in fn.params[:number]]:
            cx.error(
                "E0202",
                f"`{parameter.id}` is declared twice",
                parameter.span,
                help="rename one of them",
            )
    for parameter, argument in zip(fn.params, arguments, strict=True):
        cx.scope.declare(parameter.id, argument, "parameter", parameter.span)
    cx.calls.append(fn)
    cx.call_spans.append(span)
    try:
        *statements, last = fn.body
        execute(cx, statements)
        assert isinstance(last, ast.Return), "the grammar ends a fn with `return`"
        return evaluate(cx, last.value)
    finally:
        cx.calls.pop()
        cx.call_spans.pop()
        cx.scope = caller
