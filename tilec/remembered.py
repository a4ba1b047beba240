"""Functions that remember the results of their last calls.

What decides tile sizes asks for plans of nests that the passes then ask for again, of the same objects. Programs, nests and candidates do
not change, but comparing or hashing them is a walk through all of them: arguments count as the same where they are the same object.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

MOST = 16
"""Calls that are remembered: those of a few nests and tilings."""


def remembered(function: Callable[P, R]) -> Callable[P, R]:
    """A function of objects that do not change, whose result nobody changes, with the results of its last calls kept. An exception is not
    kept."""
    known: OrderedDict[tuple[object, ...], tuple[object, R]] = OrderedDict()

    @wraps(function)
    def asked(*args: P.args, **kwargs: P.kwargs) -> R:
        given = (*args, *kwargs.items())
        key = tuple(map(_identity, given))
        found = known.get(key)
        if found is None:
            # the arguments are kept too, so that no other object takes the place of one of them
            found = known[key] = given, function(*args, **kwargs)
            if len(known) > MOST:
                known.popitem(last=False)
        return found[1]

    return asked


def _identity(value: object) -> object:
    """What tells an argument from others."""
    match value:
        case None | bool() | int() | str():
            return value.__class__, value
        case tuple():
            return tuple(map(_identity, value))
        case _:
            return id(value)
