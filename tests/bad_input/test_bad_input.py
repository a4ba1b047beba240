"""Bad input through the command line: a coded message, the right exit status, no traceback, no file."""

from __future__ import annotations

import os
import re
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tilec.cli import main

GOOD = "kernel k(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 64):\n        y[i] = x[i]\n    check y == x\n    example cpu N = 65\n"
BODY = "kernel k(x: f32[N], z: f32[M]) -> y: f32[N]:\n    for i in parallel(N by 64):\n        y[i] = {}\n"

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def tilec(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    """Runs a command line in an empty folder; (exit status, standard output, standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path.parent / "cache"))

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stopped:
            main(arguments)
        out, err = capsys.readouterr()
        return int(stopped.value.code or 0), out, err

    return run


def refused(result: tuple[int, str, str], code: str, status: int) -> None:
    exit_status, out, err = result
    assert exit_status == status, err
    assert f"error[{code}]" in err
    assert "Traceback" not in err + out
    assert len(re.findall(r"^error", err, re.MULTILINE)) <= 21


PROGRAMS = {
    "unknown name": (BODY.format("x[i] + w"), "E0201"),
    "unknown function": (BODY.format("foo(x[i])"), "E0201"),
    "shape mismatch": (BODY.format("x[i] + z[span(0, 32)]"), "E0312"),
    "wrong number of indices": (BODY.format("x[i, i]"), "E0302"),
    "undefined dimension": ("kernel k(x: f32[N // G]) -> y: f32[N]:\n    for i in parallel(N by 8):\n        y[i] = 0.0\n", "E0204"),
    "recursion": ("fn f(x):\n    return f(x)\n" + BODY.format("f(x[i])"), "E0206"),
    "mutual recursion": ("fn f(x):\n    return g(x)\nfn g(x):\n    return f(x)\n" + BODY.format("f(x[i])"), "E0206"),
    "tile too large": (
        "kernel k(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 1048576):\n        t = zeros(f32, i)\n"
        "        for n in range(2):\n            t = t + x[i].fill(0.0)\n        y[i] = t\n",
        "E0601",
    ),
    "unbounded row": ("kernel k(x: f32[R, C]) -> y: f32[R]:\n    for r in parallel(R):\n        y[r] = sum(x[r, :])\n", "E0303"),
    "quotes as a name": ('kernel "k"(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 8):\n        y[i] = x[i]\n', "E0101"),
    "empty file without kernels": ("kernel\n", "E0101"),
}  # fmt: skip


@pytest.mark.parametrize("what", PROGRAMS)
def test_programs(what: str, tilec: Run, tmp_path: Path) -> None:
    text, code = PROGRAMS[what]
    (tmp_path / "p.tile").write_text(text)
    refused(tilec("compile", "p.tile", "-o", "out.cu"), code, 1)
    if not code.startswith("E06"):  # the interpreter has no registers to run out of
        refused(tilec("run", "p.tile", "--device", "reference"), code, 1)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["p.tile"]


def _limited(arguments: list[str], cwd: Path) -> subprocess.CompletedProcess[str]:
    """A process of its own with at most 500 MB."""
    limit = 500 << 20
    return subprocess.run(
        [sys.executable, "-m", "tilec", *arguments],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_DATA, (limit, limit)),
        env={**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])},
    )


HOSTILE = {
    "garbage": b"@#$ kernel ( ] \xc3\xa9 := 12 'x' \n" * (10 * 1024 * 1024 // 33),
    "one line of garbage": b"(" * (10 * 1024 * 1024),
    "deep nesting": b"kernel k(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 8):\n        y[i] = "
    + b"(" * 10_000 + b"x[i]" + b")" * 10_000 + b"\n",
    "deep blocks": b"kernel k(x: f32[N]) -> y: f32[N]:\n"
    + b"".join(b" " * n + b" if true:\n" for n in range(3000)),
    "NUL bytes": b"kernel k\0(x: f32[N]) -> y: f32[N]:\n\0\0",
    "no text": b"\xff\xfe\x00\x01" * 100,
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_hostile_files(what: str, tmp_path: Path) -> None:
    (tmp_path / "p.tile").write_bytes(HOSTILE[what])
    begin = time.monotonic()
    done = _limited(["compile", "p.tile", "-o", "out.cu"], tmp_path)
    assert time.monotonic() - begin < 5
    assert done.returncode == 1, done.stderr[-2000:]
    assert "error[E0" in done.stderr
    assert "Traceback" not in done.stderr
    assert len(re.findall(r"^error", done.stderr, re.MULTILINE)) <= 21
    assert len(done.stderr) < 100_000
    assert not (tmp_path / "out.cu").exists()


def test_output_paths(tilec: Run, tmp_path: Path) -> None:
    (tmp_path / "p.tile").write_text(GOOD)
    exit_status, _, err = tilec("compile", "p.tile", "-o", "missing/out.cu")
    assert exit_status in (2, 3)
    assert "error[E0" in err
    assert "Traceback" not in err
    assert not (tmp_path / "missing").exists()
    (tmp_path / "folder").mkdir()
    exit_status, _, err = tilec("compile", "p.tile", "-o", "folder")
    assert exit_status in (2, 3)
    assert "error[E0" in err
    exit_status, _, err = tilec("compile", "p.tile", "-o", "/proc/out.cu")
    assert exit_status in (2, 3)
    assert "error[E0" in err
    assert sorted(p.name for p in tmp_path.iterdir()) == ["folder", "p.tile"]


def test_no_partial_set_of_files(tilec: Run, tmp_path: Path) -> None:
    (tmp_path / "p.tile").write_text(GOOD)
    exit_status, _, _ = tilec("compile", "p.tile", "-o", "out.cu", "--header", "missing/out.h")
    assert exit_status != 0
    assert [p.name for p in tmp_path.iterdir()] == ["p.tile"]


def test_an_old_output_survives_an_error(tilec: Run, tmp_path: Path) -> None:
    (tmp_path / "p.tile").write_text("kernel k(")
    (tmp_path / "out.cu").write_text("old")
    assert tilec("compile", "p.tile", "-o", "out.cu")[0] == 1
    assert (tmp_path / "out.cu").read_text() == "old"


def test_no_nvcc(tilec: Run, tmp_path: Path) -> None:
    (tmp_path / "p.tile").write_text(GOOD)
    refused(
        tilec("compile", "p.tile", "--emit", "cubin", "--nvcc", str(tmp_path / "none")), "E0801", 3
    )
    assert [p.name for p in tmp_path.iterdir()] == ["p.tile"]


def test_no_gpu(tilec: Run, tmp_path: Path) -> None:
    from tilec.toolchain.driver import query_driver

    (tmp_path / "p.tile").write_text(GOOD)
    if query_driver().devices:
        assert tilec("run", "p.tile", "--device", "gpu", "--size", "cpu")[0] == 0
        return
    exit_status, _, err = tilec("run", "p.tile", "--device", "gpu")
    assert exit_status == 3
    assert "error[E0" in err


def test_command_lines(tilec: Run, tmp_path: Path) -> None:
    (tmp_path / "p.tile").write_text(GOOD)
    refused(tilec("compile", "none.tile"), "E0703", 2)
    refused(tilec("compile", "p.tile", "missing"), "E0706", 2)
    assert "did you mean `k`?" in tilec("compile", "p.tile", "kk")[2]
    assert "one of its kernels" in tilec("compile", "p.tile", "p.tile")[2]
    refused(tilec("compile", "p.tile", "-D", "B=1"), "E0751", 2)
    refused(tilec("compile", "p.tile", "--arch", "sm_1"), "E0707", 2)
    refused(tilec("run", "p.tile", "--device", "reference", "-s", "Q=1"), "E0712", 2)
    assert [p.name for p in tmp_path.iterdir()] == ["p.tile"]
