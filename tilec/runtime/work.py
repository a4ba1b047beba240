"""How many operations the products of a call are, for TFLOP/s."""

from __future__ import annotations

from collections.abc import Sequence
from math import prod

from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import Atomic, Block, Dot, For, If, Load, Nest, Op, Program, Store, Value
from tilec.runtime.arguments import CallSizes

SAMPLES = 64
"""Instances of a nest, and trips of a loop, that stand for all of them where there are more."""


def product_operations(program: Program, sizes: CallSizes) -> float | None:
    """Multiplications and additions of all `@`, 2·M·N·K each, of the whole tiles that the instances compute; None where there is
    no `@`, or where a loop's trips hang on loaded values. Loops whose trips depend on the instance are averaged."""
    nests = [nest for nest in program.nests if _has_product(nest.body)]
    return _counted(_Work(program, sizes), nests) if nests else None


def requested_bytes(program: Program, sizes: CallSizes) -> float | None:
    """Bytes that all instances load and store, whole tiles, a tile once for each time that an instance asks for it: what the caches
    serve at most, where `moved_bytes` is what DRAM moves at least. None where a loop's trips or a tile hang on loaded values."""
    return _counted(_Traffic(program, sizes), program.nests)


def _counted(work: _Work, nests: Sequence[Nest]) -> float | None:
    """What the instances of nests come to; those of a large grid are sampled."""
    total = 0.0
    for nest in nests:
        try:
            counts = [max(0, work.number(a.trips)) for a in nest.grid]
            share = 0.0
            points = _spread(counts)
            for point in points:
                work.trips.update((a.index, p) for a, p in zip(nest.grid, point, strict=True))
                share += work.block(nest.body)
        except KeyError:
            return None
        total += share / max(1, len(points)) * prod(counts)
    return total


def _spread(counts: list[int]) -> list[tuple[int, ...]]:
    """Coordinates spread evenly over a grid in its linear order, at most SAMPLES."""
    whole = prod(counts)
    points = []
    for sample in range(min(whole, SAMPLES)):
        rest = (2 * sample + 1) * whole // (2 * min(whole, SAMPLES))
        point: list[int] = []
        for count in reversed(counts):
            rest, place = divmod(rest, count)
            point.insert(0, place)
        points.append(tuple(point))
    return points


def _has_product(block: Block) -> bool:
    for op in block.ops:
        match op:
            case Dot():
                return True
            case For():
                if _has_product(op.body):
                    return True
            case If():
                if _has_product(op.then) or _has_product(op.otherwise):
                    return True
            case _:
                pass
    return False


def has_tf32(program: Program) -> bool:
    """Whether a product rounds its f32 operands to TF32."""
    return any(_tf32(nest.body) for nest in program.nests)


def _tf32(block: Block) -> bool:
    for op in block.ops:
        match op:
            case Dot():
                if op.precision == "tf32":
                    return True
            case For():
                if _tf32(op.body):
                    return True
            case If():
                if _tf32(op.then) or _tf32(op.otherwise):
                    return True
            case _:
                pass
    return False


class _Work:
    """Counts the products of a block at the current trips."""

    def __init__(self, program: Program, sizes: CallSizes) -> None:
        self.known = {**program.tiles, **sizes.environment}
        self.trips: dict[Var, int] = {}

    def number(self, sym: Sym) -> int:
        """A Sym's value. Raises KeyError for one that hangs on loaded values."""
        return sym.evaluate(self._variable)

    def _variable(self, var: Var) -> int:
        if var.kind == "trip":
            return self.trips[var]
        if var.kind == "value":
            raise KeyError(var.name)
        return int(self.known[var.name])

    def block(self, block: Block) -> float:
        """What a block comes to."""
        total = 0.0
        for op in block.ops:
            match op:
                case For():
                    if self.counts_in(op.body):
                        total += self._loop(op)
                case If():
                    total += max(self.block(op.then), self.block(op.otherwise))
                case _:
                    total += self.of(op)
        return total

    def counts_in(self, block: Block) -> bool:
        """Whether there is anything to count: the trips of other loops need not be known."""
        return _has_product(block)

    def of(self, op: Op) -> float:
        """Operations of one op."""
        if not isinstance(op, Dot):
            return 0.0
        depth = self.number(op.a.type.axes[-1].extent)
        return 2.0 * depth * self.elements(op.out)

    def elements(self, value: Value) -> int:
        """Elements of a tile, 1 of a scalar."""
        return prod(self.number(a.extent) for a in value.type.axes)

    def _loop(self, op: For) -> float:
        trips = max(0, self.number(op.trips))
        samples = _spread([trips])
        total = 0.0
        for (trip,) in samples:
            self.trips[op.index] = trip
            total += self.block(op.body)
        return total / max(1, len(samples)) * trips


class _Traffic(_Work):
    """Counts the bytes of loads and stores."""

    def counts_in(self, block: Block) -> bool:
        """Any loop may have some."""
        return bool(block.ops)

    def of(self, op: Op) -> float:
        """Bytes of one op."""
        match op:
            case Load():
                value = op.out
            case Store() | Atomic():
                value = op.value
            case _:
                return 0.0
        return self.elements(value) * value.type.dtype.bits / 8
