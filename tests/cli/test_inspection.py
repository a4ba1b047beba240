"""`tilec profile` and `tilec explain` as commands."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tilec.cli import main

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    out, err = capsys.readouterr()
    return int(stopped.value.code or 0), out, err


def test_explain(capsys: pytest.CaptureFixture[str]) -> None:
    sample = str(SAMPLES / "gemm.tile")
    status, out, err = run(capsys, "explain", sample, "gemm_nt", "-D", "BM=64", "--arch", "sm_90")
    assert (status, err) == (0, "")
    assert out.startswith(
        "kernel gemm_nt for sm_90\n  chosen: T = bf16 (default), BM = 64 (option)"
    )


def test_explain_without_nvcc(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TILEC_NVCC", "/no/nvcc")
    assert run(capsys, "explain", str(SAMPLES / "vector_add.tile"))[0] == 0


def test_profile(capsys: pytest.CaptureFixture[str]) -> None:
    sample = str(SAMPLES / "vector_add.tile")
    status, out, _ = run(capsys, "profile", sample, "--arch", "sm_90", "--ncu", "off", "--json")
    assert status == 0
    data = json.loads(out)
    assert [k["arch"] for k in data["kernels"]] == ["sm_90"] * len(data["kernels"])
    assert data["launches"][0]["source"] == "estimated"


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (("profile", "none.tile"), 2, "E0703"),
        (("explain", "none.tile"), 2, "E0703"),
        (("profile", str(SAMPLES / "gemm.tile"), "gemm_tt"), 2, "E0706"),
        (("explain", str(SAMPLES / "gemm.tile"), "-D", "Q=1"), 2, "E0751"),
        (("explain", str(SAMPLES / "gemm.tile"), "--arch", "sm_1"), 2, "E0707"),
        (("profile", str(SAMPLES / "gemm.tile"), "--nvcc", "/no/nvcc"), 3, "E0801"),
    ],
)
def test_errors(
    arguments: tuple[str, ...], status: int, code: str, capsys: pytest.CaptureFixture[str]
) -> None:
    found, out, err = run(capsys, *arguments)
    assert (found, out) == (status, "")
    assert err.startswith(f"error[{code}]")
    found, _, err = run(capsys, *arguments, "--json-diagnostics")
    assert json.loads(err)[0]["code"] == code
