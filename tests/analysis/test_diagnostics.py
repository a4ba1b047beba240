"""Every code of analysis, each with a minimal program and what its message must name."""

from __future__ import annotations

import pytest

from tests.analysis.programs import body, outcome
from tilec.source.codes.analysis import CODES

CASES: list[tuple[str, str, str]] = [
    ("E0201", body("o[i, j] = x[i, j] + vv"), "`vv`"),
    ("E0201", "import std.softmax\n" + body("s = softmax.begn(i, 4)"), "no `begn`"),
    ("E0201", body("o[i, j] = epx(x[i, j])"), "`epx`"),
    ("E0201", body("if D == 3:\n    o[i, j] = qq\n    t = uu.start\nuu = i"), "`qq`"),
    ("E0201", body("t = qq if D == 3 else 0.0\no[i, j] = t"), "`qq`"),
    ("E0202", "kernel k(a: f32[N], a: f32[N]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = a[i]\n", "`a`"),
    ("E0202", "kernel k(N: i32, a: f32[N]) -> N: f32[N]:\n    for i in parallel(N):\n        N[i] = a[i]\n", "`N`"),
    ("E0203", body("N = 3"), "dimension"),
    ("E0203", body("i = 3"), "loop variable"),
    ("E0203", body("x = 3"), "parameter"),
    ("E0203", body("for i in range(3):\n    r[i] = 0.0"), "by a loop"),
    ("E0204", "kernel k(a: f32[N // Q]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = a[0]\n", "`Q`"),
    ("E0205", "kernel k(a: fp32[N]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = a[i]\n", "`fp32`"),
    ("E0206", "fn f(x):\n    return g(x)\nfn g(x):\n    return f(x)\n" + body("o[i, j] = f(x[i, j])"), "calls itself"),
    ("E0206", "const A = B + 1\nconst B = A + 1\n" + body("o[i, j] = x[i, j] + A"), "by itself"),
    ("E0207", "fn f(x, y):\n    return x + y\n" + body("o[i, j] = f(x[i, j])"), "2 arguments, not 1"),
    ("E0207", body("o[i, j] = where(x[i, j] > 0.0, 1.0)"), "`where`"),
    ("E0207", body("a, b = topk(y[i], 2, axis=0), 3, 4"), "unpacked"),
    ("E0208", body("r[i] = sum(x[i, j], axes=1)"), "`axes`"),
    ("E0208", "fn f(a):\n    return a\n" + body("o[i, j] = f(b=x[i, j])"), "`b`"),
    ("E0209", body("max = 3\no[i, j] = max(x[i, j], 0.0)"), "not a function"),
    ("E0209", body("o[i, j] = x[i, j].sum"), "no `sum`"),
    ("E0210", body("y[i] = 0.0"), "input `y`"),
    ("E0211", body("o[i, j] = o[i, j] + 1.0"), "output `o`"),
    ("E0212", body("for k in range(3):\n    t = x[i, j]\no[i, j] = t"), "`t`"),
    ("E0212", body("if n[0] > 0:\n    t = x[i, j]\no[i, j] = t"), "branch"),
    ("E0213", body("for k in parallel(3):\n    r[k] = 0.0"), "top level"),
    ("E0214", "kernel k(a: f32[N]) -> c: f32[N]:\n    s = a[0]\n    for i in parallel(N):\n        c[i] = s\n", "`s`"),
    ("E0214", "kernel k(a: f32[N]) -> c: f32[N]:\n    for i in range(N):\n        c[i] = a[i]\n", "outside `parallel`"),
    ("E0214", "kernel k(a: i32[N]) -> c: f32[N]:\n    for i in parallel(a[0]):\n        c[i] = 0.0\n", "values of tensors"),
    ("E0214", "kernel k(a: i32[N]) -> c: f32[N]:\n    for i, j in parallel(N by 4, i.stop by 4):\n        c[j] = 0.0\n", "depends on another"),
    ("E0321", "kernel k(a: i32[N], b: i32[N * 0.5]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = 0.0\n", "dimension"),
    ("E0215", "kernel k[B](a: f32[N]) -> c: f32[N]:\n    for i in parallel(N by B):\n        c[i] = a[i]\n", "`B`"),
    ("E0215", "kernel k[B = auto](a: f32[N]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = a[i] * B\n", "auto"),
    ("E0215", "kernel k[B = 0](a: f32[N]) -> c: f32[N]:\n    for i in parallel(N by B):\n        c[i] = a[i]\n", "from 1 on"),
    ("E0217", "kernel k[B = 4](a: f32[N]) -> c: f32[N]:\n    tune BB in (1, 2)\n    for i in parallel(N by B):\n        c[i] = a[i]\n", "`BB`"),
    ("E0217", "kernel k[B = 4](a: f32[N]) -> c: f32[N]:\n    tune B in (1, 2) key (Z)\n    for i in parallel(N by B):\n        c[i] = a[i]\n", "`Z`"),
    ("E0217", "kernel k[B = 4](a: f32[N]) -> c: f32[N]:\n    tune B in (1, 0)\n    for i in parallel(N by B):\n        c[i] = a[i]\n", "from 1 on"),
    ("E0217", "kernel k[B = 4](a: f32[N]) -> c: f32[N]:\n    tune B in (1, 2) where N > B\n    for i in parallel(N by B):\n        c[i] = a[i]\n", "`where`"),
    ("E0217", "kernel k[B = 4](a: f32[N]) -> c: f32[N]:\n    schedule wraps = 4\n    for i in parallel(N by B):\n        c[i] = a[i]\n", "`wraps`"),
    ("E0217", "kernel k[B = 4](a: f32[N]) -> c: f32[N]:\n    schedule mma = wma\n    for i in parallel(N by B):\n        c[i] = a[i]\n", "`mma`"),
    ("E0219", "kernel k[B = 24](a: f32[N]) -> c: f32[N]:\n    require B % 16 == 0\n    for i in parallel(N by B):\n        c[i] = a[i]\n", "B % 16 == 0"),
    ("E0219", body("assert D == 17, \"no\""), "no"),
    ("E0219", "kernel k(a: f32[N]) -> c: f32[N]:\n    require N > 8 and N < 5\n    for i in parallel(N):\n        c[i] = a[i]\n", "no `N`"),
    ("E0220", "kernel k(a: f32[N]) -> c: f32[N]:\n    require N + 1\n    for i in parallel(N):\n        c[i] = a[i]\n", "condition"),
    ("E0220", "kernel k(a: f32[N]) -> c: f32[N]:\n    require a[0] > 0.0\n    for i in parallel(N):\n        c[i] = a[i]\n", "sizes"),
    ("E0221", "const A = f(3)\nfn f(x):\n    return zeros(f32, x)\n" + body("o[i, j] = x[i, j] + A"), "`A`"),
    ("E0222", body("o[i, j] = x + 1.0"), "index it"),
    ("E0222", body("o[i, j] = x[i, j] + (1, 2)"), "tuple"),
    ("E0222", body("a = f32\no[i, j] = 0.0"), "dtype"),
    ("E0222", "fn f(x):\n    return x\n" + body("o[i, j] = x[i, j] + f"), "fn `f`"),
    ("E0222", "fn f(x):\n    return x, x\n" + body("if f(1.0) == 2.0:\n    r[i] = 0.0"), "tuple"),
    ("E0223", "kernel k(a: f32[N]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = a[i]\n    check a == c\n", "`a`"),
    ("E0223", "kernel k(a: f32[N]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = a[i]\n    example Q = 3\n", "`Q`"),
    ("E0224", body("sum(y[i])"), "dropped"),
    ("E0224", body("t = x[i, j]\nt[0] = 1.0"), "not stored"),
    ("E0224", body("t = atomic_add(r[i], y[i])"), "statement"),
    ("E0302", body("o[i, j] = x[i]"), "[N, M]"),
    ("E0302", body("r[i] = y[i][:, :]"), "indexed with 2"),
    ("E0302", "kernel k[B = 8](x: f32[N, N], s: f32[N, N]) -> c: f32[N, N]:\n    for i, j in parallel(N by B, N by B):\n        c[i, j] = x[i, j] * s[i, j // 32][:, None]\n", "`require 32 % B == 0`"),
    ("E0303", "kernel k(a: f32[N, M]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = sum(a[i, :])\n", "`M`"),
    ("E0304", body("o[i, j] = x[i, j].to(bf16) + x[i, j].to(f16)"), "`bf16` and `f16`"),
    ("E0304", body("r[i] = y[i] + n[i]"), "`f32` and `i32`"),
    ("E0304", body("t = n[i] * 0.5\nr[i] = t"), "float literal"),
    ("E0305", body("r[i] = (n[i] / n[i]).to(f32)"), "`/`"),
    ("E0306", body("o[i, j] = y[i] @ x[i, j]"), "two axes"),
    ("E0306", body("o[i, j] = x[i, j] @ x[i, j]"), "do not agree"),
    ("E0307", body("t = x[i, :] @ x[i, :].T\nr[i] = sum(t, axis=1)"), "`M`"),
    ("E0308", body("t = x[i, j].to(i32) @ x[i, j].to(i32).T\nr[i] = sum(t, axis=1).to(f32)"), "i8"),
    ("E0309", body("r[i] = x[i, j]"), "does not fit"),
    ("E0310", body("r[i] = n[i]"), "`.to(f32)`"),
    ("E0311", body("if x[i, j] > 0.0:\n    r[i] = 0.0"), "scalar"),
    ("E0311", body("print(y[i])"), "`print`"),
    ("E0312", body("o[i, j] = x[i, j] + y[i]"), "`BN` (= 64) and `BM` (= 32)"),
    ("E0313", body("r[i] = sum(x[i, j], axis=2)"), "axis 2"),
    ("E0313", body("r[i] = y[i].T"), "`.T`"),
    ("E0314", body("o[i, j] = x[y[i], j]"), "no index"),
    ("E0314", body("o[i, j] = x[n[i][:, None], j]"), ".at"),
    ("E0315", body("for k in range(N by M):\n    r[i] = 0.0"), "`by`"),
    ("E0315", body("s = span(0, N)\nr[s] = 0.0"), "compile time"),
    ("E0315", "kernel k(x: f32[N], y: f32[M]) -> z: f32[N]:\n    require N <= 64\n    for i in parallel(1):\n        c = span(0, N)\n        z[c] = x[c] + y[c]\n", "indexes a dimension of `M`"),
    ("E0316", body("t = n[i].to(u8) + 300\nr[i] = t.to(f32)"), "`300`"),
    ("E0317", body("o[i, j] = x[i, j].reshape(BM, 3)"), "number of elements"),
    ("E0317", body("v = x.view(N, M, 2)\nr[i] = v[i, 0, 0]"), "view"),
    ("E0318", body("r[i] = y[i].bitcast(i16).to(f32)"), "widths"),
    ("E0319", body("t = zeros(f32, i, 16)[:, 0:17]\nr[i] = sum(t, axis=1)"), "0:17"),
    ("E0319", body("r[i] = y[-1]"), "-1"),
    ("E0320", body("r[i] = exp(n[i]).to(f32)"), "`exp`"),
    ("E0320", body("r[i] = sum(x[i, j].to(i8), axis=1).to(f32)"), "overflow"),
    ("E0321", body("r[i] = sum(x[i, j], axis=n[0])"), "`axis`"),
    ("E0321", body("o[i, j] = zeros(32, i, j)"), "dtype"),
    ("E0321", body("for k in unroll(N):\n    r[i] = 0.0"), "`unroll`"),
    ("E0321", body("r[i] = 1.0 / 0.0"), "zero"),
    ("E0322", body("for k in range(N by 0):\n    r[k] = 0.0"), "at least 1"),
    ("E0323", body("if n[0]:\n    r[i] = 0.0"), "truth value"),
    ("E0323", body("r[i] = where(n[i], 1.0, 0.0)"), "`where`"),
    ("E0324", "kernel k(a: u4[N, 7]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = 0.0\n", "odd"),
    ("E0324", "kernel k(a: u4[N]) -> c: f32[N]:\n    for i in parallel(N by 3):\n        c[i] = a[i].to(f32)\n", "may be odd"),
    ("E0401", body("m = -inf\nfor k in range(3):\n    m = maximum(m, y[i])\nr[i] = m"), "`m`"),
    ("E0402", body("t = y[i]\nfor k in range(3):\n    t = t.to(bf16)\nr[i] = t"), "`f32`"),
    ("E0403", body("t = zeros(f32, BN)\nfor k in range(M by BN):\n    t += x[0, k]\nr[i] = sum(t)"), "`t`"),
    ("E0404", body("t = x[i, j].reshape(BM * BN)\nr[i] = sum(t)"), "axis 0"),
    ("E0405", body("if n[0] > 0:\n    t = y[i]\nelse:\n    t = x[i, j]\nr[i] = 0.0"), "`t`"),
    ("E0405", body("if n[0] > 0:\n    t = y[i]\nelse:\n    t = y[i].fill(0)\nr[i] = t"), "absent"),
    ("E0406", body("s = span(0, 16)\nfor k in range(3):\n    s = s + 16\nr[s] = 0.0"), "a span"),
    ("E0407", body("t = y[i]\nfor k in range(3):\n    t = t.fill(0)\nr[i] = t"), "`t`"),
    ("E0502", "".join(f"fn f{n + 1}(x):\n    return f{n}(f{n}(x))\n" for n in range(15)).replace("fn f1(x):\n    return f0(f0(x))", "fn f1(x):\n    return x", 1) + body("o[i, j] = f15(f15(f15(1.0)))"), "20000"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("code", "text", "part"), CASES, ids=[f"{c[0]}-{n}" for n, c in enumerate(CASES)]
)
def test_one_mistake_is_one_message(code: str, text: str, part: str) -> None:
    program, _, diagnostics = outcome(text)
    errors = [d for d in diagnostics if d.level == "error"]
    shown = "\n".join(d.render() for d in errors)
    assert [d.code for d in errors] == [code], shown
    assert part in shown
    assert program is None or code in ("E0223",)


HABITS: list[tuple[str, str, str]] = [
    # what somebody writes who knows NumPy, PyTorch or CUDA, its code, and what to write instead
    (body("o[i, j] = np.exp(x[i, j])"), "E0201", "write `exp(…)`, without a module"),
    (body("o[i, j] = x[i, j] - np.inf"), "E0201", "write `inf`, without a module"),
    (body("o[i, j] = x[i, j] * math.pi"), "E0201", "`const PI"),
    (body("o[i, j] = x[i, j] * tl.foo"), "E0201", "stand alone, without a module"),
    (body("r[i] = y[i][np.newaxis, :]"), "E0201", "a new axis is `None`"),
    (body("t = y[i][newaxis, :]"), "E0201", "a new axis is `None`"),
    (body("o[i, j] = relu(x[i, j])"), "E0201", "`max(x, 0.0)`"),
    (body("r[i] = y[i] + arange(32)"), "E0201", "`span(0, 64)`"),
    (body("r[i] = y[i] / len(y)"), "E0201", "sizes have names"),
    (body("r[i] = y[i] * float(n[0])"), "E0201", "`.to(f32)`"),
    (body("r[i] = y[threadIdx.x]"), "E0201", "no threads"),
    (body("syncthreads()\nr[i] = y[i]"), "E0201", "no barriers"),
    (body("t = std.softmax(x[i, j])"), "E0201", "`import std.softmax`"),
    (body("t = zeros(f32, i) if D == 3 else ones(f32, i)"), "E0201", "`full(f32, 1.0, i, j)`"),
    (body("o[i, j] = x[i, j].exp()"), "E0209", "write `exp(x)`"),
    (body("r[i] = x[i, j].sum(1)"), "E0209", "write `sum(x)`"),
    (body("r[i] = n[i].astype(f32)"), "E0209", "`.to(f32)`"),
    (body("o[i, j] = x[i, j].transpose()"), "E0209", "`.T` swaps"),
    (body("x = x[i, j]\no[i, j] = x"), "E0203", "another name"),
    (body("o[i, j] = x[i]"), "E0302", "`x[i, :]`"),
    (body("o[i, j] = zeros(i8, i, 16) @ zeros(bf16, 16, j)"), "E0304", "the integer with `.to(bf16)`"),
    (body("r[i] = y[i] @ y[i]"), "E0306", "`sum(a * b)`"),
    (body("r[i] = dot(y[0], y[i])"), "E0306", "by `*`"),
    (body("r[i] = y[i] @ x[i, j]"), "E0306", "`x[None, :] @ b`"),
    (body("r[i] = sum(x[i, j], dim=1)"), "E0208", "`axis = n`"),
    (body("r[i] = sum(x[i, j], axis=1, keepdims=true)"), "E0208", "`sum(x, axis = 1)[:, None]`"),
    (body("r[i] = sum(x[i, j], axis=1, dtype=f32)"), "E0208", "`sum(x.to(f32))`"),
    (body("r[i] = argsort(y[i])"), "E0201", "`topk(x, k, axis = n)`"),
    (body("r[i] = median(x[i, j], axis=1)"), "E0201", "there is no sort"),
    (body("r[i] = std(x[i, j], axis=1)"), "E0201", "`sqrt(sum((x - m) * (x - m)) / C)`"),
    (body("o[i, j] = tril(x[i, j])"), "E0201", "compare spans"),
    (body("o[i, j] = x[i, j].copy()"), "E0209", "tiles are values"),
    (body("t = zeros((2, 4), dtype=f32)"), "E0208", "the dtype comes first"),
    (body("r[i] = y[i] * y.shape[3]"), "E0319", "from 0 to 0"),
    (body("o[j, i] = x[i, j]"), "E0309", "`.T` swaps"),
    (body("o[i, j] = where(x[i, j] > 0.0 and x[i, j] < 1.0, 1.0, 0.0)"), "E0311", "`(a < b) & (b < c)`"),
    (body("o[i, j] = where(x[i, j] > 0.0 or x[i, j] < 1.0, 1.0, 0.0)"), "E0311", "`(a < b) | (b < c)`"),
    (body("o[i, j] = where(not (x[i, j] > 0.0), 1.0, 0.0)"), "E0311", "`~c`"),
    ("kernel k(a: float16[N]) -> c: f16[N]:\n    for i in parallel(N):\n        c[i] = a[i]\n", "E0205", "did you mean `f16`?"),
    ("kernel k(a: bfloat16[N]) -> c: bf16[N]:\n    for i in parallel(N):\n        c[i] = a[i]\n", "E0205", "did you mean `bf16`?"),
    ("kernel k(n: int, a: f16[N]) -> c: f16[N]:\n    for i in parallel(N):\n        c[i] = a[i]\n", "E0205", "did you mean `i32`?"),
    ("kernel k(a: uint8[N]) -> c: u8[N]:\n    for i in parallel(N):\n        c[i] = a[i]\n", "E0205", "did you mean `u8`?"),
    (body("r[i] = topk(y[i], 2, n=1)"), "E0208", "its keywords are `axis`, `k`"),
    (body("r[i] = exp(y[i], axis=1)"), "E0208", "no keywords"),
    (body("r[i] = y[i].reshape(-1)"), "E0317", "write every extent"),
    (body("r[y[i] > 0.0] = 1.0"), "E0314", "`where(c, a, b)`"),
    ('kernel k[T = "bf16"](a: f32[N]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = a[i]\n', "E0215", "without quotes"),
    ("kernel k[B = x](a: f32[N]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = a[i]\n", "E0215", "defaults are"),
    ("kernel k[B = 8.0](a: f32[N]) -> c: f32[N]:\n    for i in parallel(N by B):\n        c[i] = a[i]\n", "E0215", "`B = 64`"),
    (body("o[i, j] = x[i, j]").rstrip() + "\n    check r == mean(x)\n", "E0201", "`sum(x) / C`"),
    (body("o[i, j] = x[i, j]").rstrip() + "\n    check r == np.exp(y)\n", "E0201", "without a module"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "helped"), HABITS, ids=[h[2] for h in HABITS])
def test_habits_of_other_languages(text: str, code: str, helped: str) -> None:
    _, _, diagnostics = outcome(text)
    errors = [d for d in diagnostics if d.level == "error"]
    assert [d.code for d in errors] == [code], "\n".join(d.render() for d in errors)
    assert helped in " ".join(errors[0].helps)


@pytest.mark.parametrize(
    ("options", "code"),
    [
        ({"BB": "3"}, "E0751"),
        ({"BM": "x"}, "E0752"),
        ({"BM": "0"}, "E0752"),
        ({"D": "bf16"}, "E0752"),
        ({"T": "3"}, "E0752"),
    ],
)
def test_options(options: dict[str, str], code: str) -> None:
    _, _, diagnostics = outcome(body("o[i, j] = x[i, j].to(T)"), **options)
    assert [d.code for d in diagnostics] == [code]


def test_unused_output_is_a_warning() -> None:
    program, _, diagnostics = outcome(body("o[i, j] = x[i, j]"))
    assert program is not None
    assert [d.code for d in diagnostics] == ["W0201"]
    assert "`r`" in diagnostics[0].message


@pytest.mark.parametrize(
    ("statements", "axes"),
    [
        ("r[i] = sum(x[i, j], axis=1)", "`j`"),
        ("r[0] = sum(x[i, j])", "`i` and `j`"),
        ("t = 0.0\nfor k in range(3):\n    t = t + sum(x[i, j])\nr[0] = t", "`i` and `j`"),
        ("t = 0.0\nif n[0] > 0:\n    t = sum(x[0, j])\nr[i] = t", "`j`"),
        ("k = n[0]\nr[k] = sum(x[i, j])", "`i` and `j`"),
        ("r[i] = y[i]", ""),  # the same from each `j`
        ("if j.start == 0:\n    r[i] = sum(x[i, j], axis=1)", ""),
        ("if n[j.start] > 0:\n    r[i] = sum(x[i, j], axis=1)", ""),
        ("r[n[i] + 0 * n[0]] = x[i, 0]", ""),  # a scatter is the program's own business
        ("for k in range(j.start : j.stop):\n    r[k] = sum(x[:, k]) if D == 3 else 0.0", ""),
        ("atomic_add(r[i], sum(x[i, j], axis=1))", ""),
    ],
)
def test_elements_that_several_instances_store(statements: str, axes: str) -> None:
    _, _, diagnostics = outcome(body("o[i, j] = x[i, j]\n" + statements))
    assert [d.code for d in diagnostics if d.level == "error"] == []
    said = [d.message for d in diagnostics if d.code == "W0202"]
    assert len(said) == bool(axes)
    assert not axes or said[0].startswith(f"instances of different {axes} store")


SUMMED = "s = zeros(f32, i)\nfor k in range(M by BK):\n    if {}:\n        s += sum({}, axis=1)\nr[i] = s"


@pytest.mark.parametrize(
    ("statements", "sizes"),
    [
        (SUMMED.format("k.start < n[0]", "x[i, k]"), "`BK`"),
        (SUMMED.format("n[k.start // 64] > 0", "x[i, k]"), "`BK`"),
        (SUMMED.format("k.start < i.stop", "x[i, k]"), "`BM` and `BK`"),
        # what a mask of coordinates says again
        (SUMMED.format("k.start < n[0]", "where(k[None, :] < n[0], x[i, k], 0.0)"), ""),
        (SUMMED.format("k.start < i.stop", "where(k[None, :] <= i[:, None], x[i, k], 0.0)"), ""),
        # a number for all of a tile, wherever it begins
        (SUMMED.format("n[k.start // 128] > 0", "x[i, k]"), ""),
        (SUMMED.format("k.start == 0", "x[i, k]"), ""),
        ("r[i] = y[i] + j.start.to(f32)", ""),  # BN is a number
        ("r[i] = y[i] + i.start.to(f32)", "`BM`"),
        ("r[i] = sum(x[i, j], axis=1) / x[i, j].shape[0]", "`BM`"),
        ("t = n[0]\nfor k in range(3):\n    t = t + i.stop\nr[i] = y[i] * t.to(f32)", "`BM`"),
        ("r[i.start] = y[0]", "`BM`"),
        ("r[i] = y[i.stop - 1]", "`BM`"),
        ("o[i, j] = where(i[:, None] < n[0], x[i, j], 0.0)", ""),
    ],
)
def test_results_that_depend_on_sizes_that_the_compiler_chooses(
    statements: str, sizes: str
) -> None:
    text = body("o[i, j] = x[i, j]\n" + statements)
    text = text.replace("BM = 32,", "BM = auto,")
    if "BK" in statements:
        text = text.replace("BM = auto,", "BM = auto, BK = auto,")
        text = text.replace("    require", "    require 128 % BK == 0\n    require", 1)
    _, _, diagnostics = outcome(text)
    assert [d.code for d in diagnostics if d.level == "error"] == []
    said = [d.message for d in diagnostics if d.code == "W0203"]
    assert len(said) == bool(sizes), said
    assert not sizes or f"{sizes}, which the compiler chooses" in said[0]
    # with a number it is the program's own
    given = outcome(text.replace("= auto", "= 32"))[2]
    assert [d for d in given if d.code == "W0203"] == []


def test_every_code_has_a_case() -> None:
    covered = {c[0] for c in CASES} | {"E0751", "E0752", "W0201", "W0202", "W0203"}
    assert set(CODES) == covered


def test_messages_follow_the_style() -> None:
    for _, text, _ in CASES:
        for diagnostic in outcome(text)[2]:
            assert diagnostic.message[0].islower() or diagnostic.message[0] in "`0123456789", (
                diagnostic.message
            )
            assert not diagnostic.message.endswith("."), diagnostic.message
            assert "illegal" not in diagnostic.render()


def test_all_mistakes_of_a_kernel_in_one_go() -> None:
    text = body(
        "a = x[i]\nb = a + 1.0\no[i, j] = b\nr[i] = yy[i]\nfor k in range(M by BN):\n    q = zz\nr[i] = n[i]"
    )
    codes = [d.code for d in outcome(text)[2]]
    assert codes == ["E0302", "E0201", "E0201", "E0310"]


def test_a_mistake_in_the_library_is_shown_at_the_call() -> None:
    text = "import std.softmax\n" + body("state = softmax.begin(i, 6.5)")
    (found,) = outcome(text)[2]
    assert found.span is not None
    assert (found.code, found.span.text) == ("E0321", "softmax.begin(i, 6.5)")
    (inside,) = found.secondary
    assert inside.span.source.name == "std/softmax.tile"
    assert inside.span.text == "zeros(f32, i, D)"


def test_a_mistake_in_a_function_names_the_call_too() -> None:
    text = "fn f(a):\n    return a + q\n" + body("o[i, j] = f(x[i, j])\nr[i] = f(y[i])")
    (found,) = outcome(text)[2]
    assert found.span is not None
    assert found.span.text == "q"
    assert [(s.span.text, s.text) for s in found.secondary] == [("f(x[i, j])", "expanded here")]
