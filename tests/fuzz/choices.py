"""A sequence of choices that decides a random program: recorded as it is made, replayed, made smaller."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")


class Choices:
    """Numbers from a seed, or those of `given` and 0 behind them. Number 0 is the simplest choice everywhere, so that
    a shorter sequence of smaller numbers is a simpler program."""

    def __init__(self, seed: int | None = None, given: Sequence[int] = ()) -> None:
        self._random = None if seed is None else random.Random(seed)
        self._given = list(given)
        self.made: list[int] = []

    def below(self, count: int) -> int:
        """A number from 0 to `count` - 1."""
        if self._random is not None:
            number = self._random.randrange(count)
        else:
            place = len(self.made)
            number = min(self._given[place], count - 1) if place < len(self._given) else 0
        self.made.append(number)
        return number

    def pick(self, options: Sequence[T]) -> T:
        """One of the options, the simplest first."""
        return options[self.below(len(options))]

    def chance(self, percent: int) -> bool:
        """True in so many of a hundred programs."""
        return self.below(100) >= 100 - percent


def shrink(
    made: Sequence[int], fails: Callable[[Sequence[int]], bool], budget: int = 200
) -> list[int]:
    """A smaller sequence for which `fails` still holds, after at most `budget` questions."""
    best = list(made)
    asked = 0

    def smaller(candidate: list[int]) -> bool:
        nonlocal best, asked
        if asked >= budget or candidate == best:
            return False
        asked += 1
        if not fails(candidate):
            return False
        best = candidate
        return True

    progress = True
    while progress and asked < budget:
        progress = False
        size = max(1, len(best) // 2)
        while size:
            at = 0
            while at < len(best):
                if smaller(best[:at] + best[at + size :]):
                    progress = True
                elif any(best[at : at + size]) and smaller(
                    best[:at] + [0] * len(best[at : at + size]) + best[at + size :]
                ):
                    progress = True
                    at += size
                else:
                    at += size
            size //= 2
        for at in range(len(best)):
            if at < len(best) and best[at] > 1:
                for number in (best[at] // 2, best[at] - 1):
                    if smaller([*best[:at], number, *best[at + 1 :]]):
                        progress = True
                        break
    return best
