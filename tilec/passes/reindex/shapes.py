"""How axes become others with the same elements in the same order."""

from __future__ import annotations

from collections.abc import Sequence

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
        i = j = 0
        while i < len(old) or j < len(new):
            width, height = _shortest(old[i:], new[j:])
            before, after = range(i, i + width), range(j, j + height)
            wide = (
                [old[n] for n in before if old[n] != ONE],
                [new[n] for n in after if new[n] != ONE],
            )
            groups.append(Group(tuple(before), tuple(after), wide[0] == wide[1]))
            i, j = i + width, j + height
        return Shape(tuple(new), tuple(groups))

    @property
    def is_plain(self) -> bool:
        """Nothing is merged or split."""
        return all(g.plain for g in self.groups)

    def group_of(self, old: int) -> Group:
        """The group of an old axis."""
        return next(g for g in self.groups if old in g.old)


def _shortest(old: Sequence[Sym], new: Sequence[Sym]) -> tuple[int, int]:
    """Lengths of the shortest prefixes with one product; everything where there are none."""
    for total in range(1, len(old) + len(new) + 1):
        for width in range(min(total, len(old)), -1, -1):
            height = total - width
            allowed = height <= len(new) and ((width and height) or not old or not new)
            if allowed and _count(old[:width]) == _count(new[:height]):
                return width, height
    return len(old), len(new)


def _count(extents: Sequence[Sym]) -> Sym:
    total = ONE
    for extent in extents:
        total = total * extent
    return total
