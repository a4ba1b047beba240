"""`--against torch` through everything but the GPU: driver and PyTorch replaced by ones on host memory."""

from __future__ import annotations

import csv
import io
import json
import sys
from dataclasses import replace
from types import ModuleType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

from tests.runtime.fake_torch import Tensor, fake_torch
from tests.runtime.test_kernel_run import SOURCE, runner
from tilec.ir.dtypes import BF16, F16, F32, I32
from tilec.runtime import against
from tilec.runtime.comparing import comparison_table, curves, outcomes_csv, plot
from tilec.runtime.outcome import Outcome
from tilec.runtime.report import outcomes_json, outcomes_table
from tilec.runtime.verify import Tolerance
from tilec.source.diagnostics import TileError

__all__ = ["runner"]


@pytest.fixture
def torch(monkeypatch: pytest.MonkeyPatch) -> SimpleNamespace:
    """PyTorch on the fake driver's memory; `use` says which."""
    found = fake_torch(lambda address, size: found.memory.at(address, size))
    module = ModuleType("torch")
    module.__dict__.update(vars(found))
    monkeypatch.setitem(sys.modules, "torch", module)
    monkeypatch.setattr(against, "find_torch", lambda: None)
    return found


def compared(runner: Any, torch: SimpleNamespace, **options: Any) -> Outcome:
    run, kernel = runner(**{"bench": True, "against": "torch", **options})
    torch.memory = run.gpu.driver.memory
    with run:
        outcome: Outcome = run.run(kernel, run.cases(kernel)[0])
    assert run.gpu.held_bytes == 0
    return outcome


def test_both_are_timed_in_turn_and_agree(runner: Any, torch: SimpleNamespace) -> None:
    found = compared(runner, torch).comparison
    assert found is not None
    assert (found.against, found.mode) == ("torch", "graph")
    assert found.ours.runs == found.theirs.runs == 20
    assert found.ratio == pytest.approx(found.theirs.median / found.ours.median)
    assert found.allclose and found.max_error == 0
    assert found.our_peak_megabytes == pytest.approx(0.008)
    assert found.their_peak_megabytes == pytest.approx((4000 + 4096) / 1e6)
    assert found.theirs.teraflops == pytest.approx(1000 / found.theirs.median / 1e6)
    assert found.theirs.gigabytes_per_second == pytest.approx(8000 / found.theirs.median / 1e3)


def test_calls_that_cannot_be_captured_are_made_one_by_one(
    runner: Any, torch: SimpleNamespace
) -> None:
    def refuse(graph: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    sys.modules["torch"].cuda.graph = refuse
    found = compared(runner, torch).comparison
    assert found is not None
    assert found.mode == "eager"


def test_a_function_of_the_users_gets_tensors(
    runner: Any, torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def doubled(x: Tensor, scale: float) -> Tensor:
        return x * scale + 1.0

    monkeypatch.setattr(against, "load_reference", lambda text: doubled)
    found = compared(runner, torch, against="mine:doubled").comparison
    assert found is not None
    assert found.against == "mine:doubled"
    assert not found.allclose
    assert found.max_error == pytest.approx(1.0)
    loose = compared(runner, torch, against="mine:doubled", atol=2.0).comparison
    assert loose is not None
    assert loose.allclose and loose.within == "rtol 0, atol 2"


def test_a_check_that_pytorch_cannot_evaluate_is_a_message(
    runner: Any, torch: SimpleNamespace
) -> None:
    product = "(arange(N).reshape(1, N) @ arange(N).reshape(N, 1)).reshape(1)"
    source = SOURCE.replace("check y == x * scale", f"check y == x * scale + 0 * {product}")
    with pytest.raises(TileError) as caught:
        compared(runner, torch, source=source)
    assert caught.value.diagnostics[0].code == "E0816"


def test_a_failure_of_pytorch_is_a_message(
    runner: Any, torch: SimpleNamespace, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(**inputs: object) -> None:
        raise RuntimeError("CUDA out of memory\nmore")

    monkeypatch.setattr(against, "load_reference", lambda text: fails)
    with pytest.raises(TileError) as caught:
        compared(runner, torch, against="mine:fails")
    assert caught.value.diagnostics[0].message.endswith("CUDA out of memory")


def test_without_pytorch_there_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    with pytest.raises(TileError) as caught:
        against.import_torch()
    assert caught.value.diagnostics[0].code == "E0815"
    assert caught.value.exit_code == 3


def test_a_pytorch_without_a_gpu_is_a_message(torch: SimpleNamespace) -> None:
    sys.modules["torch"].cuda.is_available = lambda: False
    with pytest.raises(TileError) as caught:
        against.import_torch()
    assert caught.value.diagnostics[0].code == "E0815"


def test_closeness_scales_with_type_and_magnitude() -> None:
    want = np.array([1.0, -100.0, np.nan, np.inf])
    have = want * (1 + 2.0**-7)
    for dtype, close in ((BF16, True), (F16, False), (F32, False)):
        assert against.closeness(have, want, dtype, Tolerance())[0] is close
    have[2] = 0.0
    assert not against.closeness(have, want, BF16, Tolerance())[0]
    whole = np.array([3, 4])
    assert against.closeness(whole, whole, I32, Tolerance()) == (True, 0.0, "rtol 0, atol 0")
    assert not against.closeness(whole, whole + 1, I32, Tolerance())[0]


def outcomes(runner: Any, torch: SimpleNamespace) -> list[Outcome]:
    one = compared(runner, torch)
    return [one, replace(one, sizes="N=2000 scale=0.5", values={"N": 2000, "scale": 0.5})]


def test_tables_and_files(runner: Any, torch: SimpleNamespace) -> None:
    found = outcomes(runner, torch)
    text = comparison_table(found)
    assert text in outcomes_table(found)
    lines = text.splitlines()
    assert len(lines) == 5
    assert lines[1].split()[:4] == ["scaled", "N=1000", "scale=0.5", "tilec"]
    assert lines[2].split()[:2] == ["torch", "(graph)"]
    assert "yes (rtol" in lines[1]
    rows = list(csv.DictReader(io.StringIO(outcomes_csv(found))))
    assert [r["implementation"] for r in rows] == ["tilec", "torch graph"] * 2
    assert all(float(r["median_us"]) > 0 and float(r["teraflops"]) > 0 for r in rows)
    assert rows[0]["allclose"] == "true"
    data = json.loads(outcomes_json(found, {}))
    assert data["outcomes"][0]["comparison"]["ratio"] == pytest.approx(float(rows[0]["ratio"]))
    alone = list(csv.DictReader(io.StringIO(outcomes_csv([replace(found[0], comparison=None)]))))
    assert [r["implementation"] for r in alone] == ["tilec"]


def test_curves_over_the_size_that_varies(runner: Any, torch: SimpleNamespace) -> None:
    found = outcomes(runner, torch)
    across, up, drawn = curves(found)
    assert (across, up) == ("N", "TFLOP/s")
    assert [(name, xs) for name, xs, _ in drawn] == [
        ("scaled, tilec", [1000.0, 2000.0]),
        ("scaled, torch", [1000.0, 2000.0]),
    ]
    assert all(y > 0 for _, _, ys in drawn for y in ys)
    alone = [replace(o, comparison=None) for o in found]
    assert [name for name, _, _ in curves(alone)[2]] == ["scaled, tilec"]


def test_without_matplotlib_there_is_a_message(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    with pytest.raises(TileError) as caught:
        plot([], "png")
    assert caught.value.diagnostics[0].code == "E0818"
