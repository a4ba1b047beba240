"""The formatter: what it changes, what it keeps, and that one program has one spacing."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from tilec.source.diagnostics import Sink, TileError
from tilec.source.text import Source
from tilec.syntax.ast import Comment
from tilec.syntax.formatting import format_text, says_the_same
from tilec.syntax.lexing import Lexeme
from tilec.syntax.parser import lexemes, parse

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = sorted([*ROOT.glob("samples/*.tile"), *ROOT.glob("tilec/std/*.tile")])
OTHERS = sorted(p for p in ROOT.glob("tests/**/*.tile"))


def form(text: str) -> str:
    """`text` formatted; checks that it says the same and that formatting again changes nothing."""
    before = Source("a.tile", text)
    after = format_text(before)
    assert says_the_same(before, Source("a.tile", after))
    assert format_text(Source("a.tile", after)) == after
    return after


def body(*lines: str) -> str:
    return "fn f(a, b):\n" + "".join(f"    {line}\n" for line in lines)


def in_body(line: str) -> str:
    """A statement as it is formatted."""
    text = form(f"fn f(a, b):\n  {line}\n  return a\n")
    return text.split("\n")[1].removeprefix("    ")


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_samples_are_formatted(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    assert form(text) == text


@pytest.mark.parametrize("path", OTHERS, ids=lambda p: p.relative_to(ROOT).as_posix())
def test_programs_of_the_tests_say_the_same_afterwards(path: Path) -> None:
    text = path.read_bytes().decode("utf-8", "replace")
    sink = Sink()
    parse(Source("a.tile", text), sink)
    if sink.errors:
        with pytest.raises(TileError):
            format_text(Source("a.tile", text))
    else:
        assert form(text).endswith("\n")


@pytest.mark.parametrize(
    ("written", "wanted"),
    [
        ("x=a+b*2", "x = a + b * 2"),
        ("x  =  a   @  b . T", "x = a @ b.T"),
        ("x+=- a", "x += -a"),
        ("x = a- - b", "x = a - -b"),
        ("x = - ( a )**~ b", "x = -(a) ** ~b"),
        ("x = ( not a )or b", "x = (not a) or b"),
        ("x = sum( a , axis = 1 )", "x = sum(a, axis=1)"),
        ("x = f (a ,)", "x = f(a,)"),
        ("x = a [ : , None , - 1 : b ]", "x = a[:, None, -1:b]"),
        ("x = a[b:2*b]", "x = a[b:2 * b]"),
        ("x = 1 .to(f32)", "x = 1 .to(f32)"),
        ("x = 1.to(f32)", "x = 1.to(f32)"),
        ("x = 1. + .5e1", "x = 1. + .5e1"),
        ("a,b=b , a", "a, b = b, a"),
        ('assert(a<b),"a  b"', 'assert (a < b), "a  b"'),
        ("x = a if(b)else-b", "x = a if (b) else -b"),
        ("x = a<<1>>2&b|a^b", "x = a << 1 >> 2 & b | a ^ b"),
        ("if a==b :x=1", "if a == b: x = 1"),
        ("x = (a, )", "x = (a,)"),
        ("x = 0x1F//a%2", "x = 0x1F // a % 2"),
    ],
)
def test_spaces_of_a_statement(written: str, wanted: str) -> None:
    assert in_body(written) == wanted


def test_spaces_of_a_kernel() -> None:
    written = (
        'import   "a.tile"\nimport std . softmax\nconst  A=1\n'
        "kernel k [T=bf16,BM = auto] (inout a:T [M,K]strides(lda ,1),s:f32=1.0)->(o :T[M] , p:f32[M]) :\n"
        "  require M%4==0\n"
        "  tune BM in(64,128),warps in( 4 , 8 )where BM<=64 key(M,K)\n"
        "  schedule stages=4 , mma=wmma\n"
        "  temp t:f32[M,K]\n"
        "  for i,j in parallel(M by BM,0:K by 4) :\n"
        "     o[i]=f(a[i , 0:4],axis=1)\n"
        "  check o==sum(a,axis = 1)within rtol 1e-2,atol 1e-3\n"
        "  example cpu M=1,K=2\n"
        "  flops 2*M*K\n"
    )
    assert form(written) == (
        'import "a.tile"\nimport std.softmax\nconst A = 1\n'
        "kernel k[T = bf16, BM = auto](inout a: T[M, K] strides (lda, 1), s: f32 = 1.0) -> (o: T[M], p: f32[M]):\n"
        "    require M % 4 == 0\n"
        "    tune BM in (64, 128), warps in (4, 8) where BM <= 64 key (M, K)\n"
        "    schedule stages = 4, mma = wmma\n"
        "    temp t: f32[M, K]\n"
        "    for i, j in parallel(M by BM, 0 : K by 4):\n"
        "        o[i] = f(a[i, 0:4], axis=1)\n"
        "    check o == sum(a, axis=1) within rtol 1e-2, atol 1e-3\n"
        "    example cpu M = 1, K = 2\n"
        "    flops 2 * M * K\n"
    )


def test_lines_inside_brackets_are_indented_by_the_lines_that_opened_them() -> None:
    written = body("x = f(", "a, g(b,", "   a", "# here", " ),", ")", "return x")
    assert form(written) == (
        "fn f(a, b):\n    x = f(\n        a, g(b,\n            a\n            # here\n        ),\n    )\n    return x\n"
    )


def test_blank_lines_and_ends() -> None:
    written = (
        "\n\n# head  \n\n\n\nconst A = 1   \n\t\nconst B = 2\n \n \nfn f(a):\n\n\n  return a\n\n\n"
    )
    assert form(written) == ("# head\n\nconst A = 1\n\nconst B = 2\n\nfn f(a):\n\n    return a\n")
    assert form("const A = 1") == "const A = 1\n"
    assert form("") == form(" \n\n") == ""
    assert form("# only") == "# only\n"
    assert form("const A=1\r\nconst B = 2 \r\n") == "const A = 1\r\nconst B = 2\r\n"
    assert form("fn f(a):\n\tif a:\n\t\tx = a\n\treturn a\n") == (
        "fn f(a):\n    if a:\n        x = a\n    return a\n"
    )


def test_comments_stay_in_their_places() -> None:
    written = (
        "#!first\n"
        "fn f(a):# after the head\n"
        "# before the body\n"
        "   x = g(a,   # in brackets  \n"
        "# alone in brackets\n"
        "      a)     # after brackets\n"
        "   if a:\n"
        "       x = 1 # short\n"
        "       # end of the inner block\n"
        "   # end of the outer block\n"
        "   else:\n"
        "       x = 2\n"
        "   return x\n"
        "   # end of the fn\n"
        "# before the next\n"
        "const A = 1\n"
        "# last"
    )
    assert form(written) == (
        "#!first\n"
        "fn f(a):  # after the head\n"
        "    # before the body\n"
        "    x = g(a,   # in brackets\n"
        "        # alone in brackets\n"
        "        a)     # after brackets\n"
        "    if a:\n"
        "        x = 1  # short\n"
        "        # end of the inner block\n"
        "    # end of the outer block\n"
        "    else:\n"
        "        x = 2\n"
        "    return x\n"
        "    # end of the fn\n"
        "# before the next\n"
        "const A = 1\n"
        "# last\n"
    )


def test_columns_of_comments_are_kept() -> None:
    written = body("x=a+b        # one", "y = a + b    # two", "return x    # three")
    assert form(written) == body("x = a + b    # one", "y = a + b    # two", "return x    # three")


def test_equals_signs_below_each_other_stay_there() -> None:
    written = body("x   =a", "acc =b", "", "y  = a", "z = b", "return y")
    assert form(written) == body("x   = a", "acc = b", "", "y = a", "z = b", "return y").replace(
        "    \n", "\n"
    )
    assert form(body("x    = a", "y    = b", "return y")) == body("x = a", "y = b", "return y")


def test_a_program_with_errors_is_an_error() -> None:
    with pytest.raises(TileError) as caught:
        format_text(Source("a.tile", "fn f(a:\n    return a\n\nconst B = 1\nconst A = =\n"))
    assert len(caught.value.diagnostics) == 2


@pytest.mark.parametrize(
    "other", ["const A = 2 # a\n", "const A = 1\n", "const A = 1 # b\n", "const A = # a\n"]
)
def test_another_program_does_not_say_the_same(other: str) -> None:
    source = Source("a.tile", "const A = 1  # a\n")
    assert says_the_same(source, Source("a.tile", "const A=1    # a  \n"))
    assert not says_the_same(source, Source("a.tile", other))


# --------------------------------------------------------------------------------------- random spaces


def perturbed(text: str, seed: int) -> str:
    """`text` with other spaces: blanks between lexemes, width of a level, blank lines, blanks at the ends of lines."""
    rng = random.Random(seed)
    unit = rng.choice([" ", "  ", "   ", "\t", "       "])
    comments: list[Comment] = []
    source = Source("a.tile", text)
    found = [x for x in lexemes(source, comments) if not x.type.startswith("_")]
    out = []
    start = 0
    brackets = 0
    for line in text.split("\n"):
        end = start + len(line)
        words = [x for x in found if start <= x.span.start < end]
        after = [c for c in comments if start <= c.span.start < end]
        indent = len(line) - len(line.lstrip(" "))
        assert indent % 4 == 0
        level = unit * (indent // 4) if brackets == 0 else " " * rng.randrange(12)
        if not line:
            shown = "\n".join(rng.choice(["", "  ", "\t"]) for _ in range(rng.choice([1, 1, 3])))
        else:
            code = respaced(words, rng)
            shown = code
            if words and after:
                column = after[0].span.start - words[0].span.start
                shown = code if len(code) <= column - 2 else line[indent : indent + column].rstrip()
                shown = shown.ljust(column)
            shown = (
                level + shown + "".join(f"#{c.text}" for c in after) + rng.choice(["", " ", "\t"])
            )
        out.append(shown)
        brackets += sum({"(": 1, "[": 1, ")": -1, "]": -1}.get(x.text, 0) for x in words)
        start = end + 1
    return "\n".join(out)


def respaced(words: list[Lexeme], rng: random.Random) -> str:
    """The lexemes of a line with random blanks between them; those before an assignment's `=` have theirs kept."""
    plain = bool(words) and words[0].type == "NAME"
    equal = next((i for i, x in enumerate(words) if x.type == "EQUAL"), -1) if plain else -1
    shown = ""
    for number, word in enumerate(words):
        if number:
            left = words[number - 1]
            kept = word.span.start - left.span.end
            joined = re.fullmatch(
                r"\w\w|[^\w\s()\[\],:.]{2}|\d\.|\.\d", left.text[-1] + word.text[0]
            )
            if number <= equal or (word.text == "." and left.text[0].isdigit()):
                shown += " " * kept
            else:
                shown += rng.choice(
                    [" ", "  ", "\t", "    "] if joined else ["", "", " ", "   ", "\t"]
                )
        shown += word.text
    return shown


@pytest.mark.parametrize("seed", range(8))
@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.name)
def test_any_spacing_becomes_the_one_spacing(path: Path, seed: int) -> None:
    text = path.read_text(encoding="utf-8")
    other = perturbed(text, seed)
    assert other != text
    assert form(other) == text
