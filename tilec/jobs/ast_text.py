"""Abstract syntax as text: one node a line, with its place."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tilec.syntax.ast import Module, Node


def ast_text(module: Module) -> str:
    """All declarations of a file. Comments are left out; a field that holds nothing is too.

    const @1:1 name='N' becomes `Const 1:1 name='N'`, its parts indented below it under their field's name.
    """
    lines: list[str] = []
    for item in module.items:
        _node(item, "", 0, lines)
    return "\n".join(lines) + "\n"


def _node(node: Node, name: str, depth: int, lines: list[str]) -> None:
    line, column = node.span.source.location(node.span.start)
    words = [f"{name}: " if name else "", type(node).__name__, f" {line}:{column}"]
    below: list[tuple[str, Any]] = []
    for entry in fields(node):
        value = getattr(node, entry.name)
        if entry.name == "span" or entry.name.endswith("_span") or value in (None, (), ""):
            continue
        if _holds_nodes(value):
            below.append((entry.name, value))
        else:
            words.append(f" {entry.name}={value!r}")
    lines.append("  " * depth + "".join(words))
    for field_name, value in below:
        parts = value if isinstance(value, tuple) else (value,)
        for part in parts:
            if isinstance(part, Node):
                _node(part, field_name, depth + 1, lines)
            else:
                lines.append("  " * (depth + 1) + f"{field_name}: {part!r}")


def _holds_nodes(value: Any) -> bool:
    return isinstance(value, Node) or (
        isinstance(value, tuple) and any(isinstance(part, Node) for part in value)
    )
