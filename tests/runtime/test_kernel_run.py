"""A kernel through everything that `tilec run` does with a GPU, the driver replaced by one on host memory."""

from __future__ import annotations

import threading
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from tests.jobs.front_half import compile_front
from tests.runtime.fake_driver import fake_device, fake_driver
from tilec.emit.entries import entry_names
from tilec.emit.unit import HOST_HELPERS, KERNEL_BEGIN, KERNEL_END
from tilec.ir.launch import (
    Always,
    IntegerArgument,
    Launch,
    PointerArgument,
    ScalarArgument,
    Step,
    TargetPlan,
)
from tilec.ir.symbolic import Sym
from tilec.jobs.running import RunRequest
from tilec.runtime import bench, kernel_run
from tilec.runtime.device import Gpu, import_pycuda, open_gpu
from tilec.runtime.kernel_run import KernelRunner
from tilec.source.diagnostics import Diagnostic, TileError
from tilec.syntax.loading import load
from tilec.toolchain.build import Built
from tilec.toolchain.ptxas import PtxasReport

SOURCE = """\
kernel scaled[BN = 64](x: f32[N], scale: f32) -> y: f32[N]:
    for i in parallel(N by BN):
        y[i] = x[i] * scale
    check y == x * scale
    flops N
    bytes 2 * N * 4
    example N = 1000, scale = 0.5
    example cpu N = 100, scale = 0.25
"""


TEXT = f"""\
namespace {{
{HOST_HELPERS}
}}  // namespace
{KERNEL_BEGIN}
extern "C" __global__ void __launch_bounds__(64, resident_ctas(64, 1))
scaled(const float* x, float* y, int N, float scale) {{
}}

extern "C" __global__ void __launch_bounds__(64, resident_ctas(64, 1))
scaled_any(const float* x, float* y, int N, float scale) {{
}}
{KERNEL_END}
"""


def scaled(memory, grid, block, x, y, n, scale) -> None:
    values = memory.at(x, n * 4).view(np.float32)
    memory.at(y, n * 4).view(np.float32)[...] = values * np.float32(scale)


def off_by_one(memory, grid, block, x, y, n, scale) -> None:
    scaled(memory, grid, block, x, y, n, scale)
    memory.at(y + 4 * (n - 1), 4).view(np.float32)[...] += 1


def read_buffer(memory, grid, block, words, count, sink) -> None:
    assert not memory.at(words, 16 * count).any()


@pytest.fixture
def runner(tmp_path, monkeypatch):
    """Makes a runner for a kernel function and options."""
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr(bench, "_COPY_BYTES", 1 << 16)
    monkeypatch.setattr(bench, "_FLUSH_LEAST", 1 << 16)
    monkeypatch.setattr(bench, "RUNS_MOST", 20)
    built = Built("cubin", b"", PtxasReport((), ()), "", False)
    for module in (kernel_run, bench):
        monkeypatch.setattr(module, "compile_cubin", lambda *a, **k: built)
    monkeypatch.setattr(kernel_run, "find_toolchain", lambda *a, **k: None)

    def make(function=scaled, source=SOURCE, **options):
        path = tmp_path / "a.tile"
        path.write_text(source)
        compiled = compile_front(str(path), archs=("sm_90",))
        (kernel,) = compiled.kernels
        n = Sym.of(kernel.plan.dims[0])
        arguments = (
            PointerArgument("x"),
            PointerArgument("y"),
            IntegerArgument("N", n),
            ScalarArgument("scale"),
        )
        step = Step((Launch("scaled", Always(), n, 64, arguments),))
        plan = replace(kernel.plan, targets=(TargetPlan("sm_90", (step,)),))
        compiled = replace(compiled, kernels=(replace(kernel, plan=plan),), cu=TEXT)
        driver = fake_driver({"scaled": function, "read_buffer": read_buffer})
        gpu = Gpu(driver, fake_device())
        request = RunRequest(file=str(path), **options)
        return KernelRunner(request, "a.tile", compiled, load(str(path)), gpu), compiled.kernels[0]

    return make


def test_verified_against_interpreter_and_check(runner) -> None:
    run, kernel = runner()
    (sizes,) = run.cases(kernel)
    outcome = run.run(kernel, sizes)
    assert (outcome.status, outcome.exit_code, outcome.nvcc_calls) == ("ok", 0, 1)
    assert outcome.sizes == "N=1000 scale=0.5"
    assert outcome.verified == (
        "interpreter, all 16 instances: 1000 elements, numerics bound",
        "check: 1000 elements, numerics bound",
    )
    assert outcome.peak_megabytes == pytest.approx(0.008)
    assert outcome.timings == ()


def test_what_is_launched_is_built_alone(runner, monkeypatch) -> None:
    """Once for all sizes; what only other addresses launch is built when they come."""
    texts: list[str] = []
    build = kernel_run.compile_cubin

    def noted(text, *arguments, **options):
        texts.append(text)
        return build(text, *arguments, **options)

    monkeypatch.setattr(kernel_run, "compile_cubin", noted)
    run, kernel = runner(settings=("N=1000",))
    assert run.run(kernel, run.cases(kernel)[0]).nvcc_calls == 1
    assert run.run(kernel, run.cases(kernel)[0]).nvcc_calls == 0
    assert [entry_names(text) for text in texts] == [("scaled",)]
    monkeypatch.setattr(kernel_run, "launched", lambda *a: ())
    run, kernel = runner(settings=("N=1000",))
    assert run.run(kernel, run.cases(kernel)[0]).nvcc_calls == 1
    assert [entry_names(text) for text in texts] == [("scaled",)] * 2


def test_what_must_come_out_is_computed_while_nvcc_runs(runner, monkeypatch) -> None:
    run, kernel = runner()
    computed = threading.Event()
    built, known = kernel_run.compile_cubin, kernel_run.interpreter_bounds

    def slow(*arguments, **options):
        assert computed.wait(30)
        return built(*arguments, **options)

    def bounds(case):
        found = known(case)
        computed.set()
        return found

    monkeypatch.setattr(kernel_run, "compile_cubin", slow)
    monkeypatch.setattr(kernel_run, "interpreter_bounds", bounds)
    assert run.run(kernel, run.cases(kernel)[0]).status == "ok"


TWO_CALLS = SOURCE.replace("    example cpu", "    example N = 2000, scale = 0.5\n    example cpu")


def _calls_of_the_interpreter(runner, monkeypatch) -> tuple[list[str], list[str]]:
    """Two calls of which the first waits for nvcc: the sizes that the interpreter computed by the time nvcc was done, and all."""
    run, kernel = runner(source=TWO_CALLS)
    computed: list[str] = []
    second = threading.Event()
    first: list[str] = []
    built, known = kernel_run.compile_cubin, kernel_run.interpreter_bounds

    def slow(*arguments, **options):
        second.wait(1)
        first.extend(computed)
        return built(*arguments, **options)

    def bounds(case):
        found = known(case)
        computed.append(str(case.sizes))
        if len(computed) == 2:
            second.set()
        return found

    monkeypatch.setattr(kernel_run, "compile_cubin", slow)
    monkeypatch.setattr(kernel_run, "interpreter_bounds", bounds)
    for sizes in run.cases(kernel):
        assert run.run(kernel, sizes).status == "ok"
    return first, computed


def test_the_next_call_is_prepared_while_nvcc_runs(runner, monkeypatch) -> None:
    checked: list[str] = []
    known = kernel_run.check_ahead

    def ahead(case):
        checked.append(str(case.sizes))
        return known(case)

    monkeypatch.setattr(kernel_run, "check_ahead", ahead)
    first, computed = _calls_of_the_interpreter(runner, monkeypatch)
    assert first == computed == checked == ["N=1000 scale=0.5", "N=2000 scale=0.5"]


def test_a_large_call_is_not_prepared_beside_another(runner, monkeypatch) -> None:
    monkeypatch.setattr(kernel_run, "MOST_AHEAD", 2000 * 8 - 1)
    first, computed = _calls_of_the_interpreter(runner, monkeypatch)
    assert first == computed[:1] and computed == ["N=1000 scale=0.5", "N=2000 scale=0.5"]


def test_a_text_that_nvcc_rejects_is_said(runner, monkeypatch) -> None:
    def rejects(*arguments, **options):
        raise TileError([Diagnostic("E7002", "nvcc rejects it", None)])

    run, kernel = runner()
    monkeypatch.setattr(kernel_run, "compile_cubin", rejects)
    with pytest.raises(TileError) as caught:
        run.run(kernel, run.cases(kernel)[0])
    assert caught.value.diagnostics[0].code == "E7002"


def test_one_wrong_element_is_enough(runner) -> None:
    run, kernel = runner(off_by_one)
    outcome = run.run(kernel, run.cases(kernel)[0])
    assert (outcome.status, outcome.exit_code) == ("failed", 4)
    assert len(outcome.details) == 2
    assert "1 of 1000 elements differ; the worst is [999]" in outcome.details[0]


def test_an_element_that_is_not_written_is_found(runner) -> None:
    def last_missing(memory, grid, block, x, y, n, scale) -> None:
        scaled(memory, grid, block, x, y, n - 1, scale)

    run, kernel = runner(last_missing)
    outcome = run.run(kernel, run.cases(kernel)[0])
    assert outcome.status == "failed"
    assert "nan" in outcome.details[0]


def test_timings_only_of_what_verified(runner) -> None:
    run, kernel = runner(bench=True)
    with run:
        outcome = run.run(kernel, run.cases(kernel)[0])
    assert [t.flush for t in outcome.timings] == ["read"]
    timing = outcome.timings[0]
    assert timing.runs == 20
    assert timing.gigabytes_per_second == pytest.approx(8000 / timing.median / 1e3)
    assert timing.teraflops == pytest.approx(1000 / timing.median / 1e6)
    assert timing.share is not None
    assert outcome.peak_megabytes == pytest.approx(0.008)
    assert run.gpu is not None and run.gpu.held_bytes == 0
    wrong, kernel = runner(off_by_one, bench=True)
    assert wrong.run(kernel, wrong.cases(kernel)[0]).timings == ()


def test_small_and_cpu_sizes(runner) -> None:
    run, kernel = runner(small=True)
    cases = run.cases(kernel)
    assert len(cases) == 20
    assert all(run.run(kernel, sizes).status == "ok" for sizes in cases)
    assert {c.scalars["scale"] for c in cases} == {0.5}
    run, kernel = runner(size="cpu")
    assert [str(c) for c in run.cases(kernel)] == ["N=100 scale=0.25"]


def test_nothing_to_verify_against_is_said(runner, monkeypatch) -> None:
    from tilec.source.diagnostics import fail

    def too_large(*arguments, **options):
        raise fail("E0906", "`scaled` is too large")

    monkeypatch.setattr("tilec.runtime.verify.select", too_large)
    without = "".join(line for line in SOURCE.splitlines(True) if "check" not in line)
    run, kernel = runner(source=without)
    with pytest.raises(TileError) as error:
        run.run(kernel, run.cases(kernel)[0])
    (diagnostic,) = error.value.diagnostics
    assert (diagnostic.code, diagnostic.notes) == ("E0925", ("`scaled` is too large",))


def test_without_pycuda_the_message_says_how_to_install_it(monkeypatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pycuda", None)
    with pytest.raises(TileError) as error:
        import_pycuda()
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == "E0811"
    assert "pip install 'tilec[gpu]'" in diagnostic.helps[0]
    assert error.value.exit_code == 3


def test_a_driver_without_devices(monkeypatch) -> None:
    driver = fake_driver({})
    driver.init = lambda: None
    driver.Device = SimpleNamespace(count=lambda: 0)
    monkeypatch.setattr("tilec.runtime.device.import_pycuda", lambda: driver)
    with pytest.raises(TileError) as error, open_gpu():
        pytest.fail("there is no device")
    assert error.value.diagnostics[0].code == "E0812"


def test_the_primary_context_is_pushed_and_popped(monkeypatch) -> None:
    steps: list[str] = []
    driver = fake_driver({})
    driver.init = lambda: steps.append("init")
    context = SimpleNamespace(push=lambda: steps.append("push"))
    device = SimpleNamespace(retain_primary_context=lambda: context, name=lambda: "Fake GPU")

    class Device:
        def __new__(cls, index):
            return device

        @staticmethod
        def count() -> int:
            return 1

    driver.Device = Device
    driver.Context.pop = lambda: steps.append("pop")
    monkeypatch.setattr("tilec.runtime.device.import_pycuda", lambda: driver)
    with open_gpu() as gpu:
        assert gpu.name == "Fake GPU"
    assert steps == ["init", "push", "pop"]
