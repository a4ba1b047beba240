"""Ranges of sizes on a command line: `-s N=2**10..2**28`, `-s N=1000,2000`."""

from __future__ import annotations

import re
from collections.abc import Sequence

from tilec.source.diagnostics import TileError, fail

MOST = 64
"""Values of one range at most."""

_INTEGER = r"(?:0[xX][0-9a-fA-F_]+|[0-9][0-9_]*)"
_POWER = re.compile(rf"({_INTEGER})\s*(?:\*\*\s*({_INTEGER}))?\Z")


def expand_settings(settings: Sequence[str]) -> list[tuple[str, ...]]:
    """The settings of each call, one after another, for `NAME=VALUE` texts of which some name several values.

    `A..B` doubles from A up to B, `A..B:S` adds S, `A,B,C` are values; each is an integer or a power such as `2**10`. Several
    ranges advance together and have the same number of values. Raises TileError (E0716).
    """
    values = [_values(text) for text in settings]
    counts = {len(v) for v in values if len(v) > 1}
    if len(counts) > 1:
        lengths = ", ".join(f"`-s {t}` has {len(v)}" for t, v in zip(settings, values, strict=True))
        raise fail(
            "E0716",
            "ranges of sizes advance together and need the same number of values",
            note=lengths,
        )
    count = max(counts, default=1)
    return [tuple(v[n] if len(v) > 1 else v[0] for v in values) for n in range(count)]


def _values(text: str) -> list[str]:
    """`NAME=VALUE` for each value of one setting; what names no range stays as it is."""
    name, equals, value = text.partition("=")
    if not equals:
        return [text]
    if ".." in value:
        first, _, rest = value.partition("..")
        last, colon, step = rest.partition(":")
        low, high = _number(first, text), _number(last, text)
        stride = _number(step, text) if colon else 0
        if low > high or (colon and stride < 1) or (not colon and low < 1):
            raise _wrong(text)
        numbers = [low]
        while (following := numbers[-1] + stride if colon else 2 * numbers[-1]) <= high:
            numbers.append(following)
            if len(numbers) > MOST:
                raise fail("E0716", f"`-s {text}` has more than {MOST} values")
        return [f"{name}={n}" for n in numbers]
    if "," in value:
        return [f"{name}={_number(v, text)}" for v in value.split(",")]
    power = _POWER.match(value.strip())
    return [f"{name}={_number(value, text)}"] if power and power[2] else [text]


def _number(text: str, setting: str) -> int:
    found = _POWER.match(text.strip())
    if not found:
        raise _wrong(setting)
    base = int(found[1], 0)
    if not found[2]:
        return base
    exponent = int(found[2], 0)
    if exponent > 64:
        raise _wrong(setting)
    return int(base**exponent)


def _wrong(setting: str) -> TileError:
    return fail(
        "E0716",
        f"`-s {setting}` names no sizes",
        help="write `-s N=2**10..2**28` (doubling), `-s N=1000..5000:500` or `-s N=1000,2000`",
    )
