"""What is not compiled, or does not fit, says so with its own code, its place and what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import compile_file
from tilec.source.diagnostics import TileError

PRODUCT = """kernel k(a: {a}[M, K], b: {b}[K, N]) -> c: f32[M, N]:
    {setting}
    for i, j in parallel(M by 64, N by 64):
        acc = zeros(f32, i, j)
        for k in range(K by 32):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
"""

CASES = {
    "E0510": """kernel k(a: bf16[B, 16, 16], b: bf16[B, 16, 16]) -> c: f32[B, 16, 16]:
    for n in parallel(B by 2):
        c[n, :, :] = a[n, :, :] @ b[n, :, :]
""",
    "E0511": """kernel k(x: f32[64, 64]) -> y: f32[64, 64]:
    for n in parallel(1):
        s = sum(x[:, :], axis=0)
        t = s[:, None] + s[None, :]
        y[:, :] = t + t.T * sum(t, axis=1)[None, :]
""",
    "E0512": """kernel k(x: f16[M, 32], w: f16[32, 64]) -> y: f32[M, 64]:
    for i in parallel(M by 64):
        y[i, :] = cumsum(x[i, :] @ w[:, :], axis=1)
""",
    "E0513": """kernel k(x: i8[R, 64]) -> y: i4[R, 64]:
    for r in parallel(R):
        y[r, :] = x[r, :].to(i4)
""",
    "E0514": PRODUCT.format(a="f32", b="f32", setting=""),
    "E0516": PRODUCT.format(a="bf16", b="bf16", setting="schedule mma = wgmma"),
    "E0603": PRODUCT.format(a="bf16", b="bf16", setting="schedule stages = 64"),
}


def codes(folder: Path, text: str, arch: str = "sm_90") -> list[str]:
    """Codes of the errors of a program, empty where it compiles."""
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    try:
        compile_file(str(path), archs=(arch,))
    except TileError as error:
        assert all(d.span is not None and d.span.line > 0 for d in error.diagnostics)
        assert all("illegal" not in d.message for d in error.diagnostics)
        return [d.code for d in error.diagnostics if d.level == "error"]
    return []


@pytest.mark.parametrize("code", sorted(CASES))
def test_the_code_names_the_construct(code: str, tmp_path: Path) -> None:
    assert codes(tmp_path, CASES[code]) == [code]


CROSSED = """kernel k(x: f32[64, 64]) -> y: f32[64, 64]:
    for _ in parallel(1):
        i = span(0, 64)
        t = where(i[:, None] > i[None, :], x[:, :], 0.0)
        columns = sum(t, axis=0)
        y[:, :] = t * columns[:, None]
"""


def test_the_place_is_where_the_axes_meet(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(CROSSED, encoding="utf-8")
    with pytest.raises(TileError) as refused:
        compile_file(str(path), archs=("sm_80",))
    (diagnostic,) = refused.value.diagnostics
    assert diagnostic.code == "E0511" and diagnostic.span is not None
    assert diagnostic.span.line == 6


def test_a_product_of_the_library_is_refused_at_the_call(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(
        "import std.softmax\nkernel k(s: f32[64, 64], v: f32[64, 64]) -> o: f32[64, 64]:\n    for i in parallel(1):\n"
        "        state = softmax.begin(64, 64)\n        state = softmax.step(state, s[:, :], v[:, :])\n"
        "        o[:, :] = softmax.end(state)\n"
    )
    with pytest.raises(TileError) as caught:
        compile_file(str(path), archs=("sm_90",))
    (found,) = caught.value.diagnostics
    assert found.code == "E0514" and found.span is not None
    assert found.span.text == "softmax.step(state, s[:, :], v[:, :])"
    assert found.helps == ("convert the arguments of the call with `.to(bf16)`",)


def test_what_an_older_target_lacks(tmp_path: Path) -> None:
    text = PRODUCT.format(a="bf16", b="bf16", setting="")
    assert codes(tmp_path, text, "sm_75") == ["E0514"]
    assert codes(tmp_path, text, "sm_80") == []
    assert codes(tmp_path, PRODUCT.format(a="f16", b="f16", setting=""), "sm_75") == []


ARGMAX = """kernel k(x: i32[M, E, C]) -> y: i32[E, C]:
    require C <= 130
    require E <= 20
    for i in parallel(M by 100):
        y[:, :] = argmax(x[i, :, :].to(u8), axis = 0)
"""


def test_pairs_of_a_value_and_a_coordinate_count_as_wide_as_they_are(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(ARGMAX, encoding="utf-8")
    kernels = compile_file(str(path), archs=("sm_80",)).kernels[0].lowered["sm_80"]
    most = max(kernel.shared_bytes for kernel in kernels)
    assert most > 48 * 1024 and max(kernels, key=lambda k: k.shared_bytes).dynamic
    with pytest.raises(TileError) as refused:
        compile_file(str(path), archs=("sm_86",))
    (diagnostic,) = [d for d in refused.value.diagnostics if d.level == "error"]
    assert diagnostic.code == "E0603"
    assert f"needs {most} bytes of shared memory" in diagnostic.message
    assert any("argmax" in note for note in diagnostic.notes)
