"""The CUDA of every sample that compiles, as files; `--update` rewrites them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import compile_file
from tilec.source.diagnostics import TileError

HERE = Path(__file__).resolve().parent
SAMPLES = sorted((HERE.parents[1] / "samples").glob("*.tile"))
NOT_YET = {"E0510", "E0512", "E0513", "E0514"}
"""Codes of what has no CUDA form yet, or none for the default architecture."""


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda path: path.stem)
def test_the_text_is_the_golden_one(sample: Path, request: pytest.FixtureRequest) -> None:
    path = HERE / f"{sample.stem}.cu"
    try:
        text = compile_file(str(sample), command=f"tilec compile {sample.name} --arch sm_80").cu
    except TileError as error:
        assert {d.code for d in error.diagnostics} <= NOT_YET
        assert not path.exists(), f"{path.name} is golden, and {sample.name} no longer compiles"
        return
    if request.config.getoption("--update"):
        path.write_text(text, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == text, "run `make golden` and read the difference"
