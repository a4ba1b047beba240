//@ primitive div_fast needs divide_full
/// x/y within 2 ulp.
[[maybe_unused]] __device__ __forceinline__ float div_fast(float x, float y) {
  return divide_full(x, y);
}
[[maybe_unused]] __device__ __forceinline__ double div_fast(double x, double y) { return x / y; }
//@ end

//@ primitive Divisor
/// A number that many are divided by: times `scale`, which is 1 unless the number is tiny or huge,
/// it has a reciprocal that is neither denormal nor infinite.
struct Divisor {
  float scale;
  float reciprocal;
};
//@ end

//@ primitive divisor needs Divisor reciprocal_approx abs_of
/// y as a divisor.
[[maybe_unused]] __device__ __forceinline__ Divisor divisor(float y) {
  const float size = abs_of(y);
  const float scale = size > 0x1p126f ? 0.25f : size < 0x1p-126f ? 0x1p24f : 1.0f;
  return Divisor{scale, reciprocal_approx(y * scale)};
}
//@ end

//@ primitive divisor_scale needs divisor
/// What is multiplied by this and by the next is divided by y.
[[maybe_unused]] __device__ __forceinline__ float divisor_scale(float y) {
  return divisor(y).scale;
}
//@ end

//@ primitive divisor_reciprocal needs divisor
/// The other factor.
[[maybe_unused]] __device__ __forceinline__ float divisor_reciprocal(float y) {
  return divisor(y).reciprocal;
}
//@ end

//@ primitive div_by needs Divisor
/// x / y within 2 ulp over the full range, as div_fast: two multiplications.
[[maybe_unused]] __device__ __forceinline__ float div_by(float x, const Divisor& y) {
  return x * y.scale * y.reciprocal;
}
//@ end

//@ primitive div_strict needs divide_ieee
/// x/y, correctly rounded.
[[maybe_unused]] __device__ __forceinline__ float div_strict(float x, float y) {
  return divide_ieee(x, y);
}
[[maybe_unused]] __device__ __forceinline__ double div_strict(double x, double y) {
  return divide_ieee(x, y);
}
//@ end

//@ primitive sqrt_fast needs sqrt_approx
/// Square root within 2 ulp.
[[maybe_unused]] __device__ __forceinline__ float sqrt_fast(float x) { return sqrt_approx(x); }
[[maybe_unused]] __device__ __forceinline__ double sqrt_fast(double x) { return ::sqrt(x); }
//@ end

//@ primitive sqrt_strict needs sqrt_ieee
/// Square root, correctly rounded.
[[maybe_unused]] __device__ __forceinline__ float sqrt_strict(float x) { return sqrt_ieee(x); }
[[maybe_unused]] __device__ __forceinline__ double sqrt_strict(double x) { return sqrt_ieee(x); }
//@ end

//@ primitive rsqrt_fast needs rsqrt_approx
/// 1/sqrt(x) within 2 ulp.
[[maybe_unused]] __device__ __forceinline__ float rsqrt_fast(float x) { return rsqrt_approx(x); }
[[maybe_unused]] __device__ __forceinline__ double rsqrt_fast(double x) { return ::rsqrt(x); }
//@ end

//@ primitive rsqrt_strict needs rsqrt_ieee
/// 1/sqrt(x), correctly rounded (double: 1 ulp).
[[maybe_unused]] __device__ __forceinline__ float rsqrt_strict(float x) { return rsqrt_ieee(x); }
[[maybe_unused]] __device__ __forceinline__ double rsqrt_strict(double x) { return ::rsqrt(x); }
//@ end

//@ primitive exp2_fast needs exp2_approx
/// 2^x within 2 ulp; a denormal result becomes 0.
[[maybe_unused]] __device__ __forceinline__ float exp2_fast(float x) { return exp2_approx(x); }
[[maybe_unused]] __device__ __forceinline__ double exp2_fast(double x) { return ::exp2(x); }
//@ end

//@ primitive exp2_strict
/// 2^x within 1 ulp. exp2f has 2 ulp (CUDA guide, mathematical functions), so through double.
[[maybe_unused]] __device__ __forceinline__ float exp2_strict(float x) {
  return static_cast<float>(::exp2(static_cast<double>(x)));
}
[[maybe_unused]] __device__ __forceinline__ double exp2_strict(double x) { return ::exp2(x); }
//@ end

//@ primitive exp_fast needs exp2_approx
/// exp(x), relative error (2 + 1.2·|x|) ulp: the rounding of x·log2(e) grows with |x|.
[[maybe_unused]] __device__ __forceinline__ float exp_fast(float x) {
  return exp2_approx(x * 1.442695041f);
}
[[maybe_unused]] __device__ __forceinline__ double exp_fast(double x) { return ::exp(x); }
//@ end

//@ primitive exp_strict
/// exp(x) within 1 ulp, through double.
[[maybe_unused]] __device__ __forceinline__ float exp_strict(float x) {
  return static_cast<float>(::exp(static_cast<double>(x)));
}
[[maybe_unused]] __device__ __forceinline__ double exp_strict(double x) { return ::exp(x); }
//@ end

//@ primitive log2_fast needs log2_approx
/// log2(x) within 2 ulp, or absolute 2^-22 for x in [0.5, 2].
[[maybe_unused]] __device__ __forceinline__ float log2_fast(float x) { return log2_approx(x); }
[[maybe_unused]] __device__ __forceinline__ double log2_fast(double x) { return ::log2(x); }
//@ end

//@ primitive log2_strict
/// log2(x) within 1 ulp (CUDA guide, mathematical functions, log2f).
[[maybe_unused]] __device__ __forceinline__ float log2_strict(float x) { return ::log2f(x); }
[[maybe_unused]] __device__ __forceinline__ double log2_strict(double x) { return ::log2(x); }
//@ end

//@ primitive log_fast needs log2_approx
/// log(x) within 4 ulp, or absolute 2^-21.4 for x in [0.5, 2] (CUDA guide, __logf).
[[maybe_unused]] __device__ __forceinline__ float log_fast(float x) {
  return log2_approx(x) * 0.6931471806f;
}
[[maybe_unused]] __device__ __forceinline__ double log_fast(double x) { return ::log(x); }
//@ end

//@ primitive log_strict
/// log(x) within 1 ulp (CUDA guide, mathematical functions, logf).
[[maybe_unused]] __device__ __forceinline__ float log_strict(float x) { return ::logf(x); }
[[maybe_unused]] __device__ __forceinline__ double log_strict(double x) { return ::log(x); }
//@ end

//@ primitive tanh_half needs tanh_approx
/// tanh(x), relative error 2^-11: for results that only reach 16-bit storage.
[[maybe_unused]] __device__ __forceinline__ float tanh_half(float x) { return tanh_approx(x); }
//@ end

//@ primitive sigmoid_half needs tanh_approx
/// 1/(1 + exp(-x)), absolute error 2^-12: for results that only reach 16-bit storage.
[[maybe_unused]] __device__ __forceinline__ float sigmoid_half(float x) {
  return fmaf(tanh_approx(0.5f * x), 0.5f, 0.5f);
}
//@ end

//@ primitive kTwoOverPi includes <cstdint>
/// 64 zero bits, then the first 1216 bits of 2/pi behind the point, the upper ones first.
[[maybe_unused]] __device__ const uint64_t kTwoOverPi[20] = {
    0x0000000000000000u, 0xa2f9836e4e441529u, 0xfc2757d1f534ddc0u, 0xdb6295993c439041u,
    0xfe5163abdebbc561u, 0xb7246e3a424dd2e0u, 0x06492eea09d1921cu, 0xfe1deb1cb129a73eu,
    0xe88235f52ebb4484u, 0xe99c7026b45f7e41u, 0x3991d639835339f4u, 0x9c845f8bbdf9283bu,
    0x1ff897ffde05980fu, 0xef2f118b5a0a6d1fu, 0x6d367ecf27cb09b7u, 0x4f463f669e5fea2du,
    0x7527bac7ebe5f17bu, 0x3d0739f78a5292eau, 0x6bfb5fb11f8d5d08u, 0x56033046fc7b6babu,
};
//@ end

//@ primitive HalfPi
/// x = quadrant·pi/2 + high + low with |high| at most about pi/4.
struct HalfPi {
  double high;
  double low;
  int quadrant;
};
//@ end

//@ primitive reduce_large
//@ needs HalfPi kTwoOverPi multiply_high leading_zeros bitcast multiply_rounded
//@ includes <cstdint>
/// Argument reduction of a finite x, 1 <= |x| (Payne and Hanek, 1983): x = m·2^e with an integer m.
/// Of 2/pi only 192 bits matter: those above them give multiples of 4, those below vanish. Their
/// product with m, modulo 2^192, is x·2/pi modulo 4.
[[maybe_unused]] __device__ __forceinline__ HalfPi reduce_large(double x) {
  const uint64_t bits = bitcast<uint64_t>(x);
  const int start = static_cast<int>(bits >> 52 & 0x7ffu) - 1023 - 52 - 2 + 64;
  const uint64_t m = (bits & 0xfffffffffffffu) | 0x10000000000000u;
  const uint64_t* words = kTwoOverPi + start / 64;
  const int shift = start % 64;
  // Two shifts, because a shift by 64 is undefined.
  const uint64_t w0 = words[0] << shift | words[1] >> 1 >> (63 - shift);
  const uint64_t w1 = words[1] << shift | words[2] >> 1 >> (63 - shift);
  const uint64_t w2 = words[2] << shift | words[3] >> 1 >> (63 - shift);
  const uint64_t p2 = m * w2;
  const uint64_t p1 = m * w1 + multiply_high(m, w2);
  const uint64_t carry = p1 < m * w1 ? 1u : 0u;
  const uint64_t p0 = m * w0 + multiply_high(m, w1) + carry;
  // Two bits of quadrant, then a fraction, taken to [-1/2, 1/2).
  int quadrant = static_cast<int>(p0 >> 62);
  uint64_t upper = p0 << 2 | p1 >> 62;
  uint64_t lower = p1 << 2 | p2 >> 62;
  const bool negative = upper >> 63 != 0;
  if (negative) {
    ++quadrant;
    upper = ~upper + (lower == 0 ? 1u : 0u);
    lower = ~lower + 1u;
  }
  // The 53 leading bits, and the 53 behind them. No double is so near to a multiple of pi/2 that
  // the upper word is 0.
  const int zeros = leading_zeros(upper);
  const uint64_t first = upper << zeros | lower >> 1 >> (63 - zeros);
  const uint64_t second = lower << zeros;
  const double scale = bitcast<double>(static_cast<uint64_t>(1023 - 53 - zeros) << 52);
  const double a = static_cast<double>(first >> 11) * scale;
  const double b = static_cast<double>((first << 53 | second >> 11) >> 11) * scale * 0x1p-53;
  const bool below = bits >> 63 != 0;
  const double sign = below != negative ? -1.0 : 1.0;
  const double high = multiply_rounded(a, 0x1.921fb54442d18p+0);
  const double low = fma(a, 0x1.921fb54442d18p+0, -high) +
                     (a * 0x1.1a62633145c07p-54 + b * 0x1.921fb54442d18p+0);
  return HalfPi{sign * high, sign * low, below ? -quadrant : quadrant};
}
//@ end

//@ primitive reduce_half_pi needs HalfPi reduce_large multiply_rounded nearest_int
/// Argument reduction for sine and cosine; up to 2^20 with pi/2 in three parts (Cody and Waite,
/// 1980), each product exact or rounded once. An infinite x gives a NaN.
[[maybe_unused]] __device__ __forceinline__ HalfPi reduce_half_pi(double x) {
  const double size = ::fabs(x);
  if (size >= 0x1p20 && size < INFINITY) return reduce_large(x);
  const bool small = size < 0x1p20;
  const int quadrant = small ? nearest_int(x * 0x1.45f306dc9c883p-1) : 0;
  const double q = static_cast<double>(quadrant);
  const double rest = fma(q, -0x1.921fb54442d18p+0, small ? x : x - x);
  const double second = multiply_rounded(q, 0x1.1a62633145c07p-54);
  const double error = fma(q, 0x1.1a62633145c07p-54, -second);
  const double high = rest - second;
  // What that difference lost (Knuth's two-sum), and the third part.
  const double back = rest - high;
  const double lost = (rest - (high + back)) + (back - second);
  return HalfPi{high, (lost - error) + q * 0x1.f1976b7ed8fbcp-110, quadrant};
}
//@ end

//@ primitive sine_double
/// sin(high + low) for |high| <= pi/4: the Taylor series to x^17, remainder below 2^-63.
[[maybe_unused]] __device__ __forceinline__ double sine_double(double high, double low) {
  const double z = high * high;
  double p = 0x1.952c77030ad4ap-49;
  p = fma(p, z, -0x1.ae7f3e733b81fp-41);
  p = fma(p, z, 0x1.6124613a86d09p-33);
  p = fma(p, z, -0x1.ae64567f544e4p-26);
  p = fma(p, z, 0x1.71de3a556c734p-19);
  p = fma(p, z, -0x1.a01a01a01a01ap-13);
  p = fma(p, z, 0x1.1111111111111p-7);
  p = fma(p, z, -0x1.5555555555555p-3);
  const double y = high + fma(high * z, p, fma(-0.5 * z, low, low));
  return high == 0.0 ? high : y;
}
//@ end

//@ primitive cosine_double
/// cos(high + low) for |high| <= pi/4: the Taylor series to x^18, remainder below 2^-67.
[[maybe_unused]] __device__ __forceinline__ double cosine_double(double high, double low) {
  const double z = high * high;
  double p = -0x1.6827863b97d97p-53;
  p = fma(p, z, 0x1.ae7f3e733b81fp-45);
  p = fma(p, z, -0x1.93974a8c07c9dp-37);
  p = fma(p, z, 0x1.1eed8eff8d898p-29);
  p = fma(p, z, -0x1.27e4fb7789f5cp-22);
  p = fma(p, z, 0x1.a01a01a01a01ap-16);
  p = fma(p, z, -0x1.6c16c16c16c17p-10);
  p = fma(p, z, 0x1.5555555555555p-5);
  const double half = 0.5 * z;
  const double top = 1.0 - half;
  return top + (((1.0 - top) - half) + fma(z * z, p, -high * low));
}
//@ end

//@ primitive sincos_strict needs HalfPi reduce_half_pi sine_double cosine_double
/// sin(x + turn·pi/2) for every double, without local memory (the sine of the CUDA library keeps
/// an array for large x).
[[maybe_unused]] __device__ __forceinline__ double sincos_strict(double x, int turn) {
  const HalfPi r = reduce_half_pi(x);
  const int quadrant = r.quadrant + turn;
  const double y =
      (quadrant & 1) != 0 ? cosine_double(r.high, r.low) : sine_double(r.high, r.low);
  return (quadrant & 2) != 0 ? -y : y;
}
//@ end

//@ primitive sincos_fast needs HalfPi reduce_large nearest_int
/// sin(x + turn·pi/2) within 4 ulp: pi/2 in three truncated floats up to 2^16 (the first difference
/// is exact), minimax polynomials on [-pi/4, pi/4] of relative error 2^-27.
[[maybe_unused]] __device__ __forceinline__ float sincos_fast(float x, int turn) {
  const float size = fabsf(x);
  int quadrant = 0;
  float r = x - x;
  if (size < 65536.0f) {
    quadrant = nearest_int(x * 0.636619772f);
    const float q = static_cast<float>(quadrant);
    r = fmaf(q, -0x1.921fb4p+0f, x);
    r = fmaf(q, -0x1.4442dp-24f, r);
    r = fmaf(q, -0x1.846988p-48f, r);
  } else if (size < INFINITY) {
    const HalfPi large = reduce_large(static_cast<double>(x));
    quadrant = large.quadrant;
    r = static_cast<float>(large.high);
  }
  quadrant += turn;
  const float z = r * r;
  float y;
  if ((quadrant & 1) != 0) {
    const float p = fmaf(fmaf(2.4437724e-5f, z, -1.3887362e-3f), z, 4.1666646e-2f);
    y = fmaf(z * z, p, fmaf(z, -0.5f, 1.0f));
  } else {
    const float p = fmaf(fmaf(-1.9516653e-4f, z, 8.3321733e-3f), z, -1.6666655e-1f);
    y = r * fmaf(p, z, 1.0f);
  }
  return (quadrant & 2) != 0 ? -y : y;
}
//@ end

//@ primitive sin_fast needs sincos_fast sincos_strict
/// The sine, within 4 ulp.
[[maybe_unused]] __device__ __forceinline__ float sin_fast(float x) { return sincos_fast(x, 0); }
[[maybe_unused]] __device__ __forceinline__ double sin_fast(double x) {
  return sincos_strict(x, 0);
}
//@ end

//@ primitive sin_strict needs sincos_strict
/// The sine, within 1 ulp (float: through double).
[[maybe_unused]] __device__ __forceinline__ float sin_strict(float x) {
  return static_cast<float>(sincos_strict(static_cast<double>(x), 0));
}
[[maybe_unused]] __device__ __forceinline__ double sin_strict(double x) {
  return sincos_strict(x, 0);
}
//@ end

//@ primitive cos_fast needs sincos_fast sincos_strict
/// The cosine, within 4 ulp.
[[maybe_unused]] __device__ __forceinline__ float cos_fast(float x) { return sincos_fast(x, 1); }
[[maybe_unused]] __device__ __forceinline__ double cos_fast(double x) {
  return sincos_strict(x, 1);
}
//@ end

//@ primitive cos_strict needs sincos_strict
/// The cosine, within 1 ulp (float: through double).
[[maybe_unused]] __device__ __forceinline__ float cos_strict(float x) {
  return static_cast<float>(sincos_strict(static_cast<double>(x), 1));
}
[[maybe_unused]] __device__ __forceinline__ double cos_strict(double x) {
  return sincos_strict(x, 1);
}
//@ end

//@ primitive tanh_near
/// tanh(x) within 6 ulp where |x| < 0.55: a minimax polynomial.
[[maybe_unused]] __device__ __forceinline__ float tanh_near(float x) {
  const float z = x * x;
  float p = fmaf(0.016458713f, z, -0.052684117f);
  p = fmaf(p, z, 0.1332094f);
  p = fmaf(p, z, -0.3333296f);
  return x * fmaf(p, z, 1.0f);
}
//@ end

//@ primitive tanh_fast needs exp2_approx reciprocal_approx tanh_near
/// tanh(x) within 6 ulp: a minimax polynomial below 0.55, else 1 - 2/(exp(2|x|) + 1).
[[maybe_unused]] __device__ __forceinline__ float tanh_fast(float x) {
  const float size = fabsf(x);
  if (size >= 0.55f) {
    const float e = exp2_approx(size * 2.885390082f);
    return copysignf(fmaf(-2.0f, reciprocal_approx(e + 1.0f), 1.0f), x);
  }
  return tanh_near(x);
}
[[maybe_unused]] __device__ __forceinline__ double tanh_fast(double x) { return ::tanh(x); }
//@ end

//@ primitive tanh_strict
/// tanh(x) within 1 ulp, through double.
[[maybe_unused]] __device__ __forceinline__ float tanh_strict(float x) {
  return static_cast<float>(::tanh(static_cast<double>(x)));
}
[[maybe_unused]] __device__ __forceinline__ double tanh_strict(double x) { return ::tanh(x); }
//@ end

//@ primitive sigmoid_fast needs exp2_approx reciprocal_approx
/// 1/(1 + exp(-x)) within 6 ulp. What the product with log2(e) rounds off is put back, because far
/// below 0 the result is as wrong as the exponential.
[[maybe_unused]] __device__ __forceinline__ float sigmoid_fast(float x) {
  const float t = x * -1.442695041f;
  const float lost = fmaf(x, -1.442695041f, -t) * 0.693147181f + x * -1.3349757e-8f;
  const float power = exp2_approx(t);
  const float e = fabsf(t) < 128.0f ? fmaf(power, lost, power) : power;
  return reciprocal_approx(1.0f + e);
}
[[maybe_unused]] __device__ __forceinline__ double sigmoid_fast(double x) {
  const double e = ::exp(-::fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
//@ end

//@ primitive sigmoid_strict
/// 1/(1 + exp(-x)) within 1 ulp (float: through double; double: 2 ulp).
[[maybe_unused]] __device__ __forceinline__ float sigmoid_strict(float x) {
  return static_cast<float>(1.0 / (1.0 + ::exp(-static_cast<double>(x))));
}
[[maybe_unused]] __device__ __forceinline__ double sigmoid_strict(double x) {
  const double e = ::exp(-::fabs(x));
  return (x < 0.0 ? e : 1.0) / (1.0 + e);
}
//@ end

//@ primitive erf_fast
/// erf(x) within 2 ulp (CUDA guide, mathematical functions, erff).
[[maybe_unused]] __device__ __forceinline__ float erf_fast(float x) { return ::erff(x); }
[[maybe_unused]] __device__ __forceinline__ double erf_fast(double x) { return ::erf(x); }
//@ end

//@ primitive erf_strict
/// erf(x) within 1 ulp, through double.
[[maybe_unused]] __device__ __forceinline__ float erf_strict(float x) {
  return static_cast<float>(::erf(static_cast<double>(x)));
}
[[maybe_unused]] __device__ __forceinline__ double erf_strict(double x) { return ::erf(x); }
//@ end

//@ primitive pow_fast
/// x to the power y within 8 ulp (CUDA guide, mathematical functions, powf).
[[maybe_unused]] __device__ __forceinline__ float pow_fast(float x, float y) {
  return ::powf(x, y);
}
[[maybe_unused]] __device__ __forceinline__ double pow_fast(double x, double y) {
  return ::pow(x, y);
}
//@ end

//@ primitive pow_strict
/// x to the power y within 1 ulp, through double.
[[maybe_unused]] __device__ __forceinline__ float pow_strict(float x, float y) {
  return static_cast<float>(::pow(static_cast<double>(x), static_cast<double>(y)));
}
[[maybe_unused]] __device__ __forceinline__ double pow_strict(double x, double y) {
  return ::pow(x, y);
}
//@ end
