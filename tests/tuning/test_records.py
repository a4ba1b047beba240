"""The file of results: what is written is read again, whatever else the file holds."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from multiprocessing import get_context
from pathlib import Path

import pytest

from tilec.ir.dtypes import F16
from tilec.source.diagnostics import TileError
from tilec.tuning.records import (
    Best,
    Found,
    Subject,
    Trial,
    append,
    best_json,
    cached,
    choice_name,
    nearest,
    publish_found,
    read_file,
    read_records,
    summary,
    trial_json,
    tuning_path,
)

SUBJECT = Subject(
    "gemm", "abc", {"M": 64}, {"M": 64}, {"a": "bf16"}, "H200", "sm_90", "13.0.88", "0.1.0"
)
TRIAL = Trial({"BM": 128, "T": F16}, "ok", 12.5)


def written(path: Path) -> Found:
    (found,) = read_file(path).values()
    return found


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    path = tuning_path(str(tmp_path / "a.tile"))
    hang = Trial({"BM": 64, "T": F16}, "hang", detail="no result within 3 s")
    best = Best(TRIAL.choice, 12.4, 20.0)
    append(path, SUBJECT.as_json(), trial_json(SUBJECT, TRIAL))
    append(path, trial_json(SUBJECT, hang))
    append(path, best_json(SUBJECT, best))
    assert path.name == "a.tile.tuning"
    assert all(isinstance(json.loads(line), dict) for line in path.read_text().splitlines())
    found = written(path)
    assert found.subject == SUBJECT
    assert list(found.trials.values()) == [TRIAL, hang]
    assert found.best == best


def test_a_line_that_was_cut_off_costs_itself_only(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, SUBJECT.as_json(), trial_json(SUBJECT, TRIAL))
    with path.open("ab") as file:
        file.write(b'{"of": "12')
    later = replace(TRIAL, choice={"BM": 32})
    append(path, trial_json(SUBJECT, later))
    assert list(written(path).trials.values()) == [TRIAL, later]


@pytest.mark.parametrize(
    "line", ["", "[1]", "{", '{"of": "x"}', '{"subject": "1", "kernel": 3}', '{"of": "%s"}', "\0"]
)
def test_other_lines_are_passed_over(line: str) -> None:
    text = f"{line.replace('%s', SUBJECT.id)}\n{json.dumps(SUBJECT.as_json())}\n"
    (found,) = read_records(text).values()
    assert (found.trials, found.best) == ({}, None)


def test_a_changed_subject_line_names_nothing() -> None:
    data = {**SUBJECT.as_json(), "gpu": "another"}
    assert read_records(json.dumps(data)) == {}


def test_the_later_result_counts(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, SUBJECT.as_json(), trial_json(SUBJECT, TRIAL))
    append(path, trial_json(SUBJECT, replace(TRIAL, microseconds=9.0)))
    (trial,) = written(path).trials.values()
    assert trial.microseconds == 9.0


def test_anything_that_a_result_depends_on_makes_another_subject() -> None:
    changes = {
        "kernel": "other",
        "program": "abd",
        "key": {"M": 65},
        "sizes": {"M": 64, "N": 2},
        "dtypes": {"a": "f16"},
        "gpu": "H100",
        "arch": "sm_80",
        "nvcc": "12.8",
        "tilec": "0.2",
        "seed": 1,
        "within": "rtol 1",
    }
    assert set(changes) == set(Subject.__dataclass_fields__)
    assert len({replace(SUBJECT, **{n: v}).id for n, v in changes.items()} | {SUBJECT.id}) == 12


def _append_many(path: str, writer: int) -> None:
    for number in range(60):
        append(Path(path), trial_json(SUBJECT, Trial({"BM": writer * 1000 + number}, "ok", 1.0)))


def test_writers_at_once_lose_nothing(tmp_path: Path) -> None:
    path = tmp_path / "t"
    append(path, SUBJECT.as_json())
    context = get_context("spawn")
    writers = [context.Process(target=_append_many, args=(str(path), n)) for n in (1, 2)]
    for one in writers:
        one.start()
    for one in writers:
        one.join()
    assert len(written(path).trials) == 120


def test_the_cache_holds_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path))
    found = Found(SUBJECT, {choice_name(TRIAL.choice): TRIAL}, Best(TRIAL.choice, 12.4, None))
    assert publish_found(found)
    assert list(cached("abc")) == [found]
    assert list(cached("abd")) == []


def test_a_file_that_cannot_be_written_is_a_message(tmp_path: Path) -> None:
    with pytest.raises(TileError) as caught:
        append(tmp_path / "none" / "t", SUBJECT.as_json())
    assert caught.value.diagnostics[0].code == "E0704"
    assert not os.path.exists(tmp_path / "none")


def test_the_nearest_key() -> None:
    def at(m: int) -> Found:
        return Found(replace(SUBJECT, key={"M": m}), best=Best({"BM": m}, 1.0, None))

    found = [at(64), at(1024), at(8192), Found(replace(SUBJECT, key={"M": 4000}))]
    for wanted, expected in ((1, 64), (200, 64), (300, 1024), (4000, 8192), (10**6, 8192)):
        chosen = nearest(found, {"M": wanted, "N": 3})
        assert chosen is not None
        assert chosen.subject.key["M"] == expected
    assert nearest(found, {"N": 3}) is None


def test_counts_of_a_search() -> None:
    trials = [TRIAL, TRIAL, replace(TRIAL, status="hang")]
    assert summary(trials) == "2 ok, 1 hang"
    assert summary([]) == "nothing tried"
