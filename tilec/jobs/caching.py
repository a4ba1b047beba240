"""The work of `tilec cache`: what the cache folder holds, as lines to print and an exit status."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

from tilec.jobs.cache_contents import Kept, contents, fault_of, remove
from tilec.resources import cache_directory

_DAY = 86400.0


def unused_cache() -> str:
    """Why nothing is kept, "" where the cache folder can hold entries."""
    root = cache_directory()
    if root.exists() and not root.is_dir():
        named = "TILEC_CACHE_DIR is" if os.environ.get("TILEC_CACHE_DIR") else "the cache is"
        return f"{named} `{root}`, which is no folder: nothing is kept"
    return ""


def list_cache() -> Iterator[str]:
    """A line an entry – kind, size, age, path – and the sum."""
    root = cache_directory()
    if unused := unused_cache():
        yield unused
        return
    entries = contents(root)
    now = time.time()
    width = max((len(kept.kind) for kept in entries), default=0)
    for kept in entries:
        age = age_text(now - kept.modified)
        yield f"{kept.kind:<{width}}  {size_text(kept.size):>8}  {age:>6}  {kept.path}"
    yield f"{_counted(entries)} in `{root}`"


def verify_cache() -> tuple[list[str], int]:
    """A line for each broken entry and the sum; 1 if there is a broken one, else 0."""
    root = cache_directory()
    if unused := unused_cache():
        return [unused], 0
    entries = contents(root)
    faults = [(kept, fault) for kept in entries if (fault := fault_of(root, kept))]
    lines = [f"broken {kept.kind}: {kept.path}: {fault}" for kept, fault in faults]
    lines.append(f"{_counted(entries)} in `{root}`, {len(faults)} broken")
    return lines, 1 if faults else 0


def clear_cache(older_than: float | None) -> str:
    """Remove all entries, or those older than so many days; says what was removed. Raises TileError (E0721)."""
    root = cache_directory()
    if unused := unused_cache():
        return unused
    now = time.time()
    entries = [
        kept
        for kept in contents(root)
        if older_than is None or now - kept.modified > older_than * _DAY
    ]
    remove(root, entries)
    return f"removed {_counted(entries)} from `{root}`"


def cache_path() -> Path:
    """The folder, which may not exist."""
    return cache_directory()


def size_text(size: int) -> str:
    """`812 B`, `3.1 kB`, `20.4 MB`: powers of 1000."""
    if size < 1000:
        return f"{size} B"
    value, units = size / 1000, ["kB", "MB", "GB"]
    while value >= 999.95 and len(units) > 1:
        value, units = value / 1000, units[1:]
    return f"{value:.1f} {units[0]}"


def age_text(seconds: float) -> str:
    """`5 min`, `3 h`, `12 d`, rounded down."""
    minutes = max(0, int(seconds // 60))
    if minutes < 60:
        return f"{minutes} min"
    return f"{minutes // 60} h" if minutes < 48 * 60 else f"{minutes // (24 * 60)} d"


def _counted(entries: list[Kept]) -> str:
    noun = "entry" if len(entries) == 1 else "entries"
    return f"{len(entries)} {noun} ({size_text(sum(kept.size for kept in entries))})"
