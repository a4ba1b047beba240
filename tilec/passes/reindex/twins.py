"""Twins of values: the same computation of a part or in another shape, beside the original."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.lazy_dataclass import dataclass
from tilec.passes.schedule.clone import Numbers, exchange
from tilec.passes.uses import Definitions, all_ops


class Stuck(Exception):
    """What a value is made of does not come in parts, or not in that shape. `why` ends a sentence that begins with "it"."""

    def __init__(self, value: t.Value, why: str):
        self.value = value
        self.why = why
        super().__init__(why)


TypeOf = Callable[[t.TileType], t.TileType]
ValueOf = Callable[[t.Value], t.Value]


@dataclass(frozen=True)
class Place:
    """Where new ops go: behind an op of the program, or in front of the body of a loop."""

    op: t.Op
    in_front: bool = False

    @property
    def key(self) -> tuple[int, bool]:
        """What tells it apart."""
        return id(self.op), self.in_front


class Twins:
    """One nest while it is rewritten. Ops are not moved; twins stand behind their originals until `finished` writes the nest."""

    def __init__(self, program: t.Program, nest: t.Nest, numbers: Numbers):
        self.program = program
        self.nest = nest
        self.numbers = numbers
        self.facts = Facts.of(program)
        self.views: list[t.View] = list(program.views)
        definitions = Definitions.of(nest.body)
        self.defining: dict[int, t.Op] = dict(definitions.defining)
        self.values: dict[int, t.Value] = dict(definitions.values)
        self.replaced: dict[int, t.Value] = {}
        """what stands for slices and reshapes"""
        self.known: dict[tuple[int, object], t.Value] = {}
        """twins by the original's id and what is wanted of it"""
        self.places: dict[int, Place] = {}
        self.added: dict[tuple[int, bool], list[t.Op]] = {}
        self.carried: dict[int, list[t.Carried]] = {}
        self.merges: dict[int, list[t.Merge]] = {}
        self.entries = {
            c.entry.id: (op, c)
            for op in all_ops(nest.body)
            if isinstance(op, t.For)
            for c in op.carried
        }
        for op in all_ops(nest.body):
            for value in op.outs:
                self.places[value.id] = Place(op)
        for id_, (loop, _) in self.entries.items():
            self.places[id_] = Place(loop, in_front=True)

    def resolved(self, value: t.Value) -> t.Value:
        """The value, or what stands for it."""
        while value.id in self.replaced:
            value = self.replaced[value.id]
        return value

    def add(self, op: t.Op, like: t.Value, type_: t.TileType) -> t.Value:
        """An op of one result in a new place beside `like`, whose name the result takes."""
        out = self.numbers.fresh(like, type_)
        place = self.places[like.id]
        op = replace(op, outs=(out,))
        self.added.setdefault(place.key, []).append(op)
        self._note(out, op, place)
        return out

    def add_like(self, op: t.Op, like: t.Op, type_of: TypeOf) -> tuple[t.Value, ...]:
        """An op of several results beside `like`."""
        place = self.places[like.outs[0].id]
        outs = tuple(self.numbers.fresh(out, type_of(out.type)) for out in like.outs)
        op = replace(op, outs=outs)
        self.added.setdefault(place.key, []).append(op)
        for out in outs:
            self._note(out, op, place)
        return outs

    def _note(self, value: t.Value, op: t.Op, place: Place) -> None:
        self.defining[value.id] = op
        self.values[value.id] = value
        self.places[value.id] = place

    # ---- what loops and branches yield

    def structured(
        self, value: t.Value, wanted: object, type_of: TypeOf, twin: ValueOf
    ) -> t.Value | None:
        """The twin of what a loop carries or a branch yields, None for other values. `twin` makes those of its parts, which may come back
        here."""
        if value.id in self.entries:
            loop, carried = self.entries[value.id]
            self._carry(loop, carried, wanted, type_of, twin)
            return self.known[value.id, wanted]
        op = self.defining[value.id]
        if isinstance(op, t.For):
            (carried,) = (c for c in self._all_carried(op) if c.result is value)
            self._carry(op, carried, wanted, type_of, twin)
            return self.known[value.id, wanted]
        if isinstance(op, t.If):
            (merge,) = (m for m in self._all_merges(op) if m.result is value)
            result = self.numbers.fresh(value, type_of(value.type))
            self._note(result, op, Place(op))
            self.known[value.id, wanted] = result
            parts = twin(merge.then), twin(merge.otherwise)
            self.merges.setdefault(id(op), []).append(t.Merge(*parts, result))
            return result
        return None

    def _carry(
        self, loop: t.For, carried: t.Carried, wanted: object, type_of: TypeOf, twin: ValueOf
    ) -> None:
        entry = self.numbers.fresh(carried.entry, type_of(carried.entry.type))
        result = self.numbers.fresh(carried.result, type_of(carried.result.type))
        self._note(entry, loop, Place(loop, in_front=True))
        self._note(result, loop, Place(loop))
        self.known[carried.entry.id, wanted] = entry
        self.known[carried.result.id, wanted] = result
        # the loop's own next value may be made of the entry
        new = t.Carried(twin(carried.initial), entry, twin(carried.next), result)
        self.carried.setdefault(id(loop), []).append(new)
        self.entries[entry.id] = (loop, new)

    def _all_carried(self, loop: t.For) -> list[t.Carried]:
        return [*loop.carried, *self.carried.get(id(loop), [])]

    def _all_merges(self, op: t.If) -> list[t.Merge]:
        return [*op.merges, *self.merges.get(id(op), [])]

    # ---- the nest

    def finished(self) -> t.Nest:
        """The nest with twins, without what they stand for."""
        body = self._assembled(self.nest.body)
        stands = {id_: self.resolved(self.values[id_]) for id_ in self.replaced}
        names = {id_: value.id for id_, value in stands.items()}
        retyped: dict[int, t.Value] = {}
        for value in _defined(body):
            type_ = _renamed(value.type, names)
            if type_ != value.type:
                retyped[value.id] = replace(value, type=type_)
        values = {id_: retyped.get(value.id, value) for id_, value in stands.items()}
        return replace(self.nest, body=exchange(body, {**retyped, **values}))

    def _assembled(self, block: t.Block) -> t.Block:
        ops: list[t.Op] = []
        for op in block.ops:
            if isinstance(op, t.Slice | t.Reshape) and op.out.id in self.replaced:
                ops += self.added.get((id(op), False), [])
                continue
            match op:
                case t.For():
                    front = self.added.get((id(op), True), [])
                    inner = self._assembled(op.body)
                    carried = tuple(self._all_carried(op))
                    new: t.Op = replace(
                        op,
                        body=t.Block((*front, *inner.ops)),
                        carried=carried,
                        outs=tuple(c.result for c in carried),
                    )
                case t.If():
                    merges = tuple(self._all_merges(op))
                    new = replace(
                        op,
                        then=self._assembled(op.then),
                        otherwise=self._assembled(op.otherwise),
                        merges=merges,
                        outs=tuple(m.result for m in merges),
                    )
                case _:
                    new = op
            ops += [new, *self.added.get((id(op), False), [])]
        return t.Block(tuple(ops))


def _defined(block: t.Block) -> list[t.Value]:
    found: list[t.Value] = []
    for op in all_ops(block):
        found += op.outs
        if isinstance(op, t.For):
            found += [c.entry for c in op.carried]
    return found


def _renamed(type_: t.TileType, names: dict[int, int]) -> t.TileType:
    """The type with the ids of index tiles replaced that its presence speaks of."""
    axes = []
    for axis in type_.axes:
        presence = tuple(
            replace(c, index=names.get(c.index, c.index)) if isinstance(c, t.InRange) else c
            for c in axis.presence
        )
        axes.append(replace(axis, presence=presence))
    return replace(type_, axes=tuple(axes))


def own_region(region: t.Region, numbers: Numbers) -> t.Region:
    """A function with values of its own, for a twin of the reduction that has it."""
    new: dict[int, t.Value] = {}
    for value in region.inputs:
        new[value.id] = numbers.fresh(value)
    for op in all_ops(region.body):
        for value in op.outs:
            new[value.id] = numbers.fresh(value)
    inputs = tuple(new[v.id] for v in region.inputs)
    outputs = tuple(new.get(v.id, v) for v in region.outputs)
    return t.Region(inputs, exchange(region.body, new), outputs)


def consumed(op: t.Reduce | t.ReduceWith) -> tuple[int, ...]:
    """Axes that a reduction does away with."""
    return op.axes if isinstance(op, t.Reduce) else (op.axis,)
