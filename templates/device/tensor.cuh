//! Tensor cores and what feeds them: one wrapper for one instruction. Fragment layouts are those of
//! the PTX ISA.
//@ primitive shared_address includes <cstdint>
/// The address of a place in shared memory as the instructions below take it.
[[maybe_unused]] __device__ __forceinline__ uint32_t shared_address(const void* p) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(p));
}
//@ end

//@ primitive copy_at_once includes <cstdint>
/// What stands in for an asynchronous copy before sm_80: the first `bytes` of kBytes, then zeros.
template <int kBytes>
__device__ __forceinline__ void copy_at_once(void* to, const void* from, int bytes) {
  if (bytes >= kBytes) {
#pragma unroll
    for (int i = 0; i < kBytes / 4; ++i) {
      static_cast<uint32_t*>(to)[i] = static_cast<const uint32_t*>(from)[i];
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kBytes; ++i) {
    unsigned char byte = 0;
    if (i < bytes) byte = static_cast<const unsigned char*>(from)[i];
    static_cast<unsigned char*>(to)[i] = byte;
  }
}
//@ end

//@ primitive cp_async_partial needs shared_address copy_at_once
/// Starts a copy of kBytes (4, 8 or 16) from global to shared memory, both aligned to them: the
/// first `bytes` are read, the others become zero. With 16 it passes by the L1 cache.
template <int kBytes>
__device__ __forceinline__ void cp_async_partial(void* to, const void* from, int bytes) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "what cp.async copies");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
  copy_at_once<kBytes>(to, from, bytes);
#else
  if constexpr (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;"
                 :
                 : "r"(shared_address(to)), "l"(from), "r"(bytes)
                 : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;"
                 :
                 : "r"(shared_address(to)), "l"(from), "n"(kBytes), "r"(bytes)
                 : "memory");
  }
#endif
}
//@ end

//@ primitive cp_async needs cp_async_partial
/// The same, all bytes; zeros where it is not `valid`, and then `from` is not read.
template <int kBytes>
__device__ __forceinline__ void cp_async(void* to, const void* from, bool valid = true) {
  cp_async_partial<kBytes>(to, from, valid ? kBytes : 0);
}
//@ end

//@ primitive cp_async_commit
/// Makes a group of the copies that this thread has started since the last one.
[[maybe_unused]] __device__ __forceinline__ void cp_async_commit() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.commit_group;" : : : "memory");
#endif
}
//@ end

//@ primitive cp_async_wait
/// Waits until at most kGroups of this thread's groups are under way, the youngest ones.
template <int kGroups>
__device__ __forceinline__ void cp_async_wait() {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm volatile("cp.async.wait_group %0;" : : "n"(kGroups) : "memory");
#endif
}
//@ end

//@ primitive ldmatrix_x1 needs shared_address includes <cstdint>
/// One 8 by 8 matrix of 16-bit elements: lanes 0 to 7 give the addresses of its rows.
[[maybe_unused]] __device__ __forceinline__ void ldmatrix_x1(uint32_t (&r)[1], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.shared.b16 {%0}, [%1];"
               : "=r"(r[0])
               : "r"(shared_address(row))
               : "memory");
}
//@ end

//@ primitive ldmatrix_x2 needs shared_address includes <cstdint>
/// Two matrices; lanes 8m to 8m + 7 give the rows of matrix m.
[[maybe_unused]] __device__ __forceinline__ void ldmatrix_x2(uint32_t (&r)[2], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}
//@ end

//@ primitive ldmatrix_x4 needs shared_address includes <cstdint>
/// Four matrices; lanes 8m to 8m + 7 give the rows of matrix m.
[[maybe_unused]] __device__ __forceinline__ void ldmatrix_x4(uint32_t (&r)[4], const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
//@ end

//@ primitive ldmatrix_x1_trans needs shared_address includes <cstdint>
/// One matrix, transposed on the way.
[[maybe_unused]] __device__ __forceinline__ void ldmatrix_x1_trans(uint32_t (&r)[1],
                                                                   const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x1.trans.shared.b16 {%0}, [%1];"
               : "=r"(r[0])
               : "r"(shared_address(row))
               : "memory");
}
//@ end

//@ primitive ldmatrix_x2_trans needs shared_address includes <cstdint>
/// Two matrices, each transposed on the way.
[[maybe_unused]] __device__ __forceinline__ void ldmatrix_x2_trans(uint32_t (&r)[2],
                                                                   const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x2.trans.shared.b16 {%0, %1}, [%2];"
               : "=r"(r[0]), "=r"(r[1])
               : "r"(shared_address(row))
               : "memory");
}
//@ end

//@ primitive ldmatrix_x4_trans needs shared_address includes <cstdint>
/// Four matrices, each transposed on the way.
[[maybe_unused]] __device__ __forceinline__ void ldmatrix_x4_trans(uint32_t (&r)[4],
                                                                   const void* row) {
  asm volatile("ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16 {%0, %1, %2, %3}, [%4];"
               : "=r"(r[0]), "=r"(r[1]), "=r"(r[2]), "=r"(r[3])
               : "r"(shared_address(row))
               : "memory");
}
//@ end

//@ primitive stmatrix_x2 needs shared_address includes <cstdint>
/// Two 8 by 8 matrices of 16-bit elements to shared memory, rows as for ldmatrix_x2; since sm_90.
[[maybe_unused]] __device__ __forceinline__ void stmatrix_x2(void* row, const uint32_t (&r)[2]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x2.shared.b16 [%0], {%1, %2};"
               :
               : "r"(shared_address(row)), "r"(r[0]), "r"(r[1])
               : "memory");
}
//@ end

//@ primitive stmatrix_x4 needs shared_address includes <cstdint>
/// Four matrices, rows as for ldmatrix_x4; since sm_90.
[[maybe_unused]] __device__ __forceinline__ void stmatrix_x4(void* row, const uint32_t (&r)[4]) {
  asm volatile("stmatrix.sync.aligned.m8n8.x4.shared.b16 [%0], {%1, %2, %3, %4};"
               :
               : "r"(shared_address(row)), "r"(r[0]), "r"(r[1]), "r"(r[2]), "r"(r[3])
               : "memory");
}
//@ end

//@ primitive permute_bytes includes <cstdint>
/// Four of the eight bytes of (low, high), by the hexadecimal digits of `chosen`, the last one for
/// the lowest byte (PTX ISA, prmt).
[[maybe_unused]] __device__ __forceinline__ uint32_t permute_bytes(uint32_t low, uint32_t high,
                                                                   uint32_t chosen) {
  uint32_t result;
  asm("prmt.b32 %0, %1, %2, %3;" : "=r"(result) : "r"(low), "r"(high), "r"(chosen));
  return result;
}
//@ end

//@ primitive movmatrix_trans includes <cstdint>
/// The transposed 8 by 8 matrix of 16-bit elements of which each lane holds a word: elements
/// (lane / 4, 2·(lane % 4)) and the one to its right, before and after.
[[maybe_unused]] __device__ __forceinline__ uint32_t movmatrix_trans(uint32_t word) {
  uint32_t result;
  asm volatile("movmatrix.sync.aligned.m8n8.trans.b16 %0, %1;" : "=r"(result) : "r"(word));
  return result;
}
//@ end

//@ primitive mma_m16n8k16_f16 includes <cstdint>
/// d += a·b of 16 by 16 and 16 by 8 f16 elements.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k16_f16(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//@ end

//@ primitive mma_m16n8k16_bf16 includes <cstdint>
/// d += a·b of 16 by 16 and 16 by 8 bf16 elements.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k16_bf16(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//@ end

//@ primitive mma_m16n8k8_f16 includes <cstdint>
/// d += a·b of 16 by 8 and 8 by 8 f16 elements.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k8_f16(
    float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.f16.f16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
//@ end

//@ primitive mma_m16n8k8_bf16 includes <cstdint>
/// d += a·b of 16 by 8 and 8 by 8 bf16 elements.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k8_bf16(
    float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.bf16.bf16.f32 "
      "{%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(b[0]));
}
//@ end

//@ primitive mma_m16n8k8_tf32 includes <cstdint>
/// d += a·b of 16 by 8 and 8 by 8 floats, whose lower 13 bits do not count.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k8_tf32(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//@ end

//@ primitive mma_m16n8k32_s8 includes <cstdint>
/// d += a·b of 16 by 32 and 32 by 8 s8 elements; sums wrap.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k32_s8(
    int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.s8.s8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//@ end

//@ primitive mma_m16n8k32_u8 includes <cstdint>
/// d += a·b of 16 by 32 and 32 by 8 u8 elements; sums wrap.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k32_u8(
    int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.s32.u8.u8.s32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+r"(d[0]), "+r"(d[1]), "+r"(d[2]), "+r"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//@ end

//@ primitive mma_m16n8k32_e4m3 includes <cstdint>
/// d += a·b of 16 by 32 and 32 by 8 f8e4m3 elements; since sm_89, toolkit 12.4.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k32_e4m3(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//@ end

//@ primitive mma_m16n8k32_e5m2 includes <cstdint>
/// d += a·b of 16 by 32 and 32 by 8 f8e5m2 elements; since sm_89, toolkit 12.4.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k32_e5m2(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e5m2.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//@ end

//@ primitive mma_m16n8k32_e4m3_e5m2 includes <cstdint>
/// d += a·b of 16 by 32 f8e4m3 and 32 by 8 f8e5m2 elements; since sm_89, toolkit 12.4.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k32_e4m3_e5m2(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e4m3.e5m2.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//@ end

//@ primitive mma_m16n8k32_e5m2_e4m3 includes <cstdint>
/// d += a·b of 16 by 32 f8e5m2 and 32 by 8 f8e4m3 elements; since sm_89, toolkit 12.4.
[[maybe_unused]] __device__ __forceinline__ void mma_m16n8k32_e5m2_e4m3(
    float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2]) {
  asm("mma.sync.aligned.m16n8k32.row.col.f32.e5m2.e4m3.f32 "
      "{%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
      : "+f"(d[0]), "+f"(d[1]), "+f"(d[2]), "+f"(d[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
//@ end

//@ primitive mma_m8n8k4_f64
/// d += a * b on one warp, 8 by 4 and 4 by 8 doubles.
[[maybe_unused]] __device__ __forceinline__ void mma_m8n8k4_f64(double (&d)[2], double a,
                                                                double b) {
#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 800
  asm("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
      : "+d"(d[0]), "+d"(d[1])
      : "d"(a), "d"(b));
#endif
}
//@ end

//@ primitive named_barrier_sync
/// Waits at barrier `id` (1 to 15) until `threads` threads, whole warps, have come to it.
[[maybe_unused]] __device__ __forceinline__ void named_barrier_sync(int id, int threads) {
  asm volatile("bar.sync %0, %1;" : : "r"(id), "r"(threads) : "memory");
}
//@ end

//@ primitive named_barrier_arrive
/// Comes to barrier `id` without waiting.
[[maybe_unused]] __device__ __forceinline__ void named_barrier_arrive(int id, int threads) {
  asm volatile("bar.arrive %0, %1;" : : "r"(id), "r"(threads) : "memory");
}
//@ end

//@ primitive tf32_t
/// Names f32 operands that a product rounds to tf32.
struct tf32_t;
//@ end

//@ primitive WmmaElement
/// How nvcuda::wmma knows an element: `type` in fragments, `memory` in memory, the depth of a
/// block, and what is done to operands when they are loaded.
template <class T>
struct WmmaElement {
  using type = T;
  using memory = T;
  static constexpr int kDepth = 16;
  template <class Held>
  static __device__ __forceinline__ void round(Held&) {}
};
//@ end

//@ primitive wmma_element_f16 extends WmmaElement with f16_t includes <cuda_fp16.h>
template <>
struct WmmaElement<f16_t> {
  using type = __half;
  using memory = __half;
  static constexpr int kDepth = 16;
  template <class Held>
  static __device__ __forceinline__ void round(Held&) {}
};
//@ end

//@ primitive wmma_element_bf16 extends WmmaElement with bf16_t includes <cuda_bf16.h>
template <>
struct WmmaElement<bf16_t> {
  using type = __nv_bfloat16;
  using memory = __nv_bfloat16;
  static constexpr int kDepth = 16;
  template <class Held>
  static __device__ __forceinline__ void round(Held&) {}
};
//@ end

//@ primitive wmma_element_tf32 extends WmmaElement with tf32_t includes <mma.h>
template <>
struct WmmaElement<tf32_t> {
  using type = nvcuda::wmma::precision::tf32;
  using memory = float;
  static constexpr int kDepth = 8;
  template <class Held>
  static __device__ __forceinline__ void round(Held& held) {
#pragma unroll
    for (int i = 0; i < held.num_elements; ++i) {
      held.x[i] = nvcuda::wmma::__float_to_tf32(held.x[i]);
    }
  }
};
//@ end

//@ primitive WmmaLeft needs WmmaElement includes <mma.h> <type_traits>
/// A warp's block of the left operand, 16 rows by the element's depth; in memory, kRows says
/// whether rows are contiguous.
template <class T, bool kRows>
struct WmmaLeft {
  using Major = std::conditional_t<kRows, nvcuda::wmma::row_major, nvcuda::wmma::col_major>;
  using Element = WmmaElement<T>;
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_a, 16, 16, Element::kDepth, typename Element::type,
                         Major>
      held;
};
//@ end

//@ primitive WmmaRight needs WmmaElement includes <mma.h> <type_traits>
/// The same of the right operand, with 16 columns.
template <class T, bool kRows>
struct WmmaRight {
  using Major = std::conditional_t<kRows, nvcuda::wmma::row_major, nvcuda::wmma::col_major>;
  using Element = WmmaElement<T>;
  nvcuda::wmma::fragment<nvcuda::wmma::matrix_b, 16, 16, Element::kDepth, typename Element::type,
                         Major>
      held;
};
//@ end

//@ primitive WmmaSums includes <mma.h>
/// A warp's 16 by 16 sums. Which lane holds which is not specified. The fragment's depth is that of
/// its operands where it matters, and 16 where sums are only kept.
template <class T, int kDepth = 16>
struct WmmaSums {
  nvcuda::wmma::fragment<nvcuda::wmma::accumulator, 16, 16, kDepth, T> held;
};
//@ end

//@ primitive wmma_fill needs WmmaSums
/// Every sum becomes x.
template <class T, int kDepth>
__device__ __forceinline__ void wmma_fill(WmmaSums<T, kDepth>& sums, T x) {
  nvcuda::wmma::fill_fragment(sums.held, x);
}
//@ end

//@ primitive wmma_load
/// An operand from p, a multiple of 32 bytes; rows (or columns) lie `stride` elements apart, a
/// multiple of 16 bytes.
template <template <class, bool> class Operand, class T, bool kRows, class Stored>
__device__ __forceinline__ void wmma_load(Operand<T, kRows>& x, const Stored* p, unsigned stride) {
  using Element = typename Operand<T, kRows>::Element;
  static_assert(sizeof(typename Element::memory) == sizeof(Stored), "the element in memory");
  nvcuda::wmma::load_matrix_sync(x.held, reinterpret_cast<const typename Element::memory*>(p),
                                 stride);
  Element::round(x.held);
}
//@ end

//@ primitive wmma_multiply needs WmmaSums
/// sums += a * b.
template <class T, int kDepth, class Left, class Right>
__device__ __forceinline__ void wmma_multiply(WmmaSums<T, kDepth>& sums, const Left& a,
                                              const Right& b) {
  nvcuda::wmma::mma_sync(sums.held, a.held, b.held, sums.held);
}
//@ end

//@ primitive wmma_store needs WmmaSums
/// Sums to p by rows that lie `stride` elements apart, a multiple of 4; p is one of 32 bytes.
template <class T, int kDepth>
__device__ __forceinline__ void wmma_store(T* p, const WmmaSums<T, kDepth>& sums,
                                           unsigned stride) {
  nvcuda::wmma::store_matrix_sync(p, sums.held, stride, nvcuda::wmma::mem_row_major);
}
//@ end
