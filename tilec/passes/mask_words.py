"""Masks from memory as words of bits, made by the launch that asks which of their blocks are empty.

    for j in range(N by BN):                             in front:  for b, x, y in parallel(…):
        if mask_blocks[b, i, j] or …:                                   mask_blocks[b, x, y] = any(mask[b, x, y])
            seen = load mask[b, i, j]             ->                    mask_words[b, x, y] = mask[b, x, y], as bits
                                                         for j in range(N by BN):
                                                             if mask_blocks[b, i, j] or …:
                                                                 seen = load mask_words[b, i, j]

Where instances share a mask, its bytes are read once for all of them, for the table of its blocks. The loop then brings an eighth of
them, and a thread finds the bits of a row of accumulators in one word: nothing is gathered from bytes in each trip.

A block of `words` columns has four words a row. Bits 2n and 2n + 1 of word t are columns 8n + 2t and 8n + 2t + 1, those that lane t of
four has of a row of accumulators. Blocks of columns lie one behind the other, with all of their rows, up to a multiple of 8.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import field, replace

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir import window_ops as w
from tilec.ir.dtypes import BOOL, I32, I64, U32
from tilec.ir.facts import Facts
from tilec.ir.launch import Argument, IntegerArgument, Launch, PointerArgument, product
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.passes.block_tables import BlockTable, Skipping
from tilec.passes.boxes import words_dims
from tilec.passes.computed import ComputedCopy
from tilec.passes.lower.names import Names, Spelling

THREADS = 128
WIDTHS = (64, 128)
"""Columns of a block whose bits fill words, or halves of them."""


@dataclass(frozen=True)
class PackedTable(BlockTable):
    """The table of a mask's blocks, whose launch packs the mask too. `load`: what it reads of it, at the indices of its own nest."""

    words: t.Tensor | None = field(default=None, compare=False)
    """the mask in words, the dimensions of its rows and columns last"""
    load: t.Load | None = field(default=None, compare=False)

    @property
    def further(self) -> tuple[t.Tensor, ...]:
        """The words and the flag as pieces of the workspace."""
        assert self.words is not None
        words = t.Tensor(self.words.name, U32, (product(self._dims),), "temp")
        return (words, *super().further)

    @property
    def _dims(self) -> tuple[Sym, ...]:
        assert self.words is not None
        *outer, rows, columns = self.words.dims
        return words_dims(outer, rows, columns, self.words.words)

    @property
    def to(self) -> str:
        """To where, for the manifest."""
        return f"{super().to}, and as bits in the order of accumulators"


def in_words(found: Skipping) -> Skipping:
    """The same with masks as words, where they are tiles that memory has and that several instances read."""
    copies: list[ComputedCopy] = []
    temps: list[t.Tensor] = []
    body = found.nest.body
    names = set(found.program.names)
    for table in found.copies:
        packed = _packed(found.program, table, names) if isinstance(table, BlockTable) else None
        if packed is not None:
            assert packed.words is not None
            taken: list[t.Load] = []
            changed = t.Block(tuple(placed(body.ops, packed, taken)))
            if taken:
                body, table = changed, packed
                names.add(packed.words.name)
                temps.append(packed.words)
        copies.append(table)
    if not temps:
        return found
    nest = replace(found.nest, body=body)
    nests = tuple(nest if other is found.nest else other for other in found.program.nests)
    program = replace(found.program, tensors=(*found.program.tensors, *temps), nests=nests)
    return replace(found, program=program, nest=nest, copies=tuple(copies))


def _packed(program: t.Program, table: BlockTable, names: set[str]) -> PackedTable | None:
    """A table whose launch packs the mask that it asks; None where that is more than a tile of a dense tensor, or no block of words."""
    (nest,) = table.program.nests
    match nest.body.ops:
        case (t.Load() as load, t.Reduce(op="any"), t.Store(), *_):
            pass
        case _:
            return None
    access, tensor = load.access, program.tensor(load.access.tensor)
    if load.out.type.dtype != BOOL or load.out.type.rank != 2 or tensor.strides is not None:
        return None
    if access.view is not None or access.pointwise:
        return None
    facts = Facts.of(table.program)
    spans = [n for n, term in enumerate(access.terms) if isinstance(term, t.AtSpan)]
    others = [n for n, term in enumerate(access.terms) if isinstance(term, t.AtScalar)]
    if len(spans) != 2 or len(spans) + len(others) != len(tensor.dims):
        return None
    if spans[1] != len(tensor.dims) - 1 or len(tensor.dims) > 4:
        return None
    height, width = (facts.numeric(access.terms[n].extent).constant for n in spans)  # type: ignore[union-attr]
    if height is None or width not in WIDTHS or height % 64:
        return None
    row, column = (facts.numeric(access.terms[n].start) for n in spans)  # type: ignore[union-attr]
    if not facts.divides(row, 8) or not facts.divides(column, width):
        return None
    name = f"{table.tensor}_words_{width}"
    while name in names:
        name += "_other"
    dims = tuple(tensor.dims[n] for n in (*others, *spans))
    words = t.Tensor(name, BOOL, dims, "temp", words=width)
    return PackedTable(
        table.tensor, table.temp, table.dtype, table.dims, table.program,
        entry=table.entry, scanned=table.scanned, operations=table.operations, read_bits=table.read_bits,
        flag=table.flag, words=words, load=load,
    )  # fmt: skip


def placed(ops: Sequence[t.Op], table: PackedTable, taken: list[t.Load]) -> Iterator[t.Op]:
    """The ops with loads of the mask at the places that the table asks about from its words; those are `taken`."""
    assert table.words is not None and table.load is not None
    (nest,) = table.program.nests
    places = {axis.index: entry for axis, entry in zip(nest.grid, table.entry, strict=True)}
    for op in ops:
        match op:
            case t.For():
                yield replace(op, body=t.Block(tuple(placed(op.body.ops, table, taken))))
            case t.If():
                then = t.Block(tuple(placed(op.then.ops, table, taken)))
                yield replace(op, then=then)
            case t.Load() if _is_same(op.access, table.load.access, places):
                terms = op.access.terms
                scalars = [x for x in terms if isinstance(x, t.AtScalar)]
                spans = [x for x in terms if not isinstance(x, t.AtScalar)]
                taken.append(op)
                yield replace(op, access=t.Access(table.words.name, (*scalars, *spans)))
            case _:
                yield op


def _is_same(access: t.Access, asked: t.Access, places: Mapping[Var, Sym]) -> bool:
    """Whether a tile is the one that a table asks about, wherever it ends."""
    if access.tensor != asked.tensor or access.view is not None or access.pointwise:
        return False
    for term, other in zip(access.terms, asked.terms, strict=True):
        match term, other:
            case t.AtScalar(), t.AtScalar():
                if term.index != other.index.substitute(places.get):
                    return False
            case t.AtSpan(), t.AtSpan():
                if term.start != other.start.substitute(places.get) or term.extent != other.extent:
                    return False
            case _:
                return False
    return True


# ------------------------------------------------------------------------------------------- kernel


def packing(
    program: t.Program, table: PackedTable, base: str, suffix: str, spell: Spelling
) -> tuple[k.Kernel, Launch]:
    """The kernel that packs a mask and asks its blocks, and its launch in front of the nest's own. `suffix`: the end of its name."""
    assert table.words is not None and table.load is not None
    (nest,) = table.program.nests
    facts = Facts.of(table.program)
    names = Names(spell)
    temps = (table.temp, table.words.name, table.flag)
    for word in (*program.names, *temps, *(v.name for v in program.dims)):
        names.unique(word)
    digits = [k.GridDigit(names.unique(f"at_{x.name}"), facts.numeric(x.trips)) for x in nest.grid]
    places = {x.index: Sym.of(Var(d.name, "local")) for x, d in zip(nest.grid, digits, strict=True)}

    def number(sym: Sym) -> Sym:
        return facts.numeric(sym.substitute(places.get))

    access, tensor = table.load.access, program.tensor(table.tensor)
    spans = [n for n, term in enumerate(access.terms) if isinstance(term, t.AtSpan)]
    strides = tensor.row_major
    source = target = at = Sym.of(0)
    dims = iter(table._dims)
    for n, term in enumerate(access.terms):
        if isinstance(term, t.AtScalar):
            source = source + number(term.index) * strides[n]
            target = target * next(dims) + number(term.index)
    row, column = (access.terms[n] for n in spans)
    assert isinstance(row, t.AtSpan) and isinstance(column, t.AtSpan)
    height, width = (facts.numeric(x.extent).constant for x in (row, column))
    assert height is not None and width is not None
    target = (target * next(dims) + number(column.start) // width) * next(dims) * 32
    for digit, dim in zip(digits, table.dims, strict=True):
        at = at * facts.numeric(dim) + Sym.of(Var(digit.name, "local"))
    used = {v for x in (*tensor.dims, *(d.trips for d in digits)) for v in x.variables}
    needed = sorted(used)
    arguments: tuple[Argument, ...] = (
        PointerArgument(table.tensor),
        PointerArgument(table.words.name),
        PointerArgument(table.temp),
        PointerArgument(table.flag),
        *(IntegerArgument(var.name, Sym.of(var)) for var in program.dims if var in used),
    )
    buffer = names.unique("some")
    body = w.PackTile(
        spell(table.tensor),
        spell(table.words.name),
        spell(table.temp),
        spell(table.flag),
        buffer,
        BOOL,
        k.Index(source, I64, wide=True),
        k.Index(target, I64, wide=True),
        k.Index(at, I64, wide=True),
        k.Index(strides[spans[0]], I64, wide=True),
        k.Index(tensor.dims[spans[0]], I32),
        k.Index(tensor.dims[spans[1]], I32),
        k.Index(number(row.start), I32),
        k.Index(number(column.start), I32),
        height,
        width,
    )
    kernel = k.Kernel(
        "_".join(word for word in (base, "kernel_pack", suffix) if word),
        f"{base}_pack_body",
        THREADS,
        1,
        1,
        (),
        arguments,
        (
            (table.tensor, BOOL, False),
            (table.words.name, U32, True),
            (table.temp, BOOL, True),
            (table.flag, I32, True),
        ),
        tuple(digits),
        table.grid,
        (),
        (k.SharedBuffer(buffer, BOOL, THREADS // 32, "what warps found"),),
        (),
        (body,),
        tuple((var, spell(var.name)) for var in needed),
    )
    return kernel, Launch(kernel.name, table.condition, table.grid, THREADS, arguments)
