"""`tilec new`."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tilec.compiler import compile_file


def test_the_program_compiles_and_verifies_as_it_is(tmp_path: Path) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "tilec", *arguments]
        root = Path(__file__).resolve().parents[2]
        return subprocess.run(
            command,
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            env={"PYTHONPATH": str(root), "PATH": "/usr/bin:/bin", "HOME": str(tmp_path)},
        )

    made = run("new", "row_norm")
    said = "wrote `row_norm.tile`; `tilec run row_norm.tile` runs and verifies it\n"
    assert (made.returncode, made.stdout, made.stderr) == (0, said, "")
    done = run("run", "row_norm.tile", "--device", "reference")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "row_norm" in done.stdout and "check: " in done.stdout and "1 ok" in done.stdout
    for arch in ("sm_75", "sm_90a"):
        compiled = compile_file(str(tmp_path / "row_norm.tile"), archs=(arch,))
        assert compiled.diagnostics == () and "row_norm" in compiled.header


def test_a_path_and_the_ending_may_be_given(tilec, folder) -> None:
    (folder / "sub").mkdir()
    assert tilec("new", "sub/norm.tile")[0] == 0
    assert "\nkernel norm(" in (folder / "sub" / "norm.tile").read_text()
    status, _, err = tilec("new", "gone/norm")
    assert (status, err.startswith("error[E0704]")) == (2, True)


def test_nothing_is_replaced(tilec, folder) -> None:
    before = (folder / "a.tile").read_text()
    status, out, err = tilec("new", "a")
    assert (status, out) == (2, "")
    assert err.startswith("error[E0722]: `a.tile` is there already\n")
    assert (folder / "a.tile").read_text() == before
    (folder / "link.tile").symlink_to(folder / "nowhere")
    assert "error[E0722]" in tilec("new", "link")[2]
    assert not (folder / "nowhere").exists()


@pytest.mark.parametrize("name", ["for", "sum", "row-norm", "2d", "", "größe", "a b", "sub/"])
def test_names_that_no_kernel_can_have(tilec, folder, name) -> None:
    before = sorted(folder.iterdir())
    status, out, err = tilec("new", name)
    assert (status, out) == (2, "")
    assert err.startswith("error[E0722]: no kernel can have the name `")
    assert sorted(folder.iterdir()) == before


@pytest.mark.parametrize("name", ["x", "R", "row", "kernel", "main", "std"])
def test_names_that_only_look_taken(tilec, folder, name) -> None:
    assert tilec("new", name)[0] == 0
    assert compile_file(str(folder / f"{name}.tile")).diagnostics == ()
