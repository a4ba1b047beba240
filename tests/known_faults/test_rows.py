"""Every program: interpreted and compared with its check, compiled, and accepted by nvcc without a warning."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.known_faults.cases import REASONS, ROWS, texts
from tilec.compiler import compile_file
from tilec.jobs.running import RunRequest, run_files
from tilec.source.diagnostics import TileError

TEXTS = texts()


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("programs")
    for name, text in TEXTS.items():
        (path / f"{name}.tile").write_text(text, encoding="utf-8")
    return path


def test_every_row_has_a_program_or_a_reason() -> None:
    kernels = set(re.findall(r"^kernel (\w+)", "\n".join(TEXTS.values()), re.MULTILINE))
    assert set(ROWS.values()) <= kernels
    assert not set(ROWS) & set(REASONS)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_the_interpreter_agrees_with_the_checks(
    name: str, folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TILEC_NVCC", str(folder / "no-nvcc"))
    status = run_files(RunRequest(file=str(folder / f"{name}.tile"), device="reference"))
    assert status == 0, capsys.readouterr().err
    assert "failed" not in capsys.readouterr().out


def _nvcc() -> str | None:
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin")


@pytest.mark.skipif(
    _nvcc() is None, reason="no nvcc: would build every program with all warnings as errors"
)
@pytest.mark.parametrize("name", sorted(TEXTS))
def test_nvcc_accepts_the_text(name: str, folder: Path) -> None:
    compiled = compile_file(str(folder / f"{name}.tile"))
    path = folder / f"{name}.cu"
    path.write_text(compiled.cu, encoding="utf-8")
    nvcc = _nvcc()
    assert nvcc is not None
    flags = ["-std=c++17", "-arch=compute_80", "-ptx", "-Xcicc", "-O0", "-Werror", "all-warnings"]
    done = subprocess.run(
        [nvcc, *flags, path.name, "-o", f"{name}.ptx"],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def _codes(tmp_path: Path, text: str) -> list[str]:
    path = tmp_path / "p.tile"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(TileError) as caught:
        compile_file(str(path))
    return [d.code for d in caught.value.diagnostics]


def test_a_tensor_of_two_dimensions_with_one_index_is_a_message(tmp_path: Path) -> None:
    source = "kernel k(x: f32[M, N]) -> y: f32[M, N]:\n    for i in parallel(M by 8):\n        y[i] = x[i]\n"
    assert "E0302" in _codes(tmp_path, source)


def test_a_tile_beyond_registers_is_a_message(tmp_path: Path) -> None:
    source = (
        "kernel k(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 262144):\n        t = zeros(f32, i)\n"
        "        for n in range(3):\n            t = t + x[i].fill(0.0)\n        y[i] = t\n"
    )
    assert _codes(tmp_path, source) == ["E0601"]


def test_names_that_are_one_in_cpp_are_a_message(tmp_path: Path) -> None:
    source = "kernel k(float: f32[N], float_: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 8):\n        y[i] = float[i] + float_[i]\n"
    assert _codes(tmp_path, source) == ["E0517"]
    two = (
        "kernel {}(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 8):\n        y[i] = x[i]\n"
    )
    assert _codes(tmp_path, two.format("f") + two.format("f_error")) == ["E0517"]
