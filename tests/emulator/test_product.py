"""A product as a compiler would write it – copies in groups, a ring of stages, swizzled rows, tensor cores – and its faults."""

from __future__ import annotations

import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.running import fault, run
from tilec.emulator.library import Mode

# 128 by 128 by 32 tiles, 4 warps of 64 by 64. A row of 32 elements is four chunks of 16 bytes; chunk c of row r lies at
# place c ^ (r / 2 % 4), so that eight rows that ldmatrix reads at once lie in different banks.
PRODUCT = """
extern "C" __global__ void __launch_bounds__(128, 1)
k(const bf16_t* a, const bf16_t* b, float* c, int N, int K) {
  struct Shared {
    SharedArray<bf16_t, 2 * 128 * 32> a;
    SharedArray<bf16_t, 2 * 128 * 32> b;
  };
  Shared& shared = cta_shared<Shared>();
  const int thread = threadIdx.x, warp = thread / 32, lane = thread % 32;
  const int tiles = N / 128;
  const int row = blockIdx.x / tiles * 128, col = blockIdx.x % tiles * 128;
  const auto place = [](int r, int chunk) { return r * 32 + (chunk ^ (r / 2 % 4)) * 8; };
  const auto fetch = [&](int step) {
    const int stage = step % 2 * 128 * 32;
    if (step < K / 32) {
      for (int i = thread; i < 128 * 4; i += 128) {
        const int r = i / 4, chunk = i % 4;
        // p.tile:1  a
        cp_async<16>(shared.a + (stage + place(r, chunk)), a + (row + r) * K + step * 32 + chunk * 8);
        // p.tile:2  b
        cp_async<16>(shared.b + (stage + place(r, chunk)), b + (col + r) * K + step * 32 + chunk * 8);
      }
    }
    cp_async_commit();
  };
  float sums[4][8][4] = {};
  fetch(0);
  for (int step = 0; step < K / 32; ++step) {
    fetch(step + 1);
    // p.tile:3  wait
    cp_async_wait<1>();
    __syncthreads();  // copied
    const int stage = step % 2 * 128 * 32;
    for (int half = 0; half < 2; ++half) {
      uint32_t left[4][4], right[8][2];
      // p.tile:4  left
      for (int m = 0; m < 4; ++m) {
        const int r = warp / 2 * 64 + m * 16 + lane % 16;
        ldmatrix_x4(left[m], shared.a + (stage + place(r, half * 2 + lane / 16)));
      }
      for (int n = 0; n < 8; ++n) {
        const int r = warp % 2 * 64 + n * 8 + lane % 8;
        ldmatrix_x2(right[n], shared.b + (stage + place(r, half * 2 + lane / 8 % 2)));
      }
      for (int m = 0; m < 4; ++m) {
        for (int n = 0; n < 8; ++n) mma_m16n8k16_bf16(sums[m][n], left[m], right[n]);
      }
    }
    __syncthreads();  // read
  }
  for (int m = 0; m < 4; ++m) {
    for (int n = 0; n < 8; ++n) {
      for (int i = 0; i < 4; ++i) {
        const int r = row + warp / 2 * 64 + m * 16 + lane / 4 + i / 2 * 8;
        const int s = col + warp % 2 * 64 + n * 8 + lane % 4 * 2 + i % 2;
        store_element(c + r * N + s, sums[m][n][i]);
      }
    }
  }
}
"""


def operands(size: int) -> tuple[Any, Any, Any]:
    random = np.random.default_rng(6)
    a, b = (random.normal(size=(size, size)).astype(ml_dtypes.bfloat16) for _ in range(2))
    return a, b, np.zeros((size, size), np.float32)


def close(a: Any, b: Any, c: Any) -> None:
    expected = a.astype(np.float64) @ b.astype(np.float64).T
    np.testing.assert_allclose(c, expected, atol=1e-4)


@pytest.mark.parametrize("mode", ["late", "early", "chaos"])
def test_a_pipelined_product(mode: Mode) -> None:
    a, b, c = operands(256)
    start = time.perf_counter()
    run(PRODUCT, a, b, c, np.int32(256), np.int32(256), grid=4, block=128, mode=mode)
    print(time.perf_counter() - start)
    close(a, b, c)


def test_swizzled_rows_have_no_bank_conflicts() -> None:
    def matrices(text: str) -> list[tuple[int, int]]:
        a, b, c = operands(128)
        found = run(text, a, b, c, np.int32(128), np.int32(128), block=128, counting=True)
        return [(n.units, n.least) for n in found if n.kind == "shared load"]

    assert [units - least for units, least in matrices(PRODUCT)] == [0, 0]
    plain = matrices(PRODUCT.replace("(chunk ^ (r / 2 % 4))", "chunk"))
    assert all(units == 4 * least for units, least in plain)


@pytest.mark.parametrize("mode", ["late", "early"])
@pytest.mark.parametrize(
    ("before", "after", "code"),
    [
        ("cp_async_wait<1>();", "cp_async_wait<2>();", "E0933"),
        ("__syncthreads();  // copied", "", "E0933"),
        ("__syncthreads();  // read", "", "E0933"),
        ("step % 2 * 128 * 32;\n    if", "0;\n    if", "E0933"),
        ("cp_async_commit();\n  };", "};", "E0938"),
        ("step < K / 32) {", "step <= K / 32) {", "E0930"),
        ("lane % 16;", "lane % 16 + 1;", "E0933"),
        ("half * 2 + lane / 16)", "half * 2 + lane / 16) + 1", "E0936"),
    ],
)
def test_a_product_that_is_wrong(mode: Mode, before: str, after: str, code: str) -> None:
    assert before in PRODUCT
    a, b, c = operands(128)
    found = fault(
        PRODUCT.replace(before, after), a, b, c, np.int32(128), np.int32(128), block=128, mode=mode
    )
    assert found.code == code, found
    assert "at p.tile:" in found.message
