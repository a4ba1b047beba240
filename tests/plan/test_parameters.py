"""Bracket parameters: which are tile sizes, and where their values come from."""

from __future__ import annotations

import math

import pytest

from tilec.ir.dtypes import BF16, F16
from tilec.plan.candidate import Candidate
from tilec.plan.constants import ConstantFault, fold_binary, fold_extreme, fold_function
from tilec.plan.parameters import has_product, make_candidate, parse_static, tile_sizes
from tilec.source.diagnostics import Sink
from tilec.source.text import Source
from tilec.syntax import ast
from tilec.syntax.loading import load_source


def kernel_of(text: str) -> tuple[ast.Kernel, Candidate | None, Sink]:
    return planned(text, {})


def planned(text: str, options: dict[str, str]) -> tuple[ast.Kernel, Candidate | None, Sink]:
    files = load_source(Source("x.tile", text))
    kernel = next(i for i in files.main.items if isinstance(i, ast.Kernel))
    sink = Sink()
    return kernel, make_candidate(kernel, files.scope(files.main), options, sink), sink


def candidate(text: str, **options: str) -> Candidate:
    _, result, sink = planned(text, options)
    assert [d.render() for d in sink.diagnostics] == []
    assert result is not None
    return result


def kernel(brackets: str, loops: str, body: str = "c[i] = a[i]", clauses: str = "") -> str:
    return f"kernel k[{brackets}](a: f32[N]) -> c: f32[N]:\n{clauses}    for {loops}:\n        {body}\n"


@pytest.mark.parametrize(
    ("loops", "body", "expected"),
    [
        ("i in parallel(N by B)", "c[i] = a[i]", {"B"}),
        ("i in parallel(N)", "c[i] = a[i] * B", set()),
        ("i in parallel(N by B)", "c[i] = a[i] * B", set()),
        ("i in parallel(N)", "c[span(i, B)] = 0.0", {"B"}),
        ("i in parallel(N)", "c[span(B, B)] = 0.0", set()),
        ("i in parallel(N)", "c[i] = a[i]", set()),
        ("i in parallel(N by B)", "c[i] = f(zeros(f32, i), B)", set()),
        ("i in parallel(N by B * 1)", "c[i] = a[i]", set()),
    ],
)
def test_tile_sizes_are_used_as_extents_only(loops: str, body: str, expected: set[str]) -> None:
    text = "fn f(x, y):\n    return x\n" + kernel(
        "B = 8", loops, body, "    require B % 2 == 0\n    tune B in (8, 16) where B < 9\n"
    )
    files = load_source(Source("x.tile", text))
    found = next(i for i in files.main.items if isinstance(i, ast.Kernel))
    assert tile_sizes(found) == expected


def test_defaults_options_and_origins() -> None:
    text = "const W = 4\n" + kernel(
        "B = W * 2, T = bf16, S = 0.5, F = true",
        "i in parallel(N by B)",
        "c[i] = a[i].to(T) * S if F else a[i]",
    )
    plain = candidate(text)
    assert dict(plain.values) == {"B": 8, "T": BF16, "S": 0.5, "F": True}
    assert plain.tiles == {"B"}
    changed = candidate(text, B="0x10", T="f16", F="false", S="2")
    assert dict(changed.values) == {"B": 16, "T": F16, "S": 2, "F": False}
    assert dict(changed.origin) == {"B": "option", "T": "option", "S": "option", "F": "option"}
    assert dict(plain.origin)["B"] == "default"


def test_auto_follows_the_rule_whatever_is_tuned() -> None:
    for clauses in ("", "    tune B in (256, 512)\n"):
        one = candidate(kernel("B = auto", "i in parallel(N by B)", clauses=clauses))
        assert one.values["B"] == 1024
    assert candidate(kernel("B = auto", "i in parallel(N by B)")).values["B"] == 1024
    two = candidate(kernel("A = auto, B = auto", "i, j in parallel(N by A, N by B)"))
    assert (two.values["A"], two.values["B"]) == (32, 128)
    three = candidate(
        kernel("A = auto, B = auto, C = auto", "i, j, l in parallel(N by A, N by B, N by C)")
    )
    assert math.prod(int(v) for v in three.values.values() if isinstance(v, int)) <= 4096
    text = kernel(
        "A = auto, B = auto, C = auto",
        "i, j, l in parallel(N by A, N by B, N by C)",
        "c[i] = sum(a[i][:, None] @ a[j][None, :], axis=1)",
    )
    product = candidate(text)
    assert list(product.values.values()) == [128, 128, 64]
    assert candidate(text, B="16").values == {"A": 128, "B": 16, "C": 64}


def test_products_are_found_in_expressions_and_updates() -> None:
    assert has_product(
        kernel_of(kernel("B = 8", "i in parallel(N by B)", "c[i] = dot(a[i], a[i])"))[0]
    )
    assert not has_product(kernel_of(kernel("B = 8", "i in parallel(N by B)"))[0])


def test_schedule() -> None:
    result = candidate(
        kernel(
            "B = 8",
            "i in parallel(N by B)",
            clauses="    schedule stages = 4, warps = 8, mma = wmma, math = strict\n",
        )
    )
    assert (result.stages, result.warps, result.mma, result.math) == (4, 8, "wmma", "strict")
    plain = candidate(kernel("B = 8", "i in parallel(N by B)"))
    assert (plain.stages, plain.warps, plain.mma, plain.math) == (None, None, "auto", "fast")


def test_an_option_may_be_for_another_kernel() -> None:
    files = load_source(Source("x.tile", kernel("B = 8", "i in parallel(N by B)")))
    found = next(i for i in files.main.items if isinstance(i, ast.Kernel))
    sink = Sink()
    result = make_candidate(found, files.scope(files.main), {"Q": "3"}, sink, elsewhere={"Q"})
    assert sink.diagnostics == []
    assert result is not None
    assert result.values == {"B": 8}


def test_all_mistakes_in_one_go() -> None:
    text = kernel(
        "A, B = auto, C = 2",
        "i in parallel(N by C)",
        "c[i] = a[i] * A * B",
        "    schedule warp = 3\n    tune Q in (1, 2) key (N, R)\n",
    )
    _, result, sink = planned(text, {"Z": "3"})
    assert result is None
    assert [d.code for d in sink.diagnostics] == [
        "E0751",
        "E0217",
        "E0217",
        "E0215",
        "E0215",
        "E0217",
    ]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("3", 3),
        ("-0x10", -16),
        ("true", True),
        ("1e-3", 1e-3),
        ("bf16", BF16),
        ("three", None),
        ("", None),
        ("1_000.5", None),
    ],
)
def test_options_are_read(text: str, value: object) -> None:
    assert parse_static(text) == value
    assert type(parse_static(text)) is type(value)


def test_folding() -> None:
    assert fold_binary("//", -7, 2) == -4
    assert fold_binary("&", True, False) is False
    assert fold_binary("**", 2, 10) == 1024
    assert fold_function("rsqrt", 4.0) == 0.5
    assert math.isnan(fold_extreme("max", [1.0, math.nan]))
    for op, left, right in [
        ("/", 1, 0),
        ("<<", 1, 64),
        ("&", 1.0, 2),
        ("**", 2, 10**6),
        ("**", -1.0, 0.5),
        ("**", 1e300, 4),
    ]:
        with pytest.raises(ConstantFault):
            fold_binary(op, left, right)
    with pytest.raises(ConstantFault):
        fold_function("log", -1.0)
