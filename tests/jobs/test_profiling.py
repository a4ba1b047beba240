"""`tilec profile` without a GPU: what ptxas says, occupancy from it, estimates marked as such."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tilec.compiler import compile_file
from tilec.jobs.example_sizes import bound_sizes
from tilec.jobs.profiling import ProfileRequest, Usage, estimate, profile_file, usage
from tilec.runtime.arguments import CallSizes
from tilec.source.diagnostics import TileError
from tilec.toolchain import driver as driver_module
from tilec.toolchain import ncu
from tilec.toolchain.driver import Device, Driver
from tilec.toolchain.ptxas import KernelResources

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(driver_module, "query_driver", lambda: Driver(None, (), "no driver here"))


def profiled(capsys: pytest.CaptureFixture[str], file: str, *, as_json=True, **options):
    request = ProfileRequest(str(SAMPLES / file), as_json=as_json, **options)
    assert profile_file(request) == 0
    out = capsys.readouterr().out
    return json.loads(out) if as_json else out


def test_every_variant_has_a_row(no_gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    data = profiled(capsys, "softmax.tile", kernel="online_softmax", arch="sm_90")
    compiled = compile_file(
        str(SAMPLES / "softmax.tile"), kernel="online_softmax", archs=("sm_90",)
    )
    names = [v.name for v in compiled.kernels[0].lowered["sm_90"]]
    assert [k["kernel"] for k in data["kernels"]] == names
    for row in data["kernels"]:
        assert 0 < row["registers"] < 256
        assert row["spill_stores"] == row["spill_loads"] == row["stack_frame"] == 0
        assert 0 < row["occupancy"] <= 1
    (launch,) = data["launches"]
    assert launch["source"] == "estimated"
    assert launch["dram_bytes"] == 2 * 2 * 1024 * 262144
    assert launch["tensor_share"] is None
    assert data["notes"] == ["estimated, not measured: no driver here"]


def test_the_tables(no_gpu: None, capsys: pytest.CaptureFixture[str]) -> None:
    text = profiled(capsys, "vector_add.tile", as_json=False, arch="sm_90", settings=("N=1000",))
    assert text.startswith("sm_90\nkernel                 threads  registers  spills  shared")
    assert re.search(r"^vector_add_kernel +N=1000 +0.0 MB +– ", text, re.M)
    assert "estimated for H200" in text
    assert text.endswith("note: estimated, not measured: no driver here\n")


def test_dynamic_and_static_shared_memory_count_once() -> None:
    kernel = compile_file(str(SAMPLES / "attention.tile"), archs=("sm_90",)).kernel("attention")
    report = [
        KernelResources(v.name, "sm_90", 255, 0, 8, 16, 0, 1, 0) for v in kernel.lowered["sm_90"]
    ]
    first = usage(kernel, "sm_90", report)[0]
    assert first.shared_bytes == kernel.lowered["sm_90"][0].shared_bytes > 48 * 1024
    assert (first.spill_stores, first.spill_loads, first.ctas_per_sm) == (8, 16, 2)


def test_an_estimate_of_a_product() -> None:
    file, tiles = str(SAMPLES / "gemm.tile"), {"BM": "128", "BN": "128"}
    kernel = compile_file(file, kernel="gemm_nn", archs=("sm_90",), defines=tiles).kernels[0]
    name = kernel.lowered["sm_90"][0].name
    use = Usage(name, "sm_90", 128, 128, 0, 0, 0, 98304, 2, 0.125, "shared memory")
    wide = CallSizes({"M": 4096, "K": 4096, "N": 4096})
    (row,) = estimate(kernel, "sm_90", wide, [use])
    assert row.dram_bytes == 3 * 2 * 4096 * 4096
    assert row.tensor_share == 1.0
    assert row.achieved_occupancy == pytest.approx(0.125 * (1024 / 264) / 4)
    thin = CallSizes({"M": 128, "K": 4096, "N": 4096})
    (row,) = estimate(kernel, "sm_90", thin, [use])
    moved = 2 * (128 * 4096 * 2 + 4096 * 4096)
    assert row.tensor_share == pytest.approx((2 * 128 * 4096 * 4096 / 989e12) / (moved / 4800e9))


def test_what_ncu_counted_replaces_the_estimate(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    device = Device(0, "Fake GPU", (9, 0), 132, 1 << 37)
    monkeypatch.setattr(driver_module, "query_driver", lambda: Driver((13, 0), (device,), ""))
    monkeypatch.setattr(ncu, "find_ncu", lambda named: ncu.Ncu(Path("ncu"), "1"))
    counted = [ncu.Counted("vector_add_kernel", 200e6, None, 0.875)]
    monkeypatch.setattr(ncu, "measure", lambda *a: counted)
    data = profiled(capsys, "vector_add.tile")
    assert data["arch"] == "sm_90a", "that of the device"
    (launch,) = data["launches"]
    assert (launch["source"], launch["device"]) == ("ncu", "Fake GPU")
    assert (launch["dram_bytes"], launch["achieved_occupancy"]) == (200e6, 0.875)
    assert data["notes"] == []
    monkeypatch.setattr(ncu, "measure", lambda *a: "no permission")
    data = profiled(capsys, "vector_add.tile")
    assert data["launches"][0]["source"] == "estimated"
    assert data["notes"] == ["vector_add: ncu gave nothing: no permission"]


def test_sizes_that_are_missing(no_gpu: None, capsys, tmp_path: Path) -> None:
    path = tmp_path / "f.tile"
    path.write_text(
        "kernel f(a: f32[N]) -> c: f32[N]:\n    for i in parallel(N by 64):\n        c[i] = a[i]\n"
    )
    assert profile_file(ProfileRequest(str(path), arch="sm_80", as_json=True)) == 0
    data = json.loads(capsys.readouterr().out)
    assert data["launches"] == []
    assert data["notes"] == ["f: kernel `f` needs a value for `N`"]
    kernel = compile_file(str(path)).kernels[0]
    assert bound_sizes(str(path), kernel, {"N": "7", "K": "1"}).dims == {"N": 7}


def test_without_nvcc(no_gpu: None, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(TileError) as error:
        profile_file(ProfileRequest(str(SAMPLES / "vector_add.tile"), nvcc="/no/nvcc"))
    assert error.value.exit_code == 3


@pytest.mark.parametrize("broken", [False, True])
def test_a_named_ncu_that_does_not_start_is_refused(tmp_path: Path, broken: bool) -> None:
    tool = tmp_path / "ncu"
    if broken:
        tool.write_text("#!/bin/sh\nexit 1\n")
        tool.chmod(0o755)
    sample = str(SAMPLES / "vector_add.tile")
    with pytest.raises(TileError) as caught:
        profile_file(ProfileRequest(sample, ncu=str(tool)))
    (diagnostic,) = caught.value.diagnostics
    assert (diagnostic.code, caught.value.exit_code) == ("E0804", 3)
    assert str(tool) in diagnostic.message
