"""The wrappers of tensor-core instructions compile for the architectures that have them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from tilec.emit.primitives import closure, includes, parse_blocks
from tilec.resources import resource_text
from tilec.toolchain.nvcc import find_nvcc

BLOCKS = parse_blocks(resource_text("templates", "device/tensor.cuh"), "tensor.cuh")


def calls(arch: int) -> str:
    """Statements that use each block that `arch` has."""
    found = [
        "cp_async<4>(storage + lane, from + lane, lane < n);",
        "cp_async<8>(storage + 2 * lane, from);",
        "cp_async_partial<16>(storage + 4 * lane, from, n);",
        "cp_async_commit();",
        "cp_async_wait<0>();",
        "sum += movmatrix_trans(sum) + permute_bytes(sum, sum + 1, 0x7531);",
        "named_barrier_arrive(1, 64);",
        "named_barrier_sync(1, 64);",
        "{ WmmaLeft<f16_t, true> a; WmmaRight<f16_t, false> b; WmmaSums<float> d; wmma_fill(d, 0.0f);",
        "  wmma_load(a, reinterpret_cast<const f16_t*>(from), 16);",
        "  wmma_load(b, reinterpret_cast<const f16_t*>(from), 16); wmma_multiply(d, a, b);",
        "  wmma_store(reinterpret_cast<float*>(to), d, 16); }",
        "{ WmmaLeft<bf16_t, false> a; wmma_load(a, reinterpret_cast<const bf16_t*>(from), 16); }",
        "{ WmmaLeft<tf32_t, true> a; wmma_load(a, reinterpret_cast<const float*>(from), 8); }",
    ]
    for block in BLOCKS:
        words = [int(n) for n in re.findall(r"uint32_t \(&\w\)\[(\d)\]", block.text)]
        if re.search(r"e4m3|e5m2", block.name) and arch < 89:
            continue
        if block.name.startswith("stmatrix") and arch < 90:
            continue
        if block.name.startswith("ldmatrix"):
            found.append(
                f"{{ uint32_t r[{words[0]}]; {block.name}(r, storage + 4 * lane); sum += r[0]; }}"
            )
        elif block.name.startswith("stmatrix"):
            found.append(
                f"{{ uint32_t r[{words[0]}] = {{sum}}; {block.name}(storage + 4 * lane, r); }}"
            )
        elif block.name == "mma_m8n8k4_f64":
            found.append(
                "{ double d[2] = {}; mma_m8n8k4_f64(d, 1.0, sum); sum += unsigned(d[1]); }"
            )
        elif block.name.startswith("mma"):
            kind = "int32_t" if block.name[-2:] in ("s8", "u8") else "float"
            found.append(
                f"{{ {kind} d[4] = {{}}; const uint32_t a[{words[0]}] = {{sum}}, b[{words[1]}] = {{sum}}; "
                f"{block.name}(d, a, b); sum += static_cast<uint32_t>(d[0] + d[3]); }}"
            )
    return "\n  ".join(found)


@pytest.mark.parametrize("arch", [80, 89, 90])
def test_tensor_primitives_compile(arch: int, tmp_path: Path) -> None:
    body = calls(arch)
    blocks = closure(body)
    if arch == 90:
        assert {b.name for b in BLOCKS} <= {b.name for b in blocks}
    headers = "".join(f"#include {h}\n" for h in includes(blocks))
    text = "\n\n".join(b.text for b in blocks)
    source = tmp_path / "tensor.cu"
    source.write_text(
        f"{headers}namespace {{\n{text}\n}}\n"
        'extern "C" __global__ void k(const uint32_t* from, uint32_t* to, int n) {\n'
        "  __shared__ __align__(16) uint32_t storage[256];\n"
        f"  const int lane = threadIdx.x;\n  uint32_t sum = 0;\n  {body}\n  to[lane] = sum;\n}}\n",
        encoding="utf-8",
    )
    command = [str(find_nvcc().path), "-std=c++17", f"-arch=sm_{arch}", "-cubin"]
    command += ["-Werror", "all-warnings", "-o", str(tmp_path / "out.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
