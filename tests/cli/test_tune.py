"""`tilec tune` and what uses its results, as commands without a GPU."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.tuning.conftest import program
from tilec.compiler import compile_file as whole_compiler
from tilec.tuning.measurer import Measurer
from tilec.tuning.protocol import Setup
from tilec.tuning.records import Best, Found, Subject, append, found_json
from tilec.tuning.subjects import program_hash

TUNED = program("tuned_kernel")


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from tilec.toolchain.driver import Driver

    monkeypatch.setenv("TILEC_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setattr(
        "tilec.toolchain.driver.query_driver", lambda: Driver(None, (), "no driver")
    )
    monkeypatch.setattr("tilec.compiler.compile_file", whole_compiler)
    (folder / "t.tile").write_text(TUNED)


def record(arch: str, choice: dict[str, object], size: int = 4000, gpu: str = "H200") -> None:
    """A finished search beside `t.tile`."""
    from tilec.compiler import analyse_file

    files, (item,), _ = analyse_file("t.tile")
    subject = Subject(
        "tuned_kernel",
        program_hash(files, item),
        {"N": size},
        {"N": size},
        {"x": "f32", "y": "f32"},
        gpu,
        arch,
        "13.0.88",
        "0.1.0",
    )
    append(Path("t.tile.tuning"), *found_json(Found(subject, {}, Best(choice, 1.0, 2.0))))


def tile_of(tilec: Command, *arguments: str) -> str:
    """The BN that a `compile` took."""
    status, out, err = tilec("compile", "t.tile", "--emit", "manifest", *arguments)
    assert status == 0, err
    (kernel,) = json.loads(out)["kernels"]
    return str(kernel["candidate"]["BN"])


def test_no_gpu_is_status_3(tilec: Command) -> None:
    status, out, err = tilec("tune", "t.tile")
    assert (status, out) == (3, "")
    assert "error[E0812]" in err


@pytest.mark.parametrize(
    ("arguments", "code", "status"),
    [
        (("a.tile",), "E0720", 2),
        (("a.tile", "scaled"), "E0720", 2),
        (("none.tile",), "E0703", 2),
        (("t.tile", "other"), "E0706", 2),
        (("t.tile", "-s", "N=8..2"), "E0716", 2),
        (("t.tile", "-D", "BQ=2"), "E0751", 2),
        (("t.tile", "--arch", "sm_1"), "E0707", 2),
        (("t.tile", "--device", "cpu", "--devices", "0"), "E0709", 2),
        (("t.tile", "--plot", "a.txt"), "E0709", 2),
    ],
)
def test_what_cannot_be_tuned(
    tilec: Command, arguments: tuple[str, ...], code: str, status: int
) -> None:
    found, out, err = tilec("tune", *arguments)
    assert (found, out) == (status, "")
    assert err.startswith(f"error[{code}]")


def test_compile_uses_what_fits_its_architecture(tilec: Command) -> None:
    assert tile_of(tilec, "--arch", "sm_90") == "256"
    record("sm_90", {"BN": 64})
    assert tile_of(tilec, "--arch", "sm_90") == "64"
    assert tile_of(tilec, "--arch", "sm_80") == "256"
    assert tile_of(tilec, "--arch", "sm_80", "--arch", "sm_90") == "256"
    assert tile_of(tilec, "--arch", "sm_90", "--no-tuned") == "256"
    assert tile_of(tilec, "--arch", "sm_90", "-D", "BN=32") == "32"


def test_compile_takes_the_key_of_the_example(tilec: Command) -> None:
    record("sm_90", {"BN": 64}, 100)
    record("sm_90", {"BN": 128}, 5000)
    record("sm_90", {"BN": 512}, 10**6)
    assert tile_of(tilec, "--arch", "sm_90") == "128"


def test_times_of_the_emulator_decide_nothing(tilec: Command) -> None:
    record("sm_80", {"BN": 64}, gpu="emulator")
    assert tile_of(tilec, "--arch", "sm_80") == "256"


def test_results_that_do_not_fit_any_more_are_left_out(tilec: Command) -> None:
    Path("t.tile").write_text(
        "kernel tuned_kernel[BM = 64, BN = 64](a: bf16[M, N], b: bf16[N, K]) -> c: bf16[M, K]:\n"
        "    tune BM in (64, 512), BN in (64, 512) key (N)\n"
        "    for i, j in parallel(M by BM, K by BN):\n"
        "        acc = zeros(f32, i, j)\n"
        "        for k in range(N by 32):\n"
        "            acc += a[i, k] @ b[k, j]\n"
        "        c[i, j] = acc\n"
        "    example M = 64, N = 4000, K = 64\n"
    )
    record("sm_90", {"BM": 512, "BN": 512})
    assert tile_of(tilec, "--arch", "sm_90") == "64"


def test_the_file_of_results_is_a_dependency(tilec: Command, folder: Path) -> None:
    record("sm_90", {"BN": 64})
    assert tilec("compile", "t.tile", "--arch", "sm_90", "-MD")[0] == 0
    assert "t.tile.tuning" in (folder / "t.d").read_text()
    first = (folder / "t.cu").read_bytes()
    assert tilec("compile", "t.tile", "--arch", "sm_90")[0] == 0
    assert (folder / "t.cu").read_bytes() == first


def test_a_range_of_sizes_is_a_table(tilec: Command) -> None:
    status, out, _ = tilec("run", "t.tile", "--device", "reference", "-s", "N=2**2..2**4")
    assert status == 0
    assert [line.split()[1] for line in out.splitlines()[1:4]] == ["N=4", "N=8", "N=16"]
    status, out, _ = tilec("run", "t.tile", "--device", "reference", "-s", "N=1,2", "--csv", "-")
    assert status == 0
    assert [line.split(",")[2] for line in out.splitlines()] == ["sizes", "N=1", "N=2"]


def test_pytorch_is_missed_before_anything_runs(
    tilec: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    status, out, err = tilec("run", "t.tile", "--bench", "--against", "torch")
    assert (status, out) == (3, "")
    assert err.startswith("error[E0815]: `--against torch` needs PyTorch, which is not installed")


def test_matplotlib_is_missed_before_anything_runs(
    tilec: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    status, _, err = tilec("run", "t.tile", "--bench", "--plot", "a.png")
    assert status == 3
    assert err.startswith("error[E0818]")


@pytest.mark.parametrize(
    "arguments",
    [
        ("--against", "torch"),
        ("--plot", "a.png"),
        ("--bench", "--plot", "a.txt"),
        ("--energy",),
        ("--tuned", "--no-tuned"),
    ],
)
def test_options_that_need_others(tilec: Command, arguments: tuple[str, ...]) -> None:
    status, _, err = tilec("run", "t.tile", *arguments)
    assert status == 2
    assert err.startswith("error[E0709]")


def test_a_measuring_process_that_does_not_start_is_a_message(
    tilec: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tilec.runtime.arguments import CallSizes
    from tilec.source.diagnostics import TileError

    monkeypatch.setattr(sys, "executable", "/bin/false")
    sizes = CallSizes({"N": 4})
    setup = Setup(
        "t.tile", "tuned_kernel", {}, sizes, 0, None, None, "cpu", "sm_80", None, str(tmp_path)
    )
    with Measurer(setup, 1.0) as measurer, pytest.raises(TileError) as caught:
        measurer.start()
    assert caught.value.diagnostics[0].code == "E0817"
