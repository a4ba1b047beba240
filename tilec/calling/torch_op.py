"""A kernel as an operator of PyTorch: `torch.compile` keeps it whole in a graph, and autograd differentiates it by another kernel or a
Python function.

    op = make_operator(softmax, softmax.syntax, "mine::softmax", backward=softmax_backward)

What a backward takes is found by name: the forward's inputs and outputs by theirs, the gradient of an output `y` as `dy`; what it
gives is `dx` for an input `x`.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tilec.ir.dtypes import DTYPES
from tilec.source.diagnostics import fail
from tilec.syntax import ast

if TYPE_CHECKING:
    from tilec.calling.kernel import Kernel

GRADIENT = "d"
"""What the name of a gradient begins with, in front of that of its tensor."""


def make_operator(
    kernel: Kernel,
    syntax: ast.Kernel,
    name: str,
    backward: Kernel | Callable[..., Any] | None = None,
) -> Any:
    """Register `namespace::name`. Its inputs are the kernel's in order; `inout` tensors are marked as written. A kernel given as
    `backward` is registered too, as `namespace::name_backward`. Raises TileError: E0714 for a scalar dtype without a PyTorch form, E0725
    for a backward that does not fit."""
    signature = schema(syntax)
    derived = None if backward is None else fit(syntax, backward)
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

    operator = torch.library.custom_op(name, run, mutates_args=written, schema=signature)
    operator.register_fake(shape)
    if derived is not None and backward is not None:
        _register_backward(operator, syntax, derived, _gradients(backward, derived, name))
    return operator


# ----------------------------------------------------------------------------------------- gradients


@dataclass(frozen=True)
class Fit:
    """How a backward fits a kernel: the names that it takes in order, and those of its results, () for a function."""

    takes: tuple[str, ...]
    gives: tuple[str, ...]


def fit(syntax: ast.Kernel, backward: Any) -> Fit:
    """The names by which a backward is called. Raises TileError (E0725) for a name that nothing in the kernel has."""
    written = [p.name for p in syntax.params if isinstance(p, ast.TensorParam) and p.inout]
    if written:
        raise fail(
            "E0725",
            f"`{syntax.name}` changes `{written[0]}` in place, so it has no backward",
            help="give the result as an output of its own",
        )
    tensors = [p.name for p in syntax.params if isinstance(p, ast.TensorParam)]
    outputs = [p.name for p in syntax.outputs]
    offered = {p.name for p in syntax.params} | set(outputs) | {GRADIENT + n for n in outputs}
    own = getattr(backward, "syntax", None)
    if isinstance(own, ast.Kernel):
        optional = {p.name for p in own.params if isinstance(p, ast.ScalarParam) and p.default}
        takes = [p.name for p in own.params if p.name in offered or p.name not in optional]
        gives = [p.name for p in own.outputs]
    else:
        takes, gives = _parameters(backward, sorted(offered)), []
    for name in takes:
        if name not in offered:
            known = ", ".join(f"`{n}`" for n in sorted(offered))
            raise fail(
                "E0725",
                f"the backward of `{syntax.name}` takes `{name}`, which is nothing of the kernel's",
                note=f"by name it can take {known}",
            )
    for name in gives:
        if name.removeprefix(GRADIENT) not in tensors or not name.startswith(GRADIENT):
            listed = ", ".join(f"`{GRADIENT}{n}`" for n in tensors)
            raise fail(
                "E0725",
                f"the backward of `{syntax.name}` gives `{name}`, which is the gradient of none of its inputs",
                note=f"gradients are named {listed}",
            )
    return Fit(tuple(takes), tuple(gives))


def _parameters(function: Callable[..., Any], offered: Sequence[str]) -> list[str]:
    """The names that a function takes, all that there are for one with `**keywords`."""
    found: list[str] = []
    for parameter in inspect.signature(function).parameters.values():
        if parameter.kind is inspect.Parameter.VAR_KEYWORD:
            return list(offered)
        if parameter.default is inspect.Parameter.empty or parameter.name in offered:
            found.append(parameter.name)
    return found


def _gradients(backward: Any, derived: Fit, name: str) -> Callable[..., Any]:
    """The backward as a function of keywords; a kernel as an operator, which the graph of the backward keeps whole too."""
    if not derived.gives:
        found: Callable[..., Any] = backward
        return found
    operator = make_operator(backward, backward.syntax, f"{name}_backward")
    order = [p.name for p in backward.syntax.params]

    def call(**known: Any) -> Mapping[str, Any]:
        made = operator(*(known[n] for n in order if n in known))
        results = made if len(derived.gives) > 1 else (made,)
        return dict(zip((g.removeprefix(GRADIENT) for g in derived.gives), results, strict=True))

    return call


def _register_backward(
    operator: Any, syntax: ast.Kernel, derived: Fit, gradients: Callable[..., Any]
) -> None:
    """Autograd of the operator: what the backward names is saved, its results go to the inputs of their names."""
    params = [p.name for p in syntax.params]
    tensors = [p.name for p in syntax.params if isinstance(p, ast.TensorParam)]
    outputs = [p.name for p in syntax.outputs]
    saved = [n for n in derived.takes if n in tensors or n in outputs]

    def remember(ctx: Any, inputs: Any, output: Any) -> None:
        results = output if len(outputs) > 1 else (output,)
        known = {
            **dict(zip(params, inputs, strict=False)),
            **dict(zip(outputs, results, strict=True)),
        }
        ctx.save_for_backward(*(known[n] for n in saved))
        ctx.scalars = {n: v for n, v in known.items() if n in derived.takes and n not in saved}

    def differentiate(ctx: Any, *incoming: Any) -> Any:
        known = {**dict(zip(saved, ctx.saved_tensors, strict=True)), **ctx.scalars}
        for output, gradient in zip(outputs, incoming, strict=True):
            # autograd makes gradients with strides of 0; kernels take dense tensors
            known[GRADIENT + output] = None if gradient is None else gradient.contiguous()
        found = gradients(**{n: known[n] for n in derived.takes})
        by_name = _by_input(found, tensors)
        return tuple(by_name.get(n) for n in params)

    operator.register_autograd(differentiate, setup_context=remember)


def _by_input(found: Any, tensors: Sequence[str]) -> Mapping[str, Any]:
    """What a backward gave, by input. Raises TypeError for a tuple of another length than there are tensor inputs."""
    if isinstance(found, Mapping):
        return {
            name.removeprefix(GRADIENT) if name not in tensors else name: g
            for name, g in found.items()
        }
    several = found if isinstance(found, tuple | list) else (found,)
    if len(several) != len(tensors):
        raise TypeError(
            f"the backward gave {len(several)} gradients for the {len(tensors)} tensors {', '.join(tensors)}"
        )
    return dict(zip(tensors, several, strict=True))


# -------------------------------------------------------------------------------------------- schema


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
