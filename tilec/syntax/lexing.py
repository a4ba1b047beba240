"""Text to lexemes: characters by the terminals of the grammar, then lines to layout and words to keywords.

The reader works through its text once, lexeme by lexeme, so a mistake early in a long text costs little. It
also bounds nesting (NESTING_LIMIT), so that whatever walks the tree later may recurse.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Protocol

from tilec.lazy_dataclass import dataclass
from tilec.source.diagnostics import Diagnostic, Label, TileError, fail
from tilec.source.text import Source, Span
from tilec.syntax.ast import Comment

NESTING_LIMIT = 200
"""Blocks, brackets and operators on any path from a declaration to a leaf."""


class Lexeme:
    """One terminal: its name in the grammar, its text and its place."""

    __slots__ = ("span", "text", "type")

    def __init__(self, type: str, text: str, span: Span) -> None:
        self.type = type
        self.text = text
        self.span = span


class Pattern(Protocol):
    """What is asked of a Lark pattern."""

    value: str
    type: str
    max_width: int

    def to_regexp(self) -> str:
        """The pattern as a regular expression."""
        ...


class Terminal(Protocol):
    """What is asked of a Lark terminal."""

    name: str
    priority: int
    pattern: Pattern


@dataclass(frozen=True)
class Alphabet:
    """The terminals of the grammar: one expression for all of them, and the words that may be keywords."""

    match: re.Pattern[str]
    words: dict[str, str]


def alphabet(terminals: Iterable[Terminal], ignored: Iterable[str]) -> Alphabet:
    """The alphabet of Lark's `terminals`; `ignored` are the names of those that separate others."""
    words: dict[str, str] = {}
    patterns: list[Terminal] = []
    for terminal in terminals:
        if terminal.pattern.type == "str" and terminal.pattern.value.isalpha():
            words[terminal.pattern.value] = terminal.name
        else:
            patterns.append(terminal)
    patterns.sort(key=lambda t: (-t.priority, -t.pattern.max_width, -len(t.pattern.value), t.name))
    skipped = {name for name in ignored if name != "COMMENT"}
    blank = "|".join(t.pattern.to_regexp() for t in patterns if t.name in skipped)
    shown = "|".join(
        f"(?P<{t.name}>{t.pattern.to_regexp()})" for t in patterns if t.name not in skipped
    )
    return Alphabet(re.compile(f"(?:{blank})*(?:{shown})?"), words)


RESERVED = frozenset(
    ["if", "elif", "else", "for", "return", "and", "or", "not", "true", "false", "None"]
)
"""Words that are never names."""

_OPENING = frozenset(
    [
        "kernel",
        "fn",
        "const",
        "import",
        "require",
        "tune",
        "schedule",
        "temp",
        "check",
        "example",
        "flops",
        "bytes",
        "assert",
    ]
)
_INFIX = frozenset(["in", "by", "where", "key", "within", "strides"])
OPERAND_END = frozenset(
    {"NAME", "INTEGER", "FLOAT", "STRING", "TRUE", "FALSE", "NONE", "RPAR", "RSQB"}
)
"""Lexemes that end an operand: an operator after one has two operands, a bracket belongs to it."""
_NAME_FOLLOWS = frozenset({"EQUAL", "AUGMENT", "LSQB", "DOT", "COMMA"})
_OPERATORS = frozenset(
    {
        *("SIGN", "FACTOR", "POWER", "SHIFT", "COMPARE", "BAR", "CARET", "AMPERSAND", "TILDE"),
        *("DOT", "IF", "AND", "OR", "NOT"),
    }
)
_CLOSES = {"RPAR": "LPAR", "RSQB": "LSQB"}
_NAME_PARTS = "name a part of it on a line of its own"
_MOVE = "move part of it into a `fn`"

CHARACTER_HELP = {
    ";": "a statement ends with its line; write one on each",
    "{": "a block is a `:` and the indented lines after it",
    "}": "a block is a `:` and the indented lines after it",
    "'": 'strings stand between `"` and `"`',
    "!": "write `not x`, or `!=` to compare",
    "?": "write `a if condition else b`",
    "\\": "a line goes on inside `(` and `)` without a mark at its end",
    "−": "write `-`",
    "“": 'strings stand between `"` and `"`',
    "”": 'strings stand between `"` and `"`',
    "’": 'strings stand between `"` and `"`',
    "\r": "lines end with a line feed, or a carriage return and a line feed",
}
"""What to write instead of characters that other languages use."""


class Reader:
    """Iterates over the lexemes of `source[start:end]`, layout included, `$END` excluded.

    After an error `brackets` holds the brackets then open and `first` the lexeme that began the logical line. Comments read are appended to `comments`. Raises TileError.
    """

    def __init__(
        self, alphabet: Alphabet, source: Source, start: int, end: int, comments: list[Comment]
    ) -> None:
        self.alphabet = alphabet
        self.source = source
        self.start = start
        self.end = end
        self.comments = comments
        self.brackets: list[Lexeme] = []
        self.first: Lexeme | None = None
        self._counts = [0]
        self._indents = [""]
        self._branches = [0]
        self._depth = 0

    def __iter__(self) -> Iterator[Lexeme]:
        scanned = self._scan()
        current = next(scanned, None)
        previous: Lexeme | None = None
        tolerances = False
        while current is not None:
            following = next(scanned, None) if current.type == "NAME" else None
            looked = current.type == "NAME"
            if self.first is None:
                if current.type == "_NEWLINE":
                    current = next(scanned, None)
                    continue
                yield from self._indent(current)
                previous, tolerances = None, False
            if current.type == "NAME":
                self._word(current, previous, following, tolerances)
                tolerances = tolerances or current.type == "WITHIN"
            if self.first is None:
                self.first = current
                self._branch(current)
            self._nest(current)
            if current.type == "_NEWLINE":
                if self.brackets:
                    current = following if looked else next(scanned, None)
                    continue
                yield current
                self.first = previous = None
            else:
                yield current
                previous = current
            current = following if looked else next(scanned, None)
        last = Span(self.source, self.end, self.end)
        if self.brackets:
            raise unclosed(self.brackets[-1])
        if self.first is not None:
            yield Lexeme("_NEWLINE", "", last)
            self.first = None
        for _ in self._indents[1:]:
            yield Lexeme("_DEDENT", "", last)

    def _scan(self) -> Iterator[Lexeme]:
        match, source, text, end = (
            self.alphabet.match.match,
            self.source,
            self.source.text,
            self.end,
        )
        position = self.start
        while True:
            found = match(text, position, end)
            assert found is not None
            kind = found.lastgroup
            position = found.end()
            if kind is None:
                if position >= end:
                    return
                raise self._unreadable(position)
            start = found.start(kind)
            if kind == "COMMENT":
                self.comments.append(
                    Comment(text[start + 1 : position], span=Span(source, start, position))
                )
                continue
            if kind in ("INTEGER", "FLOAT") and text[position : position + 1].isalnum():
                raise self._bad_number(start)
            yield Lexeme(kind, found[kind], Span(source, start, position))

    def _unreadable(self, position: int) -> TileError:
        character = self.source.text[position]
        if character == '"':
            line_end = self.source.text.find("\n", position)
            span = Span(
                self.source, position, self.end if line_end < 0 else min(line_end, self.end)
            )
            return fail(
                "E0107",
                "string without its closing quote",
                span,
                help='end it with `"` on this line',
            )
        span = Span(self.source, position, position + 1)
        if character.isprintable():
            message = f"unexpected character `{character}`"
        else:
            message = f"unexpected character U+{ord(character):04X}"
        helped = CHARACTER_HELP.get(character, "")
        if character == "\0":
            message, helped = (
                "unexpected NUL byte",
                "a program is text; is this another kind of file?",
            )
        elif character.isalpha():
            helped = "names are made of ASCII letters, digits and `_`"
        return fail("E0102", message, span, help=helped)

    def _bad_number(self, start: int) -> TileError:
        found = re.compile(r"\d[\d.]*[eE][+-]\w+|[\w.]+").match(self.source.text, start, self.end)
        assert found is not None
        shown = found[0] if len(found[0]) <= 40 else found[0][:40] + "…"
        return fail(
            "E0106",
            f"`{shown}` is neither a number nor a name",
            Span(self.source, start, found.end()),
            help="a name begins with a letter or `_`",
        )

    def _word(
        self, word: Lexeme, previous: Lexeme | None, following: Lexeme | None, tolerances: bool
    ) -> None:
        """Make `word` the keyword that it is in this place, or leave it a name."""
        terminal = self.alphabet.words.get(word.text)
        if terminal is None or (previous is not None and previous.type == "DOT"):
            return
        before = previous.type if previous is not None else ""
        after = following.type if following is not None else ""
        if word.text in RESERVED:
            keyword = True
        elif word.text in _OPENING:
            keyword = not before and not self.brackets and after not in _NAME_FOLLOWS
            keyword = keyword and (after != "COLON" or word.text == "check")
        elif word.text in _INFIX:
            keyword = before in OPERAND_END or (
                word.text == "within" and before == "CHECK" and after == "NAME"
            )
        elif word.text == "inout":
            keyword = before in ("LPAR", "COMMA") and after == "NAME"
        elif word.text == "cpu":
            keyword = before == "EXAMPLE" and after != "EQUAL"
        else:
            keyword = before == "WITHIN" or (before == "COMMA" and tolerances)
        if keyword:
            word.type = terminal

    def _indent(self, lexeme: Lexeme) -> Iterator[Lexeme]:
        """The changes of indentation before the first lexeme of a logical line."""
        start = lexeme.span.start
        line_start = self.source.text.rfind("\n", 0, start) + 1
        indent = self.source.text[line_start:start].replace("\f", "")
        place = Span(self.source, line_start, start)
        if indent == self._indents[-1]:
            return
        if indent in self._indents:
            while self._indents[-1] != indent:
                self._indents.pop()
                self._branches.pop()
                yield Lexeme("_DEDENT", "", Span(self.source, start, start))
        elif indent.startswith(self._indents[-1]):
            self._indents.append(indent)
            self._branches.append(0)
            yield Lexeme("_INDENT", "", lexeme.span)
        elif "\t" in indent + self._indents[-1]:
            raise fail(
                "E0103",
                "tabs and spaces are mixed differently from the lines above",
                place,
                help="indent with spaces only",
            )
        else:
            widths = " or ".join(str(len(i)) for i in self._indents[-4:])
            raise fail(
                "E0103",
                "this line is indented like no open block",
                place,
                help=f"indent it by {widths} characters",
            )

    def _branch(self, lexeme: Lexeme) -> None:
        """Count `elif`, each of which nests in the one before it, and bound blocks."""
        if lexeme.type == "ELIF":
            self._branches[-1] += 1
        elif lexeme.type != "ELSE":
            self._branches[-1] = 0
        self._bound(lexeme)

    def _nest(self, lexeme: Lexeme) -> None:
        """Follow brackets and operators."""
        kind = lexeme.type
        counts = self._counts
        if kind in _OPERATORS:
            counts[-1] += 1
            self._depth += 1
            self._bound(lexeme)
        elif kind in ("LPAR", "LSQB"):
            self.brackets.append(lexeme)
            counts[-1] += 1
            self._depth += 1
            counts.append(0)
            self._bound(lexeme)
        elif kind in _CLOSES:
            if not self.brackets:
                raise fail("E0104", f"`{lexeme.text}` closes nothing", lexeme.span)
            if self.brackets[-1].type != _CLOSES[kind]:
                raise unclosed(self.brackets[-1], lexeme)
            self.brackets.pop()
            self._depth -= counts.pop()
        elif kind in ("COMMA", "EQUAL", "COLON") or (kind == "_NEWLINE" and not self.brackets):
            self._depth -= counts[-1]
            counts[-1] = 0

    def _bound(self, lexeme: Lexeme) -> None:
        blocks = len(self._indents) - 1 + sum(self._branches)
        if self._depth + blocks > NESTING_LIMIT:
            what = "block" if blocks > self._depth else "expression"
            raise fail(
                "E0110",
                f"{what} nested more than {NESTING_LIMIT} deep",
                lexeme.span,
                help=_MOVE if what == "block" else _NAME_PARTS,
            )


def unclosed(bracket: Lexeme, found: Lexeme | None = None) -> TileError:
    """The error of a bracket left open where `found` stands, or at the end of its declaration."""
    closing = ")" if bracket.type == "LPAR" else "]"
    secondary = (Label(found.span, f"`{closing}` or `,` expected before this"),) if found else ()
    return TileError(
        [
            Diagnostic(
                "E0104",
                f"`{bracket.text}` is not closed",
                bracket.span,
                "opened here",
                secondary,
                (),
                (f"add the missing `{closing}`",),
            )
        ]
    )
