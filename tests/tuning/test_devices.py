"""Several GPUs of one machine, and an architecture that is not the device's own."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.tuning.conftest import program
from tests.tuning.machine import Machine
from tilec.ir.launch import LaunchPlan
from tilec.jobs import tuning
from tilec.jobs.tuning import TuneRequest, run_tune
from tilec.jobs.tuning_devices import Device, choose_device
from tilec.source.diagnostics import TileError, fail
from tilec.toolchain import driver
from tilec.tuning.building import Ready
from tilec.tuning.lanes import measure_all
from tilec.tuning.measurer import Measurer
from tilec.tuning.protocol import Measure, Measured
from tilec.tuning.records import read_file

PLAN = LaunchPlan("k", (), (), (), ())


def gpus(monkeypatch: pytest.MonkeyPatch, *names: str) -> None:
    found = tuple(driver.Device(n, name, (9, 0), 132, 1 << 37) for n, name in enumerate(names))
    monkeypatch.setattr(driver, "query_driver", lambda: driver.Driver((13, 0), found, ""))


def code_of(device: str = "auto", **options: Any) -> str:
    given = {"arch": None, "devices": None, "scheduler": None, **options}
    with pytest.raises(TileError) as caught:
        choose_device(device, **given)
    return caught.value.diagnostics[0].code


def test_the_devices_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    gpus(monkeypatch, "H200", "H200", "H200")
    assert choose_device("auto", None, None, None) == Device("H200", "sm_90a", False)
    assert choose_device("gpu", None, "2,0,2", None).visible == ("2", "0")
    assert choose_device("auto", None, "all", None).visible == ("0", "1", "2")
    # numbers are those that this process sees
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "5,GPU-ab, 7")
    assert choose_device("auto", None, "all", None).visible == ("5", "GPU-ab", "7")


def test_devices_that_cannot_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, "H200", "H100")
    assert code_of(devices="2") == code_of(devices="x") == code_of(devices="") == "E0724"
    assert code_of(devices="0,1") == "E0724"
    assert choose_device("auto", None, "1", None).name == "H100"
    assert code_of("cpu", devices="0") == code_of(devices="0", scheduler="a") == "E0709"
    gpus(monkeypatch)
    assert code_of(devices="0") == "E0812"


def test_an_architecture_that_the_device_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus(monkeypatch, "H200")
    assert choose_device("auto", "sm_90", None, None).arch == "sm_90"
    assert code_of(arch="sm_80") == "E0812"
    assert code_of(arch="sm_100") == "E0812"
    assert code_of(arch="sm_1") == "E0707"


def test_results_name_the_architecture_that_was_compiled_for(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    # what measures is no process, and the device the one that is asked for
    monkeypatch.setattr(
        tuning, "_device", lambda r: choose_device(r.device, r.arch, r.devices, r.scheduler)
    )
    Path("a.tile").write_text(program("named_arch"))
    for arch in ("sm_90", "sm_90a"):
        assert run_tune(TuneRequest("a.tile", device="cpu", arch=arch, trials=1)) == 0
    assert [f.subject.arch for f in read_file(Path("a.tile.tuning")).values()] == [
        "sm_90",
        "sm_90a",
    ]
    assert len(machine.measured) >= 2


class SlowLane:
    """A lane whose first candidate waits until another lane has had two."""

    def __init__(self, seen: list[str], waits: threading.Event | None = None) -> None:
        self.seen, self.waits = seen, waits

    def measure(self, request: Measure) -> Measured:
        if self.waits is not None:
            assert self.waits.wait(20)
        self.seen.append(request.code.decode())
        return Measured("ok", (1.0,))

    def race(self, request: Any) -> Any:
        raise AssertionError


def candidates(count: int) -> Iterator[Ready]:
    for n in range(count):
        yield Ready({"BM": n}, PLAN, str(n).encode())


def test_a_lane_that_is_busy_holds_up_no_other() -> None:
    event = threading.Event()
    fast: list[str] = []
    slow: list[str] = []
    noted: list[str] = []
    threads = set()

    def note(ready: Ready, answer: Measured) -> None:
        threads.add(threading.get_ident())
        noted.append(ready.name)
        if len(noted) == 3:
            event.set()

    lanes = [SlowLane(slow, event), SlowLane(fast)]
    measure_all(lanes, candidates(6), lambda: None, note)
    assert sorted(noted) == [f"BM={n}" for n in range(6)]
    assert sorted(fast + slow) == [str(n) for n in range(6)]
    assert slow[0] == "0"
    assert len(fast) >= 3
    assert threads == {threading.get_ident()}


def test_what_keeps_a_lane_from_measuring_stops_all() -> None:
    class Broken(SlowLane):
        def measure(self, request: Measure) -> Measured:
            raise fail("E0817", "the process that measures did not start")

    with pytest.raises(TileError):
        measure_all([Broken([]), SlowLane([])], candidates(5), lambda: None, lambda *a: None)


def test_each_process_sees_its_gpu(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processes on the emulator, which needs no GPU: each has the variable that names its own."""
    started: list[str] = []
    start = Measurer.start

    def noted(self: Measurer) -> None:
        fresh = self._child is None
        start(self)
        if fresh:
            assert self._child is not None
            environment = Path(f"/proc/{self._child.pid}/environ").read_bytes().split(b"\0")
            started.extend(
                e.decode() for e in environment if e.startswith(b"CUDA_VISIBLE_DEVICES=")
            )

    monkeypatch.setattr(Measurer, "start", noted)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    both = Device("emulator", "sm_80", True, ("4", "7"))
    monkeypatch.setattr("tilec.jobs.tuning._device", lambda request: both)
    Path("a.tile").write_text(program("two_lanes", "32, 64, 128, 512"))
    assert run_tune(TuneRequest("a.tile")) == 0
    (found,) = read_file(Path("a.tile.tuning")).values()
    assert {t.status for t in found.trials.values()} == {"ok"}
    assert len(found.trials) == 5
    assert set(started) == {"CUDA_VISIBLE_DEVICES=4", "CUDA_VISIBLE_DEVICES=7"}
    assert os.environ["CUDA_VISIBLE_DEVICES"] == ""
