"""Kinds of numbers: what is known of an element by how special it is, and what operations make of that.

-inf, negative, -0, +0, positive, inf, NaN; false, true. A `Number` is the set of kinds that an element may have, and whether it *is* what a
loop carried into a trip, in value (a zero may change its sign). What an operation makes of kinds is read off samples of them that reach the ends of the
widest type, so that those of a narrower one and of a contracted multiply-add stay within the sets; exact results are rules of their own:

    x - x = 0, exp(0) = 1        for x finite and carried        0 * x = 0        for x finite
    x + 0 = x, x * 1 = x, max(x, -inf) = x
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from functools import cache, reduce
from itertools import product
from operator import or_

from tilec.ir.dtypes import DType
from tilec.lazy_dataclass import dataclass

NEG_INF, NEG, NEG_ZERO, ZERO, POS, INF, NAN, FALSE, TRUE = (1 << n for n in range(9))
ZEROS = NEG_ZERO | ZERO
INTEGERS = NEG | ZERO | POS
FINITE = NEG | ZEROS | POS
FLOATS = FINITE | NEG_INF | INF | NAN
BOOLS = FALSE | TRUE

_MAGNITUDES = (5e-324, 1e-300, 1e-30, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 700.0, 1e30, 1e300, 1.7e308)
_SAMPLES: dict[int, tuple[float, ...]] = {
    NEG_INF: (-math.inf,),
    NEG: tuple(-x for x in _MAGNITUDES),
    NEG_ZERO: (-0.0,),
    ZERO: (0.0,),
    POS: _MAGNITUDES,
    INF: (math.inf,),
    NAN: (math.nan,),
    FALSE: (0.0,),
    TRUE: (1.0,),
}


@dataclass(frozen=True)
class Number:
    """What is known of an element: its `kinds`, the id of the carried name's entry that it is the `same` as, and whether it is exactly `one`."""

    kinds: int
    same: int | None = None
    one: bool = False

    @property
    def is_zero(self) -> bool:
        """Whether it is a zero."""
        return not self.kinds & ~ZEROS

    @property
    def is_finite(self) -> bool:
        """Whether it is a finite number."""
        return not self.kinds & ~FINITE


def anything(dtype: DType) -> Number:
    """A number of a type of which nothing is known."""
    if dtype.name == "bool":
        return Number(BOOLS)
    return Number(FLOATS if dtype.is_float else INTEGERS)


def constant(value: bool | int | float) -> Number:
    """A literal."""
    if isinstance(value, bool):
        return Number(TRUE if value else FALSE)
    return Number(_kind(float(value)), one=value == 1)


def kinds_in(kinds: int) -> Iterator[int]:
    """The kinds of a set, one by one."""
    return (1 << n for n in range(kinds.bit_length()) if kinds >> n & 1)


def join(numbers: Iterable[Number]) -> Number:
    """One of several."""
    return reduce(_either, numbers)


def _either(a: Number, b: Number) -> Number:
    same = a.same if a.same == b.same else None
    return Number(a.kinds | b.kinds, same, a.one and b.one)


def elementwise(op: str, args: tuple[Number, ...], dtype: DType) -> Number:
    """What an operation of Tile IR makes of its arguments; `dtype` is its result's."""
    if op == "where":
        condition, a, b = args
        if condition.kinds == TRUE:
            return a
        return b if condition.kinds == FALSE else _either(a, b)
    if op == "fma":
        product = elementwise("mul", args[:2], dtype)
        return elementwise("add", (product, args[2]), dtype)
    exact = _exact(op, args)
    if exact is not None:
        return exact
    if not all(n.kinds for n in args):
        return Number(0)
    if op in _COMPARED or (op in _LOGICAL and args[0].kinds & BOOLS):
        return Number(_applied(op, tuple(n.kinds for n in args)))
    if op not in _FUNCTIONS or (not dtype.is_float and op not in ("min", "max")):
        return anything(dtype)
    if op in ("sin", "cos"):
        finite = args[0].kinds & FINITE
        return Number((FINITE if finite else 0) | (NAN if args[0].kinds & ~FINITE else 0))
    return Number(_applied(op, tuple(n.kinds for n in args)))


def _exact(op: str, args: tuple[Number, ...]) -> Number | None:
    """The result where it is one of the arguments, or an exact number, whatever the kinds are."""
    match op, args:
        case "add", (x, y):
            for a, b in ((x, y), (y, x)):
                if a.same is not None and b.is_zero:
                    return Number(_applied("add", (a.kinds, b.kinds)), a.same)
        case "sub", (x, y):
            if x.same is not None and x.same == y.same:
                zero = ZERO if x.kinds & FINITE else 0
                return Number(zero | (NAN if x.kinds & ~FINITE else 0))
            if x.same is not None and y.is_zero:
                return Number(_applied("sub", (x.kinds, y.kinds)), x.same)
        case "mul", (x, y):
            for a, b in ((x, y), (y, x)):
                if b.one:
                    return a
        case "div", (x, y) if y.one:
            return x
        case (("max" | "min"), (x, y)):
            least = NEG_INF if op == "max" else INF
            for a, b in ((x, y), (y, x)):
                if a.same is not None and (b.kinds == least or a.same == b.same):
                    return a
        case (("exp" | "exp2"), (x,)) if x.is_zero:
            return Number(POS, one=True)
        case (("eq" | "ne" | "le" | "ge" | "lt" | "gt"), (x, y)):
            if x.same is not None and x.same == y.same and not x.kinds & NAN:
                return Number(TRUE if op in ("eq", "le", "ge") else FALSE)
    return None


def cast(x: Number, source: DType, dtype: DType) -> Number:
    """A conversion."""
    if source == dtype:
        return x
    if dtype.name == "bool":
        zero = FALSE if x.kinds & ZEROS else 0
        return Number(zero | (TRUE if x.kinds & ~ZEROS else 0))
    if source.name == "bool":
        kinds = (ZERO if x.kinds & FALSE else 0) | (POS if x.kinds & TRUE else 0)
        return Number(kinds, one=x.kinds == TRUE)
    if x.one or x.is_zero:
        return Number(x.kinds if dtype.is_float else POS if x.one else ZERO, one=x.one)
    if not dtype.is_float:
        return Number(INTEGERS)
    if dtype.bits >= 32 and (not source.is_float or dtype.bits >= source.bits):
        return Number(x.kinds)
    if dtype.bits <= 8:
        return anything(dtype)
    kinds = x.kinds
    kinds |= (NEG_INF | NEG_ZERO) if kinds & NEG else 0
    kinds |= (INF | ZERO) if kinds & POS else 0
    return Number(kinds)


# ------------------------------------------------------------------------------------- many elements

_FOLDS: dict[str, tuple[str, int]] = {
    "sum": ("add", ZERO),
    "max": ("max", NEG_INF),
    "min": ("min", INF),
    "any": ("or", FALSE),
    "all": ("and", TRUE),
}
"""What reductions combine by, and what they give of nothing."""


def folded(op: str, parts: Iterable[Number], dtype: DType, *, some: bool) -> Number:
    """A reduction over elements of each of the `parts`, one at least; without `some` over any number of them, none included."""
    if op not in _FOLDS or not (dtype.is_float or dtype.name == "bool"):
        return anything(dtype)
    step, identity = _FOLDS[op]
    total: Number | None = None
    for part in parts:
        kinds = part.kinds
        while True:
            more = kinds | elementwise(step, (Number(kinds), Number(kinds)), dtype).kinds
            if more == kinds:
                break
            kinds = more
        one = Number(kinds)
        total = one if total is None else elementwise(step, (total, one), dtype)
    if total is None:
        return Number(identity)
    # a sum may begin with the 0 of no elements
    empty = identity if not some or (op == "sum" and total.kinds & NEG_ZERO) else 0
    return Number(total.kinds | empty)


# ------------------------------------------------------------------------------------------- samples


def _divided(a: float, b: float) -> float:
    if b:
        return a / b
    return math.nan if a == 0 or a != a else math.copysign(math.inf, a) * math.copysign(1.0, b)


def _least(a: float, b: float) -> float:
    return math.nan if a != a or b != b else min(a, b)


def _greatest(a: float, b: float) -> float:
    return math.nan if a != a or b != b else max(a, b)


def _power(base: float) -> Callable[[float], float]:
    def power(x: float) -> float:
        try:
            return math.pow(base, x)
        except OverflowError:
            return math.inf

    return power


def _logarithm(x: float) -> float:
    if x == 0:
        return -math.inf
    return math.nan if x != x or x < 0 else math.log(x)


def _root(x: float) -> float:
    return x if x == 0 else math.nan if x != x or x < 0 else math.sqrt(x)


def _whole(rounding: Callable[[float], int]) -> Callable[[float], float]:
    def rounded(x: float) -> float:
        return math.copysign(float(rounding(x)), x) if math.isfinite(x) else x

    return rounded


_FUNCTIONS: dict[str, Callable[..., float]] = {
    "add": lambda a, b: a + b,
    "sub": lambda a, b: a - b,
    "mul": lambda a, b: a * b,
    "div": _divided,
    "neg": lambda a: -a,
    "abs": abs,
    "min": _least,
    "max": _greatest,
    "exp": _power(math.e),
    "exp2": _power(2.0),
    "log": _logarithm,
    "log2": _logarithm,
    "sqrt": _root,
    "rsqrt": lambda a: _divided(1.0, _root(a)),
    "tanh": math.tanh,
    "erf": math.erf,
    "sigmoid": lambda a: _divided(1.0, 1.0 + _power(math.e)(-a)),
    "sin": math.sin,
    "cos": math.cos,
    "floor": _whole(math.floor),
    "ceil": _whole(math.ceil),
    "round": _whole(round),
}
_COMPARED: dict[str, Callable[..., bool]] = {
    "eq": lambda a, b: a == b,
    "ne": lambda a, b: a != b,
    "lt": lambda a, b: a < b,
    "le": lambda a, b: a <= b,
    "gt": lambda a, b: a > b,
    "ge": lambda a, b: a >= b,
}
_LOGICAL: dict[str, Callable[..., bool]] = {
    "and": lambda a, b: bool(a and b),
    "or": lambda a, b: bool(a or b),
    "xor": lambda a, b: bool(a) != bool(b),
    "not": lambda a: not a,
}


def _kind(x: float) -> int:
    if x != x:
        return NAN
    if x == 0:
        return NEG_ZERO if math.copysign(1.0, x) < 0 else ZERO
    if math.isinf(x):
        return INF if x > 0 else NEG_INF
    return POS if x > 0 else NEG


@cache
def _applied(op: str, kinds: tuple[int, ...]) -> int:
    """The kinds of an operation's results."""
    found = 0
    for a in kinds_in(kinds[0]):
        for b in kinds_in(kinds[1]) if len(kinds) > 1 else (0,):
            found |= _sampled(op, (a, b) if b else (a,))
    return found


@cache
def _sampled(op: str, kinds: tuple[int, ...]) -> int:
    places = product(*(_SAMPLES[kind] for kind in kinds))
    test = _COMPARED.get(op) or _LOGICAL.get(op)
    if test is not None:
        return reduce(or_, (TRUE if test(*args) else FALSE for args in places))
    found = reduce(or_, (_kind(_FUNCTIONS[op](*args)) for args in places))
    # which of two zeros is the greater one, and the sign of a sum of none, are not said
    return found | ZEROS if op in ("min", "max") and found & ZEROS else found
