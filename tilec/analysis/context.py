"""State of analysing one kernel: the ops written so far, names in scope, what is known, where messages go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, replace
from typing import Protocol, TypeVar

from tilec.analysis.entities import (
    POISON,
    Entity,
    Integer,
    Known,
    Poison,
    SpanTile,
    TensorRef,
    Tile,
    TupleOf,
    as_sym,
    describe,
)
from tilec.analysis.presence import span_presence
from tilec.analysis.scopes import Scope
from tilec.ir.dtypes import BOOL, F32, I32, DType
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import (
    Axis,
    Cast,
    Constant,
    Constraint,
    FromSym,
    Iota,
    Op,
    Scalar,
    ScalarInput,
    Tensor,
    TileType,
    Value,
    View,
)
from tilec.lazy_dataclass import dataclass
from tilec.plan.candidate import Candidate
from tilec.source.diagnostics import Diagnostic, Label, Sink
from tilec.source.text import NOWHERE, Span
from tilec.syntax import ast
from tilec.syntax.loading import Program as Files

OpType = TypeVar("OpType", bound=Op)


class Evaluate(Protocol):
    """Evaluates an expression."""

    def __call__(self, cx: Context, expr: ast.Expr) -> Entity: ...


class Inline(Protocol):
    """Expands a call of a user's function."""

    def __call__(
        self, cx: Context, fn: ast.Fn, home: ast.Module, arguments: list[Entity], span: Span
    ) -> Entity: ...


@dataclass
class Context:
    """Everything that the analysis of a kernel shares. `blocks` is the stack of op lists under construction."""

    files: Files
    sink: Sink
    candidate: Candidate
    facts: Facts
    scope: Scope
    evaluate: Evaluate
    inline: Inline
    tensors: dict[str, Tensor] = field(default_factory=dict)
    scalars: dict[str, ScalarInput] = field(default_factory=dict)
    views: list[View] = field(default_factory=list)
    blocks: list[list[Op]] = field(default_factory=lambda: [[]])
    next_value: int = 1
    next_trip: int = 1
    span: Span = NOWHERE
    calls: list[ast.Fn | ast.Const] = field(default_factory=list)
    call_spans: list[Span] = field(default_factory=list)
    consts: dict[int, Entity] = field(default_factory=dict)
    stored: set[str] = field(default_factory=set)
    index_tiles: dict[int, Value] = field(default_factory=dict)
    """tiles that select elements, by id"""
    divides: list[tuple[Sym, Sym]] = field(default_factory=list)
    """(a, b): a `require` says that b divides a"""
    quotients: dict[Sym, Sym] = field(default_factory=dict)
    """by the extent of a span, what it was divided by though nothing says that the extent divides that"""
    inlined: int = 0

    # ---- messages

    def error(
        self,
        code: str,
        message: str,
        span: Span | None = None,
        *,
        label: str = "",
        secondary: tuple[Label, ...] = (),
        note: str = "",
        help: str = "",
    ) -> Poison:
        """Report and give the value that silences everything that depends on it. A mistake in a `fn` is reported once,
        with the first call that shows it."""
        place = self.span if span is None else self.called(span)
        notes, helps = (note,) if note else (), (help,) if help else ()
        self.report([Diagnostic(code, message, place, label, secondary, notes, helps)])
        return POISON

    def report(self, diagnostics: Iterable[Diagnostic]) -> None:
        """Add messages, each mistake at a place once."""
        for new in diagnostics:
            if not any(
                old.code == new.code and old.span == new.span and old.message == new.message
                for old in self.sink.diagnostics
            ):
                self.sink.add(new)

    # ---- ops

    def new_value(self, type_: TileType, name: str = "") -> Value:
        """A fresh value at the current place."""
        value = Value(self.next_value, type_, name, self.span)
        self.next_value += 1
        return value

    def add(self, op: Op) -> None:
        """Append a finished op."""
        self.blocks[-1].append(op)

    def emit(self, op: Op, type_: TileType) -> Value:
        """Append an op (given without outs and span) whose one result has this type."""
        value = self.new_value(type_)
        self.blocks[-1].append(replace(op, outs=(value,), span=self.span))
        return value

    @contextmanager
    def block(self) -> Iterator[list[Op]]:
        """Collect ops into a list of their own."""
        ops: list[Op] = []
        self.blocks.append(ops)
        try:
            yield ops
        finally:
            self.blocks.pop()

    @contextmanager
    def at(self, span: Span) -> Iterator[None]:
        """Make `span` the place of ops and messages; a node without a place leaves it as it is."""
        before = self.span
        if span is not NOWHERE:
            self.span = self.called(span)
        try:
            yield
        finally:
            self.span = before

    def called(self, span: Span) -> Span:
        """A place with the call that is being expanded."""
        return replace(span, called=self.call_spans[0]) if self.call_spans else span

    def name_value(self, entity: Entity, name: str) -> Entity:
        """Give a value that the last op has just made the name that it is bound to."""
        if (
            not isinstance(entity, Tile)
            or entity.value.name
            or not self.blocks
            or not self.blocks[-1]
        ):
            return entity
        last = self.blocks[-1][-1]
        if len(last.outs) != 1 or last.outs[0] is not entity.value:
            return entity
        named = replace(entity.value, name=name)
        self.blocks[-1][-1] = replace(last, outs=(named,))
        return Tile(named, entity.weak)

    # ---- types

    def axis(self, extent: Sym, presence: tuple[Constraint, ...] = ()) -> Axis:
        """An axis of this extent; its capacity is the number of a static one, the proven bound of another."""
        return Axis(extent, self.facts.upper_bound(extent), presence)

    def bounded_axis(self, extent: Sym, span: Span | None = None) -> Axis | None:
        """An axis whose extent needs a compile-time upper bound; None after a message."""
        axis = self.axis(extent)
        if axis.capacity is None:
            self.error(
                "E0303",
                f"the extent `{extent}` has no upper bound",
                span,
                help=f"`require {extent} <= 65536` gives one; or loop over it in spans, `for … in range({extent} by …)`",
            )
            return None
        return axis

    # ---- scalars and spans as values

    def constant(self, value: int | float | bool, dtype: DType) -> Value:
        """A scalar constant."""
        if dtype.is_float:
            value = float(value)
        elif dtype.is_integer:
            value = int(value)
        return self.emit(Constant(value=value), TileType(dtype))

    def from_sym(self, sym: Sym, dtype: DType) -> Value:
        """A polynomial as a scalar value."""
        number = sym.constant
        if number is not None:
            return self.constant(number, dtype)
        if len(sym.terms) == 1 and sym.terms[0][1] == 1 and len(sym.terms[0][0]) == 1:
            atom = sym.terms[0][0][0]
            if (
                isinstance(atom, Var)
                and atom.kind == "scalar"
                and self.scalars[atom.name].dtype == dtype
            ):
                return self.emit(Scalar(name=atom.name), TileType(dtype))
        return self.emit(FromSym(sym=sym), TileType(dtype))

    def iota(self, span: SpanTile) -> Value:
        """A span used as a value: an i32 tile, absent outside the span's bound."""
        presence = span_presence(span.start, span.extent, span.lo, span.hi, None, self.facts)
        return self.emit(
            Iota(start=span.start, lo=span.lo, hi=span.hi),
            TileType(I32, (self.axis(span.extent, presence),)),
        )

    def cast(self, value: Value, dtype: DType) -> Value:
        """The value in another dtype; itself where nothing changes."""
        if value.type.dtype == dtype:
            return value
        return self.emit(Cast(arg=value), TileType(dtype, value.type.axes))

    def fits(self, number: int | float | bool, dtype: DType) -> bool:
        """Whether a literal can be written in a dtype without changing its meaning (rounding of floats aside)."""
        if isinstance(number, bool):
            return True
        if dtype.kind == "bool":
            return False
        if dtype.is_integer:
            return isinstance(number, int) and dtype.minimum <= number <= dtype.maximum
        return True

    def materialise(self, entity: Entity, dtype: DType | None, what: str = "value") -> Value | None:
        """The entity as a value: weak ones in `dtype` (None: i32, f32 or bool by their kind), strong ones as they are.
        None after a message where it is no value or doesn't fit."""
        match entity:
            case Known(number):
                if dtype is None:
                    if isinstance(number, bool):
                        dtype = BOOL
                    elif isinstance(number, float):
                        dtype = F32
                    else:
                        dtype = I32
                if not self.fits(number, dtype):
                    if isinstance(number, float) and not dtype.is_float:
                        self.error(
                            "E0304",
                            f"the literal `{number}` is a float where the other operand is `{dtype}`",
                            help="convert the other operand with `.to(f32)`, or write an integer",
                        )
                    else:
                        self.error(
                            "E0316",
                            f"the literal `{number}` does not fit in `{dtype}`",
                            help=f"`{dtype}` holds {dtype.minimum} to {dtype.maximum}; convert the other operand with `.to`"
                            if dtype.is_integer
                            else "compare or combine with `true` or `false`",
                        )
                    return None
                return self.constant(number, dtype)
            case Integer(sym, strong):
                return self.from_sym(sym, strong or dtype or I32)
            case Tile(value, weak):
                if weak and dtype is not None and dtype != value.type.dtype:
                    if value.type.dtype.is_float and not dtype.is_float:
                        self.error(
                            "E0304",
                            f"a float and `{dtype}` do not combine",
                            help="convert the integer with `.to(f32)`",
                        )
                        return None
                    return self.cast(value, dtype)
                return value
            case SpanTile():
                return self.iota(entity)
            case Poison():
                return None
            case _:
                self.not_a_value(entity, what)
                return None

    def not_a_value(self, entity: Entity, what: str = "value") -> Poison:
        """Say that a tensor, tuple, dtype or function stands where a tile or a scalar is needed."""
        match entity:
            case TensorRef(name, _, dims):
                subscript = ", ".join(":" for _ in dims)
                hint = f"index it: `{name}[{subscript}]`"
            case TupleOf():
                hint = "unpack it: `a, b = …`"
            case _:
                hint = "write a tile or a scalar here"
        return self.error("E0222", f"{describe(entity)} is not a {what}", help=hint)

    def sym_of(self, entity: Entity, what: str, code: str = "E0321") -> Sym | None:
        """An integer scalar as a polynomial; None after a message."""
        if isinstance(entity, Poison):
            return None
        sym = as_sym(entity)
        if sym is None:
            self.error(
                code,
                f"{what} must be an integer scalar, not {describe(entity)}",
                help=_scalar_hint(entity),
            )
        return sym

    def static_number(self, entity: Entity, what: str) -> int | None:
        """A compile-time integer; None after a message. Tile sizes do not count: their number never decides a meaning."""
        if isinstance(entity, Poison):
            return None
        sym = as_sym(entity)
        number = None if sym is None else sym.constant
        if number is None:
            self.error(
                "E0321",
                f"{what} must be a compile-time integer, not {describe(entity)}",
                help="write a literal, a `const` or a bracket parameter",
            )
        return number

    def fresh_trip(self, name: str, trips: Sym) -> Var:
        """The variable of a new loop or grid axis."""
        var = Var(name, "trip", self.next_trip)
        self.next_trip += 1
        self.facts.bind_trip(var, trips)
        return var


def _scalar_hint(entity: Entity) -> str:
    match entity:
        case SpanTile():
            return "its ends are `s.start` and `s.stop`"
        case TensorRef(name, _, dims):
            return f"read one element: `{name}[{', '.join('0' for _ in dims)}]`"
        case Tile(value, _) if value.type.axes:
            return "reduce it to a scalar, for example with `max(x)`"
        case _:
            return "convert with `.to(i32)`, or use a size or an integer"


def known_mapping(candidate: Candidate) -> Mapping[str, int]:
    """The numbers of the candidate's tile sizes."""
    return {
        name: int(value)
        for name, value in candidate.values.items()
        if name in candidate.tiles and not isinstance(value, DType)
    }
