"""`tilec tune` and `--against torch` on the GPU that is here."""

from __future__ import annotations

import importlib.util
import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from tilec.jobs.tuning import TuneRequest, run_tune
from tilec.toolchain.driver import query_driver
from tilec.tuning.records import Found, read_file

ROOT = Path(__file__).resolve().parents[2]

pytestmark = pytest.mark.gpu

GEMM = """\
kernel {name}[BM = auto, BN = auto, BK = auto](a: bf16[M, K], b: bf16[K, N]) -> c: bf16[M, N]:
    tune BM in (32, 64, 128), BN in (64, 128) key (M, N, K)
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
    check c == a @ b
    example M = 512, N = 512, K = 512
"""
PLANTED = {
    (32, 64): "for (;;) __nanosleep(1000);",
    (32, 128): "if (blockDim.x > 0) return;",
    (64, 64): "*reinterpret_cast<volatile int*>(8) = 1;",
}


@pytest.fixture(autouse=True)
def gpu_here(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Skip where there is no device, saying what would have run."""
    driver = query_driver()
    if not driver.devices:
        pytest.skip(f"no GPU ({driver.problem}): would have run `{request.node.name}`")
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)


def found() -> Found:
    (one,) = read_file(Path("g.tile.tuning")).values()
    return one


def tilec(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A command."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    return subprocess.run(
        [sys.executable, "-m", "tilec", *arguments],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
        env={**os.environ, "PYTHONPATH": path},
    )


def test_planted_faults_cost_their_candidates_only() -> None:
    Path("g.tile").write_text(GEMM.format(name="planted"))

    def alter(choice: Mapping[str, Any], cu: str) -> str:
        fault = PLANTED.get((choice.get("BM", 0), choice.get("BN", 0)))
        return re.sub(r"(_body(?:_\d+)?\([^{;]*\) \{\n)", rf"\1  {fault}\n", cu) if fault else cu

    assert run_tune(TuneRequest("g.tile", limit=8.0), alter=alter) == 0
    statuses = {n: t.status for n, t in found().trials.items()}
    assert statuses["BM=32 BN=64"] == "hang"
    assert statuses["BM=32 BN=128"] == "wrong"
    assert statuses["BM=64 BN=64"] == "fault"
    assert [s for s in statuses.values() if s == "ok"] == ["ok"] * (len(statuses) - 3)


@pytest.mark.measured
def test_a_tuned_shape_calls_no_nvcc_and_is_used() -> None:
    Path("g.tile").write_text(GEMM.format(name="used"))
    first = tilec("tune", "g.tile")
    assert first.returncode == 0, first.stderr
    start = time.monotonic()
    second = tilec("tune", "g.tile")
    assert time.monotonic() - start < 2.0
    assert second.stdout == first.stdout
    assert "no nvcc call" in second.stderr
    best = found().best
    assert best is not None
    run = tilec("run", "g.tile", "--json", "-")
    assert run.returncode == 0, run.stderr
    (outcome,) = json.loads(run.stdout)["outcomes"]
    assert any(d.startswith("tuned: ") for d in outcome["details"]) == bool(best.choice)
    assert outcome["nvcc_calls"] == 0


@pytest.mark.parametrize(
    ("sample", "kernel", "tolerances"),
    [
        ("gemm.tile", "gemm_nn", ()),
        ("gemm_bias_gelu.tile", "gemm_bias_gelu", ()),
        ("vector_add.tile", "vector_add", ()),
        # PyTorch rounds to bf16 after each operation, also in an exponent
        ("softmax.tile", "softmax", ("--rtol", "0.1", "--atol", "0.01")),
        ("attention.tile", "attention", ("--rtol", "0.1", "--atol", "0.1")),
    ],
)
def test_against_pytorch(
    request: Any, sample: str, kernel: str, tolerances: tuple[str, ...]
) -> None:
    if importlib.util.find_spec("torch") is None:
        pytest.skip(f"no PyTorch: would have run `{request.node.name}`")
    path = str(ROOT / "samples" / sample)
    done = tilec("run", path, kernel, "--bench", "--against", "torch", "--json", "-", *tolerances)
    assert done.returncode == 0, done.stderr
    for outcome in json.loads(done.stdout)["outcomes"]:
        compared = outcome["comparison"]
        assert compared["ours"]["median"] > 0 and compared["theirs"]["median"] > 0
        assert compared["their_peak_megabytes"] > 0
        assert compared["mode"] == "graph"
        assert compared["allclose"], compared["within"]
