"""Reading what a command line says: files, `NAME=VALUE` pairs, architectures."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from pathlib import Path

from tilec.source.diagnostics import fail

_NAME = re.compile(r"[^\W\d]\w*\Z")


def check_source(file: str) -> None:
    """Raises TileError (E0703) where `file` is no file that can be read."""
    if not file or "\0" in file:
        raise fail("E0703", "the path of the program is empty or holds a NUL byte")
    path = Path(file)
    try:
        if path.is_dir():
            raise fail(
                "E0703",
                f"`{file}` is a folder",
                help="name one `.tile` file; `tilec run` without a file runs all of a folder",
            )
        if not path.exists():
            raise fail("E0703", f"there is no file `{file}`", help=_neighbours(path))
    except OSError as error:
        raise fail("E0703", f"cannot read `{file}`: {(error.strerror or '').lower()}") from error
    if not os.access(path, os.R_OK):
        raise fail("E0703", f"cannot read `{file}`: permission denied")


def _neighbours(path: Path) -> str:
    """The `.tile` files where `path` would be, at most five."""
    try:
        there = sorted(p.name for p in path.parent.glob("*.tile"))
    except OSError:
        return ""
    names = ", ".join(f"`{n}`" for n in there[:5]) + (", …" if len(there) > 5 else "")
    return f"that folder has {names}" if there else ""


def parse_pairs(pairs: Sequence[str], option: str) -> dict[str, str]:
    """`NAME=VALUE` pairs by name. Raises TileError (E0705) for text of another form and for a name given two values."""
    found: dict[str, str] = {}
    for pair in pairs:
        name, equals, value = pair.partition("=")
        name, value = name.strip(), value.strip()
        if not equals or not _NAME.match(name) or not value:
            raise fail(
                "E0705",
                f"`{option} {pair}` is not of the form `NAME=VALUE`",
                help=f"write for example `{option} {name if _NAME.match(name) else 'M'}=128`",
            )
        if found.get(name, value) != value:
            raise fail("E0705", f"`{option}` gives `{name}` two values, {found[name]} and {value}")
        found[name] = value
    return found


def parse_archs(names: Sequence[str]) -> tuple[str, ...]:
    """The architectures, oldest first, each once; the default where none is named. Raises TileError (E0707)."""
    from tilec.targets.table import DEFAULT_ARCH, TARGETS

    for name in names:
        if name not in TARGETS:
            known = f"known are {', '.join(TARGETS)}"
            number = re.search(r"\d+a?", name.lower())
            meant = f"sm_{number[0]}" if number else ""
            raise fail(
                "E0707",
                f"tilec has no table for the architecture `{name}`",
                help=f"did you mean `{meant}`? {known}" if meant in TARGETS else known,
            )
    return tuple(a for a in TARGETS if a in names) or (DEFAULT_ARCH,)
