"""Results that depend on tile sizes which nobody but the compiler has chosen.

for k in range(K by BK):                BK = auto
    if k.start < limit:                 how far behind `limit` the last tile reaches is the compiler's choice,
        acc += a[i, k] @ b[k, j]        and no mask of coordinates, such as `where(k < limit, …)`, takes it back
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator

from tilec.analysis.following import follow_loop
from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Apply, Sym
from tilec.ir.walking import all_ops, operands
from tilec.source.text import Span

Names = frozenset[str]
"""Tile sizes."""

NONE: Names = frozenset()
COMPARISONS = ("lt", "le", "gt", "ge", "eq", "ne")


def dependent(
    nest: t.Nest, chosen: Collection[str], divides: Collection[tuple[Sym, Sym]]
) -> Iterator[tuple[Span, str, Names]]:
    """Where a result depends on tile sizes of `chosen`: the place, what is stored or left out there, and the sizes. A branch that `==`
    decides – the first trip, the last one – is its author's choice. `divides`: pairs (a, b) of which b divides a."""
    if chosen:
        found: dict[int, tuple[Span, str, Names]] = {}
        _Sizes(frozenset(chosen), divides, found).block(nest.body)
        yield from found.values()


class _Sizes:
    """Follows the starts and ends of spans, as numbers, through the values of a body."""

    def __init__(
        self,
        chosen: Names,
        divides: Collection[tuple[Sym, Sym]],
        found: dict[int, tuple[Span, str, Names]],
    ) -> None:
        self.chosen = chosen
        self.divides = divides
        self.found = found
        self.of: dict[int, Names] = {}
        self.coordinates: dict[int, Names] = {}
        """sizes of the spans that are values in a tile"""

    def block(self, block: t.Block) -> None:
        """The ops of a block in order."""
        for op in block.ops:
            self.op(op)

    def op(self, op: t.Op) -> None:
        """What the results of an op depend on; stores and branches are judged."""
        names = NONE.union(*(self.value(v) for v in operands(op)))
        match op:
            case t.FromSym(sym=sym):
                names = self.number(sym)
            case t.Iota(start=start):
                self.coordinates[op.out.id] = self.number(start)
            case t.Load(access=access):
                names = self.place(access)
            case t.Store(access=access) | t.Atomic(access=access):
                self.judge(op, f"what `{access.tensor}` holds", names | self.place(access))
            case t.For():
                follow_loop(op, self.of, NONE, lambda: self.block(op.body))
                return
            case t.If():
                self.branch(op, names)
                return
            case t.Elementwise(op="eq" | "ne") if not op.out.type.axes:
                names = NONE
            case _:
                pass
        inside = NONE.union(*(self.coordinates.get(v.id, NONE) for v in operands(op)))
        for out in op.outs:
            self.of[out.id] = names
            self.coordinates.setdefault(out.id, inside)

    def branch(self, op: t.If, names: Names) -> None:
        """A branch, which leaves out no more than masks of its blocks do."""
        self.block(op.then)
        self.block(op.otherwise)
        masked = self.masked([*all_ops(op.then), *all_ops(op.otherwise)])
        self.judge(op, "what this condition leaves out", names - masked)
        for merge in op.merges:
            self.of[merge.result.id] = self.value(merge.then) | self.value(merge.otherwise)

    def masked(self, ops: Iterable[t.Op]) -> Names:
        """The sizes of spans whose coordinates are compared, each element for itself."""
        found = NONE
        for op in ops:
            if isinstance(op, t.Elementwise) and op.op in COMPARISONS and op.out.type.axes:
                found = found.union(*(self.coordinates.get(v.id, NONE) for v in op.args))
        return found

    def judge(self, op: t.Op, what: str, names: Names) -> None:
        """Keep what is found of an op; a loop's body is judged several times."""
        if names:
            self.found[id(op)] = op.span, what, names

    def place(self, access: t.Access) -> Names:
        """The sizes that decide at which single coordinates a tensor is accessed, or which index tiles say."""
        found = NONE
        for term in access.terms:
            if isinstance(term, t.AtScalar):
                found |= self.number(term.index)
            elif isinstance(term, t.AtTile):
                found |= self.value(term.index)
        return found

    def number(self, sym: Sym) -> Names:
        """The sizes that a number depends on. A start divided by what the span's extent divides is the same wherever the span
        begins within that."""
        found: set[str] = set()
        for monomial, _ in sym.terms:
            for atom in monomial:
                if isinstance(atom, Apply):
                    inside = NONE.union(*(self.number(a) for a in atom.args))
                    found |= inside - self.divisors(atom) if atom.op == "//" else inside
                elif atom.kind == "tile" and atom.name in self.chosen:
                    found.add(atom.name)
                elif atom.kind == "value":
                    found |= self.of.get(atom.key, NONE)
        return frozenset(found)

    def divisors(self, quotient: Apply) -> Names:
        """The sizes that divide what is divided by."""
        by = quotient.args[1]
        return frozenset(
            n
            for n in self.chosen
            for a, b in self.divides
            if a == by and any(v.kind == "tile" and v.name == n for v in b.variables)
        )

    def value(self, value: t.Value) -> Names:
        """The sizes that a value depends on."""
        return self.of.get(value.id, NONE)
