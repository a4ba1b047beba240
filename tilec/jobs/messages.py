"""Messages in the form that the command line asks for: text, JSON, SARIF 2.1.0 or annotations of GitHub's workflows."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from pathlib import PurePath
from typing import Any, Literal, TypeAlias, get_args

import tilec
from tilec.source.codes import CODES
from tilec.source.diagnostics import Diagnostic, render_all, render_json
from tilec.source.text import Span

Form: TypeAlias = Literal["text", "json", "sarif", "github"]
"""What `--diagnostics` takes."""

FORMS: tuple[Form, ...] = get_args(Form)

SARIF_SCHEMA = "https://json.schemastore.org/sarif-2.1.0.json"
"""The schema of the SARIF that is written."""


def form_of(diagnostics: str, json_diagnostics: bool) -> Form:
    """The form that `--diagnostics` and `--json-diagnostics` ask for together."""
    if json_diagnostics:
        return "json"
    return next((form for form in FORMS if form == diagnostics), "text")


def render(diagnostics: Iterable[Diagnostic], form: Form) -> str:
    """All messages in `form`, no newline at the end."""
    match form:
        case "text":
            return render_all(diagnostics)
        case "json":
            return render_json(diagnostics)
        case "sarif":
            return json.dumps(sarif(list(diagnostics)), indent=2)
        case "github":
            return "\n".join(annotation(d) for d in diagnostics)


# ------------------------------------------------------------------------------------------------ SARIF


def sarif(diagnostics: Sequence[Diagnostic]) -> dict[str, Any]:
    """The messages as a SARIF 2.1.0 log of one run; its rules are the codes used, sorted."""
    codes = sorted({d.code for d in diagnostics})
    driver = {"name": "tilec", "version": tilec.__version__, "rules": [_rule(c) for c in codes]}
    run = {
        "tool": {"driver": driver},
        # columns of messages count characters, not UTF-16 units
        "columnKind": "unicodeCodePoints",
        "results": [_result(d, codes.index(d.code)) for d in diagnostics],
    }
    return {"$schema": SARIF_SCHEMA, "version": "2.1.0", "runs": [run]}


def _rule(code: str) -> dict[str, Any]:
    entry = CODES[code]
    return {
        "id": code,
        "shortDescription": {"text": entry.title},
        "fullDescription": {"text": entry.explanation},
        "help": {"text": entry.explanation, "markdown": entry.explanation},
        "defaultConfiguration": {"level": "warning" if code.startswith("W") else "error"},
    }


def _result(diagnostic: Diagnostic, rule: int) -> dict[str, Any]:
    result: dict[str, Any] = {
        "ruleId": diagnostic.code,
        "ruleIndex": rule,
        "level": diagnostic.level,
        "message": {"text": _whole(diagnostic)},
    }
    if diagnostic.span:
        result["locations"] = [_location(diagnostic.span, diagnostic.label)]
    if diagnostic.secondary:
        result["relatedLocations"] = [_location(s.span, s.text) for s in diagnostic.secondary]
    return result


def _location(span: Span, text: str) -> dict[str, Any]:
    line, column = span.source.location(span.start)
    end_line, end_column = span.source.location(span.end)
    location: dict[str, Any] = {
        "physicalLocation": {
            "artifactLocation": {"uri": _uri(span.source.name)},
            "region": {
                "startLine": line,
                "startColumn": column,
                "endLine": end_line,
                "endColumn": end_column,
            },
        }
    }
    if text:
        location["message"] = {"text": text}
    return location


def _uri(name: str) -> str:
    from urllib.parse import quote

    path = PurePath(name)
    return path.as_uri() if path.is_absolute() else quote(path.as_posix())


# ----------------------------------------------------------------------------------------------- GitHub


def annotation(diagnostic: Diagnostic) -> str:
    """The message as one workflow command of GitHub, such as `::error file=a.tile,line=3,…::text`."""
    properties: dict[str, str | int] = {}
    if diagnostic.span:
        span = diagnostic.span
        line, column = span.source.location(span.start)
        end_line, end_column = span.source.location(span.end)
        properties |= {"file": span.source.name, "line": line}
        if end_line == line:
            properties |= {"col": column, "endColumn": end_column}
        else:
            # columns are for annotations of one line
            properties["endLine"] = end_line
    properties["title"] = f"{diagnostic.code}: {CODES[diagnostic.code].title}"
    shown = ",".join(f"{name}={_escaped_property(str(v))}" for name, v in properties.items())
    return f"::{diagnostic.level} {shown}::{_escaped(_whole(diagnostic))}"


def _escaped(text: str) -> str:
    return text.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")


def _escaped_property(text: str) -> str:
    return _escaped(text).replace(":", "%3A").replace(",", "%2C")


def _whole(diagnostic: Diagnostic) -> str:
    """Message, notes and helps, a line each."""
    notes = [f"note: {n}" for n in diagnostic.notes]
    helps = [f"help: {h}" for h in diagnostic.helps]
    return "\n".join([diagnostic.message, *notes, *helps])
