"""Which loops rescale, so that no result shows where their rows' references are."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.passes.test_schedule import ATTENTION, changed
from tilec.compiler import analyse_file
from tilec.ir.rescaled import rescaled_operands, rescalings
from tilec.ir.tile_ir import Program


def analysed(text: str, folder: Path) -> Program:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    _, (found, *_), _ = analyse_file(str(path), defines={}, arch="sm_90a")
    return found.program


NEW = "            m_new ="
RESCALES = {
    "attention": ATTENTION,
    "no guard for rows of nothing": changed(
        ("where(m_new == -inf, 0.0, m_new)", "m_new"), ("where(l == 0.0, 1.0, l)", "l")
    ),
    "the result in bits": changed(
        ("m + log(l)", "m * 1.4426950408889634 + log2(l)"),
    ),
    "no log-sum": changed(("m + log(l)", "where(l > 0.0, 1.0, 0.0)")),
    "f16": ATTENTION.replace("bf16", "f16"),
    "weights that are masked for the product alone": changed(
        ("p.to(bf16)", "where(i[:, None] >= j[None, :], p * 2.0, 0.0).to(bf16)")
    ),
    "another carried name": changed(
        ("        l = zeros(f32, i)\n", "        l = zeros(f32, i)\n        n = 0.0\n"),
        ("            m = m_new\n", "            m = m_new\n            n = n + 1.0\n"),
        ("m + log(l)", "m + log(l) + n"),
    ),
    "sums that begin with a number": changed(
        ("zeros(f32, i)\n", "full(f32, 1.0, i)\n"), ("where(l == 0.0, 1.0, l)", "l")
    ),
}  # fmt: skip
SHOWS = {
    "the maximum is stored": changed(("m + log(l)", "m")),
    "the maximum as it comes": changed(("m + log(l)", "m + log(l) * 2.0")),
    "another unit": changed(("m + log(l)", "m + log2(l)")),
    "the sum is stored": changed(("m + log(l)", "l")),
    "weighted values are stored": changed(("acc / where(l == 0.0, 1.0, l)[:, None]", "acc")),
    "a maximum that is compared with a number": changed(("m + log(l)", "where(m > 3.0, 1.0, 0.0)")),
    "a sum that is compared with a number": changed(("m + log(l)", "where(l > 3.0, 1.0, 0.0)")),
    "a sum that has a least size": changed(
        ("where(l == 0.0, 1.0, l)", "maximum(l, 0.00001)")
    ),
    "squares of weights": changed(("sum(p, axis=1)", "sum(p * p, axis=1)")),
    "values that are not rescaled": changed(("acc * alpha[:, None] + ", "acc + ")),
    "a sum that is not rescaled": changed(("l * alpha + ", "l + ")),
    "another function of weights": changed(("p.to(bf16)", "(p + 1.0).to(bf16)")),
    "weights that nobody adds up": changed(
        ("sum(p, axis=1)", "sum(where(i[:, None] >= j[None, :], p, 0.0), axis=1)"),
    ),
    "weights of 8 bits": changed(
        ("p.to(bf16)", "p.to(f8e4m3).to(bf16)"),
    ),
    "rounded weights that are added up": changed(
        ("sum(p, axis=1)", "sum(p, axis=1) + sum(p.to(bf16).to(f32), axis=1)")
    ),
    "what stands for a sum of nothing, where that is another sum's": changed(
        ("        l = zeros(f32, i)\n", "        l = zeros(f32, i)\n        w = zeros(f32, i)\n"),
        ("            m = m_new\n", "            w = w * alpha + sum(p * 0.5, axis=1)\n            m = m_new\n"),
        ("where(l == 0.0, 1.0, l)", "where(w == 0.0, 1.0, w)"),
    ),
    "the sum of scores with their weights": changed(
        ("        l = zeros(f32, i)\n", "        l = zeros(f32, i)\n        w = zeros(f32, i)\n"),
        ("            m = m_new\n", "            w = w + sum(p * s, axis=1)\n            m = m_new\n"),
        ("m + log(l)", "w"),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(RESCALES))
def test_results_do_not_show_the_reference(name: str, tmp_path: Path) -> None:
    program = analysed(RESCALES[name], tmp_path)
    ((found,),) = (rescalings(nest) for nest in program.nests)
    assert found.operands == rescaled_operands(program) != frozenset()
    assert found.weight not in found.operands and found.running in found.loop.carried


@pytest.mark.parametrize("name", list(SHOWS))
def test_something_shows_the_reference(name: str, tmp_path: Path) -> None:
    program = analysed(SHOWS[name], tmp_path)
    assert [rescalings(nest) for nest in program.nests] == [()]
    assert rescaled_operands(program) == frozenset()


def test_strict_programs_round_where_they_say(tmp_path: Path) -> None:
    strict = changed(("    for i in parallel", "    schedule math = strict\n    for i in parallel"))
    program = analysed(strict, tmp_path)
    assert rescalings(program.nests[0]) and not rescaled_operands(program)
