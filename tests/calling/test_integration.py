"""tilec beside other libraries in one process: what importing and loading it brings along, PyTorch's operators."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import tilec
from tilec.calling import devices
from tilec.calling.launchers import build_c_launcher
from tilec.calling.torch_op import schema
from tilec.compiler import compile_file
from tilec.syntax import ast
from tilec.syntax.loading import load
from tilec.toolchain.build import find_toolchain
from tilec.toolchain.driver import Device, query_driver
from tilec.toolchain.host_compiler import find_host_compiler

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def python(script: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=True
    )
    return done.stdout.strip()


def test_importing_is_light() -> None:
    heavy = "{'numpy', 'lark', 'jinja2', 'pycuda', 'torch', 'click', 'ml_dtypes', 'ctypes'}"
    assert python(f"import sys, tilec; print(sorted({heavy} & set(sys.modules)))") == "[]"
    assert set(tilec.__all__) <= set(dir(tilec))
    for name in tilec.__all__:
        assert getattr(tilec, name) is not None
    with pytest.raises(AttributeError, match="no attribute `nothing`"):
        tilec.nothing  # noqa: B018


def test_importing_and_compiling_load_no_cuda_library() -> None:
    """A library of CUDA that comes along with an import decides for the whole process, or is not there at all."""
    script = (
        "import tilec\n"
        f"tilec.compile({str(SAMPLES / 'vector_add.tile')!r}, arch='sm_90').get_source()\n"
        "print([l for l in open('/proc/self/maps') if 'libcuda' in l or 'libnvrtc' in l])"
    )
    assert python(script) == "[]"


def test_a_driver_without_a_function_is_no_traceback(tmp_path: Path) -> None:
    source = tmp_path / "old.c"
    source.write_text("int cuDriverGetVersion(int* v) { *v = 11080; return 0; }\n")
    library = tmp_path / "libold.so"
    compiler = str(find_host_compiler(None).path)
    command = [compiler, "-xc", "-shared", "-fPIC", str(source), "-o", str(library)]
    subprocess.run(command, check=True)
    found = query_driver(str(library))
    assert found.devices == ()
    assert "no driver that tilec knows" in found.problem and "cuInit" in found.problem


def test_the_c_launcher_keeps_its_runtime_to_itself() -> None:
    """Its static CUDA runtime is nobody else's: no symbol of it is exported, no shared one is asked for."""
    compiled = compile_file(str(SAMPLES / "vector_add.tile"), archs=("sm_80",))
    path = build_c_launcher(compiled, ("sm_80",), find_toolchain()).path
    listed = subprocess.run(
        ["nm", "-D", "--defined-only", str(path)], capture_output=True, text=True, check=True
    ).stdout.split()
    exported = {word for word in listed[2::3] if not word.startswith("_ZN4dim3C")}
    names = {"vector_add", "vector_add_error", "vector_add_workspace_bytes"}
    assert exported == {*names, "host_packed_vector_add"}
    needed = subprocess.run(
        ["readelf", "-d", str(path)], capture_output=True, text=True, check=True
    ).stdout
    assert "libcuda" not in needed and "libc.so" in needed


def test_a_launcher_that_no_cache_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", "/dev/null")
    compiled = compile_file(str(SAMPLES / "vector_add.tile"), archs=("sm_80",))
    launcher = build_c_launcher(compiled, ("sm_80",), find_toolchain())
    path = launcher.path
    assert path.is_file()
    del launcher
    assert not path.exists()


def test_the_gpu_in_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(devices, "devices", lambda: (Device(0, "Fake", (9, 0), 132, 1 << 37),))
    assert tilec.cuda_available()
    assert tilec.gpu_name() == "Fake"
    assert tilec.compute_capability() == (9, 0)
    monkeypatch.setattr(devices, "devices", lambda: ())
    assert not tilec.cuda_available()
    with pytest.raises(tilec.TileError) as error:
        tilec.gpu_name()
    assert error.value.diagnostics[0].code == "E0812"


@pytest.mark.parametrize(
    ("file", "name", "text"),
    [
        ("gemm_bias_relu", "gemm_bias_relu", "(Tensor a, Tensor b, Tensor bias) -> Tensor"),
        ("attention", "attention", "(Tensor q, Tensor k, Tensor v, float scale) -> (Tensor, Tensor)"),
        ("norms", "rms_norm_residual", "(Tensor x, Tensor(a1!) residual, Tensor weight, float eps=1e-06) -> Tensor"),
        ("attention_variants", "packed", "(Tensor q, Tensor k, Tensor v, Tensor starts, int longest, float scale) -> Tensor"),
    ],
)  # fmt: skip
def test_the_signature_of_an_operator(file: str, name: str, text: str) -> None:
    """What `torch.compile` captures a kernel as; `tests/gpu` captures with PyTorch."""
    items = load(str(SAMPLES / f"{file}.tile")).main.items
    syntax = next(i for i in items if isinstance(i, ast.Kernel) and i.name == name)
    assert schema(syntax) == text
