"""Samples of rows and elements on the emulator: their examples, and rows of other lengths."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes

SAMPLES = Path(__file__).parents[2] / "samples"


@pytest.mark.parametrize(
    "file", ["backward", "cross_entropy", "elements", "residual_norm_fp8", "dropout"]
)
def test_examples_verify(file: str, tmp_path: Path) -> None:
    for order in ({}, {"chaos": 1}):
        found = outcomes(tmp_path, file=str(SAMPLES / f"{file}.tile"), **order)
        assert {o["status"] for o in found} == {"ok"}


@pytest.mark.parametrize(
    ("file", "kernel", "sizes"),
    [
        ("backward", "softmax_backward", ("R=3", "C=2056")),
        ("backward", "rms_norm_backward", ("R=70", "C=136")),
        ("backward", "layer_norm_backward", ("R=3", "C=9001")),
        ("cross_entropy", "cross_entropy", ("R=2", "C=4096")),
        ("residual_norm_fp8", "residual_norm_fp8", ("R=3", "C=1001")),
        ("elements", "transpose", ("M=128", "N=192")),
        ("dropout", "dropout", ("N=4096",)),
    ],
)
def test_other_lengths(file: str, kernel: str, sizes: tuple[str, ...], tmp_path: Path) -> None:
    path = str(SAMPLES / f"{file}.tile")
    (found,) = outcomes(tmp_path, file=path, kernel=kernel, settings=sizes)
    assert found["status"] == "ok"
