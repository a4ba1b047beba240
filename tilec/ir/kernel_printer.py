"""Kernel IR as readable text: one op a line, nested by indentation."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import DType
from tilec.ir.symbolic import Sym

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "and",
    "or": "or", "offset": "*", "offset_add": "+", "offset_sub": "-",
}  # fmt: skip


def print_kernel(kernel: k.Kernel) -> str:
    """The kernel with its configuration, storage and body."""
    lines = [
        f"kernel {kernel.name} threads {kernel.threads} resident {kernel.blocks_per_sm} instances {kernel.batch}"
    ]
    for name, dtype, written in kernel.tensors:
        lines.append(f"  {'out' if written else 'in'} {name} {dtype}")
    for axis in kernel.axes:
        layout = axis.layout
        steps = "walked" if layout.streams else str(layout.steps)
        lines.append(
            f"  axis {axis.name} extent {axis.extent} steps {steps} threads {layout.threads} width {layout.vector}"
        )
    for buffer in kernel.shared:
        lines.append(f"  shared {buffer.name} {buffer.rep}[{buffer.count}]  # {buffer.purpose}")
    lines.append("  grid " + ", ".join(_digit(d) for d in kernel.grid))
    lines += _block(kernel.body, "  ")
    return "\n".join(lines) + "\n"


def _digit(digit: k.GridDigit) -> str:
    how = " backwards" if digit.backwards else f" swept {digit.swept}" if digit.swept > 1 else ""
    return f"{digit.name} < {digit.trips}{how}"


def print_expr(expr: k.Expr) -> str:
    """An expression."""
    match expr:
        case k.Local():
            return expr.name
        case k.Literal_():
            return str(expr.value).lower() if isinstance(expr.value, bool) else str(expr.value)
        case k.Index():
            return f"({expr.sym})" if len(expr.sym.terms) > 1 else str(expr.sym)
        case k.Element():
            return expr.fragment.name
        case k.Memory():
            text = f"{expr.pointer}[{print_expr(expr.offset)}]"
            return f"({text} if {_conjunction(expr.guards)} else 0)" if expr.guards else text
        case k.SharedElement():
            return f"shared.{expr.buffer}[{print_expr(expr.offset)}]"
        case k.Identity():
            return f"identity.{expr.op}"
        case k.LaneReduce():
            return f"lane_reduce.{expr.op}({print_expr(expr.arg)}, lanes {expr.lanes}, stride {expr.stride})"
        case k.WarpCombine():
            return f"combine.{expr.op}(shared.{expr.buffer}[{print_expr(expr.offset)}], {print_expr(expr.count)})"
        case k.Apply():
            args = [print_expr(a) for a in expr.args]
            if expr.op in _INFIX and len(args) == 2:
                return f"({args[0]} {_INFIX[expr.op]} {args[1]})"
            suffix = f".{expr.rep}" if expr.op in ("convert", "bitcast") else ""
            return f"{expr.op}{suffix}({', '.join(args)})"


def _conjunction(guards: tuple[k.Expr, ...]) -> str:
    return " and ".join(map(print_expr, guards))


def _block(ops: tuple[k.Op, ...], margin: str) -> list[str]:
    lines: list[str] = []
    for op in ops:
        name = type(op).__name__
        inner: list[tuple[str, tuple[k.Op, ...]]] = []
        parts: list[str] = []
        for field in fields(op):
            value: Any = getattr(op, field.name)
            if field.name == "span":
                continue
            if isinstance(value, tuple) and value and isinstance(value[0], k.Op):
                inner.append((field.name, value))
            else:
                text = _field(field.name, value)
                if text:
                    parts.append(text)
        lines.append(f"{margin}{name} {' '.join(parts)}".rstrip())
        for label, body in inner:
            if label == "otherwise":
                lines.append(f"{margin}else")
            lines += _block(body, margin + "  ")
    return lines


def _field(name: str, value: Any) -> str:
    if value is None or value == () or value is False:
        return ""
    if isinstance(value, k.Fragment):
        axes = ", ".join(a.name for a in value.axes)
        return f"{value.name}<{value.rep}; {axes}>" if axes else f"{value.name}<{value.rep}>"
    if name == "guards":
        return f"guard {_conjunction(value)}"
    if name == "axes":
        return ", ".join(a.name for a in value)
    if value is True:
        return name
    if isinstance(value, str | DType | Sym):
        return str(value)
    if isinstance(value, tuple):
        return ", ".join(v if isinstance(v, str) else print_expr(v) for v in value)
    return (
        f"{name} {print_expr(value)}"
        if name in ("offset", "count", "initial")
        else f"= {print_expr(value)}"
    )
