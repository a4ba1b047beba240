"""Presence of an axis as a canonical conjunction: what is provable is dropped, a bound that is the least of several is
several bounds."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from tilec.ir.facts import Facts, split_extreme
from tilec.ir.symbolic import Sym, Var, sym_max, sym_min
from tilec.ir.tile_ir import AtLeast, Below, Constraint, InRange


def simplify(
    constraints: Iterable[Constraint], extent: Sym, facts: Facts
) -> tuple[Constraint, ...]:
    """The conjunction for coordinates 0 <= r < extent without what always holds or follows from another part,
    in a fixed order: upper limits, lower limits, index tiles."""
    below: list[Sym] = []
    least: list[Sym] = []
    ranges: list[InRange] = []
    for constraint in constraints:
        match constraint:
            case Below(limit):
                below.append(limit)
            case AtLeast(limit):
                least.append(limit)
            case InRange():
                if constraint not in ranges:
                    ranges.append(constraint)
    kept_below = [s for s in dict.fromkeys(below) if not facts.prove_nonnegative(s - extent)]
    kept_least = [s for s in dict.fromkeys(least) if not facts.prove_nonnegative(-s)]
    strongest_below = _strongest(kept_below, lambda a, b: facts.prove_nonnegative(b - a))
    strongest_least = _strongest(kept_least, lambda a, b: facts.prove_nonnegative(a - b))
    return (
        *(Below(s) for s in sorted(strongest_below, key=str)),
        *(AtLeast(s) for s in sorted(strongest_least, key=str)),
        *sorted(ranges, key=lambda r: r.index),
    )


def _strongest(limits: list[Sym], implies: Callable[[Sym, Sym], bool]) -> list[Sym]:
    kept: list[Sym] = []
    for limit in limits:
        if any(implies(other, limit) for other in kept):
            continue
        kept = [other for other in kept if not implies(limit, other)]
        kept.append(limit)
    return kept


def meet(
    left: tuple[Constraint, ...], right: tuple[Constraint, ...], extent: Sym, facts: Facts
) -> tuple[Constraint, ...]:
    """Coordinates present in both."""
    if left == right or not right:
        return left
    if not left:
        return right
    return simplify((*left, *right), extent, facts)


def span_presence(
    start: Sym, extent: Sym, lo: Sym | None, hi: Sym | None, size: Sym | None, facts: Facts
) -> tuple[Constraint, ...]:
    """Presence of a span as a value (size None), or as an index into a dimension of that size."""
    constraints: list[Constraint] = []
    if hi is not None:
        constraints += [Below(end - start) for end in split_extreme(hi, "min")]
    if lo is not None:
        constraints += [AtLeast(end - start) for end in split_extreme(lo, "max")]
    if size is not None:
        constraints += [Below(size - start), AtLeast(-start)]
    return simplify(constraints, extent, facts)


def variables(constraint: Constraint) -> frozenset[Var]:
    """The variables of a constraint; an index tile counts as a variable of kind "value"."""
    match constraint:
        case Below(limit) | AtLeast(limit):
            return limit.variables
        case InRange(index, size, trips):
            more = frozenset() if trips is None else trips.variables
            return size.variables | more | {Var("", "value", index)}


def after_loop(
    before: tuple[Constraint, ...],
    inside: tuple[Constraint, ...],
    extent: Sym,
    trips: Sym,
    facts: Facts,
) -> tuple[Constraint, ...]:
    """Presence of a carried name behind its loop: as inside of it, but as before where there is no trip.

    With t = min(max(trips, 0), 1), `r < limit` becomes `r < max(limit, extent (1 - t))` and `r >= limit` becomes
    `r >= min(limit, extent t)`.
    """
    if before == inside or facts.prove_nonnegative(trips - 1):
        return inside
    any_trip = sym_min([sym_max([trips, 0]), 1])
    parts: list[Constraint] = []
    for constraint in inside:
        if constraint in before:
            parts.append(constraint)
            continue
        match constraint:
            case Below(limit):
                parts.append(Below(sym_max([limit, extent - extent * any_trip])))
            case AtLeast(limit):
                parts.append(AtLeast(sym_min([limit, extent * any_trip])))
            case InRange(index, size, None):
                parts.append(InRange(index, size, trips))
            case InRange():
                parts.append(constraint)
    return simplify(parts, extent, facts)
