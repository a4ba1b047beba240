"""Per-thread expressions and symbolic integers as C++ text."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

from tilec.emit.types import DEVICE
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import BOOL, F32, DType
from tilec.ir.symbolic import Apply, Atom, Sym, Var
from tilec.lazy_dataclass import dataclass

PRIMARY, UNARY, PRODUCT, SUM, SHIFT, ORDER, EQUAL, AND, OR, CHOICE = range(10)
"""Precedence levels of C++, tightest first; `&&` is AND, `||` OR, `?:` CHOICE."""

_INFIX = {"add": ("+", SUM), "sub": ("-", SUM), "mul": ("*", PRODUCT)}
_COMPARE = {
    "lt": ("<", ORDER), "le": ("<=", ORDER), "gt": (">", ORDER), "ge": (">=", ORDER), "eq": ("==", EQUAL), "ne": ("!=", EQUAL),
}  # fmt: skip
_WRAPPING = {
    "add": "add_wrap",
    "sub": "sub_wrap",
    "mul": "mul_wrap",
    "neg": "neg_wrap",
    "abs": "abs_wrap",
}
_FUNCTIONS = {
    "floordiv": "floor_div", "mod": "floor_mod", "abs": "abs_of", "floor": "floor_of", "ceil": "ceil_of",
    "round": "round_of", "pow": "power_of", "shl": "shift_left", "shr": "shift_right",
}  # fmt: skip
REDUCTIONS = {
    "sum": "OpSum", "prod": "OpProd", "max": "OpMax", "min": "OpMin", "any": "OpAny", "all": "OpAll",
    "argmax": "OpArgMax", "argmin": "OpArgMin",
}  # fmt: skip


def reduction(op: str, rep: DType) -> str:
    """The functor of a reduction: `OpMax<float>`."""
    name = REDUCTIONS[op]
    return name if op in ("any", "all") else f"{name}<{DEVICE[rep]}>"


@dataclass
class Text:
    """A piece of C++ and its precedence."""

    text: str
    level: int = PRIMARY

    def at(self, level: int) -> str:
        """The text, in parentheses where its operator binds less tightly than `level`."""
        return f"({self.text})" if self.level > level else self.text


@dataclass
class Renderer:
    """Renders for one kernel. `names` are C names of variables, `nonnegative` proves a Sym to be >= 0 (then `/` and `%` are
    C's own)."""

    names: Mapping[Var, str]
    nonnegative: Callable[[Sym], bool]
    constants: Mapping[tuple[str, str], str]
    """name of a configuration constant by (axis name, "lanes")"""
    prefix: str = ""
    """of the integer functions: those of the host have their own"""

    # ---- symbolic integers

    def sym(self, sym: Sym, wide: bool = False) -> Text:
        """A polynomial; in 64 bits where `wide`."""
        if not sym.terms:
            return Text("0")
        if len(sym.terms) == 1 and sym.terms[0][1] == 1 and len(sym.terms[0][0]) == 1:
            return self._atom(sym.terms[0][0][0])
        parts: list[tuple[bool, str]] = []
        several = len(sym.terms) > 1
        widened = not wide
        for monomial, coefficient in sym.terms:
            factors = list(monomial)
            magnitude = abs(coefficient)
            pieces: list[str] = []
            if magnitude != 1 or not factors:
                pieces.append(str(magnitude))
            pieces[:0] = [
                self._atom(a).at(PRODUCT if not pieces and n == 0 else UNARY)
                for n, a in enumerate(factors)
            ]
            if wide and (len(pieces) > 1 or (several and not widened and factors)):
                name = pieces[0].isidentifier()
                pieces[0] = (
                    f"int64_t{{{pieces[0]}}}" if name else f"static_cast<int64_t>({pieces[0]})"
                )
                widened = True
            parts.append((coefficient < 0, " * ".join(pieces)))
        first_negative = next((i for i, p in enumerate(parts) if not p[0]), None)
        if first_negative not in (None, 0):
            parts.insert(0, parts.pop(first_negative or 0))
        text = ("-" if parts[0][0] else "") + parts[0][1]
        for negative, piece in parts[1:]:
            text += f" {'-' if negative else '+'} {piece}"
        if several:
            return Text(text, SUM)
        if parts[0][0]:
            return Text(text, UNARY if " " not in text else SUM)
        monomial, coefficient = sym.terms[0]
        if len(monomial) == 1 and coefficient == 1:
            return Text(text, self._atom(monomial[0]).level)
        return Text(text, PRODUCT if " * " in text else PRIMARY)

    def _atom(self, atom: Atom) -> Text:
        if isinstance(atom, Var):
            return Text(self.names.get(atom, atom.name))
        return self._apply(atom)

    def _apply(self, atom: Apply) -> Text:
        args = [self.sym(a, wide=bool(self.prefix)) for a in atom.args]
        if atom.op in ("min", "max"):
            total = args[0].text
            for other in args[1:]:
                total = f"{self.prefix}{atom.op}_of({total}, {other.text})"
            return Text(total)
        divisor = atom.args[1]
        if not self.prefix and (rounded_up := self._rounded_up(atom)):
            return rounded_up
        exact = self.nonnegative(atom.args[0]) and (
            divisor.constant > 0 if divisor.constant is not None else self.nonnegative(divisor - 1)
        )
        if exact:
            sign = "/" if atom.op == "//" else "%"
            return Text(f"{args[0].at(PRODUCT)} {sign} {args[1].at(UNARY)}", PRODUCT)
        name = "floor_div" if atom.op == "//" else "floor_mod"
        return Text(f"{self.prefix}{name}({args[0].text}, {args[1].text})")

    def _rounded_up(self, atom: Apply) -> Text | None:
        """`(x + b - 1) // b` for b > 0 without its sum, which leaves 32 bits where x is near 2^31; None for anything else."""
        numerator, divisor = atom.args
        if atom.op != "//" or len(divisor.terms) != 1 or not self.nonnegative(divisor - 1):
            return None
        monomial, coefficient = divisor.terms[0]
        found = dict(numerator.terms).get(monomial, 0)
        if found < coefficient - (not monomial):
            return None
        x = self.sym(numerator - divisor + 1)
        return Text(f"ceil_div({x.text}, {self.sym(divisor).text})")

    # ---- expressions

    def expr(self, expr: k.Expr) -> str:
        """An expression as it stands alone."""
        return self.piece(expr).text

    def piece(self, expr: k.Expr) -> Text:
        """An expression with its precedence."""
        match expr:
            case k.Local():
                return Text(expr.name)
            case k.Literal_():
                return literal(expr.value, expr.rep)
            case k.Index():
                return self.sym(expr.sym, expr.wide)
            case k.Element():
                return Text(self.element(expr.fragment))
            case k.Memory():
                offset = self.piece(expr.offset).at(SUM)
                if expr.rep.bits < 8:
                    nibble = f"load_nibble({expr.pointer}, {self.expr(expr.offset)})"
                    if not expr.guards:
                        return Text(nibble)
                    kind = "int8_t" if expr.rep.kind == "int" else "uint8_t"
                    return Text(
                        f"{self.conjunction(expr.guards, OR)} ? {nibble} : {kind}{{}}", CHOICE
                    )
                access = Text(
                    f"load_element({expr.pointer}{'' if offset == '0' else ' + ' + offset})"
                )
                if not expr.guards:
                    return access
                return Text(
                    f"{self.conjunction(expr.guards, OR)} ? {access.text} : {_zero(expr.rep)}",
                    CHOICE,
                )
            case k.SharedElement():
                return Text(f"shared.{expr.buffer}[{self.expr(expr.offset)}]")
            case k.LaneReduce():
                lanes = self.constants[expr.axis, "lanes"] if expr.axis else str(expr.lanes)
                stride = f", {expr.stride}" if expr.stride > 1 else ""
                form = "lane_scan_before" if expr.before else "lane_reduce"
                return Text(
                    f"{form}<{reduction(expr.op, expr.rep)}, {lanes}{stride}>({self.expr(expr.arg)})"
                )
            case k.WarpCombine():
                count, stride = self.expr(expr.count), self.expr(expr.stride)
                step = f", {stride}" if stride != "1" else ""
                offset = self.expr(expr.offset)
                at = f"shared.{expr.buffer}" + (f" + {offset}" if offset != "0" else "")
                if expr.relative is not None:
                    return self._relative(expr.relative, at, count)
                form = "_before" if expr.before is not None else ""
                function = f"combine_partials{form}{'_by_lanes' if expr.by_lanes else ''}"
                arguments = at if expr.before is None else f"{at}, {self.expr(expr.before)}"
                return Text(
                    f"{function}<{reduction(expr.op, expr.rep)}, {count}{step}>({arguments})"
                )
            case k.Identity():
                return Text(f"{reduction(expr.op, expr.rep)}::identity()")
            case k.Apply():
                return self._operation(expr)

    def _relative(self, relative: k.Relative, at: str, count: str) -> Text:
        """Partials that were taken relative to values of their warps."""
        offset = self.expr(relative.offset)
        values = f"shared.{relative.buffer}" + (f" + {offset}" if offset != "0" else "")
        reference = self.expr(relative.reference)
        if relative.kind == "exp":
            return Text(f"combine_exponentials_by_lanes<{count}>({at}, {values}, {reference})")
        axis = relative.axis
        row = f"{self.expr(relative.extent)}, {self.shift(axis)}"
        function = f"combine_spreads_by_lanes<{count}, {self.held(axis)}>"
        return Text(f"{function}({at}, {values}, {reference}, {row})")

    def held(self, axis: k.LoopAxis) -> str:
        """Constants that say which elements of an axis a warp holds."""
        return f"kSteps{axis.suffix}, kThreads{axis.suffix}, kWidth{axis.suffix}"

    def shift(self, axis: k.LoopAxis) -> str:
        """Elements in front of a row in its first vector."""
        return axis.shift if axis.windowed else "0"

    def element(self, fragment: k.Fragment) -> str:
        """The current element of a fragment."""
        text = self.vector(fragment)
        for axis in fragment.axes:
            if axis.vectorised:
                sub = f"{axis.name}_sub"
                text += f".get({sub})" if fragment.rep.bits < 8 else f"[{sub}]"
        return text

    def vector(self, fragment: k.Fragment) -> str:
        """The current vector of a fragment."""
        text = fragment.name
        if not fragment.local:
            for axis in fragment.axes:
                if axis.vectorised or axis.layout.steps > 1:
                    text += f"[{axis.step}]"
        return text

    def conjunction(self, guards: tuple[k.Expr, ...], level: int = CHOICE) -> str:
        """All guards, joined by `&&`, to stand where `level` is expected."""
        if len(guards) == 1:
            return self.piece(guards[0]).at(level)
        text = " && ".join(self.piece(g).at(EQUAL) for g in guards)
        return Text(text, AND).at(level)

    def _operation(self, expr: k.Apply) -> Text:
        op, rep = expr.op, expr.rep
        args = [self.piece(a) for a in expr.args]
        if op == "convert":
            return Text(f"convert<{DEVICE[rep]}>({args[0].text})")
        if op == "bitcast":
            return Text(f"bitcast<{DEVICE[rep]}>({args[0].text})")
        if op == "indexed":
            return Text(f"Indexed<{DEVICE[rep]}>{{{args[0].text}, {args[1].text}}}")
        if op == "lane_xor":
            return Text(f"shuffle_xor({args[0].text}, {args[1].text})")
        if op == "index_of":
            return Text(f"{args[0].at(PRIMARY)}.index")
        if op == "offset":
            wide = f"static_cast<int64_t>({args[0].text})"
            if args[1].text == "1":
                return Text(wide)
            return Text(f"{wide} * {args[1].at(UNARY)}", PRODUCT)
        if op == "offset_add":
            if args[0].text == "0":
                return args[1]
            return Text(f"{args[0].at(SUM)} + {args[1].at(PRODUCT)}", SUM)
        if op == "offset_sub":
            return Text(f"{args[0].at(SUM)} - {args[1].at(PRODUCT)}", SUM)
        if op in _COMPARE:
            sign, level = _COMPARE[op]
            return Text(f"{args[0].at(level - 1)} {sign} {args[1].at(level - 1)}", level)
        if op == "where":
            return Text(f"{args[0].at(OR)} ? {args[1].at(CHOICE)} : {args[2].at(CHOICE)}", CHOICE)
        if op in ("and", "or", "xor", "not"):
            return self._logic(op, rep, args)
        if op == "neg":
            return (
                Text(f"-{args[0].at(PRIMARY)}", UNARY)
                if rep.is_float
                else Text(f"neg_wrap({args[0].text})")
            )
        if op in ("min", "max"):
            suffix = "nan" if rep.is_float else "of"
            return Text(f"{op}_{suffix}({args[0].text}, {args[1].text})")
        if op in _INFIX and rep.is_float:
            sign, level = _INFIX[op]
            # a + (b + c) keeps its parentheses: sums of floats are rounded in the order written
            return Text(f"{args[0].at(level)} {sign} {args[1].at(level - 1)}", level)
        joined = ", ".join(a.text for a in args)
        if op in _WRAPPING and not rep.is_float:
            if op in ("add", "sub", "mul") and rep == BOOL:
                return Text(
                    f"{args[0].at(AND)} {'||' if op == 'add' else '&&'} {args[1].at(AND)}", OR
                )
            return Text(f"{_WRAPPING[op]}({joined})")
        if op in _FUNCTIONS and (op != "pow" or not rep.is_float):
            return Text(f"{_FUNCTIONS[op]}({joined})")
        if op in _PLAIN:
            return Text(f"{op}({joined})")
        return Text(f"{op}_{expr.math}({joined})")

    def _logic(self, op: str, rep: DType, args: list[Text]) -> Text:
        if rep == BOOL:
            if op == "not":
                return Text(f"!{args[0].at(PRIMARY)}", UNARY)
            if op == "xor":
                return Text(f"{args[0].at(ORDER)} != {args[1].at(ORDER)}", EQUAL)
            sign, level = ("&&", AND) if op == "and" else ("||", OR)
            inner = level if op == "and" else EQUAL
            return Text(f" {sign} ".join(a.at(inner) for a in args), level)
        if op == "not":
            return Text(f"static_cast<{DEVICE[rep]}>(~{args[0].at(PRIMARY)})")
        sign = {"and": "&", "or": "|", "xor": "^"}[op]
        return Text(
            f"static_cast<{DEVICE[rep]}>({args[0].at(PRIMARY)} {sign} {args[1].at(PRIMARY)})"
        )


_PLAIN = frozenset(
    (
        "is_within fma div_by any_lane tanh_near divisor_scale divisor_reciprocal columns_upto "
        "columns_from has_column"
    ).split()
)
"""Functions that go by one name for all dtypes and accuracies."""


def _zero(rep: DType) -> str:
    if rep == BOOL:
        return "false"
    if rep.is_float and rep.bits >= 32:
        return "0.0f" if rep.bits == 32 else "0.0"
    return f"{DEVICE[rep]}{{}}"


def literal(value: bool | int | float, rep: DType) -> Text:
    """A constant of a type. Floats are written so that they read back to the same number."""
    if rep == BOOL:
        return Text("true" if value else "false")
    if rep.is_float:
        number = float(value)
        if rep.bits < 32:
            return Text(f"convert<{DEVICE[rep]}>({literal(number, F32).text})")
        suffix = "f" if rep.bits == 32 else ""
        if math.isnan(number):
            return Text("NAN")
        if math.isinf(number):
            return Text("INFINITY" if number > 0 else "-INFINITY", PRIMARY if number > 0 else UNARY)
        text = repr(number)
        if "e" not in text and "." not in text:
            text += ".0"
        return Text(text + suffix, UNARY if number < 0 or text.startswith("-") else PRIMARY)
    number = int(value)
    if rep.bits <= 16:
        return Text(f"static_cast<{DEVICE[rep]}>({number})")
    if rep.bits == 64:
        text = (
            "-9223372036854775807 - 1"
            if number == -(2**63)
            else f"{number}{'u' * (rep.kind == 'uint')}"
        )
        return Text(f"{DEVICE[rep]}{{{text}}}")
    suffix = "u" if rep.kind == "uint" else ""
    if number == -(2**31):
        return Text("(-2147483647 - 1)")
    return Text(f"{number}{suffix}", UNARY if number < 0 else PRIMARY)
