// Two warpgroups that multiply, take an exponential of each score and multiply again, as attention on 128 x 128 tiles does, with so many
// further operations a score; without loads, rings and masks: nothing is waited for but products. bench/chained_limit.py builds and calls this.
#include <cuda_runtime.h>

#include <cstdint>

#include "warpgroup_products.cuh"

namespace {

__device__ __forceinline__ void barrier_sync(int id) { asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory"); }
__device__ __forceinline__ void barrier_arrive(int id) { asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory"); }

/// What a score has besides: `kMultiplyAdds` dependent multiply-adds, and `kSelects` operations that run beside them (minima and maxima with
/// two registers each).
template <int kMultiplyAdds, int kSelects>
__device__ __forceinline__ float besides(float s, float& z, float limit) {
#pragma unroll
  for (int i = 0; i < kSelects; ++i) s = i % 2 ? fmaxf(s, -limit) : fminf(s, limit);
  if constexpr (kMultiplyAdds > 0) {
    float p = fmaf(s, z, 0.1332094f);
#pragma unroll
    for (int i = 1; i < kMultiplyAdds; ++i) p = fmaf(p, s, i % 2 ? -0.0526841f : 0.1332094f);
    s = p;
  }
  return s;
}

/// `kEarly`: what scores have besides is done while the second product runs, else behind both. `kTurns`: products are started in turn.
template <int kMultiplyAdds, int kSelects, bool kEarly, bool kTurns>
__global__ void __launch_bounds__(256, 1) chained(int trips, float scale, int never, long long* clocks, float* out) {
  extern __shared__ __align__(1024) unsigned char storage[];
  unsigned char* tiles = storage + (1024 - shared_address(storage) % 1024) % 1024;
  uint32_t seed = (blockIdx.x * 256u + threadIdx.x) * 2654435761u;
  for (int i = threadIdx.x; i < 6 * kSlab / 4; i += blockDim.x) reinterpret_cast<uint32_t*>(tiles)[i] = random_pair(seed);
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const uint32_t base = shared_address(tiles);
  // queries: two slabs of 128 rows, of which each warpgroup has a half; keys and values: two slabs of 64 columns each
  const uint64_t queries = descriptor(base + warpgroup * 8192, 1);
  const uint64_t keys = descriptor(base + 2 * kSlab, 1), values = descriptor(base + 4 * kSlab, kSlab >> 4);
  constexpr int kNextSlab = kSlab >> 4;
  float s[64], o[64] = {}, sum[2] = {}, z = 0.25f;
  uint32_t packed[32];
  for (int i = 0; i < 32; ++i) packed[i] = random_pair(seed);
  if (kTurns && warpgroup == 1) barrier_arrive(1);
  const long long begin = clock64();
  for (int t = 0; t < trips; ++t) {
    if (kTurns) barrier_sync(1 + warpgroup);
    fence();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const int step = i % 4 * 2 + i / 4 * kNextSlab;
      if (i == 0) {
        multiply_shared<true>(s, queries + step, keys + step);
      } else {
        multiply_shared(s, queries + step, keys + step);
      }
    }
    commit();
    fence();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const uint32_t a[4] = {packed[4 * i], packed[4 * i + 1], packed[4 * i + 2], packed[4 * i + 3]};
      multiply_registers(o, a, values + i * 128);
    }
    commit();
    if (kTurns) barrier_arrive(1 + (warpgroup + 1) % 2);
    wait<1>();
    for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(s[i]));
    if constexpr (kEarly && kMultiplyAdds + kSelects > 0) {
      // both arms give the values: nothing moves behind the wait
      if (__builtin_expect(never != 0, 0)) {
        asm volatile("");
#pragma unroll
        for (int i = 0; i < 64; ++i) s[i] = s[i] * s[i];
      } else {
#pragma unroll
        for (int i = 0; i < 64; ++i) s[i] = besides<kMultiplyAdds, kSelects>(s[i], z, scale);
      }
    }
    wait<0>();
    for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(o[i]));
#pragma unroll
    for (int i = 0; i < 64; i += 2) {
      float p[2];
#pragma unroll
      for (int j = 0; j < 2; ++j) {
        float x = s[i + j];
        if constexpr (!kEarly) x = besides<kMultiplyAdds, kSelects>(x, z, scale);
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p[j]) : "f"(fmaf(x, scale, -4.0f)));
        sum[i / 2 % 2] += p[j];
      }
      asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(packed[i / 2]) : "f"(p[1]), "f"(p[0]));
    }
  }
  const long long taken = clock64() - begin;
  if (kTurns && warpgroup == 0) barrier_sync(1);
  if (threadIdx.x == 0) clocks[blockIdx.x] = taken;
  float total = sum[0] + sum[1];
  for (int i = 0; i < 64; ++i) total += o[i];
  if (total == 12345.0f) *out = total;
}

using Kernel = void (*)(int, float, int, long long*, float*);

struct Named {
  const char* name;
  int multiply_adds, selects, early, turns;
  Kernel kernel;
};

template <int kMultiplyAdds, int kSelects, bool kEarly, bool kTurns>
constexpr Named named(const char* name) {
  return {name, kMultiplyAdds, kSelects, kEarly, kTurns, chained<kMultiplyAdds, kSelects, kEarly, kTurns>};
}

#define FORMS(name, adds, selects)                                                        \
  named<adds, selects, true, true>(name), named<adds, selects, true, false>(name),        \
      named<adds, selects, false, true>(name), named<adds, selects, false, false>(name)

const Named kForms[] = {
    FORMS("nothing", 0, 0),         FORMS("one select", 0, 1),        FORMS("two selects", 0, 2),
    FORMS("one fma", 1, 0),         FORMS("one fma, one select", 1, 1), FORMS("four fma", 4, 0),
    FORMS("six fma, one select", 6, 1), FORMS("seven fma, one select", 7, 1),
};

}  // namespace

extern "C" int forms() { return sizeof(kForms) / sizeof(kForms[0]); }
extern "C" const char* form_name(int n) { return kForms[n].name; }
/// Multiply-adds and selects of a score besides its exponential; whether they are early, and whether there are turns.
extern "C" int form_number(int n, int which) {
  const Named& form = kForms[n];
  return which == 0 ? form.multiply_adds : which == 1 ? form.selects : which == 2 ? form.early : form.turns;
}
extern "C" int run_form(int n, int ctas, int trips, void* clocks, void* out, int launches) {
  const int bytes = 6 * kSlab + 1024;
  cudaFuncSetAttribute(kForms[n].kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  for (int i = 0; i < launches; ++i) {
    kForms[n].kernel<<<ctas, 256, bytes>>>(trips, 0.01f, 0, static_cast<long long*>(clocks), static_cast<float*>(out));
  }
  return cudaGetLastError();
}
