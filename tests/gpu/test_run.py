"""`tilec run` on the GPU that is here: samples at their example and at ragged sizes, and faults that must be found."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tilec.jobs.running import RunRequest
from tilec.runtime.arguments import bind_sizes
from tilec.runtime.device import open_gpu
from tilec.runtime.gpu_run import prepare_call
from tilec.runtime.kernel_run import KernelRunner
from tilec.syntax.loading import load
from tilec.toolchain.driver import query_driver

ROOT = Path(__file__).resolve().parents[2]
COMPILED = ("vector_add.tile", "softmax.tile", "norms.tile")
"""Samples of which every kernel is compiled."""

pytestmark = pytest.mark.gpu


@pytest.fixture(autouse=True)
def gpu_here(request) -> None:
    """Skip where there is no device, saying what would have run."""
    driver = query_driver()
    if not driver.devices:
        pytest.skip(f"no GPU ({driver.problem}): would have run `{request.node.name}`")


def run(*arguments: str) -> tuple[int, dict, str]:
    """Exit status, the JSON results and standard error of a `tilec run`."""
    command = [sys.executable, "-m", "tilec", "run", *arguments, "--device", "gpu", "--json", "-"]
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, cwd=ROOT, timeout=900
    )
    return done.returncode, json.loads(done.stdout or "{}"), done.stderr


@pytest.mark.parametrize("sample", COMPILED)
def test_samples_at_their_example_size(sample: str) -> None:
    status, data, err = run(f"samples/{sample}")
    assert status == 0, err
    assert data["counts"]["ok"] == len(data["outcomes"]) > 0
    assert all(len(o["verified"]) == 2 for o in data["outcomes"])


@pytest.mark.parametrize("sample", COMPILED)
def test_samples_at_ragged_sizes(sample: str) -> None:
    status, data, err = run(f"samples/{sample}", "--small")
    assert status == 0, err
    kernels = {o["kernel"] for o in data["outcomes"]}
    for kernel in kernels:
        assert len({o["sizes"] for o in data["outcomes"] if o["kernel"] == kernel}) >= 20


def test_a_second_run_calls_no_nvcc() -> None:
    run("samples/vector_add.tile", "-s", "N=1000")
    _, data, _ = run("samples/vector_add.tile", "-s", "N=1000")
    assert [o["nvcc_calls"] for o in data["outcomes"]] == [0]


def test_times_and_ceilings() -> None:
    status, data, err = run("samples/vector_add.tile", "--bench")
    assert status == 0, err
    (outcome,) = data["outcomes"]
    for timing in outcome["timings"]:
        assert 0 < timing["p20"] <= timing["median"] <= timing["p80"]
        assert 0 < timing["share"] < 1.5


def test_addresses_off_by_one_element() -> None:
    from tilec.compiler import compile_file

    path = str(ROOT / "samples" / "vector_add.tile")
    size = 4099
    a, b = (np.random.default_rng(n).standard_normal(size, np.float32) for n in (1, 2))
    with open_gpu() as gpu:
        compiled = compile_file(path, archs=(gpu.arch,))
        runner = KernelRunner(RunRequest(file=path), path, compiled, load(path), gpu)
        module = gpu.load(runner.build().blob)
        plan = compiled.kernels[0].plan
        sizes = bind_sizes(plan, {"N": size})
        for offsets in ({"a": 1}, {"b": 1}, {"c": 1}, {"a": 1, "b": 2, "c": 3}):
            arrays = {"a": a, "b": b}
            with prepare_call(gpu, plan, module, sizes, arrays, offsets=offsets) as call:
                call.launch()
                call.finish()
                assert np.array_equal(call.results()["c"], a + b), offsets
                call.check_surroundings()
