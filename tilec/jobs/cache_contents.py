"""What lies in the cache folder: every entry with its kind, size and age, whether it is whole, and removing it.

Only what tilec writes there is an entry, recognised by its place and the form of its name: a folder that
`TILEC_CACHE_DIR` names by mistake keeps all else. Links are neither followed nor removed.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import re
import shutil
import struct
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from tilec.source.diagnostics import fail
from tilec.toolchain.cache import Cache

BUILT = "built"
FAULT = "fault"
EMULATOR = "emulator"
GRAMMAR = "parse tables"
LIBRARY = "library"
TEMPLATES = "template"
TUNING = "tuning"
LEFT_OVER = "left over"
"""Kinds of entries; those that the toolchain built carry a kind of their own, where they have one."""

_HASHED = re.compile(r"[0-9a-f]{64}\.entry\Z")
_PLACES: tuple[tuple[str, str, re.Pattern[str]], ...] = (
    ("templates", TEMPLATES, re.compile(r"[0-9a-f]{32}\.code\Z")),
    ("grammar", GRAMMAR, re.compile(r"[0-9a-f]{16}\.tables\Z")),
    ("tuning/*", TUNING, re.compile(r"[0-9a-f]{16}\.jsonl\Z")),
    ("emulator", EMULATOR, re.compile(r"[0-9a-f]{32}\Z")),
    ("launchers", LIBRARY, re.compile(r"[0-9a-f]{32}\.so\Z")),
    ("extensions", LIBRARY, re.compile(r"[0-9a-f]{32}\.so\Z")),
    ("faults", FAULT, re.compile(r"[0-9a-f]{12}\Z")),
)
"""The folder, the kind and the name of each collection beside the built files."""

_UNFINISHED = re.compile(
    r"(\.new-\w+|[0-9a-f]{32}\.code\w{8}|[0-9a-f]{16}\.tables\w{8}|[0-9a-f]{16}\.jsonl\w{8}"
    r"|\.[0-9a-f]{32}\.so-\w{8})\Z"
)
"""What a process that was stopped leaves behind: the temporary names of `publish`, `Cache.put`, libraries and the emulator."""

_FOLDERS = frozenset({FAULT, EMULATOR})
_AT_WORK = 3600.0
"""Seconds for which an unfinished file may be that of a process that still writes it; it is no entry."""


@dataclass(frozen=True)
class Kept:
    """One entry: a file, or for a fault and the emulator a folder. `size` in bytes, `modified` in seconds since 1970."""

    path: Path
    kind: str
    size: int
    modified: float


def contents(root: Path) -> list[Kept]:
    """Every entry below `root`, in the order of their paths; none where there is no such folder."""
    found = [k for path, kind in _candidates(root) if (k := _look(path, kind)) is not None]
    return sorted(found, key=lambda kept: kept.path)


def _candidates(root: Path) -> Iterator[tuple[Path, str]]:
    for folder in _plain_folders(root):
        if re.fullmatch(r"[0-9a-f]{2}", folder.name):
            yield from _named(folder, _HASHED, BUILT)
    for place, kind, name in _PLACES:
        first, _, deeper = place.partition("/")
        owner = root / first
        if owner.is_symlink() or not owner.is_dir():
            continue
        for folder in _plain_folders(owner) if deeper else [owner]:
            yield from _named(folder, name, kind)


def _named(folder: Path, name: re.Pattern[str], kind: str) -> Iterator[tuple[Path, str]]:
    for path in _listed(folder):
        if name.match(path.name):
            yield path, kind
        elif _UNFINISHED.match(path.name):
            yield path, LEFT_OVER


def _listed(folder: Path) -> list[Path]:
    try:
        return sorted(folder.iterdir())
    except OSError:
        return []


def _plain_folders(folder: Path) -> list[Path]:
    return [p for p in _listed(folder) if p.is_dir() and not p.is_symlink()]


def _look(path: Path, kind: str) -> Kept | None:
    """The entry at `path`; None where it is gone, a link, being written, or a folder for a file."""
    try:
        if path.is_symlink():
            return None
        status = path.stat()
        if kind == LEFT_OVER and time.time() - status.st_mtime < _AT_WORK:
            return None
        if path.is_dir():
            if kind not in _FOLDERS and kind != LEFT_OVER:
                return None
            size = sum(p.stat().st_size for p in path.rglob("*") if p.is_file())
        elif kind in _FOLDERS:
            return None
        else:
            size = status.st_size
            kind = _kind_of(path) if kind == BUILT else kind
    except OSError:
        return None
    return Kept(path, kind, size, status.st_mtime)


def _kind_of(path: Path) -> str:
    """What the first line of a built file says that it is."""
    try:
        with path.open("rb") as file:
            meta = json.loads(file.readline())["meta"]
        if "real_fingerprint" in meta:
            return "nvcc"
        return str(meta.get("kind", BUILT))
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return BUILT


def fault_of(root: Path, kept: Kept) -> str:
    """Why an entry is broken, "" for a whole one. What the format allows is checked: hashes where there are any."""
    try:
        if kept.path.suffix == ".entry":
            whole = Cache(root).get(kept.path.stem) is not None
        elif kept.kind == TEMPLATES:
            content = kept.path.read_bytes()
            whole = hashlib.sha256(content[32:]).digest() == content[:32]
        elif kept.kind == GRAMMAR:
            _, _, rest = kept.path.read_bytes().partition(b"\n")
            digest, _, body = rest.partition(b"\n")
            whole = digest == hashlib.sha256(body).hexdigest().encode()
        elif kept.kind == TUNING:
            return _tuning_fault(kept.path)
        elif kept.kind == LIBRARY:
            whole = _is_whole_library(kept.path.read_bytes())
        elif kept.kind == EMULATOR:
            return "" if (kept.path / "complete").is_file() else "it is not complete"
        elif kept.kind == FAULT:
            return "" if (kept.path / "about.json").is_file() else "`about.json` is missing"
        else:
            return "the process that wrote it was stopped"
    except OSError as error:
        return f"it cannot be read: {(error.strerror or str(error)).lower()}"
    return "" if whole else "its bytes are not those that were written"


def _is_whole_library(content: bytes) -> bool:
    """Whether a library ends where its table of sections does (ELF64, figure 4-3: at `e_shoff`, `e_shnum` of `e_shentsize` bytes); it
    carries no hash, for the loader reads it where it lies."""
    if len(content) < 64 or content[:4] != b"\x7fELF":
        return False
    (begin,) = struct.unpack_from("<Q", content, 40)
    size, count = struct.unpack_from("<HH", content, 58)
    return bool(begin + size * count <= len(content))


def _tuning_fault(path: Path) -> str:
    """What is wrong with a file of tuning records, which carries no hash but that of its subject."""
    from tilec.tuning.records import read_records

    text = path.read_bytes().decode("utf-8", errors="replace")
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            json.loads(line)
        except ValueError:
            return f"line {number} is not JSON"
    return "" if path.stem in read_records(text) else "it has no subject of its name"


def remove(root: Path, entries: list[Kept]) -> None:
    """Remove entries, then those folders of the cache that are empty; what is gone already is fine. Raises TileError (E0721)."""
    for kept in entries:
        try:
            if kept.path.is_dir():
                shutil.rmtree(kept.path)
            else:
                kept.path.unlink(missing_ok=True)
        except FileNotFoundError:
            continue
        except OSError as error:
            reason = (error.strerror or str(error)).lower()
            raise fail("E0721", f"cannot remove `{kept.path}`: {reason}") from error
    for folder in sorted({kept.path.parent for kept in entries}):
        while folder != root and folder.is_relative_to(root):
            with contextlib.suppress(OSError):
                os.rmdir(folder)
            folder = folder.parent
