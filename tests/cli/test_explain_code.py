"""`tilec explain CODE`."""

from __future__ import annotations

import json

import pytest

from tilec.source.codes import CODES


@pytest.mark.parametrize("code", sorted(CODES))
def test_a_code_is_explained(tilec, code) -> None:
    status, out, err = tilec("explain", code)
    assert (status, err) == (0, "")
    assert out.startswith(f"{code}: {CODES[code].title[:20]}")
    shown = " ".join(out.split())
    assert shown == " ".join(f"{code}: {CODES[code].title} {CODES[code].explanation}".split())
    assert "\0" not in out


@pytest.mark.parametrize(
    ("code", "near"),
    [("E7009", "E7003"), ("E0129", "E0127"), ("W9999", "W0603"), ("E0000", "E0101")],
)
def test_an_unknown_code_names_the_nearest(tilec, code, near) -> None:
    status, out, err = tilec("explain", code)
    assert (status, out) == (2, "")
    assert err.startswith(f"error[E0723]: there is no code `{code}`\nhelp: the nearest are `")
    assert f"`{near}` ({CODES[near].title})" in err
    _, _, err = tilec("explain", code, "--json-diagnostics")
    assert json.loads(err)[0]["code"] == "E0723"


@pytest.mark.parametrize("more", [("f",), ("-D", "A=1"), ("--arch", "sm_90"), ("--no-tuned",)])
def test_a_code_takes_nothing_else(tilec, more) -> None:
    status, _, err = tilec("explain", "E0101", *more)
    assert status == 2
    assert err.startswith("error[E0709]")
