"""The programs of tests/known_faults on the emulator: outputs poisoned, guard bands, races and bounds checked."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.known_faults.cases import texts
from tilec.jobs.running import RunRequest, run_files

TEXTS = texts()


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_runs_and_verifies(name: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / f"{name}.tile"
    path.write_text(TEXTS[name], encoding="utf-8")
    status = run_files(RunRequest(file=str(path), device="cpu"))
    assert status == 0, capsys.readouterr().err
