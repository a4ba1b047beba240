"""What `tilec explain` says of every sample, as files; `--update` rewrites them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.conftest import Golden
from tilec.jobs.explaining import ExplainRequest, explain_file

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "samples").glob("*.tile"))


FOR_WARPGROUPS = ("attention", "gemm", "gemm_skinny")
"""Samples that are explained for sm_90a too."""


@pytest.mark.parametrize("name", FOR_WARPGROUPS)
def test_explain_warpgroups(name: str, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    file = str(ROOT / "samples" / f"{name}.tile")
    assert explain_file(ExplainRequest(file, arch="sm_90a", tuned=False)) == 0
    golden(ROOT / "tests/golden/explain" / f"{name}.sm_90a.txt", capsys.readouterr().out)


@pytest.mark.parametrize("sample", SAMPLES, ids=[s.stem for s in SAMPLES])
def test_explain(sample: Path, golden: Golden, capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_file(ExplainRequest(str(sample), arch="sm_90")) == 0
    said = capsys.readouterr().out
    assert "\n  chosen: " in said or "[" not in sample.read_text().partition("(")[0]
    golden(ROOT / "tests/golden/explain" / f"{sample.stem}.txt", said)
