"""Joules by a counter that advances in steps."""

from __future__ import annotations

import sys
from types import SimpleNamespace
from typing import Any

import pytest

from tilec.runtime.energy import EnergyCounter, energy_table, open_counter
from tilec.runtime.outcome import Energy, Outcome
from tilec.source.diagnostics import TileError


class Board:
    """A GPU on which a call takes `call` seconds and draws `watts`; its counter advances every `step` seconds."""

    def __init__(self, call: float, watts: float, step: float = 0.1) -> None:
        self.call, self.watts, self.step = call, watts, step
        self.now = 1000.0
        self.waiting = 0
        self.calls = 0

    def launch(self) -> None:
        self.waiting += 1

    def finish(self) -> None:
        self.now += self.waiting * self.call
        self.calls += self.waiting
        self.waiting = 0

    def nvmlDeviceGetTotalEnergyConsumption(self, handle: object) -> int:  # noqa: N802
        assert handle == "h"
        return int(self.now // self.step * self.step * self.watts * 1e3) if self.step else 7


def measured(board: Board) -> Energy:
    counter = EnergyCounter(board, "h", lambda: board.now)
    return counter.measure(board.launch, board.finish, board.call * 1e6)


@pytest.mark.parametrize(("call", "watts"), [(20e-6, 500.0), (3e-3, 700.0), (0.3, 100.0)])
def test_energy_of_a_call(call: float, watts: float) -> None:
    board = Board(call, watts)
    energy = measured(board)
    # as exact as the calls between two looks, 20 ms of 2 s
    assert energy.joules == pytest.approx(call * watts, rel=0.16 if call > 0.1 else 0.02)
    assert energy.watts == pytest.approx(watts, rel=0.16 if call > 0.1 else 0.02)
    assert 2.4 < board.calls * call < 3.2


def test_a_counter_that_stands_still_is_a_message() -> None:
    with pytest.raises(TileError) as caught:
        measured(Board(1e-3, 500.0, step=0.0))
    assert caught.value.diagnostics[0].code == "E0820"


def nvml(**functions: Any) -> SimpleNamespace:
    class NVMLError(Exception):
        pass

    def refuses(*arguments: object) -> None:
        raise NVMLError("Not Supported")

    known: dict[str, Any] = {
        "NVMLError": NVMLError,
        "nvmlInit": lambda: None,
        "nvmlDeviceGetHandleByPciBusId": lambda bus: "h",
        "nvmlDeviceGetTotalEnergyConsumption": refuses,
    }
    return SimpleNamespace(**{**known, **functions})


def test_a_gpu_without_a_counter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", nvml())
    with pytest.raises(TileError) as caught:
        open_counter("0000:3B:00.0")
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, diagnostic.notes) == ("E0820", ("NVML: Not Supported",))


def test_the_counter_of_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []

    def handle(bus: str) -> str:
        asked.append(bus)
        return "h"

    fake = nvml(
        nvmlDeviceGetHandleByPciBusId=handle, nvmlDeviceGetTotalEnergyConsumption=lambda h: 1234
    )
    monkeypatch.setitem(sys.modules, "pynvml", fake)
    assert open_counter("0000:3B:00.0").millijoules() == 1234
    assert asked == ["0000:3B:00.0"]


def test_nvml_is_not_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    with pytest.raises(TileError) as caught:
        open_counter("0000:3B:00.0")
    assert caught.value.diagnostics[0].code == "E0820"
    assert caught.value.exit_code == 3


def test_both_sides_in_the_table() -> None:
    energy = {"tilec": Energy(0.0125, 512.4), "torch": Energy(0.02, 600.0)}
    one = Outcome("a.tile", "gemm", "M=4", "ok", "H200", energy=energy)
    assert energy_table([one]).splitlines()[1:] == [
        "gemm    M=4    tilec  12.5       512",
        "gemm    M=4    torch  20         600",
    ]
    assert energy_table([Outcome("a.tile", "gemm", "M=4", "ok", "H200")]) == ""
