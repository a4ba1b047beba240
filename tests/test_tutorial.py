"""The tutorial runs as it stands, and the page for those who come from elsewhere compiles."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tests.tutorial import blocks, run_page
from tilec.compiler import compile_file

DOCS = Path(__file__).resolve().parents[1] / "docs"


def test_the_tutorial(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    left_out = run_page(DOCS / "tutorial.md", tmp_path)
    said = capsys.readouterr().out
    assert "kernel attention for sm_90" in said
    assert "`require C <= 65536` does not hold for C = 200000" in said
    assert len(left_out) in (0, 2)
    assert sorted(p.name for p in tmp_path.glob("softmax.*")) == [
        "softmax.cu",
        "softmax.h",
        "softmax.tile",
    ]


def test_a_page_that_is_wrong_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("```console\n$ tilec --version\nanother program\n```\n")
    with pytest.raises(AssertionError, match=r"page.md:2: `tilec --version` does not say"):
        run_page(page, tmp_path)
    page.write_text("text\n\n```python\nx = 1\n```\n\n```python\nassert x == 2\n```\n")
    with pytest.raises(AssertionError) as error:
        run_page(page, tmp_path)
    assert error.traceback[-1].lineno + 1 == 8


def test_programs_side_by_side(tmp_path: Path) -> None:
    page = (DOCS / "coming-from.md").read_text(encoding="utf-8")
    kinds = [b.kind for b in blocks(page)]
    assert kinds.count("python") >= 6
    ours = [b for b in blocks(page) if b.kind == "" and re.match(r"(kernel|fn)\b", b.text)]
    assert len(ours) >= 4
    for block in blocks(page):
        if block.kind == "python":
            ast.parse(block.text)
    for number, block in enumerate(ours):
        path = tmp_path / f"program_{number}.tile"
        path.write_text(block.text, encoding="utf-8")
        compiled = compile_file(str(path), archs=("sm_90",))
        assert compiled.kernels and compiled.diagnostics == ()
