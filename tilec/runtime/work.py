"""How many operations the products of a call are, for TFLOP/s."""

from __future__ import annotations

from math import prod

from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import Block, Dot, For, If, Program
from tilec.runtime.arguments import CallSizes

SAMPLES = 64
"""Instances of a nest, and trips of a loop, that stand for all of them where there are more."""


def product_operations(program: Program, sizes: CallSizes) -> float | None:
    """Multiplications and additions of all `@`, 2·M·N·K each, of the whole tiles that the instances compute; None where there is
    no `@`, or where a loop's trips hang on loaded values. Loops whose trips depend on the instance are averaged."""
    work = _Work(program, sizes)
    total, found = 0.0, False
    for nest in program.nests:
        if not _has_product(nest.body):
            continue
        found = True
        counts = [max(0, work.number(a.trips)) for a in nest.grid]
        share = 0.0
        points = _spread(counts)
        for point in points:
            work.trips.update((a.index, p) for a, p in zip(nest.grid, point, strict=True))
            try:
                share += work.block(nest.body)
            except KeyError:
                return None
        total += share / max(1, len(points)) * prod(counts)
    return total if found else None


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
        """Operations of a block."""
        total = 0.0
        for op in block.ops:
            match op:
                case Dot():
                    depth = self.number(op.a.type.axes[-1].extent)
                    total += 2.0 * depth * prod(self.number(a.extent) for a in op.out.type.axes)
                case For():
                    if _has_product(op.body):
                        total += self._loop(op)
                case If():
                    total += max(self.block(op.then), self.block(op.otherwise))
                case _:
                    pass
        return total

    def _loop(self, op: For) -> float:
        trips = max(0, self.number(op.trips))
        samples = _spread([trips])
        total = 0.0
        for (trip,) in samples:
            self.trips[op.index] = trip
            total += self.block(op.body)
        return total / max(1, len(samples)) * trips
