"""The search for nvcc, in its order, and what is read out of the one found."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.toolchain.conftest import FakeNvcc, write_script
from tilec.source.diagnostics import TileError
from tilec.toolchain.cache import Cache
from tilec.toolchain.nvcc import find_cuobjdump, find_nvcc, runtime_link_flags

NOWHERE = "/nonexistent/cuda*/bin/nvcc"


def test_order_of_the_search(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    option = fake_nvcc("option", "13.1.1")
    variable = fake_nvcc("variable", "13.2.1")
    home = fake_nvcc("home", "13.3.1")
    cuda_path = fake_nvcc("cuda_path", "13.4.1")
    on_path = fake_nvcc("on_path", "13.5.1")
    fake_nvcc("local/cuda-9.2", "9.2.1")
    fake_nvcc("local/cuda-13.6", "13.6.1")
    fake_nvcc("site/nvidia/cu13", "13.7.1")
    environment = {
        "TILEC_NVCC": str(variable),
        "CUDA_HOME": str(home.parent.parent),
        "CUDA_PATH": str(cuda_path.parent.parent),
        "PATH": f"{on_path.parent}:/usr/bin:/bin",
    }
    pattern = str(tmp_path / "local/cuda*/bin/nvcc")
    site = [str(tmp_path / "site")]

    def search(named: str | None = None) -> tuple[str, str]:
        found = find_nvcc(named, environment=environment, system_pattern=pattern, python_path=site)
        return found.version_text, found.kind

    assert search(str(option)) == ("13.1", "option")
    assert search() == ("13.2", "environment")
    del environment["TILEC_NVCC"]
    assert search() == ("13.3", "environment")
    del environment["CUDA_HOME"]
    assert search() == ("13.4", "environment")
    del environment["CUDA_PATH"]
    assert search() == ("13.5", "system")
    environment["PATH"] = "/usr/bin:/bin"
    assert search() == ("13.6", "system")
    pattern = NOWHERE
    assert search() == ("13.7", "wheel")
    site = []
    with pytest.raises(TileError) as caught:
        search()
    (message,) = caught.value.diagnostics
    assert message.code == "E0801"
    assert caught.value.exit_code == 3
    assert "pip install 'tilec[nvcc]'" in message.helps[0]


def test_newest_wheel_first(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    fake_nvcc("site/nvidia/cu13", "13.0.1")
    fake_nvcc("site/nvidia/cu9", "9.0.1")
    found = find_nvcc(
        environment={"PATH": "/usr/bin:/bin"},
        system_pattern=NOWHERE,
        python_path=[str(tmp_path / "site")],
    )
    assert found.release == "13.0.1"


def test_named_nvcc_must_start(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    good = fake_nvcc("good")
    broken = write_script(tmp_path / "broken", "echo it is broken; exit 1")
    environment = {"PATH": f"{good.parent}:/usr/bin:/bin", "TILEC_NVCC": str(broken)}
    with pytest.raises(TileError) as caught:
        find_nvcc(environment=environment)
    assert caught.value.diagnostics[0].notes == ("it is broken",)
    with pytest.raises(TileError, match="named by `--nvcc`"):
        find_nvcc(str(tmp_path / "absent"), environment=environment)


def test_broken_nvcc_that_nobody_named_is_passed_over(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    broken = write_script(tmp_path / "first" / "nvcc", "exit 1")
    good = fake_nvcc("cuda-13.0")
    found = find_nvcc(
        environment={"PATH": f"{broken.parent}:/usr/bin:/bin"},
        system_pattern=str(tmp_path / "cuda*/bin/nvcc"),
        python_path=[],
    )
    assert found.path == good.resolve()


def test_wrapper_script_is_resolved(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    real = fake_nvcc("toolkit")
    wrapper = write_script(tmp_path / "bin" / "nvcc", f'exec {real} "$@"')
    environment = {"PATH": f"{wrapper.parent}:/usr/bin:/bin"}
    found = find_nvcc(environment=environment)
    assert found.path == found.program == real.resolve()
    assert found.include_dirs == ((tmp_path / "toolkit/include").resolve(),)
    assert found.library_dirs == ((tmp_path / "toolkit/lib").resolve(),)
    named = find_nvcc(str(wrapper), environment=environment)
    assert (named.path, named.program) == (wrapper, real.resolve())


def test_second_search_starts_no_nvcc(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    nvcc = fake_nvcc("toolkit")
    cache = Cache(tmp_path / "kept")
    first = find_nvcc(str(nvcc), cache=cache)
    calls = nvcc.with_name("calls").read_text()
    assert find_nvcc(str(nvcc), cache=cache) == first
    assert nvcc.with_name("calls").read_text() == calls
    fake_nvcc("toolkit", "13.12.88")
    assert find_nvcc(str(nvcc), cache=cache).release == "13.12.88"


def test_link_flags(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    nvcc = find_nvcc(str(fake_nvcc("toolkit")))
    lib = (tmp_path / "toolkit/lib").resolve()
    with pytest.raises(TileError) as caught:
        runtime_link_flags(nvcc)
    assert caught.value.diagnostics[0].code == "E0805"
    (lib / "libcudart.so.13").touch()
    assert runtime_link_flags(nvcc) == [f"-L{lib}", "-l:libcudart.so.13", f"-Wl,-rpath,{lib}"]
    (lib / "libcudart.so").touch()
    assert runtime_link_flags(nvcc) == [f"-L{lib}", "-lcudart", f"-Wl,-rpath,{lib}"]
    (lib / "libcudart_static.a").touch()
    assert runtime_link_flags(nvcc, static=True)[:2] == [f"-L{lib}", "-lcudart_static"]


def test_cuobjdump_beside_nvcc_else_on_the_path(tmp_path: Path, fake_nvcc: FakeNvcc) -> None:
    nvcc = find_nvcc(str(fake_nvcc("toolkit")))
    with pytest.raises(TileError) as caught:
        find_cuobjdump(nvcc, search=str(tmp_path))
    assert caught.value.diagnostics[0].code == "E0804"
    elsewhere = write_script(tmp_path / "cuobjdump", "exit 0")
    assert find_cuobjdump(nvcc, search=str(tmp_path)) == elsewhere
    beside = write_script(tmp_path / "toolkit/bin/cuobjdump", "exit 0")
    assert find_cuobjdump(nvcc, search=str(tmp_path)) == beside.resolve()
