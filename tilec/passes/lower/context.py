"""What lowering a nest knows and collects."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import field

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BF16, BOOL, F8E4M3, F8E5M2, F16, F32, I32, DType
from tilec.ir.facts import Facts
from tilec.ir.kernel_walking import mentions
from tilec.ir.kernel_wmma import Sums
from tilec.ir.layouts import Digit
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.passes.assign_layouts import Variant
from tilec.passes.axes import Axes
from tilec.passes.lower.choices import Chosen
from tilec.passes.lower.merging import Merge
from tilec.passes.lower.names import Names
from tilec.passes.placement import Placement
from tilec.passes.uses import Definitions
from tilec.targets.table import Target

NARROW_FLOATS = frozenset({BF16, F16, F8E4M3, F8E5M2})
"""Types that are computed in f32."""


def compute_type(dtype: DType) -> DType:
    """The type in which arithmetic of a dtype is done."""
    return F32 if dtype in NARROW_FLOATS else dtype


THREAD = Sym.of(Var("thread", "local"))


@dataclass(frozen=True)
class Mark:
    """A place in the emission: the ops before it, the names taken, the bounds in scope."""

    length: int
    words: set[str]
    limits: list[dict[Sym, k.Expr]]


@dataclass
class Context:
    """State of one lowering. `out` is the list of ops being filled; `scalars` and `fragments` say where a value lives."""

    program: t.Program
    nest: t.Nest
    axes: Axes
    placement: Placement
    variant: Variant
    definitions: Definitions
    facts: Facts
    names: Names
    half: frozenset[int]
    """values whose functions may use the 16-bit accuracy"""
    target: Target
    out: list[k.Op] = field(default_factory=list)
    scalars: dict[int, k.Expr] = field(default_factory=dict)
    fragments: dict[int, k.Fragment] = field(default_factory=dict)
    spreads: dict[int, k.TileLoop] = field(default_factory=dict)
    """what shares out loaded lines to the lanes, by id of the tile, until the tile is read"""
    var_names: dict[Var, str] = field(default_factory=dict)
    value_names: dict[int, str] = field(default_factory=dict)
    """C names (or numbers) of integer scalars by the id of the value"""
    shared: list[k.SharedBuffer] = field(default_factory=list)
    tiles: list[k.TileBuffer] = field(default_factory=list)
    staged: dict[int, k.TileAddress] = field(default_factory=dict)
    """operand tiles by the key of what they hold"""
    crossed: dict[int, tuple[str, int]] = field(default_factory=dict)
    """tiles that shared memory keeps by columns, by the id of the value: the buffer, and elements from a column to the next"""
    private: dict[str, tuple[str, k.LoopAxis]] = field(default_factory=dict)
    """tensors that the CTA combines into in shared memory: the buffer, and its elements along all threads"""
    extra_axes: list[k.LoopAxis] = field(default_factory=list)
    ring_values: set[int] = field(default_factory=set)
    """operands whose tiles a ring brings"""
    staged_once: set[int] = field(default_factory=set)
    """operands that were staged in front of a loop"""
    staged_here: dict[int, tuple[list[k.Op], int, int]] = field(default_factory=dict)
    """the body in which an operand was staged last, with its consumed axis and extent: later products of that body read the same tile"""
    sums: dict[int, Sums] = field(default_factory=dict)
    """opaque sums that last for a loop, by the id of the product's result"""
    sum_tiles: dict[DType, str] = field(default_factory=dict)
    """tiles through which opaque sums pass to registers"""
    lower_scalar: Callable[[t.Op], None] = lambda op: None
    """lowers a scalar op once more"""
    hold: Callable[[t.Op], None] = lambda op: None
    """evaluates a tile into registers"""
    holds: frozenset[int] = frozenset()
    """comparisons that are true for the whole tile in what is being emitted"""
    whole: frozenset[int] = frozenset()
    """ids of loaded tiles whose spans end behind them, in the trips that are being lowered"""
    prepared: dict[k.Expr | frozenset[k.Fragment], list[k.Fragment]] | None = None
    """what walks of parts of one tile have in common (`packed.Walk.known`)"""
    renames: dict[Var, Sym] = field(default_factory=dict)
    """other names of loop numbers and scalars, while what a later trip needs is emitted"""
    exists: tuple[k.Expr, ...] = ()
    """whether there is the trip whose operands are being read, where that is not known"""
    limits: list[dict[Sym, k.Expr]] = field(default_factory=lambda: [{}])
    pointers: dict[str, bool] = field(default_factory=dict)
    """tensors used, and whether they are written"""
    used_syms: set[Var] = field(default_factory=set)
    rooms: dict[str, str] = field(default_factory=dict)
    """variables that count the elements from a pointer to the end of its tensor"""
    votes: dict[int, t.Elementwise] = field(default_factory=dict)
    """rare subtractions by the reduction whose partial results say that one may be needed"""
    rare: dict[int, k.Expr] = field(default_factory=dict)
    """whether a warp subtracts, by the rare subtraction"""
    choices: dict[int, Chosen] = field(default_factory=dict)
    """the rows that depend on the condition of a rare subtraction, by its result"""
    usual: dict[int, t.Value] = field(default_factory=dict)
    """what values stand for in front of a rare branch, while that is emitted"""
    early: set[int] = field(default_factory=set)
    """rows that were evaluated around a rare branch, in front of their place"""
    joint: dict[int, k.Fragment] = field(default_factory=dict)
    """registers of a product's operand that a sum's walk packs too, by the sum's result"""
    joint_tiles: set[int] = field(default_factory=set)
    """tiles that exist in such walks alone"""
    joint_casts: set[int] = field(default_factory=set)
    """what such walks pack"""
    merges: dict[int, Merge] = field(default_factory=dict)
    """reductions that share an exchange with another one, by the id of the result"""
    own_parts: dict[int, k.Fragment] = field(default_factory=dict)
    """each warp's own part of such a reduction, until the exchange"""
    filters: dict[int, tuple[t.Survivors, str]] = field(default_factory=dict)
    """what says which trips survive, and the walk of them, by the id of their number"""
    one_thread: bool = False
    """what is being emitted is done by one thread, not by whole warps"""
    brought: set[int] = field(default_factory=set)
    """tiles of numbers in registers that the producer brings in each trip of a loop, by the id of the value"""
    walks: dict[str, int] = field(default_factory=dict)
    """how many walks have read each held fragment of narrow data"""

    def lasting_names(self) -> set[str]:
        """Names that outlive the scope in which they were taken: shared memory, axes of copies."""
        names = {b.name for b in self.shared} | {b.name for b in self.tiles}
        for axis in self.extra_axes:
            names |= {
                axis.name,
                axis.coordinate,
                axis.element,
                axis.lane,
                axis.step,
                f"{axis.name}_sub",
            }
        return names

    def mark(self) -> Mark:
        """Where the emission stands, for `undo`."""
        return Mark(len(self.out), set(self.names.used), [dict(scope) for scope in self.limits])

    def undo(self, mark: Mark) -> None:
        """Forget what was emitted since, the names and the bounds that it declared."""
        del self.out[mark.length :]
        self.names.used = set(mark.words)
        self.limits = [dict(scope) for scope in mark.limits]

    # ---- axes

    def loop_axis(self, value: t.Value, axis: int) -> k.LoopAxis | None:
        """The laid-out axis of a value's axis; None for a unit axis."""
        found = self.axes.of(value, axis)
        return None if found is None else self.variant.level.axes[found.number]

    def loop_axes(self, value: t.Value) -> tuple[k.LoopAxis | None, ...]:
        """`loop_axis` for all axes."""
        return tuple(self.loop_axis(value, n) for n in range(value.type.rank))

    def ordered(self, axes: Iterable[k.LoopAxis | None]) -> tuple[k.LoopAxis, ...]:
        """The distinct axes as loops nest: the one that is vectorised or fastest innermost."""
        present = {a.name: a for a in axes if a is not None}

        def rank(axis: k.LoopAxis) -> tuple[bool, int, str]:
            divisors = [d.divisor for d in axis.layout.thread_digits]
            return (axis.vectorised, -min(divisors, default=0), axis.name)

        return tuple(sorted(present.values(), key=rank))

    def thread_digits(self) -> list[tuple[k.LoopAxis, Digit]]:
        """The digits that tell the threads of an instance apart, each with an axis that has it."""
        found: dict[tuple[int, int], tuple[k.LoopAxis, Digit]] = {}
        for axis in self.variant.level.axes.values():
            for digit in axis.layout.thread_digits:
                if digit.radix > 1:
                    found.setdefault((digit.divisor, digit.radix), (axis, digit))
        return [found[key] for key in sorted(found)]

    def one_thread_of(self, axes: Iterable[k.LoopAxis]) -> tuple[k.Expr, ...]:
        """Guards that leave one of the threads that hold the same element of a tile along `axes`."""
        covered = {(d.divisor, d.radix) for a in axes for d in a.layout.thread_digits}
        guards: list[k.Expr] = []
        for axis, digit in self.thread_digits():
            if (digit.divisor, digit.radix) in covered:
                continue
            number = Sym.of(Var(axis.lane, "local"))
            if not axis.layout.is_blocked:
                number = THREAD // digit.divisor % digit.radix
            guards.append(k.Apply("eq", (k.Index(number, I32), k.Literal_(0, I32)), BOOL))
        return tuple(guards)

    # ---- expressions of sizes

    def index(self, sym: Sym, rep: DType = I32, wide: bool = False) -> k.Expr:
        """A symbolic integer as an expression; notes the variables it needs."""
        sym = sym.substitute(self._renamed)
        sym = self.facts.numeric(sym) if not self._keeps_tiles(sym) else sym
        self.used_syms |= sym.variables
        if sym.constant is not None and not wide:
            return k.Literal_(sym.constant, rep)
        return k.Index(sym, rep, wide)

    def _renamed(self, var: Var) -> Sym | None:
        """A variable under its present name: integer scalars are C variables or numbers by now."""
        if var in self.renames:
            return self.renames[var]
        if var.kind == "value":
            name = self.value_names[var.key]
            negative = name.startswith("-")
            return (
                Sym.of(int(name))
                if name.lstrip("-").isdigit() or negative
                else Sym.of(Var(name, "local"))
            )
        return None

    def _keeps_tiles(self, sym: Sym) -> bool:
        """Tile-size names stay readable in the text unless the whole is a number."""
        return self.facts.numeric(sym).constant is None

    def limit(self, sym: Sym, hint: str) -> k.Expr:
        """A bound as a variable or a number; computed once for each scope."""
        numeric = self.facts.numeric(sym)
        if numeric.constant is not None:
            return k.Literal_(numeric.constant, I32)
        if len(numeric.terms) == 1 and numeric.is_atomic and not _applies(numeric):
            return self.index(sym)
        key = sym.substitute(self._renamed)
        for scope in self.limits:
            if key in scope:
                return scope[key]
        name = self.names.unique(f"{hint}_end")
        self.out.append(k.Let(name, I32, self.index(sym)))
        local = k.Local(name, I32)
        self.limits[-1][key] = local
        return local

    def drop_limits(self, bounds: Iterable[k.Expr], first: int) -> None:
        """Forget those of `bounds`, declared at position `first` or later, that nothing emitted since reads."""
        for bound in bounds:
            for position in range(first, len(self.out)):
                op = self.out[position]
                if isinstance(op, k.Let) and bound == k.Local(op.name, op.rep):
                    if not any(mentions(other, op.name) for other in self.out[position + 1 :]):
                        del self.out[position]
                        self.names.used.discard(op.name)
                        scope = self.limits[-1]
                        self.limits[-1] = {key: e for key, e in scope.items() if e != bound}
                    break

    # ---- values

    def scalar(self, value: t.Value) -> k.Expr:
        """Where a rank-0 value is."""
        return self.scalars[value.id]

    def bind_scalar(self, value: t.Value, expr: k.Expr, hint: str = "") -> None:
        """Give a scalar a variable, or keep it as it is where it is a constant or a variable already."""
        if not isinstance(expr, k.Literal_ | k.Local):
            name = self.names.unique(value.name or hint or "s")
            self.out.append(k.Let(name, expr.rep, expr, span=value.span))
            expr = k.Local(name, expr.rep)
        self.scalars[value.id] = expr
        if isinstance(expr, k.Local):
            self.value_names[value.id] = expr.name
        elif isinstance(expr, k.Literal_) and expr.rep.is_integer:
            self.value_names[value.id] = str(expr.value)

    def definition(self, value: t.Value) -> t.Op:
        """The op that defines a value."""
        return self.definitions.defining[value.id]

    @property
    def live(self) -> tuple[k.Expr, ...]:
        """The guards of all that is read: of a group of threads that may have no instance, of a trip that there may not be."""
        own = (k.Local("live", BOOL),) if self.variant.batch > 1 else ()
        return (*own, *self.exists)


def _applies(sym: Sym) -> bool:
    return not isinstance(sym.terms[0][0][0], Var)


def converted(expr: k.Expr, rep: DType) -> k.Expr:
    """The expression in another representation."""
    if expr.rep == rep:
        return expr
    if (
        isinstance(expr, k.Literal_)
        and rep.is_float
        and expr.rep.is_float
        and rep not in NARROW_FLOATS
    ):
        return k.Literal_(float(expr.value), rep)
    if (
        isinstance(expr, k.Literal_)
        and rep.is_float
        and expr.rep.is_integer
        and rep not in NARROW_FLOATS
    ):
        return k.Literal_(float(expr.value), rep)
    return k.Apply("convert", (expr,), rep)


def computable(expr: k.Expr) -> k.Expr:
    """The expression in the type that arithmetic uses."""
    return converted(expr, compute_type(expr.rep))
