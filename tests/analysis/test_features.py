"""Constructs of the language, one small kernel each: accepted by the verifier, presence as the interpreter finds it, and the
numbers that NumPy gives."""

from __future__ import annotations

import numpy as np
import pytest

from tests.analysis.programs import ops, outcome, program, stored
from tests.analysis.test_samples import run_and_compare
from tilec.ir import tile_ir as ir
from tilec.ir.printer import print_program
from tilec.ir.verifier import verify

N, M = 13, 11
X = np.random.default_rng(5).integers(-4, 5, (N, M)).astype(np.float32)
Y = np.random.default_rng(6).integers(-4, 5, N).astype(np.float32)
INDEX = np.array([3, 0, 12, 5, -1, 2, 7, 40, 1, 1, 0, 6, 9], np.int32)
HEAD = "kernel k[BM = 4, BN = 8](x: f32[N, M], y: f32[N], n: i32[N]) -> r: f32[N]:\n    require M <= 64\n"


def run(text: str, sizes: dict[str, int] | None = None, **given: object) -> np.ndarray:
    """The output `r` of a kernel."""
    result = program(text)
    verify(result)
    arrays = {"x": X, "y": Y, "n": INDEX, **given}
    names = {t.name for t in result.tensors} | {s.name for s in result.scalars}
    _, out = run_and_compare(
        result, sizes or {"N": N, "M": M}, {k: v for k, v in arrays.items() if k in names}
    )
    return out["r"]


def rows(statements: str, before: str = "", loop: str = "i in parallel(N by BM)") -> str:
    """A kernel with a loop over rows."""
    lines = "".join(f"        {line}\n" for line in statements.strip("\n").splitlines())
    return f"{before}{HEAD}    for {loop}:\n{lines}"


GATHERED = np.where((INDEX >= 0) & (INDEX < N), Y[np.clip(INDEX, 0, N - 1)], 0)

CASES: list[tuple[str, str, np.ndarray]] = [
    ("reduction over a bounded row", rows("r[i] = max(x[i, :], axis=1)"), X.max(axis=1)),
    ("scalar rows", rows("r[i] = sum(x[i, :]) / M", loop="i in parallel(N)"), X.sum(axis=1) / M),
    ("unrolled", rows("t = y[i]\nfor u in unroll(3):\n    t = t + u\nr[i] = t"), Y + 3),
    ("run-time branch", rows("if n[i.start] > 2:\n    t = y[i] + 1.0\nelse:\n    t = y[i]\nr[i] = t"), Y + np.repeat((INDEX[::4] > 2), 4)[:N]),
    ("branch that keeps a name", rows("t = y[i]\nif n[0] == 3:\n    t = t * 2.0\nr[i] = t"), Y * 2),
    ("elif", rows("if n[0] == 2:\n    t = 1.0\nelif n[0] == 3:\n    t = 2.0\nelse:\n    t = 3.0\nr[i] = t"), np.full(N, 2.0)),
    ("conditional expression", rows("r[i] = y[i] if n[0] > 5 else -y[i]"), -Y),
    ("gather", rows("r[i] = y[n[i]].fill(0)"), GATHERED),
    ("pointwise gather", rows("r[i] = x.at[n[i], n[i]].fill(0)"), np.where((INDEX >= 0) & (INDEX < M), X[np.clip(INDEX, 0, N - 1), np.clip(INDEX, 0, M - 1)], 0)),
    ("pointwise with a span", rows("r[i] = x.at[i, 2]"), X[:, 2]),
    ("span as value", rows("r[i] = (i * 2 + 1).to(f32)"), np.arange(N) * 2 + 1.0),
    ("moved span", rows("r[i] = y[i - 1].fill(9)"), np.concatenate([[9], Y[:-1]])),
    ("start and stop", rows("r[i] = (i.stop - i.start).to(f32)"), np.repeat([4, 4, 4, 1], 4)[:N].astype(float)),
    ("cumsum", rows("r[i] = max(cumsum(x[i, :], axis=1), axis=1)"), X.cumsum(axis=1).max(axis=1)),
    ("topk", rows("a, b = topk(x[i, :], 3, axis=1)\nr[i] = sum(a, axis=1)"), np.sort(X, axis=1)[:, -3:].sum(axis=1)),
    ("argmax", rows("r[i] = argmax(x[i, :], axis=1).to(f32)"), X.argmax(axis=1).astype(float)),
    ("reduce with a fn", rows("r[i] = reduce(x[i, :], 1, add)", "fn add(a, b):\n    return a + b\n"), X.sum(axis=1)),
    ("reduce of a tuple", rows("a, b = reduce((x[i, :], x[i, :]), axis=1, fn=both)\nr[i] = a + b", "fn both(a, b):\n    u, v = a\n    s, t = b\n    return u + s, maximum(v, t)\n"), X.sum(axis=1) + X.max(axis=1)),
    ("carried tuple", rows("s = (zeros(f32, i), 0.0)\nfor j in range(M by BN):\n    s = step(s, x[i, j])\na, b = s\nr[i] = a + b", "fn step(s, t):\n    a, b = s\n    return a + sum(t, axis=1), b + 1.0\n"), X.sum(axis=1) + 2),
    ("carried weak integer", rows("c = 0\nfor j in range(M by BN):\n    c += 1\nr[i] = y[i] + c"), Y + 2),
    ("carried integer steers", rows("c = 0\nt = zeros(f32, i)\nfor j in range(3):\n    t += x[i, c]\n    c += 2\nr[i] = t"), X[:, 0] + X[:, 2] + X[:, 4]),
    ("run-time loop bound", rows("t = zeros(f32, i)\nfor j in range(n[0]):\n    t += x[i, j]\nr[i] = t"), X[:, :3].sum(axis=1)),
    ("nested loops", rows("t = 0.0\nfor j in range(2):\n    for l in range(3):\n        t += y[0]\nr[i] = t"), np.full(N, Y[0] * 6)),
    ("loop that changes nothing", rows("t = y[i]\nfor j in range(3):\n    u = t\nr[i] = t"), Y),
    ("where of weak values", rows("r[i] = where(y[i] > 0.0, 1, 0).to(f32)"), (Y > 0) * 1.0),
    ("bool algebra", rows("r[i] = ((y[i] > 0.0) & ~(y[i] > 2.0)).to(f32)"), ((Y > 0) & ~(Y > 2)) * 1.0),
    ("integers", rows("r[i] = ((n[i] // 3) * 3 + n[i] % 3 + (n[i] & 1) + (n[i] << 1)).to(f32)"), (INDEX + (INDEX & 1) + (INDEX << 1)).astype(float)),
    ("new axes", rows("t = y[i][:, None] * x[i, :]\nr[i] = sum(t, axis=1)"), Y * X.sum(axis=1)),
    ("view", rows("v = x.view(N * M)\nr[i] = v[i]"), X.reshape(-1)[:N]),
    ("reshape", rows("t = y[i].fill(0).reshape(2, 2)\nr[i] = sum(t)", loop="i in parallel(N by 4)"), np.repeat([Y[:4].sum(), Y[4:8].sum(), Y[8:12].sum(), Y[12]], 4)[:N]),
    ("constant slice", rows("t = full(f32, 2.0, i, 8)[:, 1:4]\nr[i] = sum(t, axis=1)"), np.full(N, 6.0)),
    ("slice of a tensor", rows("r[i] = sum(x[i, 0:5], axis=1)"), X[:, :5].sum(axis=1)),
    ("bitcast", rows("r[i] = y[i].bitcast(u32).bitcast(f32)"), Y),
    ("functions", rows("r[i] = fma(y[i], 2.0, 1.0) + pow(y[i], 2.0) + abs(y[i]) + min(y[i], 1.0, -1.0)"), Y * 2 + 1 + Y**2 + np.abs(Y) + np.minimum(Y, -1)),
    ("constants fold", rows("r[i] = y[i] * A", "const B = 3\nconst A = 2.0 ** B / exp(0.0)\n"), Y * 8),
    ("accumulate", rows("a = x[i, 0:4]\nt = zeros(f32, i, i) + a @ a.T\nr[i] = sum(t, axis=1)"), np.concatenate([(X[s : s + 4, :4] @ X[s : s + 4, :4].T).sum(axis=1) for s in range(0, N, 4)])),
    ("own elements", rows("r[i] = y[i]\nr[i] += y[i]"), Y * 2),
    ("static branch", rows("if BM2 > 3:\n    r[i] = y[i]\nelse:\n    r[i] = y[i, i, i]", "const BM2 = 4\n"), Y),
    ("dtype of a tile", rows("r[i] = (n[i].to(y.dtype) + x.shape[1]).to(y[i].dtype)"), INDEX + np.float32(M)),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), [c[1:] for c in CASES], ids=[c[0] for c in CASES])
def test_kernel(text: str, expected: np.ndarray) -> None:
    assert np.allclose(run(text), expected, rtol=1e-5), print_program(program(text))


def test_integer_scalar_parameters_steer() -> None:
    text = (
        "kernel k(y: f32[N], first: i32, gain: f32 = 2.0) -> r: f32[N]:\n"
        "    for i in parallel(first : N by 4):\n"
        "        r[i] = y[i] * gain + first.to(f32)\n"
    )
    result = run(text, {"N": N}, first=3, gain=2.0)
    assert (result[3:] == Y[3:] * 2 + 3).all()


def test_strides_and_inout() -> None:
    text = (
        "kernel k(a: f32[N, 2] strides (lda, 1), inout s: f32[N]) -> r: f32[N]:\n"
        "    for i in parallel(N by 4):\n        s[i] += a[i, 1]\n        r[i] = s[i]\n"
    )
    result = program(text)
    verify(result)
    assert [v.name for v in result.dims] == ["N", "lda"]
    assert print_program(result).count("load s[") == 2


def test_atomics_and_two_nests() -> None:
    text = (
        "kernel k(n: i32[N], y: f32[N]) -> r: f32[M]:\n"
        "    for j in parallel(M by 8):\n        r[j] = 0.0\n"
        "    for i in parallel(N by 4):\n        atomic_add(r[n[i]], y[i])\n"
    )
    result = program(text)
    verify(result)
    _, out = run_and_compare(result, {"N": N, "M": M}, {"n": INDEX, "y": Y})
    expected = np.zeros(M)
    np.add.at(expected, INDEX[(INDEX >= 0) & (INDEX < M)], Y[(INDEX >= 0) & (INDEX < M)])
    assert (out["r"] == expected).all()


def test_two_tile_sizes_of_one_value_do_not_agree() -> None:
    text = "kernel k[A = 8, B = 8](y: f32[N]) -> r: f32[N]:\n    for i, j in parallel(N by A, N by B):\n        r[i] = y[i] + y[j]\n"
    assert [d.code for d in outcome(text)[2]] == ["E0312"]


def test_the_numbers_of_a_candidate_never_decide_how_a_span_is_divided() -> None:
    def loads(requirement: str) -> str:
        text = (
            "kernel k[B = 8](x: f32[N, 4], y: f32[N]) -> r: f32[N]:\n"
            f"{requirement}"
            "    for i in parallel(N by B):\n        r[i] = y[i // 32].fill(0) + y[i % 32].fill(0)\n"
        )
        result = program(text)
        verify(result)
        return print_program(result)

    assert "iota" in loads("")
    divided = loads("    require 32 % B == 0\n")
    assert "iota" not in divided
    assert "load y[(B*i.1) // 32]" in divided


def test_presence_that_cannot_matter_is_dropped() -> None:
    text = "kernel k[B = 64](y: f32[256]) -> r: f32[256]:\n    for i in parallel(256 by B):\n        r[i] = y[i]\n"
    assert "present" not in print_program(program(text))
    text = "kernel k[B = 64](y: f32[N]) -> r: f32[N]:\n    require N % 128 == 0\n    for i in parallel(N by B):\n        r[i] = y[i]\n"
    assert "present" not in print_program(program(text))


def test_a_product_and_its_sum_are_one_op() -> None:
    result = stored(
        "acc = zeros(f32, i, 16)\na = y[i][:, None]\nacc = acc * 2.0 + a @ zeros(f32, 1, 16)\nr[i] = sum(acc, axis=1)"
    )
    dots = [o for o in ops(result.nests[0].body) if isinstance(o, ir.Dot)]
    assert len(dots) == 1
    assert dots[0].accumulate is not None


def test_contracts_and_facts() -> None:
    text = (
        "kernel k[G = 4, B = 8](y: f32[N], s: f32, z: i32) -> r: f32[N]:\n"
        "    require N % G == 0 and N >= 16 and N < 1000 and s > 0.0\n"
        "    require z == 3 or N % 5 == 1\n"
        "    require not (G == 3)\n"
        "    for i in parallel(N by B):\n        r[i] = y[i] * s + z.to(f32)\n"
    )
    result = program(text)
    (n,) = result.dims
    assert (result.lower[n], result.upper[n], result.divisors[n]) == (16, 999, 4)
    assert [c.text for c in result.contracts] == [
        "N % G == 0",
        "N >= 16",
        "N < 1000",
        "s > 0.0",
        "z == 3 or N % 5 == 1",
    ]
    assert ir.HostScalar("s") in result.facts


def test_sizes_that_are_differences_and_packed_rows_have_contracts() -> None:
    text = (
        "kernel k(y: f32[N - 3], w: u4[N, K]) -> r: f32[N]:\n"
        "    for i in parallel(N - 3 by 8):\n        r[i] = y[i]\n"
    )
    assert [c.text for c in program(text).contracts] == ["N - 3 >= 0", "K % 2 == 0"]


def test_a_hidden_function_is_a_variable() -> None:
    assert (run(rows("max = y[i]\nr[i] = max")) == Y).all()
