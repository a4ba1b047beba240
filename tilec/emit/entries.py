"""Some entry points of a unit by themselves: what machine code of them alone is built from.

    primitives, host helpers            primitives
    // kernel begin                     // kernel begin
    bodies                              bodies
    k_kernel, k_kernel_any       ->     k_kernel
    // kernel end                       // kernel end
    launcher

Bodies are templates or inline, so that nvcc compiles those alone that an entry point calls; its machine code is the same in either text.
Two entry points of a file with twelve take nvcc a fifth of the time of all.
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tilec.emit.unit import HOST_HELPERS, KERNEL_BEGIN, KERNEL_END

_ENTRY = re.compile(r'^extern "C" __global__ .*?^}\n', re.MULTILINE | re.DOTALL)
_NAME = re.compile(r"^((?!__)\w+)\(", re.MULTILINE)
"""Of the lines that begin with a name and a parenthesis the one that is no attribute."""


def entry_names(cu: str) -> tuple[str, ...]:
    """The entry points of a unit, in order."""
    return tuple(_name(entry[0]) for entry in _ENTRY.finditer(cu))


def entries_text(cu: str, names: Collection[str]) -> str:
    """The text of a unit with the entry points `names` alone, and without launchers. Raises KeyError for a name that it has not."""
    if missing := sorted(set(names) - set(entry_names(cu))):
        raise KeyError(missing[0])
    lines = cu.splitlines(keepends=True)
    helpers = next(n for n, line in enumerate(lines) if line.rstrip() == HOST_HELPERS)
    found = ["".join(lines[:helpers]), "}  // namespace\n"]
    first: int | None = None
    for number, line in enumerate(lines):
        if line.rstrip() == KERNEL_BEGIN:
            first = number
        elif line.rstrip() == KERNEL_END and first is not None:
            section = "".join(lines[first : number + 1])
            if not set(names).isdisjoint(entry_names(section)):
                found += ["\n", _ENTRY.sub(lambda e: e[0] if _name(e[0]) in names else "", section)]
            first = None
    return "".join(found)


def _name(entry: str) -> str:
    match = _NAME.search(entry)
    assert match is not None, "an entry point's name stands at the begin of a line"
    return match[1]
