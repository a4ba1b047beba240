"""Covering vectors: loads whose elements are neighbours of those of an aligned vector, or one of few fields of each coordinate.

x[i - 2], x[i - 1], x[i]                the aligned vectors that cover what all three read, loaded once: each picks its elements out of them
x.view(N, 2)[i, 0], x.view(N, 2)[i, 1]  the vectors of both fields, loaded once, likewise; stores of all fields are woven into such vectors

Without them each of those elements is an access of its own: a filter of 16 taps asks for 64 of them where five vectors hold all.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import AxisClass, term_axes
from tilec.passes.fields import field_stride, shape_of
from tilec.passes.levels import power_of_two_in

MOST_WORDS = 96
"""Registers of vectors that several loads share; loads that are further apart have vectors of their own."""


@dataclass(frozen=True)
class Cover:
    """Of an access the part that it shares with others: `access` without its own shift; term `along` runs along the vectorised axis, with
    `stride`. Element e of the access is number `shift` + stride · e from the first one of the current vector of `access`. What is
    loaded are `count` vectors of `width` elements, from vector number `first` on."""

    access: t.Access
    along: int
    shift: int
    stride: int
    width: int
    first: int = 0
    count: int = 1

    @property
    def axis(self) -> int:
        """The axis of the result that runs along the vectors."""
        return term_axes(self.access)[self.along][0]


def fields_along(
    program: t.Program,
    op: t.Load | t.Store | t.Atomic,
    classes: Sequence[AxisClass | None],
    fast: Collection[AxisClass],
) -> int | None:
    """How many neighbours each coordinate along the `fast` classes has of which an access selects one."""
    if isinstance(op, t.Atomic) or op.access.pointwise:
        return None
    for n, along in enumerate(term_axes(op.access)):
        if any(classes[a] in fast for a in along):
            return field_stride(program, op.access, n)
    return None


def covers_of(
    program: t.Program,
    accesses: Sequence[tuple[t.Load | t.Store, Sequence[AxisClass | None]]],
    fast: Collection[AxisClass],
    width: int,
    written: Collection[str],
) -> dict[int, Cover]:
    """The covers of accesses with their classes, by id of the op, for vectors of `width` coordinates along the `fast` classes. `written`
    are tensors that the nest writes: of these nothing is read that the program does not read there."""
    single: dict[int, Cover] = {}
    stores: set[int] = set()
    for op, classes in accesses:
        along = {n for n, c in enumerate(classes) if c is not None and c in fast}
        cover = _own(program, op.access, along, width)
        if cover is not None and (isinstance(op, t.Load) or cover.stride > 1):
            single[id(op)] = cover
            if isinstance(op, t.Store):
                stores.add(id(op))
    families: dict[tuple[object, ...], dict[int, Cover]] = {}
    for number, cover in single.items():
        key = (cover.access, cover.along, number in stores)
        families.setdefault(key, {})[number] = cover
    found: dict[int, Cover] = {}
    for (_, _, stored), members in families.items():
        one = next(iter(members.values()))
        shifts = {c.shift for c in members.values()}
        if one.stride > 1:
            whole = shifts == set(range(one.stride))
            if whole or not (stored or one.access.tensor in written):
                count = one.stride * width // one.width
                found |= {n: replace(c, count=count) for n, c in members.items()}
        elif one.access.tensor not in written and any(s % one.width for s in shifts):
            bits = program.tensor(one.access.tensor).dtype.bits
            shared = _spanning(members, width)
            apart = next(iter(shared.values())).count * one.width * bits > 32 * MOST_WORDS
            if apart:
                shared = {}
                for number, cover in members.items():
                    if cover.shift % one.width:
                        shared |= _spanning({number: cover}, width)
            found |= shared
    return found


def _spanning(members: dict[int, Cover], width: int) -> dict[int, Cover]:
    """The covers with the vectors that hold what any of them reads."""
    least = min(c.shift for c in members.values())
    most = max(c.shift for c in members.values()) + width - 1
    vector = next(iter(members.values())).width
    first, last = least // vector, most // vector
    return {n: replace(c, first=first, count=last - first + 1) for n, c in members.items()}


def _own(
    program: t.Program, access: t.Access, along_fast: Collection[int], width: int
) -> Cover | None:
    """The cover of one access, before others have a part in it."""
    tensor = program.tensor(access.tensor)
    bits = tensor.dtype.bits
    if bits < 8 or access.pointwise:
        return None
    found = _term_along(access, along_fast)
    if found is None:
        return None
    _, strides = shape_of(program, access)
    stride = field_stride(program, access, found)
    if stride is not None:
        shift, terms = 0, list(access.terms)
        for n in range(found + 1, len(terms)):
            term = terms[n]
            assert isinstance(term, t.AtScalar)
            shift += (term.index * strides[n]).constant or 0
            terms[n] = t.AtScalar(Sym.of(0))
        vector = min(width * power_of_two_in(stride), 128 // bits)
        return Cover(replace(access, terms=tuple(terms)), found, shift, stride, vector)
    if found != len(access.terms) - 1 or strides[-1].constant != 1:
        return None
    term = access.terms[-1]
    if not isinstance(term, t.AtSpan):
        return None
    number = next((c for monomial, c in term.start.terms if not monomial), 0)
    plain = t.AtSpan(term.start - number, term.extent)
    vector = min(width, 128 // bits)
    return Cover(replace(access, terms=(*access.terms[:-1], plain)), found, number, 1, vector)


def _term_along(access: t.Access, along_fast: Collection[int]) -> int | None:
    """The only span or whole dimension that runs along one of the axes; None where there are index tiles."""
    if any(isinstance(term, t.AtTile) for term in access.terms):
        return None
    found = [
        n
        for n, (term, axes) in enumerate(zip(access.terms, term_axes(access), strict=True))
        if isinstance(term, t.AtSpan | t.AtAll) and any(a in along_fast for a in axes)
    ]
    return found[0] if len(found) == 1 else None
