"""The one spacing of a program: its lexemes and comments as they come, with the spaces between them replaced.

Lines stay as they are broken. A line of a block has 4 spaces a level, a line that goes on inside brackets 4 more for each
line that left one open. Two kinds of alignment are kept: comments after code stay in their column, and so do the `=` of
assignments that stand below each other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from itertools import pairwise

from tilec.source.diagnostics import Sink
from tilec.source.text import Source
from tilec.syntax.ast import Comment, Module
from tilec.syntax.lexing import OPERAND_END, Lexeme
from tilec.syntax.parser import lexemes, parse

INDENT = "    "
"""One level of blocks or brackets."""

_BLANKS = " \t\f"
_LAYOUT = frozenset({"_INDENT", "_DEDENT", "_NEWLINE"})
_OPENS = frozenset({"LPAR", "LSQB"})
_CLOSES = frozenset({"RPAR", "RSQB"})


def format_text(source: Source) -> str:
    """The text of `source` with its spacing normalised; lines end as its first does. Raises TileError as parsing does."""
    sink = Sink()
    parse(source, sink)
    sink.raise_if_errors()
    lines = _lines(source)
    if not lines:
        return ""
    _indent_comments(lines)
    for line in lines:
        if line.code:
            line.render()
    _align(lines)
    end = "\r\n" if source.text[: source.text.find("\n") + 1].endswith("\r\n") else "\n"
    out: list[str] = []
    for line in lines:
        if line.blank_before and out:
            out.append("")
        out.append(line.text())
    return "".join(text + end for text in out)


def says_the_same(before: Source, after: Source) -> bool:
    """Whether two texts without errors have equal syntax and the same comments in the same order."""
    ours, theirs = _parsed(before), _parsed(after)
    if ours is None or theirs is None:
        return False
    return ours == theirs and _comments(ours) == _comments(theirs)


def _parsed(source: Source) -> Module | None:
    sink = Sink()
    module = parse(source, sink)
    return None if sink.errors else module


def _comments(module: Module) -> list[str]:
    return [c.text.rstrip(_BLANKS) for c in module.comments]


@dataclass(frozen=True)
class _Place:
    """Where a lexeme stands: the level of its block, the brackets open before it as (bracket, line), the first lexeme of
    its logical line (None where it is that itself), and whether no operand ends before it, so that a sign belongs to what follows."""

    lexeme: Lexeme
    depth: int
    brackets: tuple[tuple[Lexeme, int], ...]
    head: Lexeme | None
    prefix: bool


@dataclass
class _Line:
    """One line of the text. `indent` counts levels; `column` is where it began, with tabs of 8. `equal` is the offset in
    `shown` of the `=` of an assignment, `equal_was` the one that it had from the first character, `spread` whether several
    spaces stood before it."""

    blank_before: bool
    column: int
    code: list[_Place] = field(default_factory=list)
    comment: Comment | None = None
    indent: int = 0
    shown: str = ""
    equal: int | None = None
    equal_was: int = 0
    spread: bool = False

    def begins(self) -> bool:
        """Whether a statement, a clause or a declaration begins here."""
        return bool(self.code) and self.code[0].head is None

    def render(self) -> None:
        """Write the code of the line."""
        first = self.code[0]
        self.indent = first.depth + _open_lines(self.code)
        parts = [first.lexeme.text]
        for before, place in pairwise(self.code):
            if _is_assignment(first, place):
                self.equal = sum(map(len, parts)) + 1
                self.equal_was = place.lexeme.span.start - first.lexeme.span.start
                self.spread = place.lexeme.span.start - before.lexeme.span.end > 1
            parts.append(_gap(before, place) + place.lexeme.text)
        self.shown = "".join(parts)

    def text(self) -> str:
        """The line as it is written."""
        out = INDENT * self.indent + self.shown
        if self.comment is None:
            return out
        words = f"#{self.comment.text}".rstrip(_BLANKS)
        if not self.code:
            return out + words
        kept = self.comment.span.start - self.code[0].lexeme.span.start
        return out + " " * max(2, kept - len(self.shown)) + words


# ------------------------------------------------------------------------------------------------ lines


def _lines(source: Source) -> list[_Line]:
    """The lines that are not blank."""
    comments: list[Comment] = []
    places = _places(source, comments)
    pieces: list[_Place | Comment] = [*places, *comments]
    pieces.sort(key=_start)
    lines: list[_Line] = []
    end = 0
    for piece in pieces:
        start = _start(piece)
        breaks = source.text.count("\n", end, start)
        if breaks or not lines:
            lines.append(_Line(breaks > 1, _column(source, start)))
        if isinstance(piece, Comment):
            lines[-1].comment = piece
            end = piece.span.end
        else:
            lines[-1].code.append(piece)
            end = piece.lexeme.span.end
    return lines


def _start(piece: _Place | Comment) -> int:
    return piece.span.start if isinstance(piece, Comment) else piece.lexeme.span.start


def _column(source: Source, start: int) -> int:
    before = source.text[source.text.rfind("\n", 0, start) + 1 : start]
    return len(before.replace("\f", "").expandtabs(8))


def _places(source: Source, comments: list[Comment]) -> list[_Place]:
    """Every lexeme that has text, with where it stands."""
    places: list[_Place] = []
    brackets: list[tuple[Lexeme, int]] = []
    depth = 0
    head: Lexeme | None = None
    previous = ""
    for lexeme in lexemes(source, comments):
        if lexeme.type in _LAYOUT:
            depth += {"_INDENT": 1, "_DEDENT": -1}.get(lexeme.type, 0)
            head, previous = None, ""
            continue
        prefix = previous not in OPERAND_END
        places.append(_Place(lexeme, depth, tuple(brackets), head, prefix))
        previous = lexeme.type
        head = head or lexeme
        if lexeme.type in _OPENS:
            brackets.append((lexeme, lexeme.span.line))
        elif lexeme.type in _CLOSES:
            brackets.pop()
    return places


def _open_lines(code: list[_Place]) -> int:
    """How many lines left a bracket open that the line of `code` does not begin by closing."""
    closing = 0
    for place in code:
        if place.lexeme.type not in _CLOSES:
            break
        closing += 1
    brackets = code[0].brackets
    return len({line for _, line in brackets[: len(brackets) - closing]})


def _indent_comments(lines: list[_Line]) -> None:
    """Give lines without code their level: inside brackets that of a line of them, else one of the blocks around it.

    Where a block ends after a comment, the comment belongs to the innermost block that it is indented for.
    """
    columns = [0]
    followers: list[_Line | None] = [None]
    for line in reversed(lines[1:]):
        followers.append(line if line.code else followers[-1])
    for line, following in zip(lines, reversed(followers), strict=True):
        if line.code:
            if line.begins():
                columns[line.code[0].depth :] = [line.column]
            continue
        if following is not None and not following.begins():
            place = following.code[0]
            line.indent = place.depth + len({number for _, number in place.brackets})
            continue
        level = following.code[0].depth if following is not None else 0
        deeper = [d for d in range(level + 1, len(columns)) if columns[d] <= line.column]
        line.indent = max(deeper, default=level)


def _align(lines: list[_Line]) -> None:
    """Put the `=` of assignments below each other where they were, and one of them was moved there by spaces."""
    run: list[_Line] = []
    for line in [*lines, _Line(True, 0)]:
        last = run[-1] if run else None
        if last is not None and not (
            line.equal is not None
            and not line.blank_before
            and line.equal_was == last.equal_was
            and line.indent == last.indent
        ):
            _align_run(run)
            run = []
        if line.equal is not None:
            run.append(line)


def _align_run(run: list[_Line]) -> None:
    if len(run) < 2 or not any(line.spread for line in run):
        return
    width = max(line.equal or 0 for line in run)
    for line in run:
        at = line.equal or 0
        line.shown = line.shown[:at] + " " * (width - at) + line.shown[at:]


# ----------------------------------------------------------------------------------------------- spaces


def _is_assignment(first: _Place, place: _Place) -> bool:
    """Whether `place` is the `=` of the assignment or the `const` that `first` begins."""
    return (
        place.lexeme.type == "EQUAL"
        and not place.brackets
        and place.head is first.lexeme
        and first.lexeme.type in ("NAME", "CONST")
    )


def _gap(before: _Place, place: _Place) -> str:
    """What stands between two neighbours on a line."""
    left, right = before.lexeme.type, place.lexeme.type
    inside = place.brackets[-1][0].type if place.brackets else ""
    if right == "COMMA" or right in _CLOSES or left in _OPENS:
        return ""
    if left == "COMMA":
        return " "
    if right == "DOT":
        # `1 .x` is the attribute of an integer, `1.x` may be a float
        apart = before.lexeme.span.end < place.lexeme.span.start
        return " " if left in ("INTEGER", "FLOAT") and apart else ""
    if left == "DOT":
        return ""
    if "COLON" in (left, right):
        if _is_range(place):
            return " "
        return " " if left == "COLON" and inside != "LSQB" else ""
    if "EQUAL" in (left, right):
        return "" if _is_keyword(place) else " "
    if left in ("SIGN", "TILDE") and before.prefix:
        return ""
    if right in _OPENS and left in OPERAND_END:
        return ""
    return " "


def _is_range(place: _Place) -> bool:
    """Whether a colon beside `place` is that of `lo : hi` in a loop's range."""
    return (
        len(place.brackets) == 1
        and place.brackets[0][0].type == "LPAR"
        and place.head is not None
        and place.head.type == "FOR"
    )


def _is_keyword(place: _Place) -> bool:
    """Whether an `=` beside `place` gives an argument of a call its name."""
    if not place.brackets or place.brackets[-1][0].type != "LPAR":
        return False
    return not (len(place.brackets) == 1 and place.head is not None and place.head.type == "KERNEL")
