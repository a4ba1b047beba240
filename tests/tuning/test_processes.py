"""The tuner with real child processes, on the emulator: faults are survived, and so is the end of the tuner itself."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.tuning.conftest import program
from tests.tuning.planting import CRASH, HANG, WRONG, plant
from tilec.compiler import compile_file
from tilec.jobs.tuning import TuneRequest, run_tune
from tilec.runtime.arguments import CallSizes
from tilec.tuning.measurer import Measurer
from tilec.tuning.protocol import Race, Setup
from tilec.tuning.records import Found, read_file

ROOT = Path(__file__).resolve().parents[2]


def found_in(path: str) -> Found:
    (found,) = read_file(Path(path)).values()
    return found


def test_planted_faults_cost_their_candidates_only(folder: Path, capsys: Any) -> None:
    Path("a.tile").write_text(program("planted", "32, 64, 128, 512"))
    faults = {32: HANG, 64: WRONG, 128: CRASH}

    def alter(choice: Mapping[str, Any], cu: str) -> str:
        fault = faults.get(choice.get("BN", 0))
        return plant(cu, fault) if fault else cu

    request = TuneRequest("a.tile", device="cpu", limit=12.0)
    assert run_tune(request, alter=alter) == 0
    trials = found_in("a.tile.tuning").trials
    assert {n: t.status for n, t in trials.items()} == {
        "untuned": "ok",
        "BN=32": "hang",
        "BN=64": "wrong",
        "BN=128": "fault",
        "BN=512": "ok",
    }
    assert trials["BN=128"].detail == "the process was ended by SIGSEGV"
    assert "700 of 700 elements of `y` are wrong; the first is [0]: nan" in trials["BN=64"].detail
    assert "2 ok, 1 wrong, 1 fault, 1 hang" in capsys.readouterr().out


def tuner(*arguments: str) -> subprocess.Popen[str]:
    """A tuner as a process of its own."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.Popen(
        [sys.executable, "-m", "tilec", "tune", "a.tile", "--device", "cpu", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_a_killed_tuner_loses_the_candidate_it_was_at(folder: Path) -> None:
    Path("a.tile").write_text(program("killed", "32, 64, 128, 512, 1024"))
    first = tuner()
    assert first.stderr is not None
    for line in first.stderr:
        if line.startswith("[3/"):
            break
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    kept = found_in("a.tile.tuning")
    assert len(kept.trials) >= 3
    assert kept.best is None
    second = tuner()
    out, err = second.communicate()
    assert second.returncode == 0, err
    assert f"6 candidates, {len(kept.trials)} known" in err
    assert "(6 ok)" in out
    after = found_in("a.tile.tuning")
    assert after.best is not None
    assert all(after.trials[n] == t for n, t in kept.trials.items())


def test_the_child_ends_with_the_tuner(folder: Path) -> None:
    Path("a.tile").write_text(program("orphaned", "32, 64, 128"))
    parent = tuner()
    assert parent.stderr is not None
    for line in parent.stderr:
        if line.startswith("[1/"):
            break
    listed = subprocess.run(
        ["pgrep", "-P", str(parent.pid)], capture_output=True, text=True, check=False
    )
    children = [int(n) for n in listed.stdout.split()]
    assert children
    os.kill(parent.pid, signal.SIGKILL)
    parent.communicate()
    deadline = time.monotonic() + 10
    while any(_runs(n) for n in children) and time.monotonic() < deadline:
        time.sleep(0.05)
    assert not any(_runs(n) for n in children)


def _runs(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def test_two_tuners_at_once_corrupt_nothing(folder: Path, shared_cache: Path) -> None:
    Path("a.tile").write_text(program("at_once", "64, 128"))
    both = [tuner(), tuner()]
    for one in both:
        _, err = one.communicate()
        assert one.returncode == 0, err
    lines = Path("a.tile.tuning").read_text().splitlines()
    assert all("subject" in json.loads(line) or "of" in json.loads(line) for line in lines)
    found = found_in("a.tile.tuning")
    assert len(found.trials) == 3
    assert found.best is not None
    (kept,) = (shared_cache / "tuning" / found.subject.program).glob("*.jsonl")
    (cached,) = read_file(kept).values()
    assert cached.best is not None


def test_what_keeps_the_child_from_measuring_is_a_message(folder: Path) -> None:
    text = program("faulty", body="x[i] + x[0]").replace("x * 2.0", "x + unknown")
    Path("a.tile").write_text(text)
    one = tuner()
    _, err = one.communicate()
    assert one.returncode != 0
    assert "Traceback" not in err
    assert "`unknown`" in err


def test_a_race_times_every_finalist_in_one_process(folder: Path, tmp_path: Path) -> None:
    Path("a.tile").write_text(program("in_turn"))
    setup = Setup(
        "a.tile",
        "in_turn",
        {},
        CallSizes({"N": 100}),
        0,
        None,
        None,
        "cpu",
        "sm_80",
        None,
        str(tmp_path),
    )
    entries = []
    for size in (64, 128, 256):
        compiled = compile_file("a.tile", choices={"in_turn": {"BN": size}})
        entries.append((compiled.kernels[0].plan, compiled.cu.encode()))
    broken = (entries[0][0], b"no code")
    with Measurer(setup, 120.0) as measurer:
        answer = measurer.race(Race(tuple(entries)))
        assert answer.status == "ok"
        assert [len(times) for times in answer.times] == [5, 5, 5]
        assert all(t > 0 for times in answer.times for t in times)
        failed = measurer.race(Race((entries[0], broken)))
        assert (failed.status, failed.times) == ("fault", ())
        assert failed.detail
        # the process that was spoiled is replaced
        assert measurer.race(Race(tuple(entries[:1]))).status == "ok"
        assert measurer.started == 2
