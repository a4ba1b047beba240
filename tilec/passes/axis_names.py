"""C names of axis classes."""

from __future__ import annotations

from tilec.ir import tile_ir as t
from tilec.passes.axes import Axes

AXIS_WORDS = ("at", "el", "lane", "step", "sub", "shift")
"""Endings of the C names of an axis' coordinates and counters."""


def _words(program: t.Program) -> set[str]:
    """Names that the source gives to parameters and sizes, as C++ may spell them."""
    words = {*program.names, *program.tiles}
    return words | {f"{word}_" for word in words}


def axis_names(axes: Axes, program: t.Program) -> dict[int, str]:
    """C names for the classes, unique in the nest whatever the case of their first letter; no name made of one is a name of
    the program."""
    words = _words(program)
    names: dict[int, str] = {}
    used: set[str] = set()
    for found in axes.classes:
        base = found.name if found.name.isidentifier() else "t"
        name, n = base, 1
        while name[:1].upper() + name[1:] in used or any(
            f"{name}_{end}" in words for end in AXIS_WORDS
        ):
            n += 1
            name = f"{base}{n}"
        used.add(name[:1].upper() + name[1:])
        names[found.number] = name
    return names
