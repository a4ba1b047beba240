"""Runs the blocks of a Markdown page: files are written, commands run, Python executed. `python -m tests.tutorial PAGE` does it by hand."""

from __future__ import annotations

import contextlib
import importlib.util
import io
import os
import re
import shlex
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ON_GPU = "# on a GPU with PyTorch"
"""First line of a Python block that is left out elsewhere."""

ROOT = Path(__file__).resolve().parents[1]


@dataclass(frozen=True)
class Block:
    """One fenced block; `line` is that of its first line in the page."""

    kind: str
    text: str
    line: int


def blocks(page: str) -> list[Block]:
    """The fenced blocks in order."""
    return [
        Block(found[1], found[2], page.count("\n", 0, found.start()) + 2)
        for found in re.finditer(r"^```(\w*)\n(.*?)^```", page, re.M | re.S)
    ]


def run_page(page: Path, folder: Path) -> list[str]:
    """Run every block in `folder`, which becomes the current one meanwhile. Returns what was left out. Raises AssertionError with the
    line of the page."""
    names: dict[str, Any] = {"__name__": "tutorial"}
    left_out: list[str] = []
    with contextlib.chdir(folder) if hasattr(contextlib, "chdir") else _chdir(folder):
        for block in blocks(page.read_text(encoding="utf-8")):
            place = f"{page.name}:{block.line}"
            if block.kind == "console":
                _command(block.text, place)
            elif block.kind == "python":
                if block.text.startswith(ON_GPU) and not _gpu_with_torch():
                    left_out.append(f"{place}: needs a GPU and PyTorch")
                    continue
                _python(block, page, names)
            elif found := re.match(r"# file: (\S+)\n", block.text):
                Path(found[1]).write_text(block.text, encoding="utf-8")
    return left_out


@contextlib.contextmanager
def _chdir(folder: Path):
    before = Path.cwd()
    os.chdir(folder)
    try:
        yield
    finally:
        os.chdir(before)


def _gpu_with_torch() -> bool:
    import tilec

    return tilec.cuda_available() and importlib.util.find_spec("torch") is not None


def _python(block: Block, page: Path, names: dict[str, Any]) -> None:
    code = compile("\n" * (block.line - 1) + block.text, str(page), "exec")
    said = io.StringIO()
    with contextlib.redirect_stdout(said):
        exec(code, names)
    print(said.getvalue(), end="")


def _command(text: str, place: str) -> None:
    """Runs each line that begins with `$ `; the lines below it must stand in what it says, in this order."""
    for part in re.split(r"^\$ ", text, flags=re.M)[1:]:
        command, *expected = part.rstrip("\n").split("\n")
        words = shlex.split(command)
        assert words[0] == "tilec", f"{place}: `{words[0]}` is no command of this page"
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
        done = subprocess.run(
            [sys.executable, "-m", "tilec", *words[1:]],
            capture_output=True,
            text=True,
            check=False,
            env={**os.environ, "PYTHONPATH": path},
        )
        assert done.returncode == 0, f"{place}: `{command}` says {done.stderr}"
        print(f"$ {command}\n{done.stdout}", end="")
        position = 0
        for line in expected:
            found = done.stdout.find(line.strip(), position)
            assert found >= 0, f"{place}: `{command}` does not say `{line}` but\n{done.stdout}"
            position = found + len(line.strip())


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as made:
        for skipped in run_page(Path(sys.argv[1]).resolve(), Path(made)):
            print(f"left out: {skipped}")
