"""CUDA of which ptxas says that it loses performance: one text for each remark that could be provoked with nvcc 13.0."""

from __future__ import annotations

from dataclasses import dataclass

_HEAD = r"""
#include <cstdint>
#include <cstdio>
#define FENCE asm volatile("wgmma.fence.sync.aligned;" : : : "memory")
#define COMMIT asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory")
#define WAIT(n) asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(n) : "memory")
__device__ __forceinline__ void product(float (&d)[4], uint64_t a, uint64_t b) {
  asm volatile(
      "{.reg .pred p; setp.ne.b32 p, 1, 0; wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3}, %4, %5, p, 1, 1, 0, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "l"(a), "l"(b));
}
__device__ __forceinline__ void store(float* out, const float (&d)[4]) {
  for (int i = 0; i < 4; ++i) out[threadIdx.x * 4 + i] = d[i];
}
"""

_KERNEL = """
extern "C" __global__ void __launch_bounds__(%s) k(float* out, uint64_t a, uint64_t b, int n) {
  float d[4] = {};
  %s
}
"""


@dataclass(frozen=True)
class SlowText:
    """`code` is what nvcc 13.0 says; `kind` what any toolkit says."""

    code: str
    kind: str
    text: str


def _slow(code: str, body: str, bounds: str = "128, 1", kind: str = "wgmma serialised") -> SlowText:
    return SlowText(code, kind, _HEAD + _KERNEL % (bounds, body))


SLOW = (
    _slow("C7510", 'FENCE; product(d, a, b); COMMIT; printf("x"); WAIT(0); store(out, d);'),
    _slow(
        "C7511",
        """float e[16][4];
  for (int j = 0; j < 16; ++j) for (int i = 0; i < 4; ++i) e[j][i] = out[j * 4 + i];
  FENCE;
#pragma unroll
  for (int j = 0; j < 16; ++j) product(e[j], a + j, b);
  COMMIT; WAIT(0);
  for (int j = 0; j < 16; ++j) store(out + j * 512, e[j]);
  store(out, d);""",
        bounds="1024, 1",
    ),
    _slow(
        "C7514",
        """float s = 0;
  FENCE;
  for (int i = 0; i < n; ++i) { product(d, a + i, b); COMMIT; WAIT(1); s += d[0]; }
  WAIT(0); d[0] += s; store(out, d);""",
    ),
    _slow(
        "C7515",
        """FENCE;
  for (int i = 0; i < n; ++i) { if (out[i] > 0) product(d, a + i, b); else product(d, a, b + i); }
  COMMIT; WAIT(0); store(out, d);""",
    ),
    _slow(
        "C7520",
        """FENCE; product(d, a, b); COMMIT;
  if (out[threadIdx.x] > 0) { WAIT(0); d[0] = 1; }
  product(d, a, b); COMMIT; WAIT(0); store(out, d);""",
    ),
    SlowText(
        "C7508",
        "setmaxnreg ignored",
        """extern "C" __global__ void k(float* out) {
  if (threadIdx.x < 128) {
    asm volatile("setmaxnreg.dec.sync.aligned.u32 40;");
    out[threadIdx.x] = 1;
  } else {
    asm volatile("setmaxnreg.inc.sync.aligned.u32 232;");
    out[threadIdx.x] = 2;
  }
}
""",
    ),
)

FENCED = _slow(
    "C7519",
    "for (int i = 0; i < 4; ++i) d[i] = out[i]; product(d, a, b); COMMIT; WAIT(0); store(out, d);",
    kind="wgmma fenced",
)
"""ptxas adds an arrival, which costs nothing."""
