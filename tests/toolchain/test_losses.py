"""What ptxas says about lost performance: real remarks, faults of the golden build, warnings of the commands."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.toolchain.slow_texts import FENCED, SLOW, SlowText
from tilec.jobs import compiling
from tilec.jobs.compiling import CompileRequest, run_compile
from tilec.source.diagnostics import TileError
from tilec.toolchain.build import Built, compile_cubin, find_toolchain
from tilec.toolchain.losses import losses, performance_warnings
from tilec.toolchain.matrix import judge
from tilec.toolchain.ptxas import KernelResources, PtxasReport, Remark

LOSS = Remark("wgmma serialised", "C7510", "(C7510) Potential Performance Loss: slow", "gemm")
SPILLS = KernelResources("gemm", "sm_90a", 168, 24, 8, 16, 0, 1, 0)


def built(text: str) -> Built:
    return compile_cubin(text, "sm_90a", toolchain=find_toolchain())


@pytest.mark.parametrize("slow", SLOW, ids=lambda s: s.code)
def test_what_ptxas_says(slow: SlowText) -> None:
    made = built(slow.text)
    remarks = [r for r in made.remarks if r.costs]
    assert {r.kind for r in remarks} == {slow.kind}
    # ptxas does not say which kernel's `setmaxnreg` it ignores
    assert {r.kernel for r in remarks} == ({"k"} if "wgmma" in slow.kind else {""})
    if find_toolchain().nvcc.release == "13.0":
        assert {r.code for r in remarks} == {slow.code}
    assert slow.kind in judge(made)


def test_an_added_arrival_costs_nothing() -> None:
    made = built(FENCED.text)
    assert {(r.kind, r.costs) for r in made.remarks} <= {(FENCED.kind, False)}
    assert judge(made) == ""


def test_sentences() -> None:
    report = PtxasReport((SPILLS,), (LOSS, LOSS, Remark("warning", "", "odd", "gemm")))
    assert losses(report) == (
        "`gemm` spills: 8 bytes stored, 16 loaded",
        "`gemm` has a stack frame of 24 bytes",
        "wgmma serialised in `gemm`: (C7510) Potential Performance Loss: slow",
    )
    warnings = performance_warnings(report, "sm_90a")
    assert {(w.code, w.level) for w in warnings} == {("W0602", "warning")}
    assert warnings[0].message == "for sm_90a, `gemm` spills: 8 bytes stored, 16 loaded"


@pytest.fixture
def compile_slow(tmp_path, monkeypatch, capsys):
    """`tilec compile --emit cubin` with an nvcc that loses performance: options to (error, what was said, what was written)."""
    file = tmp_path / "a.tile"
    file.write_text(
        "kernel f(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 64):\n        y[i] = x[i]\n"
    )
    slow = Built("cubin", b"cubin", PtxasReport((), (LOSS,)), "", False)
    monkeypatch.setattr(compiling, "_build", lambda request, compiled: slow)
    output = tmp_path / "a.cubin"

    def run(**options):
        request = CompileRequest(
            str(file), output=str(output), emit="cubin", archs=("sm_90a",), **options
        )
        error = None
        try:
            run_compile(request)
        except TileError as raised:
            error = raised
        return error, capsys.readouterr().err, output.exists()

    return run


def test_compile_warns(compile_slow) -> None:
    error, said, written = compile_slow()
    assert error is None
    assert said.startswith("warning[W0602]: for sm_90a, wgmma serialised in `gemm`: (C7510)")
    assert written


def test_compile_is_silent_where_asked(compile_slow) -> None:
    assert compile_slow(no_warnings=True) == (None, "", True)


def test_compile_stops_at_warnings_where_asked(compile_slow) -> None:
    error, _, written = compile_slow(warnings_as_errors=True)
    assert [d.code for d in error.diagnostics] == ["W0602", "E0650"]
    assert not written


def test_run_warns_once(tmp_path, monkeypatch) -> None:
    from tilec.runtime import kernel_run

    slow = Built("cubin", b"", PtxasReport((SPILLS,), ()), "", False)
    monkeypatch.setattr(kernel_run, "compile_cubin", lambda *_, **__: slow)
    monkeypatch.setattr(kernel_run, "find_toolchain", lambda *_, **__: None)
    said = []
    compiled = SimpleNamespace(archs=("sm_90a",), cu="")
    options = SimpleNamespace(rtol=None, atol=None, nvcc=None)
    runner = kernel_run.KernelRunner(options, "a.tile", compiled, None, None, said.append)
    runner.build()
    runner.build()
    assert [[w.code for w in found] for found in said] == [["W0602", "W0602"]]
