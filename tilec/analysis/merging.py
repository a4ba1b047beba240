"""Branches on run-time scalars: a name that both branches bind is one value after them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from tilec.analysis.context import Context
from tilec.analysis.entities import (
    POISON,
    Entity,
    Integer,
    Known,
    Poison,
    Tile,
    TupleOf,
    describe,
)
from tilec.analysis.scopes import Binding
from tilec.analysis.typing_rules import unify
from tilec.ir.tile_ir import Block, If, Merge, Op, Value
from tilec.syntax import ast

Execute = Callable[[Context, Iterable[ast.Stmt]], None]


def assigned_names(statements: Iterable[ast.Stmt]) -> list[str]:
    """Names that the statements bind, nested ones included, in order of appearance."""
    return list(dict.fromkeys(_assigned(statements)))


def _assigned(statements: Iterable[ast.Stmt]) -> Iterator[str]:
    for statement in statements:
        match statement:
            case ast.Assign(ast.Name(name)) | ast.AugAssign(_, ast.Name(name)):
                yield name
            case ast.Assign(ast.TupleExpr(elements)):
                yield from (e.id for e in elements if isinstance(e, ast.Name))
            case ast.For(body=body):
                yield from _assigned(body)
            case ast.If(_, then, otherwise):
                yield from _assigned(then)
                yield from _assigned(otherwise)


def run_if(cx: Context, condition: Value | None, statement: ast.If, execute: Execute) -> None:
    """An If on a run-time scalar; a condition of None has its message already, the branches are checked all the same."""
    before = [dict(f) for f in cx.scope.frames]
    branches: list[tuple[list[Op], list[dict[str, Binding]], dict[str, Binding]]] = []
    for body in (statement.then, statement.otherwise):
        cx.scope.frames = [dict(f) for f in before]
        with cx.block() as ops:
            cx.scope.enter()
            execute(cx, body)
            own = cx.scope.leave("branch")
        branches.append((ops, cx.scope.frames, own))
    cx.scope.frames = before
    (then_ops, then_frames, then_own), (else_ops, else_frames, else_own) = branches
    merges: list[Merge] = []
    for depth, frame in enumerate(before):
        for name, binding in list(frame.items()):
            a, b = then_frames[depth][name].entity, else_frames[depth][name].entity
            if a is b:
                binding = then_frames[depth][name]
            else:
                merged = _merge(cx, name, a, b, then_ops, else_ops, merges)
                binding = Binding(merged, binding.kind, binding.span)
            frame[name] = binding
    for name, binding in then_own.items():
        if name in else_own:
            merged = _merge(
                cx, name, binding.entity, else_own[name].entity, then_ops, else_ops, merges
            )
            cx.scope.declare(name, merged, "local", binding.span)
    if condition is None:
        return
    cx.add(
        If(
            outs=tuple(m.result for m in merges),
            span=cx.span,
            condition=condition,
            then=Block(tuple(then_ops)),
            otherwise=Block(tuple(else_ops)),
            merges=tuple(merges),
        )
    )


def _merge(
    cx: Context,
    name: str,
    then: Entity,
    otherwise: Entity,
    then_ops: list[Op],
    else_ops: list[Op],
    merges: list[Merge],
) -> Entity:
    """One entity for both branches; POISON after a message."""
    if isinstance(then, Poison) or isinstance(otherwise, Poison):
        return POISON
    if then == otherwise and not isinstance(then, Tile):
        return then
    if (
        isinstance(then, TupleOf)
        and isinstance(otherwise, TupleOf)
        and len(then.elements) == len(otherwise.elements)
    ):
        return TupleOf(
            tuple(
                _merge(cx, f"{name}.{n}", a, b, then_ops, else_ops, merges)
                for n, (a, b) in enumerate(zip(then.elements, otherwise.elements, strict=True))
            )
        )
    scalars = (Known, Integer, Tile)
    if not isinstance(then, scalars) or not isinstance(otherwise, scalars):
        return cx.error(
            "E0405",
            f"`{name}` is {describe(then)} in one branch and {describe(otherwise)} in the other",
            help="bind values of one type, or decide with a compile-time condition",
        )
    agreed = unify(cx, (then, otherwise), f"{name} = …")
    if agreed is None:
        return POISON
    values: list[Value] = []
    for entity, ops in ((then, then_ops), (otherwise, else_ops)):
        cx.blocks.append(ops)
        value = cx.materialise(entity, agreed[0])
        cx.blocks.pop()
        if value is None:
            return POISON
        values.append(value)
    if values[0].type != values[1].type:
        return cx.error(
            "E0405",
            f"`{name}` is {describe(then)} in one branch and {describe(otherwise)} in the other"
            if [a.extent for a in values[0].type.axes] != [a.extent for a in values[1].type.axes]
            or values[0].type.dtype != values[1].type.dtype
            else f"`{name}` can be absent in one branch where it is present in the other",
            help="bind values of one type and extent in both; `.fill(0)` makes a tile present",
        )
    result = cx.new_value(values[0].type, name)
    merges.append(Merge(values[0], values[1], result))
    return Tile(result, agreed[1])
