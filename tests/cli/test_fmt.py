"""`tilec fmt` as a command."""

from __future__ import annotations

import io
import json
import sys

import pytest

UGLY = "const A=1 # one\n\n\n\nfn f( a ):\n  return a\n"
NEAT = "const A = 1  # one\n\nfn f(a):\n    return a\n"
BAD = "fn f(a:\n  return a\n"


@pytest.fixture
def files(folder):
    """ugly.tile, neat.tile and bad.tile in the current folder."""
    (folder / "ugly.tile").write_text(UGLY)
    (folder / "neat.tile").write_text(NEAT)
    (folder / "bad.tile").write_text(BAD)
    return folder


def test_files_in_place(tilec, files) -> None:
    (files / "ugly.tile").chmod(0o640)
    before = (files / "neat.tile").stat()
    assert tilec("fmt", "ugly.tile", "neat.tile") == (0, "", "")
    assert (files / "ugly.tile").read_text() == NEAT
    assert (files / "ugly.tile").stat().st_mode & 0o777 == 0o640
    after = (files / "neat.tile").stat()
    assert (after.st_ino, after.st_mtime_ns) == (before.st_ino, before.st_mtime_ns)


def test_check_names_what_would_change(tilec, files) -> None:
    assert tilec("fmt", "--check", "neat.tile", "ugly.tile") == (1, "ugly.tile\n", "")
    assert (files / "ugly.tile").read_text() == UGLY
    assert tilec("fmt", "--check", "neat.tile") == (0, "", "")


def test_diff_changes_nothing(tilec, files) -> None:
    status, out, err = tilec("fmt", "--diff", "ugly.tile", "neat.tile")
    assert (status, err) == (0, "")
    assert out.startswith("--- ugly.tile\n+++ ugly.tile\n@@ -1,6 +1,4 @@\n-const A=1 # one\n")
    assert (files / "ugly.tile").read_text() == UGLY
    assert tilec("fmt", "--diff", "--check", "ugly.tile") == (1, out, "")


def test_a_diff_of_a_last_line_without_its_end(tilec, files) -> None:
    (files / "ugly.tile").write_text("const A = 1")
    assert tilec("fmt", "--diff", "ugly.tile")[1] == (
        "--- ugly.tile\n+++ ugly.tile\n@@ -1 +1 @@\n"
        "-const A = 1\n\\ No newline at end of file\n+const A = 1\n"
    )


def feed(monkeypatch: pytest.MonkeyPatch, text: bytes) -> None:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text)))


def test_standard_input_to_standard_output(tilec, monkeypatch) -> None:
    feed(monkeypatch, UGLY.encode())
    assert tilec("fmt", "-") == (0, NEAT, "")
    feed(monkeypatch, UGLY.encode())
    assert tilec("fmt", "-", "--check") == (1, "<stdin>\n", "")
    feed(monkeypatch, NEAT.encode())
    assert tilec("fmt", "-") == (0, NEAT, "")
    feed(monkeypatch, b"\xff")
    status, out, err = tilec("fmt", "-")
    assert (status, out) == (1, "")
    assert err.startswith("error[E0123]")
    status, _, err = tilec("fmt", "-", "a.tile")
    assert status == 2
    assert err.startswith("error[E0709]")


def test_a_file_with_an_error_is_left_alone_and_the_others_are_done(tilec, files) -> None:
    status, out, err = tilec("fmt", "bad.tile", "none.tile", "ugly.tile")
    assert (status, out) == (2, "")
    assert err.startswith("error[E0101]")
    assert "--> bad.tile:1:7" in err
    assert "error[E0703]" in err
    assert (files / "bad.tile").read_text() == BAD
    assert (files / "ugly.tile").read_text() == NEAT
    status, _, err = tilec("fmt", "bad.tile", "--diagnostics", "sarif")
    assert status == 1
    assert json.loads(err)["runs"][0]["results"][0]["ruleId"] == "E0101"


def test_a_result_that_says_something_else_is_a_fault(tilec, files, monkeypatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(files / "cache"))
    monkeypatch.setattr("tilec.syntax.formatting.format_text", lambda source: "const A = 2\n")
    status, out, err = tilec("fmt", "ugly.tile")
    assert (status, out) == (70, "")
    assert err.startswith("error[E7004]: formatting would change what `ugly.tile` says")
    assert (files / "ugly.tile").read_text() == UGLY
    _, _, err = tilec("fmt", "ugly.tile", "--json-diagnostics")
    assert json.loads(err)[0]["code"] == "E7004"
    (bundle,) = (files / "cache" / "faults").iterdir()
    assert (bundle / "before.tile").read_text() == UGLY
    assert (bundle / "after.tile").read_text() == "const A = 2\n"


def test_a_file_is_needed(tilec) -> None:
    assert tilec("fmt")[0] == 2
