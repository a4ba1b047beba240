"""Host expressions of the launch plan as C++, with the results that `tilec.runtime.host` computes in Python."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Literal

from tilec.emit.c_names import c_name
from tilec.emit.expressions import AND, EQUAL, OR, ORDER, PRIMARY, PRODUCT, SUM, UNARY, Text
from tilec.ir.dtypes import DType
from tilec.ir.launch import Aligned, AllOf, Always, AnyOf, Given, LaunchCondition
from tilec.ir.requirements import size_range
from tilec.ir.symbolic import Apply, Atom, Sym, Var
from tilec.ir.tile_ir import HostNumber, HostOp, HostScalar
from tilec.source.exhaustive import assert_never

_LEVELS = {
    "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "==": EQUAL, "!=": EQUAL, "<": ORDER, "<=": ORDER, ">": ORDER, ">=": ORDER,
}  # fmt: skip
_ARITHMETIC = ("+", "-", "*", "/")
Comparison = Literal["==", "!=", "<", "<=", ">", ">="]
_INT64_MAX = (1 << 63) - 1


class HostRenderer:
    """Renders conditions and sizes for the launcher. `tiles` are the numbers of tile-size parameters, `scalars` the dtypes of
    scalar parameters, `aligned` the alignment in bytes that an argument is known to have.

    Sizes are computed in 64 bits; where the bounds of run-time sizes let one leave them, it saturates."""

    def __init__(
        self,
        tiles: Mapping[str, int],
        scalars: Mapping[str, DType],
        aligned: Mapping[str, int] | None = None,
    ):
        self.tiles = tiles
        self.scalars = scalars
        self.aligned = aligned or {}

    # ---- sizes

    def size(self, sym: Sym) -> str:
        """A size as it stands alone."""
        return self.sym(sym).text

    def sym(self, sym: Sym) -> Text:
        """A size, with the numbers of tile-size parameters put in. An `int` only where it is one variable or number."""

        def number(var: Var) -> Sym | None:
            return Sym.of(self.tiles[var.name]) if var.kind == "tile" else None

        return self._polynomial(sym.substitute(number))

    def _polynomial(self, sym: Sym) -> Text:
        if not sym.terms:
            return Text("0")
        terms = [(c, self._product(abs(c), m), _reach(Sym(((m, abs(c)),)))) for m, c in sym.terms]
        if len(terms) == 1:
            coefficient, text, _ = terms[0]
            return text if coefficient > 0 else Text(f"-{text.at(PRIMARY)}", UNARY)
        if sum(reach for _, _, reach in terms) > _INT64_MAX:
            total = ""
            for coefficient, text, _ in terms:
                piece = text.text if coefficient > 0 else f"-{text.at(PRIMARY)}"
                total = f"host_plus({total}, {piece})" if total else piece
            return Text(total)
        # a positive term first, then the others as they come
        terms.sort(key=lambda t: t[0] < 0)
        coefficient, text, _ = terms[0]
        leading = _wide(text)
        total = f"-{leading}" if coefficient < 0 else leading
        for coefficient, text, _ in terms[1:]:
            total += f" {'-' if coefficient < 0 else '+'} {text.at(PRODUCT)}"
        return Text(total, SUM)

    def _product(self, magnitude: int, atoms: tuple[Atom, ...]) -> Text:
        pieces = [self._atom(a) for a in atoms]
        reaches = [_reach(Sym.of(a)) for a in atoms]
        if magnitude != 1 or not pieces:
            pieces.append(Text(str(magnitude)))
            reaches.append(magnitude)
        if len(pieces) == 1:
            return pieces[0]
        total, reach = Text(_wide(pieces[0])), reaches[0]
        for piece, factor in zip(pieces[1:], reaches[1:], strict=True):
            reach *= factor
            if reach > _INT64_MAX:
                total = Text(f"host_times({total.text}, {piece.text})")
            else:
                total = Text(f"{total.at(PRODUCT)} * {piece.at(UNARY)}", PRODUCT)
        return total

    def _atom(self, atom: Atom) -> Text:
        if isinstance(atom, Var):
            return self._variable(atom.name)
        if (rounded := _rounded_up(atom)) is not None:
            return Text(f"host_ceil_div({self._polynomial(rounded).text}, {atom.args[1]})")
        args = [self._polynomial(a) for a in atom.args]
        if atom.op in ("min", "max"):
            total = args[0].text
            for other in args[1:]:
                total = f"host_{atom.op}_of({total}, {other.text})"
            return Text(total)
        dividend, divisor = (a.bounds(size_range)[0] for a in atom.args)
        if dividend is not None and dividend >= 0 and divisor is not None and divisor > 0:
            sign = "/" if atom.op == "//" else "%"
            return Text(f"{args[0].at(PRODUCT)} {sign} {args[1].at(UNARY)}", PRODUCT)
        return Text(f"host_floor_{_FLOOR[atom.op]}({args[0].text}, {args[1].text})")

    def _variable(self, name: str) -> Text:
        """A dim, stride or integer scalar so that it takes part in signed arithmetic."""
        dtype = self.scalars.get(name)
        if dtype is None or dtype.kind == "int":
            return Text(c_name(name))
        if dtype.bits == 64:
            return Text(f"static_cast<int64_t>({c_name(name)})")
        return Text(f"int64_t{{{c_name(name)}}}")

    # ---- conditions

    def condition(self, condition: LaunchCondition) -> str:
        """A condition as it stands alone."""
        return self.piece(condition).text

    def piece(self, condition: LaunchCondition) -> Text:
        """A condition or number with its precedence."""
        match condition:
            case Sym():
                return self.sym(condition)
            case HostNumber():
                return _number(condition.value)
            case HostScalar():
                return self._scalar(condition.name)
            case Always():
                return Text("true")
            case Given():
                return Text("workspace != nullptr", EQUAL)
            case Aligned():
                if self.aligned.get(condition.tensor, 1) % condition.bytes == 0:
                    return Text("true")
                return Text(f"host_is_aligned({c_name(condition.tensor)}, {condition.bytes})")
            case AllOf():
                pieces = [self.piece(p) for p in condition.parts]
                pieces = [p for p in pieces if p.text != "true"]
                if len(pieces) <= 1:
                    return pieces[0] if pieces else Text("true")
                return Text(" && ".join(p.at(EQUAL) for p in pieces), AND)
            case AnyOf():
                pieces = [self.piece(p) for p in condition.parts]
                if any(p.text == "true" for p in pieces):
                    return Text("true")
                return Text(" || ".join(p.at(EQUAL) for p in pieces), OR)
            case HostOp():
                return self._operation(condition)
            case _:
                assert_never(condition)

    def _scalar(self, name: str) -> Text:
        if self.scalars[name].kind == "bool":
            return Text(f"{c_name(name)} != 0", EQUAL)
        return Text(c_name(name)) if self.scalars[name].is_float else self._variable(name)

    def _operation(self, expr: HostOp) -> Text:
        args = [self.piece(a) for a in expr.args]
        match expr.op:
            case "and":
                return Text(" && ".join(a.at(EQUAL) for a in args), AND)
            case "or":
                return Text(" || ".join(a.at(EQUAL) for a in args), OR)
            case "not" if isinstance(inner := expr.args[0], HostOp) and self._turns(inner):
                return self._operation(HostOp(_OPPOSITE[inner.op], inner.args))
            case "not":
                return Text(f"!{args[0].at(PRIMARY)}", UNARY)
            case "min" | "max":
                kind = "nan" if any(self._is_float(a) for a in expr.args) else "of"
                total = args[0].text
                for other in args[1:]:
                    total = f"host_{expr.op}_{kind}({total}, {other.text})"
                return Text(total)
            case "//" | "%" if all(isinstance(a, Sym) for a in map(_as_sym, expr.args)):
                whole = tuple(s for a in expr.args if isinstance(s := _as_sym(a), Sym))
                return self.sym(Sym.of(Apply(expr.op, whole)))
            case "//" | "%":
                return Text(f"host_floor_{_FLOOR[expr.op]}({args[0].text}, {args[1].text})")
            case "-" if len(args) == 1:
                return Text(f"-{Text(self._operand(expr.args[0], 'double')).at(PRIMARY)}", UNARY)
            case _ if expr.op in _ARITHMETIC:
                exact = expr.op != "/" and not any(self._is_float(a) for a in expr.args)
                level = _LEVELS[expr.op]
                first = self._operand(expr.args[0], "int64_t" if exact else "double")
                rest = [self._operand(a, "int64_t" if exact else "double") for a in expr.args[1:]]
                return Text(f" {expr.op} ".join([first, *rest]), level)
            case _:
                level = _LEVELS[expr.op]
                return Text(f"{args[0].at(level - 1)} {expr.op} {args[1].at(level - 1)}", level)

    def _operand(self, expr: LaunchCondition, kind: str) -> str:
        """An operand of arithmetic, in 64 bits or as a double."""
        piece = self.piece(expr)
        if isinstance(expr, HostNumber) and (isinstance(expr.value, float) or kind == "int64_t"):
            return piece.at(PRIMARY)
        if isinstance(expr, HostOp) and self._is_float(expr) == (kind == "double"):
            return piece.at(PRIMARY)
        if isinstance(expr, HostNumber):
            return _number(float(expr.value)).at(PRIMARY)
        if kind == "int64_t" and ("int64_t" in piece.text or "host_" in piece.text):
            return piece.at(PRIMARY)
        return f"static_cast<{kind}>({piece.text})"

    def _turns(self, expr: HostOp) -> bool:
        """Whether a comparison can be turned around: NaN makes every one but `!=` false."""
        return expr.op in _OPPOSITE and not any(self._is_float(a) for a in expr.args)

    def _is_float(self, expr: LaunchCondition) -> bool:
        match expr:
            case HostNumber():
                return isinstance(expr.value, float)
            case HostScalar():
                return self.scalars[expr.name].is_float
            case HostOp() if expr.op in (*_ARITHMETIC, "min", "max", "//", "%"):
                return expr.op == "/" or any(self._is_float(a) for a in expr.args)
            case _:
                return False


_OPPOSITE: Mapping[str, Comparison] = {
    "<": ">=", "<=": ">", ">": "<=", ">=": "<", "==": "!=", "!=": "==",
}  # fmt: skip
_FLOOR = {"//": "div", "%": "mod"}


def _as_sym(expr: LaunchCondition) -> LaunchCondition:
    """An integer as a Sym."""
    if isinstance(expr, HostNumber) and isinstance(expr.value, int):
        return Sym.of(int(expr.value))
    return expr


def _number(value: bool | int | float) -> Text:
    if isinstance(value, bool):
        return Text("true" if value else "false")
    if isinstance(value, float) and not math.isfinite(value):
        limits = "std::numeric_limits<double>::"
        if math.isnan(value):
            return Text(f"{limits}quiet_NaN()")
        return Text(
            f"{'-' if value < 0 else ''}{limits}infinity()", UNARY if value < 0 else PRIMARY
        )
    return Text(repr(value), UNARY if value < 0 else PRIMARY)


def _wide(text: Text) -> str:
    """The text as the first, 64-bit operand of `*` or `+`."""
    if "int64_t" in text.text or "host_" in text.text:
        return text.at(PRODUCT)
    if text.text.isidentifier() or text.text.isdigit():
        return f"int64_t{{{text.text}}}"
    return f"static_cast<int64_t>({text.text})"


def _rounded_up(atom: Apply) -> Sym | None:
    """The n of (n + d - 1) // d with a number d, where n is not negative and the sum does not leave 64 bits."""
    divisor = atom.args[1].constant if atom.op == "//" else None
    if divisor is None or divisor < 2:
        return None
    dividend = atom.args[0] - (divisor - 1)
    low = dividend.bounds(size_range)[0]
    whole = () not in dict(dividend.terms) and low is not None and low >= 0
    return dividend if whole and _reach(atom.args[0]) <= _INT64_MAX else None


def _reach(sym: Sym) -> int:
    """A bound of the absolute value; variables other than sizes are 32-bit or saturate elsewhere."""
    bounds = sym.bounds(lambda v: size_range(v) if v.kind != "scalar" else (-(1 << 31), 1 << 31))
    return max(abs(b) if b is not None else 1 << 63 for b in bounds)
