"""Which candidates one generated file holds: the winners of the sizes that were tuned for, few of them.

Each size set has a winner. While there are more winners than may stay, or one that another one nearly equals wherever it wins, that one
is dropped whose sizes lose least by taking the best of the others. The untuned candidate always stays.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from tilec.ir.selection import Number, Point
from tilec.lazy_dataclass import dataclass
from tilec.plan.candidate import Choice, Dispatch
from tilec.tuning.records import Found, choice_name

MOST = 4
"""Variants beside the general one by default: each costs machine code and time to build."""

EQUAL = 1.02
"""A variant is dominated where others are at most this much slower at all sizes at which it wins: less than times repeat to."""

UNKNOWN = 4.0
"""How much slower a candidate counts where it was not measured or did not verify."""

GENERAL = choice_name({})


@dataclass(frozen=True)
class _Sizes:
    """One size set: its key's values, what wins, and how much slower each candidate that verified is."""

    key: tuple[Number, ...]
    winner: str
    slower: Mapping[str, float]

    def best(self, kept: Iterable[str]) -> tuple[float, str]:
        """The best of some candidates; the winner of equal ones."""
        return min((self.slower.get(n, UNKNOWN), n != self.winner, n) for n in kept)[::2]


def choose_variants(found: Mapping[str, Sequence[Found]], most: int = MOST) -> Dispatch | None:
    """The variants of one kernel for each architecture, of finished searches with the key of the last; of two about one size set
    the later counts. At most `most` an architecture beside the general one. None where the untuned candidate is the best everywhere."""
    choices: dict[str, Choice] = {}
    assigned: dict[str, list[tuple[tuple[Number, ...], str]]] = {}
    finished = [one for searches in found.values() for one in searches if one.best is not None]
    # the `key` of a `tune` clause may have changed between two searches: the last one's counts
    key = tuple(finished[-1].subject.key) if finished else ()
    for arch, searches in found.items():
        sets: dict[tuple[Number, ...], _Sizes] = {}
        for one in searches:
            if one.best is None or tuple(one.subject.key) != key:
                continue
            values = tuple(one.subject.key.values())
            sets.pop(values, None)
            sets[values] = _sizes(one, values)
            choices |= {choice_name(t.choice): t.choice for t in one.trials.values()}
            choices[choice_name(one.best.choice)] = one.best.choice
        kept = _kept(sorted(sets.values(), key=lambda s: s.key), most)
        assigned[arch] = [
            (s.key, s.best(kept)[1]) for s in sorted(sets.values(), key=lambda s: s.key)
        ]
    names = sorted({name for rows in assigned.values() for _, name in rows} - {GENERAL})
    if not names:
        return None
    numbers = {GENERAL: 0, **{name: n for n, name in enumerate(names, 1)}}
    points = {
        arch: tuple(Point(sizes, numbers[name]) for sizes, name in rows)
        for arch, rows in assigned.items()
    }
    return Dispatch(key, tuple(choices[n] for n in names), tuple(names), points)


def _sizes(found: Found, key: tuple[Number, ...]) -> _Sizes:
    assert found.best is not None
    winner = choice_name(found.best.choice)
    times = {
        n: t.microseconds
        for n, t in found.trials.items()
        if t.status == "ok" and t.microseconds is not None
    }
    least = times.get(winner) or min(times.values(), default=1.0) or 1.0
    # the winner was found by a longer race than these times are of
    slower = {n: max(1.0, us / least) for n, us in times.items()}
    return _Sizes(key, winner, {**slower, winner: 1.0})


def _kept(sets: Sequence[_Sizes], most: int) -> list[str]:
    """The names of the candidates that stay, the untuned one among them."""
    kept = sorted({s.winner for s in sets} | {GENERAL})
    while len(kept) > 1:
        costs = []
        for name in kept:
            if name == GENERAL:
                continue
            others = [k for k in kept if k != name]
            before = [s.best(kept) for s in sets]
            after = [s.best(others)[0] for s in sets]
            lost = [b / a[0] for a, b in zip(before, after, strict=True) if a[1] == name]
            costs.append((max(lost, default=1.0), sum(lost), name))
        worst, _, name = min(costs)
        if worst > EQUAL and len(kept) - 1 <= most:
            break
        kept.remove(name)
    return kept
