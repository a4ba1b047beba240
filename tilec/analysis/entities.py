"""What an expression can stand for while a kernel is analysed."""

from __future__ import annotations

from dataclasses import field
from typing import TypeAlias

from tilec.ir.dtypes import I32, I64, DType
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import TileType, Value
from tilec.lazy_dataclass import dataclass
from tilec.plan.constants import Constant
from tilec.syntax import ast
from tilec.syntax.loading import Namespace


@dataclass(frozen=True)
class Known:
    """A compile-time number or truth value; weak."""

    value: Constant


@dataclass(frozen=True)
class Integer:
    """An integer scalar that is known as a polynomial; weak where `dtype` is None (i32 or i64 otherwise)."""

    sym: Sym
    dtype: DType | None = None


@dataclass(frozen=True)
class Tile:
    """A value of Tile IR, scalars included. `weak`: made of literals and sizes only, takes the other operand's dtype."""

    value: Value
    weak: bool = False

    @property
    def type(self) -> TileType:
        """The value's type."""
        return self.value.type


@dataclass(frozen=True)
class SpanTile:
    """A span: indices start … start+extent-1 of which those in [lo, hi) are present. None: no bound on that side."""

    start: Sym
    extent: Sym
    lo: Sym | None
    hi: Sym | None


@dataclass(frozen=True)
class TensorRef:
    """A tensor parameter, output or workspace, or a view of one; `at`: behind `.at`."""

    name: str
    dtype: DType
    dims: tuple[Sym, ...]
    view: str | None = None
    at: bool = False


@dataclass(frozen=True)
class TupleOf:
    """A tuple of a `fn`, or a shape."""

    elements: tuple[Entity, ...]


@dataclass(frozen=True)
class TypeOf:
    """A dtype."""

    dtype: DType


@dataclass(frozen=True)
class ScalarRef:
    """A scalar parameter that is not an i32 or i64; using its name makes it a value."""

    name: str
    dtype: DType


@dataclass(frozen=True)
class Text:
    """A string of `print`, or `wmma` in an option."""

    text: str


@dataclass(frozen=True)
class ModuleRef:
    """`softmax` after `import std.softmax`."""

    name: str
    space: Namespace = field(compare=False)


@dataclass(frozen=True)
class FnRef:
    """A user's function and the names that its body sees."""

    fn: ast.Fn
    home: ast.Module = field(compare=False)


@dataclass(frozen=True)
class BuiltinRef:
    """A function of the language."""

    name: str


@dataclass(frozen=True)
class MethodRef:
    """`x.to`, `x.fill`, `t.view`: a method together with what it is called on."""

    owner: Entity
    name: str


@dataclass(frozen=True)
class Poison:
    """The result of something that already has its message; silences what depends on it."""


POISON = Poison()

Entity: TypeAlias = (
    "Known | Integer | Tile | SpanTile | TensorRef | TupleOf | TypeOf | ScalarRef | Text | ModuleRef | FnRef | BuiltinRef"
    " | MethodRef | Poison"
)


def as_sym(entity: Entity) -> Sym | None:
    """The entity as an integer polynomial, or None where it isn't an integer scalar. Bools are no integers here."""
    match entity:
        case Known(value) if isinstance(value, int) and not isinstance(value, bool):
            return Sym.of(value)
        case Integer(sym, _):
            return sym
        case Tile(value, _) if not value.type.axes and value.type.dtype.is_integer:
            return Sym.of(Var(value.name or "v", "value", value.id))
        case _:
            return None


def stays_symbolic(entity: Entity) -> bool:
    """Whether arithmetic on this integer scalar is kept as a polynomial (i32, i64 and weak ones)."""
    match entity:
        case Known(value):
            return isinstance(value, int) and not isinstance(value, bool)
        case Integer():
            return True
        case Tile(value, _):
            return not value.type.axes and value.type.dtype in (I32, I64)
        case _:
            return False


def integer_dtype(entity: Entity) -> DType | None:
    """The strong dtype of an integer scalar, None for a weak one."""
    match entity:
        case Integer(_, dtype):
            return dtype
        case Tile(value, weak):
            return None if weak else value.type.dtype
        case _:
            return None


def describe(entity: Entity) -> str:
    """A few words for messages."""
    match entity:
        case Known(value):
            return f"`{str(value).lower() if isinstance(value, bool) else value}`"
        case Integer(_, dtype):
            return f"{article(str(dtype))} scalar" if dtype else "an integer scalar"
        case Tile(value, _):
            return describe_type(value.type)
        case SpanTile():
            return "a span"
        case TensorRef(name):
            return f"the tensor `{name}`"
        case TupleOf(elements):
            return f"a tuple of {len(elements)}"
        case TypeOf(dtype):
            return f"the dtype `{dtype}`"
        case ScalarRef(name):
            return f"the scalar `{name}`"
        case Text():
            return "a string"
        case ModuleRef():
            return "a module"
        case FnRef(fn):
            return f"the fn `{fn.name}`"
        case BuiltinRef(name) | MethodRef(_, name):
            return f"the function `{name}`"
        case Poison():
            return "an erroneous value"


def describe_type(type_: TileType) -> str:
    """`a f32[BM, D] tile`, `an i32 scalar`."""
    if not type_.axes:
        return f"{article(str(type_.dtype))} scalar"
    return f"{article(str(type_.dtype))}[{', '.join(str(a.extent) for a in type_.axes)}] tile"


def article(noun: str) -> str:
    """The noun behind `a` or `an`, as it is spoken."""
    return (
        f"an {noun}"
        if noun[:1] in "aeiou" or (noun[:1] in "f" and noun[1:2].isdigit())
        else f"a {noun}"
    )
