"""Formulas of an element, multiplied out so that multiply-adds do them: nvcc contracts a * b + c, and nothing else.

h * (1 + tanh(u))           →   h * tanh(u) + h                 h gets a variable
c * (x + k * x * x * x)     →   x * (c * k * x * x + c)         c and k are numbers, and so is c * k
x * a + b * (n + 8)         →   fma(x, a, b * (n + 8))          what indices make is the same for several x: it is multiplied once

exp2(fma(x, a, fma(n + 8, b, r)))    →    exp2(fma(x, a, fma(8, b, fma(n, b, r))))     n is one number of the thread

All but the last have one rounding less. The first is for functions whose values are between -1 and 1, where the product is no larger than h, the
second nowhere larger than what stood there. In strict mode everything is computed as written.
"""

from __future__ import annotations

from collections.abc import Callable

from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import F32
from tilec.passes.lower.packed import Walk, rewritten

BOUNDED = frozenset({"tanh", "erf", "sin", "cos"})
"""Functions whose values are between -1 and 1."""
FAR = 2.0**100
"""A number beyond which, or below whose reciprocal, a float may have no room."""


def multiply_out(walk: Walk, name: Callable[[str], str]) -> None:
    """Rewrite all formulas of a walk. `name` gives a free name inside of it."""
    elements: list[k.Op] = []

    def change(node: object) -> object:
        if isinstance(node, k.Apply) and node.op == "exp2" and node.math == "fast":
            return rewritten(node, _distance)
        if _is(node, "add"):
            return _over_indices(node) or node
        if not _is(node, "mul"):
            return node
        for factor, inner in _orders(node):
            if not _is(inner, "add"):
                continue
            for first, second in _orders(inner):
                if first == k.Literal_(1.0, F32) and _is_bounded(second):
                    if not isinstance(factor, k.Local | k.Element | k.Literal_):
                        named = name("factor")
                        elements.append(k.Let(named, F32, factor))
                        factor = k.Local(named, F32)
                    return _apply("add", _apply("mul", factor, second), factor)
                found = _pulled(factor, first, second)
                if found is not None:
                    return found
        return node

    for op in walk.elements:
        new = rewritten(op, change)
        elements.append(new)
    walk.inside = [rewritten(op, change) for op in walk.inside]
    walk.elements = elements


def _over_indices(node: object) -> k.Expr | None:
    """A product of a register's element and one of what indices make, as a multiply-add of the former; None for other sums."""
    for first, second in _orders(node):
        if _is(first, "mul") and _is(second, "mul") and _of_indices(second):
            assert isinstance(first, k.Apply)
            if any(isinstance(arg, k.Element) for arg in first.args):
                return k.Apply("fma", (*first.args, second), F32)
    return None


def _distance(node: object) -> object:
    """A multiply-add of a distance of indices, that of the thread first."""
    if isinstance(node, k.Apply) and node.op == "fma" and node.math == "fast":
        distance, factor, rest = node.args
        if _is(distance, "add") and _of_indices(distance) and isinstance(factor, k.Local):
            assert isinstance(distance, k.Apply)
            own, inside = distance.args
            return k.Apply("fma", (inside, factor, k.Apply("fma", (own, factor, rest), F32)), F32)
    return node


def _of_indices(node: k.Expr) -> bool:
    """Whether indices make an expression, with numbers and what is the same everywhere."""
    made = False
    waiting = [node]
    while waiting:
        expr = waiting.pop()
        match expr:
            case k.Index():
                made = True
            case k.Apply():
                waiting += expr.args
            case k.Local() | k.Literal_():
                pass
            case _:
                return False
    return made


def _pulled(factor: k.Expr, x: k.Expr, term: k.Expr) -> k.Expr | None:
    """`factor * (x + term)` with `x` in front, where the factor is a number, and `term` a product of a number and powers of `x`."""
    if not isinstance(factor, k.Literal_) or not isinstance(x, k.Local | k.Element):
        return None
    others = _factors(term)
    if x not in others:
        return None
    others.remove(x)
    numbers = [f for f in others if isinstance(f, k.Literal_)]
    if len(numbers) != 1 or any(f != x for f in others if f is not numbers[0]):
        return None
    both = float(factor.value) * float(numbers[0].value)
    if not 1 / FAR < abs(both) < FAR:
        return None
    result: k.Expr = k.Literal_(both, F32)
    for _ in range(len(others) - 1):
        result = _apply("mul", result, x)
    return _apply("mul", x, _apply("add", result, factor))


def _factors(expr: k.Expr) -> list[k.Expr]:
    """What a product is made of."""
    if not _is(expr, "mul"):
        return [expr]
    assert isinstance(expr, k.Apply)
    return [f for arg in expr.args for f in _factors(arg)]


def _is(node: object, op: str) -> bool:
    return (
        isinstance(node, k.Apply)
        and node.op == op
        and node.rep == F32
        and node.math == "fast"
        and len(node.args) == 2
    )


def _is_bounded(node: k.Expr) -> bool:
    return isinstance(node, k.Apply) and node.op in BOUNDED and node.rep == F32


def _orders(node: object) -> tuple[tuple[k.Expr, k.Expr], ...]:
    """Both orders of an operation's operands."""
    assert isinstance(node, k.Apply)
    a, b = node.args
    return (a, b), (b, a)


def _apply(op: str, a: k.Expr, b: k.Expr) -> k.Expr:
    return k.Apply(op, (a, b), F32)
