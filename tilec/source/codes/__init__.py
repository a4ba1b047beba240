"""The table of diagnostic codes: one module a family, merged here.

E01 syntax, E02 names and declarations, E03 extents and dtypes, E04 presence and loops, E05 not compiled
yet, E06 resources of a target, E07 command line, E08 environment, E09 verification, E70 internal;
W is a warning, W06 a performance warning.
"""

from __future__ import annotations

from tilec.source.codes import (
    analysis,
    command,
    compiling,
    emulation,
    environment,
    running,
    syntax,
    verification,
)
from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {
    **syntax.CODES,
    **analysis.CODES,
    **compiling.CODES,
    **command.CODES,
    **environment.CODES,
    **running.CODES,
    **emulation.CODES,
    **verification.CODES,
}
"""Every code that tilec can print, with its title and explanation."""

_EXIT = {"E07": 2, "E08": 3, "E09": 4, "E70": 70}


def exit_code(code: str) -> int:
    """Exit status of a process that stops with `code`: 1 program, 2 command line, 3 environment, 4 verification, 70 internal."""
    return _EXIT.get(code[:3], 1)
