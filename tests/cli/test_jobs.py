"""`tilec compile --jobs`: several processes give what one gives."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

COUNT = 7
SMALL = "from tilec import compiler\ncompiler.KERNELS_A_PROCESS = 2\n"
"""So many kernels are enough for three processes."""


def kernel(n: int) -> str:
    return (
        f"kernel k{n}(x: bf16[R, C]) -> y: f32[R]:\n"
        f"    require C <= {1000 + 4000 * n * n}\n"
        f"    for r in parallel(R):\n        y[r] = sum(x[r, :].to(f32)) / C + {n}.0\n\n"
    )


def softmax(n: int) -> str:
    """Reads long rows again: a warning of the passes."""
    return (
        f"kernel k{n}(x: bf16[R, C]) -> y: bf16[R, C]:\n"
        "    require C <= 131072\n"
        "    for r in parallel(R):\n        row = x[r, :].to(f32)\n        e = exp(row - max(row))\n"
        f"        y[r, :] = e / (sum(e) + {n}.0)\n\n"
    )


def refused(n: int) -> str:
    """Asks for what sm_80 has not: an error of the passes."""
    return (
        f"kernel k{n}(a: bf16[M, K], b: bf16[K, N]) -> c: f32[M, N]:\n"
        "    schedule mma = wgmma\n"
        "    for i, j in parallel(M by 64, N by 64):\n        acc = zeros(f32, i, j)\n"
        "        for k in range(K by 32):\n            acc += a[i, k] @ b[k, j]\n"
        f"        c[i, j] = acc + {n}.0\n\n"
    )


def run(folder: Path, *arguments: str, patch: str = "") -> subprocess.CompletedProcess[str]:
    """`tilec` in a folder, with `patch` done to it first."""
    script = f"import sys\n{SMALL}{patch}\nfrom tilec.cli import main\nmain({list(arguments)!r})\n"
    return subprocess.run(
        [sys.executable, "-c", script],
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def both(folder: Path, *arguments: str, patch: str = "") -> subprocess.CompletedProcess[str]:
    """What `--jobs 3` does, having seen that `--jobs 1` does the same."""
    one, several = (
        run(folder, *arguments, "--jobs", n, patch=patch + COUNTING.format(n=n)) for n in ("1", "3")
    )
    assert (several.returncode, several.stdout) == (one.returncode, one.stdout)
    # the bundle of a fault is named after its content, the command among it
    assert re.sub(r"faults/\w+", "", several.stderr) == re.sub(r"faults/\w+", "", one.stderr)
    return several


COUNTING = """
import os
forks, copy = [], os.fork
def fork():
    pid = copy()
    if pid: forks.append(pid)
    return pid
os.fork = fork
import atexit
atexit.register(lambda: len(forks) == {n} - 1 or os._exit(99))
"""
"""Ends with 99 where it was not done by so many processes."""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("TILEC_CACHE_DIR", str(tmp_path / "cache"))
    return tmp_path


def write(folder: Path, *texts: str) -> None:
    (folder / "a.tile").write_text("".join(texts))


def test_the_same_bytes_and_warnings(folder: Path) -> None:
    write(folder, *(softmax(n) if n % 2 else kernel(n) for n in range(COUNT)))
    done = both(folder, "compile", "a.tile", "-o", "-", "--header", "a.h")
    assert done.returncode == 0
    assert done.stderr.count("warning[W0601]") == 3
    assert [f"cudaError_t k{n}(" in done.stdout for n in range(COUNT)] == [True] * COUNT
    assert both(folder, "compile", "a.tile", "--check-only", "--warnings-as-errors").returncode == 1


def test_snapshots_come_in_the_order_of_kernels(folder: Path) -> None:
    write(folder, *map(kernel, range(COUNT)))
    done = both(folder, "compile", "a.tile", "-o", "-", "--print-after", "retire")
    first = [m[1] for m in re.finditer(r"// after retire, (\w+)", done.stderr)]
    assert list(dict.fromkeys(first)) == [f"k{n}" for n in range(COUNT)]


def test_errors_of_several_kernels_come_in_their_order(folder: Path) -> None:
    texts = [refused(n) if n % 2 else kernel(n) for n in range(COUNT)]
    write(folder, *texts)
    done = both(folder, "compile", "a.tile", "-o", "a.cu")
    assert done.returncode == 1
    found = re.findall(r"a\.tile:(\d+):", done.stderr)
    assert done.stderr.count("error[E0516]") == 3
    assert len(found) == 3 and sorted(found, key=int) == found
    assert not (folder / "a.cu").exists()


FAULT = """
from tilec.passes import pipeline
real = pipeline.run
def failing(program, *rest):
    if program.name in ("k3", "k5"): raise ZeroDivisionError(program.name)
    return real(program, *rest)
pipeline.run = failing
"""


def test_a_fault_of_tilec_is_that_of_the_first_kernel_with_its_traceback(folder: Path) -> None:
    write(folder, *map(kernel, range(COUNT)))
    done = both(folder, "compile", "a.tile", "-o", "a.cu", patch=FAULT)
    assert done.returncode == 70
    assert "ZeroDivisionError: k3" in done.stderr
    bundles = [p.read_text() for p in sorted((folder / "cache").rglob("traceback.txt"))]
    assert len(bundles) == 2 and bundles[0] == bundles[1] and "in failing" in bundles[0]
    assert not (folder / "a.cu").exists()


def test_a_process_that_is_killed_costs_time_only(folder: Path) -> None:
    write(folder, *map(kernel, range(COUNT)))
    killed = (
        "import os\nparent = os.getpid()\nfrom tilec.passes import pipeline\nreal = pipeline.run\n"
        "def run(*a):\n    if os.getpid() != parent: os.kill(os.getpid(), 9)\n    return real(*a)\n"
        "pipeline.run = run\n"
    )
    done = both(folder, "compile", "a.tile", "-o", "-", patch=killed)
    assert (done.returncode, done.stderr) == (0, "")


NEVER = "import os\ndef fork(): raise AssertionError\nos.fork = fork\n"


def test_a_few_kernels_are_compiled_by_one_process(folder: Path) -> None:
    write(folder, *map(kernel, range(3)))
    assert run(folder, "compile", "a.tile", "-o", "-", "-j8", patch=NEVER).returncode == 0


@pytest.mark.parametrize("form", ["kernel-ir", "manifest"])
def test_forms_that_need_kernel_ir_are_made_by_one_process(folder: Path, form: str) -> None:
    write(folder, *map(kernel, range(COUNT)))
    done = run(folder, "compile", "a.tile", "--emit", form, "-j3", patch=NEVER)
    assert done.returncode == 0 and f"k{COUNT - 1}" in done.stdout


def test_where_processes_are_not_copied_one_does_all(folder: Path) -> None:
    write(folder, *map(kernel, range(COUNT)))
    done = run(folder, "compile", "a.tile", "-o", "-", "-j3", patch="import os\ndel os.fork\n")
    assert (done.returncode, done.stderr) == (0, "")


def test_the_number_of_processes_is_at_least_one(folder: Path) -> None:
    write(folder, kernel(0))
    done = run(folder, "compile", "a.tile", "-j0")
    assert done.returncode == 2 and "E0701" in done.stderr
