"""Commands in a folder of their own, with the front half of the compiler."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.jobs.front_half import compile_front
from tilec.cli import main

SOURCE = """\
import "parts.tile"
kernel scaled[BN = 64](x: f32[N], scale: f32) -> y: f32[N]:
    require N % 4 == 0
    for i in parallel(N by BN):
        y[i] = twice(x[i]) * scale
    check y == x * 2.0 * scale
    example N = 1000, scale = 0.5
    example cpu N = 100, scale = 0.5

kernel copied[BN = 32](x: f32[N]) -> y: f32[N]:
    for i in parallel(N by BN):
        y[i] = x[i]
    check y == x
    example cpu N = 33
"""
PARTS = "fn twice(v):\n    return v + v\n"

Command = Callable[..., tuple[int, str, str]]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """The current folder, with `a.tile` and what it imports."""
    (tmp_path / "a.tile").write_text(SOURCE)
    (tmp_path / "parts.tile").write_text(PARTS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("tilec.compiler.compile_file", compile_front, raising=False)
    return tmp_path


@pytest.fixture
def tilec(folder, capsys) -> Command:
    """Runs a command line; returns exit status, standard output and standard error."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return run
