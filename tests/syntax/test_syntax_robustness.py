"""Hostile texts: a tree or coded errors, quickly, and a tree that may be walked recursively."""

from __future__ import annotations

import random
import time

import pytest

from tilec.source.diagnostics import Sink
from tilec.source.text import Source
from tilec.syntax.ast import Module
from tilec.syntax.parser import parse
from tilec.syntax.printer import dump

KERNEL = "kernel k(a: f32[N]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = "


def parsed(text: str) -> tuple[Module, list[str]]:
    sink = Sink()
    module = parse(Source("x.tile", text), sink)
    return module, [d.code for d in sink.diagnostics]


DEEP = {
    "parentheses": KERNEL + "(" * 10_000 + "1" + ")" * 10_000 + "\n",
    "minus": KERNEL + "-" * 10_000 + "1\n",
    "not": KERNEL + "not " * 10_000 + "1\n",
    "sum": KERNEL + "1 + " * 5_000 + "1\n",
    "power": KERNEL + "2 ** " * 5_000 + "1\n",
    "attributes": KERNEL + "a" + ".b" * 5_000 + "\n",
    "indices": KERNEL + "a" + "[0]" * 5_000 + "\n",
    "conditional": KERNEL + "1 if b else " * 5_000 + "1\n",
    "blocks": "kernel k(a: f32[N]):\n" + "".join(" " * n + "if a:\n" for n in range(1, 3_000)),
    "elif": KERNEL
    + "1\n        if a:\n            b = 1\n"
    + "        elif b:\n            b = 1\n" * 5_000,
}


@pytest.mark.parametrize("name", sorted(DEEP))
def test_deep_nesting_is_a_coded_error(name: str) -> None:
    assert parsed(DEEP[name])[1] == ["E0110"]


@pytest.mark.parametrize("opening", ["(", "-", "not ", "a + ", "2 ** ", "a if b else "])
def test_what_is_accepted_can_be_walked(opening: str) -> None:
    closing = ")" * 190 if opening == "(" else ""
    module, codes = parsed(KERNEL + opening * 95 + "1" + closing[:95] + "\n")
    assert codes == []
    assert dump(module).count("\n") > 5
    again = parsed(KERNEL + opening * 95 + "1" + closing[:95] + "\n")[0]
    assert module == again and hash(module.items) == hash(again.items)


def garbage(kind: str) -> str:
    source = random.Random(7)
    if kind == "bytes":
        return "".join(map(chr, source.choices(range(256), k=2_000_000)))
    if kind == "letters":
        return "".join(source.choices("abcdefghijklmnopqrstuvwxyz0123456789_ \n", k=2_000_000))
    if kind == "words":
        words = [
            "kernel",
            "fn",
            "(",
            ")",
            "[",
            ":",
            "\n",
            "\n    ",
            "+",
            "a",
            "1",
            "for",
            "in",
            "=",
            ",",
        ]
        return " ".join(source.choices(words, k=500_000))
    if kind == "string":
        return 'const x = "' + "a" * 4_000_000
    if kind == "escapes":
        return 'const x = "' + "\\a" * 2_000_000
    if kind == "digits":
        return "const x = " + "9" * 4_000_000
    if kind == "lines":
        return "\n" * 4_000_000 + "x"
    return "kernel x\n" * 200_000


@pytest.mark.parametrize(
    "kind", ["bytes", "letters", "words", "string", "escapes", "digits", "lines", "kernels"]
)
def test_garbage_is_refused_quickly(kind: str) -> None:
    text = garbage(kind)
    start = time.process_time()
    codes = parsed(text)[1]
    assert time.process_time() - start < 3
    assert codes and all(c.startswith("E01") for c in codes)
    assert len(codes) <= 201


def test_random_edits_never_escape_as_exceptions() -> None:
    source = random.Random(3)
    base = (
        KERNEL
        + '(a[i, :, None] + f(x, axis=1)) if b else -2 ** 3\n    check c == a within rtol 1\n    assert a, "m"\n'
    )
    pieces = [
        "(",
        ")",
        "[",
        "]",
        ":",
        ",",
        "=",
        "==",
        "\n",
        "    ",
        "\t",
        "if",
        "in",
        "by",
        "#",
        '"',
        "\\",
        "0x",
        "1e",
        ".",
    ]
    refused = 0
    for _ in range(1500):
        at = source.randrange(len(base))
        text = base[:at] + source.choice(pieces) + base[at + source.randrange(3) :]
        sink = Sink()
        module = parse(Source("x.tile", text), sink)
        refused += bool(sink.diagnostics)
        assert sink.diagnostics or module.items
        for diagnostic in sink.diagnostics:
            assert diagnostic.render()
    assert 500 < refused < 1500


def test_two_hundred_kernels_parse_in_time() -> None:
    block = "".join(
        f"        t{n} = where(a[i, :] > {n}, exp(a[i, :] * 2.0), t{n} + b[i] @ c.T)\n"
        for n in range(12)
    )
    text = "".join(
        f"kernel k{n}(a: f32[N]) -> c: f32[N]:\n    for i in parallel(N):\n{block}"
        for n in range(200)
    )
    parsed("const warm = 1\n")
    start = time.process_time()
    module, codes = parsed(text)
    assert time.process_time() - start < 3
    assert codes == [] and len(module.items) == 200
