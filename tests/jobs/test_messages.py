"""Messages as SARIF and as annotations of GitHub."""

from __future__ import annotations

import json

import pytest

import tilec
from tilec.jobs.messages import FORMS, SARIF_SCHEMA, annotation, form_of, render, sarif
from tilec.source.codes import CODES
from tilec.source.diagnostics import Diagnostic, Label, render_all, render_json
from tilec.source.text import Source, Span

TEXT = "const A = 1\nkernel f(x: f32[N]) -> y: f32[N]:\n    y[i] = z[i]\n"
SOURCE = Source("dir/a b,c:d%.tile", TEXT)


def over(words: str) -> Span:
    start = TEXT.index(words)
    return Span(SOURCE, start, start + len(words))


FOUND = (
    Diagnostic("W0601", "rows are read again", over("y[i]")),
    Diagnostic(
        "E0201", "no `z`", over("z[i]"), "here", (Label(over("A"), "near"),), ("n",), ("h",)
    ),
    Diagnostic("E0701", "100% wrong:\r\nreally", helps=("a, b",)),
    Diagnostic("E0201", "over lines", over("kernel f(x: f32[N]) -> y: f32[N]:\n    y")),
)


def test_sarif_is_one_run_whose_results_have_their_rule() -> None:
    log = json.loads(render(FOUND, "sarif"))
    assert (log["version"], log["$schema"]) == ("2.1.0", SARIF_SCHEMA)
    (run,) = log["runs"]
    driver = run["tool"]["driver"]
    assert (driver["name"], driver["version"]) == ("tilec", tilec.__version__)
    rules = [r["id"] for r in driver["rules"]]
    assert rules == ["E0201", "E0701", "W0601"]
    for rule in driver["rules"]:
        assert rule["shortDescription"] == {"text": CODES[rule["id"]].title}
        assert rule["defaultConfiguration"]["level"] in ("error", "warning")
        assert rule["help"]["text"]
    assert len(run["results"]) == len(FOUND)
    for result, diagnostic in zip(run["results"], FOUND, strict=True):
        assert rules[result["ruleIndex"]] == result["ruleId"] == diagnostic.code
        assert result["level"] == diagnostic.level
        assert result["message"]["text"].startswith(diagnostic.message)


def test_sarif_has_places_that_count_from_1() -> None:
    first, second, third, fourth = sarif(FOUND)["runs"][0]["results"]
    physical = first["locations"][0]["physicalLocation"]
    assert physical["artifactLocation"] == {"uri": "dir/a%20b%2Cc%3Ad%25.tile"}
    assert physical["region"] == {"startLine": 3, "startColumn": 5, "endLine": 3, "endColumn": 9}
    assert second["locations"][0]["message"] == {"text": "here"}
    assert second["message"]["text"] == "no `z`\nnote: n\nhelp: h"
    (related,) = second["relatedLocations"]
    assert related["message"] == {"text": "near"}
    assert related["physicalLocation"]["region"]["startLine"] == 1
    assert "locations" not in third
    region = fourth["locations"][0]["physicalLocation"]["region"]
    assert (region["startLine"], region["endLine"]) == (2, 3)


def test_sarif_names_absolute_files_by_uri() -> None:
    source = Source("/some dir/a.tile", TEXT)
    (result,) = sarif([Diagnostic("E0201", "m", Span(source, 0, 1))])["runs"][0]["results"]
    uri = result["locations"][0]["physicalLocation"]["artifactLocation"]["uri"]
    assert uri == "file:///some%20dir/a.tile"


def test_annotations_escape_what_would_end_a_property_or_the_line() -> None:
    warning, error, usage, lines = (annotation(d) for d in FOUND)
    title = CODES["W0601"].title.replace(",", "%2C").replace(":", "%3A")
    assert warning == (
        "::warning file=dir/a b%2Cc%3Ad%25.tile,line=3,col=5,endColumn=9,"
        f"title=W0601%3A {title}::rows are read again"
    )
    assert error.endswith("::no `z`%0Anote: n%0Ahelp: h")
    title = CODES["E0701"].title
    assert usage == f"::error title=E0701%3A {title}::100%25 wrong:%0D%0Areally%0Ahelp: a, b"
    assert ",line=2,endLine=3,title=" in lines
    assert render(FOUND, "github").splitlines() == [warning, error, usage, lines]


def test_text_and_json_are_those_of_the_diagnostics() -> None:
    assert render(FOUND, "text") == render_all(FOUND)
    assert render(FOUND, "json") == render_json(FOUND)


@pytest.mark.parametrize("form", FORMS)
def test_forms_by_name(form: str) -> None:
    assert form_of(form, False) == form
    assert form_of(form, True) == "json"
    assert form_of("frobnicate", False) == "text"
