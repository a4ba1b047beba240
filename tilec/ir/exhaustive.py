"""The end of a `match` that has a case for every type (`typing.assert_never` came with Python 3.11)."""

from __future__ import annotations

from typing import NoReturn


def assert_never(value: NoReturn) -> NoReturn:
    """Unreachable for a type checker; AssertionError at run time."""
    raise AssertionError(f"no case for {type(value).__name__}")
