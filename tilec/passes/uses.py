"""Walking Tile IR: operands of an op, nested blocks, who uses what."""

from __future__ import annotations

from dataclasses import field

from tilec.ir import tile_ir as t
from tilec.ir.walking import all_ops as all_ops
from tilec.ir.walking import index_tiles as index_tiles
from tilec.ir.walking import operands as operands
from tilec.ir.walking import syms_of as syms_of
from tilec.ir.walking import variable_of as variable_of
from tilec.lazy_dataclass import dataclass


@dataclass
class Definitions:
    """Defining op of each value of a block, and the ops that read it (a For or If for what its blocks yield)."""

    defining: dict[int, t.Op] = field(default_factory=dict)
    users: dict[int, list[t.Op]] = field(default_factory=dict)
    depth: dict[int, int] = field(default_factory=dict)
    """nesting depth at which a value is defined"""
    loops: dict[int, tuple[t.Op, ...]] = field(default_factory=dict)
    """the For and If ops around a value's definition, outermost first"""
    values: dict[int, t.Value] = field(default_factory=dict)

    @staticmethod
    def of(block: t.Block) -> Definitions:
        """Definitions and uses of a block and everything in it."""
        found = Definitions()
        found._visit(block, ())
        return found

    def _define(self, value: t.Value, op: t.Op, around: tuple[t.Op, ...]) -> None:
        self.defining[value.id] = op
        self.values[value.id] = value
        self.depth[value.id] = len(around)
        self.loops[value.id] = around
        self.users.setdefault(value.id, [])

    def _use(self, value: t.Value, op: t.Op) -> None:
        self.users.setdefault(value.id, []).append(op)

    def _use_syms(self, op: t.Op) -> None:
        for sym in syms_of(op):
            for var in sorted(sym.variables):
                if var.kind == "value":
                    self.users.setdefault(var.key, []).append(op)

    def _visit(self, block: t.Block, around: tuple[t.Op, ...]) -> None:
        for op in block.ops:
            for value in operands(op):
                self._use(value, op)
            self._use_syms(op)
            for value in op.outs:
                self._define(value, op, around)
            match op:
                case t.For():
                    for carried in op.carried:
                        self._define(carried.entry, op, (*around, op))
                    self._visit(op.body, (*around, op))
                    for carried in op.carried:
                        self._use(carried.next, op)
                case t.If():
                    self._visit(op.then, (*around, op))
                    self._visit(op.otherwise, (*around, op))
                    for merge in op.merges:
                        self._use(merge.then, op)
                        self._use(merge.otherwise, op)
                case t.Survivors():
                    for value in op.survives.inputs:
                        self._define(value, op, (*around, op))
                    self._visit(op.survives.body, (*around, op))
                    for value in op.survives.outputs:
                        self._use(value, op)
                case _:
                    pass


def number(definitions: Definitions, value: t.Value) -> float | None:
    """The number that a value is everywhere."""
    op = definitions.defining.get(value.id)
    while isinstance(op, t.Full):
        op = definitions.defining.get(op.value.id)
    return float(op.value) if isinstance(op, t.Constant) else None


def is_multiplied(value: t.Value, definitions: Definitions) -> bool:
    """Whether a tile is loaded and products alone read it: it lies in shared memory."""
    if not isinstance(definitions.defining[value.id], t.Load | t.Rearrange):
        return False
    for user in definitions.users[value.id]:
        match user:
            case t.Dot() if user.accumulate is not value:
                continue
            case t.Rearrange() if is_multiplied(user.out, definitions):
                continue
            case _:
                return False
    return True


def running_sum(loop: t.Op, definitions: Definitions) -> t.Dot | None:
    """The only product of a loop, where the loop adds it to a carried name and does nothing else with that."""
    if not isinstance(loop, t.For):
        return None
    dots = [op for op in all_ops(loop.body) if isinstance(op, t.Dot)]
    if len(dots) != 1 or dots[0] not in loop.body.ops:
        return None
    (dot,) = dots
    users = definitions.users
    for carried in loop.carried:
        if carried.next is dot.out and dot.accumulate is carried.entry:
            alone = all(u is dot for u in users[carried.entry.id])
            return dot if alone and all(u is loop for u in users[dot.out.id]) else None
    return None
