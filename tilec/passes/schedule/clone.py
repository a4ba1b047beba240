"""Copies of ops: the same computation on other values, at another trip of a loop."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from typing import Any

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym, Var
from tilec.passes.uses import all_ops


class Numbers:
    """Ids of new values, beyond all that a program has."""

    def __init__(self, nests: Iterable[t.Nest]):
        self.next = 1
        for nest in nests:
            for op in all_ops(nest.body):
                entries = [c.entry for c in op.carried] if isinstance(op, t.For) else []
                for value in (*op.outs, *entries):
                    self.next = max(self.next, value.id + 1)

    def fresh(self, like: t.Value, type_: t.TileType | None = None) -> t.Value:
        """A new value with the name and place of another."""
        value = t.Value(self.next, type_ or like.type, like.name, like.span)
        self.next += 1
        return value


class Cloner:
    """Copies ops with some values exchanged and the trip number of a loop replaced. `origin` notes which value each new one is a
    copy of."""

    def __init__(
        self,
        numbers: Numbers,
        values: Mapping[int, t.Value],
        syms: Mapping[Var, Sym],
        origin: dict[int, int],
    ):
        self.numbers = numbers
        self.values = dict(values)
        self.syms = dict(syms)
        self.origin = origin

    def value(self, value: t.Value) -> t.Value:
        """What stands for a value."""
        return self.values.get(value.id, value)

    def ops(self, ops: Iterable[t.Op]) -> list[t.Op]:
        """Copies in order; what they define stands for the originals from then on."""
        return [self.op(op) for op in ops]

    def op(self, op: t.Op) -> t.Op:
        """One copy. Loops and branches are not copied."""
        assert not isinstance(op, t.For | t.If), "a loop inside a rotated loop"
        changed = {
            f.name: self._any(getattr(op, f.name)) for f in fields(op) if f.name not in ("outs", "span")
        }
        outs = []
        for out in op.outs:
            new = self.numbers.fresh(out, self._any(out.type))
            self.origin[new.id] = self.origin.get(out.id, out.id)
            outs.append(new)
            self.values[out.id] = new
        return replace(op, outs=tuple(outs), **changed)

    def sym(self, sym: Sym) -> Sym:
        """A symbolic integer in terms of the copies."""

        def other(var: Var) -> Sym | None:
            if var in self.syms:
                return self.syms[var]
            if var.kind == "value" and var.key in self.values:
                new = self.values[var.key]
                return Sym.of(Var(new.name or f"v{new.id}", "value", new.id))
            return None

        return sym.substitute(other)

    def _any(self, node: Any) -> Any:
        match node:
            case t.Value():
                return self.value(node)
            case Sym():
                return self.sym(node)
            case t.InRange():
                new = self.values.get(node.index)
                trips = None if node.trips is None else self.sym(node.trips)
                return replace(
                    node, index=node.index if new is None else new.id, size=self.sym(node.size), trips=trips
                )
            case tuple():
                return tuple(self._any(part) for part in node)
            case t.Axis() | t.TileType() | t.Access() | t.AtScalar() | t.AtSpan() | t.AtTile() | t.Below() | t.AtLeast():
                if not is_dataclass(node):
                    return node
                return replace(node, **{f.name: self._any(getattr(node, f.name)) for f in fields(node)})
            case _:
                return node
