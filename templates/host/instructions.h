//! The host's form of `templates/device/instructions.cuh`, from the descriptions of the
//! instructions.
//@ primitive exp2_approx
inline float exp2_approx(float x) {
  const float y = static_cast<float>(std::exp2(static_cast<double>(x)));
  return y < 0x1p-126f ? 0.0f : y;
}
//@ end

//@ primitive log2_approx
inline float log2_approx(float x) { return static_cast<float>(std::log2(static_cast<double>(x))); }
//@ end

//@ primitive reciprocal_approx
inline float reciprocal_approx(float x) {
  if (std::fabs(x) < 0x1p-126f) x = std::copysign(0.0f, x);
  const float y = 1.0f / x;
  return std::fabs(y) < 0x1p-126f ? std::copysign(0.0f, y) : y;
}
//@ end

//@ primitive divide_full
inline float divide_full(float x, float y) { return x / y; }
//@ end

//@ primitive sqrt_approx
inline float sqrt_approx(float x) { return std::sqrt(x); }
//@ end

//@ primitive rsqrt_approx
inline float rsqrt_approx(float x) {
  return static_cast<float>(1.0 / std::sqrt(static_cast<double>(x)));
}
//@ end

//@ primitive tanh_approx
inline float tanh_approx(float x) { return static_cast<float>(std::tanh(static_cast<double>(x))); }
//@ end

//@ primitive divide_ieee
inline float divide_ieee(float x, float y) { return x / y; }
inline double divide_ieee(double x, double y) { return x / y; }
//@ end

//@ primitive leading_zeros
inline int leading_zeros(uint64_t x) { return x == 0 ? 64 : __builtin_clzll(x); }
//@ end

//@ primitive nearest_int
inline int nearest_int(double x) {
  if (x != x) return 0;
  const double whole = std::nearbyint(x);
  return whole >= 2147483647.0 ? 2147483647 : whole <= -2147483648.0 ? -2147483647 - 1
                                                                    : static_cast<int>(whole);
}
inline int nearest_int(float x) { return nearest_int(static_cast<double>(x)); }
//@ end

//@ primitive sqrt_ieee
inline float sqrt_ieee(float x) { return std::sqrt(x); }
inline double sqrt_ieee(double x) { return std::sqrt(x); }
//@ end

//@ primitive rsqrt_ieee
inline float rsqrt_ieee(float x) {
  // Nearly 64 bits, rounded once more: only a tie of the result could be missed, and there is none.
  return static_cast<float>(1.0L / std::sqrt(static_cast<long double>(x)));
}
//@ end

//@ primitive multiply_rounded
inline double multiply_rounded(double x, double y) { return x * y; }
//@ end

//@ primitive multiply_high
inline uint64_t multiply_high(uint64_t x, uint64_t y) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(x) * y >> 64);
}
//@ end

//@ primitive truncate_saturate
template <class To, class From>
inline To truncate_saturate(From x) {
  if (x != x) return To(0);
  if (x >= std::ldexp(From(1), std::numeric_limits<To>::digits)) return std::numeric_limits<To>::max();
  if (x <= static_cast<From>(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return static_cast<To>(x);
}
//@ end

//@ primitive toward_zero
template <class From>
inline float toward_zero(From x) {
  // The nearest float, and one step back where that lies farther from zero than x.
  const float y = static_cast<float>(x);
  if (std::isinf(y) && std::is_floating_point<From>::value && !std::isinf(static_cast<double>(x))) {
    return std::copysign(std::numeric_limits<float>::max(), y);
  }
  const bool beyond = x < From(0) ? static_cast<long double>(y) < static_cast<long double>(x)
                                  : static_cast<long double>(y) > static_cast<long double>(x);
  return beyond ? std::nextafter(y, 0.0f) : y;
}
//@ end

//@ primitive f16_to_float
inline float f16_to_float(f16_t x) {
  const int exponent = x.bits >> 10 & 31, mantissa = x.bits & 1023;
  float size;
  if (exponent == 31) {
    size = mantissa ? std::numeric_limits<float>::quiet_NaN() : std::numeric_limits<float>::infinity();
  } else if (exponent == 0) {
    size = std::ldexp(static_cast<float>(mantissa), -24);
  } else {
    size = std::ldexp(static_cast<float>(mantissa + 1024), exponent - 25);
  }
  return x.bits & 0x8000 ? -size : size;
}
//@ end

//@ primitive float_to_f16
inline f16_t float_to_f16(float x) {
  const uint16_t sign = std::signbit(x) ? 0x8000 : 0;
  if (x != x) return f16_t{0x7fff};
  const float size = std::fabs(x);
  if (size >= 65520.0f) return f16_t{static_cast<uint16_t>(sign | 0x7c00)};
  if (size < 0x1p-14f) {
    return f16_t{static_cast<uint16_t>(sign | static_cast<int>(std::nearbyint(size * 0x1p24f)))};
  }
  int exponent;
  const float fraction = std::frexp(size, &exponent);
  const int mantissa = static_cast<int>(std::nearbyint(std::ldexp(fraction, 11)));
  return f16_t{static_cast<uint16_t>(sign | (((exponent + 14) << 10) + mantissa - 1024))};
}
//@ end

//@ primitive byte_permute
template <unsigned kDigits>
inline uint32_t byte_permute(uint32_t low, uint32_t high) {
  const uint64_t bytes = low | static_cast<uint64_t>(high) << 32;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const unsigned digit = kDigits >> (4 * i) & 7u;
    result |= static_cast<uint32_t>(bytes >> (8 * digit) & 0xffu) << (8 * i);
  }
  return result;
}
//@ end

//@ primitive opaque_copy
inline int opaque_copy(int x) { return x; }
//@ end
