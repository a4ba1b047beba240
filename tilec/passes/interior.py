"""The interior of a loop: the trips in which no mask and no edge can matter.

    for j in range(0 : min(T, i.stop) by BN):           trips n in [first, end):  pos >= j holds everywhere and every
        s = where(pos[:, None] >= j[None, :], s, -inf)   column is present: the body is emitted without the mask,
        …                                                the other trips keep it

A comparison of tiles that are affine in their coordinates and in the trip number holds for the whole tile from or up to
some trip; so does the presence of a whole span. `end` and `first` are Syms, floor divisions of sizes.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import field

from tilec.ir import tile_ir as t
from tilec.ir.facts import LARGEST_DIM, Facts
from tilec.ir.symbolic import Sym, Var, sym_max, sym_min
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import term_axes
from tilec.passes.uses import Definitions


@dataclass(frozen=True)
class Interior:
    """Trips first <= n < end need no mask; `holds` are the ids of the comparisons that are true there, `positive` what is known to be."""

    first: Sym
    end: Sym
    holds: frozenset[int]
    positive: tuple[Sym, ...] = ()


@dataclass(frozen=True)
class Floor:
    """The first row that is asked about of tiles whose rows have this extent."""

    extent: Sym
    row: Sym


@dataclass
class Affine:
    """base + sum(coefficient · coordinate of axis n) of an integer tile."""

    base: Sym
    coefficients: dict[int, int] = field(default_factory=dict)


def affine(value: t.Value, definitions: Definitions) -> Affine | None:
    """The affine form of an integer tile or scalar, by its own axes; None where it has none."""
    op = definitions.defining.get(value.id)
    match op:
        case t.Iota():
            return Affine(op.start, {0: 1})
        case t.FromSym():
            return Affine(op.sym)
        case t.Constant() if isinstance(op.value, int) and not isinstance(op.value, bool):
            return Affine(Sym.of(op.value))
        case t.Rearrange():
            inner = affine(op.arg, definitions)
            if inner is None:
                return None
            moved = {
                n: inner.coefficients[a] for n, a in enumerate(op.axes) if a in inner.coefficients
            }
            return Affine(inner.base, moved) if len(moved) == len(inner.coefficients) else None
        case t.Elementwise() if op.op in ("add", "sub") and value.type.dtype.is_integer:
            left, right = (affine(a, definitions) for a in op.args)
            if left is None or right is None:
                return None
            sign = 1 if op.op == "add" else -1
            total = dict(left.coefficients)
            for n, c in right.coefficients.items():
                total[n] = total.get(n, 0) + sign * c
            return Affine(left.base + right.base * sign, total)
        case t.Elementwise() if op.op == "neg" and value.type.dtype.is_integer:
            inner = affine(op.args[0], definitions)
            return (
                None
                if inner is None
                else Affine(-inner.base, {n: -c for n, c in inner.coefficients.items()})
            )
        case t.Load() | t.Cast() if value.type.rank == 0 and value.type.dtype.is_integer:
            return Affine(Sym.of(Var(value.name or f"v{value.id}", "value", value.id)))
        case _:
            return None


def difference_of(op: t.Elementwise, definitions: Definitions) -> Affine | None:
    """What is >= 0 where a comparison of affine tiles holds, and only there."""
    if op.op not in ("lt", "le", "gt", "ge"):
        return None
    left, right = (affine(a, definitions) for a in op.args)
    if left is None or right is None:
        return None
    if op.op in ("lt", "le"):
        left, right = right, left
    total = dict(left.coefficients)
    for n, c in right.coefficients.items():
        total[n] = total.get(n, 0) - c
    return Affine(left.base - right.base - (1 if op.op in ("lt", "gt") else 0), total)


def implied_presence(
    op: t.Elementwise,
    axes: tuple[t.Axis, ...],
    along: int,
    definitions: Definitions,
    facts: Facts,
) -> frozenset[t.Constraint]:
    """Of what makes coordinates of a tile's axis `along` absent, what a comparison of affine tiles is false in, in all that is present of
    its others: `pos >= j` is false beyond the last key, as no row that there is stands behind it."""
    difference = difference_of(op, definitions)
    if difference is None:
        return frozenset()
    most = difference.base
    for n, c in difference.coefficients.items():
        if n != along and c > 0:
            ends = [p.limit for p in axes[n].presence if isinstance(p, t.Below)]
            most = most + sym_min([axes[n].extent, *ends]) * c - c
    step = difference.coefficients.get(along, 0)

    def implied(constraint: t.Constraint) -> bool:
        if isinstance(constraint, t.Below) and step == -1:
            return facts.prove_nonnegative(constraint.limit - 1 - most)
        if isinstance(constraint, t.AtLeast) and step == 1:
            return facts.prove_nonnegative(-most - constraint.limit)
        return False

    return frozenset(c for c in axes[along].presence if implied(c))


def least_difference(
    op: t.Elementwise, definitions: Definitions, program: t.Program, floor: Floor | None = None
) -> Sym | None:
    """For a comparison of affine tiles the least value, over the tile, or over the rows that begin with `floor`, of what must be >= 0
    for it to hold."""
    difference = difference_of(op, definitions)
    if difference is None:
        return None
    least = difference.base
    for n, c in difference.coefficients.items():
        if c < 0:
            axis = op.out.type.axes[n]
            if axis.capacity is None and not axis.is_static:
                return None
            extent = program.tile_number(axis.extent) if axis.is_static else axis.capacity or 0
            least = least + c * (extent - 1)
        elif n == 0 and floor is not None and op.out.type.axes[0].extent == floor.extent:
            least = least + floor.row * c
    return least


def find_interior(
    program: t.Program,
    loop: t.For,
    definitions: Definitions,
    facts: Facts,
    floor: Floor | None = None,
) -> Interior | None:
    """The interior of a loop, for the rows from `floor` on; None where nothing is masked or nothing can be said."""
    conditions: list[tuple[Sym, int | None]] = []
    for op in loop.body.ops:
        if isinstance(op, t.Elementwise):
            least = least_difference(op, definitions, program, floor)
            if least is not None and loop.index in least.variables:
                conditions.append((facts.numeric(least), op.out.id))
        if isinstance(op, t.Load):
            for whole in _bounds(op, loop, facts):
                whole = facts.numeric(whole)
                if not facts.prove_nonnegative(whole):
                    conditions.append((whole, None))
    first, end = [Sym.of(0)], [loop.trips]
    holds: set[int] = set()
    inside: list[Sym] = []
    for least, number in dict.fromkeys(conditions):
        slope = _slope(least, loop.index)
        if slope is None or slope == 0:
            continue
        rest = least.substitute(lambda v: Sym.of(0) if v == loop.index else None)
        if slope < 0:
            # rest - |slope| n >= 0  for  n <= rest / |slope|
            end.append(rest // -slope + 1)
        elif number is not None:
            first.append((slope - 1 - rest) // slope)
        else:
            inside.append(rest)
        if number is not None:
            holds.add(number)
    if len(end) == 1 and len(first) == 1 and not inside:
        return None
    # a loop that begins in front of a tensor, where memory says so, has no trips without masks
    known: list[Sym] = []
    for rest in inside:
        if not any(facts.prove_nonnegative(rest - fact + 1) for fact in known):
            known = [f for f in known if not facts.prove_nonnegative(f - rest - 1)] + [rest + 1]
    end += [LARGEST_DIM * sym_min([Sym.of(1), sym_max([Sym.of(0), fact])]) for fact in known]
    return Interior(sym_max(first), sym_min(end), frozenset(holds), tuple(known))


def _bounds(load: t.Load, loop: t.For, facts: Facts) -> Iterator[Sym]:
    """What is >= 0 in a trip where all coordinates of a load's spans are inside of the loop's range, and of the tensor."""
    for term, along in zip(load.access.terms, term_axes(load.access), strict=True):
        if not isinstance(term, t.AtSpan) or loop.index not in term.start.variables:
            continue
        if term.hi is not None:
            yield term.hi - term.start - term.extent
        if load.access.pointwise:
            continue
        axis = load.out.type.axes[along[0]]
        for constraint in axis.presence:
            match constraint:
                case t.Below() if term.hi is None or not facts.prove_nonnegative(
                    constraint.limit - term.hi + term.start
                ):
                    yield constraint.limit - axis.extent
                case t.AtLeast():
                    yield -constraint.limit
                case _:
                    pass


def _slope(sym: Sym, index: Var) -> int | None:
    """The constant coefficient of a variable in which a Sym is linear, None where it is not."""
    slope = 0
    for monomial, coefficient in sym.terms:
        if index in monomial:
            if len(monomial) > 1:
                return None
            slope = coefficient
        elif any(not isinstance(a, Var) and index in Sym.of(a).variables for a in monomial):
            return None
    return slope
