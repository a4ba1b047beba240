"""Parts of values: slices, other extents, the greatest elements, reductions."""

from __future__ import annotations

from tests.fuzz.kernels import Axis, Writer
from tests.fuzz.values import INTEGERS, Value


def part(w: Writer, value: Value) -> Value:
    """Constant parts of a value's last axis, the axis in two, or its greatest elements."""
    c = w.choices
    *base, last = value.axes
    whole = int(w.axes[last].dim)

    def axis(extent: int) -> str:
        name = w.name("e")
        w.axes[name] = Axis(name, str(extent), whole=True, static=True)
        return name

    before = ":, " * len(base)
    kind = c.below(3)
    inner = [n for n in (2, 3, 4, 8, 12) if whole % n == 0 and whole > n]
    if kind == 1 and inner:
        size = c.pick(inner)
        extents = [w.axes[a].dim if w.axes[a].whole else a for a in base]
        text = f"{value.text}.reshape({', '.join([*extents, str(whole // size), str(size)])})"
        return Value(text, (*base, axis(whole // size), axis(size)), value.dtype)
    if kind == 2:
        count = min(whole, c.pick((2, 1, 3, 5)))
        values, places = w.name("t"), w.name("t")
        w.line(f"{values}, {places} = topk({value.text}, {count}, axis={len(base)})")
        axes = (*base, axis(count))
        return Value(places, axes, "i32") if c.chance(40) else Value(values, axes, value.dtype)
    extent = 1 + c.below(whole)
    starts = [c.below(whole - extent + 1) for _ in range(2)]
    texts = [f"{value.text}[{before}{lo}:{lo + extent}]" for lo in starts]
    text = f"({c.pick((' - ', ' + ', ' * ')).join(texts)})" if c.chance(50) else texts[0]
    return Value(text, (*base, axis(extent)), value.dtype)


def reduction(w: Writer, value: Value, axis: str) -> Value:
    """A reduction of one axis."""
    c = w.choices
    ops = ("sum", "max", "min", "argmax", "argmin", "any", "all")
    if value.dtype in INTEGERS:
        op = c.pick(ops[1:] if value.dtype[1:] in ("8", "16") else ops)
    else:
        op = c.pick(ops[:3] if value.dtype in ("f32", "f64") else ops[1:3])
    rest = tuple(a for a in value.axes if a != axis)
    place = value.axes.index(axis)
    at = f", axis={place}" if rest or c.chance(50) else ""
    if op in ("any", "all"):
        return Value(f"{op}({value.text} > 0{at}).to(i32)", rest, "i32")
    dtype = "i32" if op.startswith("arg") else value.dtype
    return Value(f"{op}({value.text}{at})", rest, dtype)
