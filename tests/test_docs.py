"""The documents: programs in them parse, links work, make targets that they name exist."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from tilec.analysis.functions import FUNCTIONS
from tilec.compiler import compile_file
from tilec.ir.dtypes import DTYPES
from tilec.source.codes import CODES
from tilec.source.diagnostics import Sink
from tilec.source.error_index import error_index
from tilec.source.text import Source
from tilec.syntax.formatting import format_text
from tilec.syntax.parser import parse

ROOT = Path(__file__).resolve().parents[1]
DOCUMENTS = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *ROOT.glob("docs/**/*.md")])


def name(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def programs(document: Path) -> list[str]:
    blocks = re.findall(r"^```(\w*)\n(.*?)^```", document.read_text(), re.M | re.S)
    return [b for kind, b in blocks if not kind and re.match(r"(kernel|fn|const|import)\b", b)]


def test_programs_parse() -> None:
    count = 0
    for document in DOCUMENTS:
        for block in programs(document):
            sink = Sink()
            parse(Source(name(document), block), sink)
            assert sink.diagnostics == []
            count += 1
    assert count >= 9


def test_programs_are_formatted() -> None:
    blocks = [block for document in DOCUMENTS for block in programs(document)]
    assert blocks == [format_text(Source("block", block)) for block in blocks]
    assert len(blocks) >= 9


def test_programs_of_the_language_reference_compile(tmp_path: Path) -> None:
    found = programs(ROOT / "docs" / "language.md")
    assert len(found) >= 8
    for number, program in enumerate(found):
        path = tmp_path / f"program_{number}.tile"
        path.write_text(program, encoding="utf-8")
        compiled = compile_file(str(path), archs=("sm_90",))
        assert compiled.kernels and compiled.diagnostics == ()


def test_the_language_reference_names_every_function_and_clause() -> None:
    text = (ROOT / "docs" / "language.md").read_text(encoding="utf-8")
    words = set(re.findall(r"\w+", " ".join(re.findall(r"`([^`\n]+)`", text))))
    assert sorted(set(FUNCTIONS) - words) == []
    assert sorted(set(DTYPES) - words) == []


@pytest.mark.parametrize("document", DOCUMENTS, ids=name)
def test_links_work(document: Path) -> None:
    text = document.read_text()
    headings = {
        re.sub(r"[^\w\- ]", "", h.lower()).replace(" ", "-")
        for h in re.findall(r"^#+ (.*)$", text, re.M)
    }
    prose = re.sub(r"^```.*?^```|`[^`\n]*`", "", text, flags=re.M | re.S)
    for target in re.findall(r"\]\(([^)]+)\)", prose):
        if target.startswith("#"):
            assert target[1:] in headings
        elif not target.startswith("https:"):
            assert (document.parent / target.partition("#")[0]).exists(), target


def test_make_targets_that_documents_name() -> None:
    (phony,) = re.findall(r"^\.PHONY: (.*)$", (ROOT / "Makefile").read_text(), re.M)
    named = {
        t for d in DOCUMENTS for t in re.findall(r"(?:`|^)make ([a-z-]+)", d.read_text(), re.M)
    }
    assert named
    assert named <= set(phony.split())


def test_the_index_of_messages_is_up_to_date() -> None:
    page = error_index()
    assert (ROOT / "docs" / "errors.md").read_text(encoding="utf-8") == page, "run `make errors`"
    assert re.findall(r"^### (\w+):", page, re.M) == sorted(CODES)


def test_the_tables_of_ratios_are_those_of_the_files() -> None:
    check = [sys.executable, "-S", str(ROOT / "bench" / "summary.py"), "--check"]
    assert subprocess.run(check, check=False, capture_output=True, text=True).stderr == ""


def test_the_readme_says_where_the_templates_are() -> None:
    assert "## Where are the GEMM and attention templates?" in (ROOT / "README.md").read_text()


@pytest.mark.parametrize("code", sorted(c for c in CODES if c.startswith(("E08", "E70"))))
def test_every_code_of_the_toolchain_is_explained_and_tested(code: str) -> None:
    entry = CODES[code]
    assert len(entry.explanation) > len(entry.title)
    tests = "".join(p.read_text() for p in sorted((ROOT / "tests").glob("*/test_*.py")))
    assert f'"{code}"' in tests
