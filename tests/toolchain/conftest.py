"""Stand-ins for the tools of the toolchain: small shell scripts in a folder of the test."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

FakeNvcc = Callable[..., Path]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))


def write_script(path: Path, body: str) -> Path:
    """An executable shell script."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"#!/bin/sh\n{body}\n")
    path.chmod(0o755)
    return path


@pytest.fixture
def fake_nvcc(tmp_path: Path) -> FakeNvcc:
    """Makes a toolkit whose nvcc answers `--version`, and `build` (shell text) to all else; logs its calls."""

    def make(
        root: str | Path, release: str = "13.0.88", build: str = "exit 0", newest_gcc: int = 99
    ) -> Path:
        home = tmp_path / root
        major, minor, _ = release.split(".")
        (home / "include" / "crt").mkdir(parents=True, exist_ok=True)
        (home / "lib").mkdir(exist_ok=True)
        (home / "include" / "crt" / "host_config.h").write_text(
            f"#error -- gcc versions later than {newest_gcc} are not supported!\n"
        )
        return write_script(
            home / "bin" / "nvcc",
            f"""here=$(dirname "$0")
echo "$@" >>"$here/calls"
case "$*" in
--version) echo 'Cuda compilation tools, release {major}.{minor}, V{release}';;
-dryrun*)
  echo "#\\$ _HERE_={home}/bin" >&2
  echo "#\\$ INCLUDES=\\"-I{home}/bin/../include\\"  " >&2
  echo "#\\$ LIBRARIES=  \\"-L{home}/lib/stubs\\" \\"-L{home}/lib\\"" >&2;;
*) {build};;
esac""",
        )

    return make
