//@ primitive widen
/// The value of a narrow float as a float, exactly; anything else as it is.
template <class T>
__device__ __forceinline__ T widen(T x) {
  return x;
}
//@ end

//@ primitive widen_bf16 extends widen with bf16_t needs bitcast includes <cstdint>
[[maybe_unused]] __device__ __forceinline__ float widen(bf16_t x) {
  return bitcast<float>(static_cast<uint32_t>(x.bits) << 16);
}
//@ end

//@ primitive widen_f16 extends widen with f16_t needs f16_to_float
[[maybe_unused]] __device__ __forceinline__ float widen(f16_t x) { return f16_to_float(x); }
//@ end

//@ primitive widen_f8e4m3 extends widen with f8e4m3_t needs bitcast includes <cstdint>
[[maybe_unused]] __device__ __forceinline__ float widen(f8e4m3_t x) {
  const uint32_t sign = static_cast<uint32_t>(x.bits & 0x80) << 24;
  const uint32_t size = x.bits & 0x7fu;
  // The exponent is off by 127 - 7 = 120; the product also brings denormals to their place.
  const float value = bitcast<float>(size << 20) * 0x1p120f;
  const uint32_t bits = size == 0x7fu ? 0x7fffffffu : bitcast<uint32_t>(value);
  return bitcast<float>(sign | bits);
}
//@ end

//@ primitive widen_f8e5m2 extends widen with f8e5m2_t needs f16_t f16_to_float
[[maybe_unused]] __device__ __forceinline__ float widen(f8e5m2_t x) {
  return f16_to_float(f16_t{static_cast<uint16_t>(x.bits << 8)});
}
//@ end

//@ primitive round_to_odd needs toward_zero bitcast includes <cstdint>
/// To float, toward zero, with the last bit set where that was inexact: rounding the result again
/// to at most 22 bits is then the same as rounding x once (Boldo and Melquiond, 2008).
[[maybe_unused]] __device__ __forceinline__ float round_to_odd(float x) { return x; }
[[maybe_unused]] __device__ __forceinline__ float round_to_odd(double x) {
  const float y = toward_zero(x);
  const bool exact = static_cast<double>(y) == x || x != x;
  return bitcast<float>(bitcast<uint32_t>(y) | (exact ? 0u : 1u));
}
[[maybe_unused]] __device__ __forceinline__ float round_to_odd(bool x) { return x ? 1.0f : 0.0f; }
template <class Int>
__device__ __forceinline__ float round_to_odd(Int x) {
  if constexpr (sizeof(Int) <= 2) {
    return static_cast<float>(x);
  } else {
    const float y = toward_zero(x);
    return bitcast<float>(bitcast<uint32_t>(y) | (static_cast<Int>(y) == x ? 0u : 1u));
  }
}
//@ end

//@ primitive Convert needs truncate_saturate includes <cstdint> <type_traits>
/// Conversions to a built-in type. From float: truncated and saturated, a NaN becomes 0; from
/// integers: modulo 2^bits; to bool: whether it is not zero; to float and double: nearest even.
template <class To>
struct Convert {
  template <class From>
  static __device__ __forceinline__ To from(From x) {
    if constexpr (std::is_same<To, bool>::value) {
      return x != From(0);
    } else if constexpr (!std::is_floating_point<From>::value ||
                         std::is_floating_point<To>::value) {
      return static_cast<To>(x);
    } else if constexpr (sizeof(To) >= 4) {
      return x != x ? To(0) : truncate_saturate<To>(x);
    } else {
      constexpr bool kSigned = std::is_signed<To>::value;
      constexpr int32_t kMost = (1 << (8 * sizeof(To) - (kSigned ? 1 : 0))) - 1;
      constexpr int32_t kLeast = kSigned ? -kMost - 1 : 0;
      const int32_t whole = x != x ? 0 : truncate_saturate<int32_t>(x);
      return static_cast<To>(whole < kLeast ? kLeast : whole > kMost ? kMost : whole);
    }
  }
};
//@ end

//@ primitive convert needs Convert widen
/// x as a To, by the rules of the language: one rounding, to nearest even, between floats; f8
/// saturates. To = i4_t and u4_t give one element, as int8_t and uint8_t.
template <class To, class From>
__device__ __forceinline__ auto convert(From x) {
  if constexpr (std::is_same<To, From>::value) {
    return x;
  } else {
    return Convert<To>::from(widen(x));
  }
}
//@ end

//@ primitive convert_bf16 extends Convert with bf16_t needs float_to_bf16 round_to_odd
template <>
struct Convert<bf16_t> {
  template <class From>
  static __device__ __forceinline__ bf16_t from(From x) {
    return float_to_bf16(round_to_odd(x));
  }
};
//@ end

//@ primitive convert_f16 extends Convert with f16_t needs float_to_f16 round_to_odd
template <>
struct Convert<f16_t> {
  template <class From>
  static __device__ __forceinline__ f16_t from(From x) {
    return float_to_f16(round_to_odd(x));
  }
};
//@ end

//@ primitive convert_f8e4m3 extends Convert with f8e4m3_t needs float_to_f8e4m3x2 round_to_odd
template <>
struct Convert<f8e4m3_t> {
  template <class From>
  static __device__ __forceinline__ f8e4m3_t from(From x) {
    return f8e4m3_t{static_cast<uint8_t>(float_to_f8e4m3x2(round_to_odd(x), 0.0f))};
  }
};
//@ end

//@ primitive convert_f8e5m2 extends Convert with f8e5m2_t needs float_to_f8e5m2x2 round_to_odd
template <>
struct Convert<f8e5m2_t> {
  template <class From>
  static __device__ __forceinline__ f8e5m2_t from(From x) {
    return f8e5m2_t{static_cast<uint8_t>(float_to_f8e5m2x2(round_to_odd(x), 0.0f))};
  }
};
//@ end

//@ primitive convert_i4 extends Convert with i4_t needs wrap_i4
template <>
struct Convert<i4_t> {
  template <class From>
  static __device__ __forceinline__ int8_t from(From x) {
    if constexpr (std::is_floating_point<From>::value) {
      const int8_t whole = Convert<int8_t>::from(x);
      return whole < -8 ? int8_t(-8) : whole > 7 ? int8_t(7) : whole;
    } else {
      return wrap_i4(x);
    }
  }
};
//@ end

//@ primitive convert_u4 extends Convert with u4_t needs wrap_u4
template <>
struct Convert<u4_t> {
  template <class From>
  static __device__ __forceinline__ uint8_t from(From x) {
    if constexpr (std::is_floating_point<From>::value) {
      const uint8_t whole = Convert<uint8_t>::from(x);
      return whole > 15 ? uint8_t(15) : whole;
    } else {
      return wrap_u4(x);
    }
  }
};
//@ end

//@ primitive ConvertPair includes <type_traits>
/// Two floats to two elements of a narrow type in one instruction, where there is one.
template <class To>
struct ConvertPair : std::false_type {};
//@ end

//@ primitive convert_pair_bf16 extends ConvertPair with bf16_t needs float_to_bf16x2
template <>
struct ConvertPair<bf16_t> : std::true_type {
  using Word = uint32_t;
  template <class Float>
  static __device__ __forceinline__ Word from(Float low, Float high) {
    return float_to_bf16x2(low, high);
  }
};
//@ end

//@ primitive convert_pair_f16 extends ConvertPair with f16_t needs float_to_f16x2
template <>
struct ConvertPair<f16_t> : std::true_type {
  using Word = uint32_t;
  template <class Float>
  static __device__ __forceinline__ Word from(Float low, Float high) {
    return float_to_f16x2(low, high);
  }
};
//@ end

//@ primitive convert_pair_f8e4m3 extends ConvertPair with f8e4m3_t needs float_to_f8e4m3x2
template <>
struct ConvertPair<f8e4m3_t> : std::true_type {
  using Word = uint16_t;
  template <class Float>
  static __device__ __forceinline__ Word from(Float low, Float high) {
    return float_to_f8e4m3x2(low, high);
  }
};
//@ end

//@ primitive convert_pair_f8e5m2 extends ConvertPair with f8e5m2_t needs float_to_f8e5m2x2
template <>
struct ConvertPair<f8e5m2_t> : std::true_type {
  using Word = uint16_t;
  template <class Float>
  static __device__ __forceinline__ Word from(Float low, Float high) {
    return float_to_f8e5m2x2(low, high);
  }
};
//@ end

//@ primitive convert_vector needs Vector convert ConvertPair kPerUnit
//@ includes <cstring> <type_traits>
/// `convert` of every element; floats go to bf16, f16 and f8 two at a time.
template <class To, class From, int N>
__device__ __forceinline__ Vector<To, N> convert_vector(const Vector<From, N>& v) {
  Vector<To, N> y;
  if constexpr (ConvertPair<To>::value && std::is_same<From, float>::value && N > 1) {
    typename ConvertPair<To>::Word pairs[N / 2];
#pragma unroll
    for (int e = 0; e < N; e += 2) pairs[e / 2] = ConvertPair<To>::from(v.get(e), v.get(e + 1));
    memcpy(&y, pairs, sizeof(y));
  } else {
    if constexpr (kPerUnit<To> > 1) y = {};
#pragma unroll
    for (int e = 0; e < N; ++e) y.set(e, convert<To>(v.get(e)));
  }
  return y;
}
//@ end
