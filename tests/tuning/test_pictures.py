"""Searches as pictures."""

from __future__ import annotations

import math
import sys
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from tests.tuning.conftest import program
from tests.tuning.machine import Machine
from tilec.jobs.tuning import TuneRequest, run_tune
from tilec.source.diagnostics import TileError
from tilec.tuning.pictures import HeatMap, Pictured, draw, heat_map
from tilec.tuning.records import Best, Found, Subject, Trial, choice_name

SUBJECT = Subject("gemm", "p", {"M": 4096}, {"M": 4096}, {}, "NVIDIA H200", "sm_90a", "13", "0")


def found(*trials: tuple[dict[str, Any], float | None]) -> Found:
    made = [Trial(c, "ok" if us is not None else "wrong", us) for c, us in trials]
    fastest = min((t for t in made if t.microseconds), key=lambda t: t.microseconds or 0.0)
    best = Best(fastest.choice, fastest.microseconds or 0.0, None)
    return Found(SUBJECT, {choice_name(t.choice): t for t in made}, best)


MAP = found(
    ({}, 9.0),
    ({"BM": 128, "warps": 4, "BN": 64}, 8.0),
    ({"BM": 64, "warps": 4, "BN": 64}, 7.0),
    ({"BM": 64, "warps": 8, "BN": 64}, 6.0),
    ({"BM": 64, "warps": 8, "BN": 256}, None),
    ({"BM": 32, "warps": 8, "BN": 256}, 5.0),
    ({"BM": 32, "warps": 8, "BN": 128}, 4.0),
)


def test_the_two_parameters_with_the_most_values() -> None:
    shown = heat_map(MAP)
    nan = math.nan
    assert (shown.down, shown.across) == ("BM", "BN")
    assert (shown.rows, shown.columns) == (("32", "64", "128"), ("64", "128", "256"))
    assert str(shown.times) == str(((nan, 4.0, 5.0), (6.0, nan, nan), (8.0, nan, nan)))


def test_one_parameter_and_none() -> None:
    one = heat_map(found(({}, 3.0), ({"T": "b"}, 1.0), ({"T": "a"}, 2.0)))
    assert one == HeatMap("T", "", ("b", "a"), ("",), ((1.0, 2.0),))
    nothing = heat_map(found(({}, 3.0)))
    assert (nothing.columns, nothing.rows) == (("",), ("",))
    assert math.isnan(nothing.times[0][0])


def test_pictures_have_what_was_found() -> None:
    pytest.importorskip("matplotlib", reason="would have drawn a heat map and a roofline")
    two = [Pictured(MAP, 2.0 * 4096**3, 3 * 4096**2 * 2.0), Pictured(MAP, None, 1e6)]
    image = draw(two, "svg")
    assert image == draw(two, "svg")
    root = ElementTree.fromstring(image)
    assert root.tag.endswith("svg")
    shapes = image.decode()
    # text is drawn as glyphs, and stands in comments
    for text in ("BM", "BN", "TFLOP/s", "GB/s", "H200, data sheet", "4.0", "–"):
        assert f"<!-- {text} -->" in shapes, text
    assert draw(two, "png").startswith(b"\x89PNG")


def test_plot_writes_a_picture_of_all_searches(machine: Machine) -> None:
    pytest.importorskip("matplotlib", reason="would have drawn two searches")
    Path("a.tile").write_text(program("drawn"))
    request = TuneRequest("a.tile", settings=("N=64,4096",), plot="a.svg")
    assert run_tune(request) == 0
    text = Path("a.svg").read_text()
    assert "<!-- drawn N=64 -->" in text
    assert "<!-- drawn N=4096 -->" in text


@pytest.mark.parametrize(("plot", "code"), [("a.svg", "E0818"), ("a.txt", "E0709")])
def test_what_a_picture_needs_is_asked_first(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, plot: str, code: str
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    Path("a.tile").write_text(program("undrawn"))
    with pytest.raises(TileError) as caught:
        run_tune(TuneRequest("a.tile", plot=plot))
    assert caught.value.diagnostics[0].code == code
    assert machine.measured == []
