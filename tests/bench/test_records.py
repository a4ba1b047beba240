"""The head and the rows of a benchmark's file."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from bench.records import command, of_commit, write_rows


def test_a_file_names_its_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["/somewhere/bench/rows.py", "--out", "a file.json"])
    assert command() == "python bench/rows.py --out 'a file.json'"
    head = of_commit("a GPU")
    assert (head["command"], head["gpu"]) == (command(), "a GPU") and "commit" in head
    write_rows(tmp_path / "r.json", head, [{"case": n} for n in "ab"])
    text = (tmp_path / "r.json").read_text(encoding="utf-8")
    assert json.loads(text) == {**head, "rows": [{"case": "a"}, {"case": "b"}]}
