//! One wrapper per instruction or CUDA intrinsic: everything that a host compiler does not know
//! is here, in atomic.cuh, and in the shuffles of warp.cuh.
//@ primitive exp2_approx
/// ex2.approx.ftz: 2^x within 2 ulp, denormals flushed (PTX ISA, ex2; CUDA guide, __exp2f).
[[maybe_unused]] __device__ __forceinline__ float exp2_approx(float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ end

//@ primitive log2_approx
/// lg2.approx: absolute error 2^-22 in [0.5, 2], else 2 ulp; denormal x kept (CUDA guide, __log2f).
[[maybe_unused]] __device__ __forceinline__ float log2_approx(float x) {
  float y;
  asm("lg2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ end

//@ primitive reciprocal_approx
/// rcp.approx.ftz: 1/x within 1 ulp, denormals flushed (PTX ISA, rcp).
[[maybe_unused]] __device__ __forceinline__ float reciprocal_approx(float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ end

//@ primitive divide_full
/// div.full: x/y within 2 ulp over the full range (PTX ISA, div).
[[maybe_unused]] __device__ __forceinline__ float divide_full(float x, float y) {
  float z;
  asm("div.full.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
  return z;
}
//@ end

//@ primitive sqrt_approx
/// sqrt.approx: relative error 2^-23 (PTX ISA, sqrt); denormals kept.
[[maybe_unused]] __device__ __forceinline__ float sqrt_approx(float x) {
  float y;
  asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ end

//@ primitive rsqrt_approx
/// rsqrt.approx: relative error 2^-22.9 (PTX ISA, rsqrt); denormals kept.
[[maybe_unused]] __device__ __forceinline__ float rsqrt_approx(float x) {
  float y;
  asm("rsqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ end

//@ primitive tanh_approx
/// tanh.approx: relative error 2^-11 (PTX ISA, tanh).
[[maybe_unused]] __device__ __forceinline__ float tanh_approx(float x) {
  float y;
  asm("tanh.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
//@ end

//@ primitive divide_ieee
/// x/y, correctly rounded whatever the compiler's flags.
[[maybe_unused]] __device__ __forceinline__ float divide_ieee(float x, float y) {
  return __fdiv_rn(x, y);
}
[[maybe_unused]] __device__ __forceinline__ double divide_ieee(double x, double y) {
  return __ddiv_rn(x, y);
}
//@ end

//@ primitive leading_zeros includes <cstdint>
/// The number of zero bits above the highest one.
[[maybe_unused]] __device__ __forceinline__ int leading_zeros(uint64_t x) {
  return __clzll(static_cast<long long>(x));
}
//@ end

//@ primitive nearest_int
/// To the nearest integer, halves to the even one.
[[maybe_unused]] __device__ __forceinline__ int nearest_int(float x) { return __float2int_rn(x); }
[[maybe_unused]] __device__ __forceinline__ int nearest_int(double x) { return __double2int_rn(x); }
//@ end

//@ primitive sqrt_ieee
/// Square root, correctly rounded whatever the compiler's flags.
[[maybe_unused]] __device__ __forceinline__ float sqrt_ieee(float x) { return __fsqrt_rn(x); }
[[maybe_unused]] __device__ __forceinline__ double sqrt_ieee(double x) { return __dsqrt_rn(x); }
//@ end

//@ primitive rsqrt_ieee
/// Reciprocal square root, correctly rounded.
[[maybe_unused]] __device__ __forceinline__ float rsqrt_ieee(float x) { return __frsqrt_rn(x); }
//@ end

//@ primitive multiply_rounded
/// x*y, rounded: never contracted with an addition.
[[maybe_unused]] __device__ __forceinline__ double multiply_rounded(double x, double y) {
  return __dmul_rn(x, y);
}
//@ end

//@ primitive multiply_high includes <cstdint>
/// The upper 64 bits of a 64 by 64 bit product.
[[maybe_unused]] __device__ __forceinline__ uint64_t multiply_high(uint64_t x, uint64_t y) {
  return __umul64hi(x, y);
}
//@ end

//@ primitive truncate_saturate includes <cstdint> <type_traits>
/// Float to 32- and 64-bit integers: toward zero, saturating. A NaN gives an unspecified value.
template <class To, class From>
__device__ __forceinline__ To truncate_saturate(From x) {
  constexpr bool kDouble = std::is_same<From, double>::value;
  if constexpr (std::is_same<To, int32_t>::value) {
    if constexpr (kDouble) return __double2int_rz(x);
    else return __float2int_rz(x);
  } else if constexpr (std::is_same<To, uint32_t>::value) {
    if constexpr (kDouble) return __double2uint_rz(x);
    else return __float2uint_rz(x);
  } else if constexpr (std::is_same<To, int64_t>::value) {
    if constexpr (kDouble) return __double2ll_rz(x);
    else return __float2ll_rz(x);
  } else {
    static_assert(std::is_same<To, uint64_t>::value, "a 32- or 64-bit integer");
    if constexpr (kDouble) return __double2ull_rz(x);
    else return __float2ull_rz(x);
  }
}
//@ end

//@ primitive toward_zero includes <cstdint>
/// To float, rounded toward zero.
[[maybe_unused]] __device__ __forceinline__ float toward_zero(double x) {
  return __double2float_rz(x);
}
[[maybe_unused]] __device__ __forceinline__ float toward_zero(int32_t x) {
  return __int2float_rz(x);
}
[[maybe_unused]] __device__ __forceinline__ float toward_zero(uint32_t x) {
  return __uint2float_rz(x);
}
[[maybe_unused]] __device__ __forceinline__ float toward_zero(int64_t x) {
  return __ll2float_rz(x);
}
[[maybe_unused]] __device__ __forceinline__ float toward_zero(uint64_t x) {
  return __ull2float_rz(x);
}
//@ end

//@ primitive f16_to_float needs f16_t
/// Exact.
[[maybe_unused]] __device__ __forceinline__ float f16_to_float(f16_t x) {
  float y;
  asm("cvt.f32.f16 %0, %1;" : "=f"(y) : "h"(x.bits));
  return y;
}
//@ end

//@ primitive float_to_f16 needs f16_t
/// Nearest even.
[[maybe_unused]] __device__ __forceinline__ f16_t float_to_f16(float x) {
  f16_t y;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
}
//@ end

//@ primitive float_to_f16x2 needs float_to_f16 includes <cstdint>
/// Two floats to f16, `low` in the lower half of the word.
[[maybe_unused]] __device__ __forceinline__ uint32_t float_to_f16x2(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t y;
  asm("cvt.rn.f16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#else
  return float_to_f16(low).bits | static_cast<uint32_t>(float_to_f16(high).bits) << 16;
#endif
}
//@ end

//@ primitive float_to_bf16 needs bf16_t bitcast
/// Nearest even; a NaN becomes 0x7fff. One instruction since sm_80.
[[maybe_unused]] __device__ __forceinline__ bf16_t float_to_bf16(float x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  bf16_t y;
  asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(y.bits) : "f"(x));
  return y;
#else
  const uint32_t bits = bitcast<uint32_t>(x);
  const uint32_t rounded = (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
  return bf16_t{static_cast<uint16_t>(x != x ? 0x7fffu : rounded)};
#endif
}
//@ end

//@ primitive float_to_bf16x2 needs float_to_bf16 includes <cstdint>
/// Two floats to bf16, `low` in the lower half of the word.
[[maybe_unused]] __device__ __forceinline__ uint32_t float_to_bf16x2(float low, float high) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t y;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(y) : "f"(high), "f"(low));
  return y;
#else
  return float_to_bf16(low).bits | static_cast<uint32_t>(float_to_bf16(high).bits) << 16;
#endif
}
//@ end

//@ primitive encode_f8 needs bitcast includes <cstdint>
/// |x| to an 8-bit float code, nearest even, saturating at kLargest; by integer arithmetic.
template <int kMantissa, int kBias, uint32_t kLargest>
__device__ __forceinline__ uint32_t encode_f8(float x) {
  constexpr int kShift = 23 - kMantissa;
  constexpr uint32_t kLeastNormal = static_cast<uint32_t>(127 + 1 - kBias) << 23;
  // Adding this to a value below the least normal leaves it in units of the least denormal.
  constexpr uint32_t kUnits = static_cast<uint32_t>(127 + 24 - kBias - kMantissa) << 23;
  const uint32_t bits = bitcast<uint32_t>(x);
  const uint32_t size = bits & 0x7fffffffu;
  const uint32_t sign = bits >> 24 & 0x80u;
  if (size > 0x7f800000u) return 0x7fu;
  if (size < kLeastNormal) {
    const float units = bitcast<float>(size) + bitcast<float>(kUnits);
    return sign | (bitcast<uint32_t>(units) - kUnits);
  }
  const uint32_t odd = size >> kShift & 1u;
  const uint32_t rounded = (size + ((1u << (kShift - 1)) - 1u) + odd) >> kShift;
  const uint32_t code = rounded - (static_cast<uint32_t>(127 - kBias) << kMantissa);
  return sign | (code < kLargest ? code : kLargest);
}
//@ end

//@ primitive float_to_f8e4m3x2 needs encode_f8 includes <cstdint>
/// Two floats to f8e4m3, `low` in the lower byte; saturating at 448, a NaN becomes 0x7f.
/// One instruction since sm_89, which toolkits before 12.1 know for sm_90 only.
[[maybe_unused]] __device__ __forceinline__ uint16_t float_to_f8e4m3x2(float low, float high) {
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ >= 900 || \
     (__CUDA_ARCH__ >= 890 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1201))
  uint16_t y;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
  return y;
#else
  return static_cast<uint16_t>(encode_f8<3, 7, 0x7eu>(low) | encode_f8<3, 7, 0x7eu>(high) << 8);
#endif
}
//@ end

//@ primitive float_to_f8e5m2x2 needs encode_f8 includes <cstdint>
/// Two floats to f8e5m2, `low` in the lower byte; saturating at 57344, a NaN becomes 0x7f.
/// One instruction since sm_89, which toolkits before 12.1 know for sm_90 only.
[[maybe_unused]] __device__ __forceinline__ uint16_t float_to_f8e5m2x2(float low, float high) {
#if defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ >= 900 || \
     (__CUDA_ARCH__ >= 890 && __CUDACC_VER_MAJOR__ * 100 + __CUDACC_VER_MINOR__ >= 1201))
  uint16_t y;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(y) : "f"(high), "f"(low));
  return y;
#else
  return static_cast<uint16_t>(encode_f8<2, 15, 0x7bu>(low) | encode_f8<2, 15, 0x7bu>(high) << 8);
#endif
}
//@ end

//@ primitive max_nan
/// The greater of two floats; a NaN wins.
[[maybe_unused]] __device__ __forceinline__ float max_nan(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float y;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a > b || a != a ? a : b;
#endif
}
[[maybe_unused]] __device__ __forceinline__ double max_nan(double a, double b) {
  return a > b || a != a ? a : b;
}
//@ end

//@ primitive min_nan
/// The lesser of two floats; a NaN wins.
[[maybe_unused]] __device__ __forceinline__ float min_nan(float a, float b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float y;
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(y) : "f"(a), "f"(b));
  return y;
#else
  return a < b || a != a ? a : b;
#endif
}
[[maybe_unused]] __device__ __forceinline__ double min_nan(double a, double b) {
  return a < b || a != a ? a : b;
}
//@ end

//@ primitive byte_permute includes <cstdint>
/// Four bytes of the eight of `low` and `high`, picked by the digits of kDigits, the last one for
/// the lowest byte.
template <unsigned kDigits>
__device__ __forceinline__ uint32_t byte_permute(uint32_t low, uint32_t high) {
  return __byte_perm(low, high, kDigits);
}
//@ end

//@ primitive max_pair needs max_nan bitcast bf16_t includes <cstdint>
/// The greater ones of two pairs of bfloat16; a NaN wins. One instruction since sm_80.
template <class T>
__device__ __forceinline__ uint32_t max_pair(uint32_t a, uint32_t b);
template <>
[[maybe_unused]] __device__ __forceinline__ uint32_t max_pair<bf16_t>(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t y;
  asm("max.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
#else
  const float low = max_nan(bitcast<float>(a << 16), bitcast<float>(b << 16));
  const float high = max_nan(bitcast<float>(a & 0xffff0000u), bitcast<float>(b & 0xffff0000u));
  return bitcast<uint32_t>(low) >> 16 | (bitcast<uint32_t>(high) & 0xffff0000u);
#endif
}
//@ end

//@ primitive min_pair needs min_nan bitcast bf16_t includes <cstdint>
/// The lesser ones of two pairs of bfloat16; a NaN wins. One instruction since sm_80.
template <class T>
__device__ __forceinline__ uint32_t min_pair(uint32_t a, uint32_t b);
template <>
[[maybe_unused]] __device__ __forceinline__ uint32_t min_pair<bf16_t>(uint32_t a, uint32_t b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  uint32_t y;
  asm("min.NaN.bf16x2 %0, %1, %2;" : "=r"(y) : "r"(a), "r"(b));
  return y;
#else
  const float low = min_nan(bitcast<float>(a << 16), bitcast<float>(b << 16));
  const float high = min_nan(bitcast<float>(a & 0xffff0000u), bitcast<float>(b & 0xffff0000u));
  return bitcast<uint32_t>(low) >> 16 | (bitcast<uint32_t>(high) & 0xffff0000u);
#endif
}
//@ end

//@ primitive opaque_copy
/// x, of which the compiler knows nothing any more.
[[maybe_unused]] __device__ __forceinline__ int opaque_copy(int x) {
  asm("" : "+r"(x));
  return x;
}
//@ end
