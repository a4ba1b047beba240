"""Which variants one file holds, and which of them a call takes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tilec.ir.selection import APART, GENERAL, Point, distance, nearest_variant
from tilec.plan.candidate import Choice, Dispatch
from tilec.tuning.dispatch import choose_variants
from tilec.tuning.records import Best, Found, Subject, Trial, choice_name

NAMES: dict[str, Choice] = {"-": {}, "a": {"BM": 64}, "b": {"BM": 128}, "c": {"BM": 256}}


def searched(size: int, times: Mapping[str, float], best: str | None = None) -> Found:
    """A finished search at M = `size`, N = 8; the fastest is the best unless one is named."""
    key = {"M": size, "N": 8}
    subject = Subject("k", "p", key, key, {}, "H200", "sm_90", "13", "0")
    trials = {
        choice_name(NAMES[n]): Trial(NAMES[n], "ok" if us > 0 else "wrong", us or None)
        for n, us in times.items()
    }
    winner = best or min((us, n) for n, us in times.items() if us > 0)[1]
    return Found(subject, trials, Best(NAMES[winner], times[winner], times.get("-")))


def taken(dispatch: Dispatch | None, arch: str = "sm_90") -> dict[int, str]:
    """The candidate of each size."""
    assert dispatch is not None
    labels = ("untuned", *dispatch.labels)
    return {int(p.sizes[0]): labels[p.variant] for p in dispatch.points[arch]}


def test_each_size_takes_its_winner() -> None:
    found = [
        searched(100, {"-": 9, "a": 5, "b": 8}),
        searched(10, {"-": 1, "a": 2, "b": 3}),
        searched(1000, {"-": 9, "a": 8, "b": 5}),
    ]
    dispatch = choose_variants({"sm_90": found})
    assert taken(dispatch) == {10: "untuned", 100: "BM=64", 1000: "BM=128"}
    assert dispatch is not None
    assert (dispatch.key, dispatch.choices) == (("M", "N"), ({"BM": 128}, {"BM": 64}))


def test_a_variant_that_another_one_nearly_equals_is_merged() -> None:
    found = [
        searched(100, {"-": 9, "a": 5.0, "b": 5.05}),
        searched(1000, {"-": 9, "a": 8, "b": 5}),
    ]
    assert taken(choose_variants({"sm_90": found})) == {100: "BM=128", 1000: "BM=128"}
    # the untuned one stays anyway, so it takes what is no faster
    found = [searched(100, {"-": 5.05, "a": 5.0}), searched(1000, {"-": 9, "b": 5})]
    assert taken(choose_variants({"sm_90": found})) == {100: "untuned", 1000: "BM=128"}


def test_no_more_variants_than_asked_for() -> None:
    found = [
        searched(100, {"-": 9, "a": 5, "b": 6, "c": 8}),
        searched(1000, {"-": 9, "a": 8, "b": 5, "c": 7}),
        searched(10, {"-": 9, "a": 9, "b": 9, "c": 3}),
    ]
    assert set(taken(choose_variants({"sm_90": found}, 3)).values()) == {
        "BM=64",
        "BM=128",
        "BM=256",
    }
    two = taken(choose_variants({"sm_90": found}, 2))
    assert two == {10: "BM=256", 100: "BM=128", 1000: "BM=128"}
    assert set(taken(choose_variants({"sm_90": found}, 1)).values()) <= {
        "BM=256",
        "untuned",
        "BM=128",
    }


def test_what_was_not_measured_or_was_wrong_replaces_nothing() -> None:
    found = [
        searched(100, {"-": 9, "a": 5, "b": 0}),
        searched(1000, {"-": 9, "b": 5}),
    ]
    assert taken(choose_variants({"sm_90": found})) == {100: "BM=64", 1000: "BM=128"}
    assert taken(choose_variants({"sm_90": found}, 1)) in (
        {100: "BM=64", 1000: "untuned"},
        {100: "untuned", 1000: "BM=128"},
    )


def test_the_later_of_two_searches_about_one_size_counts() -> None:
    found = [searched(100, {"-": 9, "a": 5}), searched(100, {"-": 9, "a": 8, "b": 5})]
    assert taken(choose_variants({"sm_90": found})) == {100: "BM=128"}


def test_results_under_another_key_are_left_out() -> None:
    old = searched(100, {"-": 9, "a": 5})
    subject = replace(old.subject, key={"M": 100})
    now = searched(1000, {"-": 9, "b": 5})
    before = choose_variants({"sm_90": [replace(old, subject=subject), now]})
    assert taken(before) == {1000: "BM=128"}
    assert before is not None
    assert before.key == ("M", "N")
    after = choose_variants({"sm_90": [now, replace(old, subject=subject)]})
    assert taken(after) == {100: "BM=64"}


def test_nothing_is_dispatched_where_the_untuned_candidate_is_the_best() -> None:
    assert choose_variants({"sm_90": [searched(100, {"-": 5, "a": 5.01})]}) is None
    assert choose_variants({}) is None
    assert choose_variants({"sm_90": []}) is None


def test_architectures_share_the_numbers_of_variants() -> None:
    dispatch = choose_variants(
        {
            "sm_80": [searched(100, {"-": 9, "b": 5})],
            "sm_90": [searched(100, {"-": 9, "a": 5}), searched(1000, {"-": 9, "b": 5})],
        }
    )
    assert taken(dispatch, "sm_80") == {100: "BM=128"}
    assert taken(dispatch) == {100: "BM=64", 1000: "BM=128"}
    assert dispatch is not None
    assert (dispatch.numbers("sm_80"), dispatch.numbers("sm_90")) == ((1,), (1, 2))
    assert dispatch.numbers("sm_75") == ()


@pytest.mark.parametrize(
    ("size", "variant"), [(100, 1), (150, 1), (350, 2), (1000, 2), (4003, 2), (4004, 0), (23, 0)]
)
def test_the_nearest_point_decides_and_what_is_far_is_general(size: int, variant: int) -> None:
    assert nearest_variant((Point((100,), 1), Point((1000,), 2)), (size,)) == variant


def test_distances() -> None:
    assert distance((8, 0), (8, 0)) == 1.0
    assert distance((7, 0), (3, 1)) == 4.0
    assert distance((7, 0), (3, 1)) == distance((3, 1), (7, 0))
    assert distance((-1,), (5,)) == distance((float("nan"),), (5,)) == APART
    assert nearest_variant((Point((1, 1), 2), Point((1, 1), 3)), (1, 1)) == 2
    assert nearest_variant((), (1,)) == GENERAL
