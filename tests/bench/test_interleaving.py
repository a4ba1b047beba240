"""The timing loop that the benchmarks of rows share, with triton replaced by a clock."""

from __future__ import annotations

import importlib.util
import json
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]


def test_ratios_are_taken_within_a_round(monkeypatch: pytest.MonkeyPatch, capsys: Any) -> None:
    calls: list[tuple[int, int]] = []

    def do_bench(function: Callable[[], float], warmup: int, rep: int, return_mode: str) -> float:
        calls.append((warmup, rep))
        assert return_mode == "median"
        return function()

    triton: Any = ModuleType("triton")
    triton.testing = SimpleNamespace(do_bench=do_bench)
    monkeypatch.setitem(sys.modules, "triton", triton)
    monkeypatch.setitem(sys.modules, "triton.testing", triton.testing)
    spec = importlib.util.spec_from_file_location("interleaving", ROOT / "bench/interleaving.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    # ms of ours and of theirs by round: the second round runs at half the clock
    ours, theirs = iter([1.0, 2.0, 1.25]), iter([2.0, 4.0, 2.0])
    row = module.compare(
        "case", lambda: next(ours), lambda: next(theirs), 3e6, 2e6, 3, warmup=15, rep=60
    )
    assert row == {
        "case": "case",
        "ratio": 3.0,
        "worst": 2.4,
        "us": 1250.0,
        "torch_us": 2000.0,
        "tbps": 0.002,
    }
    assert json.loads(capsys.readouterr().out) == row
    assert calls == [(15, 60)] * 6
