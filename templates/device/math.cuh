//@ primitive div_fast needs divide_full
/// x/y within 2 ulp.
[[maybe_unused]] __device__ __forceinline__ float div_fast(float x, float y) {
  return divide_full(x, y);
}
[[maybe_unused]] __device__ __forceinline__ double div_fast(double x, double y) { return x / y; }
//@ end

//@ primitive div_strict needs divide_ieee
/// x/y, correctly rounded.
[[maybe_unused]] __device__ __forceinline__ float div_strict(float x, float y) {
  return divide_ieee(x, y);
}
[[maybe_unused]] __device__ __forceinline__ double div_strict(double x, double y) {
  return __ddiv_rn(x, y);
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
[[maybe_unused]] __device__ __forceinline__ double sqrt_strict(double x) { return __dsqrt_rn(x); }
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
