"""Kernel IR's trips that survive a filter: how many there are, and which is the next one. Each asks the same question about a trip."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir.kernel_expressions import Expr
from tilec.lazy_dataclass import dataclass


@dataclass(frozen=True)
class SurvivorWalk(k.Op):
    """A walk of the trips that survive, in front of the first; `again`: one that is declared goes back there."""

    name: str
    again: bool = False


@dataclass(frozen=True)
class Again(k.Op):
    """An integer under another `name`, which the compiler takes for another number: what follows from it is not kept from where it was
    known before."""

    name: str
    value: Expr


@dataclass(frozen=True, kw_only=True)
class Question(k.Op):
    """Trips 0 … trips-1, of which those survive for whose number, in the variable `at`, `condition` holds behind `body`. `by_lanes`: the lanes of
    a warp ask about a trip each; else one thread asks about all."""

    name: str
    trips: Expr
    at: str
    body: tuple[k.Op, ...]
    condition: Expr
    by_lanes: bool


@dataclass(frozen=True, kw_only=True)
class CountSurvivors(Question):
    """`const int name` = how many survive."""


@dataclass(frozen=True, kw_only=True)
class SeekSurvivor(Question):
    """`const int name` = the trip that is number `number` of those that survive; `walk` goes on to it. `alone`: a walk of its own does, which
    nothing else goes on with. `there`: the walk is there already. `follows`: it is at the one in front."""

    walk: str
    number: Expr
    alone: bool = False
    there: bool = False
    follows: bool = False
