"""Host expressions of the launch plan as C++."""

from __future__ import annotations

from tilec.emit.c_names import c_name
from tilec.emit.expressions import AND, EQUAL, ORDER, PRODUCT, SUM, UNARY, Renderer, Text
from tilec.ir.launch import Aligned, AllOf, Always, LaunchCondition
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import HostNumber, HostOp, HostScalar
from tilec.source.exhaustive import assert_never

_LEVELS = {
    "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT, "==": EQUAL, "!=": EQUAL, "<": ORDER, "<=": ORDER, ">": ORDER, ">=": ORDER,
}  # fmt: skip


class HostRenderer:
    """Renders conditions and sizes for the launcher; sizes are computed in 64 bits."""

    def __init__(self, variables: frozenset[Var], tiles: dict[str, int]):
        self.tiles = tiles
        names = {v: c_name(v.name) for v in variables}
        self.renderer = Renderer(names, _surely_nonnegative, {}, "host_")

    def sym(self, sym: Sym) -> Text:
        """A size, with the numbers of tile-size parameters put in."""

        def number(var: Var) -> Sym | None:
            return Sym.of(self.tiles[var.name]) if var.kind == "tile" else None

        return self.renderer.sym(sym.substitute(number), wide=True)

    def size(self, sym: Sym) -> str:
        """A size as it stands alone."""
        return self.sym(sym).text

    def condition(self, condition: LaunchCondition) -> str:
        """A condition as it stands alone."""
        return self.piece(condition).text

    def piece(self, condition: LaunchCondition) -> Text:
        """A condition or number with its precedence."""
        match condition:
            case Sym():
                return self.sym(condition)
            case HostNumber():
                if isinstance(condition.value, bool):
                    return Text("true" if condition.value else "false")
                return Text(repr(condition.value), UNARY if condition.value < 0 else 0)
            case HostScalar():
                return Text(c_name(condition.name))
            case Always():
                return Text("true")
            case Aligned():
                return Text(f"is_aligned({c_name(condition.tensor)}, {condition.bytes})")
            case AllOf():
                if not condition.parts:
                    return Text("true")
                if len(condition.parts) == 1:
                    return self.piece(condition.parts[0])
                return Text(" && ".join(self.piece(p).at(EQUAL) for p in condition.parts), AND)
            case HostOp():
                return self._operation(condition)
            case _:
                assert_never(condition)

    def _operation(self, expr: HostOp) -> Text:
        args = [self.piece(a) for a in expr.args]
        match expr.op:
            case "and":
                return Text(" && ".join(a.at(EQUAL) for a in args), AND)
            case "or":
                return Text(" || ".join(a.at(AND) for a in args), AND + 1)
            case "not":
                return Text(f"!{args[0].at(0)}", UNARY)
            case "min" | "max":
                return Text(f"std::{expr.op}<double>({args[0].text}, {args[1].text})")
            case "//" | "%":
                divisor = expr.args[1]
                if isinstance(divisor, Sym) and (divisor.constant or 0) > 0:
                    sign = "/" if expr.op == "//" else "%"
                    return Text(f"{args[0].at(PRODUCT)} {sign} {args[1].at(UNARY)}", PRODUCT)
                name = "host_floor_div" if expr.op == "//" else "host_floor_mod"
                return Text(f"{name}({args[0].text}, {args[1].text})")
            case "-" if len(args) == 1:
                return Text(f"-{args[0].at(0)}", UNARY)
            case _:
                level = _LEVELS[expr.op]
                return Text(f"{args[0].at(level)} {expr.op} {args[1].at(level - 1)}", level)


def _surely_nonnegative(sym: Sym) -> bool:
    """Whether sizes that are at least 0 make a Sym at least 0; of a divisor less one only a number is sure."""
    low = sym.bounds(lambda var: (0, None) if var.kind == "dim" else (None, None))[0]
    return low is not None and low >= 0
