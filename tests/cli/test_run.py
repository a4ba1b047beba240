"""`tilec run` without a GPU and a host compiler: the interpreter verified against the check clause."""

from __future__ import annotations

import json
import sys

import numpy as np
import pytest


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch, folder):
    """Neither a driver nor an nvcc or a host compiler, and no cache of the user's."""
    from tilec.source.diagnostics import fail
    from tilec.toolchain.driver import Driver

    def missing(*arguments: object, **options: object) -> None:
        raise fail("E0801", "there is no nvcc")

    monkeypatch.setenv("TILEC_CACHE_DIR", "off")
    monkeypatch.setitem(sys.modules, "pycuda", None)
    monkeypatch.setattr(
        "tilec.toolchain.driver.query_driver", lambda: Driver(None, (), "no driver")
    )
    monkeypatch.setattr("tilec.runtime.kernel_run.find_toolchain", missing)

    def no_compiler() -> None:
        raise fail("E0802", "there is no host C++ compiler")

    monkeypatch.setattr("tilec.emulator.build.host_toolchain", no_compiler)


def test_all_kernels_at_their_cpu_sizes(tilec) -> None:
    status, out, err = tilec("run", "a.tile")
    assert (status, err) == (
        0,
        "note: no GPU (no driver); there is no host C++ compiler: the interpreter runs, "
        "at `example cpu` sizes\n",
    )
    lines = out.splitlines()
    assert lines[1].split() == [
        "scaled",
        "N=100",
        "scale=0.5",
        "interpreter",
        "ok",
        "check:",
        "100",
        "elements,",
        "numerics",
        "bound",
    ]
    assert lines[2].split() == [
        "copied",
        "N=33",
        "interpreter",
        "ok",
        "check:",
        "33",
        "elements,",
        "numerics",
        "bound",
    ]
    assert "scaled, copied: compiled, not built: there is no nvcc" in lines
    assert lines[-1] == "2 ok"


def test_one_kernel_at_given_sizes(tilec) -> None:
    status, out, _ = tilec("run", "a.tile", "scaled", "-s", "N=8", "-s", "scale=2")
    assert status == 0
    assert out.splitlines()[1].split()[:3] == ["scaled", "N=8", "scale=2"]


def test_a_result_that_differs_is_status_4(tilec, folder) -> None:
    text = (folder / "a.tile").read_text().replace("check y == x\n", "check y == x + 1.0\n")
    (folder / "a.tile").write_text(text)
    status, out, err = tilec("run", "a.tile")
    assert status == 4
    assert (
        "error[E0901]: `copied` at N=33 computed on interpreter differs from its reference" in err
    )
    assert "33 of 33 elements differ" in err
    assert out.splitlines()[-1] == "1 ok, 1 failed"


def test_tolerances_replace_the_bound_and_are_printed(tilec, folder) -> None:
    text = (folder / "a.tile").read_text().replace("check y == x\n", "check y == x + 0.5\n")
    (folder / "a.tile").write_text(text)
    assert tilec("run", "a.tile", "copied", "--device", "reference")[0] == 4
    status, out, _ = tilec("run", "a.tile", "copied", "--device", "reference", "--atol", "0.6")
    assert status == 0
    assert "check: 33 elements, rtol 0, atol 0.6" in out


def test_small_runs_twenty_ragged_size_sets(tilec) -> None:
    status, out, _ = tilec("run", "a.tile", "--small")
    assert status == 0
    assert out.splitlines()[-1] == "40 ok"
    scaled = [line.split()[1] for line in out.splitlines() if line.startswith("scaled")]
    assert len(set(scaled)) >= 20
    assert all(int(s.removeprefix("N=")) % 4 == 0 for s in scaled if s.startswith("N="))


def test_every_file_of_the_folder(tilec, folder) -> None:
    (folder / "b.tile").write_text("kernel broken(\n")
    status, out, err = tilec("run")
    assert status == 1
    assert "b.tile" in err
    assert out.splitlines()[-1] == "2 ok"


def test_a_folder_without_programs(tilec, folder) -> None:
    for name in ("a.tile", "parts.tile"):
        (folder / name).unlink()
    status, _, err = tilec("run")
    assert (status, err.splitlines()[0]) == (
        2,
        "error[E0717]: the current folder has no `.tile` file",
    )


def test_json_and_arrays_are_kept(tilec, folder) -> None:
    status, _, _ = tilec(
        "run", "a.tile", "scaled", "--seed", "7", "--save", "kept", "--json", "r.json"
    )
    assert status == 0
    data = json.loads((folder / "r.json").read_text())
    assert (data["seed"], data["device"], data["counts"]) == (
        7,
        "reference",
        {"ok": 1, "built": 0, "failed": 0},
    )
    assert data["outcomes"][0]["values"] == {"N": 100, "scale": 0.5}
    x, y = (np.load(folder / "kept" / "scaled" / f"{n}.npy") for n in "xy")
    assert np.array_equal(y, x + x) is False
    assert np.array_equal(y, (x + x) * np.float32(0.5))
    status, out, _ = tilec("run", "a.tile", "scaled", "--json", "-")
    assert json.loads(out)["counts"]["ok"] == 1


def test_arrays_from_files_give_the_sizes(tilec, folder) -> None:
    np.save(folder / "x.npy", np.ones(12, np.float32))
    status, out, _ = tilec(
        "run", "a.tile", "scaled", "--input", "x=x.npy", "-s", "scale=3", "--save", "kept"
    )
    assert status == 0
    assert "N=12 scale=3" in out
    assert (np.load(folder / "kept" / "scaled" / "y.npy") == 6).all()


def test_a_reference_function(tilec, folder) -> None:
    (folder / "mine.py").write_text(
        "def twice(x, scale):\n    return 2 * x * scale\n\ndef bad(x, scale):\n    return x\n"
    )
    status, out, _ = tilec("run", "a.tile", "scaled", "--reference", "mine:twice")
    assert status == 0
    assert "twice: 100 elements" in out
    assert tilec("run", "a.tile", "copied", "-s", "N=3", "--reference", "mine:twice")[0] == 2


@pytest.mark.parametrize(
    ("arguments", "status", "code"),
    [
        (("--device", "cpu"), 3, "E0802"),
        (("--device", "gpu"), 3, "E081"),
        (("--bench",), 3, "E0812"),
        (("--device", "tpu"), 2, "E0701"),
        (("-s", "M=3"), 2, "E0712"),
        (("-s", "BN=3"), 2, "E0712"),
        (("-s", "N=three"), 2, "E0712"),
        (("-s", "N"), 2, "E0705"),
        (("-s", "N=7"), 2, "E0713"),
        (("--small", "--size", "cpu"), 2, "E0709"),
        (("--small", "--bench"), 2, "E0709"),
        (("--small", "--input", "x=x.npy"), 2, "E0709"),
        (("--input", "x=missing.npy"), 2, "E0714"),
        (("--input", "x=a.tile"), 2, "E0714"),
        (("--input", "q=a.tile"), 2, "E0714"),
        (("--reference", "nothing"), 2, "E0718"),
        (("--reference", "no_such_module:f"), 2, "E0718"),
        (("--arch", "sm_1"), 2, "E0707"),
        (("--json", "gone/r.json"), 2, "E0704"),
    ],
)
def test_command_lines_that_are_wrong(tilec, arguments, status, code) -> None:
    got, _, err = tilec("run", "a.tile", "scaled", *arguments)
    assert got == status
    assert f"error[{code}" in err
    assert "Traceback" not in err


def test_a_kernel_without_sizes_names_them(tilec, folder) -> None:
    (folder / "c.tile").write_text(
        "kernel f(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 4):\n        y[i] = x[i]\n"
    )
    status, _, err = tilec("run", "c.tile", "--size", "example")
    assert status == 2
    assert "error[E0711]: kernel `f` needs a value for `N`" in err


def test_a_kernel_without_a_check_is_built_only(tilec, folder) -> None:
    (folder / "c.tile").write_text(
        "kernel f(x: f32[N]) -> y: f32[N]:\n    for i in parallel(N by 4):\n        y[i] = x[i]\n"
    )
    status, out, _ = tilec("run", "c.tile")
    assert status == 0
    assert out.splitlines()[-1] == "1 built"
    assert "no check clause" in out


def refusing(names: tuple[str, ...]):
    """The front half, which refuses to compile kernels of these names beyond Tile IR."""
    from tests.jobs.front_half import compile_front
    from tilec.source.diagnostics import fail

    def compile_some(path: str, *, kernel: str | None = None, stop: str = "cu", **options):
        compiled = compile_front(path, kernel=kernel, **options)
        if stop == "cu" and any(k.name in names for k in compiled.kernels):
            raise fail("E0650", "this cannot be compiled yet")
        return compiled

    return compile_some


def test_a_kernel_that_cannot_be_compiled_leaves_the_others(tilec, monkeypatch) -> None:
    monkeypatch.setattr("tilec.compiler.compile_file", refusing(("scaled",)), raising=False)
    status, out, err = tilec("run", "a.tile")
    assert status == 1
    assert err.count("error[E0650]") == 1
    assert "scaled: interpreted, not compiled" in out
    assert "copied: compiled, not built: there is no nvcc" in out
    status, out, err = tilec("run", "a.tile", "scaled")
    assert (status, err.count("error[E0650]")) == (1, 1)


def test_the_reference_device_compiles_nothing(tilec, monkeypatch) -> None:
    monkeypatch.setattr(
        "tilec.compiler.compile_file", refusing(("scaled", "copied")), raising=False
    )
    status, out, err = tilec("run", "a.tile", "--device", "reference")
    assert (status, err) == (0, "")
    assert "scaled, copied: interpreted, not compiled" in out


def test_a_fault_in_one_kernel_leaves_the_others(tilec, monkeypatch, folder) -> None:
    from tilec.runtime import kernel_run

    interpreted = kernel_run.interpreted

    def faulty(case, outputs) -> None:
        if case.kernel.name == "scaled":
            raise ValueError("axes do not match")
        interpreted(case, outputs)

    monkeypatch.setenv("TILEC_CACHE_DIR", str(folder / "cache"))
    monkeypatch.setattr(kernel_run, "interpreted", faulty)
    status, out, err = tilec("run", "a.tile")
    assert status == 70
    assert "error[E7001]: tilec failed while running `scaled` of `a.tile` at N=100 scale=0.5" in err
    assert out.splitlines()[-1] == "1 ok, 1 failed"
