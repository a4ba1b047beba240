"""A kernel as an operator of PyTorch, so that `torch.compile` traces through a call of it without a break."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tilec.ir.dtypes import DTYPES
from tilec.source.diagnostics import fail
from tilec.syntax import ast

if TYPE_CHECKING:
    from tilec.calling.kernel import Kernel


def make_operator(kernel: Kernel, syntax: ast.Kernel, name: str) -> Any:
    """Register `namespace::name`. Its inputs are the kernel's in order; `inout` tensors are marked as written."""
    import torch

    params = syntax.params
    names = [p.name for p in params]
    written = tuple(p.name for p in params if isinstance(p, ast.TensorParam) and p.inout)
    several = len(syntax.outputs) > 1

    def run(*arguments: Any) -> Any:
        return kernel(**dict(zip(names, arguments, strict=False)))

    def shape(*arguments: Any) -> Any:
        given = dict(zip(names, arguments, strict=False))
        tensors = {n: a for n, a in given.items() if isinstance(a, torch.Tensor)}
        scalars = {n: a for n, a in given.items() if n not in tensors}
        made = kernel.shaped(tensors, scalars)
        return made if several else made[0] if made else None

    operator = torch.library.custom_op(name, run, mutates_args=written, schema=schema(syntax))
    operator.register_fake(shape)
    return operator


def schema(syntax: ast.Kernel) -> str:
    """PyTorch's signature of a kernel: `(Tensor x, float eps=1e-5) -> Tensor`."""
    parts = []
    for number, param in enumerate(syntax.params):
        if isinstance(param, ast.TensorParam):
            kind = f"Tensor(a{number}!)" if param.inout else "Tensor"
            parts.append(f"{kind} {param.name}")
        else:
            parts.append(_scalar(param))
    outputs = ", ".join(["Tensor"] * len(syntax.outputs))
    result = outputs if len(syntax.outputs) == 1 else f"({outputs})"
    return f"({', '.join(parts)}) -> {result}"


def _scalar(param: ast.ScalarParam) -> str:
    dtype = DTYPES.get(param.dtype.id)
    if dtype is None:
        raise fail(
            "E0714",
            f"`{param.name}: {param.dtype.id}` has no form in an operator of PyTorch",
            help="declare the scalar with a dtype, not with a bracket parameter",
        )
    kind = "bool" if dtype.kind == "bool" else "float" if dtype.is_float else "int"
    match param.default:
        case ast.Number(value):
            return f"{kind} {param.name}={float(value) if kind == 'float' else value}"
        case ast.Boolean(value):
            return f"bool {param.name}={value}"
        case _:
            return f"{kind} {param.name}"
