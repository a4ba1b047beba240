"""The forms of messages as options."""

from __future__ import annotations

import json

import pytest

FORMS = [("--diagnostics", "{}"), ("--diagnostics={}",)]


@pytest.mark.parametrize("words", FORMS)
@pytest.mark.parametrize("command", ["compile", "run", "tune"])
def test_messages_as_sarif_and_annotations(tilec, command, words) -> None:
    form = [w.format("sarif") for w in words]
    status, _, err = tilec(command, "missing.tile", *form)
    assert status == 2
    assert json.loads(err)["runs"][0]["results"][0]["ruleId"] == "E0703"
    form = [w.format("github") for w in words]
    _, _, err = tilec(command, "missing.tile", *form)
    assert err.startswith("::error title=E0703%3A ")
    _, _, err = tilec(command, *form, "--frobnicate")
    assert err.startswith("::error title=E0701%3A ")


def test_an_unknown_form_is_a_message_in_text(tilec) -> None:
    status, _, err = tilec("compile", "a.tile", "--diagnostics", "xml")
    assert status == 2
    assert err.startswith("error[E0701]")


def test_warnings_in_each_form(tilec, folder) -> None:
    (folder / "w.tile").write_text(
        "kernel f(x: f32[N]) -> (y: f32[N], z: f32[N]):\n    for i in parallel(N by 4):\n        y[i] = x[i]\n"
    )
    _, _, err = tilec("compile", "w.tile", "--check-only", "--diagnostics", "github")
    assert err.startswith("::warning file=w.tile,line=1,col=")
    _, _, err = tilec("compile", "w.tile", "--check-only", "--diagnostics", "sarif")
    (result,) = json.loads(err)["runs"][0]["results"]
    assert (result["ruleId"], result["level"]) == ("W0201", "warning")
