"""Analysing small programs in tests."""

from __future__ import annotations

from tilec.analysis.analyse import analyse
from tilec.analysis.checks import CheckProgram, analyse_checks
from tilec.ir.tile_ir import Block, For, If, Op, Program
from tilec.plan.parameters import make_candidate
from tilec.source.diagnostics import Diagnostic, Sink
from tilec.source.text import Source
from tilec.syntax import ast
from tilec.syntax.loading import load_source


def outcome(
    text: str, **options: str
) -> tuple[Program | None, CheckProgram | None, list[Diagnostic]]:
    """What plan and analysis make of the last kernel of a text."""
    files = load_source(Source("x.tile", text))
    kernel = [i for i in files.main.items if isinstance(i, ast.Kernel)][-1]
    sink = Sink()
    candidate = make_candidate(kernel, files.scope(files.main), options, sink)
    if candidate is None:
        return None, None, sink.diagnostics
    program = analyse(files, kernel, files.main, candidate, sink)
    checks = analyse_checks(files, kernel, files.main, candidate, sink)
    return program, checks, sink.diagnostics


def program(text: str, **options: str) -> Program:
    """The Tile IR of a text without mistakes."""
    result, _, diagnostics = outcome(text, **options)
    assert [d.render() for d in diagnostics] == []
    assert result is not None
    return result


def body(
    statements: str, head: str = "x: f32[N, M], y: f32[N], n: i32[N]", outputs: str = ""
) -> str:
    """A kernel around statements: `i` and `j` are spans of rows and columns, outputs `o` and `r` have the shapes of x and y."""
    lines = "".join(f"        {line}\n" for line in statements.strip().splitlines())
    out = outputs or "o: f32[N, M], r: f32[N]"
    return (
        f"kernel k[BM = 32, BN = 64, D = 16, T = f32]({head}) -> ({out}):\n"
        f"    require M <= 4096\n"
        f"    for i, j in parallel(N by BM, M by BN):\n{lines}"
    )


def stored(statements: str, **options: str) -> Program:
    """The Tile IR of `body(statements)`; outputs that are not stored are allowed."""
    result, _, diagnostics = outcome(body(statements), **options)
    assert [d.render() for d in diagnostics if d.level == "error"] == []
    assert result is not None
    return result


def ops(block: Block) -> list[Op]:
    """All ops, nested ones too, in order."""
    found: list[Op] = []
    for op in block.ops:
        found.append(op)
        if isinstance(op, For):
            found += ops(op.body)
        elif isinstance(op, If):
            found += ops(op.then) + ops(op.otherwise)
    return found
