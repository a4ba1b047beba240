"""Codes E08 and E70: what the machine lacks, and faults of tilec itself."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {}
