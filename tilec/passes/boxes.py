"""Which part of a tensor a bulk copy moves: dims, strides and the first coordinate of a tile, and where the tile ends inside."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import U32
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym, ceildiv
from tilec.lazy_dataclass import dataclass
from tilec.passes.axes import term_axes


class Unsuited(Exception):
    """Why a nest does not take the asynchronous form."""


@dataclass(frozen=True)
class TensorBox:
    """What a bulk copy of a load is told: the tensor's dims (elements) and strides (elements, the last is 1), slowest first, the
    tile's first coordinate along each, and which of them are the tile's rows and columns. `inner`: bounds of rows and of columns,
    from the tile's first coordinate on, that lie inside the tensor: (from, to), None for none."""

    dims: tuple[Sym, ...]
    strides: tuple[Sym, ...]
    start: tuple[Sym, ...]
    row: int
    col: int
    inner: tuple[tuple[Sym | None, Sym | None], ...]


def load_box(program: t.Program, load: t.Load, facts: Facts) -> TensorBox:
    """The box of a load of a tile, or of one row: its columns are its rows, too. Raises Unsuited where a bulk copy cannot bring it as it
    is."""
    rank = load.out.type.rank
    if rank not in (1, 2):
        raise Unsuited("an operand is gathered")
    if program.tensor(load.access.tensor).role in ("output", "inout"):
        raise Unsuited(f"`{load.access.tensor}` is written by this kernel")
    return tensor_box(program, load.access, facts, rank)


def tensor_box(program: t.Program, access: t.Access, facts: Facts, rank: int = 2) -> TensorBox:
    """The box of an access to a tile, or, with a `rank` of 1, to a row. Raises Unsuited where a bulk copy cannot move it as it is."""
    tensor = program.tensor(access.tensor)
    view = next((v for v in program.views if v.name == access.view), None)
    dims = tensor.dims if view is None else view.dims
    strides = (
        tensor.row_major if view is None else t.Tensor("", tensor.dtype, dims, "input").row_major
    )
    if access.pointwise:
        raise Unsuited("an operand is gathered")
    if not rank <= len(dims) <= 5:
        raise Unsuited(f"a bulk copy takes {rank} to 5 dimensions, `{tensor.name}` has {len(dims)}")
    start: list[Sym] = []
    places: list[int] = []
    inner: list[tuple[Sym | None, Sym | None]] = []
    for n, (term, along) in enumerate(zip(access.terms, term_axes(access), strict=True)):
        match term:
            case t.AtScalar():
                start.append(term.index)
            case t.AtAll():
                start.append(Sym.of(0))
                places += [n] * len(along)
                inner += [(None, None)] * len(along)
            case t.AtSpan():
                start.append(term.start)
                places += [n] * len(along)
                inner += [_inner(term, dims[n], facts)] * len(along)
            case t.AtTile():
                raise Unsuited("an operand is gathered")
    if len(places) != rank or places[-1] != len(dims) - 1 or strides[-1].constant != 1:
        raise Unsuited("an operand's columns are not neighbours in memory")
    if tensor.words:
        return _words_box(tensor, start, inner, facts)
    return TensorBox(tuple(dims), tuple(strides), tuple(start), places[0], places[-1], tuple(inner))


def _words_box(
    tensor: t.Tensor,
    start: list[Sym],
    inner: list[tuple[Sym | None, Sym | None]],
    facts: Facts,
) -> TensorBox:
    """The box of a tile of truth values that lie as words: of the blocks of its columns, the groups of 8 rows and their 32 words."""
    *outer, row, column = start
    *dims, rows, columns = tensor.dims
    places = (*outer, facts.numeric(column) // tensor.words, facts.numeric(row) // 8, Sym.of(0))
    held = t.Tensor("", U32, words_dims(dims, rows, columns, tensor.words), "temp")
    if len(held.dims) > 5:
        raise Unsuited(f"a bulk copy takes 5 dimensions, the words of `{tensor.name}` have more")
    last = len(held.dims) - 1
    return TensorBox(held.dims, held.row_major, places, last - 1, last, tuple(inner))


def words_dims(outer: Sequence[Sym], rows: Sym, columns: Sym, width: int) -> tuple[Sym, ...]:
    """The dimensions of a mask's words: four of each row of a block of `width` columns, those of 8 rows one behind the other."""
    return (*outer, ceildiv(columns, width), ceildiv(rows, 8), Sym.of(32))


def _inner(term: t.AtSpan, dim: Sym, facts: Facts) -> tuple[Sym | None, Sym | None]:
    """Bounds of a span, from its start on, that are not the tensor's own."""
    first = last = None
    if term.hi is not None and not (
        facts.prove_nonnegative(term.hi - dim)
        or facts.prove_nonnegative(term.hi - term.start - term.extent)
    ):
        last = term.hi - term.start
    if term.lo is not None and not facts.prove_nonnegative(term.start - term.lo):
        first = term.lo - term.start
    return first, last
