"""Seeded arguments that a program can run with.

Floats are standard normal, integers small, bools even chances. An integer tensor whose values name elements or bound loops gets
values that make sense there; which it is follows from what the program does with a loaded value, never from a name.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeAlias

import numpy as np

from tilec.forked import cores
from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import DType
from tilec.ir.symbolic import Sym, Var
from tilec.reference.interpreter import walk
from tilec.reference.numbers import Array, array_shape, compute_dtype, pack, round_to, storage_dtype
from tilec.reference.precision import operands

PART = 1 << 20
"""Normal numbers that are drawn one after the other, by one thread."""

BLOCK = 1 << 15
"""Of them, those in one buffer: one of a whole part would be new pages from the system for each part, which takes longer than drawing."""


@dataclass
class Use:
    """How a program uses the elements of an integer tensor: extents that they index (`gather`: an absent element is allowed) or
    bound, and whether neighbours bound the two ends of a range."""

    scalar: list[Sym] = field(default_factory=list)
    gather: list[Sym] = field(default_factory=list)
    bound: list[Sym] = field(default_factory=list)
    paired: bool = False


def make_inputs(
    program: ir.Program,
    sizes: Mapping[str, int],
    scalars: Mapping[str, float | int] | None = None,
    seed: int = 0,
) -> dict[str, Array]:
    """Arrays in storage form for every input and `inout` tensor; a flat buffer where strides are declared.

    The same seed and sizes give the same arrays on every machine with one version of NumPy.
    """
    given = dict(scalars or {})

    def number(sym: Sym) -> int:
        def value(var: Var) -> int:
            if var.kind == "tile":
                return program.tiles[var.name]
            return int(sizes[var.name] if var.kind == "dim" else given.get(var.name, 0))

        return sym.evaluate(value)

    uses = tensor_uses(program)

    def made(place: int, pool: ThreadPoolExecutor) -> Array | _Drawn:
        tensor = program.tensors[place]
        generator = np.random.Generator(np.random.PCG64([seed, place]))
        shape = tuple(number(d) for d in tensor.dims)
        if tensor.strides is not None:
            reach = sum((n - 1) * number(s) for n, s in zip(shape, tensor.strides, strict=True)) + 1
            shape = (0,) if 0 in shape else (reach,)
        use = uses.get(tensor.name)
        if use is not None and tensor.dtype.is_integer:
            return _addressing(use, shape, tensor, number, generator)
        if tensor.dtype.is_float:
            return _normal(shape, tensor.dtype, [seed, place], pool)
        return _plain(shape, tensor, generator)

    places = [n for n, t in enumerate(program.tensors) if t.role in ("input", "inout")]
    # NumPy lets go of the interpreter's lock while it draws numbers
    with ThreadPoolExecutor(cores()) as pool:
        arrays = [made(n, pool) for n in places]
        whole = [a() if callable(a) else a for a in arrays]
    return {program.tensors[n].name: array for n, array in zip(places, whole, strict=True)}


_Drawn: TypeAlias = Callable[[], Array]
"""Waits for an array that threads draw."""


def _normal(
    shape: tuple[int, ...], dtype: DType, seed: list[int], pool: ThreadPoolExecutor
) -> _Drawn:
    """Standard normal numbers, drawn in parts: the first with `seed`, the others with their number behind it."""
    values = np.empty(shape, storage_dtype(dtype))
    flat = values.reshape(-1)

    def draw(part: int) -> None:
        own = [*seed, part] if part else seed
        generator = np.random.Generator(np.random.PCG64(own))
        into = flat[part * PART : (part + 1) * PART]
        if dtype.bits == 64:
            into[:] = generator.standard_normal(into.size)
            return
        for first in range(0, into.size, BLOCK):
            block = into[first : first + BLOCK]
            normal = generator.standard_normal(block.size, np.float32)
            block[:] = round_to(normal, dtype) if dtype.bits == 8 else normal

    parts = [pool.submit(draw, part) for part in range(-(-flat.size // PART))]

    def drawn() -> Array:
        for part in parts:
            part.result()
        return values

    return drawn


def _plain(shape: tuple[int, ...], tensor: ir.Tensor, generator: np.random.Generator) -> Array:
    dtype = tensor.dtype
    if dtype.kind == "bool":
        return generator.integers(0, 2, shape).astype(np.bool_)
    low = -8 if dtype.kind == "int" else 0
    values = generator.integers(low, 8 if dtype.kind == "int" else 16, shape)
    return _stored(values, dtype)


def _stored(values: Array, dtype: DType) -> Array:
    """Integers as an array of the element type holds them."""
    if dtype.bits == 4:
        packed = pack(values.astype(compute_dtype(dtype)))
        return packed.reshape(array_shape(values.shape, dtype))
    return values.astype(storage_dtype(dtype))


def _addressing(
    use: Use,
    shape: tuple[int, ...],
    tensor: ir.Tensor,
    number: Callable[[Sym], int],
    generator: np.random.Generator,
) -> Array:
    """Values that index or bound the extents of `use`."""
    dtype = tensor.dtype

    def least(extents: list[Sym], most: int) -> int:
        return min(min(number(e) for e in extents), most)

    if use.scalar:
        extent = least(use.scalar, dtype.maximum + 1)
        return _stored(generator.integers(0, max(1, extent), shape), dtype)
    if use.gather:
        extent = least(use.gather, dtype.maximum + 1)
        values = generator.integers(0, max(1, extent), shape)
        if dtype.kind == "int":
            # a few name no element: absent where loaded, not written where stored
            values = np.where(generator.random(shape) < 1 / 16, -1, values)
        return _stored(values, dtype)
    extent = least(use.bound, dtype.maximum)
    values = generator.integers(0, extent + 1, shape)
    if use.paired and shape and shape[-1]:
        values = np.sort(values, axis=-1)
        values[..., 0] = 0
        values[..., -1] = extent
    return _stored(values, dtype)


def tensor_uses(program: ir.Program) -> dict[str, Use]:
    """For each integer input whose elements reach an index, a loop's trips or a span's bounds: how."""
    collector = _Collector(program)
    for op in walk(program):
        collector.op(op)
    collector.pairs()
    return {name: collector.uses[name] for name in sorted(collector.uses)}


class _Collector:
    """Follows loaded integers from their tensor to where they are used."""

    def __init__(self, program: ir.Program) -> None:
        self.program = program
        self.uses: dict[str, Use] = defaultdict(Use)
        self.origin: dict[int, frozenset[str]] = {}
        """tensors that a value's elements come from"""
        self.loads: dict[int, ir.Load] = {}
        self.loops: dict[Var, frozenset[int]] = {}
        """values that the trips of a loop depend on"""
        self.read: dict[str, list[tuple[ir.Access, int]]] = defaultdict(list)
        self.bounding: dict[str, list[int]] = defaultdict(list)

    def op(self, op: ir.Op) -> None:
        """Where the results of `op` come from, and what it uses."""
        match op:
            case ir.Load() if op.out.type.dtype.is_integer:
                if self.program.tensor(op.access.tensor).role in ("input", "inout"):
                    self.origin[op.out.id] = frozenset({op.access.tensor})
                    self.loads[op.out.id] = op
            case (
                ir.Cast()
                | ir.Rearrange()
                | ir.Reshape()
                | ir.Slice()
                | ir.Fill()
                | ir.Elementwise()
            ):
                if all(v.type.dtype.is_integer or v.type.dtype.kind == "bool" for v in op.outs):
                    found: frozenset[str] = frozenset()
                    for value in operands(op):
                        if value.type.dtype.is_integer:
                            found |= self.origin.get(value.id, frozenset())
                    if found and op.out.type.dtype.is_integer:
                        self.origin[op.out.id] = found
            case ir.FromSym():
                names = self.names(op.sym)
                if names and op.out.type.dtype.is_integer:
                    self.origin[op.out.id] = names
            case ir.For():
                self.loops[op.index] = self.values(op.trips)
            case _:
                pass
        match op:
            case ir.Load() | ir.Store() | ir.Atomic():
                self.access(op.access)
            case _:
                pass

    def values(self, *syms: Sym | None) -> frozenset[int]:
        """Ids of the loaded integers in Syms, those of the loops that they run in too."""
        found: set[int] = set()
        for sym in syms:
            if sym is None:
                continue
            for var in sym.variables:
                if var.kind == "value":
                    found.add(var.key)
                elif var.kind == "trip":
                    found |= self.loops.get(var, frozenset())
        return frozenset(found)

    def names(self, *syms: Sym | None) -> frozenset[str]:
        """Tensors behind the values of Syms."""
        names: frozenset[str] = frozenset()
        for value in self.values(*syms):
            names |= self.origin.get(value, frozenset())
        return names

    def access(self, access: ir.Access) -> None:
        """The dimensions that an access lets a loaded integer index or bound."""
        dims = self.program.tensor(access.tensor).dims
        for view in self.program.views:
            if view.name == access.view:
                dims = view.dims
        for term, dim in zip(access.terms, dims, strict=True):
            match term:
                case ir.AtTile(index):
                    for name in sorted(self.origin.get(index.id, ())):
                        self.uses[name].gather.append(dim)
                case ir.AtScalar(index):
                    for name in sorted(self.names(index)):
                        self.uses[name].scalar.append(dim)
                case ir.AtSpan(start, _, lo, hi):
                    for name in sorted(self.names(start, lo, hi)):
                        self.uses[name].bound.append(dim)
                        self.bounding[name] += sorted(self.values(start, lo, hi))
                case ir.AtAll():
                    pass

    def pairs(self) -> None:
        """Tensors of which two elements, one place apart, bound the same thing."""
        for name, values in self.bounding.items():
            places = [
                self.loads[v].access.terms[-1] for v in sorted(set(values)) if v in self.loads
            ]
            indices = [p.index for p in places if isinstance(p, ir.AtScalar)]
            self.uses[name].paired = any(
                (one - other).constant == 1 for one in indices for other in indices
            )
        for use in self.uses.values():
            # an element that both bounds and indexes has to index
            if not (use.scalar or use.gather or use.bound):
                use.paired = False
