"""A content-keyed cache on disk of what the toolchain built.

An entry is one file: a line of JSON that says what it is, then the bytes. It is published by a rename, so that two
processes may write the same entry at once; a damaged entry fails its hash and counts as absent. A folder that cannot
be written turns the cache off without a word: it is never needed for a result.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tilec.resources import cache_directory

FORMAT = "tilec-cache-1"
"""The form of an entry; another one counts as absent."""


@dataclass(frozen=True)
class Entry:
    """One cached result: `meta` is plain data that describes `blob`."""

    meta: dict[str, Any]
    blob: bytes


def cache_key(*parts: str | bytes) -> str:
    """SHA-256 over the parts, each preceded by its length, so that no two lists of parts share a key."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()


@dataclass(frozen=True)
class Cache:
    """The entries below `root`; None keeps nothing."""

    root: Path | None

    def path(self, key: str) -> Path | None:
        """Where the entry of `key` lies, whether it is there or not."""
        return self.root / key[:2] / f"{key}.entry" if self.root else None

    def get(self, key: str) -> Entry | None:
        """The entry of `key`, or None where it is absent, unreadable or damaged."""
        path = self.path(key)
        if path is None:
            return None
        try:
            head, newline, blob = path.read_bytes().partition(b"\n")
            header = json.loads(head)
            whole = (
                newline == b"\n"
                and header["format"] == FORMAT
                and header["key"] == key
                and header["sha256"] == hashlib.sha256(blob).hexdigest()
                and header["meta_sha256"] == _meta_hash(header["meta"])
            )
        except (OSError, ValueError, KeyError, TypeError):
            return None
        return Entry(header["meta"], blob) if whole else None

    def put(self, key: str, blob: bytes, meta: Mapping[str, Any]) -> None:
        """Publish an entry; does nothing where the folder cannot be written."""
        path = self.path(key)
        if path is None:
            return
        header = {
            "format": FORMAT,
            "key": key,
            "size": len(blob),
            "sha256": hashlib.sha256(blob).hexdigest(),
            "meta_sha256": _meta_hash(meta),
            "meta": dict(meta),
        }
        temporary = ""
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor, temporary = tempfile.mkstemp(dir=path.parent, prefix=".new-")
            with os.fdopen(descriptor, "wb") as file:
                file.write(json.dumps(header, sort_keys=True).encode() + b"\n" + blob)
            os.replace(temporary, path)
        except OSError:
            if temporary:
                with contextlib.suppress(OSError):
                    os.unlink(temporary)


def _meta_hash(meta: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def default_cache() -> Cache:
    """The user's cache, in `tilec.resources.cache_directory`."""
    return Cache(cache_directory())
