// What reading memory alone reaches on this device: 16-byte loads (0), or bulk copies into a ring in shared memory (1), of a multiple
// of 1 MB. Built as a library; bench/variants.py calls `run`.
#include <cuda_runtime.h>

#include <cstdint>

constexpr int kThreads = 512;
constexpr int kSlots = 12;
constexpr uint32_t kSlotBytes = 16384;

__global__ void __launch_bounds__(kThreads) loads(const uint4* __restrict__ x, int64_t vectors, int* sink) {
  uint32_t seen = 0;
  const int64_t step = int64_t{gridDim.x} * kThreads;
  int64_t at = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  for (; at + 7 * step < vectors; at += 8 * step) {
    uint4 held[8];
#pragma unroll
    for (int n = 0; n < 8; ++n) held[n] = __ldcs(x + at + n * step);
#pragma unroll
    for (int n = 0; n < 8; ++n) seen |= held[n].x & held[n].y & held[n].z & held[n].w;
  }
  for (; at < vectors; at += step) seen |= x[at].x;
  if (seen == 0x12345678u) *sink = 1;
}

__device__ __forceinline__ void wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n@!done bra again;\n}" ::"r"(barrier),
      "r"(parity)
      : "memory");
}

__global__ void __launch_bounds__(32) bulk(const char* __restrict__ x, int64_t slots, int* sink) {
  extern __shared__ __align__(128) char ring[];
  __shared__ __align__(8) uint64_t full[kSlots];
  const uint32_t base = static_cast<uint32_t>(__cvta_generic_to_shared(ring));
  const uint32_t barriers = static_cast<uint32_t>(__cvta_generic_to_shared(full));
  if (threadIdx.x != 0) return;
  for (int n = 0; n < kSlots; ++n)
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barriers + 8 * n) : "memory");
  asm volatile("fence.proxy.async;" ::: "memory");
  int64_t begun = blockIdx.x, done = blockIdx.x;
  uint32_t trip = 0, seen = 0;
  const auto start = [&](uint32_t n) {
    const uint32_t slot = n % kSlots, barrier = barriers + 8 * slot;
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kSlotBytes) : "memory");
    asm volatile(
        "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(base + slot * kSlotBytes),
        "l"(x + begun * int64_t{kSlotBytes}), "r"(kSlotBytes), "r"(barrier)
        : "memory");
    begun += gridDim.x;
  };
  uint32_t started = 0;
  while (started < kSlots && begun < slots) start(started++);
  for (; done < slots; done += gridDim.x, ++trip) {
    const uint32_t slot = trip % kSlots;
    wait(barriers + 8 * slot, trip / kSlots & 1);
    seen |= *reinterpret_cast<const volatile uint32_t*>(ring + slot * kSlotBytes);
    if (begun < slots) start(started++);
  }
  if (seen == 0x12345678u) *sink = 1;
}

extern "C" int run(int which, const void* x, long long bytes, void* sink, void* on) {
  const auto stream = static_cast<cudaStream_t>(on);
  int device = 0, processors = 0;
  cudaGetDevice(&device);
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, device);
  if (which == 0) {
    loads<<<processors * 4, kThreads, 0, stream>>>(static_cast<const uint4*>(x), bytes / 16, static_cast<int*>(sink));
  } else {
    const int shared = kSlots * kSlotBytes;
    cudaFuncSetAttribute(bulk, cudaFuncAttributeMaxDynamicSharedMemorySize, shared);
    bulk<<<processors, 32, shared, stream>>>(static_cast<const char*>(x), bytes / kSlotBytes, static_cast<int*>(sink));
  }
  return cudaGetLastError();
}
