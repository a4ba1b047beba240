"""What the generated text is made of: primitives, a closed list of CUDA's words, and names of its own."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from functools import cache
from pathlib import Path

import pytest

from tests.known_faults.cases import PROGRAMS, WRITTEN
from tilec.compiled import CompiledFile
from tilec.compiler import compile_file
from tilec.emit.primitives import identifiers, load_primitives
from tilec.source.diagnostics import TileError

ROOT = Path(__file__).resolve().parents[2]
SAMPLES = (
    "vector_add",
    "softmax",
    "norms",
    "gemm",
    "gemm_bias_gelu",
    "gemm_bias_relu",
    "attention",
)
FILES = tuple(str(PROGRAMS / f"{n}.tile") for n in WRITTEN) + tuple(
    str(ROOT / "samples" / f"{n}.tile") for n in SAMPLES
)

BUILT_IN = frozenset(
    "threadIdx blockIdx x __syncthreads __global__ __launch_bounds__ __builtin_expect fma printf".split()
)
"""CUDA's own words that a kernel may use."""

LANGUAGE = frozenset(
    """__device__ __forceinline__ __restrict__ bool break const constexpr double else extern false float for if int int8_t int16_t
    int32_t int64_t long namespace pragma return static_cast struct template true uint8_t uint16_t uint32_t uint64_t unroll
    unsigned void INFINITY NAN identity combine index convert at beyond C""".split()
)
"""Words of C++, and members of the primitives."""

_DECLARED = re.compile(
    r"(?:(?:int|unsigned|bool|float|double|u?int(?:8|16|32|64)_t|\w+_t|[A-Z]\w*<[^;=()]*>|Operand[AB]|Divisor|void|Shared|SharedArray<[^;]*?>)"
    r"[*&]?(?: const)?(?: __restrict__)? )(\w+)|\w\*(?: const)?(?: __restrict__)? (\w+)"
)


@cache
def compiled(file: str) -> CompiledFile:
    try:
        return compile_file(file)
    except TileError as error:
        names = {"E0510", "E0512", "E0513"}
        assert {d.code for d in error.diagnostics} <= names
        pytest.fail(f"{file} has parts that do not compile yet")


def sections(text: str) -> list[str]:
    return re.findall(r"// kernel begin\n(.*?)// kernel end", text, re.DOTALL)


@pytest.mark.parametrize("file", FILES, ids=lambda f: Path(f).stem)
def test_kernels_use_primitives_and_their_own_names_only(file: str) -> None:
    known = BUILT_IN | LANGUAGE | set(load_primitives().blocks)
    for section in sections(compiled(file).cu):
        code = re.sub(r"//[^\n]*", "", section)
        own = {a or b for a, b in _DECLARED.findall(code)}
        own |= set(re.findall(r"struct (\w+)", code)) | set(
            re.findall(r"^(\w+)\(", code, re.MULTILINE)
        )
        own |= set(re.findall(r"\bint (k[A-Z]\w*)", code))
        own |= set(re.findall(r"const int \w+ = [^;]*, (\w+) = ", code))
        rest = identifiers(section) - known - own
        suffixes = {w for w in rest if re.fullmatch(r"(?:ll|ull|u|f|e\d*f?)", w)}
        assert not rest - suffixes, sorted(rest - suffixes)
        assert "#" not in re.sub(r"#pragma unroll", "", code)


@pytest.mark.parametrize("file", FILES, ids=lambda f: Path(f).stem)
def test_trips_are_counted_without_a_sum_that_leaves_32_bits(file: str) -> None:
    """`(N + BN - 1) / BN` is negative for the largest sizes."""
    for section in sections(compiled(file).cu):
        assert not re.search(r"\+ \w+ - 1\)\s*/", section)


@pytest.mark.parametrize("sample", ["matrix_vector_and_groups", "attention_variants"])
def test_the_end_of_a_span_in_a_group_is_no_sum(sample: str) -> None:
    """`starts + BM * t + BM` is negative where a loose bound of the rows lets the last tiles start near 2^31."""
    for section in sections(compiled(str(ROOT / "samples" / f"{sample}.tile")).cu):
        assert not re.search(r"_row_end = min_of\(min_of\(BM \* t_tile \+", section)


@pytest.mark.parametrize("file", FILES, ids=lambda f: Path(f).stem)
def test_lines(file: str) -> None:
    result = compiled(file)
    for text in (result.cu, result.header):
        for line in text.splitlines():
            assert line == line.rstrip()
            assert "\t" not in line
            assert str(ROOT) not in line
            assert not re.search(r"(?:^|[\s\"'(])/(?:home|root|tmp|usr|opt|var)/", line)
    for line in result.cu.splitlines():
        assert len(line) <= 100 or " " not in line.strip(" /*"), line
        code = line.split("//")[0]
        if '"' not in code:
            assert not re.search(
                r"[*/] 1(?![\w.])|(?<![\w.])1 \*|[+] 0(?![\w.])|[(=] 0 \+", code
            ), line
    assert "\n\n\n" not in result.cu
    assert result.cu.endswith("}\n")


_AGAIN = """
import sys
from tilec.compiler import compile_file
for file in sys.argv[1:]:
    result = compile_file(file)
    sys.stdout.write(result.cu + result.header)
"""


def test_the_same_bytes_whatever_the_hash_seed() -> None:
    texts = []
    for seed in ("0", "4711"):
        done = subprocess.run(
            [sys.executable, "-c", _AGAIN, *FILES],
            cwd=ROOT,
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        )
        texts.append(done.stdout)
    assert texts[0] == texts[1]
    assert texts[0] == "".join(compiled(f).cu + compiled(f).header for f in FILES)


def test_headers_of_the_toolkit_and_the_language_only() -> None:
    allowed = {
        "cuda_runtime.h", "algorithm", "cmath", "cstddef", "cstdint", "cstdio", "cstring", "initializer_list", "limits",
        "type_traits",
    }  # fmt: skip
    for file in FILES:
        assert set(re.findall(r"#include <([^>]+)>", compiled(file).cu)) <= allowed
        assert not re.search(r"\bcu[A-Z]\w+\(", compiled(file).cu), "the driver API needs libcuda"


@pytest.mark.parametrize("language", ["c", "c++"])
def test_headers_compile_as_c_and_cpp(language: str, tmp_path: Path) -> None:
    compiler = shutil.which("gcc" if language == "c" else "g++")
    assert compiler, "a host compiler is needed"
    stub = tmp_path / "cuda_runtime_api.h"
    stub.write_text("typedef int cudaError_t;\ntypedef struct CUstream_st* cudaStream_t;\n")
    for file in FILES:
        name = f"{Path(file).stem}.h"
        (tmp_path / name).write_text(compiled(file).header)
        flags = ["-x", language, "-Wall", "-Wextra", "-pedantic", "-Werror", "-fsyntax-only"]
        main = f'#include "{name}"\n#include "{name}"\n'
        done = subprocess.run(
            [compiler, *flags, "-I", str(tmp_path), "-"],
            input=main,
            capture_output=True,
            text=True,
            check=False,
        )
        assert done.returncode == 0, done.stderr


NAMED = """
kernel sums[BM = 128, BN = 128, BK = 64](a: bf16[M, K], b: bf16[K, N]) -> c: bf16[M, N]:
    for i, j in parallel(M by BM, N by BN):
        more = zeros(f32, i, j)
        for k in range(0 : K by BK):
            more += a[i, k] @ b[k, j]
        c[i, j] = more.to(bf16)
"""


def test_a_word_of_the_grid_names_nothing_of_the_program(tmp_path: Path) -> None:
    path = tmp_path / "named.tile"
    path.write_text(NAMED, encoding="utf-8")
    text = compile_file(str(path), archs=("sm_90a",)).cu
    assert "const bool more =" in text and "> more[" not in text
