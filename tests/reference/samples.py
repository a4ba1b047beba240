"""The samples, analysed, with their example sizes."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from pathlib import Path

from tilec.analysis.analyse import analyse
from tilec.ir import tile_ir as ir
from tilec.plan.parameters import make_candidate
from tilec.source.diagnostics import Sink, render_all
from tilec.source.text import Source
from tilec.syntax import ast
from tilec.syntax.loading import Program as Files
from tilec.syntax.loading import load, load_source

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@dataclass(frozen=True)
class Sample:
    """A kernel of a file under its default candidate."""

    files: Files
    kernel: ast.Kernel
    program: ir.Program
    sizes: dict[str, int]
    scalars: dict[str, float | int]


@cache
def _files(path: Path) -> Files:
    return load(str(path))


WITHOUT_CHECK = {"dropout"}
"""Kernels that no formula in float64 states: products of 64 bits and exclusive or. The interpreter verifies them."""


def names() -> list[tuple[str, str]]:
    """(file, kernel) of every sample."""
    found = []
    for path in sorted(SAMPLES.glob("*.tile")):
        files = _files(path)
        found += [(path.name, k.name) for k in files.main.items if isinstance(k, ast.Kernel)]
    return found


@cache
def sample(file: str, name: str) -> Sample:
    """One sample at its `example cpu` size, or the other one made smaller."""
    return analysed(_files(SAMPLES / file), name)


def written(text: str, name: str, options: dict[str, str] | None = None) -> Sample:
    """A kernel from text."""
    return analysed(load_source(Source("test.tile", text)), name, options)


def analysed(files: Files, name: str, options: dict[str, str] | None = None) -> Sample:
    """A kernel of `files` as Tile IR. AssertionError with the messages where it has errors."""
    kernel = next(k for k in files.main.items if isinstance(k, ast.Kernel) and k.name == name)
    sink = Sink()
    candidate = make_candidate(kernel, files.scope(files.main), options or {}, sink)
    assert candidate is not None, render_all(sink.diagnostics)
    program = analyse(files, kernel, files.main, candidate, sink)
    assert program is not None, render_all(sink.diagnostics)
    sizes, scalars = example(kernel, program)
    return Sample(files, kernel, program, sizes, scalars)


def example(
    kernel: ast.Kernel, program: ir.Program
) -> tuple[dict[str, int], dict[str, float | int]]:
    """Sizes and scalars of the example for the CPU, else of the first with dimensions of 150 at most."""
    examples = [c for c in kernel.clauses if isinstance(c, ast.Example)]
    examples.sort(key=lambda e: e.device != "cpu")
    sizes: dict[str, int] = {}
    scalars: dict[str, float | int] = {}
    dims = {v.name for v in program.dims}
    for setting in examples[0].settings if examples else ():
        assert isinstance(setting.value, ast.Number)
        value = setting.value.value
        if setting.name.id in dims:
            sizes[setting.name.id] = int(value if examples[0].device == "cpu" else min(value, 150))
        else:
            scalars[setting.name.id] = value
    return sizes, scalars
