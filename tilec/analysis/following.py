"""What values of a loop depend on, as sets of names that only grow: what two analyses of a nest have in common."""

from __future__ import annotations

from collections.abc import Callable

from tilec.ir import tile_ir as t


def follow_loop(
    op: t.For,
    names: dict[int, frozenset[str]],
    entering: frozenset[str],
    body: Callable[[], None],
) -> None:
    """A loop, whose `body` is gone through until what its carried values depend on does not grow. `names`: of each value by its number, which the
    body adds to; `entering`: names that all carried values have from the start."""
    none: frozenset[str] = frozenset()
    for carried in op.carried:
        names[carried.entry.id] = names.get(carried.initial.id, none) | entering
    while True:
        before = [names[carried.entry.id] for carried in op.carried]
        body()
        for carried in op.carried:
            names[carried.entry.id] |= names.get(carried.next.id, none)
        if [names[carried.entry.id] for carried in op.carried] == before:
            break
    for carried in op.carried:
        names[carried.result.id] = names[carried.entry.id]
