//@ primitive bf16_t includes <cstdint>
/// bfloat16, the upper half of a float. Storage only: arithmetic happens in float.
struct bf16_t {
  uint16_t bits;
};
//@ end

//@ primitive f16_t includes <cstdint>
/// IEEE binary16. Storage only: arithmetic happens in float.
struct f16_t {
  uint16_t bits;
};
//@ end

//@ primitive f8e4m3_t includes <cstdint>
/// 8-bit float, 4 exponent and 3 mantissa bits: no infinity, one NaN pattern a sign, largest 448.
struct f8e4m3_t {
  uint8_t bits;
};
//@ end

//@ primitive f8e5m2_t includes <cstdint>
/// 8-bit float, 5 exponent and 2 mantissa bits: IEEE-like, largest finite 57344.
struct f8e5m2_t {
  uint8_t bits;
};
//@ end

//@ primitive kPerUnit
/// How many elements one addressable unit of T holds.
template <class T>
constexpr int kPerUnit = 1;
//@ end

//@ primitive i4_t needs kPerUnit includes <cstdint>
/// Two signed 4-bit elements in a byte, the first in the low half. An element is an int8_t.
struct i4_t {
  uint8_t bits;
};
template <>
constexpr int kPerUnit<i4_t> = 2;
//@ end

//@ primitive u4_t needs kPerUnit includes <cstdint>
/// Two unsigned 4-bit elements in a byte, the first in the low half. An element is a uint8_t.
struct u4_t {
  uint8_t bits;
};
template <>
constexpr int kPerUnit<u4_t> = 2;
//@ end

//@ primitive VectorUnits includes <cstdint>
/// What a Vector holds. Narrow elements that fill words are words, too: passed on one by one
/// they are taken out of their words, and each load is waited for to do that.
template <class T, int N,
          bool kWords = (sizeof(T) < 4 && sizeof(T) * N % 4 == 0 && sizeof(T) * N <= 16)>
struct VectorUnits {
  T units[N];
};
template <class T, int N>
struct VectorUnits<T, N, true> {
  union {
    uint32_t words[sizeof(T) * N / 4];
    T units[N];
  };
};
//@ end

//@ primitive Vector needs VectorUnits
/// N elements of T in registers, N a power of two up to 32. Index it with constants only.
template <class T, int N>
struct alignas(sizeof(T) * N < 16 ? sizeof(T) * N : 16) Vector : VectorUnits<T, N> {
  using VectorUnits<T, N>::units;
  __device__ __forceinline__ T& operator[](int e) { return units[e]; }
  __device__ __forceinline__ const T& operator[](int e) const { return units[e]; }
  __device__ __forceinline__ T get(int e) const { return units[e]; }
  __device__ __forceinline__ void set(int e, T x) { units[e] = x; }
};
//@ end

//@ primitive wrap_i4 includes <cstdint>
/// The low four bits of an integer as a signed 4-bit value.
template <class T>
__device__ __forceinline__ int8_t wrap_i4(T x) {
  const int low = static_cast<int>(static_cast<uint32_t>(x) & 15u);
  return static_cast<int8_t>((low ^ 8) - 8);
}
//@ end

//@ primitive wrap_u4 includes <cstdint>
/// The low four bits of an integer.
template <class T>
__device__ __forceinline__ uint8_t wrap_u4(T x) {
  return static_cast<uint8_t>(static_cast<uint32_t>(x) & 15u);
}
//@ end

//@ primitive vector_i4 extends Vector with i4_t needs wrap_i4
/// Signed nibbles, two a byte; read and written with get and set.
template <int N>
struct alignas(N < 2 ? 1 : N < 32 ? N / 2 : 16) Vector<i4_t, N> {
  i4_t units[N < 2 ? 1 : N / 2];
  __device__ __forceinline__ int8_t get(int e) const {
    return wrap_i4(units[e / 2].bits >> (e % 2 * 4));
  }
  __device__ __forceinline__ void set(int e, int8_t x) {
    const int shift = e % 2 * 4;
    const int kept = units[e / 2].bits & (0xf0 >> shift);
    units[e / 2].bits = static_cast<uint8_t>(kept | (x & 15) << shift);
  }
};
//@ end

//@ primitive vector_u4 extends Vector with u4_t needs wrap_u4
/// Unsigned nibbles, two a byte; read and written with get and set.
template <int N>
struct alignas(N < 2 ? 1 : N < 32 ? N / 2 : 16) Vector<u4_t, N> {
  u4_t units[N < 2 ? 1 : N / 2];
  __device__ __forceinline__ uint8_t get(int e) const {
    return wrap_u4(units[e / 2].bits >> (e % 2 * 4));
  }
  __device__ __forceinline__ void set(int e, uint8_t x) {
    const int shift = e % 2 * 4;
    const int kept = units[e / 2].bits & (0xf0 >> shift);
    units[e / 2].bits = static_cast<uint8_t>(kept | (x & 15) << shift);
  }
};
//@ end

//@ primitive bitcast includes <cstring>
/// The same bits as another type of the same size.
template <class To, class From>
__device__ __forceinline__ To bitcast(const From& x) {
  static_assert(sizeof(To) == sizeof(From), "bitcast keeps the size");
  To y;
  memcpy(&y, &x, sizeof(To));
  return y;
}
//@ end
