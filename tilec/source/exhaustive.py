"""The end of a `match` that covers every case (`typing.assert_never` is there from Python 3.11 only)."""

from __future__ import annotations

from typing import NoReturn


def assert_never(value: NoReturn) -> NoReturn:
    """Never runs: the type checker proves it. Raises AssertionError if it does."""
    raise AssertionError(f"{value!r} is a case nobody expected")
