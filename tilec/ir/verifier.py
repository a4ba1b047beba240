"""What every Tile IR program satisfies; the specification of the ops in code.

Runs after the analysis and after each pass in tests. A violation is a fault of tilec, never of the user.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager

from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import BOOL, F32, F64, I32, DType
from tilec.ir.printer import format_type, print_op
from tilec.ir.symbolic import Sym, Var
from tilec.ir.walking import all_ops
from tilec.source.text import Span

_COMPARISONS = frozenset({"eq", "ne", "lt", "le", "gt", "ge"})
_LOGICAL = frozenset({"and", "or", "xor", "not"})
_SHIFTS = frozenset({"shl", "shr"})
_FUNCTIONS = (
    *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid"),
    *("floor", "ceil", "round"),
)
_FLOAT_ONLY = frozenset({*_FUNCTIONS, "div"})
_ARITY = {
    **dict.fromkeys((*_FUNCTIONS, "neg", "abs", "not"), 1),
    **dict.fromkeys(("fma", "where", "sub_if"), 3),
}


class InternalFault(Exception):
    """A program that tilec built breaks a rule of the IR. `op` is its first line, "" for a declaration; `span` its source."""

    def __init__(self, rule: str, op: str = "", span: Span | None = None) -> None:
        self.rule = rule
        self.op = op
        self.span = span
        super().__init__(f"{rule}: {op}" if op else rule)


def verify(program: ir.Program) -> None:
    """Return if `program` keeps every rule, raise InternalFault naming the first op that does not."""
    _Verifier(program).run()


class _Verifier:
    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.tensors = {t.name: t for t in program.tensors}
        self.views = {v.name: v for v in program.views}
        self.scalars = {s.name: s for s in program.scalars}
        self.dims = frozenset(program.dims)
        self.defined: set[int] = set()
        """every id met so far"""
        self.visible: dict[int, ir.Value] = {}
        """values in scope"""
        self.trips: set[Var] = set()
        self.filters: set[int] = set()
        """ids of numbers of trips that survive"""
        self.op: ir.Op | None = None

    # ---- failure and scopes

    def fault(self, rule: str) -> InternalFault:
        if self.op is None:
            return InternalFault(rule)
        return InternalFault(rule, print_op(self.op).strip(), self.op.span)

    def need(self, condition: bool, rule: str) -> None:
        if not condition:
            raise self.fault(rule)

    @contextmanager
    def scope(self, *trips: Var) -> Iterator[None]:
        """Values and trip numbers that end with a block."""
        saved = dict(self.visible)
        for var in trips:
            self.need(var.kind == "trip", f"index {var} is not a trip number")
            self.need(var not in self.trips, f"index {var} numbers two loops around an op")
        self.trips |= set(trips)
        yield
        self.visible = saved
        self.trips -= set(trips)

    def define(self, value: ir.Value) -> None:
        self.need(value.id not in self.defined, f"{value} is defined twice")
        self.type(value.type)
        self.defined.add(value.id)
        self.visible[value.id] = value

    def use(self, value: ir.Value) -> ir.TileType:
        known = self.visible.get(value.id)
        self.need(known is not None, f"{value} is used where it is not defined")
        self.need(known is value, f"{value} is not the object that defines it")
        return value.type

    def scalar(self, value: ir.Value, dtype: DType | None = None) -> DType:
        type_ = self.use(value)
        self.need(not type_.axes, f"{value} is not a scalar")
        self.need(dtype in (None, type_.dtype), f"{value} is not {dtype}")
        return type_.dtype

    def sym(self, sym: Sym | None) -> None:
        for var in sorted(sym.variables if sym is not None else ()):
            match var.kind:
                case "dim":
                    known = var in self.dims
                case "tile":
                    known = var.name in self.program.tiles
                case "trip":
                    known = var in self.trips
                case "value":
                    value = self.visible.get(var.key)
                    known = value is not None
                    if value is not None:
                        integer = value.type.dtype.is_integer and not value.type.axes
                        self.need(integer, f"{var} stands for a value that is no integer scalar")
                case "scalar":
                    scalar = self.scalars.get(var.name)
                    known = scalar is not None and scalar.dtype.is_integer
            self.need(known, f"variable {var} of {sym} is not in scope")

    def type(self, type_: ir.TileType) -> None:
        for axis in type_.axes:
            self.sym(axis.extent)
            for constraint in axis.presence:
                match constraint:
                    case ir.Below(limit) | ir.AtLeast(limit):
                        self.sym(limit)
                    case ir.InRange(index, size, trips):
                        self.sym(size)
                        if trips is not None:
                            self.sym(trips)
                        known = self.visible.get(index)
                        self.need(
                            known is not None, f"presence speaks of %{index}, which is not in scope"
                        )
            if axis.extent.constant is not None:
                self.need(axis.extent.constant >= 0, "an extent is negative")
                agrees = axis.capacity == axis.extent.constant
                self.need(agrees, f"capacity {axis.capacity} of extent {axis.extent}")

    # ---- declarations

    def run(self) -> None:
        """The whole program."""
        program = self.program
        names = [t.name for t in program.tensors] + [s.name for s in program.scalars]
        names += [v.name for v in program.views]
        self.need(len(set(names)) == len(names), "two parameters have one name")
        for tensor in program.tensors:
            for dim in tensor.dims + (tensor.strides or ()):
                self.sym(dim)
            if tensor.strides is not None:
                fits = len(tensor.strides) == len(tensor.dims)
                self.need(fits, f"strides of {tensor.name} do not match its dimensions")
        for view in program.views:
            self.need(view.tensor in self.tensors, f"view of {view.tensor}, which is no tensor")
            for dim in view.dims:
                self.sym(dim)
        for var in program.dims:
            self.need(var.kind == "dim", f"{var} is listed as a dimension")
        for nest in program.nests:
            for axis in nest.grid:
                self.sym(axis.trips)
                self.sym(axis.step)
            with self.scope(*(g.index for g in nest.grid)):
                self.block(nest.body)

    def block(self, block: ir.Block) -> None:
        for op in block.ops:
            outer, self.op = self.op, op
            self.check(op)
            self.op = outer

    # ---- accesses

    def access(self, access: ir.Access, writes: bool) -> tuple[DType, tuple[Sym, ...]]:
        """Element type and extents of what an access selects."""
        self.need(access.tensor in self.tensors, f"{access.tensor} is no tensor")
        tensor = self.tensors[access.tensor]
        dims = tensor.dims
        if access.view is not None:
            view = self.views.get(access.view)
            self.need(
                view is not None and view.tensor == access.tensor, f"{access.view} is no view of it"
            )
            dims = self.views[access.view].dims
        self.need(
            len(access.terms) == len(dims), f"{len(access.terms)} terms for {len(dims)} dimensions"
        )
        if writes:
            self.need(tensor.role != "input", f"{tensor.name} is an input and is written")
        tiles: list[tuple[Sym, ...]] = []
        for term, dim in zip(access.terms, dims, strict=True):
            match term:
                case ir.AtScalar(index):
                    self.sym(index)
                    tiles.append(())
                case ir.AtSpan(start, extent, lo, hi):
                    for part in (start, extent, lo, hi):
                        self.sym(part)
                    tiles.append((extent,))
                case ir.AtAll():
                    self.need(not access.pointwise, "`:` in a pointwise access")
                    tiles.append((dim,))
                case ir.AtTile(index):
                    type_ = self.use(index)
                    self.need(type_.dtype.is_integer, f"index {index} is not an integer")
                    if not access.pointwise:
                        self.need(type_.rank == 1, f"index tile {index} has not one axis")
                    tiles.append(tuple(a.extent for a in type_.axes))
        if not access.pointwise:
            return tensor.dtype, tuple(e for tile in tiles for e in tile)
        return tensor.dtype, self.broadcast(tiles)

    def broadcast(self, tiles: Iterable[tuple[Sym, ...]]) -> tuple[Sym, ...]:
        """Common extents of tiles of one rank (and scalars)."""
        shape: tuple[Sym, ...] = ()
        for tile in tiles:
            if not tile:
                continue
            if not shape:
                shape = tile
                continue
            self.need(len(tile) == len(shape), "operands have different ranks")
            merged = []
            for one, other in zip(shape, tile, strict=True):
                agree = one == other or one.constant == 1 or other.constant == 1
                self.need(agree, f"extents {one} and {other} do not agree")
                merged.append(other if one.constant == 1 else one)
            shape = tuple(merged)
        return shape

    # ---- ops

    def check(self, op: ir.Op) -> None:
        """One op: its operands, its results, its blocks."""
        match op:
            case ir.For():
                self.loop(op)
                return
            case ir.If():
                self.branch(op)
                return
            case ir.Store() | ir.Atomic():
                dtype, shape = self.access(op.access, writes=True)
                type_ = self.use(op.value)
                self.need(type_.dtype == dtype, f"{op.value} is not of the tensor's dtype {dtype}")
                if type_.axes:
                    self.broadcast([shape, _extents(type_)])
                    self.need(
                        len(shape) == type_.rank, f"{op.value} has not the shape of the access"
                    )
                self.results(op, 0)
            case ir.Assert():
                self.scalar(op.condition, BOOL)
                self.results(op, 0)
            case ir.Print():
                for part in op.parts:
                    if not isinstance(part, str):
                        self.scalar(part)
                self.results(op, 0)
            case ir.TopK():
                type_ = self.use(op.arg)
                self.need(0 <= op.axis < type_.rank, "axis out of range")
                kept = _extents(type_)
                kept = (*kept[: op.axis], Sym.of(op.k), *kept[op.axis + 1 :])
                self.results(op, 2)
                self.shaped(op.outs[0], type_.dtype, kept)
                self.shaped(op.outs[1], I32, kept)
            case ir.ReduceWith():
                self.reduce_with(op)
            case ir.Survivors():
                self.survivors(op)
            case ir.Survivor():
                self.sym(op.number)
                self.scalar(op.of, I32)
                self.need(op.of.id in self.filters, f"{op.of} is no number of trips that survive")
                self.results(op, 1)
                self.shaped(op.out, I32, ())
            case _:
                self.results(op, 1)
                self.shaped(op.out, *self.result(op))
        for value in op.outs:
            self.define(value)

    def results(self, op: ir.Op, count: int) -> None:
        self.need(len(op.outs) == count, f"{len(op.outs)} results instead of {count}")

    def shaped(self, value: ir.Value, dtype: DType, shape: tuple[Sym, ...]) -> None:
        """`value` has this dtype and these extents."""
        fits = value.type.dtype == dtype and _extents(value.type) == shape
        wanted = format_type(ir.TileType(dtype, tuple(ir.Axis(e, None) for e in shape)))
        self.need(fits, f"result is {format_type(value.type)}, not {wanted}")

    def result(self, op: ir.Op) -> tuple[DType, tuple[Sym, ...]]:
        """Element type and extents that the only result of `op` must have."""
        out = op.out.type
        match op:
            case ir.Constant():
                exact = isinstance(op.value, bool) == (out.dtype == BOOL)
                self.need(exact, f"constant {op.value!r} of dtype {out.dtype}")
                if out.dtype.is_integer:
                    self.need(
                        isinstance(op.value, int), f"constant {op.value!r} of dtype {out.dtype}"
                    )
                return out.dtype, ()
            case ir.FromSym():
                self.sym(op.sym)
                self.need(out.dtype != BOOL, "a symbolic integer as bool")
                return out.dtype, ()
            case ir.Scalar():
                scalar = self.scalars.get(op.name)
                self.need(scalar is not None, f"{op.name} is no scalar parameter")
                return self.scalars[op.name].dtype, ()
            case ir.Iota():
                for part in (op.start, op.lo, op.hi):
                    self.sym(part)
                self.need(out.rank == 1, "an iota has one axis")
                return I32, _extents(out)
            case ir.Full():
                dtype = self.scalar(op.value)
                if op.bounds:
                    self.need(len(op.bounds) == out.rank, "bounds do not match the axes")
                    for bound, axis in zip(op.bounds, out.axes, strict=True):
                        if bound is not None:
                            for part in (bound.start, bound.extent, bound.lo, bound.hi):
                                self.sym(part)
                            self.need(bound.extent == axis.extent, "a bound has another extent")
                return dtype, _extents(out)
            case ir.Load():
                return self.access(op.access, writes=False)
            case ir.Elementwise():
                return self.elementwise(op)
            case ir.Cast():
                return out.dtype, _extents(self.use(op.arg))
            case ir.Bitcast():
                type_ = self.use(op.arg)
                self.need(type_.dtype.bits == out.dtype.bits, "bitcast between different widths")
                return out.dtype, _extents(type_)
            case ir.Fill():
                type_ = self.use(op.arg)
                self.scalar(op.value, type_.dtype)
                axes = range(len(out.axes)) if op.axes is None else op.axes
                self.need(
                    not any(out.axes[n].presence for n in axes),
                    "a filled tile is not fully present",
                )
                return type_.dtype, _extents(type_)
            case ir.Rearrange():
                return self.rearrange(op)
            case ir.Reshape():
                type_ = self.use(op.arg)
                counts = [_count(_extents(t)) for t in (type_, out)]
                self.need(
                    counts[0] == counts[1], f"reshape of {counts[0]} elements into {counts[1]}"
                )
                return type_.dtype, _extents(out)
            case ir.Slice():
                type_ = self.use(op.arg)
                self.need(len(op.starts) == type_.rank == out.rank, "starts do not match the axes")
                for start, axis, kept in zip(op.starts, type_.axes, out.axes, strict=True):
                    whole = start == 0 and axis.extent == kept.extent
                    ends = (axis.extent.constant, kept.extent.constant)
                    inside = None not in ends and 0 <= start <= (ends[0] or 0) - (ends[1] or 0)
                    if not axis.is_static or axis.extent.constant is None:
                        inside = kept.extent.constant is not None and start >= 0
                    self.need(whole or inside, f"slice from {start} leaves extent {axis.extent}")
                return type_.dtype, _extents(out)
            case ir.Reduce():
                return self.reduce(op)
            case ir.Combine():
                type_ = self.use(op.arg)
                self.need(type_.rank == 1, "lanes are combined in rows alone")
                return type_.dtype, _extents(type_)
            case ir.Scan():
                type_ = self.use(op.arg)
                self.need(0 <= op.axis < type_.rank, "axis out of range")
                return type_.dtype, _extents(type_)
            case ir.Dot():
                return self.dot(op)
            case _:
                raise self.fault(f"no rule for {type(op).__name__}")

    def elementwise(self, op: ir.Elementwise) -> tuple[DType, tuple[Sym, ...]]:
        types = [self.use(a) for a in op.args]
        arity = _ARITY.get(op.op, 2)
        self.need(len(types) == arity, f"{op.op} takes {arity} arguments")
        shape = self.broadcast([_extents(t) for t in types])
        dtypes = [t.dtype for t in types]
        if op.op == "where":
            self.need(dtypes[0] == BOOL, "the condition of where is not bool")
            dtypes = dtypes[1:]
        elif op.op == "sub_if":
            self.need(dtypes[2] == BOOL, "the condition of sub_if is not bool")
            dtypes = dtypes[:2]
        self.need(all(d == dtypes[0] for d in dtypes), f"arguments of {op.op} differ in dtype")
        dtype = dtypes[0]
        if op.op in _FLOAT_ONLY:
            self.need(dtype.is_float, f"{op.op} of {dtype}")
        if op.op in _LOGICAL:
            self.need(not dtype.is_float, f"{op.op} of {dtype}")
        if op.op in _SHIFTS:
            self.need(dtype.is_integer, f"{op.op} of {dtype}")
        return (BOOL if op.op in _COMPARISONS else dtype), shape

    def rearrange(self, op: ir.Rearrange) -> tuple[DType, tuple[Sym, ...]]:
        type_ = self.use(op.arg)
        named = [a for a in op.axes if a is not None]
        self.need(len(set(named)) == len(named), "an axis appears twice")
        self.need(all(0 <= a < type_.rank for a in named), "axis out of range")
        for number, axis in enumerate(type_.axes):
            self.need(
                number in named or axis.is_one, f"axis {number} is dropped and has not extent 1"
            )
        return type_.dtype, tuple(Sym.of(1) if a is None else type_.axes[a].extent for a in op.axes)

    def reduce(self, op: ir.Reduce) -> tuple[DType, tuple[Sym, ...]]:
        type_ = self.use(op.arg)
        self.need(len(set(op.axes)) == len(op.axes), "an axis appears twice")
        self.need(all(0 <= a < type_.rank for a in op.axes), "axis out of range")
        dtype = type_.dtype
        if op.op in ("argmax", "argmin"):
            self.need(len(op.axes) == 1, f"{op.op} over one axis")
            dtype = I32
        if op.op in ("any", "all"):
            self.need(dtype == BOOL, f"{op.op} of {dtype}")
        return dtype, tuple(a.extent for n, a in enumerate(type_.axes) if n not in op.axes)

    def reduce_with(self, op: ir.ReduceWith) -> None:
        types = [self.use(a) for a in op.args]
        self.need(bool(types), "reduce without arguments")
        shape = _extents(types[0])
        self.need(all(_extents(t) == shape for t in types), "arguments differ in shape")
        self.need(0 <= op.axis < len(shape), "axis out of range")
        region = op.combine
        wanted = [t.dtype for t in types]
        inputs = [v.type.dtype for v in region.inputs if not v.type.axes]
        self.need(inputs == wanted + wanted, "inputs of combine do not match the arguments")
        with self.scope():
            for value in region.inputs:
                self.define(value)
            self.block(region.body)
            outputs = [self.scalar(v) for v in region.outputs]
        self.need(outputs == wanted, "outputs of combine do not match the arguments")
        self.results(op, len(types))
        kept = shape[: op.axis] + shape[op.axis + 1 :]
        for out, dtype in zip(op.outs, wanted, strict=True):
            self.shaped(out, dtype, kept)

    def survivors(self, op: ir.Survivors) -> None:
        self.sym(op.trips)
        region = op.survives
        with self.scope():
            for value in region.inputs:
                self.define(value)
                self.scalar(value, I32)
            self.block(region.body)
            for inner in all_ops(region.body):
                effects = isinstance(inner, ir.Store | ir.Atomic | ir.Print | ir.Assert)
                self.need(not effects, "a question about a trip has an effect")
            for value in region.outputs:
                self.scalar(value, BOOL)
        counts = (len(region.inputs), len(region.outputs))
        self.need(counts == (1, 1), "a question about a trip has one number and one answer")
        self.results(op, 1)
        self.shaped(op.out, I32, ())
        self.filters.add(op.out.id)

    def dot(self, op: ir.Dot) -> tuple[DType, tuple[Sym, ...]]:
        a, b = self.use(op.a), self.use(op.b)
        self.need(a.rank >= 2 and b.rank >= 2, "operands of a product have two axes or more")
        self.need(
            _extents(a)[-1] == _extents(b)[-2],
            f"{_extents(a)[-1]} and {_extents(b)[-2]} do not agree",
        )
        float_ = a.dtype.is_float
        self.need(float_ == b.dtype.is_float, "a product of a float and an integer")
        dtype = F64 if F64 in (a.dtype, b.dtype) else F32 if float_ else I32
        lead = self.broadcast([_extents(a)[:-2], _extents(b)[:-2]])
        shape = (*lead, _extents(a)[-2], _extents(b)[-1])
        if op.accumulate is not None:
            type_ = self.use(op.accumulate)
            self.need(type_.dtype == dtype, f"accumulator is not {dtype}")
            if type_.axes:
                self.need(
                    self.broadcast([shape, _extents(type_)]) == shape,
                    "accumulator has another shape",
                )
        return dtype, shape

    # ---- structure

    def loop(self, op: ir.For) -> None:
        self.sym(op.trips)
        for carried in op.carried:
            self.use(carried.initial)
        with self.scope(op.index):
            for carried in op.carried:
                self.define(carried.entry)
                self.alike(carried.initial, carried.entry)
            self.block(op.body)
            for carried in op.carried:
                self.use(carried.next)
                self.alike(carried.entry, carried.next)
        results = [c.result for c in op.carried]
        self.need(_same(op.outs, results), "results of the loop are not those of its carried names")
        for carried in op.carried:
            self.define(carried.result)
            self.alike(carried.entry, carried.result)

    def branch(self, op: ir.If) -> None:
        if op.rare:
            self.need(self.use(op.condition).dtype == BOOL, "the condition of a branch is not bool")
        else:
            self.scalar(op.condition, BOOL)
        with self.scope():
            self.block(op.then)
            for merge in op.merges:
                self.use(merge.then)
        with self.scope():
            self.block(op.otherwise)
            for merge in op.merges:
                self.use(merge.otherwise)
        results = [m.result for m in op.merges]
        self.need(_same(op.outs, results), "results of the branch are not those of its merges")
        for merge in op.merges:
            self.define(merge.result)
            self.alike(merge.then, merge.result)
            self.alike(merge.otherwise, merge.result)

    def alike(self, one: ir.Value, other: ir.Value) -> None:
        """Same dtype, same extents; presence may differ."""
        same = one.type.dtype == other.type.dtype and _extents(one.type) == _extents(other.type)
        self.need(
            same, f"{one} is {format_type(one.type)} and {other} is {format_type(other.type)}"
        )


def _extents(type_: ir.TileType) -> tuple[Sym, ...]:
    return tuple(a.extent for a in type_.axes)


def _count(extents: Sequence[Sym]) -> Sym:
    total = Sym.of(1)
    for extent in extents:
        total = total * extent
    return total


def _same(outs: Sequence[ir.Value], results: Sequence[ir.Value]) -> bool:
    return len(outs) == len(results) and all(a is b for a, b in zip(outs, results, strict=True))
