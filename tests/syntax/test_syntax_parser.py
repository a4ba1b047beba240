"""The tree of what is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.reference.samples import WITHOUT_CHECK
from tilec.source.diagnostics import Sink
from tilec.source.text import Source
from tilec.syntax import ast
from tilec.syntax.ast import Binary, Call, Compare, Index, Name, NewAxis, Number, Slice, Unary
from tilec.syntax.parser import parse
from tilec.syntax.printer import dump

SAMPLES = sorted((Path(__file__).parents[2] / "samples").glob("*.tile"))


def module(text: str) -> ast.Module:
    sink = Sink()
    result = parse(Source("x.tile", text), sink)
    assert [d.render() for d in sink.diagnostics] == []
    return result


def kernel(text: str) -> ast.Kernel:
    item = module(text).items[0]
    assert isinstance(item, ast.Kernel)
    return item


def expression(text: str) -> ast.Expr:
    item = module(f"const x = {text}\n").items[0]
    assert isinstance(item, ast.Const)
    return item.value


a, b, c, d = (Name(n) for n in "abcd")
one, two = Number(1), Number(2)

EXPRESSIONS = [
    ("a + b * c", Binary("+", a, Binary("*", b, c))),
    ("a - b - c", Binary("-", Binary("-", a, b), c)),
    ("(a + b) * c", Binary("*", Binary("+", a, b), c)),
    ("a * b @ c // d", Binary("//", Binary("@", Binary("*", a, b), c), d)),
    ("-a ** 2", Unary("-", Binary("**", a, two))),
    ("a ** -b ** c", Binary("**", a, Unary("-", Binary("**", b, c)))),
    ("~a & b | c ^ d", Binary("|", Binary("&", Unary("~", a), b), Binary("^", c, d))),
    ("a << 1 >> b", Binary(">>", Binary("<<", a, one), b)),
    ("a & b == c", Compare("==", Binary("&", a, b), c)),
    ("not a < b and c or d", Binary("or", Binary("and", Unary("not", Compare("<", a, b)), c), d)),
    ("a if b else c if d else 1", ast.Conditional(b, a, ast.Conditional(d, c, one))),
    ("(a < b) == c", Compare("==", Compare("<", a, b), c)),
    ("a, b", ast.TupleExpr((a, b))),
    ("(a,)", ast.TupleExpr((a,))),
    (
        "a[:, None, 1:b, c:, :2]",
        Index(a, (Slice(None, None), NewAxis(), Slice(one, b), Slice(c, None), Slice(None, two))),
    ),
    ("a.at[b, c].T", ast.Attribute(Index(ast.Attribute(a, "at"), (b, c)), "T")),
    ("a.to(b, axis=1,)", Call(ast.Attribute(a, "to"), (b,), (ast.Keyword("axis", one),))),
    ("a(\n  b,  # first\n  c\n)", Call(a, (b, c))),
    ("true", ast.Boolean(True)),
    ("-inf", Unary("-", Name("inf"))),
    ('"a\\n\\"b"', ast.String('a\n"b')),
    ("1_000", Number(1000)),
    ("0x1F", Number(31)),
    ("1e-6", Number(1e-6)),
    (".5", Number(0.5)),
    ("2.", Number(2.0)),
    ("1.5e3", Number(1500.0)),
    ("a<-b", Compare("<", a, Unary("-", b))),
]


@pytest.mark.parametrize(("text", "tree"), EXPRESSIONS)
def test_expression(text: str, tree: ast.Expr) -> None:
    assert expression(text) == tree


def test_span_of_an_expression_is_its_text() -> None:
    value = expression("(a + b)[1, c] * f(x)")
    assert isinstance(value, Binary)
    assert [n.span.text for n in (value, value.left, value.right)] == [
        "(a + b)[1, c] * f(x)",
        "(a + b)[1, c]",
        "f(x)",
    ]


def test_kernel_heads() -> None:
    text = """kernel k[
    BM = auto, D,
](
    a: f16[M, K] strides (lda, 1), inout x: T[N // 2],
    eps: f32 = 1e-5, s: i32,
) -> (o: f32[M], p: f32[N]):
    pass_()
"""
    k = kernel(text)
    assert k.brackets == (ast.BracketParam("BM", Name("auto")), ast.BracketParam("D", None))
    assert k.params == (
        ast.TensorParam("a", Name("f16"), (Name("M"), Name("K")), (Name("lda"), one)),
        ast.TensorParam("x", Name("T"), (Binary("//", Name("N"), two),), None, True),
        ast.ScalarParam("eps", Name("f32"), Number(1e-5)),
        ast.ScalarParam("s", Name("i32")),
    )
    assert [o.name for o in k.outputs] == ["o", "p"]
    assert k.name_span.text == "k" and k.params[0].span.text == "a: f16[M, K] strides (lda, 1)"
    assert kernel("kernel k(inout x: f32[N]):\n    f(x)\n").outputs == ()
    assert kernel("kernel k():\n    f(x)\n").params == ()


def test_clauses() -> None:
    k = kernel(
        "kernel k(x: f32[N]) -> c: f32[N]:\n"
        "    require N > 0\n"
        "    tune BM in (64, 128), stages in (2,) where BM > 1 key (N, M)\n"
        "    tune W in (1, 2)\n"
        "    schedule stages = 4, mma = wmma\n"
        "    temp t: f32[N, 2]\n"
        "    c[0] = 1\n"
        "    check c == x within rtol 1e-3, atol 2\n"
        "    check within atol 1:\n        y = x\n        c == y\n"
        "    example N = 3\n    example cpu N = 1, M = 2\n"
        "    flops 2 * N\n    bytes N\n"
    )
    same = ast.ExprStmt(Compare("==", c, Name("x")))
    n = Name("N")
    assert k.clauses == (
        ast.Require(Compare(">", n, Number(0))),
        ast.Tune(
            (
                ast.TuneEntry(Name("BM"), (Number(64), Number(128))),
                ast.TuneEntry(Name("stages"), (two,)),
            ),
            Compare(">", Name("BM"), one),
            (n, Name("M")),
        ),
        ast.Tune((ast.TuneEntry(Name("W"), (one, two)),), None, ()),
        ast.Schedule(
            (ast.Setting(Name("stages"), Number(4)), ast.Setting(Name("mma"), Name("wmma")))
        ),
        ast.Temp("t", Name("f32"), (n, two)),
        ast.Check((same,), Number(1e-3), two),
        ast.Check(
            (ast.Assign(Name("y"), Name("x")), ast.ExprStmt(Compare("==", c, Name("y")))), None, one
        ),
        ast.Example((ast.Setting(n, Number(3)),)),
        ast.Example((ast.Setting(n, one), ast.Setting(Name("M"), two)), "cpu"),
        ast.Count("flops", Binary("*", two, n)),
        ast.Count("bytes", n),
    )
    assert k.body == (ast.Assign(Index(c, (Number(0),)), one),)


def test_statements() -> None:
    k = kernel(
        "kernel k(x: f32[N]) -> c: f32[N]:\n"
        "    for i, j in parallel(N by 2, 1 : N):\n"
        "        if a: b = 1\n"
        "        elif b:\n            c[i] += 1\n"
        "        else:\n            a, b = f(b)\n"
        '    print("x", a)\n'
        '    assert a, "why"\n'
        "    for u in unroll(4):\n        x **= 2\n"
    )
    n = Name("N")
    assert k.body == (
        ast.For(
            (Name("i"), Name("j")),
            "parallel",
            (ast.Range(None, n, two), ast.Range(one, n, None)),
            (
                ast.If(
                    a,
                    (ast.Assign(b, one),),
                    (
                        ast.If(
                            b,
                            (ast.AugAssign("+", Index(c, (Name("i"),)), one),),
                            (ast.Assign(ast.TupleExpr((a, b)), Call(Name("f"), (b,))),),
                        ),
                    ),
                ),
            ),
        ),
        ast.Print((ast.String("x"), a)),
        ast.Assert(a, "why"),
        ast.For(
            (Name("u"),),
            "unroll",
            (ast.Range(None, Number(4), None),),
            (ast.AugAssign("**", Name("x"), two),),
        ),
    )


def test_imports_constants_and_comments() -> None:
    m = module(
        '# first\r\nimport "a/b.tile"\r\nimport std.softmax  # second\r\n\r\nconst A = 1\r\n'
    )
    assert m.items == (
        ast.Import("a/b.tile"),
        ast.Import(None, ("std", "softmax")),
        ast.Const("A", one),
    )
    assert [x.text for x in m.comments] == [" first", " second"]
    assert m.comments[1].span.text == "# second"


@pytest.mark.parametrize("text", ["", "\n", "# only a comment", "   \n\n# x\n"])
def test_empty_file(text: str) -> None:
    assert module(text).items == ()


def test_file_without_a_last_newline() -> None:
    assert module("fn f(x): return x").items == (
        ast.Fn("f", (Name("x"),), (ast.Return(Name("x")),)),
    )


@pytest.mark.parametrize("path", SAMPLES, ids=lambda p: p.stem)
def test_sample_parses_with_check_and_examples(path: Path) -> None:
    kernels = [
        i for i in module(path.read_text(encoding="utf-8")).items if isinstance(i, ast.Kernel)
    ]
    assert kernels
    for k in kernels:
        checks = sum(isinstance(x, ast.Check) for x in k.clauses)
        assert checks == (0 if k.name in WITHOUT_CHECK else 1)
        assert sorted(x.device for x in k.clauses if isinstance(x, ast.Example)) == ["", "cpu"]


def test_dump() -> None:
    text = dump(module("fn f(x):\n    return x * 2\n"))
    assert text == (
        "Module\n"
        "  items:\n"
        "    Fn\n"
        '      name: "f"\n'
        "      params: [x]\n"
        '      body: [Return(value=Binary(op="*", left=x, right=2))]\n'
    )
