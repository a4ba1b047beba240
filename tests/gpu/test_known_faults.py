"""The programs of tests/known_faults on the GPU: outputs poisoned, guard bands, exact."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.known_faults.cases import texts
from tilec.jobs.running import RunRequest, run_files
from tilec.toolchain.driver import query_driver

TEXTS = texts()

pytestmark = pytest.mark.skipif(
    not query_driver().devices,
    reason=f"no GPU: would run the kernels of {', '.join(sorted(TEXTS))} and verify every element",
)


@pytest.mark.parametrize("size", ["cpu", "ragged"])
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_runs_and_verifies(
    name: str, size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / f"{name}.tile"
    path.write_text(TEXTS[name], encoding="utf-8")
    how = {"small": True} if size == "ragged" else {"size": "cpu"}
    status = run_files(RunRequest(file=str(path), device="gpu", **how))
    assert status == 0, capsys.readouterr().err
