"""Shell completion."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def complete(*words: str) -> list[str]:
    """What bash is told about the last of `words`."""
    variables = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "_TILEC_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    command = [sys.executable, "-m", "tilec"]
    done = subprocess.run(command, env=variables, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.split()


def test_commands_options_and_files() -> None:
    assert complete("tilec", "comp") == ["plain,compile"]
    assert complete("tilec", "cache", "ver") == ["plain,verify"]
    assert complete("tilec", "compile", "--if") == ["plain,--if-changed"]
    assert complete("tilec", "run", "--device", "g") == ["plain,gpu"]
    assert complete("tilec", "compile", "sam") == ["file,sam"]
    assert complete("tilec", "nothing") == []


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_each_shell(tilec, monkeypatch, shell) -> None:
    monkeypatch.setenv("_TILEC_COMPLETE", f"{shell}_source")
    status, out, _ = tilec()
    assert status == 0
    assert f"_TILEC_COMPLETE={shell}_complete" in out


def test_bash_completes_a_command(tmp_path: Path) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("there is no bash: would complete `tilec comp` in it")
    program = tmp_path / "tilec"
    program.write_text(f'#!/bin/sh\nPYTHONPATH={ROOT} exec {sys.executable} -m tilec "$@"\n')
    program.chmod(0o755)
    script = (
        'eval "$(_TILEC_COMPLETE=bash_source tilec)"; COMP_WORDS=(tilec comp); COMP_CWORD=1; '
        '_tilec_completion tilec comp; echo "${COMPREPLY[@]}"'
    )
    done = subprocess.run(
        [bash, "-c", script],
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "compile\n"


def test_the_document_names_each_shell() -> None:
    text = (ROOT / "docs" / "cli.md").read_text(encoding="utf-8")
    assert all(f"_TILEC_COMPLETE={shell}_source tilec" in text for shell in ("bash", "zsh", "fish"))
