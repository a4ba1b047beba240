"""Codes E02, E03, E04 and W02 to W04: names, extents, dtypes, presence."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {}
