"""Names in code that a compile-time condition leaves out: it is not typed, but a name that exists nowhere is a mistake there too."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import fields

from tilec.analysis.context import Context
from tilec.analysis.foreign import unknown_name
from tilec.analysis.functions import FUNCTIONS
from tilec.ir.dtypes import DTYPES
from tilec.syntax import ast

KNOWN = frozenset((*DTYPES, *FUNCTIONS, "inf", "nan", "tf32"))
"""Names that mean something everywhere."""


def check_names(cx: Context, code: ast.Expr | Iterable[ast.Stmt]) -> None:
    """Report E0201 for each name that nothing in scope, in the file or anywhere in this declaration binds."""
    nodes = list(_nodes(code if isinstance(code, ast.Node) else tuple(code)))
    file = cx.files.scope(cx.scope.home)
    for node in nodes:
        if not isinstance(node, ast.Name) or node.id in KNOWN or node.id in file:
            continue
        if node.id in cx.scope.bound_somewhere or cx.scope.find(node.id) is not None:
            continue
        cx.error(
            "E0201",
            f"the name `{node.id}` is not known here",
            node.span,
            help=unknown_name(node.id, [*cx.scope.visible(), *file, *sorted(KNOWN)]),
        )


def bound_names(statements: Iterable[ast.Stmt]) -> frozenset[str]:
    """All names that assignments and loops of these statements bind, wherever they stand."""
    found: set[str] = set()
    for node in _nodes(tuple(statements)):
        match node:
            case ast.Assign(ast.Name(name)) | ast.AugAssign(_, ast.Name(name)):
                found.add(name)
            case ast.Assign(ast.TupleExpr(targets)) | ast.For(targets):
                found.update(t.id for t in targets if isinstance(t, ast.Name))
    return frozenset(found)


def _nodes(node: object) -> Iterator[ast.Node]:
    if isinstance(node, tuple):
        for part in node:
            yield from _nodes(part)
    elif isinstance(node, ast.Node):
        yield node
        for field in fields(node):
            if field.name != "span":
                yield from _nodes(getattr(node, field.name))
