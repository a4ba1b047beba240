"""Each check finds its fault, and names the threads and the line."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.running import fault, run
from tilec.emulator.library import kept_stacks

FLOATS = np.arange(64, dtype=np.float32)
SHARED = """
struct Shared {
  SharedArray<float, 32> x;
  SharedArray<float, 64> y;
};
Shared& shared = cta_shared<Shared>();
const int thread = static_cast<int>(threadIdx.x);
"""


def out(count: int = 64) -> np.ndarray:
    return np.zeros(count, np.float32)


def test_a_read_behind_an_argument() -> None:
    body = "const float* x, float* y\n// f.tile:7  y = x\nstore_element(y, load_element(x + 60 + threadIdx.x));"
    found = fault(body, FLOATS.copy(), out())
    assert found.code == "E0930"
    assert found.message == ("`k` reads 4 bytes, which end behind `a0` by 4 bytes at f.tile:7")
    assert found.notes[0] == "thread 4 of CTA 0, 1 CTAs of 32 threads"
    assert "load_element(x + 60" in found.notes[1]


def test_a_read_before_an_argument_and_a_store_to_no_memory() -> None:
    found = fault("const float* x\nload_element(x - 2);", FLOATS.copy())
    assert found.code == "E0930" and "begin before `a0` by 8 bytes" in found.message
    found = fault(
        "float* x\nstore_aligned(x + 62, Vector<float, 4>{});", FLOATS.copy(), offsets={0: 8}
    )
    assert found.code == "E0930" and "writes 16 bytes, which end behind `a0` by 8" in found.message


def test_a_vector_whose_address_is_not_a_multiple_of_its_size() -> None:
    found = fault("const float* x\nload_aligned<4>(x + 1);", FLOATS.copy())
    assert found.code == "E0936"
    assert "accesses 16 bytes of global memory at an address that is 4 modulo 16" in found.message
    run("const float* x\nload_single<4>(x + 1);", FLOATS.copy())


def test_an_index_that_an_array_does_not_have() -> None:
    body = f"float* y\n{SHARED}shared.x[thread + 1] = 1.0f;"
    found = fault(body, out())
    assert found.code == "E0931"
    assert "writes 4 bytes at byte 128 of an array of 128 bytes" in found.message
    assert found.notes[0].startswith("thread 31 of CTA 0")
    found = fault(f"float* y\n{SHARED}float z = shared.x[thread - 1];", out())
    assert found.code == "E0931" and "reads 4 bytes at byte -4" in found.message


def test_shared_memory_that_nothing_has_written() -> None:
    body = f"float* y\n{SHARED}if (thread > 3) shared.x[thread] = 1.0f;\n__syncthreads();\ny[0] = shared.x[thread];"
    found = fault(body, out())
    assert found.code == "E0932" and found.notes[0].startswith("thread 0 of")
    # what an earlier CTA left does not count
    body = f"float* y\n{SHARED}if (blockIdx.x == 0) shared.x[thread] = 1.0f;\nfloat z = shared.x[thread];"
    found = fault(body, out(), grid=3, resident=1)
    assert found.code == "E0932" and "of CTA 1" in found.notes[0]


def race(between: str) -> str:
    return f"""float* y
{SHARED}
shared.y[thread] = float(thread);
{between}
const float other = shared.y[(thread + 1) % 64];
store_element(y + thread, other);"""


def test_a_missing_barrier_is_a_race() -> None:
    found = fault(race(""), out(), block=64)
    assert found.code == "E0933"
    found = fault(race("if (false) __syncthreads();"), out(), block=64)
    assert found.code == "E0933"
    y = out()
    run(race("__syncthreads();"), y, block=64)
    np.testing.assert_array_equal(y, (np.arange(64) + 1) % 64)


def test_a_race_names_both_threads_whatever_the_order() -> None:
    body = f"float* y\n{SHARED}shared.x[thread % 31] = 1.0f;"
    found = fault(body, out())
    assert found.code == "E0933"
    assert "which thread 0 has written with no barrier between" in found.message
    assert found.notes[0].startswith("thread 31 of")
    # written behind a read
    body = (
        f"float* y\n{SHARED}shared.x[thread] = 1.0f;\n__syncthreads();\n"
        "float z = shared.x[(thread + 1) % 32];\nshared.x[thread] = z;"
    )
    found = fault(body, out())
    assert found.code == "E0933" and "has read with no barrier between" in found.message


def test_lanes_are_ordered_by_syncwarp_and_not_by_a_shuffle() -> None:
    def lanes(between: str) -> str:
        return (
            f"float* y\n{SHARED}shared.x[thread] = 1.0f;\n{between}\n"
            "store_element(y + thread, float(shared.x[thread ^ 1]));"
        )

    run(lanes("__syncwarp();"), out())
    assert fault(lanes("uniform_int(1);"), out()).code == "E0933"
    two_warps = (
        lanes("__syncwarp();").replace("thread ^ 1", "thread ^ 32").replace("shared.x", "shared.y")
    )
    assert fault(two_warps, out(), block=64).code == "E0933"


def test_atomics_do_not_race_with_each_other() -> None:
    body = (
        f"float* y\n{SHARED}if (thread == 0) shared.x[0] = 0.0f;\n__syncthreads();\n"
        "atomic_add(shared.x + 0, 1.0f);\n__syncthreads();\n"
        "if (thread == 0) store_element(y, float(shared.x[0]));"
    )
    y = out()
    run(body, y, block=64)
    assert y[0] == 64
    assert (
        fault(body.replace("1.0f);\n__syncthreads();", "1.0f);"), out(), block=64).code == "E0933"
    )


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("if (threadIdx.x != 5) __syncthreads();", "has left the kernel"),
        (
            "if (threadIdx.x < 32) {\n__syncthreads();\n} else {\n__syncthreads();\n}",
            "waits at another",
        ),
        ("if (threadIdx.x != 5) uniform_int(1);", "has left the kernel"),
        (
            "if (threadIdx.x < 16) {\nuniform_int(1);\n} else {\nuniform_int(2);\n}",
            "in another operation",
        ),
        (
            "if (threadIdx.x == 3) {\n__syncthreads();\n} else {\nuniform_int(2);\n}",
            "waits somewhere else",
        ),
    ],
)
def test_threads_that_part(body: str, words: str) -> None:
    found = fault(f"float* y\n{body}", out(), block=64)
    assert found.code == "E0934" and words in found.message, found.message


def test_threads_that_wait_for_each_other_for_ever() -> None:
    body = """float* y
tilec_host::wait_until([](void* p) { return *static_cast<float*>(p) == 1.0f; }, y);"""
    found = fault(body, out(), grid=4)
    assert found.code == "E0935" and "no thread of the 2 resident CTAs can go on" in found.message


def test_a_thread_may_wait_for_a_later_cta_that_is_resident() -> None:
    body = """float* y
if (blockIdx.x == 1) store_element(y, 1.0f);
tilec_host::wait_until([](void* p) { return *static_cast<float*>(p) == 1.0f; }, y);"""
    run(body, out(), grid=2)
    assert fault(body, out(), grid=2, resident=1).code == "E0935"


def test_a_trap() -> None:
    found = fault("float* y\nif (threadIdx.x == 9) __trap();", out())
    assert found.code == "E0937" and found.notes[0].startswith("thread 9")


def copies(wait: str, commit: str = "cp_async_commit();") -> str:
    return f"""const float* x, float* y
{SHARED}
cp_async<4>(shared.x + thread, x + thread);
{commit}
{wait}
store_element(y + thread, float(shared.x[thread]));"""


@pytest.mark.parametrize("mode", ["late", "early", "chaos"])
def test_copies_that_nobody_waited_for(mode: str) -> None:
    y = out(32)
    run(copies("cp_async_wait<0>();"), FLOATS.copy(), y, mode=mode)
    np.testing.assert_array_equal(y, FLOATS[:32])
    for wait in ("", "cp_async_wait<1>();"):
        found = fault(copies(wait), FLOATS.copy(), out(), mode=mode)
        assert found.code == "E0933" and "under way" in found.message
    found = fault(copies("cp_async_wait<0>();", ""), FLOATS.copy(), out(), mode=mode)
    assert found.code == "E0938"


def test_a_copy_is_seen_by_others_behind_a_barrier_only() -> None:
    body = copies("cp_async_wait<0>();BETWEEN").replace("x[thread])", "x[thread ^ 1])")
    assert fault(body.replace("BETWEEN", ""), FLOATS.copy(), out()).code == "E0933"
    run(body.replace("BETWEEN", "__syncthreads();"), FLOATS.copy(), out())


def test_late_and_early_copies_differ_where_the_source_changes() -> None:
    body = f"""float* x, float* y
{SHARED}
cp_async<4>(shared.x + thread, x + thread);
cp_async_commit();
store_element(x + thread, -1.0f);
cp_async_wait<0>();
store_element(y + thread, float(shared.x[thread]));"""
    late, early = out(32), out(32)
    run(body, FLOATS.copy(), late)
    run(body, FLOATS.copy(), early, mode="early")
    assert (late == -1).all() and (early == FLOATS[:32]).all()
    seeds = set()
    for seed in range(4):
        mixed = out(32)
        run(body, FLOATS.copy(), mixed, mode="chaos", seed=seed)
        seeds.add(mixed.tobytes())
    assert len(seeds) == 4


def test_every_code_of_the_emulator_is_documented_and_used() -> None:
    from tilec.source.codes.emulation import CODES

    header = (Path(__file__).parents[2] / "templates/host/runtime.h").read_text(encoding="utf-8")
    used = {f"E0{n}" for n in re.findall(r"= (9[34]\d),", header)}
    assert used == {code for code in CODES if code.startswith(("E093", "E094"))}


@pytest.mark.parametrize("option", ["", "-DTILEC_UCONTEXT"])
def test_both_ways_to_switch_between_fibers(option: str, tmp_path: Path) -> None:
    from tilec.resources import resource_path
    from tilec.toolchain.host_compiler import find_host_compiler

    source = tmp_path / "fibers.cc"
    source.write_text(
        '#include "context.h"\n#include <stdio.h>\nusing namespace tilec_host;\n'
        "static Context main_context, fiber[2];\nstatic int at;\n"
        "static void body() {\n  double x = at;\n  for (int i = 0; i < 3; ++i) {\n"
        '    printf("%d:%g ", at, x += 0.5);\n    switch_context(fiber[at], main_context);\n  }\n'
        "  while (true) switch_context(fiber[at], main_context);\n}\n"
        "int main() {\n  Stacks stacks(2, 65536);\n"
        "  for (int i = 0; i < 2; ++i) prepare_context(fiber[i], stacks.at(i), stacks.bytes(), body);\n"
        "  for (int i = 0; i < 8; ++i) {\n    at = i % 2;\n"
        "    switch_context(main_context, fiber[at]);\n  }\n}\n"
    )
    program = tmp_path / "fibers"
    folder = resource_path("templates", "host/context.h").parent
    command = [str(find_host_compiler().path), "-std=c++17", "-O2", f"-I{folder}", str(source)]
    subprocess.run([*command, *option.split(), "-o", str(program)], check=True)
    done = subprocess.run([str(program)], capture_output=True, text=True, check=True)
    assert done.stdout == "0:0.5 1:1.5 0:1 1:2 0:1.5 1:2.5 "


def test_stacks_are_kept_between_launches() -> None:
    """Those of the largest launch so far serve smaller ones, of other kernels and behind a fault too; very many are not kept."""
    square = (
        "int* p\nint own[64];\nfor (int i = 0; i < 64; ++i) own[i] = i * threadIdx.x;\n__syncthreads();\n"
        "store_element(p + blockIdx.x * blockDim.x + threadIdx.x, own[threadIdx.x % 64]);"
    )
    sizes: list[int] = []
    for block in (64, 256, 32, 1024):
        found = np.full(2 * block, -1, np.int32)
        run(square, found, grid=2, block=block, resident=8 if block == 1024 else 2)
        assert found.tolist() == [i * (i % 64) for i in range(block)] * 2
        assert fault("int* p\nstore_element(p + 9, 1);", np.zeros(1, np.int32)).code == "E0930"
        sizes.append(kept_stacks().size)
    assert sizes[0] >= 2 * 64 * (96 << 10) and sizes[1] >= 2 * 256 * (96 << 10)
    assert sizes[2] == sizes[1] <= sizes[3]
    many = np.full(8 * 1024, -1, np.int32)
    run(square, many, grid=8, block=1024, resident=8)
    assert many.tolist() == [i * (i % 64) for i in range(1024)] * 8
    assert kept_stacks().size == sizes[3]
