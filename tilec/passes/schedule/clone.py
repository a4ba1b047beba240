"""Copies of ops: the same computation on other values, at another trip of a loop."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, replace
from typing import Any

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym, Var
from tilec.passes.uses import all_ops


class Numbers:
    """Ids of new values, beyond all that a program has."""

    def __init__(self, nests: Iterable[t.Nest]):
        self.next = 1
        for nest in nests:
            self._count(nest.body)

    def _count(self, block: t.Block) -> None:
        for op in all_ops(block):
            values = list(op.outs)
            if isinstance(op, t.For):
                values += [c.entry for c in op.carried]
            elif isinstance(op, t.ReduceWith):
                values += op.combine.inputs
                self._count(op.combine.body)
            for value in values:
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
            f.name: self._any(getattr(op, f.name))
            for f in fields(op)
            if f.name not in ("outs", "span")
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

    def access(self, access: t.Access) -> t.Access:
        """A place in terms of the copies."""
        found = self._any(access)
        assert isinstance(found, t.Access)
        return found

    def _any(self, node: Any) -> Any:
        match node:
            case t.Value():
                return self.value(node)
            case Sym():
                return self.sym(node)
            case _:
                return in_terms(node, self._any, self.values)


def in_terms(node: Any, new: Callable[[Any], Any], values: Mapping[int, t.Value]) -> Any:
    """A type, a place or a tuple whose parts are what `new` makes of them, `values` what stands for others by number; anything else as it
    is."""
    match node:
        case tuple():
            return tuple(map(new, node))
        case t.InRange():
            index = values.get(node.index)
            return replace(
                node,
                index=node.index if index is None else index.id,
                size=new(node.size),
                trips=None if node.trips is None else new(node.trips),
            )
        case (
            t.Axis()
            | t.TileType()
            | t.Access()
            | t.AtScalar()
            | t.AtSpan()
            | t.AtTile()
            | t.Below()
            | t.AtLeast()
        ):
            return rebuilt(node, new)
        case _:
            return node


def rebuilt(node: Any, new: Callable[[Any], Any]) -> Any:
    """A node whose fields are what `new` makes of them."""
    return replace(node, **{f.name: new(getattr(node, f.name)) for f in fields(node)})


def exchange(block: t.Block, values: Mapping[int, t.Value]) -> t.Block:
    """The block with other values for some, where they are defined and where they are read."""

    def new(value: t.Value) -> t.Value:
        return values.get(value.id, value)

    def one(op: t.Op) -> t.Op:
        changed: dict[str, Any] = {}
        for f in fields(op):
            part = getattr(op, f.name)
            if isinstance(part, t.Value):
                changed[f.name] = new(part)
            elif isinstance(part, t.Block):
                changed[f.name] = exchange(part, values)
            elif isinstance(part, tuple) and f.name in ("outs", "args", "parts"):
                changed[f.name] = tuple(new(v) if isinstance(v, t.Value) else v for v in part)
            elif isinstance(part, tuple) and f.name in ("carried", "merges"):
                changed[f.name] = tuple(
                    replace(c, **{g.name: new(getattr(c, g.name)) for g in fields(c)}) for c in part
                )
            elif isinstance(part, t.Access):
                terms = tuple(
                    t.AtTile(new(term.index)) if isinstance(term, t.AtTile) else term
                    for term in part.terms
                )
                changed[f.name] = replace(part, terms=terms)
        return replace(op, **changed)

    return t.Block(tuple(one(op) for op in block.ops))


def present_again(block: t.Block, filled: Mapping[int, t.Value]) -> t.Block:
    """The block after some values have lost constraints of presence: what is made of them element by element loses them too."""
    values = dict(filled)

    def walk(inner: t.Block) -> None:
        for op in inner.ops:
            if isinstance(op, t.For):
                walk(op.body)
            if not isinstance(op, t.Elementwise | t.Cast | t.Rearrange) or not op.outs[0].type.rank:
                continue
            args = op.args if isinstance(op, t.Elementwise) else (op.arg,)
            if not any(v.id in values for v in args) or op.out.id in values:
                continue
            axes = []
            for n, axis in enumerate(op.out.type.axes):
                found: dict[t.Constraint, None] = {}
                for arg in args:
                    arg = values.get(arg.id, arg)
                    place = op.axes[n] if isinstance(op, t.Rearrange) else n
                    if place is not None and arg.type.rank and not arg.type.axes[place].is_one:
                        found.update(dict.fromkeys(arg.type.axes[place].presence))
                axes.append(replace(axis, presence=tuple(found)))
            type_ = replace(op.out.type, axes=tuple(axes))
            if type_ != op.out.type:
                values[op.out.id] = replace(op.out, type=type_)

    walk(block)
    return exchange(block, values)
