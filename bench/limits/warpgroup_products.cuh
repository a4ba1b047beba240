// Products of warpgroups and random operands, for the limits that are measured here.
#pragma once
#include <cuda_runtime.h>

#include <cstdint>

namespace {

constexpr int kSlab = 16384;  // 128 rows of 64 elements of 16 bits, swizzled by 128 bytes

__device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}

__device__ __forceinline__ uint64_t descriptor(uint32_t address, uint32_t leading) {
  const uint32_t low = (address >> 4 & 0x3fffu) | leading << 16;
  return static_cast<uint64_t>(64u | 1u << 30) << 32 | low;
}

#define SUMS(d)                                                                                    \
  "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3]), "+f"(d[4]), "+f"(d[5]), "+f"(d[6]), "+f"(d[7]),  \
      "+f"(d[8]), "+f"(d[9]), "+f"(d[10]), "+f"(d[11]), "+f"(d[12]), "+f"(d[13]), "+f"(d[14]),     \
      "+f"(d[15]), "+f"(d[16]), "+f"(d[17]), "+f"(d[18]), "+f"(d[19]), "+f"(d[20]), "+f"(d[21]),   \
      "+f"(d[22]), "+f"(d[23]), "+f"(d[24]), "+f"(d[25]), "+f"(d[26]), "+f"(d[27]), "+f"(d[28]),   \
      "+f"(d[29]), "+f"(d[30]), "+f"(d[31]), "+f"(d[32]), "+f"(d[33]), "+f"(d[34]), "+f"(d[35]),   \
      "+f"(d[36]), "+f"(d[37]), "+f"(d[38]), "+f"(d[39]), "+f"(d[40]), "+f"(d[41]), "+f"(d[42]),   \
      "+f"(d[43]), "+f"(d[44]), "+f"(d[45]), "+f"(d[46]), "+f"(d[47]), "+f"(d[48]), "+f"(d[49]),   \
      "+f"(d[50]), "+f"(d[51]), "+f"(d[52]), "+f"(d[53]), "+f"(d[54]), "+f"(d[55]), "+f"(d[56]),   \
      "+f"(d[57]), "+f"(d[58]), "+f"(d[59]), "+f"(d[60]), "+f"(d[61]), "+f"(d[62]), "+f"(d[63])
#define NAMES                                                                                      \
  "{%0, %1, %2, %3, %4, %5, %6, %7, %8, %9, %10, %11, %12, %13, %14, %15, %16, %17, %18, %19, "    \
  "%20, %21, %22, %23, %24, %25, %26, %27, %28, %29, %30, %31, %32, %33, %34, %35, %36, %37, "     \
  "%38, %39, %40, %41, %42, %43, %44, %45, %46, %47, %48, %49, %50, %51, %52, %53, %54, %55, "     \
  "%56, %57, %58, %59, %60, %61, %62, %63}"

/// `kFresh`: what was in `d` before does not count.
template <bool kFresh = false>
__device__ __forceinline__ void multiply_shared(float (&d)[64], uint64_t a, uint64_t b) {
  asm volatile("{.reg .pred more; setp.ne.b32 more, %66, 0;\n"
               "wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " NAMES
               ", %64, %65, more, 1, 1, 0, 0;}"
               : SUMS(d)
               : "l"(a), "l"(b), "n"(kFresh ? 0 : 1));
}

__device__ __forceinline__ void multiply_registers(float (&d)[64], const uint32_t (&a)[4], uint64_t b) {
  asm volatile("wgmma.mma_async.sync.aligned.m64n128k16.f32.bf16.bf16 " NAMES
               ", {%64, %65, %66, %67}, %68, 1, 1, 1, 1;"
               : SUMS(d)
               : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(b));
}

__device__ __forceinline__ void fence() { asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }
__device__ __forceinline__ void commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory");
}
template <int kPending>
__device__ __forceinline__ void wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" ::"n"(kPending) : "memory");
}

// Random values of bf16 between 1/128 and 2 of both signs: bits toggle as those of real data do.
__device__ __forceinline__ uint32_t random_pair(uint32_t& state) {
  state = state * 1664525u + 1013904223u;
  const uint32_t high = state >> 16;
  state = state * 1664525u + 1013904223u;
  const uint32_t low = state >> 16;
  const auto one = [](uint32_t x) { return (x & 0x807fu) | (0x78u + (x >> 8 & 7u)) << 7; };
  return one(high) << 16 | one(low);
}

}  // namespace
