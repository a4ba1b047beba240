"""Walking Kernel IR: the operations and expressions inside one, and what they name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tilec.ir.dtypes import DType
from tilec.ir.kernel_ir import Local, LoopAxis
from tilec.ir.symbolic import Sym, Var

_NAMES: dict[type, tuple[str, ...]] = {}


_WHOLE = (Sym, LoopAxis, DType)
"""What has no operations or expressions in it."""


def part_names(node: object) -> tuple[str, ...]:
    """The fields of a node but its place in the source; none of what has no operations or expressions in it."""
    kind = type(node)
    names = _NAMES.get(kind)
    if names is None:
        found = fields(kind) if is_dataclass(kind) and kind not in _WHOLE else ()
        names = _NAMES[kind] = tuple(f.name for f in found if f.name != "span")
    return names


def inside(node: Any) -> Iterator[Any]:
    """A node and all in it, an outer one before its inner ones."""
    pending = [node]
    while pending:
        node = pending.pop()
        kind = node.__class__
        if kind is tuple or kind is list:
            pending.extend(reversed(node))
            continue
        yield node
        for name in reversed(part_names(node)):
            pending.append(getattr(node, name))


def substituted(node: Any, known: Mapping[Var, Sym]) -> Any:
    """A node with other integers for variables, everywhere in it."""
    if isinstance(node, tuple):
        return tuple(substituted(part, known) for part in node)
    if isinstance(node, Sym):
        return node.substitute(known.get)
    changed = {}
    for name in part_names(node):
        old = getattr(node, name)
        new = substituted(old, known)
        if new != old:
            changed[name] = new
    return replace(node, **changed) if changed else node


def mentions(node: object, local: str) -> bool:
    """Whether an operation or expression, or one inside it, reads the local variable."""
    return any(isinstance(part, Local) and part.name == local for part in inside(node))


def follows(node: object, axis: LoopAxis) -> bool:
    """Whether an operation or expression, or one inside it, depends on the coordinate along an axis."""
    names = (axis.coordinate, axis.element, axis.step)
    return any(_is_one_of(part, names) for part in inside(node))


def _is_one_of(part: object, names: tuple[str, ...]) -> bool:
    if isinstance(part, Sym):
        return any(_is_one_of(v, names) for v in part.variables)
    return isinstance(part, Var) and part.kind == "local" and part.name in names
