"""How axes become others with the same elements in the same order."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir.axis_groups import axis_groups
from tilec.ir.symbolic import Sym
from tilec.lazy_dataclass import dataclass

ONE = Sym.of(1)


@dataclass(frozen=True)
class Group:
    """Neighbouring axes that become others, with as many elements: numbers of the old and of the new ones."""

    old: tuple[int, ...]
    new: tuple[int, ...]
    plain: bool
    """nothing but axes of extent 1 come or go"""


@dataclass(frozen=True)
class Shape:
    """What is wanted of a value, and how its axes get there."""

    extents: tuple[Sym, ...]
    groups: tuple[Group, ...]

    @staticmethod
    def between(old: Sequence[Sym], new: Sequence[Sym]) -> Shape:
        """The shortest groups."""
        groups: list[Group] = []
        for before, after in axis_groups(old, new):
            wide = (
                [old[n] for n in before if old[n] != ONE],
                [new[n] for n in after if new[n] != ONE],
            )
            groups.append(Group(tuple(before), tuple(after), wide[0] == wide[1]))
        return Shape(tuple(new), tuple(groups))

    @property
    def is_plain(self) -> bool:
        """Nothing is merged or split."""
        return all(g.plain for g in self.groups)

    def group_of(self, old: int) -> Group:
        """The group of an old axis."""
        return next(g for g in self.groups if old in g.old)
