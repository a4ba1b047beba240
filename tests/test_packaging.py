"""The resources are found from a bare checkout, an editable install and an installed wheel; the make targets exist."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import venv
import zipfile
from pathlib import Path

import pytest

import tilec
from tilec import packaging, resources

ROOT = Path(__file__).resolve().parents[1]
ASK = """
import sys
from tilec.resources import resource_path, resource_text
for kind, name in (("grammar", "tile.lark"), ("templates", "probe.jinja"), ("std", "probe.tile")):
    text = resource_text(kind, name)
    assert text, name
    print(resource_path(kind, name))
"""


def test_tables_are_built_with_what_the_build_was_given(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """pip installs what a build needs apart, and says where by PYTHONPATH: `pip install .` into an empty environment has lark there
    alone."""
    given = str(tmp_path / "given")
    ran: list[dict[str, str]] = []
    monkeypatch.setattr(packaging.subprocess, "run", lambda *_, env, **__: ran.append(env))
    monkeypatch.setenv("PYTHONPATH", given)
    packaging.build_tables(tmp_path)
    monkeypatch.delenv("PYTHONPATH")
    packaging.build_tables(tmp_path)
    paths = [env["PYTHONPATH"] for env in ran]
    assert paths == [os.pathsep.join((str(tmp_path.resolve()), given)), str(tmp_path.resolve())]


@pytest.fixture(scope="module")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A copy of what the build needs, with one more file in each collection."""
    root = tmp_path_factory.mktemp("checkout")
    ignore = shutil.ignore_patterns("__pycache__", "*.tables")
    for folder in ("tilec", "grammar", "templates"):
        if (ROOT / folder).is_dir():
            shutil.copytree(ROOT / folder, root / folder, ignore=ignore)
    for file in ("setup.cfg", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE"):
        shutil.copy(ROOT / file, root / file)
    for name in ("templates/probe.jinja", "templates/device/probe.cuh", "tilec/std/probe.tile"):
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text("probe\n")
    return root


def ask(python: str | Path, cwd: str | Path, path: Path | None = None) -> list[Path]:
    """Where a Python started in `cwd`, with `path` as PYTHONPATH, finds the three files."""
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    if path:
        variables["PYTHONPATH"] = str(path)
    done = subprocess.run(
        [str(python), "-c", ASK],
        cwd=cwd,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return [Path(line) for line in done.stdout.split()]


def environment(folder: Path) -> Path:
    """A virtual environment that sees the packages of this one, so that nothing is downloaded."""
    venv.create(folder, with_pip=False)
    (site,) = folder.glob("lib/python*/site-packages")
    # Plain folders on the path, whose own `.pth` files (an editable tilec) do not act.
    seen = [p for p in sys.path if p.endswith("site-packages")]
    (site / "outer.pth").write_text("\n".join(seen) + "\n")
    return folder / "bin" / "python"


def pip(python: Path, *arguments: str, cwd: Path) -> None:
    """pip of this environment, run by another one's Python."""
    command = [str(python), "-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation"]
    command += ["--no-index", "--ignore-installed", "--disable-pip-version-check", *arguments]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_bare_checkout(checkout: Path) -> None:
    expected = [
        checkout / "grammar/tile.lark",
        checkout / "templates/probe.jinja",
        checkout / "tilec/std/probe.tile",
    ]
    assert ask(sys.executable, checkout) == expected
    assert ask(sys.executable, "/", checkout) == expected


def test_editable_install(checkout: Path, tmp_path: Path) -> None:
    python = environment(tmp_path / "venv")
    pip(python, "-e", str(checkout), cwd=tmp_path)
    found = ask(python, "/")
    assert found[0] == checkout / "grammar/tile.lark"
    assert found[2] == checkout / "tilec/std/probe.tile"


def test_wheel(checkout: Path, tmp_path: Path) -> None:
    source = tmp_path / "source"
    shutil.copytree(checkout, source)
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path)]
    done = subprocess.run(
        [*build, str(source)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = tmp_path.glob("tilec-*.whl")
    assert wheel.name.split("-")[1] == tilec.__version__
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        entry = next(n for n in names if n.endswith("entry_points.txt"))
        assert "tilec = tilec.cli:main" in archive.read(entry).decode()
    packages = {p.parent.relative_to(ROOT).as_posix() for p in ROOT.glob("tilec/**/__init__.py")}
    data = ("tilec/grammar/", "tilec/templates/")
    modules = {n for n in names if n.endswith("/__init__.py") and not n.startswith(data)}
    assert modules == {f"{p}/__init__.py" for p in packages}
    assert "tilec/templates/device/probe.cuh" in names
    assert "tilec/templates/cmake/TilecConfig.cmake" in names
    assert "tilec/templates/cmake/TilecConfigVersion.cmake" in names
    assert [n for n in names if n.startswith("tilec/grammar/") and n.endswith(".tables")]
    assert any(n.endswith("LICENSE") for n in names)
    shutil.rmtree(source)
    python = environment(tmp_path / "venv")
    pip(python, str(wheel), cwd=tmp_path)
    installed = (tmp_path / "venv").resolve()
    assert all(path.is_relative_to(installed) for path in ask(python, "/"))
    found_by_cmake(installed, tmp_path)


def found_by_cmake(installed: Path, tmp_path: Path) -> None:
    """The installed package's own program, although another `tilec` is first on PATH."""
    cmake = shutil.which("cmake")
    if cmake is None:
        return
    (tmp_path / "other").mkdir()
    other = tmp_path / "other" / "tilec"
    other.write_text("#!/bin/sh\nexit 1\n")
    other.chmod(0o755)
    variables = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    variables["PATH"] = f"{other.parent}:{variables['PATH']}"
    program = installed / "bin" / "tilec"
    asked = subprocess.run(
        [str(program), "--cmake-dir"], capture_output=True, text=True, check=True, env=variables
    )
    folder = Path(asked.stdout.strip())
    assert folder.is_relative_to(installed)
    text = "cmake_minimum_required(VERSION 3.21)\nproject(p NONE)\nfind_package(Tilec REQUIRED)\n"
    (tmp_path / "CMakeLists.txt").write_text(text + 'message(STATUS "<${Tilec_EXECUTABLE}>")\n')
    done = subprocess.run(
        [cmake, "-B", "found", f"-DTilec_DIR={folder}", "."],
        cwd=tmp_path,
        env=variables,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (found,) = re.findall(r"<(.*)>", done.stdout)
    assert Path(found).resolve() == program.resolve()


def test_absent_resources_are_named() -> None:
    with pytest.raises(FileNotFoundError, match=r"std/absent\.tile"):
        resources.resource_text("std", "absent.tile")
    with pytest.raises(FileNotFoundError, match="leads out"):
        resources.resource_path("std", "../__init__.py")


def test_make_targets() -> None:
    makefile = (ROOT / "Makefile").read_text()
    (phony,) = re.findall(r"^\.PHONY: (.*)$", makefile, re.MULTILINE)
    wanted = ["demo", "test", "samples", "check", "bench", "lint"]
    wanted += ["golden", "dist", "nvcc-matrix", "fuzz", "clean"]
    assert set(wanted) <= set(phony.split())
    for target in wanted:
        done = subprocess.run(
            ["make", "-n", target], cwd=ROOT, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stderr


def test_the_licence_is_whole() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
