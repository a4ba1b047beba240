"""No two modules import each other, at their top or in a function, over however many others. Imports for types alone do not count."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def imported(tree: ast.AST) -> Iterator[str]:
    """The names of modules, and of what is imported from them as if it were one."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif not isinstance(node, ast.expr):
            yield from imported(node)


def test_imports_have_no_circles() -> None:
    paths = [p for p in sorted((ROOT / "tilec").rglob("*.py")) if p.name != "__init__.py"]
    modules = {".".join(p.relative_to(ROOT).with_suffix("").parts): p for p in paths}
    graph = {m: set(imported(ast.parse(p.read_text()))) & set(modules) for m, p in modules.items()}
    assert sum(map(len, graph.values())) > len(graph)
    TopologicalSorter(graph).prepare()  # raises CycleError, which names them
