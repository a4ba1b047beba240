"""Keywords are names wherever they do not stand as keywords."""

from __future__ import annotations

import pytest

from tilec.source.diagnostics import Sink
from tilec.source.text import Source
from tilec.syntax import ast
from tilec.syntax.parser import parse


def module(text: str) -> ast.Module:
    sink = Sink()
    result = parse(Source("x.tile", text), sink)
    assert [d.render() for d in sink.diagnostics] == []
    return result


WORDS = [
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
    "in",
    "by",
    "where",
    "key",
    "within",
    "strides",
    "inout",
    "cpu",
    "rtol",
    "atol",
    "auto",
    "as",
    "parallel",
    "range",
    "unroll",
    "print",
    "inf",
    "nan",
    "stages",
    "warps",
    "int",
    "float",
    "double",
    "class",
    "template",
    "namespace",
    "void",
    "while",
    "def",
    "for_",
    "switch",
    "this",
    "new",
    "NULL",
    "std",
    "and_",
    "xor",
]


@pytest.mark.parametrize("word", WORDS)
def test_word_is_a_name_everywhere(word: str) -> None:
    text = f"""
const {word} = 1
fn {word}({word}, b):
    {word} = {word} + 1
    {word} += {word}({word}, {word}={word})
    {word}, b = b, {word}
    return {word} if {word} else {word}
kernel {word}[{word} = {word}](
    {word}: f32[{word}, {word}], inout {word}: {word}[N] strides ({word}, 1), {word}: f32 = {word}
) -> {word}: f32[{word}]:
    require {word} < {word}
    tune {word} in ({word}, 2) where {word} > 0 key ({word}, N)
    schedule {word} = {word}
    temp {word}: f32[{word}]
    example {word} = 3, N = 2
    example cpu {word} = 3
    flops {word} * 2
    bytes {word}
    for {word} in parallel({word} : {word} by {word}):
        {word}[{word}] = x.{word} + {word}[{word}, :].{word}
        assert {word}, "m"
    check {word} == {word} within rtol {word}, atol {word}
"""
    items = module(text).items
    assert [type(i) for i in items] == [ast.Const, ast.Fn, ast.Kernel]
    kernel = items[2]
    assert isinstance(kernel, ast.Kernel)
    assert [type(c).__name__ for c in kernel.clauses] == (
        ["Require", "Tune", "Schedule", "Temp", "Example", "Example", "Count", "Count", "Check"]
    )
    example = kernel.clauses[5]
    assert isinstance(example, ast.Example)
    assert example.device == "cpu" and example.settings[0].name == ast.Name(word)


@pytest.mark.parametrize(
    "word", ["if", "elif", "else", "for", "return", "and", "or", "not", "true", "false", "None"]
)
def test_reserved_word_is_no_name(word: str) -> None:
    sink = Sink()
    parse(Source("x.tile", f"const {word} = 1\n"), sink)
    assert [d.code for d in sink.diagnostics] == ["E0101"]


def test_as_is_an_argument_name() -> None:
    item = module("fn f(a, b):\n    return dot(a, b, as = tf32)\n").items[0]
    assert isinstance(item, ast.Fn)
    assert item.body == (
        ast.Return(
            ast.Call(
                ast.Name("dot"),
                (ast.Name("a"), ast.Name("b")),
                (ast.Keyword("as", ast.Name("tf32")),),
            )
        ),
    )
