"""Several tuned variants in one file, a guided search, and joules, on the GPU that is here."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cpp.test_drop_in import STRICT, run
from tests.gpu.test_tune import GEMM, tilec
from tilec.compiler import analyse_file, compile_file
from tilec.ir.selection import Point
from tilec.plan.candidate import Dispatch
from tilec.runtime.launching import architecture_for
from tilec.toolchain.build import compile_object, find_toolchain
from tilec.toolchain.driver import query_driver
from tilec.toolchain.nvcc import runtime_link_flags
from tilec.tuning.records import (
    Best,
    Found,
    Subject,
    Trial,
    append,
    choice_name,
    found_json,
    read_file,
)
from tilec.tuning.subjects import program_hash

pytestmark = pytest.mark.gpu

CHOICES: dict[tuple[int, ...], dict[str, Any]] = {
    (128, 128, 128): {"BM": 64, "BN": 64},
    (2048, 2048, 2048): {"BM": 128, "BN": 64},
}


@pytest.fixture(autouse=True)
def arch(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The device's architecture. Skip where there is none, saying what would have run."""
    driver = query_driver()
    if not driver.devices:
        pytest.skip(f"no GPU ({driver.problem}): would have run `{request.node.name}`")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    return architecture_for(driver.devices[0].compute_capability)


def record(name: str, arch: str) -> None:
    """`g.tile` with the best candidates of CHOICES beside it."""
    Path("g.tile").write_text(GEMM.format(name=name))
    files, (item,), _ = analyse_file("g.tile")
    for sizes, choice in CHOICES.items():
        key = dict(zip(("M", "K", "N"), sizes, strict=True))
        hashed = program_hash(files, item)
        subject = Subject(name, hashed, key, key, {}, "a GPU", arch, "", "")
        trials = {choice_name(c): Trial(c, "ok", us) for c, us in (({}, 2.0), (choice, 1.0))}
        append(Path("g.tile.tuning"), *found_json(Found(subject, trials, Best(choice, 1.0, 2.0))))


def test_each_size_reaches_its_variant_and_verifies(arch: str) -> None:
    record("selected", arch)
    sizes = {
        128: "BM=64 BN=64",
        100: "BM=64 BN=64",
        2048: "BM=128 BN=64",
        1999: "BM=128 BN=64",
        7: "",
    }
    named = ",".join(map(str, sizes))
    more = [w for n in "MNK" for w in ("-s", f"{n}={named}")]
    done = tilec("run", "g.tile", "--tuned", "--json", "-", *more)
    assert done.returncode == 0, done.stderr + done.stdout
    outcomes = json.loads(done.stdout)["outcomes"]
    assert len(outcomes) == len(sizes)
    for outcome, label in zip(outcomes, sizes.values(), strict=True):
        assert outcome["status"] == "ok"
        wanted = f": {label}" if label else "the general variant"
        assert any(d.endswith(wanted) for d in outcome["details"]), outcome["details"]
    assert tilec("run", "g.tile", "--tuned", "--small").returncode == 0


MAIN = r"""
#include "add.h"
#include <cuda_runtime.h>
#include <cstdio>
#include <vector>

int main() {
  for (int n : {1, 97, 100, 1000, 9001, 9000, 70000}) {
    const size_t count = static_cast<size_t>(n);
    std::vector<float> a(count), b(count), c(count + 1, -1.0f);
    for (size_t i = 0; i < count; ++i) { a[i] = static_cast<float>(i); b[i] = 2.0f * static_cast<float>(i); }
    float *x, *y, *z;
    cudaMalloc(&x, 4 * count); cudaMalloc(&y, 4 * count); cudaMalloc(&z, 4 * count + 4);
    cudaMemcpy(x, a.data(), 4 * count, cudaMemcpyHostToDevice);
    cudaMemcpy(y, b.data(), 4 * count, cudaMemcpyHostToDevice);
    cudaMemcpy(z, c.data(), 4 * count + 4, cudaMemcpyHostToDevice);
    if (add(x, y, z, n, nullptr, nullptr) != cudaSuccess) { std::printf("%s\n", add_error()); return 1; }
    cudaMemcpy(c.data(), z, 4 * count + 4, cudaMemcpyDeviceToHost);
    for (size_t i = 0; i < count; ++i) if (c[i] != 3.0f * static_cast<float>(i)) { std::printf("%zu of %d\n", i, n); return 2; }
    if (c[count] != -1.0f) return 3;
    if (add(x, y, x, n, nullptr, nullptr) == cudaSuccess) return 4;
    std::printf("%s\n", add_error());
    cudaFree(x); cudaFree(y); cudaFree(z);
  }
}
"""


@pytest.mark.parametrize("split", [False, True], ids=["one file", "a file a variant"])
def test_a_program_calls_what_is_selected(arch: str, split: bool, tmp_path: Path) -> None:
    (tmp_path / "add.tile").write_text(
        "kernel add[BN = 1024](x: f32[N], y: f32[N]) -> z: f32[N]:\n"
        "    for i in parallel(N by BN):\n"
        "        z[i] = x[i] + y[i]\n"
    )
    points = {arch: (Point((100,), 1), Point((1000,), 0), Point((9000,), 2))}
    wanted = Dispatch(("N",), ({"BN": 64}, {"BN": 512}), ("BN=64", "BN=512"), points)
    compiled = compile_file(
        str(tmp_path / "add.tile"), archs=(arch,), dispatches={"add": wanted}, split=split
    )
    (tmp_path / "add.h").write_text(compiled.header)
    toolchain = find_toolchain()
    objects = []
    for name, cu in {"add": compiled.cu, **compiled.parts}.items():
        objects.append(tmp_path / f"{name}.o")
        built = compile_object(cu, [arch], toolchain=toolchain, options=["-Werror", "all-warnings"])
        objects[-1].write_bytes(built.blob)
    (tmp_path / "main.cpp").write_text(MAIN)
    include = [f"-isystem{d}" for d in toolchain.nvcc.include_dirs]
    link = runtime_link_flags(toolchain.nvcc, static=False)
    command = [toolchain.host.path, "-std=c++17", *STRICT, *include, "main.cpp", *objects, *link]
    run([*command, "-o", "program"], tmp_path)
    shown = run([tmp_path / "program"], tmp_path)
    assert shown.splitlines() == ["z overlaps x"] * 7


def test_a_guided_search_is_raced_and_kept() -> None:
    Path("g.tile").write_text(GEMM.format(name="guided"))
    done = tilec("tune", "g.tile", "--search", "guided", "--trials", "4")
    assert done.returncode == 0, done.stderr
    (found,) = read_file(Path("g.tile.tuning")).values()
    assert found.best is not None
    assert found.best.search == "guided"
    measured = [t for t in found.trials.values() if t.status not in ("rejected", "refused")]
    assert len(measured) == 4
    again = tilec("tune", "g.tile", "--search", "guided", "--trials", "4")
    assert "no nvcc call" in again.stderr
    assert again.stdout == done.stdout


@pytest.mark.measured
def test_joules_of_a_call(request: Any) -> None:
    if importlib.util.find_spec("pynvml") is None:
        pytest.skip(f"no nvidia-ml-py: would have run `{request.node.name}`")
    Path("g.tile").write_text(GEMM.format(name="joules"))
    more = ("-s", "M=4096", "-s", "N=4096", "-s", "K=4096")
    done = tilec("run", "g.tile", "--bench", "--energy", "--json", "-", *more)
    if done.returncode == 3 and "E0820" in done.stderr:
        assert re.search(r"NVML: \S+", done.stderr)
        return
    assert done.returncode == 0, done.stderr
    (outcome,) = json.loads(done.stdout)["outcomes"]
    watts, joules = (outcome["energy"]["tilec"][n] for n in ("watts", "joules"))
    assert 50 < watts < 1500
    # calls back to back take about as long as single ones
    seconds = outcome["timings"][0]["median"] * 1e-6
    assert joules == pytest.approx(watts * seconds, rel=0.5)


def test_an_architecture_besides_the_device_s_own(arch: str) -> None:
    if not arch.endswith("a"):
        pytest.skip(f"{arch} has no plain form: would have tuned for one")
    Path("g.tile").write_text(GEMM.format(name="plain"))
    done = tilec("tune", "g.tile", "--arch", arch.rstrip("a"), "--trials", "3")
    assert done.returncode == 0, done.stderr
    (found,) = read_file(Path("g.tile.tuning")).values()
    assert found.subject.arch == arch.rstrip("a")
    told: subprocess.CompletedProcess[str] = tilec("run", "g.tile")
    assert told.returncode == 0
    assert "W0604" in told.stderr
    assert "W0604" not in tilec("run", "g.tile", "--arch", arch.rstrip("a")).stderr
