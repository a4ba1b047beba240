"""Abstract syntax as readable text: an indented tree, one node a line, small ones inline."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tilec.syntax import ast

WIDTH = 100
"""Columns up to which a node is written on one line."""


def dump(node: ast.Node) -> str:
    """`node` as text that ends in a newline; the same for equal nodes."""
    return "\n".join(_lines(node, "", 0)) + "\n"


def _parts(node: ast.Node) -> list[tuple[str, Any]]:
    """The fields of `node` that say something, by name."""
    return [(f.name, getattr(node, f.name)) for f in fields(node) if f.compare and f.name != "span"]


def _inline(value: Any, budget: int) -> str | None:
    """`value` on one line of at most `budget` characters, or None."""
    if isinstance(value, ast.Kernel | ast.Fn | ast.Module | ast.For | ast.If):
        return None
    match value:
        case ast.Name():
            text = value.id
        case ast.Number() | ast.Boolean():
            text = str(value.value)
        case ast.String():
            text = _quoted(value.value)
        case ast.Node() | tuple():
            pieces: list[str] = []
            items = _parts(value) if isinstance(value, ast.Node) else [("", v) for v in value]
            left = budget - 2
            for name, part in items:
                piece = _inline(part, left)
                if piece is None:
                    return None
                piece = f"{name}={piece}" if name else piece
                left -= len(piece) + 2
                pieces.append(piece)
                if left < 0:
                    return None
            joined = ", ".join(pieces)
            text = (
                f"{type(value).__name__}({joined})"
                if isinstance(value, ast.Node)
                else f"[{joined}]"
            )
        case str():
            text = _quoted(value)
        case _:
            text = str(value)
    return text if len(text) <= budget else None


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
    return f'"{escaped}"'


def _lines(value: Any, label: str, depth: int) -> list[str]:
    """`value` over as many lines as it needs, `label` before the first."""
    indent = "  " * depth
    text = _inline(value, max(24, WIDTH - len(indent) - len(label)))
    if text is not None:
        return [f"{indent}{label}{text}"]
    if isinstance(value, tuple):
        out = [f"{indent}{label.rstrip()}"]
        for item in value:
            out += _lines(item, "", depth + 1)
        return out
    if not isinstance(value, ast.Node) or isinstance(value, ast.Name | ast.Number | ast.String):
        return [f"{indent}{label}{_inline(value, 1 << 30)}"]
    out = [f"{indent}{label}{type(value).__name__}"]
    for name, part in _parts(value):
        out += _lines(part, f"{name}: ", depth + 1)
    return out
