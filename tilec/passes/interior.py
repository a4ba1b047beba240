"""The interior of a loop: the trips in which no mask and no edge can matter.

    for j in range(0 : min(T, i.stop) by BN):           trips n in [first, end):  pos >= j holds everywhere and every
        s = where(pos[:, None] >= j[None, :], s, -inf)   column is present: the body is emitted without the mask,
        …                                                the other trips keep it

A comparison of tiles that are affine in their coordinates and in the trip number holds for the whole tile from or up to
some trip; so does the presence of a whole span. `end` and `first` are Syms, floor divisions of sizes. Trips that survive a filter
are in order: conditions on them hold from or up to some number of them, which is counted in front of the loop.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Set
from dataclasses import field

from tilec.ir import tile_ir as t
from tilec.ir.facts import LARGEST_DIM, Facts
from tilec.ir.filters import indices_of
from tilec.ir.symbolic import Sym, Var, sym_max, sym_min
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import term_axes
from tilec.passes.uses import Definitions, variable_of


@dataclass(frozen=True)
class Count:
    """How many of the trips that survive are in front of trip `end`: what stands for `var`."""

    var: Var
    of: t.Value
    end: Sym


@dataclass(frozen=True)
class Interior:
    """Trips first <= n < end need no mask; `holds` are the ids of the comparisons that are true there, `whole` those of loaded tiles
    whose spans end behind them. Of a loop over trips that survive, `counts` are numbers of them that the bounds hang on. `trips` and
    `positive`: what is known of variables there."""

    first: Sym
    end: Sym
    holds: frozenset[int]
    whole: frozenset[int] = frozenset()
    counts: tuple[Count, ...] = ()
    trips: Mapping[Var, Sym] = field(default_factory=dict)
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
    indices = indices_of(loop)
    known = set(indices)
    conditions: list[tuple[Sym, int, bool]] = []
    loaded: set[int] = set()
    unclear: set[int] = set()
    for op in loop.body.ops:
        if isinstance(op, t.Elementwise):
            least = least_difference(op, definitions, program, floor)
            if least is not None and known & least.variables:
                conditions.append((facts.numeric(least), op.out.id, False))
        if isinstance(op, t.Load):
            for whole, begins in _inside(op, known, facts):
                whole = facts.numeric(whole)
                if facts.prove_nonnegative(whole):
                    continue
                if known & whole.variables:
                    conditions.append((whole, op.out.id, begins))
                    loaded.add(op.out.id)
                else:
                    unclear.add(op.out.id)
    bounds = {index: _Bounds() for index in indices}
    holds: set[int] = set()
    inside: list[Sym] = []
    for least, number, begins in dict.fromkeys(conditions):
        (index, *others) = sorted(known & least.variables)
        slope = _slope(least, index)
        if others or slope is None or slope == 0:
            unclear.add(number)
            continue
        rest = least.substitute({index: Sym.of(0)}.get)
        if slope < 0:
            # rest - |slope| n >= 0  for  n <= rest / |slope|
            bounds[index].end.append(rest // -slope + 1)
        elif begins and index == loop.index:
            inside.append(rest)
        else:
            bounds[index].first.append((slope - 1 - rest) // slope)
        holds.add(number)
    if not inside and not any(b.end or b.first for b in bounds.values()):
        return None
    own = bounds.pop(loop.index)
    first, end = [Sym.of(0), *own.first], [loop.trips, *own.end]
    counts: dict[tuple[int, Sym], Count] = {}
    trips: dict[Var, Sym] = {}
    positive: list[Sym] = []
    for op in loop.body.ops:
        if not isinstance(op, t.Survivor) or variable_of(op.out) not in bounds:
            continue
        trip = variable_of(op.out)
        found = bounds[trip]
        ahead = op.number - Sym.of(loop.index)
        if not found.first and not found.end:
            continue
        if loop.index in ahead.variables:
            return None
        # a trip stands in front of another one where its number is less than there are in front of that
        for limits, ends in ((found.first, first), (found.end, end)):
            if limits:
                limit = sym_max(limits) if limits is found.first else sym_min(limits)
                count = Count(Var(f"counted{len(counts)}", "local"), op.of, limit)
                count = counts.setdefault((op.of.id, limit), count)
                ends.append(Sym.of(count.var) - ahead)
        if found.end:
            trips[trip] = sym_min(found.end)
        positive += [Sym.of(trip) - limit + 1 for limit in found.first]
    # a loop that begins in front of a tensor, where memory says so, has no trips without masks
    begun: list[Sym] = []
    for rest in inside:
        if not any(facts.prove_nonnegative(rest - fact + 1) for fact in begun):
            begun = [f for f in begun if not facts.prove_nonnegative(f - rest - 1)] + [rest + 1]
    end += [LARGEST_DIM * sym_min([Sym.of(1), sym_max([Sym.of(0), fact])]) for fact in begun]
    positive += begun
    starts, ends = (list(dict.fromkeys(limits)) for limits in (first, end))
    bounds_of_loop = (sym_max(starts), sym_min(ends))
    trips[loop.index] = bounds_of_loop[1]
    positive.append(Sym.of(loop.index) - bounds_of_loop[0] + 1)
    return Interior(
        *bounds_of_loop,
        frozenset(holds - loaded),
        frozenset(loaded - unclear),
        tuple(counts.values()),
        trips,
        tuple(positive),
    )


@dataclass
class _Bounds:
    """From where on, and up to where, conditions on an index hold."""

    first: list[Sym] = field(default_factory=list)
    end: list[Sym] = field(default_factory=list)


def _inside(load: t.Load, known: Set[Var], facts: Facts) -> Iterator[tuple[Sym, bool]]:
    """What is >= 0 in a trip where all coordinates of a load's spans are inside of the loop's range, and of the tensor; and whether it is
    where they begin that asks. `known`: what counts trips."""
    for term, along in zip(load.access.terms, term_axes(load.access), strict=True):
        if not isinstance(term, t.AtSpan):
            continue
        if term.hi is not None:
            yield term.hi - term.start - term.extent, False
        if load.access.pointwise or not known & term.start.variables:
            continue
        axis = load.out.type.axes[along[0]]
        for constraint in axis.presence:
            match constraint:
                case t.Below() if term.hi is None or not facts.prove_nonnegative(
                    constraint.limit - term.hi + term.start
                ):
                    yield constraint.limit - axis.extent, False
                case t.AtLeast():
                    yield -constraint.limit, True
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
