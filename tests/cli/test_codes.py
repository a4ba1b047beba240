"""Every code of the command line and of running is explained and tested."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.source.codes import command, running

CODES = {**command.CODES, **running.CODES}
TESTS = Path(__file__).resolve().parents[1]


@pytest.mark.parametrize("code", sorted(CODES))
def test_it_is_explained_and_tested(code: str) -> None:
    entry = CODES[code]
    assert len(entry.explanation) > len(entry.title) > 0
    assert entry.title[0].islower() or entry.title.startswith("GPU")
    folders = ("calling", "cli", "jobs", "runtime", "tuning")
    tests = [p.read_text() for f in folders for p in sorted((TESTS / f).glob("test_*.py"))]
    assert any(f'"{code}"' in text or f"[{code}]" in text for text in tests)
