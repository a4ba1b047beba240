"""Which axes of a `Reshape` become which: what the interpreter computes and the passes move."""

from __future__ import annotations

from collections.abc import Sequence

from tilec.ir.launch import product
from tilec.ir.symbolic import Sym


def axis_groups(old: Sequence[Sym], new: Sequence[Sym]) -> list[tuple[list[int], list[int]]]:
    """Runs of old and of new axes (their numbers) whose extents have one product, each as short as possible."""
    groups: list[tuple[list[int], list[int]]] = []
    i = j = 0
    while i < len(old) or j < len(new):
        width, height = _shortest(old[i:], new[j:])
        groups.append((list(range(i, i + width)), list(range(j, j + height))))
        i, j = i + width, j + height
    return groups


def _shortest(old: Sequence[Sym], new: Sequence[Sym]) -> tuple[int, int]:
    """Lengths of the shortest prefixes with one product; everything where there are none."""
    for total in range(1, len(old) + len(new) + 1):
        for width in range(min(total, len(old)), -1, -1):
            height = total - width
            allowed = height <= len(new) and ((width and height) or not old or not new)
            if allowed and product(tuple(old[:width])) == product(tuple(new[:height])):
                return width, height
    return len(old), len(new)
