"""The candidates of a `tune` clause."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import analyse_file
from tilec.ir.dtypes import BF16, F16
from tilec.plan.candidate import Candidate
from tilec.plan.parameters import TuningSpace, candidates, make_candidate, tuning_space
from tilec.source.diagnostics import Sink
from tilec.source.text import Source
from tilec.syntax import ast
from tilec.syntax.loading import load_source

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

TEXT = """\
const LIMIT = 128
kernel k[T = bf16, A = auto, B = 8](a: T[N, M], s: f32) -> c: T[N, M]:
    {clauses}
    for i, j in parallel(N by A, M by B):
        c[i, j] = a[i, j]
"""


def space_of(clauses: str, **options: str) -> tuple[TuningSpace | None, list[Candidate], Sink]:
    text = TEXT.replace("{clauses}", clauses.replace("\n", "\n    "))
    files = load_source(Source("x.tile", text))
    kernel = next(i for i in files.main.items if isinstance(i, ast.Kernel))
    sink = Sink()
    scope = files.scope(files.main)
    space = tuning_space(kernel, scope, options, sink)
    return space, candidates(kernel, scope, options, sink), sink


def values(clauses: str, **options: str) -> list[dict[str, object]]:
    space, _, sink = space_of(clauses, **options)
    assert [d.render() for d in sink.diagnostics] == []
    assert space is not None
    return [dict(c) for c in space.choices]


def test_every_combination_after_the_untuned_one() -> None:
    assert values("tune A in (16, 32), warps in (4, 8) key (N)") == [
        {},
        {"A": 16, "warps": 4},
        {"A": 16, "warps": 8},
        {"A": 32, "warps": 4},
        {"A": 32, "warps": 8},
    ]


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("A * B <= LIMIT", {16}),
        ("A > 16 and A * warps < 400", {32, 64}),
        ("A == 64 or A < stages", {64}),
        ("A > 1000", set()),
    ],
)
def test_where_excludes(where: str, expected: set[int]) -> None:
    found = values(f"tune A in (16, 32, 64), warps in (4,) where {where}")
    assert {c["A"] for c in found[1:]} == expected


def test_several_clauses_are_one_space() -> None:
    space, _, _ = space_of("tune A in (16, 32) key (N)\ntune B in (4, 8) where A > B key (M, N)")
    assert space is not None
    assert (space.names, space.key, len(space.choices)) == (("A", "B"), ("N", "M"), 5)


def test_what_an_option_sets_is_not_tuned() -> None:
    assert values("tune A in (16, 32), B in (4, 8)", A="64") == [{}, {"B": 4}, {"B": 8}]


def test_a_value_named_twice_is_tried_once() -> None:
    assert len(values("tune A in (16, 16, 32)")) == 3


def test_dtypes_can_be_tuned_where_the_program_says_so() -> None:
    assert values("tune T in (bf16, f16)") == [{}, {"T": BF16}, {"T": F16}]


def test_candidates_say_where_their_values_come_from() -> None:
    _, found, _ = space_of("tune A in (16,), stages in (3,)\nschedule stages = 2, warps = 8")
    untuned, tuned = found
    assert (untuned.stages, untuned.warps, untuned.origin["A"]) == (2, 8, "auto")
    assert (tuned.values["A"], tuned.stages, tuned.warps) == (16, 3, 8)
    assert (tuned.origin["A"], tuned.origin["stages"]) == ("tuned", "tuned")


def test_without_the_clause_there_is_one_candidate() -> None:
    space, found, _ = space_of("require N >= 0")
    assert space is None
    assert len(found) == 1


def test_errors_of_the_program_give_none() -> None:
    space, found, sink = space_of("tune A in (16,), Q in (1,)")
    assert (space, found) == (None, [])
    assert [d.code for d in sink.errors] == ["E0217"]


def test_a_choice_of_what_is_not_there_changes_nothing() -> None:
    files = load_source(Source("x.tile", TEXT.replace("{clauses}", "require N >= 0")))
    kernel = next(i for i in files.main.items if isinstance(i, ast.Kernel))
    one = make_candidate(kernel, files.scope(files.main), {}, Sink())
    assert one is not None
    assert one.with_choice({"Z": 3}) == one


@pytest.mark.parametrize("clause", ["", "tune BM in (192, 256), BN in (32, 96) key (S, T)"])
def test_what_is_tuned_changes_nothing_without_a_tuner(clause: str, tmp_path: Path) -> None:
    """Tile sizes that the target's table tries in turn, the first of which a list need not have."""
    text = (SAMPLES / "attention.tile").read_text(encoding="utf-8")
    given = tmp_path / "attention.tile"
    given.write_text(text.replace("    require", f"    {clause}\n    require", 1))
    _, (found,), _ = analyse_file(str(given), arch="sm_90a")
    _, (plain,), _ = analyse_file(str(SAMPLES / "attention.tile"), arch="sm_90a")
    assert found.candidate.values == plain.candidate.values
