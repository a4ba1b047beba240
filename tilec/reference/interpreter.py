"""The reference interpreter: Tile IR executed with NumPy, instance after instance.

It is the oracle: presence is found from index values as they occur, never from what the analysis wrote at an
axis. With `bounds` the same program runs in float64 and every stored element carries a bound on what an allowed
execution may store (`running_error.py`).
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import groupby, product

import numpy as np

from tilec.forked import forked
from tilec.ir import tile_ir as ir
from tilec.ir.axis_groups import axis_groups
from tilec.ir.dtypes import I32
from tilec.ir.rescaled import rescaled_operands
from tilec.ir.symbolic import Sym, Var
from tilec.reference.access import Accessor
from tilec.reference.arithmetic import Arithmetic
from tilec.reference.blas import one_thread
from tilec.reference.memory import Memory
from tilec.reference.numbers import Array
from tilec.reference.precision import at_any_scale, narrow_values
from tilec.reference.running_error import BoundedArithmetic
from tilec.reference.tiles import Mask, Tile
from tilec.source.diagnostics import fail
from tilec.source.exhaustive import assert_never
from tilec.source.text import NOWHERE

Observer = Callable[[ir.Value, Tile, Callable[[Sym], int]], None]
"""Called for every value that is defined, with a function that evaluates Syms at this moment."""

SHARES = 4
"""Parts of the instances that a process takes, one after the other: some take longer than others."""


@dataclass(frozen=True)
class Instance:
    """One instance of a nest: the nest's number and the trip of each of its grid axes."""

    nest: int
    trips: tuple[int, ...]


@dataclass(frozen=True)
class Expected:
    """What a tensor must hold: within `bound` of `value`; an infinite bound where nothing can be said."""

    value: Array
    bound: Array


class Interpreter:
    """A program with its sizes and arguments.

    `sizes` gives every dimension by name; `arrays` every tensor parameter by name (not `temp`; with `bounds` outputs may be left out
    and nothing is written to) in storage form (`numbers.py`), a flat buffer where the tensor declares strides; `scalars`
    overrides defaults; `shared`: results with bounds lie where copies of this process write them too. Raises TileError: E0902 index out of range, E0903 assertion, E0904 an argument that does not fit,
    E0730 a scalar without value, E0731 a size without value.
    """

    def __init__(
        self,
        program: ir.Program,
        sizes: Mapping[str, int],
        arrays: Mapping[str, Array],
        scalars: Mapping[str, float | int] | None = None,
        *,
        bounds: bool = False,
        observe: Observer | None = None,
        write: Callable[[str], None] = print,
        shared: bool = False,
    ) -> None:
        self.program = program
        self.shared = shared and bounds
        self.sizes = dict(sizes)
        self.write = write
        self.observe = observe
        self.values: dict[int, Tile] = {}
        self.trips: dict[Var, int] = {}
        self.surviving: dict[int, list[int]] = {}
        """trips that survive, by the id of their number"""
        self.uncertain = False
        """a branch or an index of this instance hangs on a value that rounding may change"""
        for var in program.dims:
            if var.name not in self.sizes:
                raise fail(
                    "E0731",
                    f"dimension `{var.name}` of `{program.name}` has no value",
                    help=f"give one with `-s {var.name}=…`",
                )
        self.scalars = scalar_values(program, scalars or {})
        self.arithmetic: Arithmetic = Arithmetic()
        if bounds:
            self.arithmetic = BoundedArithmetic(program.math == "strict")
        self.narrow = narrow_values(program) if bounds else frozenset()
        self.rescaled = rescaled_operands(program) if bounds else frozenset()
        self.memories = self._memories(arrays, bounds)
        self.accessor = Accessor(self)

    # ---- numbers and arguments

    def number(self, sym: Sym) -> int:
        """A Sym's value now."""
        constant = sym.constant
        return sym.evaluate(self._variable) if constant is None else constant

    def _variable(self, var: Var) -> int:
        match var.kind:
            case "dim":
                return self.sizes[var.name]
            case "tile":
                return self.program.tiles[var.name]
            case "trip":
                return self.trips[var]
            case "scalar":
                return int(self.scalars[var.name])
            case "value":
                tile = self.values[var.key]
                if tile.error is not None and bool(tile.error > 0):
                    self.uncertain = True
                return int(tile.data)
            case "local":
                raise AssertionError(f"`{var}` is a variable of Kernel IR")
            case _:
                raise assert_never(var.kind)

    def _memories(self, arrays: Mapping[str, Array], bounds: bool) -> dict[str, Memory]:
        atomic = {o.access.tensor for o in walk(self.program) if isinstance(o, ir.Atomic)}
        memories = {}
        for tensor in self.program.tensors:
            shape = tuple(self.number(d) for d in tensor.dims)
            strides = None
            if tensor.strides is not None:
                strides = tuple(self.number(s) for s in tensor.strides)
            array = arrays.get(tensor.name) if tensor.role != "temp" else None
            optional = tensor.role == "temp" or (bounds and tensor.role == "output")
            if array is None and not optional:
                raise fail("E0904", f"tensor `{tensor.name}` has no array", tensor.span)
            if bounds and tensor.role == "output":
                array = None
            memories[tensor.name] = Memory(
                tensor, shape, strides, array, bounds, tensor.name in atomic, self.shared
            )
        for view in self.program.views:
            shape = tuple(self.number(d) for d in view.dims)
            base = memories[view.tensor]
            if int(np.prod(shape, dtype=np.int64)) != base.data.size:
                raise fail(
                    "E0904",
                    f"view {shape} of `{view.tensor}` has another number of elements than {base.shape}",
                    base.tensor.span,
                )
            memories[view.name] = base.viewed(shape)
        return memories

    def expected(self, name: str) -> Expected:
        """What tensor `name` must hold after the runs so far (with `bounds`)."""
        memory = self.memories[name]
        assert memory.error is not None
        bound: Array = memory.error
        if memory.mass is not None and memory.added is not None:
            # n additions in any order: n * u * sum of magnitudes
            bound = bound + 2.0**-memory.dtype.mantissa * memory.added * memory.mass
        return Expected(memory.data, bound)

    # ---- instances

    def instances(self, nest: int) -> Iterator[Instance]:
        """All instances of a nest, the last grid axis fastest."""
        counts = self.grid(nest)
        for trips in product(*(range(c) for c in counts)):
            yield Instance(nest, trips)

    def grid(self, nest: int) -> tuple[int, ...]:
        """Number of trips of each grid axis of a nest."""
        return tuple(max(0, self.number(g.trips)) for g in self.program.nests[nest].grid)

    def run(self, instances: Iterable[Instance] | None = None, *, processes: int = 1) -> None:
        """Run all nests in order, or the instances given, in their order; outputs are written in place. With `processes` (and `shared`)
        copies of this process take instances of a nest, if nobody can tell."""
        if instances is None:
            instances = (i for n in range(len(self.program.nests)) for i in self.instances(n))
        # products of single tiles: for many threads they are too small
        with one_thread():
            if processes > 1 and self.shared and self._separable():
                for _, own in groupby(instances, lambda instance: instance.nest):
                    self._divided(list(own), processes)
            else:
                self._in_order(instances)
        for memory in self.memories.values():
            memory.finish()

    def _separable(self) -> bool:
        """Whether instances may run in copies, and once more where a copy ended early: they write what none of them reads, and nothing
        else is seen of them."""
        if self.observe is not None:
            return False
        for nest in self.program.nests:
            ops = list(inside(nest.body))
            if any(isinstance(op, ir.Print | ir.Atomic) for op in ops):
                return False
            written = {op.access.tensor for op in ops if isinstance(op, ir.Store)}
            if any(isinstance(op, ir.Load) and op.access.tensor in written for op in ops):
                return False
        return True

    def _divided(self, instances: Sequence[Instance], processes: int) -> None:
        """Instances of one nest, shared out. Where one fails the error is the first one's."""
        each = max(1, len(instances) // (processes * SHARES))
        parts = [instances[n : n + each] for n in range(0, len(instances), each)]

        def work(number: int) -> bool:
            self._in_order(parts[number])
            return True

        for part, done in zip(parts, forked(len(parts), work, processes), strict=True):
            if done is None:
                self._in_order(part)

    def _in_order(self, instances: Iterable[Instance]) -> None:
        with np.errstate(all="ignore"):
            for instance in instances:
                nest = self.program.nests[instance.nest]
                self.values.clear()
                self.trips.clear()
                self.uncertain = False
                for axis, trip in zip(nest.grid, instance.trips, strict=True):
                    self.trips[axis.index] = trip
                self.block(nest.body)

    # ---- structure

    def define(self, value: ir.Value, tile: Tile) -> None:
        """Bind a value."""
        self.values[value.id] = tile
        if self.observe is not None:
            self.observe(value, tile, self.number)

    def tile(self, value: ir.Value) -> Tile:
        """The tile bound to a value."""
        return self.values[value.id]

    def holds(self, condition: ir.Value) -> bool:
        """Truth of a scalar; notes where rounding may change it."""
        tile = self.tile(condition)
        if tile.error is not None and bool(tile.error > 0):
            self.uncertain = True
        return bool(tile.data)

    def block(self, block: ir.Block) -> None:
        """Ops in order."""
        for op in block.ops:
            self.op(op)

    def loop(self, op: ir.For) -> None:
        """A loop; the carried names of one trip are bound together."""
        current = [self.tile(c.initial) for c in op.carried]
        for trip in range(self.number(op.trips)):
            self.trips[op.index] = trip
            for carried, tile in zip(op.carried, current, strict=True):
                self.define(carried.entry, tile)
            self.block(op.body)
            current = [self.tile(c.next) for c in op.carried]
        for carried, tile in zip(op.carried, current, strict=True):
            self.define(carried.result, tile)

    def branch(self, op: ir.If) -> None:
        """One of two blocks."""
        taken = bool(self.tile(op.condition).data.any()) if op.rare else self.holds(op.condition)
        self.block(op.then if taken else op.otherwise)
        for merge in op.merges:
            tile = self.tile(merge.then if taken else merge.otherwise)
            if self.uncertain and tile.data.dtype.kind == "f":
                tile = replace(tile, error=np.full(tile.data.shape, np.inf))
            self.define(merge.result, tile)

    def survivors(self, op: ir.Survivors) -> None:
        """The trips that survive, of which only schedules speak."""
        known: list[int] = []
        for trip in range(self.number(op.trips)):
            self.define(op.survives.inputs[0], self.arithmetic.number(trip, I32))
            self.block(op.survives.body)
            known += [trip] if self.holds(op.survives.outputs[0]) else []
        self.surviving[op.out.id] = known
        self.define(op.out, self.arithmetic.number(len(known), I32))

    def op(self, op: ir.Op) -> None:
        """One op."""
        match op:
            case ir.For():
                self.loop(op)
            case ir.If():
                self.branch(op)
            case ir.Store():
                self.accessor.store(op)
            case ir.Atomic():
                self.accessor.atomic(op)
            case ir.Assert():
                if not self.holds(op.condition):
                    raise fail(
                        "E0903",
                        f"assertion failed: {op.message}" if op.message else "assertion failed",
                        op.span if op.span is not NOWHERE else None,
                        note=self.where(),
                    )
            case ir.Print():
                parts = [p if isinstance(p, str) else str(self.tile(p).data) for p in op.parts]
                self.write(" ".join(parts))
            case ir.TopK():
                axis_type = op.arg.type
                results = self.arithmetic.topk(self.tile(op.arg), op.axis, op.k, axis_type.dtype)
                for value, tile in zip(op.outs, results, strict=True):
                    self.define(value, tile)
            case ir.ReduceWith():
                self.fold(op)
            case ir.Survivors():
                self.survivors(op)
            case _:
                self.define(op.out, self.result(op))

    def where(self) -> str:
        """The trips that are being run, for a message."""
        return ", ".join(f"`{var.name}` trip {trip}" for var, trip in self.trips.items())

    # ---- values

    def result(self, op: ir.Op) -> Tile:
        """The tile of an op that has one result."""
        out = op.out.type
        arithmetic = self.arithmetic
        match op:
            case ir.Constant():
                return arithmetic.number(op.value, out.dtype)
            case ir.FromSym():
                return arithmetic.number(self.number(op.sym), out.dtype)
            case ir.Scalar():
                return arithmetic.number(self.scalars[op.name], out.dtype)
            case ir.Iota():
                extent = self.number(out.axes[0].extent)
                start = self.number(op.start)
                data = np.arange(start, start + extent, dtype=np.int64).astype(np.int32)
                return Tile(data, (self.span_mask(start, extent, op.lo, op.hi),))
            case ir.Full():
                shape = tuple(self.number(a.extent) for a in out.axes)
                value = self.tile(op.value)
                masks = [None if b is None else self.bound_mask(b) for b in op.bounds]
                error = None if value.error is None else np.broadcast_to(value.error, shape)
                present = tuple(masks) if masks else (None,) * len(shape)
                return Tile(np.broadcast_to(value.data, shape), present, error)
            case ir.Load():
                return self.accessor.load(op)
            case ir.Elementwise():
                args = [self.tile(a) for a in op.args]
                return arithmetic.elementwise(op.op, args, out.dtype, op.out.id in self.narrow)
            case ir.Cast():
                given = self.tile(op.arg)
                result = arithmetic.cast(given, op.arg.type.dtype, out.dtype)
                if op.out.id in self.rescaled:
                    result = at_any_scale(given, result, out.dtype)
                return result
            case ir.Bitcast():
                return arithmetic.bitcast(self.tile(op.arg), op.arg.type.dtype, out.dtype)
            case ir.Fill():
                return fill(self.tile(op.arg), self.tile(op.value), op.axes)
            case ir.Rearrange():
                return rearrange(self.tile(op.arg), op.axes)
            case ir.Reshape():
                return self.reshape(op)
            case ir.Slice():
                return self.slice(op)
            case ir.Reduce():
                return arithmetic.reduce(op.op, self.tile(op.arg), op.axes, op.arg.type.dtype)
            case ir.Combine():
                # a partial reduction is a whole one here
                return self.tile(op.arg)
            case ir.Scan():
                return arithmetic.scan(op.op, self.tile(op.arg), op.axis, op.arg.type.dtype)
            case ir.Dot():
                accumulate = None if op.accumulate is None else self.tile(op.accumulate)
                types = (op.a.type.dtype, op.b.type.dtype, out.dtype)
                return arithmetic.dot(
                    self.tile(op.a), self.tile(op.b), types, accumulate, op.precision
                )
            case ir.Survivor():
                known = self.surviving[op.of.id]
                number = self.number(op.number)
                return arithmetic.number(
                    known[number] if 0 <= number < len(known) else 0, out.dtype
                )
            case _:
                raise TypeError(f"no meaning for {type(op).__name__}")

    def span_mask(self, start: int, extent: int, lo: Sym | None, hi: Sym | None) -> Mask:
        """Presence of a span used as a value: only its own bound counts."""
        first = 0 if lo is None else max(0, self.number(lo) - start)
        last = extent if hi is None else min(extent, self.number(hi) - start)
        if first == 0 and last == extent:
            return None
        positions = np.arange(extent)
        return np.asarray((positions >= first) & (positions < last))

    def bound_mask(self, bound: ir.AtSpan) -> Mask:
        """Presence that `zeros(f32, i)` takes from span i."""
        start, extent = self.number(bound.start), self.number(bound.extent)
        return self.span_mask(start, extent, bound.lo, bound.hi)

    def reshape(self, op: ir.Reshape) -> Tile:
        """Axes that stay one to one keep their presence."""
        tile = self.tile(op.arg)
        old = [a.extent for a in op.arg.type.axes]
        new = [a.extent for a in op.out.type.axes]
        shape = tuple(self.number(e) for e in new)
        present: list[Mask] = [None] * len(new)
        for before, after in axis_groups(old, new):
            wide_before = [n for n in before if old[n].constant != 1]
            wide_after = [n for n in after if new[n].constant != 1]
            if len(wide_before) == len(wide_after) == 1:
                present[wide_after[0]] = tile.present[wide_before[0]]
        error = None if tile.error is None else tile.error.reshape(shape)
        return Tile(tile.data.reshape(shape), tuple(present), error)

    def slice(self, op: ir.Slice) -> Tile:
        """A constant part of each axis."""
        tile = self.tile(op.arg)
        cut = tuple(
            slice(start, start + self.number(axis.extent))
            for start, axis in zip(op.starts, op.out.type.axes, strict=True)
        )
        present = tuple(m if m is None else m[c] for m, c in zip(tile.present, cut, strict=True))
        return Tile(tile.data[cut], present, None if tile.error is None else tile.error[cut])

    def fold(self, op: ir.ReduceWith) -> None:
        """`reduce` with the user's function: from left to right over the present coordinates, all other axes at once. Any association is
        allowed: the bound is that of the worse of two, the other one by halves, and of a rounding for each level."""
        args = [self.tile(a) for a in op.args]
        extent = args[0].data.shape[op.axis]
        present = np.ones(extent, np.bool_)
        for arg in args:
            mask = arg.present[op.axis]
            present = present if mask is None else present & mask
        kept = tuple(m for n, m in enumerate(args[0].present) if n != op.axis)
        positions = np.flatnonzero(present)
        columns = [[_column(a, op.axis, int(p)) for a in args] for p in positions]

        def combine(left: list[Tile], right: list[Tile]) -> list[Tile]:
            for value, tile in zip(op.combine.inputs, [*left, *right], strict=True):
                self.define(value, tile)
            self.block(op.combine.body)
            return [self.tile(v) for v in op.combine.outputs]

        if columns:
            state = functools.reduce(combine, columns)
        else:
            shape = args[0].data.shape[: op.axis] + args[0].data.shape[op.axis + 1 :]
            state = [Tile(np.zeros(shape, a.data.dtype)) for a in args]
        other = state
        if len(columns) > 2 and any(tile.error is not None for tile in state):
            level = columns
            while len(level) > 1:
                pairs = [combine(*level[n : n + 2]) for n in range(0, len(level) - 1, 2)]
                level = pairs + level[len(pairs) * 2 :]
            (other,) = level
        for value, tile, halves in zip(op.outs, state, other, strict=True):
            shape = tuple(self.number(a.extent) for a in value.type.axes)
            data = np.broadcast_to(tile.data, shape)
            error = None
            if tile.error is not None or halves.error is not None:
                error = _either(tile, halves, len(columns), value.type.dtype.bits)
                error = np.broadcast_to(error, shape)
            self.define(value, Tile(data, kept, error))


def _either(one: Tile, other: Tile, count: int, bits: int) -> Array:
    """A bound for any association of `count` values, of two that were evaluated; floats of up to 32 bits compute in f32."""
    errors = [np.zeros(()) if t.error is None else t.error for t in (one, other)]
    distance: Array = np.abs(np.asarray(one.data, np.float64) - other.data)
    distance = np.nan_to_num(distance, nan=0.0, posinf=0.0)
    rounding = (
        (2.0**-53 if bits == 64 else 2.0**-24)
        * count.bit_length()
        * np.abs(np.nan_to_num(one.data, posinf=0, neginf=0))
    )
    found: Array = 2 * np.maximum(errors[0], errors[1]) + distance + rounding
    return found


def scalar_values(program: ir.Program, given: Mapping[str, float | int]) -> dict[str, float | int]:
    """Every scalar parameter's value: given, or its default. Raises E0730 for one without, E0732 for an unknown name."""
    values: dict[str, float | int] = {}
    for scalar in program.scalars:
        value = given.get(scalar.name, scalar.default)
        if value is None:
            raise fail(
                "E0730",
                f"scalar `{scalar.name}` of `{program.name}` has no value",
                program.span if program.span is not NOWHERE else None,
                help=f"give {scalar.name} with `-s {scalar.name}=…`, or a default in the kernel",
            )
        values[scalar.name] = value
    return values


def inside(block: ir.Block) -> Iterator[ir.Op]:
    """Every op of a block, outer ones first."""
    for op in block.ops:
        yield op
        match op:
            case ir.For():
                yield from inside(op.body)
            case ir.If():
                yield from inside(op.then)
                yield from inside(op.otherwise)
            case ir.ReduceWith():
                yield from inside(op.combine.body)
            case ir.Survivors():
                yield from inside(op.survives.body)
            case _:
                pass


def walk(program: ir.Program) -> Iterator[ir.Op]:
    """Every op of a program, outer ones first."""
    for nest in program.nests:
        yield from inside(nest.body)


def fill(tile: Tile, value: Tile, axes: tuple[int, ...] | None = None) -> Tile:
    """Absent elements become `value`; everything is present along these axes, all without them."""
    rank = tile.data.ndim
    data, error = tile.data, tile.error
    for axis, mask in enumerate(tile.present):
        if mask is None or (axes is not None and axis not in axes):
            continue
        shaped = mask.reshape([-1 if n == axis else 1 for n in range(rank)])
        data = np.where(shaped, data, value.data.astype(data.dtype))
        if error is not None or value.error is not None:
            zero = np.zeros((), np.float64)
            one = zero if error is None else error
            error = np.where(shaped, one, zero if value.error is None else value.error)
    if error is not None:
        error = np.broadcast_to(error, data.shape)
    filled = range(rank) if axes is None else axes
    present = tuple(None if n in filled else mask for n, mask in enumerate(tile.present))
    return Tile(data, present, error)


def rearrange(tile: Tile, axes: tuple[int | None, ...]) -> Tile:
    """Transposition, new axes of extent 1, dropped axes of extent 1."""
    named = [a for a in axes if a is not None]
    dropped = tuple(n for n in range(tile.data.ndim) if n not in named)
    order = [*named, *dropped]
    at = tuple(np.newaxis if a is None else slice(None) for a in axes) + (0,) * len(dropped)
    present = tuple(None if a is None else tile.present[a] for a in axes)
    data = tile.data.transpose(order)[at]
    error = None if tile.error is None else tile.error.transpose(order)[at]
    return Tile(data, present, error)


def _column(tile: Tile, axis: int, position: int) -> Tile:
    data = tile.data.take(position, axis)
    error = None if tile.error is None else tile.error.take(position, axis)
    return Tile(data, (None,) * data.ndim, error)
