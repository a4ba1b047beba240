"""What is known about sizes: ranges, divisors and proofs that a polynomial is not negative.

Built from a Tile IR program (`Facts.of`) by the passes, or filled step by step by the analysis. Sound, not complete: an
answer of False means "not proved".
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import field
from math import lcm

from tilec.ir.symbolic import Apply, Interval, Sym, Var
from tilec.ir.tile_ir import Block, For, HostExpr, If, Program, Survivor, Survivors
from tilec.ir.walking import variable_of
from tilec.lazy_dataclass import dataclass

LARGEST_DIM = 2**31 - 1
"""A run-time size is below 2^31."""

_DEPTH = 6


@dataclass
class Facts:
    """Ranges and divisors of variables under one candidate."""

    tiles: Mapping[str, int] = field(default_factory=dict)
    upper: dict[Var, int] = field(default_factory=dict)
    lower: dict[Var, int] = field(default_factory=dict)
    divisors: dict[Var, int] = field(default_factory=dict)
    positive: list[Sym] = field(default_factory=list)
    trips: dict[Var, Sym] = field(default_factory=dict)
    """of the numbers of trips, and of integers that name one"""
    _filtered: dict[int, Sym] = field(default_factory=dict, repr=False)
    _proved: dict[tuple[Sym, int], bool] = field(default_factory=dict, repr=False)
    """by what is to be proved, and the depth of proofs that was left for it"""
    _ranges: dict[Var, Interval] = field(default_factory=dict, repr=False)
    _expansions: dict[Sym, Sym] = field(default_factory=dict, repr=False)

    @staticmethod
    def of(program: Program) -> Facts:
        """The facts of a program, the trip counts of all its loops included."""
        facts = Facts(
            dict(program.tiles), dict(program.upper), dict(program.lower), dict(program.divisors)
        )
        facts.positive = [f for f in program.facts if isinstance(f, Sym)]
        for nest in program.nests:
            for axis in nest.grid:
                facts.bind_trip(axis.index, axis.trips)
            facts._collect(nest.body)
        return facts

    def _collect(self, block: Block) -> None:
        for op in block.ops:
            if isinstance(op, For):
                self.bind_trip(op.index, op.trips)
                self._collect(op.body)
            elif isinstance(op, If):
                self._collect(op.then)
                self._collect(op.otherwise)
            elif isinstance(op, Survivors):
                self.lower[variable_of(op.out)] = 0
                self._forget()
                self._filtered[op.out.id] = op.trips
                for value in op.survives.inputs:
                    self.bind_trip(variable_of(value), op.trips)
            elif isinstance(op, Survivor):
                self.bind_trip(variable_of(op.out), self._filtered[op.of.id])

    def knowing(self, trips: Mapping[Var, Sym], positive: Iterable[Sym]) -> Facts:
        """These facts, with other ends of some loops and further Syms known to be positive."""
        return Facts(
            self.tiles,
            dict(self.upper),
            dict(self.lower),
            dict(self.divisors),
            [*self.positive, *positive],
            {**self.trips, **trips},
        )

    def bind_trip(self, var: Var, trips: Sym) -> None:
        """Inside its loop 0 <= var < trips."""
        if self.trips.get(var) != trips:
            self.trips[var] = trips
            self._forget()

    def learn(self, fact: HostExpr) -> None:
        """Take `fact > 0` as known: bounds of single variables are read off, the rest is kept for proofs."""
        if not isinstance(fact, Sym):
            return
        self._forget()
        for part in split_extreme(fact, "min"):
            part = self.numeric(part)
            if part not in self.positive:
                self.positive.append(part)
            variables = [(m, c) for m, c in part.terms if m]
            if len(variables) != 1 or len(variables[0][0]) != 1:
                continue
            atom, coefficient = variables[0][0][0], variables[0][1]
            if not isinstance(atom, Var):
                continue
            constant = part.terms[-1][1] if len(part.terms) == 2 else 0
            # constant + coefficient * atom >= 1
            if coefficient < 0:
                bound = (constant - 1) // -coefficient
                self.upper[atom] = min(self.upper.get(atom, bound), bound)
            else:
                bound = -((constant - 1) // coefficient)
                self.lower[atom] = max(self.lower.get(atom, bound), bound)

    def learn_divisor(self, dividend: Sym, divisor: int) -> None:
        """Take `dividend % divisor == 0` as known (kept for single variables)."""
        if (
            len(dividend.terms) == 1
            and dividend.terms[0][1] == 1
            and len(dividend.terms[0][0]) == 1
        ):
            atom = dividend.terms[0][0][0]
            if isinstance(atom, Var) and divisor > 1:
                self._forget()
                self.divisors[atom] = lcm(self.divisors.get(atom, 1), divisor)

    def unlearn_upper(self, var: Var) -> None:
        """Take no upper bound of a variable as known."""
        del self.upper[var]
        self._forget()

    def _forget(self) -> None:
        """What was found so far may not be all that can be found."""
        self._proved.clear()
        self._ranges.clear()
        self._expansions.clear()

    # ---- questions

    def range_of(self, var: Var) -> Interval:
        """(least, greatest) value of a variable, None where unknown."""
        known = self._ranges.get(var)
        if known is None:
            known = self._ranges[var] = self._found_range(var)
        return known

    def _found_range(self, var: Var) -> Interval:
        match var.kind:
            case "dim":
                return self.lower.get(var, 0), self.upper.get(var, LARGEST_DIM)
            case "tile":
                number = self.tiles.get(var.name)
                return (number, number) if number is not None else (1, None)
            case "trip":
                return self._range_of_trip(self.trips.get(var))
            case "value" if var in self.trips:
                return self._range_of_trip(self.trips[var])
            case "scalar" | "value" | "local":
                return self.lower.get(var), self.upper.get(var)

    def _range_of_trip(self, trips: Sym | None) -> Interval:
        if trips is None:
            return 0, None
        high = trips.bounds(self.range_of)[1]
        return 0, None if high is None else max(0, high - 1)

    def range(self, sym: Sym) -> Interval:
        """(least, greatest) value of a polynomial by intervals."""
        return sym.bounds(self.range_of)

    def numeric(self, sym: Sym) -> Sym:
        """The polynomial with the candidate's numbers for tile sizes."""
        return sym.substitute(self._tile_number)

    def divides(self, sym: Sym, number: int) -> bool:
        """Whether `number` is known to divide the value."""
        if number <= 0:
            return False
        return all(c % number == 0 for _, c in self._expanded(sym).terms)

    def prove_nonnegative(self, sym: Sym) -> bool:
        """Whether the value is known to be >= 0."""
        return self._prove(self._expanded(sym), _DEPTH)

    def prove_equal(self, left: Sym, right: Sym) -> bool:
        """Whether two polynomials are equal under what is known (not a matter of extents' identity)."""
        return not self._expanded(left - right).terms

    def upper_bound(self, sym: Sym) -> int | None:
        """A proven upper bound, or None; a bound that follows only from sizes being below 2^31 does not count."""

        def range_of(var: Var) -> Interval:
            if var.kind == "dim":
                return self.lower.get(var, 0), self.upper.get(var)
            return self.range_of(var)

        own = self.numeric(sym)
        high = own.bounds(range_of)[1]
        # where `fact > 0`, no value is above `value + fact - 1`
        found = [(own + self.numeric(fact) - 1).bounds(range_of)[1] for fact in self.positive]
        return min((n for n in (high, *found) if n is not None), default=None)

    # ---- proofs

    def _tile_number(self, var: Var) -> Sym | None:
        number = self.tiles.get(var.name) if var.kind == "tile" else None
        return None if number is None else Sym.of(number)

    def _expand(self, var: Var) -> Sym | None:
        if var.kind == "tile":
            return self._tile_number(var)
        divisor = self.divisors.get(var, 1)
        if divisor == 1:
            return None
        return Sym.of(Var(f"{var.name}/{divisor}", var.kind, var.key)) * divisor

    def _expanded(self, sym: Sym) -> Sym:
        known = self._expansions.get(sym)
        if known is None:
            known = self._expansions[sym] = sym.substitute(self._expand)
        return known

    def _range(self, var: Var) -> Interval:
        if "/" not in var.name:
            return self.range_of(var)
        name, _, divisor = var.name.rpartition("/")
        low, high = self.range_of(Var(name, var.kind, var.key))
        step = int(divisor)
        return (
            None if low is None else -(-low // step),
            None if high is None else high // step,
        )

    def _prove(self, sym: Sym, depth: int) -> bool:
        known = self._proved.get((sym, depth))
        if known is None:
            known = self._proved[sym, depth] = self._found_proof(sym, depth)
        return known

    def _found_proof(self, sym: Sym, depth: int) -> bool:
        low = sym.bounds(self._range)[0]
        if low is not None and low >= 0:
            return True
        if depth == 0:
            return False
        if depth < _DEPTH and any(self._follows(sym, fact) for fact in self.positive):
            return True
        for monomial, coefficient in sym.terms:
            for atom in monomial:
                if isinstance(atom, Apply) and len(monomial) == 1:
                    proof = self._prove_apply(sym, atom, coefficient, depth)
                    if proof is not None:
                        return proof
        for monomial, _ in sym.terms:
            for atom in monomial:
                if isinstance(atom, Var) and atom in self.trips:
                    end = self._trip_end(sym, atom)
                    if end is not None and self._prove(end, depth - 1):
                        return True
        if depth == _DEPTH:
            for fact in self.positive:
                expanded = self._expanded(fact)
                if self._prove(sym - expanded + 1, depth - 2):
                    return True
        return False

    def _prove_apply(self, sym: Sym, atom: Apply, coefficient: int, depth: int) -> bool | None:
        """A proof by cases on one application, None where this one gives no cases."""
        rest = sym - Sym.of(atom) * coefficient
        if atom.op in ("min", "max"):
            cases = [rest + argument * coefficient for argument in atom.args]
            together = (atom.op == "min") == (coefficient > 0)
            # c*min(a, b) >= 0 needs both, -c*min(a, b) >= 0 follows from either; max the other way round:
            # c*max(a, b) follows from either, -c*max(a, b) needs both
            results = (self._prove(case, depth - 1) for case in cases)
            return all(results) if together else (True if any(results) else None)
        divisor = atom.args[1].constant
        if atom.op == "//" and divisor is not None and divisor > 0 and coefficient % divisor == 0:
            # a // d = (a - a % d) / d with 0 <= a % d <= d - 1
            factor = coefficient // divisor
            slack = factor * (divisor - 1) if factor > 0 else 0
            if self._prove(rest + atom.args[0] * factor - slack, depth - 1):
                return True
        if atom.op == "//" and divisor is not None and divisor > 0 < coefficient:
            # c * (a // d) + r >= 0 where a >= d * ceil(-r / c)
            constant = rest.constant
            if constant is not None:
                needed = -(constant // coefficient) * divisor
                return True if self._prove(atom.args[0] - needed, depth - 1) else None
        return None

    def _follows(self, sym: Sym, fact: Sym) -> bool:
        """Whether `sym` is known to be >= 0 as `fact` is > 0, by ranges alone."""
        low = (sym - self._expanded(fact) + 1).bounds(self._range)[0]
        return low is not None and low >= 0

    def _trip_end(self, sym: Sym, trip: Var) -> Sym | None:
        """The polynomial with a trip number at the end of its range that makes it least, if it is linear in it."""
        if any(m.count(trip) > 1 for m, _ in sym.terms):
            return None
        if any(
            isinstance(a, Apply) and trip in Sym.of(a).variables for m, _ in sym.terms for a in m
        ):
            return None
        signs: set[bool] = set()
        for other, coefficient in sym.terms:
            if trip in other:
                low = Sym(((tuple(a for a in other if a != trip), 1),)).bounds(self._range)[0]
                if low is None or low < 0:
                    return None
                signs.add(coefficient > 0)
        if len(signs) != 1:
            return None
        end = Sym.of(0) if signs.pop() else self._expanded(self.trips[trip]) - 1
        return sym.substitute(lambda v: end if v == trip else None)


def split_extreme(sym: Sym, op: str) -> Iterable[Sym]:
    """A polynomial whose value is the least (op "min") or greatest of several: those, with min/max terms multiplied out."""
    for monomial, coefficient in sym.terms:
        if len(monomial) == 1 and isinstance(monomial[0], Apply):
            atom = monomial[0]
            wanted = op if coefficient > 0 else ("max" if op == "min" else "min")
            if atom.op == wanted:
                rest = sym - Sym.of(atom) * coefficient
                found: list[Sym] = []
                for argument in atom.args:
                    found += split_extreme(rest + argument * coefficient, op)
                return found
    return [sym]
