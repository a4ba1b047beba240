"""Every code of a syntax error: the program that has it, the place and the words."""

from __future__ import annotations

import pytest

from tilec.source.codes.syntax import CODES
from tilec.source.diagnostics import Sink
from tilec.source.text import Source
from tilec.syntax.parser import ERROR_LIMIT, parse

HEAD = "kernel k(a: f32[N]) -> c: f32[N]:\n"


def body(text: str) -> str:
    """A kernel of one parameter around `text`."""
    return HEAD + "".join(f"    {line}\n" for line in text.split("\n"))


CASES = [
    # program, code, text at the place, part of the message, part of the help
    (body("for i in parallel(N)\n    c[i] = 1"), "E0101", None, "expected `:`", "add `:`"),
    (body("if a = b:\n    c = 1"), "E0101", "=", "unexpected `=`", "compare with `==`"),
    (body("x = y = 3"), "E0101", "=", "unexpected `=`", "stands once"),
    (body("x = 1 2"), "E0101", "2", "number `2`", ""),
    (body("x = a && b"), "E0101", "&", "unexpected `&`", "`and`"),
    (body("x++"), "E0101", None, "end of the line", "`++`"),
    (body("x = a +\n    b"), "E0101", None, "expected an expression", "inside `(`"),
    (body("x = None"), "E0101", "None", "unexpected `None`", "inside an index"),
    (body("x: f32 = 3"), "E0101", ":", "unexpected `:`", "not declared"),
    (body("tune BM = 3"), "E0101", "=", "expected `in`", "`tune BM in"),
    (body("for if in range(3):\n    x = 1"), "E0101", "if", "expected a name", "another name"),
    (body("else:\n    x = 1"), "E0101", "else", "unexpected `else`", "under an `if`"),
    ("kernl k(a: f32[N]) -> c: f32[N]:\n    x = 1\n", "E0112", "kernl", "`kernl`", "`kernel`"),
    ("kernel k(a[N]) -> c: f32[N]:\n    x = 1\n", "E0101", "[", "expected `:`", "`x: f32[N]`"),
    ("kernel k(a) -> c: f32[N]:\n    x = 1\n", "E0101", ")", "expected `:`", "element type"),
    ("kernel k(a: f32[N]) -> f32[N]:\n    x = 1\n", "E0101", "[", "expected", "`-> y: f32[…]:`"),
    (HEAD[:-2] + ", d: f32[N]:\n    x = 1\n", "E0101", ",", "unexpected `,`", "in brackets"),
    ("@kernel\n", "E0101", "@", "unexpected `@`", "no decorators"),
    (body('print(f"x")'), "E0101", '"x"', "unexpected string", "no prefix"),
    (body('"""Adds."""'), "E0101", '"Adds."', "unexpected string", "begin with `#`"),
    (body("x = [1, 2]"), "E0101", "[", "unexpected `[`", "no lists"),
    (body("x = (y := 3)"), "E0101", ":", "unexpected `:`", "of its own"),
    (body("for x in a:\n    c[i] = x"), "E0101", ":", "expected `(`", "`range(…)`"),
    (body("x = 1 if y is None else 2"), "E0101", "is", "name `is`", "`==`"),
    (body("c[i] = a[...]"), "E0101", ".", "unexpected `.`", "one `:`"),
    (body("c[i] = x[::2]"), "E0101", ":", "unexpected `:`", "`x[2 * i]`"),
    (body("x = 1e-5f"), "E0106", "1e-5f", "`1e-5f` is neither", ""),
    (body("for i in range(0, 4):\n    x = i"), "E0115", "i", "2 ranges", "`range(0 : 4)`"),
    (body("for i in range(0, N, 8):\n    x = i"), "E0115", "i", "3", "`range(0 : N by 8)`"),
    (body("for i in parallel(N, 64):\n    x = i"), "E0115", "i", "2 ranges", "`parallel(N by 64)`"),
    (body("for i in parallel(1 : N, 64):\n    x = i"), "E0115", "i", "2 ranges", "for each name"),
    ("import numpy as np\n", "E0101", "as", "unexpected name `as`", "import std.NAME"),
    ("fn 3(x):\n    return x\n", "E0101", "3", "expected a name", ""),
    (body("x = 1;"), "E0102", ";", "character `;`", "one on each"),
    (body("x = 'a'"), "E0102", "'", "character `'`", "strings"),
    (body("x = {1}"), "E0102", "{", "character `{`", "indented"),
    (body("x = !a"), "E0102", "!", "character `!`", "`not x`"),
    (body("x = é"), "E0102", "é", "character `é`", "ASCII"),
    ("kernel k\0()", "E0102", "\0", "NUL byte", "another kind of file"),
    ("const x = \x01", "E0102", "\x01", "U+0001", ""),
    (body("x = 1\n  y = 2"), "E0103", "      ", "no block begins", "like the line above"),
    (HEAD + "    x = 1\n  y = 2\n", "E0103", "  ", "like no open block", "0 or 4"),
    (HEAD + "    x = 1\n\ty = 2\n", "E0103", "\t", "tabs and spaces", "spaces only"),
    (body("if x:\ny = 1"), "E0103", "y", "block is missing", "indent"),
    (body("x = (a + b\ny = 3"), "E0104", "(", "`(` is not closed", "missing `)`"),
    (body("x = a[b, c"), "E0104", "[", "`[` is not closed", "missing `]`"),
    (body("x = a[(b]"), "E0104", "(", "`(` is not closed", "missing `)`"),
    (body("x = b)"), "E0104", ")", "closes nothing", ""),
    (body("x = a < b < c"), "E0105", "<", "chained", "`a < b and b < c`"),
    (body("if a == b == c:\n    x = 1"), "E0105", "==", "chained", "a < b and b < c"),
    (body("x = 12abc"), "E0106", "12abc", "neither a number", "begins with a letter"),
    (body("x = 007"), "E0106", "007", "not a number", "0x1F"),
    (body("x = 1e999"), "E0106", "1e999", "beyond the range", "`inf`"),
    (body("x = " + "9" * 5000), "E0106", "9" * 5000, "not a number", ""),
    (body('x = "a'), "E0107", '"a', "closing quote", "on this line"),
    (body('assert x, "\\q"'), "E0107", '"\\q"', "unknown escape", "escapes are"),
    (body("a + b"), "E0108", "a + b", "no effect", "assign"),
    (body("a == b"), "E0108", "a == b", "no effect", "`=` assigns"),
    (body("check c"), "E0108", "c", "compares an output", "OUT == EXPR"),
    (body("check:\n    f(x)"), "E0108", "f(x)", "only assignments", "OUT == EXPR"),
    (body("f(x) = 3"), "E0109", "f(x)", "assigned to", "a name"),
    (body("a[0], b = 3"), "E0109", "a[0]", "assigned to", ""),
    (body("a.b += 3"), "E0109", "a.b", "assigned to", ""),
    (body("x = " + "(" * 300), "E0110", "(", "more than 200 deep", "line of its own"),
    (body("while x:\n    c = 1"), "E0111", "while", "`while`", "`for"),
    (body("break"), "E0111", "break", "`break`", "bound the loop"),
    (body("x = lambda y: y"), "E0111", "lambda", "`lambda`", "fn f(x)"),
    ("def f(x):\n    return x\n", "E0111", "def", "`def`", "`fn NAME"),
    ("class A:\n    pass\n", "E0111", "class", "`class`", "`kernel`"),
    (body("if x:\n    require N > 0"), "E0112", "require", "inside a block", "kernel's body"),
    ("require N > 0\n", "E0112", "require", "outside a kernel", "indent"),
    ("x = 1\n", "E0112", "x", "outside a declaration", "`const x = …`"),
    ("x(1)\n", "E0112", "x", "outside a declaration", "`kernel`"),
    (body("fn f(x):\n    return x"), "E0112", "fn", "inside another", "column 0"),
    (body("return 3"), "E0112", "return 3", "outside a `fn`", "stores"),
    ("fn f(x):\n    y = x\n", "E0112", "f", "does not end in `return`", "return VALUE"),
    (
        "fn f(x):\n    if x:\n        return 1\n    return 2\n",
        *("E0112", "return 1", "before the end", "return once"),
    ),
    (body("x = True"), "E0114", "True", "`True`", "`true`"),
    (body("for x in foo(3):\n    y = 1"), "E0115", "foo", "`foo`", "`parallel"),
    (body("for x, y in range(3):\n    y = 1"), "E0115", "x, y", "2 names for 1 range", "each name"),
    (body("for x, y in range(3, 4):\n    y = 1"), "E0115", "range", "over one range", "nest"),
    (
        body("for x, y in parallel(N, M, 3, 4):\n    y = 1"),
        "E0115",
        "x, y",
        "for 4",
        "N by 3, M by 4",
    ),
    (body("for t in x[i]:\n    y = 1"), "E0101", "[", "expected `(`", "`range(…)`"),
    (body("t = sum(x for n in range(4))"), "E0101", "for", "unexpected", "a loop adds up"),
    (body("t = x // half of it"), "E0101", "of", "unexpected", "comments begin"),
    (body("float t = 1.0"), "E0101", "t", "unexpected", "`t = …`"),
    (body("t = *x"), "E0101", "*", "unexpected", "no pointers"),
    (body("return"), "E0101", "\n", "end of the line", "stores its results"),
    ("kernel k(x: [M]) -> y: f32[M]:\n    y = 1\n", "E0101", "[", "unexpected", "stands in front"),
    (
        "kernel k(x: torch.f32[M]) -> y: f32[M]:\n    y = 1\n",
        "E0101",
        ".",
        "unexpected",
        "no module",
    ),
    (body("x = 1 − 2"), "E0102", "−", "unexpected character", "`-`"),
    (body("assert x, “m”"), "E0102", "“", "unexpected character", "strings stand"),
    (body("x = f(a=1, b)"), "E0116", "b", "after one with a name", "first"),
    (body("x = f(a=1, a=2)"), "E0116", "a=2", "given twice", ""),
    (body("print(x, sep=1)"), "E0116", "sep=1", "by name", ""),
    (body("x = f(a)(b)"), "E0116", "f(a)", "only a name", ""),
    (body("check c == a within rtol 1, rtol 2"), "E0116", "rtol", "given twice", ""),
]


@pytest.mark.parametrize(("text", "code", "place", "message", "helped"), CASES)
def test_mistake(text: str, code: str, place: str | None, message: str, helped: str) -> None:
    sink = Sink()
    parse(Source("x.tile", text), sink)
    assert [d.code for d in sink.diagnostics] == [code]
    found = sink.diagnostics[0]
    assert message in found.message
    assert helped in " ".join(found.helps)
    assert found.span is not None
    if place is not None:
        assert found.span.text == place
    assert found.render().startswith(f"error[{code}]: ")
    assert "illegal" not in found.message and not found.message.endswith(".")


def test_every_syntax_code_has_a_case() -> None:
    codes = {c for c in CODES if c < "E0120"}
    assert codes - {"E0113"} == {case[1] for case in CASES}


def test_unclosed_bracket_shows_both_ends() -> None:
    sink = Sink()
    parse(Source("x.tile", body("x = (a + b\ny = 3")), sink)
    assert sink.diagnostics[0].secondary[0].span.text == "y"


def test_each_declaration_reports_its_own_error_and_the_rest_survives() -> None:
    text = (
        "fn f(x):\n    return x x\n\nfn good(x):\n    return x\n\n" + body("x = ;") + "const = 3\n"
    )
    sink = Sink()
    module = parse(Source("x.tile", text + "const ok = 1\n"), sink)
    assert [d.code for d in sink.diagnostics] == ["E0101", "E0102"]
    assert [getattr(i, "name", "") for i in module.items] == ["good", "ok"]


def test_reading_stops_after_many_errors() -> None:
    sink = Sink()
    parse(Source("x.tile", "kernel x\n" * 1000), sink)
    assert len(sink.diagnostics) == ERROR_LIMIT + 1
    assert sink.diagnostics[-1].code == "E0113"
