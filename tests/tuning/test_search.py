"""A search with the child process and nvcc replaced: what is built, measured, kept and chosen."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tests.tuning.conftest import program
from tests.tuning.machine import Machine
from tilec.jobs import tuning
from tilec.jobs.tuned import compile_tuned, tuned_choices
from tilec.jobs.tuning import TuneRequest, run_tune
from tilec.tuning.protocol import Measured
from tilec.tuning.records import Found, read_file

GEMM = """\
kernel product[BM = 128, BN = 128, BK = 64](a: bf16[M, K], b: bf16[K, N]) -> c: bf16[M, N]:
    tune BM in (64, 256), BN in (128, 256), warps in (4, 8) where BM * BN <= 65536 key (M, N, K)
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
    check c == a @ b
    example M = 256, N = 256, K = 128
"""


def found_in(path: str) -> Found:
    (found,) = read_file(Path(path)).values()
    return found


def test_the_fastest_is_kept_and_a_second_run_builds_nothing(machine: Machine, capsys: Any) -> None:
    Path("a.tile").write_text(program("fastest", "64, 128, 512"))
    machine.times = {"BN = 128": 40.0, "BN = 64": 60.0}
    assert run_tune(TuneRequest("a.tile")) == 0
    out, err = capsys.readouterr()
    assert "BN=128, 40.0 µs, untuned 100.0 µs, 2.50x (4 ok)" in out
    assert "4 nvcc calls" in err
    found = found_in("a.tile.tuning")
    assert found.best is not None
    assert dict(found.best.choice) == {"BN": 128}
    assert (found.subject.gpu, found.subject.nvcc, found.subject.key) == (
        "H200",
        "13.0.88",
        {"N": 4000},
    )
    before = len(machine.built), Path("a.tile.tuning").read_text()
    assert run_tune(TuneRequest("a.tile")) == 0
    out, err = capsys.readouterr()
    assert "BN=128, 40.0 µs" in out
    assert "no nvcc call" in err
    assert (len(machine.built), Path("a.tile.tuning").read_text()) == before


def test_the_untuned_candidate_wins_where_nothing_is_faster(machine: Machine, capsys: Any) -> None:
    Path("a.tile").write_text(program("equal"))
    assert run_tune(TuneRequest("a.tile")) == 0
    assert "untuned, 100.0 µs" in capsys.readouterr().out


def test_what_does_not_fit_is_counted_and_never_built(machine: Machine, capsys: Any) -> None:
    Path("g.tile").write_text(GEMM)
    assert run_tune(TuneRequest("g.tile")) == 0
    trials = found_in("g.tile.tuning").trials
    rejected = [t for t in trials.values() if t.status == "rejected"]
    assert "BM=256 BN=256 warps=4" in trials
    assert rejected
    assert all(t.detail.startswith(("E0601", "E0603")) for t in rejected)
    assert f"{len(rejected)} candidates over a limit dropped before nvcc" in capsys.readouterr().err
    built = set(machine.built)
    assert len(built) == len([t for t in trials.values() if t.status == "ok"])


def test_failures_cost_their_candidate_only(machine: Machine, capsys: Any) -> None:
    Path("a.tile").write_text(program("failing", "32, 64, 128, 512"))
    machine.answers = {
        "BN = 32;": Measured("hang", detail="no result within 3 s"),
        "BN = 64;": Measured("wrong", detail="1 of 4000 elements"),
        "BN = 128;": Measured("fault", detail="the GPU stopped"),
    }
    machine.times = {"BN = 512;": 50.0}
    assert run_tune(TuneRequest("a.tile")) == 0
    found = found_in("a.tile.tuning")
    assert [t.status for t in found.trials.values()].count("ok") == 2
    assert found.trials["BN=32"].status == "hang"
    assert found.trials["BN=64"].status == "wrong"
    assert found.trials["BN=128"].detail == "the GPU stopped"
    assert "BN=512, 50.0 µs" in capsys.readouterr().out


def test_a_text_that_nvcc_rejects_costs_its_candidate_only(machine: Machine, capsys: Any) -> None:
    Path("a.tile").write_text(program("rejecting"))

    def alter(choice: Mapping[str, Any], cu: str) -> str:
        return cu + "// fails in nvcc\n" if choice.get("BN") == 64 else cu

    assert run_tune(TuneRequest("a.tile"), alter=alter) == 0
    assert found_in("a.tile.tuning").trials["BN=64"].status == "refused"
    assert "2 ok, 1 refused" in capsys.readouterr().out


def test_nothing_verified_is_status_4(machine: Machine, capsys: Any) -> None:
    Path("a.tile").write_text(program("hopeless"))
    machine.answers = {"kernel": Measured("wrong", detail="all")}
    assert run_tune(TuneRequest("a.tile")) == 4
    assert "no candidate verified (3 wrong)" in capsys.readouterr().out


def test_candidates_of_one_text_are_built_once(machine: Machine) -> None:
    Path("a.tile").write_text(program("twins", "64, 256"))
    run_tune(TuneRequest("a.tile"))
    assert len(machine.built) == 2
    trials = found_in("a.tile.tuning").trials
    assert set(trials) == {"untuned", "BN=64", "BN=256"}
    assert {n: t.twin for n, t in trials.items()} == {
        "untuned": "",
        "BN=64": "",
        "BN=256": "untuned",
    }


def test_a_search_goes_on_where_it_was_ended(machine: Machine, capsys: Any) -> None:
    Path("a.tile").write_text(program("resumed", "64, 128, 512"))
    machine.times = {"BN = 128": 40.0}
    run_tune(TuneRequest("a.tile"))
    shutil.rmtree(Path(os.environ["TILEC_CACHE_DIR"]) / "tuning")
    lines = Path("a.tile.tuning").read_text().splitlines(keepends=True)
    Path("a.tile.tuning").write_text("".join(lines[:4]))  # the subject and three results
    machine.measured.clear()
    run_tune(TuneRequest("a.tile"))
    assert len([m for m in machine.measured if not m.final]) == 1
    assert len(found_in("a.tile.tuning").trials) == 4
    assert "4 candidates, 3 known" in capsys.readouterr().err


def test_a_file_in_a_place_that_cannot_be_written_leaves_the_cache(
    machine: Machine, capsys: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.tile").write_text(program("read_only"))
    monkeypatch.setattr(tuning, "_writable", lambda path: None)
    machine.times = {"BN = 64": 10.0}
    run_tune(TuneRequest("a.tile"))
    assert not Path("a.tile.tuning").exists()
    machine.built.clear()
    run_tune(TuneRequest("a.tile"))
    assert machine.built == []
    assert "BN=64, 10.0 µs" in capsys.readouterr().out


def test_what_only_the_cache_holds_is_put_beside_the_source_again(machine: Machine) -> None:
    Path("a.tile").write_text(program("restored"))
    run_tune(TuneRequest("a.tile"))
    before = found_in("a.tile.tuning")
    Path("a.tile.tuning").unlink()
    machine.built.clear()
    run_tune(TuneRequest("a.tile"))
    assert machine.built == []
    assert found_in("a.tile.tuning") == before


def test_every_size_of_a_range_is_tuned(machine: Machine, capsys: Any) -> None:
    Path("a.tile").write_text(program("ranged"))
    run_tune(TuneRequest("a.tile", settings=("N=2**5..2**7",)))
    found = read_file(Path("a.tile.tuning")).values()
    assert [f.subject.key["N"] for f in found] == [32, 64, 128]
    assert "6 nvcc calls" not in capsys.readouterr().err
    assert len(set(machine.built)) == 3


def test_again_measures_what_is_known(machine: Machine) -> None:
    Path("a.tile").write_text(program("repeated"))
    run_tune(TuneRequest("a.tile"))
    machine.measured.clear()
    run_tune(TuneRequest("a.tile", again=True))
    assert len([m for m in machine.measured if not m.final]) == 3


def test_a_run_of_the_same_kernel_builds_the_text_that_was_measured(machine: Machine) -> None:
    Path("a.tile").write_text(program("same_text"))
    machine.times = {"BN = 64": 10.0}
    run_tune(TuneRequest("a.tile"))
    choices = tuned_choices("a.tile", None, {}, "sm_90", gpu="H200", with_cache=True)
    compiled, used = compile_tuned(
        "a.tile", choices, kernel=None, archs=("sm_90",), command="tilec run a.tile"
    )
    assert used
    assert compiled.cu in machine.built
    assert compiled.kernels[0].manifest["origin"]["BN"] == "tuned"
