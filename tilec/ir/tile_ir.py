"""Tile IR: what a kernel computes, nothing about machines.

Structured and typed. A value is a whole tile; a rank-0 tile is a scalar, uniform over the instance. Integer
scalars that only steer (sizes, starts, bounds, subscripts) are `Sym`s; a loaded or computed integer enters a
Sym as a variable of kind "value" whose key is the value's id. Every node carries its source span, every value
its extents and the presence of each axis. The reference interpreter runs it and recomputes presence from
index values; it never reads `Axis.presence`.

    kernel vector_add {BN=1024}
      in a f32[N], b f32[N]   out c f32[N]
      nest i.1 < (N + BN - 1) // BN
        %1 = load a[span(BN*i.1, BN, 0, N)]       f32[BN]  present r < -BN*i.1 + N
        %2 = load b[span(BN*i.1, BN, 0, N)]       f32[BN]  present r < -BN*i.1 + N
        %3 = add %1 %2                            f32[BN]  present r < -BN*i.1 + N
        store c[span(BN*i.1, BN, 0, N)] = %3
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Literal, TypeAlias

from tilec.ir.dtypes import DType
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.source.text import NOWHERE, Span

# ------------------------------------------------------------------------------------- types and values


@dataclass(frozen=True)
class Below:
    """Coordinate r of the axis is present only if r < limit."""

    limit: Sym


@dataclass(frozen=True)
class AtLeast:
    """Coordinate r of the axis is present only if r >= limit."""

    limit: Sym


@dataclass(frozen=True)
class InRange:
    """Coordinate r is present only if element r of the one-axis integer tile `index` is present and in [0, size)."""

    index: int
    """id of the value"""
    size: Sym
    trips: Sym | None = None
    """where given: it is present too where this number of trips is not positive"""


Constraint: TypeAlias = "Below | AtLeast | InRange"


@dataclass(frozen=True)
class Axis:
    """An axis of a tile. `extent` is its identity (two axes agree iff these are equal, or one is the constant 1);
    `capacity` is the extent's number, or the proven upper bound of a run-time extent, or None where `require`
    gives no bound. `presence` is a conjunction; empty means every coordinate is present."""

    extent: Sym
    capacity: int | None
    presence: tuple[Constraint, ...] = ()

    @property
    def is_one(self) -> bool:
        """The literal extent 1, which broadcasts."""
        return self.extent.constant == 1

    @property
    def is_static(self) -> bool:
        """The extent is known when the candidate is."""
        return all(v.kind == "tile" for v in self.extent.variables)


@dataclass(frozen=True)
class TileType:
    """Element type and axes; no axes: a scalar."""

    dtype: DType
    axes: tuple[Axis, ...] = ()

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.axes)


@dataclass(frozen=True, eq=False)
class Value:
    """Result of an op, unique in its program by `id`. `name` is the source's name for it, or ""."""

    id: int
    type: TileType
    name: str = ""
    span: Span = field(default=NOWHERE, repr=False)

    def __str__(self) -> str:
        return f"%{self.id}"


# ---------------------------------------------------------------------------------------------- tensors


@dataclass(frozen=True)
class Tensor:
    """A tensor parameter, output or workspace. Offsets are sum(index * stride) in elements, 64-bit. `strides` is None for dense
    row-major. i4/u4 are two to a byte along the last dimension, low nibble first. `words`: the columns of a block of truth values that lie
    as bits of words (`passes.mask_words`), 0 where each has a byte."""

    name: str
    dtype: DType
    dims: tuple[Sym, ...]
    role: Literal["input", "output", "inout", "temp"]
    strides: tuple[Sym, ...] | None = None
    span: Span = field(default=NOWHERE, repr=False, compare=False)
    words: int = 0

    @property
    def row_major(self) -> tuple[Sym, ...]:
        """Element strides, the dense ones computed."""
        if self.strides is not None:
            return self.strides
        strides: list[Sym] = []
        step = Sym.of(1)
        for dim in reversed(self.dims):
            strides.insert(0, step)
            step = step * dim
        return tuple(strides)


@dataclass(frozen=True)
class View:
    """`t.view(dims)`: a dense tensor parameter under other dimensions; `tensor` names the parameter."""

    name: str
    tensor: str
    dims: tuple[Sym, ...]


@dataclass(frozen=True)
class ScalarInput:
    """A scalar parameter; `default` as in the source."""

    name: str
    dtype: DType
    default: int | float | bool | None = None


@dataclass(frozen=True)
class AtScalar:
    """One coordinate; the dimension disappears. Out of range is a fault of the program."""

    index: Sym


@dataclass(frozen=True)
class AtSpan:
    """Coordinates start … start+extent-1, of which those in [lo, hi) and in the dimension are present. None: no bound."""

    start: Sym
    extent: Sym
    lo: Sym | None = None
    hi: Sym | None = None


@dataclass(frozen=True)
class AtAll:
    """`:`, the whole dimension."""


@dataclass(frozen=True)
class AtTile:
    """An integer tile as index: a gather. Out of range or absent elements select absent ones."""

    index: Value


IndexTerm: TypeAlias = "AtScalar | AtSpan | AtAll | AtTile"


@dataclass(frozen=True)
class Access:
    """`t[…]` (outer: result axes are those of the terms in order) or, with `pointwise`, `t.at[…]`: the terms broadcast together.
    A pointwise span term stands for its index tile. In a pointwise access of several axes an element out of range
    loads as 0 (present) and is not stored; with one axis it is absent. `view` names a View of the tensor."""

    tensor: str
    terms: tuple[IndexTerm, ...]
    pointwise: bool = False
    view: str | None = None


# --------------------------------------------------------------------------------------------------- ops


@dataclass(frozen=True, kw_only=True)
class Op:
    """Anything in a block. `outs` are the values it defines."""

    outs: tuple[Value, ...] = ()
    span: Span = field(default=NOWHERE, repr=False, compare=False)

    @property
    def out(self) -> Value:
        """The only result."""
        (value,) = self.outs
        return value


@dataclass(frozen=True)
class Constant(Op):
    """A scalar constant of out's dtype."""

    value: bool | int | float


@dataclass(frozen=True)
class FromSym(Op):
    """A symbolic integer as a scalar value of out's dtype (also a float: `sum(row) / C`)."""

    sym: Sym


@dataclass(frozen=True)
class Scalar(Op):
    """A scalar parameter."""

    name: str


@dataclass(frozen=True)
class Iota(Op):
    """A span used as a value: i32, element r is start + r. Its presence is [lo, hi) only."""

    start: Sym
    lo: Sym | None = None
    hi: Sym | None = None


@dataclass(frozen=True)
class Full(Op):
    """Every element is the scalar `value`; `presence` of out as given by what was named (spans' bounds as AtSpan terms; None: present)."""

    value: Value
    bounds: tuple[AtSpan | None, ...] = ()


@dataclass(frozen=True)
class Load(Op):
    """Elements of a tensor. All scalar terms: a scalar."""

    access: Access


ElementwiseName = Literal[
    "add", "sub", "mul", "div", "floordiv", "mod", "pow", "neg", "abs", "min", "max",
    "eq", "ne", "lt", "le", "gt", "ge", "and", "or", "xor", "not", "shl", "shr",
    "exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid",
    "floor", "ceil", "round", "fma", "where", "sub_if",
]  # fmt: skip


@dataclass(frozen=True)
class Elementwise(Op):
    """One function per element. Arguments are scalars or have out's rank; an axis of literal extent 1 broadcasts.
    Arguments have one dtype, out's own except: comparisons give bool, `where`'s first is bool. `min`/`max` propagate NaN. `and`, `or`,
    `xor`, `not` are logical on bool, bitwise on integers. `sub_if`(x, y, c) is x - y where the bool c holds, else x: a schedule's, for
    a c that rarely does."""

    op: ElementwiseName
    args: tuple[Value, ...]


@dataclass(frozen=True)
class Cast(Op):
    """`.to(dtype)` by the language's conversion rules."""

    arg: Value


@dataclass(frozen=True)
class Bitcast(Op):
    """`.bitcast(dtype)`, same width."""

    arg: Value


@dataclass(frozen=True)
class Fill(Op):
    """`x.fill(v)`: absent elements become the scalar v, everything is present. `axes`: only along these (None: all)."""

    arg: Value
    value: Value
    axes: tuple[int, ...] | None = None


@dataclass(frozen=True)
class Rearrange(Op):
    """Transposition and new axes: out axis n is arg's axis `axes[n]`, or new with extent 1 where None. Every axis of arg
    appears once, or has the literal extent 1 and is dropped."""

    arg: Value
    axes: tuple[int | None, ...]


@dataclass(frozen=True)
class Reshape(Op):
    """Row-major reinterpretation into out's extents; axes that are merged or split are fully present."""

    arg: Value


@dataclass(frozen=True)
class Slice(Op):
    """`x[:, lo:hi]` with constants: out axis n starts at `starts[n]` of arg's axis n."""

    arg: Value
    starts: tuple[int, ...]


@dataclass(frozen=True)
class Reduce(Op):
    """Reduction over `axes`, which disappear; absent coordinates are skipped; with nothing present the identity. `argmax`/`argmin`: one
    axis, i32, the first of equals (unspecified with nothing present)."""

    op: Literal["sum", "max", "min", "prod", "any", "all", "argmax", "argmin"]
    arg: Value
    axes: tuple[int, ...]
    partial: bool = False
    """each lane keeps what it adds up; a Combine brings the lanes together"""


@dataclass(frozen=True)
class Combine(Op):
    """The sum over the lanes of a row of what partial reductions left in each."""

    arg: Value


@dataclass(frozen=True)
class Region:
    """A function of scalars: a block whose `inputs` are bound on entry and whose `outputs` are its results."""

    inputs: tuple[Value, ...]
    body: Block
    outputs: tuple[Value, ...]


@dataclass(frozen=True)
class ReduceWith(Op):
    """`reduce(x, axis, fn)`: an associative `combine` (left tuple then right tuple of scalars -> tuple) over one axis of equally
    shaped args. With nothing present the result is unspecified."""

    args: tuple[Value, ...]
    axis: int
    combine: Region


@dataclass(frozen=True)
class Scan(Op):
    """`cumsum`, `cummax` along an axis; absent coordinates are skipped and stay absent."""

    op: Literal["sum", "max"]
    arg: Value
    axis: int


@dataclass(frozen=True)
class TopK(Op):
    """The k largest along an axis, descending, first of equals first: outs are values and i32 indices."""

    arg: Value
    axis: int
    k: int


@dataclass(frozen=True)
class Dot(Op):
    """`a @ b` over the last axis of a and the last but one of b, batched over leading axes, or `accumulate + a @ b`.
    out is f32 or i32 (f64 for f64); `precision` "tf32" rounds f32 operands."""

    a: Value
    b: Value
    accumulate: Value | None = None
    precision: Literal["", "tf32"] = ""


@dataclass(frozen=True)
class Store(Op):
    """Write the present elements of `value` (a scalar or a tile of the access' shape, already of the tensor's dtype)."""

    access: Access
    value: Value


@dataclass(frozen=True)
class Atomic(Op):
    """`atomic_add/max/min(t[…], e)` element by element; no result."""

    op: Literal["add", "max", "min"]
    access: Access
    value: Value


@dataclass(frozen=True)
class Carried:
    """A loop-carried name: `initial` before the loop, `entry` at the start of each trip, `next` at its end, `result` after the loop."""

    initial: Value
    entry: Value
    next: Value
    result: Value


@dataclass(frozen=True)
class For(Op):
    """Trips number 0 … trips-1 in order; `index` is the trip number's variable (negative `trips` means none).
    `outs` are the results of `carried`. `name` is the loop variable in the source."""

    name: str
    index: Var
    trips: Sym
    carried: tuple[Carried, ...]
    body: Block


@dataclass(frozen=True)
class Merge:
    """A name bound in both branches of an If: `result` is `then` or `otherwise`."""

    then: Value
    otherwise: Value
    result: Value


@dataclass(frozen=True)
class If(Op):
    """A branch on a run-time scalar; `outs` are the results of `merges`. `rare`, a schedule's: the condition is one of rows, and rows are
    free to take `then` where it does not hold, so that a warp does where it holds for one of its rows."""

    condition: Value
    then: Block
    otherwise: Block
    merges: tuple[Merge, ...] = ()
    rare: bool = False


@dataclass(frozen=True)
class Survivors(Op):
    """How many of the trips 0 … trips-1 `survives` holds for: a condition of scalars, of the trip's number."""

    trips: Sym
    survives: Region


@dataclass(frozen=True)
class Survivor(Op):
    """The trip that is number `number` of those that survive, `of` the result of a Survivors. Beyond them any of its trips, 0 without one."""

    number: Sym
    of: Value


@dataclass(frozen=True)
class Assert(Op):
    """Fault in debug builds unless the scalar holds."""

    condition: Value
    message: str


@dataclass(frozen=True)
class Print(Op):
    """Text and scalars, once per instance."""

    parts: tuple[str | Value, ...]


@dataclass(frozen=True)
class Block:
    """Ops in order."""

    ops: tuple[Op, ...] = ()


# ---------------------------------------------------------------------------------------------- programs


@dataclass(frozen=True)
class HostNumber:
    """A literal in a contract."""

    value: int | float | bool


@dataclass(frozen=True)
class HostScalar:
    """A scalar parameter in a contract."""

    name: str


@dataclass(frozen=True)
class HostOp:
    """An operation on the host: arithmetic, comparison, and/or/not. Evaluated in Python and rendered to C."""

    op: Literal[
        "+", "-", "*", "/", "//", "%", "min", "max", "==", "!=", "<", "<=", ">", ">=", "and", "or", "not",
    ]  # fmt: skip
    args: tuple[HostExpr, ...]


HostExpr: TypeAlias = "Sym | HostNumber | HostScalar | HostOp"


@dataclass(frozen=True)
class Contract:
    """A condition that the launcher checks before anything runs; `text` is the source of it, for the message."""

    condition: HostExpr
    text: str
    span: Span = field(default=NOWHERE, repr=False, compare=False)


@dataclass(frozen=True)
class GridAxis:
    """One loop of a nest: `index` numbers its instances 0 … trips-1. `name` and `step` as in the source (step None: a scalar)."""

    name: str
    index: Var
    trips: Sym
    step: Sym | None = None


@dataclass(frozen=True)
class Nest:
    """One `parallel` nest: unordered instances. The first grid axis is outermost."""

    grid: tuple[GridAxis, ...]
    body: Block
    span: Span = field(default=NOWHERE, repr=False, compare=False)


@dataclass(frozen=True)
class Program:
    """One kernel under one candidate.

    `dims` are the run-time sizes in order of first appearance; `upper` and `lower` their bounds known from `require`, `divisors`
    what is known to divide them; `tiles` the numbers of the tile-size parameters; `statics` all bracket parameters
    as given (for messages, names and the check clause); `math` is "fast" or "strict".
    `require` conditions are in `contracts`, `facts` are the Syms known to be positive (`x` stands for x > 0) from them.
    """

    name: str
    tensors: tuple[Tensor, ...]
    scalars: tuple[ScalarInput, ...]
    dims: tuple[Var, ...]
    nests: tuple[Nest, ...]
    views: tuple[View, ...] = ()
    tiles: Mapping[str, int] = field(default_factory=dict)
    statics: Mapping[str, int | float | bool | DType] = field(default_factory=dict)
    contracts: tuple[Contract, ...] = ()
    upper: Mapping[Var, int] = field(default_factory=dict)
    lower: Mapping[Var, int] = field(default_factory=dict)
    divisors: Mapping[Var, int] = field(default_factory=dict)
    facts: tuple[HostExpr, ...] = ()
    math: Literal["fast", "strict"] = "fast"
    automatic: frozenset[str] = frozenset()
    """tile sizes that nobody asked for"""
    span: Span = field(default=NOWHERE, repr=False, compare=False)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of tensors, scalars and dims, in that order."""
        tensors, scalars = (t.name for t in self.tensors), (s.name for s in self.scalars)
        return (*tensors, *scalars, *(d.name for d in self.dims))

    def tensor(self, name: str) -> Tensor:
        """The tensor of that name; KeyError if there is none."""
        for tensor in self.tensors:
            if tensor.name == name:
                return tensor
        raise KeyError(name)

    def tile_number(self, extent: Sym) -> int:
        """The number of an extent that holds only tile-size parameters."""
        return extent.evaluate(lambda v: self.tiles[v.name])
