"""Aligned windows: rows that may start anywhere, read by the aligned vectors that cover them.

A row's coordinates are shifted by as many elements as lie between the aligned address at or below its start and the
start itself. Every tensor whose rows start alike then moves whole aligned vectors; one whose rows start at a multiple
of the vector (weights) is read by two neighbouring vectors, out of which the elements are shifted together.
"""

from __future__ import annotations

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.launch import Aligned
from tilec.ir.symbolic import Sym
from tilec.lazy_dataclass import dataclass

SHIFTED_ACCESS = {1: 8, 2: 8}
"""Bytes of one access where a row's vectors lie across two aligned ones, by the size of an element (16 for larger ones): narrower
accesses need fewer selections to shift what they brought, and more passes of the L1 cache."""


@dataclass(frozen=True)
class Window:
    """Where the window of an instance lies: at `tensor` + `base` elements, rounded down to a vector of `width`. `whole` names the
    accesses (by id of the op) whose vectors are aligned in it, `shifted` the loads whose rows start at a multiple of the vector."""

    tensor: str
    base: Sym
    width: int
    whole: frozenset[int]
    shifted: frozenset[int]
    conditions: tuple[Aligned, ...]


def window_of(
    program: t.Program,
    nest: t.Nest,
    ops: list[t.Op],
    along: list[t.Load | t.Store | t.Atomic],
    width: int,
) -> Window | None:
    """The window of a nest in which the accesses `along` run along one axis in vectors of `width`; None where a row's start
    depends on more than the grid, where rows start differently, or where alignment is no matter of the launch."""
    if width < 2 or any(isinstance(op, t.For | t.If | t.Atomic) for op in ops):
        return None
    facts = Facts.of(program)
    known = {axis.index for axis in nest.grid}
    leads: list[tuple[t.Load | t.Store | t.Atomic, Sym]] = []
    fixed: list[t.Load] = []
    conditions: dict[Aligned, None] = {}
    for op in along:
        tensor = program.tensor(op.access.tensor)
        base = _base(op.access, tensor)
        if base is None or width * tensor.dtype.bits < 32:
            return None
        if any(v.kind not in ("dim", "tile") and v not in known for v in base.variables):
            return None
        if tensor.role != "temp":
            conditions[Aligned(tensor.name, min(16, width * tensor.dtype.bits // 8))] = None
        if not facts.divides(base, width):
            leads.append((op, base))
        elif isinstance(op, t.Load):
            fixed.append(op)
        else:
            return None
    if not leads or any(base != leads[0][1] for _, base in leads):
        return None
    return Window(
        leads[0][0].access.tensor,
        leads[0][1],
        width,
        frozenset(id(op) for op, _ in leads),
        frozenset(map(id, fixed)),
        tuple(conditions),
    )


def _base(access: t.Access, tensor: t.Tensor) -> Sym | None:
    """Elements in front of the row: `x[r, :]` has C * r. None for anything but a row of scalar subscripts."""
    if access.view is not None or tensor.strides is not None:
        return None
    *scalars, last = access.terms
    whole = isinstance(last, t.AtAll) or (
        isinstance(last, t.AtSpan) and last.start.constant == 0 and last.lo is None
    )
    if not whole or not all(isinstance(term, t.AtScalar) for term in scalars):
        return None
    base = Sym.of(0)
    for term, stride in zip(scalars, tensor.row_major, strict=False):
        assert isinstance(term, t.AtScalar)
        base = base + term.index * stride
    return base
