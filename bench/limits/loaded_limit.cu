// Two products with an exponential of each score between them, and all that a machine must do for them: a producer warp brings keys and values by
// bulk copies through rings of two slots, queries are loaded and results are stored for each instance, and masks or biases of each score come
// from memory. What is not needed to be right for random operands is left out: maxima, votes, edges. bench/loaded_limit.py builds and calls this.
#include <cuda.h>
#include <cuda_runtime.h>

#include <cstdint>
#include <cstring>

#include "warpgroup_products.cuh"

namespace {

enum Form { kPlain, kMaskBytes, kMaskBits, kBias, kCap, kWindow };

/// Products start in no order, or in turns: of a trip, passed on as soon as they are started; or of the first one as well, passed on when the scores
/// are done.
enum Turns { kFree, kStarted, kDone };

constexpr int kWidth = 128;  // columns of queries, keys and values

struct Arguments {
  CUtensorMap queries, keys, values, beside, result;
  int tiles, heads, batches;  // instances: tiles of rows, heads, sequences
  int trips, key_tiles;       // of an instance; of a head
  int walks;                  // how often a launch walks through the instances of a window
  int instances;
  int batch_first;  // instances of all sequences of a head and a tile come one after the other
  float scale, cap;
  int never;
  long long* clocks;       // of each CTA
  long long* nanoseconds;  // of each CTA
};

__device__ __forceinline__ void barrier_init(uint32_t at, int count) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(at), "r"(count) : "memory");
}
__device__ __forceinline__ void barrier_wait(uint32_t at, uint32_t parity) {
  asm volatile(
      "{.reg .pred done;\n"
      "again: mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@done bra over;\n"
      "bra again;\n"
      "over:}" ::"r"(at),
      "r"(parity)
      : "memory");
}
__device__ __forceinline__ void barrier_arrive(uint32_t at) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(at) : "memory");
}
__device__ __forceinline__ void barrier_expect(uint32_t at, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(at), "r"(bytes)
               : "memory");
}
__device__ __forceinline__ void turn_wait(int id) {
  asm volatile("bar.sync %0, 256;" ::"r"(id) : "memory");
}
__device__ __forceinline__ void turn_give(int id) {
  asm volatile("bar.arrive %0, 256;" ::"r"(id) : "memory");
}
__device__ __forceinline__ void load_3d(uint32_t to, const CUtensorMap& map, uint32_t landed, int x,
                                        int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];" ::"r"(to),
      "l"(&map), "r"(landed), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void load_5d(uint32_t to, const CUtensorMap& map, uint32_t landed, int x,
                                        int y) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, 0, 0, 0, %4}], [%2];" ::"r"(to),
      "l"(&map), "r"(landed), "r"(x), "r"(y)
      : "memory");
}
__device__ __forceinline__ void store_3d(const CUtensorMap& map, uint32_t from, int x, int y,
                                         int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];" ::"l"(&map),
      "r"(from), "r"(x), "r"(y), "r"(z)
      : "memory");
}
__device__ __forceinline__ void load_matrices(uint32_t (&r)[4], uint32_t at) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(at)
               : "memory");
}
__device__ __forceinline__ void store_matrices(uint32_t at, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};" ::"r"(at),
               "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
__device__ __forceinline__ uint32_t pack(float low, float high) {
  uint32_t pair;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(pair) : "f"(high), "f"(low));
  return pair;
}
__device__ __forceinline__ bool elected() {
  uint32_t is;
  asm volatile(
      "{.reg .pred one; elect.sync _|one, 0xffffffff; selp.u32 %0, 1, 0, one;}"
      : "=r"(is)
      :
      : "memory");
  return is != 0;
}
template <int kCount>
__device__ __forceinline__ void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" ::"n"(kCount));
}
template <int kCount>
__device__ __forceinline__ void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" ::"n"(kCount));
}

template <bool kFresh>
__device__ __forceinline__ void multiply_scores(float (&d)[64], uint64_t a, uint64_t b) {
  multiply_shared<kFresh>(d, a, b);
}
template <bool kFresh>
__device__ __forceinline__ void multiply_scores(float (&d)[32], uint64_t a, uint64_t b) {
  asm volatile(
      "{.reg .pred more; setp.ne.b32 more, %34, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, %32, %33, more, 1, 1, 0, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "l"(a), "l"(b), "n"(kFresh ? 0 : 1));
}

template <bool kFresh>
__device__ __forceinline__ void multiply_scores(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("{.reg .pred more; setp.ne.b32 more, %69, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " NAMES
               ", {%64, %65, %66, %67}, %68, more, 1, 1, 0;}"
               : SUMS(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kFresh ? 0 : 1));
}
template <bool kFresh>
__device__ __forceinline__ void multiply_scores(float (&d)[32], const uint32_t (&a)[4], uint64_t b) {
  asm volatile(
      "{.reg .pred more; setp.ne.b32 more, %37, 0;\n"
      "wgmma.mma_async.sync.aligned.m64n64k16.f32.bf16.bf16 "
      "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "
      "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31}, {%32, %33, %34, %35}, %36, "
      "more, 1, 1, 0;}"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]),
        "+f"(d[7]), "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]),
        "+f"(d[14]), "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]),
        "+f"(d[21]), "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]),
        "+f"(d[28]), "+f"(d[29]), "+f"(d[30]), "+f"(d[31])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b), "n"(kFresh ? 0 : 1));
}

/// Tiles in shared memory, and where.
template <int kForm, int kGroups, int kKeys>
struct Places {
  static constexpr int kRows = kGroups * 64;
  static constexpr int kQueryBytes = kRows * kWidth * 2;
  static constexpr int kKeyBytes = kKeys * kWidth * 2;
  static constexpr int kBesideBytes = kForm == kBias                              ? kRows * kKeys * 2
                                      : kForm == kMaskBytes || kForm == kMaskBits ? kRows * kKeys
                                                                                  : 0;
  static constexpr int kRings = 4 * kKeyBytes + 2 * kBesideBytes;
  static constexpr int kMost = 227 * 1024 - 2048;
  static constexpr int kQuerySlots = kRings + 2 * kQueryBytes <= kMost ? 2 : 1;
  static constexpr int kKeysAt = kQuerySlots * kQueryBytes;
  static constexpr int kValuesAt = kKeysAt + 2 * kKeyBytes;
  static constexpr int kBesideAt = kValuesAt + 2 * kKeyBytes;
  static constexpr int kBarriersAt = kBesideAt + 2 * kBesideBytes;
  static constexpr int kBytes = kBarriersAt + 256 + 1024;
};

/// Barriers of a ring of two slots: full ones at 0 and 8, free ones at 16 and 24.
enum Ring { kQueryRing, kKeyRing, kValueRing, kBesideRing };

struct Place {
  uint32_t slot, parity;
  template <int kSlots>
  __device__ __forceinline__ void next() {
    slot = kSlots == 2 ? slot ^ 1 : 0;
    parity ^= slot == 0;
  }
};

__device__ __forceinline__ uint32_t full(uint32_t barriers, Ring ring, const Place& at) {
  return barriers + ring * 32 + at.slot * 8;
}
__device__ __forceinline__ uint32_t free_of(uint32_t barriers, Ring ring, const Place& at) {
  return full(barriers, ring, at) + 16;
}

/// What a CTA does at one of its turns: a tile of rows of a head, over so many tiles of keys from `first` on.
struct Instance {
  int tile, head, batch, plane, first, trips;
};

constexpr int kSection = 16;  // heads of a window whose instances are dealt together

/// The instance at a CTA's `turn`, or, of a window, at the next one that has any; false behind the last. Those of a window are dealt to and fro,
/// section by section, the longest first; each sees as many tiles of keys at most, which end with its rows.
template <int kForm>
__device__ __forceinline__ bool find_instance(const Arguments& a, int& turn, Instance* found) {
  const int ctas = gridDim.x, cta = blockIdx.x, planes = a.heads * a.batches;
  if constexpr (kForm == kWindow) {
    const int each = a.tiles * kSection, rounds = (each + ctas - 1) / ctas;
    for (;; ++turn) {
      const int section = turn / rounds, round = turn % rounds;
      if (section * kSection >= planes * a.walks) return false;
      const int above = round * ctas + ((round + section) % 2 == 0 ? cta : ctas - 1 - cta);
      if (above >= each) continue;
      const int tile = a.tiles - 1 - above / kSection;
      const int plane = (section * kSection + above % kSection) % planes;
      const int trips = tile + 1 < a.trips ? tile + 1 : a.trips;
      *found = {tile, plane % a.heads, plane / a.heads, plane, tile + 1 - trips, trips};
      return true;
    }
  }
  int rest = turn * ctas + cta, batch = 0;
  if (rest >= a.instances) return false;
  if (a.batch_first) batch = rest % a.batches, rest /= a.batches;
  const int tile = rest % a.tiles;
  rest /= a.tiles;
  const int head = rest % a.heads;
  rest /= a.heads;
  if (!a.batch_first) batch = rest % a.batches;
  *found = {tile, head, batch, batch * a.heads + head, 0, a.trips};
  return true;
}

/// `kAhead`: one more tile of queries and keys behind the last instance, whose product nobody reads.
template <int kForm, int kGroups, int kKeys, bool kAhead>
__device__ __forceinline__ void produce(const Arguments& a, uint32_t base) {
  using P = Places<kForm, kGroups, kKeys>;
  const uint32_t barriers = base + P::kBarriersAt;
  Place query{0, 1}, key{0, 1}, value{0, 1}, beside{0, 1};
  for (int turn = 0;; ++turn) {
    Instance now{};
    const bool any = find_instance<kForm>(a, turn, &now);
    if (!kAhead && !any) break;
    const int tile = now.tile, head = now.head, batch = now.batch, plane = now.plane;
    const auto bring = [&](const CUtensorMap& map, Ring ring, Place& at, int place, int j) {
      barrier_wait(free_of(barriers, ring, at), at.parity);
      const uint32_t landed = full(barriers, ring, at);
      barrier_expect(landed, P::kKeyBytes);
      for (int col = 0; col < kWidth; col += 64) {
        const uint32_t to = base + place + at.slot * P::kKeyBytes + col * kKeys * 2;
        if (kForm == kMaskBits || kForm == kMaskBytes) {
          load_5d(to, map, landed, col, (plane * a.key_tiles + j) * (kKeys / 16));
        } else {
          load_3d(to, map, landed, col, j * kKeys, plane);
        }
      }
      at.next<2>();
    };
    const auto bring_beside = [&](int j) {
      if constexpr (P::kBesideBytes > 0) {
        barrier_wait(free_of(barriers, kBesideRing, beside), beside.parity);
        const uint32_t landed = full(barriers, kBesideRing, beside);
        barrier_expect(landed, P::kBesideBytes);
        const uint32_t to = base + P::kBesideAt + beside.slot * P::kBesideBytes;
        if constexpr (kForm == kBias) {
          for (int col = 0; col < kKeys; col += 64) {
            load_3d(to + col * P::kRows * 2, a.beside, landed, j * kKeys + col, tile * P::kRows,
                    head);
          }
        } else {
          load_3d(to, a.beside, landed, j * kKeys, tile * P::kRows, batch);
        }
        beside.next<2>();
      }
    };
    barrier_wait(free_of(barriers, kQueryRing, query), query.parity);
    barrier_expect(full(barriers, kQueryRing, query), P::kQueryBytes);
    for (int col = 0; col < kWidth; col += 64) {
      load_3d(base + query.slot * P::kQueryBytes + col * P::kRows * 2, a.queries,
              full(barriers, kQueryRing, query), col, tile * P::kRows, plane);
    }
    query.next<P::kQuerySlots>();
    int j = now.first;
    bring(a.keys, kKeyRing, key, P::kKeysAt, j);
    if (kAhead && !any) break;
    bring_beside(j);
    for (int t = 1; t < now.trips; ++t) {
      const int before = j;
      j = j + 1 < a.key_tiles ? j + 1 : 0;
      bring(a.keys, kKeyRing, key, P::kKeysAt, j);
      bring(a.values, kValueRing, value, P::kValuesAt, before);
      bring_beside(j);
    }
    bring(a.values, kValueRing, value, P::kValuesAt, j);
  }
}

/// `kEarly`: what scores have besides is done while the second product runs, else behind both. `kHeld`: queries are in registers, and a bias is
/// read where it is added. `kAhead`: the first product of the next instance starts behind the last one of this.
template <int kForm, int kGroups, int kKeys, bool kEarly, Turns kTurns, bool kHeld, bool kAhead>
__device__ __forceinline__ void consume(const Arguments& a, uint32_t base) {
  using P = Places<kForm, kGroups, kKeys>;
  constexpr int kScores = kKeys / 2;
  const uint32_t barriers = base + P::kBarriersAt;
  const int group = __shfl_sync(0xffffffffu, threadIdx.x / 128, 0);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32 % 4;
  const int row = group * 64 + warp * 16 + lane % 16;
  const float by = a.cap != 0.0f ? a.scale / a.cap : 0.0f, in_bits = 1.4426950408889634f;
  Place query{0, 0}, key{0, 0}, value{0, 0}, beside{0, 0};
  const int own = 1 + group, next = 1 + (group + 1) % kGroups;
  if (kTurns != kFree && group == kGroups - 1) turn_give(1);

  float s[kScores] = {}, o[64], sum[2];
  uint32_t held[kHeld ? 8 : 1][4];
  uint32_t packed[kScores / 2], side[kForm == kBias ? kScores / 2 : kScores / 4];

  const auto load_bias = [&](int n, uint32_t (&r)[4]) {
    const uint32_t from = base + P::kBesideAt + beside.slot * P::kBesideBytes;
    const int chunk = ((n % 4 * 2 + lane / 16) ^ (row % 8)) * 16;
    load_matrices(r, from + n / 4 * (P::kRows * 128) + row * 128 + chunk);
  };
  const auto release_side = [&]() {
    if constexpr (P::kBesideBytes > 0) {
      __syncwarp();
      if (lane == 0) barrier_arrive(free_of(barriers, kBesideRing, beside));
      beside.next<2>();
    }
  };
  const auto load_side = [&]() {
    if constexpr (P::kBesideBytes > 0) {
      barrier_wait(full(barriers, kBesideRing, beside), beside.parity);
      const uint32_t from = base + P::kBesideAt + beside.slot * P::kBesideBytes;
      if constexpr (kForm == kBias && kHeld) {
        return;
      } else if constexpr (kForm == kBias) {
#pragma unroll
        for (int n = 0; n < kKeys / 16; ++n) {
          uint32_t r[4];
          load_bias(n, r);
          for (int i = 0; i < 4; ++i) side[4 * n + i] = r[i];
        }
      } else {
        static_assert(kKeys == 128 || P::kBesideBytes == 0 || kForm == kBias, "rows of 128 bytes");
#pragma unroll
        for (int n = 0; n < kKeys / 32; ++n) {
          uint32_t r[4];
          load_matrices(r, from + row * 128 + ((n * 2 + lane / 16) ^ (row % 8)) * 16);
          for (int i = 0; i < 4; ++i) side[4 * n + i] = r[i];
        }
      }
      release_side();
    }
  };
  const auto combine = [&]() {
    // bits 0 to 6 of each byte: seven words of bytes that are 0 or 1
    if constexpr (kForm == kMaskBits) {
#pragma unroll
      for (int first = 0; first < kScores / 4; first += 7) {
        const int last = first + 7 < kScores / 4 ? first + 6 : kScores / 4 - 1;
        uint32_t bits = side[last];
#pragma unroll
        for (int i = last - 1; i >= first; --i) bits = bits * 2 + side[i];
        side[first] = bits;
      }
    }
  };
  const auto besides = [&](int i) {
    if constexpr (kForm == kBias) {
      const uint32_t pair = side[i / 2];
      const float wide = __uint_as_float(i % 2 ? pair & 0xffff0000u : pair << 16);
      s[i] = fmaf(s[i], a.scale, wide);
    } else if constexpr (kForm == kMaskBytes || kForm == kMaskBits) {
      // of 16 keys a thread has four that lie together: 8 scores of two rows
      const int word = i / 8 * 2 + i % 4 / 2, byte = i % 8 / 4 * 2 + i % 2;
      bool seen;
      if constexpr (kForm == kMaskBytes) {
        seen = side[word] & (0xffu << (8 * byte));
      } else {
        seen = side[word / 7 * 7] & (1u << (8 * byte + word % 7));
      }
      s[i] = seen ? s[i] : __int_as_float(0xff800000);
    } else if constexpr (kForm == kCap) {
      const float x = s[i] * by;
      const float z = x * x;
      float p = fmaf(0.016458713f, z, -0.052684117f);
      p = fmaf(p, z, 0.1332094f);
      p = fmaf(p, z, -0.3333296f);
      s[i] = x * fmaf(p, z, 1.0f);
    }
  };
  // the first tile of keys of a window that has all of them, and the last one
  const auto edges = [&](int t, int trips) {
    if constexpr (kForm == kWindow) {
      const bool from = t == 0 && trips == a.trips, upto = t == trips - 1;
      const int at = group * 64 + warp * 16 + lane / 4 - lane % 4 * 2;
      if (from || upto) {
#pragma unroll
        for (int i = 0; i < kScores; ++i) {
          const int key = i / 4 * 8 + i % 2 - i % 4 / 2 * 8;
          s[i] = (from ? key > at : key <= at) ? s[i] : __int_as_float(0xff800000);
        }
      }
    }
  };
  // the polynomial is right for small arguments: a look at the largest one
  const auto far = [&]() {
    float largest = 0.0f;
    if constexpr (kForm == kCap) {
#pragma unroll
      for (int i = 0; i < kScores; ++i) largest = fmaxf(largest, fabsf(s[i] * by));
    }
    return __any_sync(0xffffffffu, largest >= 0.55f);
  };
  const auto all_besides = [&]() {
    combine();
    if constexpr (kForm == kMaskBits) {
#pragma unroll
      for (int first = 0; first < kScores / 4; first += 7) {
#pragma unroll
        for (int byte = 0; byte < 4; ++byte) {
#pragma unroll
          for (int bit = 0; bit < 7; ++bit) {
            const int word = first + bit;
            if (word < kScores / 4) besides(word / 2 * 8 + byte / 2 * 4 + word % 2 * 2 + byte % 2);
          }
        }
      }
    } else if constexpr (kForm == kBias && kHeld) {
#pragma unroll
      for (int n = 0; n < kKeys / 16; ++n) {
        uint32_t r[4];
        load_bias(n, r);
        for (int i = 0; i < 4; ++i) side[4 * n + i] = r[i];
        for (int i = 0; i < 8; ++i) besides(8 * n + i);
      }
    } else {
#pragma unroll
      for (int i = 0; i < kScores; ++i) besides(i);
    }
  };
  const float factor = kForm == kBias ? in_bits : kForm == kCap ? a.cap * in_bits : a.scale * in_bits;
  const auto weights = [&](bool late) {
#pragma unroll
    for (int i = 0; i < kScores; i += 2) {
      float p[2];
#pragma unroll
      for (int n = 0; n < 2; ++n) {
        if (late) besides(i + n);
        asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(p[n]) : "f"(fmaf(s[i + n], factor, -8.0f)));
        sum[i / 2 % 2] += p[n];
      }
      packed[i / 2] = pack(p[0], p[1]);
    }
  };
  const auto multiply_keys = [&]() {
    constexpr int kPanel = P::kRows * 128, kKeyPanel = kKeys * 128;
    const uint64_t left = descriptor(base + query.slot * P::kQueryBytes + group * 8192, 1);
    const uint64_t right = descriptor(base + P::kKeysAt + key.slot * P::kKeyBytes, 1);
    fence();
#pragma unroll
    for (int i = 0; i < 8; ++i) {
      if constexpr (kHeld) {
        if (i == 0) {
          multiply_scores<true>(s, held[i], right + i % 4 * 2 + i / 4 * (kKeyPanel >> 4));
        } else {
          multiply_scores<false>(s, held[i], right + i % 4 * 2 + i / 4 * (kKeyPanel >> 4));
        }
        continue;
      }
      const int a_step = i % 4 * 2 + i / 4 * (kPanel >> 4), b_step = i % 4 * 2 + i / 4 * (kKeyPanel >> 4);
      if (i == 0) {
        multiply_scores<true>(s, left + a_step, right + b_step);
      } else {
        multiply_scores<false>(s, left + a_step, right + b_step);
      }
    }
    commit();
  };
  const auto multiply_values = [&]() {
    const uint64_t right =
        descriptor(base + P::kValuesAt + value.slot * P::kKeyBytes, kKeys * 128 >> 4);
    fence();
#pragma unroll
    for (int i = 0; i < kKeys / 16; ++i) {
      const uint32_t left[4] = {packed[4 * i], packed[4 * i + 1], packed[4 * i + 2],
                                packed[4 * i + 3]};
      multiply_registers(o, left, right + i * 128);
    }
    commit();
  };

  long long begin = clock64(), begin_ns;
  asm volatile("mov.u64 %0, %globaltimer;" : "=l"(begin_ns));
  Place before{0, 0};
  bool storing = false;
  // the first product of an instance, where it begins or ahead
  const auto begin_instance = [&]() {
    barrier_wait(full(barriers, kQueryRing, query), query.parity);
    if constexpr (kHeld) {
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int chunk = ((i % 4 * 2 + lane / 16) ^ (row % 8)) * 16;
        load_matrices(held[i], base + query.slot * P::kQueryBytes + i / 4 * (P::kRows * 128) + row * 128 + chunk);
      }
    }
    barrier_wait(full(barriers, kKeyRing, key), key.parity);
    if (kTurns == kDone && !(kAhead && storing)) turn_wait(own);
    multiply_keys();
  };
  if (kAhead) begin_instance();
  Instance now{};
  int turn = 0;
  for (bool any = find_instance<kForm>(a, turn, &now); any;) {
    const int tile = now.tile, plane = now.plane, trips = now.trips;
    if (!kAhead) begin_instance();
    load_side();
    sum[0] = sum[1] = 0.0f;
#pragma unroll
    for (int i = 0; i < 64; ++i) o[i] = 0.0f;
    wait<0>();
    for (int i = 0; i < kScores; ++i) asm volatile("" : "+f"(s[i]));
    if (kTurns == kDone && !(kAhead && storing)) turn_give(next);
    if (lane == 0) barrier_arrive(free_of(barriers, kKeyRing, key));
    key.next<2>();
    constexpr bool kApart = kForm == kMaskBits || (kForm == kBias && kHeld);
    if (kApart) all_besides();
    edges(0, trips);
    if (kForm == kBias && kHeld) release_side();
    weights(!kApart);
    if (P::kQuerySlots == 2 && storing) {
      if (lane == 0) {
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        barrier_arrive(free_of(barriers, kQueryRing, before));
      }
    }
    for (int t = 1; t < trips; ++t) {
      barrier_wait(full(barriers, kKeyRing, key), key.parity);
      if (kTurns != kFree) turn_wait(own);
      multiply_keys();
      barrier_wait(full(barriers, kValueRing, value), value.parity);
      multiply_values();
      if (kTurns == kStarted) turn_give(next);
      load_side();
      wait<1>();
      for (int i = 0; i < kScores; ++i) asm volatile("" : "+f"(s[i]));
      if (kTurns == kDone) turn_give(next);
      if (lane == 0) barrier_arrive(free_of(barriers, kKeyRing, key));
      key.next<2>();
      edges(t, trips);
      if constexpr (kEarly && kForm != kPlain) {
        // both arms give the values: nothing moves behind the wait
        if (__builtin_expect(kForm == kCap ? far() : a.never != 0, 0)) {
          asm volatile("");
#pragma unroll
          for (int i = 0; i < kScores; ++i) s[i] = s[i] * s[i];
        } else {
          all_besides();
        }
        if (kForm == kBias && kHeld) release_side();
      }
      wait<0>();
      for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(o[i]));
      if (lane == 0) barrier_arrive(free_of(barriers, kValueRing, value));
      value.next<2>();
      if (!kEarly && kForm == kMaskBits) all_besides();
      weights(!kEarly && kForm != kMaskBits);
    }
    any = find_instance<kForm>(a, ++turn, &now);
    barrier_wait(full(barriers, kValueRing, value), value.parity);
    if (kAhead && kTurns != kFree) turn_wait(own);
    multiply_values();
    const Place done = query;
    before = query;
    storing = true;
    query.next<P::kQuerySlots>();
    if constexpr (kAhead) {
      begin_instance();
      if (kTurns == kStarted) turn_give(next);
    }
    float total[2];
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      total[i] = sum[i] + __shfl_xor_sync(0xffffffffu, sum[i], 1);
      total[i] += __shfl_xor_sync(0xffffffffu, total[i], 2);
      asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(total[i]) : "f"(total[i]));
    }
    wait<kAhead ? 1 : 0>();
    for (int i = 0; i < 64; ++i) asm volatile("" : "+f"(o[i]));
    if (kAhead && kTurns == kDone) turn_give(next);
    if (lane == 0) barrier_arrive(free_of(barriers, kValueRing, value));
    value.next<2>();
    // the result goes where the queries of its rows were, which all warps of the group have read
    asm volatile("bar.sync %0, 128;" ::"r"(5 + group) : "memory");
    const uint32_t to = base + done.slot * P::kQueryBytes;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int i = 8 * n;
      const uint32_t r[4] = {
          pack(o[i] * total[0], o[i + 1] * total[0]), pack(o[i + 2] * total[1], o[i + 3] * total[1]),
          pack(o[i + 4] * total[0], o[i + 5] * total[0]),
          pack(o[i + 6] * total[1], o[i + 7] * total[1])};
      const int chunk = ((n % 4 * 2 + lane / 16) ^ (row % 8)) * 16;
      store_matrices(to + n / 4 * (P::kRows * 128) + row * 128 + chunk, r);
    }
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    __syncwarp();
    if (lane == 0) {
      const int first = group * 64 + warp * 16;
      for (int col = 0; col < kWidth; col += 64) {
        store_3d(a.result, to + col * P::kRows * 2 + first * 128, col, tile * P::kRows + first,
                 plane);
      }
      asm volatile("cp.async.bulk.commit_group;" ::: "memory");
      if (P::kQuerySlots == 1) {
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
        barrier_arrive(free_of(barriers, kQueryRing, done));
      }
    }
  }
  if constexpr (kAhead) {
    wait<0>();
    for (int i = 0; i < kScores; ++i) asm volatile("" : "+f"(s[i]));
  }
  if (lane == 0) asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
  if (kTurns != kFree && group == 0) turn_wait(1);
  if (threadIdx.x == 0) {
    long long end_ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(end_ns));
    a.clocks[blockIdx.x] = clock64() - begin;
    a.nanoseconds[blockIdx.x] = end_ns - begin_ns;
  }
}

template <int kForm, int kGroups, int kKeys, bool kEarly, Turns kTurns, bool kHeld, bool kAhead>
__global__ void __launch_bounds__(kGroups * 128 + 128, 1) loaded(const __grid_constant__ Arguments a) {
  using P = Places<kForm, kGroups, kKeys>;
  extern __shared__ unsigned char storage[];
  const uint32_t base = __shfl_sync(0xffffffffu, (shared_address(storage) + 1023) / 1024 * 1024, 0);
  if (threadIdx.x == 0) {
    for (int ring = 0; ring < 4; ++ring) {
      for (int slot = 0; slot < 2; ++slot) {
        barrier_init(base + P::kBarriersAt + ring * 32 + slot * 8, 1);
        barrier_init(base + P::kBarriersAt + ring * 32 + slot * 8 + 16, kGroups * 4);
      }
    }
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
  }
  __syncthreads();
  if (threadIdx.x >= kGroups * 128) {
    registers_give<kGroups == 2 ? 40 : 32>();
    if (threadIdx.x / 32 == kGroups * 4 && elected()) produce<kForm, kGroups, kKeys, kAhead>(a, base);
  } else {
    registers_take<kGroups == 2 ? 232 : 160>();
    consume<kForm, kGroups, kKeys, kEarly, kTurns, kHeld, kAhead>(a, base);
  }
}

struct Named {
  const char* name;
  int form, groups, keys, early, turns, held, ahead, trips, bytes;
  void (*kernel)(Arguments);
};

/// `trips`: of an instance of a window, at most.
template <int kForm, int kGroups, int kKeys, bool kEarly, Turns kTurns, bool kHeld = false,
          bool kAhead = false>
constexpr Named named(const char* name, int trips = 0) {
  return {name,
          kForm,
          kGroups,
          kKeys,
          kEarly,
          kTurns,
          kHeld,
          kAhead,
          trips,
          Places<kForm, kGroups, kKeys>::kBytes,
          loaded<kForm, kGroups, kKeys, kEarly, kTurns, kHeld, kAhead>};
}

const Named kForms[] = {
    named<kPlain, 2, 128, false, kStarted>("plain"),
    named<kPlain, 3, 64, false, kStarted>("plain"),
    named<kMaskBytes, 2, 128, true, kStarted>("mask"),
    named<kMaskBits, 2, 128, false, kStarted>("mask, as bits"),
    named<kMaskBits, 2, 128, false, kStarted, true>("mask, as bits"),
    named<kMaskBits, 2, 128, true, kStarted, true>("mask, as bits"),
    named<kBias, 2, 128, true, kStarted>("bias"),
    named<kBias, 3, 64, true, kStarted>("bias"),
    named<kCap, 3, 64, true, kStarted>("soft cap"),
    named<kCap, 3, 64, false, kStarted>("soft cap"),
    named<kWindow, 2, 128, false, kStarted>("window", 9),
    named<kWindow, 2, 128, false, kDone>("window", 9),
    named<kWindow, 2, 128, false, kDone, false, true>("window", 9),
};

using Encode = decltype(&cuTensorMapEncodeTiled);

Encode find_encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer{};
  cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found, 12000, cudaEnableDefault,
                                   &answer);
  return reinterpret_cast<Encode>(found);
}

/// A map of `rank` axes, the fastest first; false where the driver refuses it.
bool make_map(CUtensorMap* map, const void* tensor, bool bytes, int rank, const cuuint64_t* dims,
              const cuuint64_t* strides, const cuuint32_t* box) {
  static const Encode encode = find_encoder();
  const cuuint32_t steps[5] = {1, 1, 1, 1, 1};
  return encode(map, bytes ? CU_TENSOR_MAP_DATA_TYPE_UINT8 : CU_TENSOR_MAP_DATA_TYPE_BFLOAT16, rank,
                const_cast<void*>(tensor), dims, strides, box, steps,
                CU_TENSOR_MAP_INTERLEAVE_NONE, CU_TENSOR_MAP_SWIZZLE_128B,
                CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
                CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE) == CUDA_SUCCESS;
}

bool make_map(CUtensorMap* map, const void* tensor, bool bytes, int columns, int rows, int planes,
              int box_columns, int box_rows) {
  const cuuint64_t size = bytes ? 1 : 2;
  const cuuint64_t dims[] = {cuuint64_t(columns), cuuint64_t(rows), cuuint64_t(planes)};
  const cuuint64_t strides[] = {columns * size, columns * size * rows};
  const cuuint32_t box[] = {cuuint32_t(box_columns), cuuint32_t(box_rows), 1};
  return make_map(map, tensor, bytes, 3, dims, strides, box);
}

/// Of 16 keys those behind each other that the two words of a thread's scores have.
bool make_permuted(CUtensorMap* map, const void* tensor, int rows, int box_rows) {
  const cuuint64_t row = kWidth * 2;
  const cuuint64_t dims[] = {kWidth, 2, 4, 2, cuuint64_t(rows / 16)};
  const cuuint64_t strides[] = {row, 4 * row, 2 * row, 16 * row};
  const cuuint32_t box[] = {64, 2, 4, 2, cuuint32_t(box_rows / 16)};
  return make_map(map, tensor, false, 5, dims, strides, box);
}

}  // namespace

extern "C" int forms() { return sizeof(kForms) / sizeof(kForms[0]); }
extern "C" const char* form_name(int n) { return kForms[n].name; }
/// Rows and keys of a tile; whether what is besides is early, and which turns; 0 plain, 1 and 2 masks, 3 bias, 4 soft cap; whether queries are in
/// registers; whether an instance's first product starts ahead; trips of an instance of a window at most.
extern "C" int form_number(int n, int which) {
  const Named& f = kForms[n];
  const int numbers[] = {f.groups * 64, f.keys, f.early, f.turns,
                         f.form,        f.held, f.ahead, f.trips};
  return numbers[which];
}

struct Operands {
  const void *q, *k, *v, *beside;
  void *o, *clocks, *nanoseconds;
};

/// `trips` of an instance, which walk round and round through the keys; `instances`, which walk so through the rows of all heads.
extern "C" int run_form(int n, const Operands* x, int ctas, int batches, int heads, int length,
                        int trips, int instances, float scale, float cap) {
  const Named& f = kForms[n];
  const int rows = f.groups * 64;
  Arguments a;
  std::memset(&a, 0, sizeof a);
  a.tiles = (length + rows - 1) / rows;
  a.heads = heads;
  a.batches = batches;
  a.key_tiles = length / f.keys;
  a.trips = trips;
  a.instances = instances;
  a.batch_first = f.form == kBias;
  a.walks = instances / (a.tiles * heads * batches);
  a.scale = scale;
  a.cap = cap;
  a.clocks = static_cast<long long*>(x->clocks);
  a.nanoseconds = static_cast<long long*>(x->nanoseconds);
  const int planes = heads * batches;
  bool made = make_map(&a.queries, x->q, false, kWidth, length, planes, 64, rows) &&
              make_map(&a.result, x->o, false, kWidth, length, planes, 64, 16);
  if (f.form == kMaskBytes || f.form == kMaskBits) {
    made = made && make_permuted(&a.keys, x->k, length * planes, f.keys) &&
           make_permuted(&a.values, x->v, length * planes, f.keys) &&
           make_map(&a.beside, x->beside, true, length, length, batches, f.keys, rows);
  } else {
    made = made && make_map(&a.keys, x->k, false, kWidth, length, planes, 64, f.keys) &&
           make_map(&a.values, x->v, false, kWidth, length, planes, 64, f.keys);
    if (f.form == kBias) {
      made = made && make_map(&a.beside, x->beside, false, length, length, heads, 64, rows);
    }
  }
  if (!made) return -1;
  cudaFuncSetAttribute(f.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, f.bytes);
  f.kernel<<<ctas, f.groups * 128 + 128, f.bytes>>>(a);
  return cudaGetLastError();
}
