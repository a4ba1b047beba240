"""The Tile IR of every sample."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.golden.conftest import Golden
from tilec.analysis.analyse import analyse
from tilec.ir.printer import print_program
from tilec.plan.parameters import make_candidate
from tilec.source.diagnostics import Sink
from tilec.syntax import ast
from tilec.syntax.loading import load

ROOT = Path(__file__).parents[2]
SAMPLES = sorted((ROOT / "samples").glob("*.tile"))


@pytest.mark.parametrize("sample", SAMPLES, ids=[s.stem for s in SAMPLES])
def test_tile_ir(sample: Path, golden: Golden) -> None:
    files = load(str(sample))
    texts: list[str] = []
    for kernel in files.main.items:
        if isinstance(kernel, ast.Kernel):
            sink = Sink()
            candidate = make_candidate(kernel, files.scope(files.main), {}, sink)
            assert candidate is not None
            program = analyse(files, kernel, files.main, candidate, sink)
            assert sink.diagnostics == []
            assert program is not None
            texts.append(print_program(program).rstrip() + "\n")
    assert texts
    golden(ROOT / "tests/golden/tile_ir" / f"{sample.stem}.txt", "\n".join(texts))
