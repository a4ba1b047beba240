"""A call's arguments against the parameters that a kernel declares."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from tilec.calling.arguments import ArrayView, torch_name
from tilec.syntax import ast


def bind(
    syntax: ast.Kernel, arguments: tuple[Any, ...], named: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Any]]:
    """Arrays by parameter, and scalars and sizes by name. Raises TypeError."""
    kernel, params = syntax.name, syntax.params
    every = (*params, *syntax.outputs)
    tensors = {p.name for p in every if isinstance(p, ast.TensorParam)}
    if len(arguments) > len(params):
        raise TypeError(f"{kernel} takes {len(params)} arguments, and {len(arguments)} were given")
    given: dict[str, Any] = {p.name: a for p, a in zip(params, arguments, strict=False)}
    for name, value in named.items():
        if name in given:
            raise TypeError(f"{kernel} got `{name}` twice")
        given[name] = value
    for param in params:
        optional = isinstance(param, ast.ScalarParam) and param.default is not None
        if not optional and param.name not in given:
            raise TypeError(f"{kernel} needs `{param.name}`")
    known = {p.name for p in every} | _size_names(syntax)
    for name in given:
        if name not in known:
            listed = ", ".join(f"`{p.name}`" for p in every)
            raise TypeError(f"{kernel} has no parameter `{name}`; it has {listed}")
    arrays = {n: v for n, v in given.items() if n in tensors}
    return arrays, {n: _number(v) for n, v in given.items() if n not in tensors}


def deduced(
    syntax: ast.Kernel, defines: Mapping[str, str], views: Mapping[str, ArrayView]
) -> dict[str, str]:
    """Bracket parameters that stand alone as a dimension or a dtype of a tensor given, and have no value in `defines`."""
    open_names = {b.name for b in syntax.brackets} - set(defines)
    found: dict[str, str] = {}
    for param in (*syntax.params, *syntax.outputs):
        if not isinstance(param, ast.TensorParam) or param.name not in views:
            continue
        view = views[param.name]
        if param.dtype.id in open_names and not view.dtype.startswith("raw"):
            found.setdefault(param.dtype.id, view.dtype)
        if len(view.shape) != len(param.dims):
            continue
        for dim, extent in zip(param.dims, view.shape, strict=True):
            if isinstance(dim, ast.Name) and dim.id in open_names:
                found.setdefault(dim.id, str(int(extent)))
    return found


def define_text(value: Any) -> str:
    """The text of `-D NAME=…` for a Python value: a number, a bool, a dtype of tilec or PyTorch."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return torch_name(str(value))


def _size_names(syntax: ast.Kernel) -> set[str]:
    """Names in dims and strides that are no bracket parameters."""
    found: set[str] = set()
    for param in (*syntax.params, *syntax.outputs):
        if isinstance(param, ast.TensorParam):
            for dim in (*param.dims, *(param.strides or ())):
                found |= _names(dim)
    return found - {b.name for b in syntax.brackets}


def _names(expr: Any) -> set[str]:
    match expr:
        case ast.Name(name):
            return {name}
        case ast.Binary(_, left, right):
            return _names(left) | _names(right)
        case ast.Call(_, arguments):
            return set().union(*map(_names, arguments))
        case _:
            return set()


def _number(value: Any) -> Any:
    """A Python number; arrays of one element (NumPy scalars among them) are asked for theirs."""
    return value.item() if hasattr(value, "item") else value
