"""Between which numbers the elements of an integer tile lie: an index that is clipped, or a remainder, is asked about no more where it
is loaded."""

from __future__ import annotations

from collections.abc import Callable

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym, sym_max, sym_min
from tilec.passes.uses import Definitions

Range = tuple[Sym | None, Sym | None]
"""The least and the greatest number; None where nothing is known."""

Choice = Callable[[tuple[Sym, Sym]], Sym]

UNKNOWN: Range = (None, None)


def range_of(value: t.Value, definitions: Definitions) -> Range:
    """The range of an integer's or an integer tile's elements."""
    op = definitions.defining.get(value.id)
    match op:
        case t.Constant() if isinstance(op.value, int):
            return Sym.of(int(op.value)), Sym.of(int(op.value))
        case t.FromSym() if not any(v.kind in ("value", "tile") for v in op.sym.variables):
            return op.sym, op.sym
        case t.Full():
            return range_of(op.value, definitions)
        case t.Rearrange():
            return range_of(op.arg, definitions)
        case t.Cast() if op.arg.type.dtype.is_integer and value.type.dtype.bits >= 32:
            return range_of(op.arg, definitions) if _fits(op.arg, value) else UNKNOWN
        case t.Elementwise() if value.type.dtype.is_integer:
            return _combined(op, [range_of(a, definitions) for a in op.args])
        case _:
            return UNKNOWN


def _fits(arg: t.Value, out: t.Value) -> bool:
    """Whether a conversion keeps every number."""
    kinds = arg.type.dtype.kind, out.type.dtype.kind
    return kinds[0] == kinds[1] and arg.type.dtype.bits <= out.type.dtype.bits


def _combined(op: t.Elementwise, ranges: list[Range]) -> Range:
    match op.op:
        case "min":
            (a, b), (c, d) = ranges
            return _both(sym_min, a, c), _either(sym_min, b, d)
        case "max":
            (a, b), (c, d) = ranges
            return _either(sym_max, a, c), _both(sym_max, b, d)
        case "where":
            _, (a, b), (c, d) = ranges
            return _both(sym_min, a, c), _both(sym_max, b, d)
        case "add" | "sub":
            (a, b), (c, d) = ranges
            if op.op == "sub":
                c, d = (None if d is None else -d), (None if c is None else -c)
            # what wraps around is anywhere
            low, high = _number(a, c), _number(b, d)
            if low is None or high is None or low < -(2**31) or high >= 2**31:
                return UNKNOWN
            return Sym.of(low), Sym.of(high)
        case "mod":
            divisor = ranges[1][0]
            if divisor is None or divisor != ranges[1][1] or (divisor.constant or 0) <= 0:
                return UNKNOWN
            return Sym.of(0), divisor - 1
        case _:
            return UNKNOWN


def _both(choose: Choice, a: Sym | None, b: Sym | None) -> Sym | None:
    return None if a is None or b is None else choose((a, b))


def _either(choose: Choice, a: Sym | None, b: Sym | None) -> Sym | None:
    if a is None:
        return b
    return a if b is None else choose((a, b))


def _number(a: Sym | None, b: Sym | None) -> int | None:
    if a is None or b is None or a.constant is None or b.constant is None:
        return None
    return a.constant + b.constant
