"""Text to abstract syntax.

A file is split at the lines that begin a declaration and each part is parsed by itself: an error skips to the
next declaration, so that all declarations report theirs.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, cast

from tilec.source.diagnostics import Sink, TileError
from tilec.source.text import Source, Span
from tilec.syntax.ast import Comment, Item, Module
from tilec.syntax.building import Builder
from tilec.syntax.lexing import Alphabet, Lexeme, Reader, alphabet
from tilec.syntax.mistakes import explain
from tilec.syntax.tables import load_parser

if TYPE_CHECKING:
    from lark import Lark

ERROR_LIMIT = 200
"""Syntax errors after which the rest of a file is left."""

_DECLARATION = re.compile(
    r"^(?:(?:kernel|fn|const|def|class|struct|template|from)[ \t]+[A-Za-z_]|import[ \t]*[A-Za-z_\"])",
    re.MULTILINE,
)


@cache
def _machine() -> tuple[Lark, Alphabet]:
    """The parser and its alphabet, loaded once a process."""
    parser = load_parser(Builder())
    return parser, alphabet(cast(Any, parser.terminals), parser.lexer_conf.ignore)


def parse(source: Source, sink: Sink) -> Module:
    """The module that `source` says, without the declarations that have an error; those go to `sink`."""
    items: list[Item] = []
    comments: list[Comment] = []
    errors = 0
    for start, end in _parts(source):
        if errors == ERROR_LIMIT:
            sink.error(
                "E0113",
                f"{ERROR_LIMIT} syntax errors; the rest of the file is not read",
                Span(source, start, start + 1),
            )
            break
        try:
            items += _declarations(source, start, end, comments)
        except TileError as error:
            errors += 1
            for diagnostic in error.diagnostics:
                sink.add(diagnostic)
    return Module(source, tuple(items), tuple(comments), span=Span(source, 0, len(source.text)))


def lexemes(source: Source, comments: list[Comment]) -> Iterator[Lexeme]:
    """The lexemes of `source`, layout included; comments are appended to `comments`. Raises TileError."""
    _, letters = _machine()
    for start, end in _parts(source):
        yield from Reader(letters, source, start, end, comments)


def _parts(source: Source) -> list[tuple[int, int]]:
    """Where each declaration starts and the next begins; what stands before the first is a part, too."""
    starts = [m.start() for m in _DECLARATION.finditer(source.text)]
    if not starts or starts[0] != 0:
        starts.insert(0, 0)
    return list(zip(starts, [*starts[1:], len(source.text)], strict=True))


def _declarations(
    source: Source, start: int, end: int, comments: list[Comment]
) -> tuple[Item, ...]:
    """The declarations in one part of a file. Raises TileError at its first mistake."""
    from lark.exceptions import UnexpectedToken

    parser, letters = _machine()
    reader = Reader(letters, source, start, end, comments)
    interactive: Any = parser.parse_interactive()
    state = interactive.parser_state
    previous: Lexeme | None = None
    lexeme = Lexeme("$END", "", Span(source, end, end))
    try:
        for lexeme in reader:
            state.feed_token(lexeme)
            previous = lexeme
        lexeme = Lexeme("$END", "", Span(source, end, end))
        items: tuple[Item, ...] = state.feed_token(lexeme, True)
    except UnexpectedToken:
        raise explain(lexeme, previous, interactive.accepts(), reader) from None
    return items
