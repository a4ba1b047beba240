"""Codes E07 and E09: the command line, and results that did not verify."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {}
