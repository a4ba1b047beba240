"""`samples/compiled.txt` is what the Makefile builds: it names exactly the kernels that compile."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import compile_file
from tilec.source.diagnostics import TileError
from tilec.syntax import ast
from tilec.syntax.loading import load
from tilec.targets.table import DEFAULT_ARCH

SAMPLES = Path(__file__).resolve().parent.parent / "samples"
FILES = sorted(SAMPLES.glob("*.tile"))


def listed() -> dict[tuple[str, str], str]:
    """The least architecture of each kernel by file and name."""
    lines = (SAMPLES / "compiled.txt").read_text(encoding="utf-8").splitlines()
    found = [line.split() for line in lines if not line.startswith("#")]
    assert found == sorted(found)
    return {(words[0], words[1]): words[2] if words[2:] else DEFAULT_ARCH for words in found}


@pytest.mark.parametrize("path", FILES, ids=lambda p: p.stem)
def test_the_list_names_what_compiles(path: Path) -> None:
    kernels = [item.name for item in load(str(path)).main.items if isinstance(item, ast.Kernel)]
    assert kernels
    compiled: set[tuple[str, str]] = set()
    for kernel in kernels:
        try:
            arch = listed().get((path.name, kernel), DEFAULT_ARCH)
            compile_file(str(path), kernel=kernel, archs=(arch,), stop="kernel-ir")
        except TileError as error:
            codes = {d.code for d in error.diagnostics if d.level == "error"}
            assert codes and all(code.startswith("E05") for code in codes), kernel
        else:
            compiled.add((path.name, kernel))
    assert compiled == {pair for pair in listed() if pair[0] == path.name}


def test_the_list_names_samples() -> None:
    assert {file for file, _ in listed()} <= {path.name for path in FILES}
