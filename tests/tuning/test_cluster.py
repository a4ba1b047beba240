"""Candidates measured by the workers of a cluster: a real local one where dask.distributed is installed, and what can go wrong."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

import tilec
from tests.tuning.conftest import program
from tests.tuning.planting import CRASH, WRONG, plant
from tilec.jobs.tuning import TuneRequest, run_tune
from tilec.jobs.tuning_devices import on_cluster
from tilec.runtime.arguments import CallSizes
from tilec.source.diagnostics import TileError
from tilec.tuning.cluster import Cluster, WorkerFacts, connect, program_files
from tilec.tuning.protocol import Measure, Setup
from tilec.tuning.records import Found, read_file

H200 = WorkerFacts(tilec.__version__, "H200", (9, 0), "")


def found_in(path: str) -> Found:
    (found,) = read_file(Path(path)).values()
    return found


@pytest.fixture
def scheduler(folder: Path) -> Iterator[str]:
    """The address of a cluster of two workers on this machine."""
    distributed = pytest.importorskip(
        "distributed", reason="would have tuned on a local dask.distributed cluster"
    )
    cluster = distributed.LocalCluster(
        n_workers=2, threads_per_worker=1, processes=False, dashboard_address=None
    )
    try:
        yield cluster.scheduler_address
    finally:
        cluster.close()


def test_a_search_on_a_cluster(scheduler: str, capsys: Any) -> None:
    """The emulator in a process of each worker; faults cost their candidate, and the program's files travel."""
    Path("parts").mkdir()
    Path("parts/double.tile").write_text("fn twofold(v):\n    return v + v\n")
    text = program("clustered", "32, 64, 128, 512", body="twofold(x[i])")
    Path("a.tile").write_text('import "parts/double.tile"\n' + text)
    faults = {32: WRONG, 64: CRASH}

    def alter(choice: Mapping[str, Any], cu: str) -> str:
        fault = faults.get(choice.get("BN", 0))
        return plant(cu, fault) if fault else cu

    request = TuneRequest("a.tile", device="cpu", scheduler=scheduler, limit=120.0)
    assert run_tune(request, alter=alter) == 0
    found = found_in("a.tile.tuning")
    assert {n: t.status for n, t in found.trials.items()} == {
        "untuned": "ok",
        "BN=32": "wrong",
        "BN=64": "fault",
        "BN=128": "ok",
        "BN=512": "ok",
    }
    assert found.best is not None
    assert found.subject.gpu == "emulator"
    capsys.readouterr()
    # with and without a cluster it is one search
    assert run_tune(TuneRequest("a.tile", device="cpu")) == 0
    assert "5 candidates, 5 known" in capsys.readouterr().err


def test_what_keeps_a_worker_from_measuring_is_a_message(scheduler: str) -> None:
    Path("a.tile").write_text(program("faulty", body="x[i]").replace("x * 2.0", "x + unknown"))
    with pytest.raises(TileError) as caught:
        run_tune(TuneRequest("a.tile", device="cpu", scheduler=scheduler))
    assert any("`unknown`" in d.message for d in caught.value.diagnostics)


def test_no_scheduler_answers(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("distributed", reason="would have asked a scheduler that is not there")
    monkeypatch.setattr("tilec.tuning.cluster.CONNECT_LIMIT", 1)
    with pytest.raises(TileError) as caught:
        connect("tcp://127.0.0.1:9")
    assert caught.value.diagnostics[0].code == "E0822"


def test_distributed_is_not_installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "distributed", None)
    Path("a.tile").write_text(program("missing"))
    with pytest.raises(TileError) as caught:
        run_tune(TuneRequest("a.tile", scheduler="tcp://127.0.0.1:9"))
    assert caught.value.diagnostics[0].code == "E0821"


class Client:
    """What a connection is asked, without a cluster: workers answer facts, and each task ends as `outcome` says."""

    def __init__(self, facts: Mapping[str, WorkerFacts], outcome: object = None) -> None:
        self.facts, self.outcome = facts, outcome
        self.tasks: list[dict[str, Any]] = []

    def close(self) -> None:
        """Nothing is held."""

    def run(self, function: Any) -> Mapping[str, WorkerFacts]:
        return self.facts

    def submit(self, function: Any, *arguments: Any, **options: Any) -> Client:
        self.tasks.append({"function": function.__name__, **options})
        return self

    def result(self, timeout: float) -> object:
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize(
    ("second", "word"),
    [
        (WorkerFacts("0.0.9", "H200", (9, 0), ""), "has tilec 0.0.9"),
        (WorkerFacts(tilec.__version__, "", (0, 0), "no driver"), "has no GPU"),
        (WorkerFacts(tilec.__version__, "H100", (9, 0), ""), "another GPU, H100"),
    ],
)
def test_workers_that_do_not_suit(second: WorkerFacts, word: str) -> None:
    with pytest.raises(TileError) as caught:
        on_cluster(Cluster(Client({"tcp://a": H200, "tcp://b": second})), False, None)
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E0822"
    assert "tcp://b" in diagnostic.message
    assert word in diagnostic.message


def test_no_workers() -> None:
    with pytest.raises(TileError) as caught:
        on_cluster(Cluster(Client({})), False, None)
    assert caught.value.diagnostics[0].code == "E0822"


def test_the_architecture_is_that_of_the_workers() -> None:
    device = on_cluster(Cluster(Client({"tcp://a": H200})), False, None)
    assert (device.name, device.arch, device.emulated) == ("H200", "sm_90a", False)
    with pytest.raises(TileError) as caught:
        on_cluster(Cluster(Client({"tcp://a": H200})), False, "sm_80")
    assert caught.value.diagnostics[0].code == "E0812"


def test_a_worker_that_is_lost_stops_the_search(tmp_path: Path) -> None:
    client = Client({"tcp://b": H200, "tcp://a": H200}, RuntimeError("worker died"))
    setup = Setup(
        "a.tile", "k", {}, CallSizes({}), 0, None, None, "gpu", "sm_90a", None, str(tmp_path)
    )
    lanes = Cluster(client).lanes({"a.tile": b""})
    with lanes(setup, 5.0) as (first, second):
        assert (first.worker, second.worker) == ("tcp://a", "tcp://b")
        with pytest.raises(TileError) as caught:
            second.measure(Measure(None, b""))  # type: ignore[arg-type]
    (diagnostic,) = caught.value.diagnostics
    assert diagnostic.code == "E0822"
    assert diagnostic.notes == ("worker died",)
    assert client.tasks[0]["workers"] == ["tcp://b"]
    # the processes of both workers were to end
    assert [t["workers"] for t in client.tasks if t["function"] == "close_here"] == [
        ["tcp://a"],
        ["tcp://b"],
    ]


def test_the_files_of_a_program(tmp_path: Path) -> None:
    (tmp_path / "a/b").mkdir(parents=True)
    for name in ("a/b/main.tile", "a/part.tile"):
        (tmp_path / name).write_text(name)
    files = program_files([str(tmp_path / "a/b/main.tile"), str(tmp_path / "a/part.tile")])
    assert files == {"b/main.tile": b"a/b/main.tile", "part.tile": b"a/part.tile"}
