"""Stores of a nest that several of its instances do to the same elements.

for i, j in parallel(M by BM, N by BN):
    y[i] = sum(x[i, j], axis = 1)      every `j` stores all of `y[i]`, and which is the last is nobody's choice
"""

from __future__ import annotations

from collections.abc import Iterator

from tilec.analysis.following import follow_loop
from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym, Var
from tilec.ir.walking import free_variables, index_tiles, operands

Names = frozenset[str]
"""Axes of the grid by name, that something depends on."""


def repeated_stores(nest: t.Nest, facts: Facts) -> Iterator[tuple[t.Store, tuple[str, ...]]]:
    """The stores whose value differs between instances that store it to the same elements, and the axes of the grid that tell these
    instances apart. A store under a condition that such an axis decides is its author's choice, and is none of them."""
    several = {
        a.index: a.name for a in nest.grid if not facts.prove_nonnegative(Sym.of(1) - a.trips)
    }
    found: dict[int, tuple[t.Store, tuple[str, ...]]] = {}
    _Dependences(several, found).block(nest.body, frozenset())
    yield from found.values()


class _Dependences:
    """Follows the numbers of an instance through the values of its body."""

    def __init__(
        self, axes: dict[Var, str], found: dict[int, tuple[t.Store, tuple[str, ...]]]
    ) -> None:
        self.axes = axes
        self.found = found
        self.of: dict[int, Names] = {}

    def block(self, block: t.Block, under: Names) -> None:
        """The ops of a block that is reached under conditions of the axes `under`."""
        for op in block.ops:
            self.op(op, under)

    def op(self, op: t.Op, under: Names) -> None:
        """What the results of an op depend on; a store is judged."""
        names = self.symbols(op).union(*(self.value(v) for v in operands(op)))
        match op:
            case t.For():
                entering = self.symbols(op)
                follow_loop(op, self.of, entering, lambda: self.block(op.body, under | entering))
            case t.If():
                self.block(op.then, under | names)
                self.block(op.otherwise, under | names)
                for merge in op.merges:
                    both = self.value(merge.then) | self.value(merge.otherwise)
                    self.of[merge.result.id] = names | both
            case t.Store():
                place = self.symbols(op).union(*(self.value(v) for v in index_tiles(op.access)))
                differ = self.value(op.value) - place - under
                self.found.pop(id(op), None)
                if differ:
                    self.found[id(op)] = op, tuple(n for n in self.axes.values() if n in differ)
            case _:
                for out in op.outs:
                    self.of[out.id] = names

    def symbols(self, op: t.Op) -> Names:
        """The axes that the symbolic integers of an op depend on."""
        found: set[str] = set()
        for variable in free_variables(op):
            if variable in self.axes:
                found.add(self.axes[variable])
            elif variable.kind == "value":
                found |= self.of.get(variable.key, frozenset())
        return frozenset(found)

    def value(self, value: t.Value) -> Names:
        """The axes that a value depends on."""
        return self.of.get(value.id, frozenset())
