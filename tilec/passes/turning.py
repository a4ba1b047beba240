"""Copies of 8-bit operands that lie across: warpgroups read these with the consumed axis last in memory, and nowhere else.

    acc += p @ load v[b, j, :]      ->      v_columns[b, n, j] = v[b, j, n]                 a launch in front
                                            acc += p @ (load v_columns[b, :, j]).T

Rows of a copy begin at multiples of 16 bytes, with zeros behind their last element. Where the left operand is made from another
product's accumulators, a thread has two neighbouring columns of each eight, and the instruction wants four of it side by side. What is
added up may come in any order, so the copy is *interleaved*: of each 16 elements of a row the instruction finds in place 4t + r the one
with number 8 (r / 2) + 2t + r % 2, and both sides mean the same column by a place.

This is tried where a nest does not take the form of warpgroups as it is. Whether it pays is a comparison in the launcher, as for other
copies (`copies`): a call without a workspace takes products of warps.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir import window_ops as w
from tilec.ir.dtypes import I32, I64, U32, DType
from tilec.ir.facts import Facts
from tilec.ir.launch import (
    AllOf,
    Argument,
    IntegerArgument,
    Launch,
    LaunchCondition,
    PointerArgument,
    product,
)
from tilec.ir.symbolic import Sym, Var, ceildiv
from tilec.lazy_dataclass import dataclass
from tilec.passes.lower.names import Names, Spelling
from tilec.passes.placement import from_memory
from tilec.passes.products import origin_of
from tilec.passes.schedule.clone import Numbers
from tilec.passes.uses import Definitions, all_ops

TILE = 128
"""Rows and columns of a CTA's tile."""
THREADS = 256
"""Each has 16 rows of four columns."""
GROUP = 16
"""Elements within which an interleaved row is exchanged, and of which rows have whole numbers: 16 bytes."""


@dataclass(frozen=True)
class TurnedCopy:
    """A dense tensor with `dims`, of which number `row` is consumed, and the temp to which it is copied, with that one last. Where it is
    the last one as it is, nothing but the order within a row changes."""

    tensor: str
    temp: str
    dtype: DType
    dims: tuple[Sym, ...]
    row: int
    interleaved: bool

    @property
    def condition(self) -> AllOf:
        """It is copied in every call that this is for."""
        return AllOf(())

    @property
    def consumed(self) -> Sym:
        """The consumed extent."""
        return self.dims[self.row]

    @property
    def padded(self) -> Sym:
        """Elements of a row of the copy."""
        return ceildiv(self.consumed, GROUP) * GROUP

    @property
    def across(self) -> bool:
        """Whether the consumed axis is another than the last."""
        return self.row != len(self.dims) - 1

    @property
    def others(self) -> tuple[int, ...]:
        """The dims beside the consumed one, in order."""
        return tuple(n for n in range(len(self.dims)) if n != self.row)

    @property
    def turned(self) -> tuple[Sym, ...]:
        """The dims of the copy."""
        return (*(self.dims[n] for n in self.others), self.padded)

    @property
    def place(self) -> t.Tensor:
        """The temp as a piece of the workspace."""
        return t.Tensor(self.temp, self.dtype, (product(self.turned),), "temp")

    @property
    def elements(self) -> Sym:
        """How many are copied."""
        return product(self.dims)

    @property
    def needed(self) -> Sym:
        """1: it is always copied."""
        return Sym.of(1)

    @property
    def parts(self) -> tuple[Sym, ...]:
        """CTAs along the dims of the copy that several share: columns and rows of tiles, or parts of a row."""
        if self.across:
            return ceildiv(self.dims[-1], TILE), ceildiv(self.padded, TILE)
        return (ceildiv(self.padded, THREADS * GROUP),)

    @property
    def outer(self) -> tuple[Sym, ...]:
        """The dims of which each index has CTAs of its own."""
        return self.turned[: -len(self.parts)]

    @property
    def grid(self) -> Sym:
        """CTAs."""
        return product((*self.outer, *self.parts))

    @property
    def further(self) -> tuple[t.Tensor, ...]:
        """None."""
        return ()

    @property
    def asked(self) -> tuple[t.HostExpr, ...]:
        """That 32 bits number all places of a row and what a tile has behind it."""
        return (t.HostOp("<=", (self.padded, t.HostNumber((1 << 31) - THREADS * GROUP))),)

    @property
    def where(self) -> str:
        """In which calls, for the manifest."""
        return "always"

    @property
    def to(self) -> str:
        """To where, for the manifest."""
        last = ["the consumed axis last"] if self.across else []
        order = ["in the order of accumulators"] if self.interleaved else []
        return f"the workspace, {', '.join((*last, *order))}"


@dataclass(frozen=True)
class Turned:
    """A program and one of its nests, with operands that lie across loaded from their copies."""

    program: t.Program
    nest: t.Nest
    copies: tuple[TurnedCopy, ...]
    word: str = "turned"
    conditions: tuple[LaunchCondition, ...] = ()

    @property
    def interleaved(self) -> frozenset[str]:
        """The temps whose rows are."""
        return frozenset(copy.temp for copy in self.copies if copy.interleaved)


def turn(program: t.Program, nest: t.Nest) -> Turned | None:
    """The nest with copies of all 8-bit operands that lie across, or beside accumulators; None where it has none, or one that cannot be
    copied."""
    definitions = Definitions.of(nest.body)
    found: dict[int, tuple[t.Load, int, bool]] = {}
    for op in all_ops(nest.body):
        if not isinstance(op, t.Dot) or op.a.type.rank != 2:
            continue
        left, _ = origin_of(op.a, 1, definitions)
        for value, axis in ((op.a, 1), (op.b, 0)):
            base, consumed = origin_of(value, axis, definitions)
            load = definitions.defining.get(base.id)
            if base.type.dtype.bits != 8 or not isinstance(load, t.Load):
                continue
            way = (load, consumed, value is op.b and not from_memory(left, definitions))
            if found.setdefault(base.id, way) != way:
                return None
    found = {number: way for number, way in found.items() if way[1] == 0 or way[2]}
    if not found:
        return None
    written = {op.access.tensor for op in all_ops(nest.body) if isinstance(op, t.Store | t.Atomic)}
    facts = Facts.of(program)
    copies: dict[int, TurnedCopy] = {}
    for number, (load, consumed, chained) in found.items():
        copy = _copy(program, load, consumed, chained, facts)
        if copy is None or load.access.tensor in written:
            return None
        if not _consumed_alone(number, consumed, definitions):
            return None
        copies[number] = copy
    numbers = Numbers((*program.nests, nest))
    body = t.Block(tuple(_rewritten(nest.body.ops, copies, numbers, program, facts)))
    turned = replace(nest, body=body)
    temps = {
        copy.temp: t.Tensor(copy.temp, copy.dtype, copy.turned, "temp") for copy in copies.values()
    }
    # the ids that are taken are those of the nests of a program
    nests = tuple(turned if other.grid == nest.grid else other for other in program.nests)
    return Turned(
        replace(program, tensors=(*program.tensors, *temps.values()), nests=nests),
        turned,
        tuple(dict.fromkeys(copies.values())),
    )


def _copy(
    program: t.Program, load: t.Load, consumed: int, chained: bool, facts: Facts
) -> TurnedCopy | None:
    """The copy of a load's tensor; None where it is gathered, has strides, or another role."""
    tensor, access = program.tensor(load.access.tensor), load.access
    if access.view is not None or access.pointwise or tensor.strides is not None:
        return None
    if tensor.role not in ("input", "temp") or len(tensor.dims) > 5:
        return None
    spans = [n for n, term in enumerate(access.terms) if isinstance(term, t.AtSpan | t.AtAll)]
    scalars = [n for n, term in enumerate(access.terms) if isinstance(term, t.AtScalar)]
    if len(spans) != 2 or len(spans) + len(scalars) != len(tensor.dims):
        return None
    if spans[1] != len(tensor.dims) - 1:
        return None
    end = "pairs" if chained else "columns"
    row = spans[consumed]
    own = "" if row == len(tensor.dims) - 2 else f"_{row}"
    name = f"{tensor.name}_{end}{own}"
    while name in program.names:
        name += "_copy"
    dims = tuple(map(facts.numeric, tensor.dims))
    return TurnedCopy(tensor.name, name, tensor.dtype, dims, row, chained)


def _consumed_alone(number: int, consumed: int, definitions: Definitions) -> bool:
    """Whether a value is nothing but an operand of products, which all consume this axis of it."""
    value = definitions.values[number]
    ways = [(value, consumed)]
    while ways:
        value, axis = ways.pop()
        for user in definitions.users[value.id]:
            match user:
                case t.Rearrange() if user.out.type.rank == 2 and None not in user.axes:
                    ways.append((user.out, user.axes.index(axis)))
                case t.Dot():
                    if user.accumulate is value:
                        return False
                    if (user.a is value and axis != 1) or (user.b is value and axis != 0):
                        return False
                case _:
                    return False
    return True


def _rewritten(
    ops: Sequence[t.Op],
    copies: Mapping[int, TurnedCopy],
    numbers: Numbers,
    program: t.Program,
    facts: Facts,
) -> Iterator[t.Op]:
    def inside(block: t.Block) -> t.Block:
        return t.Block(tuple(_rewritten(block.ops, copies, numbers, program, facts)))

    for op in ops:
        match op:
            case t.For():
                yield replace(op, body=inside(op.body))
            case t.If():
                yield replace(op, then=inside(op.then), otherwise=inside(op.otherwise))
            case t.Load() if op.out.id in copies:
                yield from _turned_load(op, copies[op.out.id], numbers, program, facts)
            case _:
                yield op


def _turned_load(
    op: t.Load, copy: TurnedCopy, numbers: Numbers, program: t.Program, facts: Facts
) -> Iterator[t.Op]:
    """The same tile from the copy. Bounds of the consumed axis that are the tensor's own need no asking: there are zeros."""
    terms = op.access.terms
    along = terms[copy.row]
    if isinstance(along, t.AtSpan):
        dim = program.tensor(op.access.tensor).dims[copy.row]
        if along.hi is not None and facts.prove_nonnegative(along.hi - dim):
            along = replace(along, hi=None)
        if along.lo is not None and facts.prove_nonnegative(-along.lo):
            along = replace(along, lo=None)
    access = t.Access(copy.temp, (*(terms[n] for n in copy.others), along))
    if not copy.across:
        yield replace(op, access=access)
        return
    first, second = op.out.type.axes
    value = numbers.fresh(op.out, replace(op.out.type, axes=(second, first)))
    yield t.Load(access, outs=(value,), span=op.span)
    yield t.Rearrange(value, (1, 0), outs=op.outs, span=op.span)


# ------------------------------------------------------------------------------------------- kernel


def turning(
    program: t.Program, copy: TurnedCopy, base: str, suffix: str, spell: Spelling
) -> tuple[k.Kernel, Launch]:
    """The kernel that makes a copy, and its launch in front of the nest's own. `suffix`: the end of its name."""
    names = Names(spell)
    for word in (*program.names, copy.temp, *(v.name for v in program.dims)):
        names.unique(word)
    digits = [k.GridDigit(names.unique(f"at_{n}"), dim) for n, dim in enumerate(copy.outer)]
    parts = [names.unique(word) for word in ("column_tile", "row_tile")[-len(copy.parts) :]]
    digits += [k.GridDigit(*part) for part in zip(parts, copy.parts, strict=True)]
    needed = sorted({var for dim in copy.dims for var in dim.variables})
    arguments: tuple[Argument, ...] = (
        PointerArgument(copy.tensor),
        PointerArgument(copy.temp),
        *(IntegerArgument(var.name, Sym.of(var)) for var in program.dims if var in needed),
    )
    outer = [Sym.of(Var(digit.name, "local")) for digit in digits[: len(copy.outer)]]
    last = [Sym.of(Var(part, "local")) for part in parts]
    body: k.Op
    shared: tuple[k.SharedBuffer, ...] = ()
    if copy.across:
        buffer = names.unique("turned")
        shared = (k.SharedBuffer(buffer, U32, TILE * TILE // 4, "a tile by columns", vector=4),)
        body = _turn_tile(copy, outer, last, buffer, spell)
    else:
        body = _interleave_row(copy, outer, last[0], spell)
    kernel = k.Kernel(
        "_".join(word for word in (base, "kernel_turn", suffix) if word),
        f"{base}_turn_body",
        THREADS,
        1,
        1,
        (),
        arguments,
        ((copy.tensor, copy.dtype, False), (copy.temp, copy.dtype, True)),
        tuple(digits),
        copy.grid,
        (),
        shared,
        (),
        (body,),
        tuple((var, spell(var.name)) for var in needed),
    )
    return kernel, Launch(kernel.name, copy.condition, copy.grid, THREADS, arguments)


def _turn_tile(
    copy: TurnedCopy, outer: list[Sym], tile: list[Sym], buffer: str, spell: Spelling
) -> w.TurnTile:
    """The copy of tile (column, row) of the matrix at the outer indices."""
    strides = t.Tensor("", copy.dtype, copy.dims, "input").row_major
    turned = t.Tensor("", copy.dtype, copy.turned, "input").row_major
    source = target = Sym.of(0)
    for n, at in enumerate(outer):
        source = source + at * strides[copy.others[n]]
        target = target + at * turned[n]
    return w.TurnTile(
        spell(copy.tensor),
        spell(copy.temp),
        buffer,
        copy.dtype,
        k.Index(source, I64, wide=True),
        k.Index(target, I64, wide=True),
        k.Index(strides[copy.row], I64, wide=True),
        k.Index(copy.consumed, I32),
        k.Index(copy.dims[-1], I32),
        k.Index(copy.padded, I32),
        k.Index(tile[1] * TILE, I32),
        k.Index(tile[0] * TILE, I32),
        copy.interleaved,
    )


def _interleave_row(
    copy: TurnedCopy, outer: list[Sym], part: Sym, spell: Spelling
) -> w.InterleaveRow:
    """The copy of a part of the row at the outer indices."""
    row = Sym.of(0)
    for at, dim in zip(outer, copy.outer, strict=True):
        row = row * dim + at
    return w.InterleaveRow(
        spell(copy.tensor),
        spell(copy.temp),
        copy.dtype,
        k.Index(row, I32),
        k.Index(copy.consumed, I32),
        k.Index(copy.padded, I32),
        k.Index((part * THREADS + Sym.of(Var("thread", "local"))) * GROUP, I32),
    )
