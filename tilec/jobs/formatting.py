"""The work of `tilec fmt`: files in place, standard input to standard output, or only what would change."""

from __future__ import annotations

import difflib
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tilec.jobs.outputs import STANDARD_OUTPUT, write_outputs
from tilec.jobs.requests import check_source
from tilec.source.diagnostics import Diagnostic, TileError, fail
from tilec.source.text import Source

STANDARD_INPUT = "-"
"""The file that stands for standard input."""


@dataclass(frozen=True)
class FormatRequest:
    """The command line of `tilec fmt`, option by option."""

    files: tuple[str, ...]
    check: bool = False
    diff: bool = False


def format_files(request: FormatRequest) -> int:
    """Format each file; a file with an error is left alone and the others are done. Returns the exit status.

    Raises TileError with the errors of all files, E7004 among them where the result would say something else.
    """
    if STANDARD_INPUT in request.files and len(request.files) > 1:
        raise fail("E0709", "standard input, `-`, is formatted alone, without files")
    found: list[Diagnostic] = []
    changed = False
    for file in request.files:
        try:
            changed = _format(file, request) or changed
        except TileError as error:
            found += error.diagnostics
    if found:
        raise TileError(found)
    return 1 if changed and request.check else 0


def _format(file: str, request: FormatRequest) -> bool:
    """Format one file; returns whether it differs from what it becomes."""
    source = _standard_input() if file == STANDARD_INPUT else _read(file)
    text = formatted(source)
    changed = text != source.text
    if request.diff:
        sys.stdout.writelines(_difference(source, text))
    if request.check:
        if changed and not request.diff:
            sys.stdout.write(f"{source.name}\n")
    elif not request.diff:
        if file == STANDARD_INPUT:
            write_outputs({STANDARD_OUTPUT: text.encode()})
        elif changed:
            write_outputs({file: text.encode()})
    return changed


def formatted(source: Source) -> str:
    """The text of `source` with its spacing normalised, read again to prove that it says the same.

    Raises TileError: errors of the program, and E7004 where the proof fails.
    """
    from tilec.syntax.formatting import format_text, says_the_same
    from tilec.toolchain.fault import save_bundle

    text = format_text(source)
    if not says_the_same(source, Source(source.name, text)):
        folder = save_bundle({"before.tile": source.text, "after.tile": text})
        raise fail(
            "E7004",
            f"formatting would change what `{source.name}` says, so it is left as it is",
            note=f"both texts are in `{folder}`" if folder else "",
            help="this is a fault of tilec, not of the program: please report it with that folder",
        )
    return text


def _read(file: str) -> Source:
    from tilec.syntax.loading import read_source

    check_source(file)
    return read_source(file)


def _standard_input() -> Source:
    try:
        return Source("<stdin>", sys.stdin.buffer.read().decode("utf-8-sig"))
    except UnicodeDecodeError:
        raise fail("E0123", "standard input is not UTF-8", help="give it as UTF-8") from None


def _difference(source: Source, text: str) -> Iterator[str]:
    """A unified diff, line by line."""
    before, after = _kept_lines(source.text), _kept_lines(text)
    for line in difflib.unified_diff(before, after, source.name, source.name):
        yield line if line.endswith("\n") else f"{line}\n\\ No newline at end of file\n"


def _kept_lines(text: str) -> Sequence[str]:
    """The lines with their ends; only a line feed ends one."""
    lines = [f"{line}\n" for line in text.split("\n")]
    last = lines.pop()[:-1]
    return [*lines, last] if last else lines
