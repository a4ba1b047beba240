"""`docs/errors.md` from the table of codes: `python -m tilec.source.error_index > docs/errors.md`."""

from __future__ import annotations

from tilec.source.codes import CODES, exit_code

_FAMILIES = {
    "E01": "Syntax",
    "E02": "Names and declarations",
    "E03": "Extents and element types",
    "E04": "Presence and loops",
    "E05": "Not compiled yet",
    "E06": "Resources of an architecture",
    "E07": "The command line",
    "E08": "The machine",
    "E09": "Verification",
    "E70": "Faults of tilec",
    "W0": "Warnings",
}

_HEAD = """# Messages

Every message has a code. It begins with one line that stands alone, then the place in the source with a caret, notes, and
what to change. A code that starts with W is a warning; `--warnings-as-errors` makes it an error. The exit status is 1 for a
mistake in the program, 2 on the command line, 3 where the machine lacks something, 4 where a result did not verify, and 70
for a fault of tilec.

This page is written from the compiler's own table by `make errors`.
"""


def error_index() -> str:
    """The page: codes by family, each with its title and explanation."""
    parts = [_HEAD]
    for prefix, family in _FAMILIES.items():
        codes = sorted(code for code in CODES if code.startswith(prefix))
        if not codes:
            continue
        status = "" if prefix == "W0" else f" (exit status {exit_code(codes[0])})"
        parts.append(f"## {family}{status}\n")
        for code in codes:
            entry = CODES[code]
            parts.append(f"### {code}: {entry.title}\n\n{entry.explanation.strip()}\n")
    return "\n".join(parts)


if __name__ == "__main__":
    print(error_index(), end="")
