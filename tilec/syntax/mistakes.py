"""What a syntax error says: what was found, what could stand there, and what was probably meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from tilec.ir.dtypes import DTYPES
from tilec.source.diagnostics import TileError, fail
from tilec.source.text import Span
from tilec.syntax.building import FOREIGN
from tilec.syntax.lexing import RESERVED, Lexeme, Reader, unclosed

_CLAUSE_WORDS = frozenset(
    {"REQUIRE", "TUNE", "SCHEDULE", "TEMP", "CHECK", "EXAMPLE", "FLOPS", "BYTES"}
)
_DECLARATION_WORDS = frozenset({"KERNEL", "FN", "CONST", "IMPORT"})
_EXPECTED = {
    "_INDENT": "an indented block",
    "STRING": 'a path in `"`',
    "COLON": "`:`",
    "RPAR": "`)`",
    "RSQB": "`]`",
    "EQUAL": "`=`",
    "COMMA": "`,`",
    "LPAR": "`(`",
    "LSQB": "`[`",
    "ARROW": "`->`",
    "IN": "`in`",
    "ELSE": "`else`",
    "DOT": "`.`",
    "RTOL": "`rtol`",
    "ATOL": "`atol`",
    "_NEWLINE": "the end of the line",
}


def explain(
    found: Lexeme, previous: Lexeme | None, accepted: Iterable[str], reader: Reader
) -> TileError:
    """The error where `found` stands after `previous` and only `accepted` terminals could."""
    could = frozenset(accepted)
    special = _foreign(found, previous, could, reader) or _misplaced(found, could, reader)
    if special is not None:
        return special
    if reader.brackets and _starts_line(found) and found.type not in ("RPAR", "RSQB"):
        bracket = reader.brackets[-1]
        if found is not bracket:
            return unclosed(bracket, found)
    if found.type == "COMPARE" and "AND" in could and "COMPARE" not in could:
        return fail(
            "E0105",
            "comparisons cannot be chained",
            found.span,
            help="write `a < b and b < c`, or `(a < b) & (b < c)` of tiles",
        )
    if found.type == "_INDENT":
        return fail(
            "E0103",
            "this line is indented where no block begins",
            _line_indent(found),
            help="indent it like the line above, or end that line with `:`",
        )
    if could == {"_INDENT"}:
        return fail(
            "E0103",
            "an indented block is missing here",
            found.span,
            help="indent the lines of the block",
        )
    expected = _expectation(could)
    message = f"unexpected {_described(found)}" + (f", expected {expected}" if expected else "")
    span = found.span
    if found.type == "_NEWLINE" and previous is not None:
        span = Span(span.source, previous.span.end, previous.span.end + 1)
    return fail("E0101", message, span, help=_help(found, previous, could, reader))


def _foreign(
    found: Lexeme, previous: Lexeme | None, could: frozenset[str], reader: Reader
) -> TileError | None:
    """A construct of another language, recognised by its first word."""
    outside = found.text in FOREIGN and reader.first is found
    if outside and "KERNEL" in could and found.type == "NAME":
        return fail(
            "E0111", f"`{found.text}` is not part of Tile", found.span, help=FOREIGN[found.text]
        )
    for word in (reader.first, previous):
        if word is not None and word.type == "NAME" and word.text in FOREIGN and word is not found:
            return fail(
                "E0111", f"`{word.text}` is not part of Tile", word.span, help=FOREIGN[word.text]
            )
    return None


def _misplaced(found: Lexeme, could: frozenset[str], reader: Reader) -> TileError | None:
    """A clause, declaration or statement in a place of another kind."""
    if found is not reader.first:
        return None
    if found.type in _CLAUSE_WORDS and found.type not in could and "NAME" in could:
        return fail(
            "E0112",
            f"`{found.text}` stands inside a block",
            found.span,
            help="put it directly in the kernel's body, indented as little as the kernel's first line",
        )
    if found.type in _CLAUSE_WORDS and "KERNEL" in could:
        return fail(
            "E0112",
            f"`{found.text}` stands outside a kernel",
            found.span,
            help="indent it in a kernel",
        )
    if found.type in _DECLARATION_WORDS and "KERNEL" not in could and "NAME" in could:
        return fail(
            "E0112",
            f"`{found.text}` starts a declaration inside another",
            found.span,
            help="declarations start in column 0",
        )
    if "KERNEL" in could and found.type in ("NAME", "FOR", "IF", "RETURN", "ASSERT"):
        near = difflib.get_close_matches(found.text, ("kernel", "fn", "const", "import"), n=1)
        if found.type == "NAME" and _followed_by(found, " = "):
            near = [f"const {found.text} = …"]
        return fail(
            "E0112",
            f"unexpected {_described(found)} outside a declaration",
            found.span,
            help=f"did you mean `{near[0]}`?"
            if near
            else "a file holds `import`, `const`, `fn` and `kernel` declarations; statements are indented in them",
        )
    return None


def _starts_line(lexeme: Lexeme) -> bool:
    return not _line_indent(lexeme).text.strip()


def _line_indent(lexeme: Lexeme) -> Span:
    source, start = lexeme.span.source, lexeme.span.start
    return Span(source, source.text.rfind("\n", 0, start) + 1, start)


def _described(lexeme: Lexeme) -> str:
    """The lexeme in words."""
    text = lexeme.text if len(lexeme.text) <= 40 else lexeme.text[:40] + "…"
    match lexeme.type:
        case "_NEWLINE":
            return "end of the line"
        case "_INDENT":
            return "indented line"
        case "_DEDENT":
            return "end of the block"
        case "$END":
            return "end of the file"
        case "INTEGER" | "FLOAT":
            return f"number `{text}`"
        case "STRING":
            return f"string `{text}`"
        case "NAME":
            return f"name `{text}`"
        case _:
            return f"`{text}`"


def _expectation(could: frozenset[str]) -> str:
    """What could stand there, in words; at most four things."""
    if "KERNEL" in could:
        return "`kernel`, `fn`, `const` or `import`"
    if {"FOR", "NAME"} <= could:
        return "a statement"
    words: list[str] = []
    if {"NAME", "INTEGER", "LPAR"} <= could:
        words.append("an expression")
    elif "NAME" in could:
        words.append("a name")
    operators = "SIGN" in could and "POWER" in could
    for terminal, text in _EXPECTED.items():
        hidden = operators and terminal in ("LPAR", "LSQB", "DOT")
        hidden = hidden or (bool(words) and terminal in ("LPAR", "STRING"))
        if terminal in could and not hidden:
            words.append(text)
    if not words and operators:
        words.append("an operator")
    words = words[:4]
    return (
        words[0] if len(words) == 1 else ", ".join(words[:-1]) + " or " + words[-1] if words else ""
    )


def _help(found: Lexeme, previous: Lexeme | None, could: frozenset[str], reader: Reader) -> str:
    """What was probably meant, or nothing."""
    first = reader.first.type if reader.first is not None else ""
    before = previous.type if previous is not None else ""
    if first == "IMPORT":
        return 'write `import "file.tile"` or `import std.NAME`; other languages cannot be imported'
    if found.type == "_NEWLINE" and "COLON" in could:
        return "add `:` at the end of the line"
    if first == "TUNE" and found.type == "EQUAL":
        return "write `tune BM in (64, 128)`"
    if first == "KERNEL" and (helped := _of_head(found, previous, could)):
        return helped
    if found.type == "STRING" and (helped := _of_string(found, previous, reader)):
        return helped
    if first == "FOR" and could == {"LPAR"}:
        return "loops go over `parallel(…)` (the grid), `range(…)` (in order) or `unroll(…)`"
    if found.text == "@" and "KERNEL" in could:
        return "there are no decorators; write `kernel NAME(…) -> …:`"
    if found.type == "COLON" and _followed_by(found, "="):
        return "a name is bound by a statement of its own: `x = …`"
    if found.type == "DOT" and _followed_by(found, ".."):
        return "write one `:` for each dimension"
    if found.type == "NAME" and found.text == "is":
        return "compare numbers with `==`; no value is `None`"
    if found.type == "LSQB" and "INTEGER" in could:
        return "there are no lists; tiles are made by `zeros(f32, i)`, `full(f32, v, i)` and loads"
    if found.type == "COLON" and first == "NAME" and not reader.brackets:
        return "variables are not declared; write `x = …`"
    if found.type in ("ELSE", "ELIF") and "FOR" in could:
        return f"`{found.text}` belongs under an `if`, indented like it"
    if found.type == "EQUAL":
        return "compare with `==`" if first in _COMPARING else "`=` stands once in a statement"
    if found.type == "NONE":
        return "`None` stands only inside an index: `x[:, None]`"
    if found.type in ("AMPERSAND", "BAR") and before == found.type:
        return "write `and`, `or` for scalars and `&`, `|` for tiles"
    if found.type == "FOR" and reader.brackets:
        return "nothing is made by a `for` in an expression; a loop adds up: `for n in range(4):` and `t += …`"
    if found.text == "*" and "INTEGER" in could:
        return "there are no pointers; index the tensor: `x[i]`"
    if found.type == "NAME" and before == "NAME" and previous is not None:
        if "//" in _before(previous):
            return "`//` divides; comments begin with `#`"
        if previous is reader.first and _followed_by(found, " ="):
            return f"a name takes its dtype from its value: `{found.text} = …`"
    if found.type == "COLON" and before == "COLON":
        return "a slice has a start and an end only: `x[0:64]`; every second element of a tensor is `x[2 * i]`"
    if found.text in RESERVED and "NAME" in could:
        return f"`{found.text}` is a word of the language; choose another name"
    if previous is not None and before == "SIGN" and _doubled(previous):
        return "`++` and `--` do not exist; write `x += 1`"
    if found.type == "_NEWLINE" and before == "RETURN":
        return "a `fn` returns a value: `return x`; a kernel stores its results"
    if found.type == "_NEWLINE" and "INTEGER" in could:
        return "a line goes on after its end only inside `(` or `[`"
    return ""


def _of_head(found: Lexeme, previous: Lexeme | None, could: frozenset[str]) -> str:
    """What was probably meant in the head of a kernel, or nothing."""
    if found.type == "COMMA" and "COLON" in could and "RPAR" not in could:
        return "several outputs stand in brackets: `-> (y: f32[N], z: f32[N]):`"
    before = previous.type if previous is not None else ""
    if found.type == "LSQB" and before == "COLON":
        return "the element type stands in front: `x: f32[N]`"
    if found.type == "DOT" and before == "NAME":
        return "element types have no module: `f32`, `bf16`"
    if could == {"COLON"} and found.type != "_NEWLINE":
        if previous is not None and previous.text in DTYPES:
            return f"an output has a name: `-> y: {previous.text}[…]:`"
        return "a parameter has an element type: `x: f32[N]`, `n: i32`"
    return ""


def _of_string(found: Lexeme, previous: Lexeme | None, reader: Reader) -> str:
    """What was probably meant by a string where none can stand, or nothing."""
    if previous is not None and previous.span.end == found.span.start:
        if previous.type == "NAME":
            return 'strings have no prefix; `print("x is", x)` prints texts and scalars'
        if previous.type == "STRING":
            return "comments begin with `#`"
    return ""


def _before(lexeme: Lexeme) -> str:
    """Its line up to it."""
    text, start = lexeme.span.source.text, lexeme.span.start
    return text[text.rfind("\n", 0, start) + 1 : start]


def _followed_by(lexeme: Lexeme, text: str) -> bool:
    """Whether `text` stands right behind `lexeme`."""
    return lexeme.span.source.text.startswith(text, lexeme.span.end)


def _doubled(sign: Lexeme) -> bool:
    """Whether `sign` is the second of `++` or `--`."""
    start = sign.span.start
    return sign.span.source.text[max(0, start - 1) : start] == sign.text


_COMPARING = frozenset({"IF", "ELIF", "REQUIRE", "ASSERT", "CHECK"})
