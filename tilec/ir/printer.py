"""Tile IR as text: one op a line, its type, extents and presence in columns.

    nest i.1 < (BN + N - 1) // BN
      %1 = load a[span(BN*i.1, BN, 0, N)]            f32[BN]  present 0: r < N - BN*i.1

The text is a function of the program alone: nothing is ordered by a hash, no address is printed.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import DType
from tilec.ir.symbolic import Sym
from tilec.source.exhaustive import assert_never
from tilec.source.text import NOWHERE, Span

_COLUMN = 58
"""Where types begin, if the op leaves room."""


def print_program(program: ir.Program) -> str:
    """The whole program as text that ends in a newline."""
    return "".join(f"{text}\n" for text, _ in program_lines(program))


def program_lines(program: ir.Program) -> list[tuple[str, Span]]:
    """The lines of that text, each with the place in the source that its op is from."""
    printer = _Printer()
    printer.program(program)
    return list(zip(printer.lines, printer.spans, strict=True))


def print_op(op: ir.Op) -> str:
    """The first line of one op, for messages."""
    printer = _Printer()
    printer.op(op, 0)
    return printer.lines[0]


def format_type(type_: ir.TileType) -> str:
    """`f32[BM, 64]`; a scalar is its dtype alone."""
    if not type_.axes:
        return str(type_.dtype)
    return f"{type_.dtype}[{', '.join(str(a.extent) for a in type_.axes)}]"


def format_presence(type_: ir.TileType) -> str:
    """`present 0: r < N - BN*i.1; 1: r >= 4`, or "" where everything is present."""
    axes = []
    for number, axis in enumerate(type_.axes):
        if axis.presence:
            axes.append(f"{number}: {' & '.join(_constraint(c) for c in axis.presence)}")
    return f"present {'; '.join(axes)}" if axes else ""


def format_access(access: ir.Access) -> str:
    """`a[span(BM*i.1, BM, 0, M), :]`, `t.at[%3, %4]`."""
    name = access.tensor if access.view is None else access.view
    terms = ", ".join(_term(t) for t in access.terms)
    return f"{name}{'.at' if access.pointwise else ''}[{terms}]"


def format_host(expression: ir.HostExpr) -> str:
    """A contract's condition, fully parenthesised."""
    match expression:
        case Sym():
            return str(expression) if expression.is_atomic else f"({expression})"
        case ir.HostNumber(value):
            return _literal(value)
        case ir.HostScalar(name):
            return name
        case ir.HostOp("not", args):
            return f"(not {format_host(args[0])})"
        case ir.HostOp("min" | "max" as op, args):
            return f"{op}({', '.join(map(format_host, args))})"
        case ir.HostOp(op, args):
            return "(" + f" {op} ".join(map(format_host, args)) + ")"
        case _:
            raise assert_never(expression)


def _constraint(constraint: ir.Constraint) -> str:
    match constraint:
        case ir.Below(limit):
            return f"r < {limit}"
        case ir.AtLeast(limit):
            return f"r >= {limit}"
        case ir.InRange(index, size, trips):
            unless = "" if trips is None else f" or {trips} <= 0"
            return f"%{index}[r] in 0..{size}{unless}"
        case _:
            raise assert_never(constraint)


def _term(term: ir.IndexTerm) -> str:
    match term:
        case ir.AtScalar(index):
            return str(index)
        case ir.AtSpan(start, extent, lo, hi):
            return f"span({start}, {extent}, {_bound(lo)}, {_bound(hi)})"
        case ir.AtAll():
            return ":"
        case ir.AtTile(index):
            return str(index)
        case _:
            raise assert_never(term)


def _bound(bound: Sym | None) -> str:
    return "-" if bound is None else str(bound)


def _literal(value: bool | int | float) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    return repr(value)


def _static(value: int | float | bool | DType) -> str:
    return str(value) if isinstance(value, DType) else _literal(value)


class _Printer:
    """Collects lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.spans: list[Span] = []
        self.span = NOWHERE

    def line(self, indent: int, text: str, values: Iterable[ir.Value] = ()) -> None:
        """One line, with the types of `values` in the column for types."""
        text = "  " * indent + text
        notes = []
        for value in values:
            note = format_type(value.type)
            presence = format_presence(value.type)
            notes.append(f"{note}  {presence}" if presence else note)
        if notes:
            text = f"{text:<{_COLUMN}} {' | '.join(notes)}"
        self.lines.append(text.rstrip())
        self.spans.append(self.span)

    def program(self, program: ir.Program) -> None:
        """Head, declarations and nests."""
        statics = ", ".join(f"{k}={_static(v)}" for k, v in program.statics.items())
        self.line(0, f"kernel {program.name}{f' {{{statics}}}' if statics else ''}")
        for role, label in (
            ("input", "in"),
            ("inout", "inout"),
            ("output", "out"),
            ("temp", "temp"),
        ):
            shown = [_tensor(t) for t in program.tensors if t.role == role]
            if shown:
                self.line(1, f"{label} {', '.join(shown)}")
        for view in program.views:
            self.line(1, f"view {view.name} = {view.tensor}[{', '.join(map(str, view.dims))}]")
        for scalar in program.scalars:
            default = "" if scalar.default is None else f" = {_literal(scalar.default)}"
            self.line(1, f"scalar {scalar.name} {scalar.dtype}{default}")
        if program.math != "fast":
            self.line(1, f"math {program.math}")
        for var in program.dims:
            parts = [
                f"{sign} {table[var]}"
                for sign, table in (
                    (">=", program.lower),
                    ("<=", program.upper),
                    ("%", program.divisors),
                )
                if var in table
            ]
            if parts:
                self.line(1, f"dim {var} {' '.join(parts)}")
        for contract in program.contracts:
            self.line(1, f"require {format_host(contract.condition)}")
        for fact in program.facts:
            self.line(1, f"fact {format_host(fact)} > 0")
        for nest in program.nests:
            grid = ", ".join(f"{g.index} < {g.trips}" for g in nest.grid)
            self.line(1, f"nest {grid}")
            self.block(nest.body, 2)

    def block(self, block: ir.Block, indent: int) -> None:
        """Ops in order; an empty block says so."""
        if not block.ops:
            self.line(indent, "pass")
        for op in block.ops:
            self.op(op, indent)

    def op(self, op: ir.Op, indent: int) -> None:
        """One op and what is nested in it."""
        self.span = op.span
        match op:
            case ir.For():
                self.line(indent, f"for {op.index} < {op.trips}")
                for carried in op.carried:
                    name = f" as {carried.entry.name}" if carried.entry.name else ""
                    self.line(
                        indent + 1,
                        f"carry {carried.entry} = {carried.initial}{name}",
                        (carried.entry,),
                    )
                self.block(op.body, indent + 1)
                self.span = op.span
                for carried in op.carried:
                    text = f"next {carried.entry} = {carried.next} -> {carried.result}"
                    self.line(indent + 1, text, (carried.result,))
            case ir.If():
                self.line(indent, f"if rarely {op.condition}" if op.rare else f"if {op.condition}")
                self.block(op.then, indent + 1)
                self.span = op.span
                if op.otherwise.ops:
                    self.line(indent, "else")
                    self.block(op.otherwise, indent + 1)
                    self.span = op.span
                for merge in op.merges:
                    text = f"merge {merge.result} = {merge.then} else {merge.otherwise}"
                    self.line(indent, text, (merge.result,))
            case ir.ReduceWith():
                args = " ".join(map(str, op.args))
                self.line(indent, f"{_outs(op)}reduce_with {args} axis {op.axis}", op.outs)
                inputs = " ".join(map(str, op.combine.inputs))
                self.line(indent + 1, f"combine {inputs}")
                self.block(op.combine.body, indent + 2)
                self.line(indent + 2, f"return {' '.join(map(str, op.combine.outputs))}")
            case ir.Survivors():
                numbers = " ".join(map(str, op.survives.inputs))
                self.line(indent, f"{_outs(op)}survivors {numbers} < {op.trips}", op.outs)
                self.block(op.survives.body, indent + 1)
                self.line(indent + 1, f"where {' '.join(map(str, op.survives.outputs))}")
            case _:
                self.line(indent, f"{_outs(op)}{_simple(op)}", op.outs)


def _outs(op: ir.Op) -> str:
    return f"{', '.join(map(str, op.outs))} = " if op.outs else ""


def _tensor(tensor: ir.Tensor) -> str:
    text = f"{tensor.name} {tensor.dtype}[{', '.join(map(str, tensor.dims))}]"
    if tensor.strides is not None:
        text += f" strides ({', '.join(map(str, tensor.strides))})"
    return text


def _numbers(numbers: Iterable[int | None]) -> str:
    return ", ".join("new" if n is None else str(n) for n in numbers)


def _simple(op: ir.Op) -> str:
    """Text of an op that holds no block, without its results."""
    match op:
        case ir.Constant():
            return f"constant {_literal(op.value)}"
        case ir.FromSym():
            return f"number {op.sym}"
        case ir.Scalar():
            return f"scalar {op.name}"
        case ir.Iota():
            return f"iota {op.start} {_bound(op.lo)} {_bound(op.hi)}"
        case ir.Full():
            bounds = ", ".join("-" if b is None else _term(b) for b in op.bounds)
            return f"full {op.value}{f' ({bounds})' if bounds else ''}"
        case ir.Load():
            return f"load {format_access(op.access)}"
        case ir.Elementwise():
            return f"{op.op} {' '.join(map(str, op.args))}"
        case ir.Cast():
            return f"cast {op.arg}"
        case ir.Bitcast():
            return f"bitcast {op.arg}"
        case ir.Fill():
            return f"fill {op.arg} {op.value}"
        case ir.Rearrange():
            return f"rearrange {op.arg} ({_numbers(op.axes)})"
        case ir.Reshape():
            return f"reshape {op.arg}"
        case ir.Slice():
            return f"slice {op.arg} ({_numbers(op.starts)})"
        case ir.Combine():
            return f"combine {op.arg}"
        case ir.Reduce():
            return f"reduce{'.partial' if op.partial else ''} {op.op} {op.arg} axes ({_numbers(op.axes)})"
        case ir.Scan():
            return f"scan {op.op} {op.arg} axis {op.axis}"
        case ir.TopK():
            return f"topk {op.arg} axis {op.axis} k {op.k}"
        case ir.Dot():
            plus = "" if op.accumulate is None else f" + {op.accumulate}"
            return f"dot {op.a} {op.b}{plus}{f' as {op.precision}' if op.precision else ''}"
        case ir.Store():
            return f"store {format_access(op.access)} = {op.value}"
        case ir.Atomic():
            return f"atomic_{op.op} {format_access(op.access)} {op.value}"
        case ir.Survivor():
            return f"survivor {op.number} of {op.of}"
        case ir.Assert():
            return f'assert {op.condition} "{op.message}"'
        case ir.Print():
            return "print " + " ".join(f'"{p}"' if isinstance(p, str) else str(p) for p in op.parts)
        case _:
            raise TypeError(f"no text for {type(op).__name__}")
