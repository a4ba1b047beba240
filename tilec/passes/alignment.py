"""What a launch must check so that accesses move aligned vectors."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.launch import Aligned, LaunchCondition
from tilec.ir.symbolic import Sym
from tilec.passes.covering import Cover

Alignment: TypeAlias = "tuple[list[LaunchCondition], list[tuple[Sym, int]], set[int]]"
"""Conditions, sizes that are multiples of a number, and the ids of the accesses that are aligned under them."""


def alignment(
    program: t.Program,
    moved: Iterable[tuple[t.Load | t.Store | t.Atomic, int]],
    copied: Collection[str] = (),
    covers: Mapping[int, Cover] | None = None,
) -> Alignment:
    """The alignment of accesses with the elements that each moves at once. Rows of the tensors in `copied` are aligned as they are; of
    accesses with covers (by id) it is the covers' vectors that are."""
    conditions: list[LaunchCondition] = []
    divisors: list[tuple[Sym, int]] = []
    accesses: set[int] = set()
    given = Facts.of(program)
    facts = Facts.of(program)
    for op, count in moved:
        tensor = program.tensor(op.access.tensor)
        if tensor.words:
            accesses.add(id(op))
            continue
        cover = covers.get(id(op)) if covers else None
        access, along = (op.access, -1) if cover is None else (cover.access, cover.along)
        count = count if cover is None else cover.width
        needed = min(16, count * tensor.dtype.bits // 8)
        elements = needed * 8 // tensor.dtype.bits
        if elements <= 1:
            continue
        found: list[tuple[Sym, int]] = []
        possible = True
        for sym in sorted(
            _multiples(program, access, along, given, copied), key=lambda s: len(s.terms)
        ):
            if facts.divides(sym, elements):
                continue
            if any(v.kind not in ("dim", "tile") for v in sym.variables):
                possible = False
                break
            if facts.numeric(sym).constant is not None:
                possible = False
                break
            found.append((sym, elements))
            facts.learn_divisor(sym, elements)
        if not possible:
            facts = Facts.of(program)
            for sym, number in divisors:
                facts.learn_divisor(sym, number)
            continue
        accesses.add(id(op))
        if tensor.role != "temp" and tensor.name not in copied:
            conditions.append(Aligned(tensor.name, needed))
        divisors += found
        conditions += [
            t.HostOp("==", (t.HostOp("%", (sym, Sym.of(number))), Sym.of(0)))
            for sym, number in found
        ]
    return list(dict.fromkeys(conditions)), divisors, accesses


def _multiples(
    program: t.Program, access: t.Access, along: int, facts: Facts, copied: Collection[str]
) -> list[Sym]:
    """Syms that must be multiples of the vector: strides of all dimensions in front of the one that term `along` selects of, offsets along
    that."""
    tensor = program.tensor(access.tensor)
    view = next((v for v in program.views if v.name == access.view), None)
    dims = tensor.dims if view is None else view.dims
    strides = (
        tensor.row_major if view is None else t.Tensor("", tensor.dtype, dims, "input").row_major
    )
    wanted = [s for n, s in enumerate(strides[:along]) if not _is_first_scalar_zero(access, n)]
    if access.tensor in copied:
        wanted = []
    last = access.terms[along]
    if isinstance(last, t.AtSpan):
        if last.lo is not None and not facts.prove_nonnegative(last.start - last.lo):
            wanted.append(Sym.of(1))
        # a sum of multiples is a multiple: each term on its own lets the launch check the sizes in it
        step = 1 if along == -1 else strides[along]
        wanted += [Sym((term,)) * step for term in last.start.terms]
    return wanted


def _is_first_scalar_zero(access: t.Access, n: int) -> bool:
    term = access.terms[n]
    return isinstance(term, t.AtScalar) and term.index.constant == 0
