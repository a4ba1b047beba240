"""Symbolic integers: sizes, bounds, span starts and offsets.

A `Sym` is a polynomial with integer coefficients over atoms; an atom is a variable or an opaque application
(`//`, `%`, `min`, `max`) of other Syms. Construction normalises, so equal polynomials compare equal: two
extents agree iff their Syms are equal. The same Sym is evaluated in Python and rendered to C.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from operator import attrgetter
from typing import Literal, TypeAlias

from tilec.lazy_dataclass import dataclass

VarKind = Literal["dim", "tile", "trip", "value", "scalar", "local"]
"""dim: run-time size (0 ≤ d < 2^31); tile: a tile-size parameter (≥ 1, its number lies in the candidate); trip: number of a
loop's or grid axis' current trip (≥ 0); value: a rank-0 integer of Tile IR; scalar: an integer parameter; local: a variable
of the generated text."""


@dataclass(frozen=True, order=True)
class Var:
    """A variable. `key` tells two of the same name apart (a value's id, a loop's number)."""

    name: str
    kind: VarKind
    key: int = 0

    @cached_property
    def sort_key(self) -> tuple[int, str]:
        """Where the variable stands in a monomial: before applications, by kind and name."""
        return (0, f"{self.kind}:{self.name}:{self.key:09d}")

    def __str__(self) -> str:
        return (
            self.name
            if self.kind in ("dim", "tile", "scalar", "local")
            else f"{self.name}.{self.key}"
        )


ApplyOp = Literal["//", "%", "min", "max"]


@dataclass(frozen=True)
class Apply:
    """An application that polynomial arithmetic cannot see through. `//` and `%` floor."""

    op: ApplyOp
    args: tuple[Sym, ...]

    @cached_property
    def sort_key(self) -> tuple[int, str]:
        """Where the application stands in a monomial: behind the variables, by its text."""
        return (1, str(self))

    def __str__(self) -> str:
        if self.op in ("min", "max"):
            return f"{self.op}({', '.join(map(str, self.args))})"
        left, right = (str(a) if a.is_atomic else f"({a})" for a in self.args)
        return f"{left} {self.op} {right}"


Atom: TypeAlias = "Var | Apply"
Monomial: TypeAlias = "tuple[Atom, ...]"


_atom_key = attrgetter("sort_key")


def _term_key(term: tuple[Monomial, int]) -> tuple[int, list[tuple[int, str]]]:
    return (-len(term[0]), [a.sort_key for a in term[0]])


@dataclass(frozen=True)
class Sym:
    """Sum of `coefficient · product of atoms`; `terms` is sorted, has no zero coefficient, the constant last."""

    terms: tuple[tuple[Monomial, int], ...]

    # ---- construction

    @staticmethod
    def of(value: Sym | Var | Apply | int) -> Sym:
        """A Sym from an integer, an atom or itself."""
        if isinstance(value, Sym):
            return value
        if isinstance(value, int):
            return Sym((((), int(value)),)) if value else ZERO
        return Sym((((value,), 1),))

    @staticmethod
    def _from(terms: Mapping[Monomial, int]) -> Sym:
        kept = [(m, c) for m, c in terms.items() if c]
        if len(kept) > 1:
            kept.sort(key=_term_key)
        return Sym(tuple(kept))

    def __hash__(self) -> int:
        # not a `cached_property`, which takes a lock in Python 3.11
        known: int | None = self.__dict__.get("_hash")
        if known is None:
            known = self.__dict__["_hash"] = hash(self.terms)
        return known

    def __add__(self, other: Sym | int) -> Sym:
        added = Sym.of(other)
        if not added.terms:
            return self
        if not self.terms:
            return added
        for one, rest in ((self.terms, added.terms), (added.terms, self.terms)):
            if not one[0][0]:
                # a number changes the last term alone
                number = one[0][1]
                if not rest[-1][0]:
                    number += rest[-1][1]
                    rest = rest[:-1]
                return Sym((*rest, ((), number))) if number else Sym(rest)
        total = dict(self.terms)
        for monomial, coefficient in added.terms:
            total[monomial] = total.get(monomial, 0) + coefficient
        return Sym._from(total)

    __radd__ = __add__

    def __neg__(self) -> Sym:
        return Sym(tuple((m, -c) for m, c in self.terms))

    def __sub__(self, other: Sym | int) -> Sym:
        return self + (-Sym.of(other))

    def __rsub__(self, other: int) -> Sym:
        return Sym.of(other) - self

    def __mul__(self, other: Sym | int) -> Sym:
        factor = Sym.of(other)
        for one, rest in ((self, factor), (factor, self)):
            number = one.constant
            if number is not None:
                # a number scales the terms and leaves their order
                if number == 1:
                    return rest
                return Sym(tuple((m, c * number) for m, c in rest.terms)) if number else ZERO
        total: dict[Monomial, int] = {}
        for m1, c1 in self.terms:
            for m2, c2 in factor.terms:
                monomial = tuple(sorted(m1 + m2, key=_atom_key))
                total[monomial] = total.get(monomial, 0) + c1 * c2
        return Sym._from(total)

    __rmul__ = __mul__

    def __floordiv__(self, other: Sym | int) -> Sym:
        divisor = Sym.of(other)
        if divisor == ONE:
            return self
        exact = self.divided_by(divisor)
        if exact is not None:
            return exact
        if self.constant is not None and divisor.constant:
            return Sym.of(self.constant // divisor.constant)
        if divisor.constant is not None and divisor.constant > 0:
            # (d*q + r) // d == q + r // d
            whole = {m: c // divisor.constant for m, c in self.terms if c % divisor.constant == 0}
            rest = {m: c for m, c in self.terms if c % divisor.constant}
            if whole and rest:
                return Sym._from(whole) + Sym._from(rest) // divisor
        return Sym.of(Apply("//", (self, divisor)))

    def __mod__(self, other: Sym | int) -> Sym:
        divisor = Sym.of(other)
        if self.divided_by(divisor) is not None:
            return ZERO
        if self.constant is not None and divisor.constant:
            return Sym.of(self.constant % divisor.constant)
        if divisor.constant is not None and divisor.constant > 0:
            rest = {m: c % divisor.constant for m, c in self.terms}
            return Sym.of(Apply("%", (Sym._from(rest), divisor)))
        return Sym.of(Apply("%", (self, divisor)))

    def divided_by(self, divisor: Sym) -> Sym | None:
        """The exact quotient by a single term, or None where it does not divide every term."""
        if len(divisor.terms) != 1:
            return ONE if self == divisor and self.terms else None
        (wanted, scale) = divisor.terms[0]
        result: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms:
            left = list(monomial)
            for atom in wanted:
                if atom not in left:
                    return None
                left.remove(atom)
            if coefficient % scale:
                return None
            result[tuple(left)] = coefficient // scale
        return Sym._from(result)

    # ---- inspection

    @property
    def constant(self) -> int | None:
        """The value if there is no atom, else None."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    @property
    def is_atomic(self) -> bool:
        """A non-negative constant or a variable or min/max: prints without parentheses."""
        if self.constant is not None:
            return self.constant >= 0
        if len(self.terms) != 1 or self.terms[0][1] != 1 or len(self.terms[0][0]) != 1:
            return False
        atom = self.terms[0][0][0]
        return isinstance(atom, Var) or atom.op in ("min", "max")

    @cached_property
    def variables(self) -> frozenset[Var]:
        """All variables, those inside applications too."""
        found: set[Var] = set()
        for monomial, _ in self.terms:
            for atom in monomial:
                if isinstance(atom, Var):
                    found.add(atom)
                else:
                    for argument in atom.args:
                        found |= argument.variables
        return frozenset(found)

    def evaluate(self, value_of: Callable[[Var], int]) -> int:
        """The number under an assignment. Division or modulus by zero gives 0 (unspecified in the language, never a trap)."""
        total = 0
        for monomial, coefficient in self.terms:
            product = coefficient
            for atom in monomial:
                if isinstance(atom, Var):
                    product *= value_of(atom)
                else:
                    product *= _apply(atom.op, [a.evaluate(value_of) for a in atom.args])
            total += product
        return total

    def substitute(self, replace: Callable[[Var], Sym | None]) -> Sym:
        """The Sym with variables replaced (None keeps one) and normalised again."""
        total = ZERO
        kept: list[tuple[Monomial, int]] = []
        for term in self.terms:
            monomial, coefficient = term
            factors: list[Sym | Var | Apply] = []
            changed = False
            for atom in monomial:
                new: Sym | None = None
                if isinstance(atom, Var):
                    new = replace(atom)
                else:
                    args = tuple(a.substitute(replace) for a in atom.args)
                    if args != atom.args:
                        new = _build(atom.op, args)
                changed = changed or new is not None
                factors.append(atom if new is None else new)
            if not changed:
                kept.append(term)
                continue
            product = Sym.of(coefficient)
            for factor in factors:
                product = product * Sym.of(factor)
            total = total + product
        if not total.terms:
            return self if len(kept) == len(self.terms) else Sym(tuple(kept))
        return total + Sym(tuple(kept))

    def bounds(
        self, range_of: Callable[[Var], tuple[int | None, int | None]]
    ) -> tuple[int | None, int | None]:
        """(least, greatest) value by interval arithmetic, None where unbounded. Sound, not tight."""
        low: int | None = 0
        high: int | None = 0
        for monomial, coefficient in self.terms:
            least: int | None = 1
            most: int | None = 1
            if monomial:
                least, most = _atom_bounds(monomial[0], range_of)
                for atom in monomial[1:]:
                    least, most = _times((least, most), _atom_bounds(atom, range_of))
            if coefficient < 0:
                least, most = most, least
            low = None if low is None or least is None else low + coefficient * least
            high = None if high is None or most is None else high + coefficient * most
            if low is None and high is None:
                break
        return low, high

    def __str__(self) -> str:
        if not self.terms:
            return "0"
        text = ""
        for monomial, coefficient in self.terms:
            parts = [
                str(a) if not isinstance(a, Apply) or a.op in ("min", "max") else f"({a})"
                for a in monomial
            ]
            if len(self.terms) == 1 and coefficient == 1 and len(monomial) == 1:
                parts = [str(monomial[0])]
            magnitude = abs(coefficient)
            if magnitude != 1 or not parts:
                parts.insert(0, str(magnitude))
            body = "*".join(parts)
            if not text:
                text = body if coefficient > 0 else f"-{body}"
            else:
                text += f" + {body}" if coefficient > 0 else f" - {body}"
        return text

    __repr__ = __str__


ZERO = Sym(())
ONE = Sym((((), 1),))

Interval: TypeAlias = "tuple[int | None, int | None]"


def _times(a: Interval, b: Interval) -> Interval:
    if a == (0, 0) or b == (0, 0):
        return (0, 0)
    if a[0] is not None and a[0] >= 0 and b[0] is not None and b[0] >= 0:
        return a[0] * b[0], None if a[1] is None or b[1] is None else a[1] * b[1]
    if None not in a and None not in b:
        products = [x * y for x in a for y in b if x is not None and y is not None]
        return min(products), max(products)
    for fixed, other in ((a, b), (b, a)):
        if fixed[0] is not None and fixed[0] == fixed[1]:
            ends = [None if e is None else e * fixed[0] for e in other]
            return (ends[0], ends[1]) if fixed[0] > 0 else (ends[1], ends[0])
    return (None, None)


def _atom_bounds(atom: Atom, range_of: Callable[[Var], Interval]) -> Interval:
    if isinstance(atom, Var):
        return range_of(atom)
    spans = [a.bounds(range_of) for a in atom.args]
    lows, highs = [s[0] for s in spans], [s[1] for s in spans]
    known_lows = [x for x in lows if x is not None]
    known_highs = [x for x in highs if x is not None]
    if atom.op == "min":
        return (
            min(known_lows) if len(known_lows) == len(lows) else None,
            min(known_highs, default=None),
        )
    if atom.op == "max":
        return (
            max(known_lows, default=None),
            max(known_highs) if len(known_highs) == len(highs) else None,
        )
    divisor = spans[1]
    if divisor[0] is None or divisor[0] <= 0:
        return (None, None)
    if atom.op == "%":
        return (0, None if divisor[1] is None else divisor[1] - 1)
    low = None
    if lows[0] is not None:
        low = (
            lows[0] // divisor[0]
            if lows[0] < 0
            else (0 if divisor[1] is None else lows[0] // divisor[1])
        )
    high = None
    if highs[0] is not None:
        if highs[0] >= 0:
            high = highs[0] // divisor[0]
        else:
            high = -1 if divisor[1] is None else highs[0] // divisor[1]
    return (low, high)


def _apply(op: ApplyOp, args: list[int]) -> int:
    if op == "min":
        return min(args)
    if op == "max":
        return max(args)
    if args[1] == 0:
        return 0
    return args[0] // args[1] if op == "//" else args[0] % args[1]


def _build(op: ApplyOp, args: Sequence[Sym]) -> Sym:
    if op == "min":
        return sym_min(args)
    if op == "max":
        return sym_max(args)
    return args[0] // args[1] if op == "//" else args[0] % args[1]


def sym_min(args: Iterable[Sym | int]) -> Sym:
    """Least of the arguments; those that differ by a constant are merged."""
    return _extreme("min", args)


def sym_max(args: Iterable[Sym | int]) -> Sym:
    """Greatest of the arguments; those that differ by a constant are merged."""
    return _extreme("max", args)


def ceildiv(a: Sym | int, b: Sym | int) -> Sym:
    """a / b rounded up, for b > 0."""
    return (
        (Sym.of(a) + Sym.of(b) - 1) // Sym.of(b)
        if (q := Sym.of(a).divided_by(Sym.of(b))) is None
        else q
    )


def _extreme(op: Literal["min", "max"], args: Iterable[Sym | int]) -> Sym:
    flat: list[Sym] = []
    for argument in map(Sym.of, args):
        inner = (
            argument.terms[0][0][0]
            if len(argument.terms) == 1 and len(argument.terms[0][0]) == 1
            else None
        )
        if isinstance(inner, Apply) and inner.op == op and argument.terms[0][1] == 1:
            flat += inner.args
        else:
            flat.append(argument)
    kept: list[Sym] = []
    for candidate in flat:
        for index, other in enumerate(kept):
            difference = (candidate - other).constant
            if difference is not None:
                if (difference < 0) == (op == "min") and difference != 0:
                    kept[index] = candidate
                break
        else:
            kept.append(candidate)
    if len(kept) == 1:
        return kept[0]
    return Sym.of(Apply(op, tuple(sorted(kept, key=str))))
