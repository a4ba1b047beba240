//@ primitive AccessWord includes <cstdint>
/// The type that moves kBytes in one memory instruction.
template <int kBytes>
struct AccessWord;
template <>
struct AccessWord<1> {
  using type = uint8_t;
};
template <>
struct AccessWord<2> {
  using type = uint16_t;
};
template <>
struct AccessWord<4> {
  using type = uint32_t;
};
template <>
struct AccessWord<8> {
  using type = uint2;
};
template <>
struct AccessWord<16> {
  using type = uint4;
};
//@ end

//@ primitive kAccessBytes
/// Width of one access: the largest power of two, at most 16, that divides the alignment and fits.
template <int kAlign, int kBytes>
constexpr int kAccessBytes = (kAlign & -kAlign) > 16
                                 ? (kBytes < 16 ? kBytes : 16)
                                 : (kBytes < (kAlign & -kAlign) ? kBytes : (kAlign & -kAlign));
//@ end

//@ primitive load_vector needs Vector AccessWord kAccessBytes includes <cstring>
/// N elements from p, whose address is a multiple of kAlign bytes.
template <int kAlign, int N, class T>
__device__ __forceinline__ Vector<T, N> load_vector(const T* p) {
  constexpr int kBytes = sizeof(Vector<T, N>);
  constexpr int kAccess = kAccessBytes<kAlign, kBytes>;
  using Word = typename AccessWord<kAccess>::type;
  Vector<T, N> v;
#pragma unroll
  for (int i = 0; i < kBytes / kAccess; ++i) {
    const Word word = reinterpret_cast<const Word*>(p)[i];
    memcpy(reinterpret_cast<unsigned char*>(&v) + i * kAccess, &word, kAccess);
  }
  return v;
}
//@ end

//@ primitive store_vector needs Vector AccessWord kAccessBytes includes <cstring>
/// All elements of v to p, whose address is a multiple of kAlign bytes.
template <int kAlign, class T, int N>
__device__ __forceinline__ void store_vector(T* p, const Vector<T, N>& v) {
  constexpr int kBytes = sizeof(Vector<T, N>);
  constexpr int kAccess = kAccessBytes<kAlign, kBytes>;
  using Word = typename AccessWord<kAccess>::type;
#pragma unroll
  for (int i = 0; i < kBytes / kAccess; ++i) {
    Word word;
    memcpy(&word, reinterpret_cast<const unsigned char*>(&v) + i * kAccess, kAccess);
    reinterpret_cast<Word*>(p)[i] = word;
  }
}
//@ end

//@ primitive load_vector_partial needs Vector load_vector kPerUnit
/// The first `count` elements from p, zero for the others; a count outside [0, N] means its nearer
/// end. Memory behind the last element that is asked for is not touched.
template <int kAlign, int N, class T, class Count>
__device__ __forceinline__ Vector<T, N> load_vector_partial(const T* p, Count count) {
  if (count >= static_cast<Count>(N)) return load_vector<kAlign, N>(p);
  constexpr int kUnits = sizeof(Vector<T, N>) / sizeof(T);
  Vector<T, N> v;
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    v.units[u] = static_cast<Count>(u * kPerUnit<T>) < count ? p[u] : T{};
  }
  if constexpr (kPerUnit<T> == 2) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (static_cast<Count>(2 * u + 1) == count) v.units[u].bits &= 15;
    }
  }
  return v;
}
//@ end

//@ primitive store_vector_partial needs Vector store_vector kPerUnit
/// The first `count` elements of v to p; a count outside [0, N] means its nearer end. Memory behind
/// the last of them is not touched (an odd count of nibbles keeps the upper half of its last byte).
template <int kAlign, class T, int N, class Count>
__device__ __forceinline__ void store_vector_partial(T* p, const Vector<T, N>& v, Count count) {
  if (count >= static_cast<Count>(N)) {
    store_vector<kAlign>(p, v);
    return;
  }
  constexpr int kUnits = sizeof(Vector<T, N>) / sizeof(T);
#pragma unroll
  for (int u = 0; u < kUnits; ++u) {
    if (static_cast<Count>((u + 1) * kPerUnit<T>) <= count) p[u] = v.units[u];
  }
  if constexpr (kPerUnit<T> == 2) {
#pragma unroll
    for (int u = 0; u < kUnits; ++u) {
      if (static_cast<Count>(2 * u + 1) == count) {
        p[u].bits = static_cast<uint8_t>((p[u].bits & 0xf0) | (v.units[u].bits & 15));
      }
    }
  }
}
//@ end
