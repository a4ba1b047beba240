// What an SM of a Hopper GPU does in a clock: products of warpgroups with the left operand in shared memory or in registers, instructions
// of threads with idle and with busy tensor cores, and tiles from the L2 cache. bench/engine_rates.py builds and calls this.
#include <cuda_runtime.h>

#include <cstdint>

#include "warpgroup_products.cuh"

namespace {

constexpr int kUnroll = 4;  // times that the 32 registers of a kind are gone through in a trip
constexpr int kRegisters = 32;

/// Eight products of 64 x 128 x 16 a group, `kKind` 1: both operands in shared memory, 2: the left one in registers, 3: four of each
/// in turn, as chained products have them. All `trips` are done; `done` are the products until `ended` was seen.
template <int kKind>
__device__ void tensor_trips(float (&d)[64], const unsigned char* tiles, uint32_t seed,
                             volatile int* ended, int trips, int* done) {
  uint32_t a[2][4];
  for (int i = 0; i < 8; ++i) a[i / 4][i % 4] = random_pair(seed);
  const uint32_t base = shared_address(tiles);
  // the left tile has a slab of its own, which each warpgroup reads a half of
  const uint64_t left = descriptor(base + threadIdx.x / 128 % 2 * 8192, 1);
  const uint64_t right = descriptor(base + kSlab, 1), turned = descriptor(base + 2 * kSlab, kSlab >> 4);
  int seen = trips;
  for (int trip = 0; trip < trips; ++trip) {
    seen = seen == trips && *ended != 0 ? trip : seen;
    fence();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      const bool in_registers = kKind == 2 || (kKind == 3 && i >= 4);
      if (in_registers) {
        multiply_registers(d, a[i % 2], turned + i % 4 * 128);
      } else {
        multiply_shared(d, left + i % 4 * 2, right + i % 4 * 2);
      }
    }
    commit();
    wait<1>();
  }
  wait<0>();
  *done = seen * 8;
}

// One instruction for each register, or `kCount` for all of them together; `p` changes, `z` and `y` do not, `c` are common to all.
struct FmaRegisters {  // three registers of its own each
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&y)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(p[i]) : "f"(z[i]), "f"(y[i]));
  }
};
struct FmaImmediate {  // a step of a polynomial
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("fma.rn.f32 %0, %0, %1, 0f3E9DE9E7;" : "+f"(p[i]) : "f"(z[i]));
  }
};
struct FmaCommon {  // a scale and an offset that all elements have
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&)[32], const float (&)[32], float c, float o) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(p[i]) : "f"(c), "f"(o));
  }
};
struct FmaSquare {  // the same register twice, an immediate
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("fma.rn.f32 %0, %0, %0, 0f3E9DE9E7;" : "+f"(p[i]));
  }
};
struct Multiply {
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("mul.rn.f32 %0, %0, %1;" : "+f"(p[i]) : "f"(z[i]));
  }
};
struct MultiplyImmediate {
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("mul.rn.f32 %0, %0, 0f3F7DE9E7;" : "+f"(p[i]));
  }
};
struct Add {
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(p[i]) : "f"(z[i]));
  }
};
struct AddImmediate {
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("add.rn.f32 %0, %0, 0f3F7DE9E7;" : "+f"(p[i]));
  }
};
struct Maximum {
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("max.f32 %0, %0, %1;" : "+f"(p[i]) : "f"(z[i]));
  }
};
struct Select {
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&)[32], float c, float) {
    const int odd = c > 0.5f;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      asm volatile("{.reg .pred q; setp.ne.s32 q, %2, 0; selp.f32 %0, %1, %0, q;}" : "+f"(p[i]) : "f"(z[i]), "r"(odd));
    }
  }
};
struct Logic {  // three inputs at once
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&y)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("lop3.b32 %0, %0, %1, %2, 0xe8;" : "+f"(p[i]) : "f"(z[i]), "f"(y[i]));
  }
};
struct Permute {
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("prmt.b32 %0, %0, %1, 0x7153;" : "+f"(p[i]) : "f"(z[i]));
  }
};
struct Shift {
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("shf.l.wrap.b32 %0, %0, %0, 15;" : "+f"(p[i]));
  }
};
struct Exponential {
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(p[i]));
  }
};
struct Reciprocal {  // of an exponential: two of them alone would cancel
  static constexpr int kCount = 2 * kRegisters;
  static __device__ void run(float (&p)[32], const float (&)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("ex2.approx.ftz.f32 %0, %0; rcp.approx.ftz.f32 %0, %0;" : "+f"(p[i]));
  }
};
struct Pack {  // two registers to a pair of bf16
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) asm volatile("{.reg .b32 a; cvt.rn.bf16x2.f32 a, %0, %1; mov.b32 %0, a;}" : "+f"(p[i]) : "f"(z[i]));
  }
};
struct Weights {  // an exponential, its argument, its sum, half a conversion: what a weight of attention takes
  static constexpr int kCount = kRegisters * 7 / 2;
  static __device__ void run(float (&p)[32], const float (&)[32], const float (&)[32], float c, float o) {
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      asm volatile("fma.rn.f32 %0, %0, %1, %2;" : "+f"(p[i]) : "f"(c), "f"(o));
      asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(p[i]));
      asm volatile("add.rn.f32 %0, %0, %1;" : "+f"(sum) : "f"(p[i]));
      if (i % 2) asm volatile("{.reg .b32 a; cvt.rn.bf16x2.f32 a, %0, %1; mov.b32 %0, a;}" : "+f"(p[i]) : "f"(p[i - 1]));
    }
    p[0] += sum;
  }
};

template <int kChains>
struct FmaChains {  // so many multiply-adds at once, each of which waits for the one before: fewer a clock than there could be
  static constexpr int kCount = kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      asm volatile("fma.rn.f32 %0, %0, %1, 0f3E9DE9E7;" : "+f"(p[i % kChains]) : "f"(z[i % kChains]));
    }
  }
};
struct Multiplicative {  // two multiply-adds for each exponential
  static constexpr int kCount = 3 * kRegisters;
  static __device__ void run(float (&p)[32], const float (&z)[32], const float (&)[32], float, float) {
#pragma unroll
    for (int i = 0; i < 32; ++i) {
      asm volatile("fma.rn.f32 %0, %0, %1, 0f3E9DE9E7;" : "+f"(p[i]) : "f"(z[i]));
      asm volatile("ex2.approx.ftz.f32 %0, %0;" : "+f"(p[i]));
      asm volatile("fma.rn.f32 %0, %0, %1, 0f3E9DE9E7;" : "+f"(p[i]) : "f"(z[i]));
    }
  }
};

/// `tensor` warpgroups do `groups` groups of products, which take longer than the `trips` trips of a kind that the `others` do; `clocks` of
/// those, without any of the products, and `products` until then, of each CTA.
template <int kProducts, class Kind>
__global__ void __launch_bounds__(384, 1)
beside(int tensor, int others, int trips, int groups, long long* clocks, int* products, float* out) {
  extern __shared__ __align__(1024) unsigned char storage[];
  unsigned char* tiles = storage + (1024 - shared_address(storage) % 1024) % 1024;
  __shared__ int running, ended;
  __shared__ long long longest;
  uint32_t seed = (blockIdx.x * 384u + threadIdx.x) * 2654435761u;
  for (int i = threadIdx.x; i < 4 * kSlab / 4; i += blockDim.x) reinterpret_cast<uint32_t*>(tiles)[i] = random_pair(seed);
  if (threadIdx.x == 0) running = others, ended = 0, longest = 0;
  asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
  __syncthreads();
  const int warpgroup = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  if (warpgroup < tensor) {
    if constexpr (kProducts != 0) {
      float d[64] = {};
      int done = 0;
      const long long begin = clock64();
      tensor_trips<kProducts>(d, tiles, seed, &ended, groups, &done);
      const long long taken = clock64() - begin;
      if (threadIdx.x % 128 == 0) {
        atomicAdd(products + blockIdx.x, done);
        if (!others) atomicMax(reinterpret_cast<unsigned long long*>(&longest), static_cast<unsigned long long>(taken));
      }
      float sum = 0.0f;
      for (int i = 0; i < 64; ++i) sum += d[i];
      if (sum == 12345.0f) *out = sum;
    }
  } else {
    float p[32], z[32], y[32];
    for (int i = 0; i < 32; ++i) {
      p[i] = 1.0f + (seed >> 9) * 1e-8f + i * 0.01f;
      z[i] = 0.5f + threadIdx.x * 1e-5f + i * 1e-3f;
      y[i] = 0.25f + threadIdx.x * 1e-5f + i * 1e-3f;
    }
    const float c = 0.25f + threadIdx.x * 1e-5f, o = 0.125f + threadIdx.x * 1e-5f;
    // the products are under way before the clock starts
    for (int i = 0; i < 8; ++i) Kind::run(p, z, y, c, o);
    const long long begin = clock64();
    for (int t = 0; t < trips; ++t) {
#pragma unroll
      for (int i = 0; i < kUnroll; ++i) Kind::run(p, z, y, c, o);
    }
    const long long taken = clock64() - begin;
    if (threadIdx.x % 32 == 0) atomicMax(reinterpret_cast<unsigned long long*>(&longest), static_cast<unsigned long long>(taken));
    if (threadIdx.x % 128 == 0 && atomicSub(&running, 1) == 1) *reinterpret_cast<volatile int*>(&ended) = 1;
    float sum = 0.0f;
    for (int i = 0; i < 32; ++i) sum += p[i];
    if (sum == 12345.0f) *out = sum;
  }
  __syncthreads();
  if (threadIdx.x == 0) clocks[blockIdx.x] = longest;
}

// ---- tiles from the L2 cache

constexpr int kTile = 16384, kSlots = 8;

__device__ __forceinline__ void barrier_wait(uint32_t barrier, uint32_t parity) {
  asm volatile(
      "{\n.reg .pred done;\nagain:\nmbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n}" ::"r"(barrier), "r"(parity)
      : "memory");
}

/// Each CTA brings `trips` tiles of 16 KB by bulk copies; groups of `together` CTAs read the same `own` tiles in the same order. With
/// `kPeers` CTAs of a cluster each brings its part of a tile for all of them.
template <int kPeers>
__global__ void __launch_bounds__(128, 1)
tiles_from_cache(const unsigned char* source, int own, int together, int trips, long long* clocks) {
  extern __shared__ __align__(1024) unsigned char storage[];
  __shared__ __align__(8) uint64_t full[kSlots], empty[kSlots];
  if (threadIdx.x == 0) {
    for (int i = 0; i < kSlots; ++i) {
      asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(&full[i])));
      asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(&empty[i])), "r"(kPeers));
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  if constexpr (kPeers > 1) asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
  __syncthreads();
  uint32_t rank = 0;
  if constexpr (kPeers > 1) asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  const unsigned char* mine = source + static_cast<int64_t>(blockIdx.x / together) * own * kTile;
  const long long begin = clock64();
  if (threadIdx.x == 0) {
    for (int t = 0; t < trips; ++t) {
      const int slot = t % kSlots;
      if (t >= kSlots) barrier_wait(shared_address(&empty[slot]), (t / kSlots - 1) % 2);
      const uint32_t barrier = shared_address(&full[slot]);
      asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(kTile) : "memory");
      const unsigned char* from = mine + static_cast<int64_t>(t % own) * kTile + rank * (kTile / kPeers);
      const uint32_t to = shared_address(storage + slot * kTile) + rank * (kTile / kPeers);
      if constexpr (kPeers == 1) {
        asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(to),
                     "l"(from), "r"(kTile), "r"(barrier) : "memory");
      } else {
        asm volatile(
            "cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes.multicast::cluster [%0], [%1], %2, [%3], %4;" ::"r"(to),
            "l"(from), "r"(kTile / kPeers), "r"(barrier), "h"(static_cast<uint16_t>((1 << kPeers) - 1)) : "memory");
      }
    }
  } else if (threadIdx.x == 32) {
    for (int t = 0; t < trips; ++t) {
      const int slot = t % kSlots;
      barrier_wait(shared_address(&full[slot]), t / kSlots % 2);
      for (int peer = 0; peer < kPeers; ++peer) {
        if constexpr (kPeers == 1) {
          asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_address(&empty[slot])) : "memory");
        } else {
          uint32_t there;
          asm volatile("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there) : "r"(shared_address(&empty[slot])), "r"(peer));
          asm volatile("mbarrier.arrive.release.cluster.shared::cluster.b64 _, [%0];" ::"r"(there) : "memory");
        }
      }
    }
    clocks[blockIdx.x] = clock64() - begin;
  }
  if constexpr (kPeers > 1) asm volatile("barrier.cluster.arrive.aligned; barrier.cluster.wait.aligned;" ::: "memory");
}

template <int kProducts, class Kind>
int launch_beside(int ctas, int tensor, int others, int trips, int groups, long long* clocks, int* products, float* out, int launches) {
  auto* kernel = beside<kProducts, Kind>;
  const int bytes = 4 * kSlab + 1024;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  for (int i = 0; i < launches; ++i) kernel<<<ctas, 128 * (tensor + others), bytes>>>(tensor, others, trips, groups, clocks, products, out);
  return cudaGetLastError();
}

template <class Kind>
int any_products(int products_kind, int ctas, int tensor, int others, int trips, int groups, long long* clocks, int* products, float* out, int launches) {
  switch (products_kind) {
    case 0: return launch_beside<0, Kind>(ctas, tensor, others, trips, groups, clocks, products, out, launches);
    case 1: return launch_beside<1, Kind>(ctas, tensor, others, trips, groups, clocks, products, out, launches);
    case 2: return launch_beside<2, Kind>(ctas, tensor, others, trips, groups, clocks, products, out, launches);
    default: return launch_beside<3, Kind>(ctas, tensor, others, trips, groups, clocks, products, out, launches);
  }
}

using Run = int (*)(int, int, int, int, int, int, long long*, int*, float*, int);

struct Named {
  const char* name;
  int count;
  Run run;
};

template <class Kind>
constexpr Named named(const char* name) {
  return {name, Kind::kCount * kUnroll, any_products<Kind>};
}

const Named kKinds[] = {
    named<FmaRegisters>("fma, three registers"),
    named<FmaImmediate>("fma, two registers and an immediate"),
    named<FmaCommon>("fma, a register and two common ones"),
    named<FmaSquare>("fma, one register twice and an immediate"),
    named<Multiply>("mul, two registers"),
    named<MultiplyImmediate>("mul, a register and an immediate"),
    named<Add>("add, two registers"),
    named<AddImmediate>("add, a register and an immediate"),
    named<Maximum>("max"),
    named<Select>("select"),
    named<Logic>("lop3"),
    named<Permute>("prmt"),
    named<Shift>("shift"),
    named<Exponential>("ex2"),
    named<Reciprocal>("ex2 and rcp"),
    named<Pack>("pack to bf16"),
    named<FmaChains<1>>("fma, one chain"),
    named<FmaChains<2>>("fma, two chains"),
    named<FmaChains<3>>("fma, three chains"),
    named<Multiplicative>("two fma for each ex2"),
    named<Weights>("weights: fma, ex2, add, half a pack"),
};

}  // namespace

extern "C" int kinds() { return sizeof(kKinds) / sizeof(kKinds[0]); }
extern "C" const char* kind_name(int n) { return kKinds[n].name; }
extern "C" int kind_count(int n) { return kKinds[n].count; }

/// `launches` launches of `ctas` CTAs: `tensor` warpgroups with products of a kind beside `others` that run kind `n`.
extern "C" int run_beside(int n, int products_kind, int ctas, int tensor, int others, int trips, int groups, void* clocks, void* products, void* out, int launches) {
  return kKinds[n].run(products_kind, ctas, tensor, others, trips, groups, static_cast<long long*>(clocks), static_cast<int*>(products),
                       static_cast<float*>(out), launches);
}

extern "C" int run_tiles(int peers, int ctas, const void* source, int own, int together, int trips, void* clocks) {
  const int bytes = kSlots * kTile + 1024;
  auto* kernel = peers == 1 ? tiles_from_cache<1> : peers == 2 ? tiles_from_cache<2> : tiles_from_cache<4>;
  cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes);
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(ctas);
  config.blockDim = dim3(128);
  config.dynamicSmemBytes = bytes;
  cudaLaunchAttribute cluster;
  cluster.id = cudaLaunchAttributeClusterDimension;
  cluster.val.clusterDim.x = peers;
  cluster.val.clusterDim.y = cluster.val.clusterDim.z = 1;
  config.attrs = &cluster;
  config.numAttrs = 1;
  return cudaLaunchKernelEx(&config, kernel, static_cast<const unsigned char*>(source), own, together, trips,
                            static_cast<long long*>(clocks));
}
