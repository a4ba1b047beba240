"""What a search shows on a terminal and elsewhere."""

from __future__ import annotations

import io
import sys

import pytest

from tilec.tuning.progress import progress
from tilec.tuning.records import Found, Subject, Trial

SUBJECT = Subject("gemm", "p", {"M": 4}, {"M": 4}, {}, "H200", "sm_90", "13.0", "0.1.0")
TRIALS = [
    Trial({"BM": 64}, "ok", 12.0),
    Trial({"BM": 128}, "rejected", detail="E0603: too much"),
    Trial({"BM": 256}, "hang", detail="no result within 3 s"),
    Trial({"BM": 32}, "ok", 8.0),
]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(stream: io.StringIO) -> str:
    listener = progress(stream)
    found = Found(SUBJECT)
    listener.begin(SUBJECT, 5, 1)
    for number, trial in enumerate(TRIALS, 2):
        listener.built(number, 5)
        found.trials[str(number)] = trial
        listener.tried(trial, number, 5)
    listener.end(found, 3)
    return stream.getvalue()


def test_a_line_a_candidate_where_there_is_no_terminal() -> None:
    assert shown(io.StringIO()).splitlines() == [
        "gemm M=4: 5 candidates, 1 known",
        "[2/5] BM=64  ok  12.0 µs",
        "[3/5] BM=128  rejected  E0603: too much",
        "[4/5] BM=256  hang  no result within 3 s",
        "[5/5] BM=32  ok  8.0 µs",
        "3 nvcc calls, 1 candidates over a limit dropped before nvcc",
    ]


def test_bars_on_a_terminal_keep_what_failed() -> None:
    text = shown(Terminal())
    assert "gemm M=4: 5 candidates" in text
    assert "BM=256  hang" in text
    assert "BM=64" not in text
    assert "3 nvcc calls, 1 candidates over a limit dropped before nvcc" in text


def test_lines_on_a_terminal_without_rich(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("rich", "rich.console", "rich.progress"):
        monkeypatch.setitem(sys.modules, name, None)
    assert "[2/5] BM=64" in shown(Terminal())
