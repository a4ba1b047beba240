"""Kernel IR as readable text: one op a line, nested by indentation."""

from __future__ import annotations

from dataclasses import fields
from typing import Any, get_args

from tilec.ir import kernel_ir as k
from tilec.ir.asynchronous import PanelBuffer, RowsAnywhere
from tilec.ir.dtypes import DType
from tilec.ir.kernel_wmma import Sums
from tilec.ir.launch import TensorMapArgument
from tilec.ir.symbolic import Sym, Var
from tilec.source.text import NOWHERE, Span

_INFIX = {
    "add": "+", "sub": "-", "mul": "*", "div": "/", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "eq": "==", "ne": "!=", "and": "and",
    "or": "or", "offset": "*", "offset_add": "+", "offset_sub": "-",
}  # fmt: skip


_LABELS = {"otherwise": "else", "producer": "producer", "consumer": "consumer", "ahead": "ahead"}
"""Blocks of an op that are announced."""


def print_kernel(kernel: k.Kernel) -> str:
    """The kernel with its configuration, storage and body."""
    return "".join(f"{text}\n" for text, _ in kernel_lines(kernel))


def kernel_lines(kernel: k.Kernel) -> list[tuple[str, Span]]:
    """The lines of that text, each with the place in the source that its op is from."""
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
    for argument in kernel.arguments:
        if isinstance(argument, TensorMapArgument):
            box = " x ".join(map(str, reversed(argument.box)))
            lines.append(
                f"  map {argument.name} of {argument.tensor} box {box} swizzle {argument.swizzle}"
            )
    lines += [_tile(tile) for tile in kernel.panels]
    lines += [_tile(tile) for tile in kernel.tiles]
    for barrier in kernel.barriers:
        lines.append(f"  barrier {barrier.name} slots {barrier.slots} arrivals {barrier.arrivals}")
    for buffer in kernel.shared:
        lines.append(f"  shared {buffer.name} {buffer.rep}[{buffer.count}]  # {buffer.purpose}")
    together = f"  # clusters of {kernel.cluster}" if kernel.cluster > 1 else ""
    if kernel.cluster_digit:
        together += f" along {kernel.cluster_digit}"
    if kernel.early:
        together += "  # early"
    lines.append("  grid " + ", ".join(_digit(d) for d in kernel.grid) + together)
    return [*((text, NOWHERE) for text in lines), *_block(kernel.body, "  ")]


def _tile(tile: PanelBuffer | k.TileBuffer) -> str:
    slots = f" slots {tile.slots}" if tile.slots > 1 else ""
    return f"  tile {tile.name} {tile.rep}[{tile.rows}, {tile.cols}]{slots}"


def _digit(digit: k.GridDigit) -> str:
    how = " backwards" if digit.backwards else " uneven" if digit.uneven else ""
    how += f" swept {digit.swept}" if digit.swept > 1 else ""
    how += f" sections of {digit.section}" if digit.section else ""
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
            form = "lane_scan_before" if expr.before else "lane_reduce"
            return f"{form}.{expr.op}({print_expr(expr.arg)}, lanes {expr.lanes}, stride {expr.stride})"
        case k.WarpCombine():
            own = f"shared.{expr.buffer}[{print_expr(expr.offset)}], {print_expr(expr.count)}"
            near = expr.relative
            if near is not None:
                own += f", {near.kind} of shared.{near.buffer}[{print_expr(near.offset)}] from {print_expr(near.reference)}"
            if expr.before is not None:
                own += f", before {print_expr(expr.before)}"
            return f"combine.{expr.op}({own})"
        case k.Apply():
            args = [print_expr(a) for a in expr.args]
            if expr.op in _INFIX and len(args) == 2:
                return f"({args[0]} {_INFIX[expr.op]} {args[1]})"
            suffix = f".{expr.rep}" if expr.op in ("convert", "bitcast") else ""
            return f"{expr.op}{suffix}({', '.join(args)})"


def _conjunction(guards: tuple[k.Expr, ...]) -> str:
    return " and ".join(map(print_expr, guards))


def _block(ops: tuple[k.Op, ...], margin: str) -> list[tuple[str, Span]]:
    lines: list[tuple[str, Span]] = []
    for op in ops:
        name = type(op).__name__
        inner: list[tuple[str, tuple[k.Op, ...]]] = []
        parts: list[str] = []
        for field in fields(op):
            value: Any = getattr(op, field.name)
            if field.name == "span" or (value == field.default and not isinstance(value, str)):
                continue
            if isinstance(value, tuple) and value and isinstance(value[0], k.Op):
                inner.append((field.name, value))
            else:
                text = _field(field.name, value)
                if text:
                    parts.append(text)
        lines.append((f"{margin}{name} {' '.join(parts)}".rstrip(), op.span))
        for label, body in inner:
            if label in _LABELS:
                lines.append((f"{margin}{_LABELS[label]}", op.span))
            lines += _block(body, margin + "  ")
    return lines


def _field(name: str, value: Any) -> str:
    """A field of an op; "" for one that says nothing."""
    if value is None or value == () or value is False or value == "none":
        return ""
    if value is True:
        return name
    if name == "guards":
        return f"guard {_conjunction(value)}"
    if isinstance(value, tuple):
        text = ", ".join(_item(v) for v in value)
        return text if name == "axes" else f"{name} ({text})"
    if isinstance(value, int):
        return f"{name} {value}"
    if isinstance(value, get_args(k.Expr)) and name not in ("value", "condition"):
        return f"{name} {print_expr(value)}"
    return f"= {_item(value)}" if isinstance(value, get_args(k.Expr)) else _item(value)


def _item(value: Any) -> str:
    match value:
        case k.Fragment():
            axes = "; " + ", ".join(a.name for a in value.axes) if value.axes else ""
            return f"{value.name}<{value.rep}{axes}>"
        case k.TileAddress():
            slot = f"[{print_expr(value.slot)}]" if value.slot is not None else ""
            return f"{value.buffer}{slot}"
        case k.Part():
            return f"{value.axis.name} from {value.first} to {value.end}"
        case RowsAnywhere():
            return (
                f"to {value.pointer} + {print_expr(value.offset)} stride {print_expr(value.stride)}"
            )
        case k.LoopAxis() | PanelBuffer() | Sums():
            return value.name
        case tuple():
            return " ".join(_item(v) for v in value)
        case str() | int() | DType() | Sym() | Var():
            return str(value)
        case _:
            return print_expr(value)
