"""The blocks of device primitives: their format, what a kernel text needs of them, and that all of them compile."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.emit.device_program import gpu_source
from tilec.emit.primitives import (
    FILES,
    Block,
    PrimitiveFormatError,
    closure,
    identifiers,
    includes,
    load_primitives,
    parse_blocks,
)
from tilec.resources import resource_path, resource_text
from tilec.toolchain.nvcc import find_nvcc

GOLDEN = Path(__file__).resolve().parents[1] / "golden"


def names(text: str) -> list[str]:
    return [block.name for block in closure(text)]


def test_a_block_has_a_name_clauses_and_text() -> None:
    text = (
        "//! about the file\n\n"
        "//@ primitive f extends g with a b needs h\n//@ includes <x> <y>\n"
        "/// Kept.\n//! Not kept.\nint f();\n//@ end\n"
    )
    assert parse_blocks(text, "file") == [
        Block("f", ("h",), ("<x>", "<y>"), "/// Kept.\nint f();", "g", ("a", "b"))
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int x;\n", "file:1: text outside a block"),
        ("//@ end\n", "file:1: `//@ end` without a block"),
        ("//@ primitive a\n//@ primitive b\n", "file:2: a block inside a block"),
        ("//@ primitive a\nint a;\n//@ needs b\n", "file:3: unexpected `//@`"),
        ("//@ primitive a\n", "file: the last block has no `//@ end`"),
        ("//@ primitive\n//@ end\n", "file:2: a block without a name"),
        ("//@ primitive a b\n//@ end\n", "file:2: `b` belongs to no clause"),
        ("//@ primitive a extends b\n//@ end\n", "file:2: `extends` takes one name and a `with`"),
    ],
)
def test_malformed_blocks_are_refused(text: str, message: str) -> None:
    with pytest.raises(PrimitiveFormatError) as caught:
        parse_blocks(text, "file")
    assert str(caught.value) == message


def test_a_kernel_gets_what_it_names_and_what_that_needs() -> None:
    assert names("y[i] = exp_fast(x[i]);") == ["exp2_approx", "exp_fast"]
    assert names('// exp_fast\n/* convert */ f("Vector");') == []


def test_extensions_need_the_base_and_the_type() -> None:
    wide = names("convert<float>(x)")
    assert "convert" in wide
    assert not [name for name in wide if "f16" in name]
    narrow = names("const bf16_t* x; convert<float>(*x)")
    assert "widen_bf16" in narrow and "widen_f16" not in narrow
    assert "bf16_t" in names("bf16_t x;") and "convert_bf16" not in names("bf16_t x;")


def test_includes_are_sorted_and_unique() -> None:
    blocks = closure("Vector<bf16_t, 8> v = load_vector<16, 8>(p);")
    assert includes(blocks) == ["<cstdint>", "<cstring>"]


def test_needs_are_exactly_what_a_block_names() -> None:
    blocks = load_primitives().blocks
    for block in blocks.values():
        named = {name for name in identifiers(block.text) if name in blocks}
        implied = {block.name, block.extends, *block.condition}
        needed = {name for name in block.needs if not blocks[name].extends}
        assert named - implied == needed, block.name


def test_files_are_listed_and_lines_fit() -> None:
    folder = resource_path("templates", f"device/{FILES[0]}").parent
    assert sorted(path.name for path in folder.glob("*.cuh")) == sorted(FILES)
    for file in FILES:
        for number, line in enumerate(resource_text("templates", f"device/{file}").splitlines(), 1):
            assert len(line) <= 100, f"{file}:{number}"


def test_the_closure_is_fast() -> None:
    load_primitives()
    text = "convert exp_fast load_vector store_vector lane_reduce OpSum bf16_t f16_t\n" * 200
    start = time.perf_counter()
    closure(text)
    assert time.perf_counter() - start < 0.05


ATOMS = """
struct Shared {
  SharedTile<bf16_t, 16, 64> tile;
  PlainTile<float, 16, 16> plain;
  PlainTile<int8_t, 16, 32> panels;
  PanelTile<int8_t, 32, 32> across;
  PanelTile<bool, 32, 32> seen;
  PanelTile<uint32_t, 8, 32> seen_words;
};

template <class T>
__device__ void warp_product(WmmaSums<float>& sums, const T* from) {
  WmmaLeft<T, true> left;
  WmmaRight<T, false> right;
  wmma_load(left, from, 16u);
  wmma_load(right, from, 16u);
  wmma_multiply(sums, left, right);
}

__global__ void __launch_bounds__(32) atoms(uint32_t* words, float* floats, int32_t* integers) {
  const int thread = static_cast<int>(threadIdx.x);
  auto& tile = cta_shared<Shared>().tile;
  cp_async<16>(tile.at(thread % 16, 0), words + 4 * thread);
  cp_async_commit();
  cp_async_wait<0>();
  __syncthreads();
  OperandA a;
  OperandB b[1];
  load_a_transposed(a, tile, 0, 0);
  load_b<1>(b, tile, 0, 0);
  uint32_t one[1];
  ldmatrix_x1(one, tile.at(thread % 8, 0));
  a.x[0] ^= one[0];
  ldmatrix_x1_trans(one, tile.at(thread % 8, 8));
  a.x[1] ^= one[0];
  const Vector<float, 2> rows = join_rows(Vector<float, 2>{}, Vector<float, 2>{}, 1);
  a.x[2] ^= static_cast<uint32_t>(rows[0]);
  load_turned(a, cta_shared<Shared>().across, 0, turned_place(cta_shared<Shared>().across, 16));
  Vector<int8_t, 2> upper[4];
  Vector<int8_t, 2> lower[4];
  load_rows(upper, lower, cta_shared<Shared>().across, 16);
  a.x[3] ^= static_cast<uint32_t>(upper[1][0] + lower[2][1]);
  uint32_t bits[2];
  load_row_bits(bits[0], bits[1], cta_shared<Shared>().seen, 16);
  a.x[3] ^= bits[0] + bits[1];
  load_row_words(bits[0], bits[1], cta_shared<Shared>().seen_words, 16);
  a.x[3] ^= bits[0] + bits[1];
  stmatrix_x2(tile.at(thread % 16, 0), b[0].x);
  stmatrix_x4(tile.at(thread % 16, 32), a.x);
  Vector<float, 2> top{};
  Vector<float, 2> bottom{};
  accumulate_product<MmaBf16>(top, bottom, a, b[0]);
  accumulate_product<MmaF16>(top, bottom, a, b[0]);
  accumulate_product<MmaTf32>(top, bottom, a, b[0]);
  accumulate_product<MmaE4m3>(top, bottom, a, b[0]);
  accumulate_product<MmaE5m2>(top, bottom, a, b[0]);
  Vector<int32_t, 2> above{};
  Vector<int32_t, 2> below{};
  accumulate_product<MmaS8>(above, below, a, b[0]);
  accumulate_product<MmaU8>(above, below, a, b[0]);
  float d[4] = {top[0], top[1], bottom[0], bottom[1]};
  const uint32_t left[2] = {a.x[0], a.x[1]};
  const uint32_t right[1] = {b[0].x[0]};
  mma_m16n8k8_bf16(d, left, right);
  mma_m16n8k32_e4m3_e5m2(d, a.x, b[0].x);
  mma_m16n8k32_e5m2_e4m3(d, a.x, b[0].x);
  double wide[2] = {d[0], d[1]};
  mma_m8n8k4_f64(wide, d[2], d[3]);
  d[0] += static_cast<float>(wide[0] + wide[1]);
  named_barrier_arrive(1, 64);
  named_barrier_sync(2, 32);
  sync_warp();
  WmmaSums<float> sums;
  wmma_fill(sums, 0.0f);
  warp_product<bf16_t>(sums, reinterpret_cast<const bf16_t*>(words));
  warp_product<f16_t>(sums, reinterpret_cast<const f16_t*>(words));
  wmma_store(floats + 32, sums, 16);
  auto& plain = cta_shared<Shared>().plain;
  WmmaSums<float, 8> rounded;
  wmma_fill(rounded, 0.0f);
  WmmaLeft<tf32_t, true> rounded_left;
  WmmaRight<tf32_t, false> rounded_right;
  wmma_load_block(rounded_left, plain, 0, 8);
  wmma_load_block(rounded_right, plain, 0, 8);
  wmma_multiply(rounded, rounded_left, rounded_right);
  Vector<float, 2> right_top{};
  Vector<float, 2> right_bottom{};
  wmma_add(top, bottom, right_top, right_bottom, rounded, plain, 0);
  d[1] += top[0] + bottom[1] + right_top[0] + right_bottom[1];
  WmmaLeft<int8_t, true> whole_left;
  WmmaRight<int8_t, false> whole_right;
  wmma_load_block(whole_left, cta_shared<Shared>().panels, 0, 16);
  wmma_load_block(whole_right, cta_shared<Shared>().panels, 0, 16);
  WmmaSums<int> whole;
  wmma_fill(whole, 0);
  wmma_multiply(whole, whole_left, whole_right);
  wmma_store(integers + 32, whole, 16);
  floats[thread] = d[0] + d[1] + d[2] + d[3];
  integers[thread] = above[0] + above[1] + below[0] + below[1];
}

extern "C" __global__ void __launch_bounds__(128) bulk(
    const __grid_constant__ CUtensorMap map) {
  auto& tile = dynamic_shared_aligned<PanelTile<bf16_t, 64, 128>>();
  const int thread = static_cast<int>(threadIdx.x);
  if (thread == 0) {
    tensor_prefetch(map);
    tensor_ahead(map, 0, 64);
    tensor_ahead(map, 0, 64, 1);
    tensor_ahead(map, 0, 64, 1, 2);
    tensor_ahead(map, 0, 64, 1, 2, 3);
  }
  clear_outside<128, 0>(tile, 3, 60, thread);
  __syncthreads();
  clear_outside<128, 1>(tile, 0, 121, thread);
  fence_async();
  __syncthreads();
  if (thread == 0) {
    tensor_store(map, tile.panel(0, 0), 0, 0);
    bulk_commit();
    bulk_wait_read<0>();
  }
  auto& across = dynamic_shared_aligned<PanelTile<float, 32, 16>>();
  Vector<float, 2> sums[8] = {};
  send_chunk_across<0, false>(across, map, sums, sums + 4, 0, 0);
  send_chunk_across<0, true>(across, map, sums, sums + 4, 0, 0);
}

extern "C" __global__ void __cluster_dims__(2, 1, 1) pushed(float* floats) {
  __shared__ float partials[64];
  const int thread = cluster_rank() * 1024 + static_cast<int>(threadIdx.x);
  cluster_arrive();
  cluster_wait();
  if (lane_id() < 2) store_at_rank(partials + thread / 32, lane_id(), floats[thread]);
  cluster_sync_memory();
  const float mean = combine_partials_by_lanes<OpSum<float>, 64>(partials) / 16384.0f;
  floats[thread] = as_whole_row<2, 2048, 4>(mean, thread / 32, 16384, 0);
  cluster_release();
  cluster_acquire();
  __shared__ int next;
  if (thread < 32) announce_item<2>(&next, thread);
  cluster_sync_memory();
  floats[thread] += combine_spreads_by_lanes<64, 2, 2048, 4>(partials, partials, mean, next, 0);
}

struct Some {
  SharedArray<bool, 4> some;
};

struct Turned {
  SharedArray<Vector<uint32_t, 4>, 1024> turned;
};

extern "C" __global__ void __launch_bounds__(256) turned(int8_t* to, const int8_t* p, int rows,
                                                         int columns, uint32_t* words, bool* seen) {
  auto& turned = cta_shared<Turned>().turned;
  const int padded = (rows + 15) / 16 * 16;
  turn_tile<false>(turned, to, p, columns, rows, columns, padded, 0, 128);
  __syncthreads();
  turn_tile<true>(turned, to, p, columns, rows, columns, padded, 128, 0);
  const int thread = static_cast<int>(threadIdx.x);
  interleave_row(to, p, static_cast<int>(blockIdx.x), columns, padded, thread * 16);
  auto& some = cta_shared<Some>().some;
  int empty = 0;
  pack_tile<128, 128>(words, seen, &empty, some, seen, columns, rows, columns, 128, 128);
  __syncthreads();
  pack_tile<64, 64>(words, seen, &empty, some, seen, columns, rows, columns, 0, 64);
  LeftBytes<int8_t, 2, 4> left = {};
  OperandA a;
  for (int n = 0; n < 4; ++n) {
    left[0][n] = load_aligned<2>(p + 8 * thread + 2 * n);
    left[1][n] = Vector<int8_t, 2>{};
  }
  take_left(a, left, 0, 0);
  words[thread] = a.x[0] ^ a.x[1] ^ a.x[2] ^ a.x[3];
}

extern "C" __global__ void shared_out(const Vector<bf16_t, 8>* wide, const Vector<bool, 16>* narrow,
                                      Vector<bf16_t, 2>* pairs, Vector<bool, 2>* flags) {
  const int thread = static_cast<int>(threadIdx.x);
  Vector<bf16_t, 2> own[4];
  spread_quad(own[0], own[1], own[2], own[3], wide[thread]);
  for (int n = 0; n < 4; ++n) pairs[4 * thread + n] = own[n];
  Vector<bool, 2> blocks[8];
  spread_quad_bytes(blocks, narrow[thread]);
  for (int n = 0; n < 8; ++n) flags[8 * thread + n] = blocks[n];
  const uint32_t columns = columns_upto(thread) & columns_from(thread - 9);
  flags[thread][0] = has_column(columns, thread % 32);
  flags[thread][1] = drawn_section(132, thread, 6) > 1 || unfinite_bits<f16_t>(columns) != 0;
}

__global__ void __launch_bounds__(32) covered(const float* from, float* to, int count) {
  const int at = 4 * static_cast<int>(threadIdx.x);
  const Covering<float, 4, 3> around = load_covering<4, 3>(from + at);
  const Covering<float, 4, 3> inside = load_covering_within<4, 3>(from + at, 4 - at, count - at);
  const auto shifted = pick_vector<4, 3, 1>(around);
  const auto field = pick_vector<4, 1, 2>(inside);
  store_woven<4>(to + 2 * at, shifted, field);
  store_woven_partial<4>(to + 2 * at + 256, count - at, field, shifted);
}
"""
"""Atoms of tensor cores and vectors that no driver and no golden kernel uses; what they compute is tested on the emulator."""


def atoms_source() -> str:
    blocks = closure(ATOMS)
    headers = "".join(f"#include {header}\n" for header in includes(blocks))
    return headers + "namespace {\n" + "\n\n".join(b.text for b in blocks) + "\n}\n" + ATOMS


def test_every_primitive_is_compiled_somewhere() -> None:
    golden = [p.read_text(encoding="utf-8") for p in sorted(GOLDEN.glob("*.cu"))]
    used = {b.name for text in (gpu_source(), ATOMS, *golden) for b in closure(text)}
    assert [name for name in load_primitives().blocks if name not in used] == []


@pytest.mark.parametrize(
    ("arch", "source", "least"),
    [("sm_75", gpu_source, 100), ("sm_90", gpu_source, 100), ("sm_90", atoms_source, 1)],
)
def test_primitives_compile_without_warning_spill_or_stack(
    tmp_path: Path, arch: str, source: Callable[[], str], least: int
) -> None:
    path = tmp_path / "all.cu"
    path.write_text(source(), encoding="utf-8")
    command = [str(find_nvcc().path), "-std=c++17", f"-arch={arch}", "-cubin", "-Xptxas", "-v"]
    command += ["-Werror", "all-warnings", "-o", str(tmp_path / "all.cubin"), str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    frames = [line.strip() for line in done.stderr.splitlines() if "bytes stack frame" in line]
    assert len(frames) >= least
    clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    assert [line for line in frames if line != clean] == []
