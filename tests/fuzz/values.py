"""Random tile expressions: typed text."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from tests.fuzz.choices import Choices

INTEGERS = ("i32", "i8", "u8", "i16", "u16", "i64", "u32")
FLOATS = ("f32", "bf16", "f16", "f64")


@dataclass(frozen=True)
class Value:
    """An expression: `axes` names the axis of each place of its shape."""

    text: str
    axes: tuple[str, ...]
    dtype: str


@dataclass
class Scope:
    """What an expression may mention: names bound so far, spans in scope by axis, integer scalars, and how to load a
    tile of some of the axes."""

    names: list[Value] = field(default_factory=list)
    spans: tuple[str, ...] = ()
    scalars: tuple[str, ...] = ()
    load: Callable[[tuple[str, ...], str], Value] | None = None


def spread(value: Value, axes: tuple[str, ...]) -> str:
    """Text of a value broadcast to `axes`, of which its own are a part in the same order."""
    if value.axes == axes or not value.axes or axes[len(axes) - len(value.axes) :] == value.axes:
        return value.text
    first = axes.index(value.axes[0])
    places = ", ".join(":" if axis in value.axes else "None" for axis in axes[first:])
    return f"{_closed(value.text)}[{places}]"


def _closed(text: str) -> str:
    """Text that may be followed by an index or a method."""
    depth = 0
    for place, sign in enumerate(text):
        depth += sign in "(["
        depth -= sign in ")]"
        if depth == 0 and sign == " ":
            return f"({text})"
        if sign in "-~" and place == 0:
            return f"({text})"
    return text


def cast(value: Value, dtype: str) -> Value:
    """The value in another dtype."""
    if value.dtype == dtype:
        return value
    return Value(f"{_closed(value.text)}.to({dtype})", value.axes, dtype)


class Expressions:
    """Makes expressions from choices."""

    def __init__(self, choices: Choices) -> None:
        self.choices = choices

    def literal(self, dtype: str) -> Value:
        """A small constant; weak, so of any dtype of its kind."""
        if dtype in FLOATS:
            return Value(self.choices.pick(("1.0", "0.5", "-2.0", "0.0", "3.25")), (), dtype)
        low = ("1", "2", "0", "5", "7") if dtype[0] == "u" else ("1", "2", "0", "-3", "7")
        return Value(self.choices.pick(low), (), dtype)

    def leaf(self, scope: Scope, axes: tuple[str, ...], dtype: str) -> Value:
        """Something without operations: a name, a load, a span, a scalar, a literal."""
        c = self.choices
        names = [v for v in scope.names if set(v.axes) <= set(axes) and _ordered(v.axes, axes)]
        kind = c.below(10)
        if kind >= 7 and names:
            return cast(c.pick(names), dtype)
        if kind == 6:
            return self.literal(dtype)
        spans = [s for s in scope.spans if s in axes]
        if kind == 5 and spans and dtype in ("i32", "f32", "i64"):
            return self._span(spans, dtype)
        if kind == 4 and scope.scalars and dtype in ("i32", "f32"):
            scalar = c.pick(scope.scalars)
            return Value(scalar if dtype == "i32" else f"{scalar}.to(f32)", (), dtype)
        if scope.load is not None:
            part = axes if c.chance(65) else tuple(a for a in axes if c.chance(50))
            other = c.pick(INTEGERS if dtype in INTEGERS else FLOATS)
            source = other if c.chance(25) else dtype
            return cast(scope.load(part, source), dtype)
        return cast(c.pick(names), dtype) if names else self.literal(dtype)

    def _span(self, spans: list[str], dtype: str) -> Value:
        span = self.choices.pick(spans)
        return cast(Value(span, (span,), "i32"), dtype)

    def tree(self, scope: Scope, axes: tuple[str, ...], dtype: str, depth: int) -> Value:
        """An expression of at most `axes` in `dtype`."""
        c = self.choices
        if depth <= 0 or c.chance(15):
            return self.leaf(scope, axes, dtype)
        kind = c.below(9)
        if kind <= 3:
            return self._binary(scope, axes, dtype, depth)
        if kind <= 5:
            return self._unary(self.tree(scope, axes, dtype, depth - 1))
        if kind == 6:
            return self._where(scope, axes, dtype, depth)
        if kind == 7:
            other = c.pick(INTEGERS if dtype in INTEGERS else FLOATS)
            if dtype in FLOATS and c.chance(25):
                other = c.pick(("i32", "i8", "i16"))
            inner = self.tree(scope, axes, other, depth - 1)
            return cast(inner, dtype) if inner.axes else self.leaf(scope, axes, dtype)
        return self._binary(scope, axes, dtype, depth)

    def joined(self, axes: tuple[str, ...], *values: Value) -> tuple[str, ...]:
        """The axes of an element-wise result."""
        return tuple(a for a in axes if any(a in v.axes for v in values))

    def _binary(self, scope: Scope, axes: tuple[str, ...], dtype: str, depth: int) -> Value:
        c = self.choices
        left = self.tree(scope, axes, dtype, depth - 1)
        right = self.tree(scope, axes, dtype, depth - 1)
        both = self.joined(axes, left, right)
        a, b = spread(left, both), spread(right, both)
        if dtype in FLOATS:
            sign = c.pick(("+", "-", "*", "maximum", "minimum", "/"))
            if sign == "/":
                return Value(f"({a} / (abs({b}) + 1.0))", both, dtype)
        else:
            sign = c.pick(("+", "-", "*", "maximum", "minimum", "&", "|", "^", "//", "%", "<<"))
            if sign in ("//", "%"):
                return Value(f"({a} {sign} maximum({b}, 1))", both, dtype)
            if sign == "<<":
                return Value(f"({a} << ({b} & 3))", both, dtype)
        if sign in ("maximum", "minimum"):
            return Value(f"{sign}({a}, {b})", both, dtype)
        return Value(f"({a} {sign} {b})", both, dtype)

    def _unary(self, value: Value) -> Value:
        c = self.choices
        a = value.text
        if not value.axes:
            return value
        if value.dtype in FLOATS:
            forms = ("-{}", "abs({})", "tanh({})", "exp(-abs({}))", "sqrt(abs({}))", "floor({})")
            forms += ("sigmoid({})", "({} * {})", "rsqrt(abs({}) + 1.0)", "log(abs({}) + 0.5)")
        elif value.dtype[0] == "u":
            forms = ("~{}", "({} >> 1)", "({} + 1)")
        else:
            forms = ("-{}", "abs({})", "~{}", "({} >> 1)", "({} + 1)")
        form = c.pick(forms)
        inner = _closed(a) if form[0] in "-~" or "({}" in form else a
        return Value(f"({form.replace('{}', inner)})", value.axes, value.dtype)

    def condition(
        self, scope: Scope, axes: tuple[str, ...], depth: int
    ) -> tuple[str, tuple[str, ...]]:
        """A bool tile's text and axes."""
        c = self.choices
        spans = [s for s in scope.spans if s in axes]
        kind = c.below(4)
        if kind == 0 and len(spans) >= 2:
            a, b = spans[0], spans[1]
            both = self.joined(axes, Value(a, (a,), "i32"), Value(b, (b,), "i32"))
            left, right = (spread(Value(s, (s,), "i32"), both) for s in (a, b))
            shift = c.pick(("", " + 3", " - 2"))
            sign = c.pick((">=", "<", "==", "!="))
            return f"({left} {sign} {right}{shift})", both
        if kind <= 1 and spans:
            span = c.pick(spans)
            bound = c.pick(("3", "16", "1"))
            test = c.pick((f"({span} < {bound})", f"({span} % 3 == 0)", f"({span} >= {bound})"))
            return test, (span,)
        dtype = c.pick(("i32", "f32", "i8", "bf16"))
        left = self.leaf(scope, axes, dtype)
        if not left.axes:
            left = cast(scope.load(axes, dtype), dtype) if scope.load else left
        right = self.literal(dtype)
        text = f"({left.text} {c.pick(('<', '>', '>=', '=='))} {right.text})"
        if kind == 3 and depth > 0:
            other, more = self.condition(scope, axes, depth - 1)
            both = self.joined(axes, left, Value("", more, ""))
            sign = c.pick(("&", "|", "^"))
            first = spread(Value(text, left.axes, "bool"), both)
            return f"({first} {sign} {spread(Value(other, more, 'bool'), both)})", both
        return text, left.axes

    def _where(self, scope: Scope, axes: tuple[str, ...], dtype: str, depth: int) -> Value:
        test, tested = self.condition(scope, axes, depth - 1)
        yes = self.tree(scope, axes, dtype, depth - 1)
        no = self.leaf(scope, axes, dtype)
        if not yes.axes and not no.axes:
            no = scope.load(axes, dtype) if scope.load else no
        both = self.joined(axes, Value("", tested, ""), yes, no)
        mask = Value(test, tested, "bool")
        parts = ", ".join(spread(v, both) for v in (mask, yes, no))
        return Value(f"where({parts})", both, dtype)


def _ordered(part: tuple[str, ...], axes: tuple[str, ...]) -> bool:
    places = [axes.index(a) for a in part]
    return places == sorted(places)
