"""Codes E05, E06 and W06: what is not compiled yet, resources of a target, performance warnings."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {}
