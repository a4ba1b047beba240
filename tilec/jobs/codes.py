"""The work of `tilec explain CODE`: what the table of codes says, for a terminal."""

from __future__ import annotations

import re
import sys
import textwrap

from tilec.source.codes import CODES
from tilec.source.diagnostics import fail

_WIDTH = 80
_NEAREST = 3


def is_code(text: str) -> bool:
    """Whether `text` has the form of a message's code, `E0312` or `W0601`."""
    return re.fullmatch(r"[EW]\d{4}", text) is not None


def explain_code(code: str) -> int:
    """Print title and explanation of `code`. Returns the exit status. Raises TileError (E0723) where there is none."""
    entry = CODES.get(code)
    if entry is None:
        near = ", ".join(f"`{c}` ({CODES[c].title})" for c in nearest_codes(code))
        raise fail("E0723", f"there is no code `{code}`", help=f"the nearest are {near}")
    paragraphs = entry.explanation.strip().split("\n\n")
    sys.stdout.write("\n\n".join(_wrapped(p) for p in (f"{code}: {entry.title}", *paragraphs)))
    sys.stdout.write("\n")
    return 0


def nearest_codes(code: str) -> list[str]:
    """The codes of the same letter whose numbers are nearest, nearest first."""
    number = int(code[1:])
    same = [c for c in CODES if c[0] == code[0]]
    return sorted(same, key=lambda c: (abs(int(c[1:]) - number), c))[:_NEAREST]


def _wrapped(paragraph: str) -> str:
    """Lines of at most _WIDTH characters; what stands between back-quotes is not torn apart."""
    whole = re.sub(r"`[^`\n]*`", lambda found: found[0].replace(" ", "\0"), paragraph)
    lines = textwrap.wrap(whole, _WIDTH, break_long_words=False, break_on_hyphens=False)
    return "\n".join(lines).replace("\0", " ")
