//@ primitive load_aligned needs Vector load_vector
/// N elements from p, whose address is a multiple of the vector's alignment.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_aligned(const T* p) {
  return load_vector<alignof(Vector<T, N>), N>(p);
}
//@ end

//@ primitive load_single needs Vector load_vector
/// N elements from p, one at a time.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_single(const T* p) {
  return load_vector<alignof(T), N>(p);
}
//@ end

//@ primitive load_aligned_partial needs Vector load_vector_partial
/// The first `count` of N elements from p, zeros behind them.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_aligned_partial(const T* p, int count) {
  return load_vector_partial<alignof(Vector<T, N>), N>(p, count);
}
//@ end

//@ primitive load_single_partial needs Vector load_vector_partial
/// The first `count` of N elements from p, one at a time, zeros behind them.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_single_partial(const T* p, int count) {
  return load_vector_partial<alignof(T), N>(p, count);
}
//@ end

//@ primitive store_aligned needs Vector store_vector
/// All elements of v to p, whose address is a multiple of the vector's alignment.
template <class T, int N>
__device__ __forceinline__ void store_aligned(T* p, const Vector<T, N>& v) {
  store_vector<alignof(Vector<T, N>)>(p, v);
}
//@ end

//@ primitive store_single needs Vector store_vector
/// All elements of v to p, one at a time.
template <class T, int N>
__device__ __forceinline__ void store_single(T* p, const Vector<T, N>& v) {
  store_vector<alignof(T)>(p, v);
}
//@ end

//@ primitive store_whole needs Vector store_aligned includes <cstdint> <cstring>
/// The same in stores of 16 or 8 bytes even where the compiler does not see what the address is a
/// multiple of: a number of 128 bits, or a double, is nothing that it would split.
template <class T, int N>
__device__ __forceinline__ void store_whole(T* p, const Vector<T, N>& v) {
  constexpr int kBytes = sizeof(Vector<T, N>);
  if constexpr (kBytes == 8) {
    int words[2];
    memcpy(words, &v, 8);
    *reinterpret_cast<double*>(p) = __hiloint2double(words[1], words[0]);
  } else if constexpr (kBytes % 16 != 0) {
    store_aligned(p, v);
  } else {
#pragma unroll
    for (int i = 0; i < kBytes / 16; ++i) {
      uint32_t words[4];
      memcpy(words, reinterpret_cast<const unsigned char*>(&v) + 16 * i, 16);
      const uint64_t low = uint64_t{words[1]} << 32 | words[0];
      const uint64_t high = uint64_t{words[3]} << 32 | words[2];
      reinterpret_cast<unsigned __int128*>(p)[i] = static_cast<unsigned __int128>(high) << 64 | low;
    }
  }
}
//@ end

//@ primitive store_aligned_partial needs Vector store_vector_partial
/// The first `count` elements of v to p.
template <class T, int N>
__device__ __forceinline__ void store_aligned_partial(T* p, const Vector<T, N>& v, int count) {
  store_vector_partial<alignof(Vector<T, N>)>(p, v, count);
}
//@ end

//@ primitive store_single_partial needs Vector store_vector_partial
/// The first `count` elements of v to p, one at a time.
template <class T, int N>
__device__ __forceinline__ void store_single_partial(T* p, const Vector<T, N>& v, int count) {
  store_vector_partial<alignof(T)>(p, v, count);
}
//@ end

//@ primitive window_shift needs opaque_copy includes <cstdint>
/// Elements between p and the address at or below it that is a multiple of N elements.
template <int N, class T>
__device__ __forceinline__ int window_shift(const T* p) {
  const uintptr_t bytes = reinterpret_cast<uintptr_t>(p) % (N * sizeof(T));
  return opaque_copy(static_cast<int>(bytes / sizeof(T)));
}
//@ end

//@ primitive window_at
/// `at` - `shift`, by arithmetic that may wrap, with a shift of which the compiler knows nothing:
/// where it could split the difference it writes a vector to memory word by word.
[[maybe_unused]] __device__ __forceinline__ int window_at(int at, int shift) {
  return static_cast<int>(static_cast<unsigned>(at) - static_cast<unsigned>(shift));
}
//@ end

//@ primitive is_within
/// 0 <= i < n, for n >= 0.
[[maybe_unused]] __device__ __forceinline__ bool is_within(int i, int n) {
  return static_cast<unsigned>(i) < static_cast<unsigned>(n);
}
//@ end

//@ primitive load_first needs Vector includes <cstdint> <cstring>
/// The first `count` of N elements from p, zeros behind them. A loop of few instructions: only the
/// last vector of a tensor comes to it.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_first(const T* p, int count) {
  static_assert(sizeof(T) * N % 4 == 0, "whole words");
  constexpr int kWords = sizeof(T) * N / 4;
  constexpr int kStep = sizeof(T) < 4 ? 1 : sizeof(T) / 4;
  constexpr int kBits = sizeof(T) < 4 ? 8 * sizeof(T) : 0;
  uint32_t words[kWords] = {};
#pragma unroll 1
  for (int e = (count < N ? count : N) - 1; e >= 0; --e) {
    const T x = p[e];
    uint32_t low[kStep] = {};
    memcpy(low, &x, sizeof(T));
#pragma unroll
    for (int i = kWords - 1; i >= 0; --i) {
      if constexpr (kBits == 0) {
        words[i] = i < kStep ? low[i < kStep ? i : 0] : words[i < kStep ? 0 : i - kStep];
      } else {
        words[i] = words[i] << kBits | (i > 0 ? words[i > 0 ? i - 1 : 0] >> (32 - kBits) : low[0]);
      }
    }
  }
  Vector<T, N> v;
  memcpy(&v, words, sizeof(v));
  return v;
}
//@ end

//@ primitive window_room
/// Elements from p to `end`, as many as an int counts.
template <class T>
__device__ __forceinline__ int window_room(const T* p, const T* end) {
  return end - p > 0x7fffffff ? 0x7fffffff : static_cast<int>(end - p);
}
//@ end

//@ primitive load_window needs Vector load_aligned load_first
/// Elements `at` to `at` + N from p, p + at a multiple of the vector's size; zeros from `room` on,
/// where nothing is read.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_window(const T* p, int at, int room) {
  if (at <= room - N) return load_aligned<N>(p + at);
  return load_first<N>(p + at, room - at);
}
//@ end

//@ primitive is_whole
/// Whether elements `at` to `at` + N are among the first `count`.
template <int N>
__device__ __forceinline__ bool is_whole(int at, int count) {
  return at >= 0 && at <= count - N;
}
//@ end

//@ primitive load_shifted needs Vector AccessWord includes <cstdint> <cstring>
/// Elements `at` to `at` + N from p, a multiple of the vector's size, by accesses of kAccess bytes
/// at multiples of that: up to kAccess / sizeof(T) elements behind them are read too, with kNear
/// those alone of the access that reads the last of them.
template <int N, int kAccess, bool kNear = false, class T>
__device__ __forceinline__ Vector<T, N> load_shifted(const T* p, int at) {
  using Word = typename AccessWord<kAccess>::type;
  constexpr int kEach = kAccess / sizeof(T);
  constexpr int kMore = kAccess / 4;
  constexpr int kWords = sizeof(T) * N / 4;
  constexpr int kHalves = sizeof(T) < 4 ? 1 : 0;
  const unsigned skip = static_cast<unsigned>(at) % kEach;
  const Word* const from = reinterpret_cast<const Word*>(p + (static_cast<unsigned>(at) - skip));
  uint32_t words[kWords + kMore];
#pragma unroll
  for (int i = 0; i < kWords / kMore + 1; ++i) {
    Word word{};
    if (!kNear || i < kWords / kMore || skip != 0) word = from[i];
    memcpy(words + i * kMore, &word, kAccess);
  }
  const unsigned bytes = skip * static_cast<unsigned>(sizeof(T));
#pragma unroll
  for (int step = kMore / 2; step >= 1; step /= 2) {
#pragma unroll
    for (int i = 0; i < kWords + step - 1 + kHalves; ++i) {
      words[i] = (bytes / 4 & static_cast<unsigned>(step)) != 0 ? words[i + step] : words[i];
    }
  }
  if constexpr (kHalves == 1) {
#pragma unroll
    for (int i = 0; i < kWords; ++i) {
      const uint64_t both = static_cast<uint64_t>(words[i + 1]) << 32 | words[i];
      words[i] = static_cast<uint32_t>(both >> (8 * (bytes % 4)));
    }
  }
  Vector<T, N> v;
  memcpy(&v, words, sizeof(v));
  return v;
}
//@ end

//@ primitive load_within needs Vector
/// Elements `at` to `at` + N of the `count` ones from p, zeros for others.
template <int N, class T>
__device__ __forceinline__ Vector<T, N> load_within(const T* p, int at, int count) {
  Vector<T, N> v;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const unsigned place = static_cast<unsigned>(at + e);
    v.units[e] = place < static_cast<unsigned>(count) ? p[place] : T{};
  }
  return v;
}
//@ end

//@ primitive store_window needs Vector store_aligned
/// Elements `first` to `count` of v to p, a multiple of the vector's size.
template <class T, int N>
__device__ __forceinline__ void store_window(T* p, const Vector<T, N>& v, int first, int count) {
  if (first <= 0 && count >= N) {
    store_aligned(p, v);
    return;
  }
#pragma unroll
  for (int e = 0; e < N; ++e) {
    if (e >= first && e < count) p[e] = v.units[e];
  }
}
//@ end

//@ primitive copy_row needs Vector ceil_div load_shifted load_within store_aligned window_shift
//@ includes <cstdint>
/// Row `row` of `rows` rows of `columns` elements that lie one behind the other from p on, to `to`,
/// whose rows begin at multiples of N elements: vector `first` of the row, and kCount - 1 further
/// ones, kStep apart. Rows that have neighbours on both sides are read by whole accesses, which
/// reach into these; so is what ends up behind the row in its last vector.
template <int N, int kAccess, int kCount, int kStep, class T>
__device__ __forceinline__ void copy_row(T* to, const T* p, int row, int64_t rows, int columns,
                                         int first) {
  const int vectors = ceil_div(columns, N);
  const T* const from = p + int64_t{columns} * row;
  Vector<T, N> v[kCount];
  if (int64_t{columns} * row >= N && columns * (rows - 1 - row) >= 2 * N) {
    const int shift = window_shift<N>(from);
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int at = first + i * kStep < vectors ? first + i * kStep : vectors - 1;
      v[i] = load_shifted<N, kAccess>(from - shift, static_cast<int>(at * unsigned{N} + shift));
    }
  } else {
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      v[i] = load_within<N>(from, static_cast<int>((first + i * kStep) * unsigned{N}), columns);
    }
  }
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    const int at = first + i * kStep;
    if (at < vectors) store_aligned(to + (int64_t{vectors} * row + at) * N, v[i]);
  }
}
//@ end

//@ primitive combine_partials
/// Op over kCount values that lie kStride apart, in order: the same bits in every thread.
template <class Op, int kCount, int kStride = 1, class T>
__device__ __forceinline__ T combine_partials(const T* partials) {
  T total = partials[0];
#pragma unroll
  for (int i = 1; i < kCount; ++i) total = Op::combine(total, partials[i * kStride]);
  return total;
}
//@ end

//@ primitive combine_partials_before
/// The same of the first `before` of them alone, the neutral element where there are none.
template <class Op, int kCount, int kStride = 1, class T>
__device__ __forceinline__ T combine_partials_before(const T* partials, int before) {
  T total = Op::identity();
#pragma unroll
  for (int i = 0; i < kCount - 1; ++i) {
    if (i < before) total = Op::combine(total, partials[i * kStride]);
  }
  return total;
}
//@ end

//@ primitive combine_partials_by_lanes needs lane_id lane_reduce
/// Op over kCount values by the lanes of a warp: the same bits in every thread.
template <class Op, int kCount, class T>
__device__ __forceinline__ T combine_partials_by_lanes(const T* partials) {
  T total = Op::identity();
#pragma unroll
  for (int i = 0; i < kCount; i += 32) {
    if (i + 32 <= kCount || i + lane_id() < kCount) {
      total = Op::combine(total, partials[i + lane_id()]);
    }
  }
  return lane_reduce<Op, 32>(total);
}
//@ end

//@ primitive combine_partials_before_by_lanes needs lane_id lane_reduce
/// combine_partials_before by the lanes of a warp: the same bits in each of them.
template <class Op, int kCount, class T>
__device__ __forceinline__ T combine_partials_before_by_lanes(const T* partials, int before) {
  T total = Op::identity();
#pragma unroll
  for (int i = 0; i < kCount; i += 32) {
    if (i + lane_id() < before) total = Op::combine(total, partials[i + lane_id()]);
  }
  return lane_reduce<Op, 32>(total);
}
//@ end

//@ primitive SharedArray
/// N elements of shared memory.
template <class T, int N>
using SharedArray = T[N];
//@ end

//@ primitive cta_shared
/// The CTA's shared memory, laid out as the struct T.
template <class T>
__device__ __forceinline__ T& cta_shared() {
  __shared__ T storage;
  return storage;
}
//@ end

//@ primitive load_element
/// One element of global memory.
template <class T>
__device__ __forceinline__ T load_element(const T* p) {
  return *p;
}
//@ end

//@ primitive load_nibble needs i4_t u4_t wrap_i4 wrap_u4 includes <cstdint>
/// One 4-bit element of global memory, `offset` elements from p, the low half of a byte first.
[[maybe_unused]] __device__ __forceinline__ uint8_t load_nibble(const u4_t* p, int64_t offset) {
  return wrap_u4(p[offset / 2].bits >> (offset % 2 * 4));
}
[[maybe_unused]] __device__ __forceinline__ int8_t load_nibble(const i4_t* p, int64_t offset) {
  return wrap_i4(p[offset / 2].bits >> (offset % 2 * 4));
}
//@ end

//@ primitive store_element
/// One element to global memory.
template <class T>
__device__ __forceinline__ void store_element(T* p, T x) {
  *p = x;
}
//@ end

//@ primitive Covering needs Vector
/// kCount vectors of N elements that lie one behind the other.
template <class T, int N, int kCount>
struct Covering {
  Vector<T, N> vectors[kCount];
};
//@ end

//@ primitive load_covering needs Covering load_aligned
/// kCount vectors of N elements from p, whose address is a multiple of a vector's alignment.
template <int N, int kCount, class T>
__device__ __forceinline__ Covering<T, N, kCount> load_covering(const T* p) {
  Covering<T, N, kCount> v;
#pragma unroll
  for (int i = 0; i < kCount; ++i) v.vectors[i] = load_aligned<N>(p + i * N);
  return v;
}
//@ end

//@ primitive load_covering_within needs Covering load_aligned_partial
/// The same of elements `begin`, a multiple of N, to `end` from p alone, zeros for others.
template <int N, int kCount, class T>
__device__ __forceinline__ Covering<T, N, kCount> load_covering_within(const T* p, int begin,
                                                                       int end) {
  Covering<T, N, kCount> v = {};
#pragma unroll
  for (int i = 0; i < kCount; ++i) {
    if (i * N >= begin) v.vectors[i] = load_aligned_partial<N>(p + i * N, end - i * N);
  }
  return v;
}
//@ end

//@ primitive pick_vector needs Vector Covering
/// Elements kFirst, kFirst + kStride … of vectors that lie one behind the other.
template <int N, int kFirst, int kStride, class T, int kEach, int kCount>
__device__ __forceinline__ Vector<T, N> pick_vector(const Covering<T, kEach, kCount>& v) {
  Vector<T, N> picked;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const int at = kFirst + e * kStride;
    picked.set(e, v.vectors[at / kEach].get(at % kEach));
  }
  return picked;
}
//@ end

//@ primitive store_woven needs Vector Covering store_aligned
/// Vectors of all fields of N coordinates to p, in vectors of kEach elements: the first elements of
/// all of them, the second ones … The address is a multiple of such a vector's alignment.
template <int kEach, class T, int N, class... Others>
__device__ __forceinline__ void store_woven(T* p, const Vector<T, N>& first,
                                            const Others&... others) {
  constexpr int kFields = 1 + sizeof...(others);
  const Vector<T, N> fields[kFields] = {first, others...};
  Covering<T, kEach, kFields * N / kEach> v;
#pragma unroll
  for (int at = 0; at < kFields * N; ++at) {
    v.vectors[at / kEach].set(at % kEach, fields[at % kFields].get(at / kFields));
  }
#pragma unroll
  for (int i = 0; i < kFields * N / kEach; ++i) store_aligned(p + i * kEach, v.vectors[i]);
}
//@ end

//@ primitive store_woven_partial needs Vector store_woven store_element
/// The same of the first `count` coordinates; a count of N or more means all.
template <int kEach, class T, int N, class... Others>
__device__ __forceinline__ void store_woven_partial(T* p, int count, const Vector<T, N>& first,
                                                    const Others&... others) {
  if (count >= N) {
    store_woven<kEach>(p, first, others...);
    return;
  }
  constexpr int kFields = 1 + sizeof...(others);
  const Vector<T, N> fields[kFields] = {first, others...};
#pragma unroll
  for (int at = 0; at < kFields * N; ++at) {
    if (at / kFields < count) store_element(p + at, fields[at % kFields].get(at / kFields));
  }
}
//@ end

//@ primitive opaque_zero
/// 0 that the compiler cannot know to be 0: every grid of ours has one row.
[[maybe_unused]] __device__ __forceinline__ unsigned opaque_zero() { return gridDim.y - 1u; }
//@ end

//@ primitive reload needs Vector opaque_zero includes <cstdint> <cstring>
/// The same vector, computed in a way that differs for each kWalk: what is derived from it is not
/// kept in registers from one walk of a tile to the next but derived again from the narrow data.
template <int kWalk, class T, int N>
__device__ __forceinline__ Vector<T, N> reload(const Vector<T, N>& v) {
  constexpr int kBytes = sizeof(Vector<T, N>);
  Vector<T, N> result = v;
  constexpr int kWord = kBytes < 4 ? kBytes : 4;
  const uint32_t zero = opaque_zero();
#pragma unroll
  for (int i = 0; i < kBytes / kWord; ++i) {
    uint32_t word = 0;
    memcpy(&word, reinterpret_cast<const unsigned char*>(&v) + kWord * i, kWord);
    if constexpr (kWalk % 3 == 1) {
      word ^= zero;
    } else if constexpr (kWalk % 3 == 2) {
      word |= zero;
    } else {
      word -= zero;
    }
    memcpy(reinterpret_cast<unsigned char*>(&result) + kWord * i, &word, kWord);
  }
  return result;
}
//@ end

//@ primitive opaque_one
/// 1, of which the compiler knows no bit: every grid of ours has one row.
[[maybe_unused]] __device__ __forceinline__ unsigned opaque_one() { return gridDim.y; }
//@ end

//@ primitive widen_vector needs Vector bf16_t bitcast byte_permute opaque_one
//@   includes <cstdint> <cstring>
/// The elements as floats, exactly: one instruction each, as whole words are taken apart. As with
/// `reload`, each kWalk has instructions of its own: the floats of one walk are not kept for the
/// next. The three upper bytes of opaque_one() are the zeros below an element.
template <int kWalk = 0, int N>
__device__ __forceinline__ Vector<float, N> widen_vector(const Vector<bf16_t, N>& v) {
  static_assert(N % 2 == 0, "pairs");
  Vector<float, N> result;
#pragma unroll
  for (int i = 0; i < N; i += 2) {
    uint32_t word;
    memcpy(&word, v.units + i, 4);
    uint32_t low = word << 16;
    uint32_t high = word & 0xffff0000u;
    if constexpr (kWalk > 0) {
      constexpr unsigned kZero = 0x55u + 0x11u * ((kWalk - 1) % 3);
      const uint32_t one = opaque_one();
      low = byte_permute<0x1000u + kZero>(word, one);
      high = byte_permute<0x3200u + kZero>(word, one);
    }
    result[i] = bitcast<float>(low);
    result[i + 1] = bitcast<float>(high);
  }
  return result;
}
//@ end

//@ primitive max_of_vector needs Vector bf16_t max_pair max_nan bitcast
//@   includes <cstdint> <cstring>
/// The greatest element as a float; a NaN wins.
template <int N>
__device__ __forceinline__ float max_of_vector(const Vector<bf16_t, N>& v) {
  static_assert(N % 2 == 0, "pairs");
  uint32_t words[N / 2];
  memcpy(words, v.units, sizeof(words));
#pragma unroll
  for (int i = 1; i < N / 2; ++i) words[0] = max_pair<bf16_t>(words[0], words[i]);
  return max_nan(bitcast<float>(words[0] << 16), bitcast<float>(words[0] & 0xffff0000u));
}
//@ end

//@ primitive min_of_vector needs Vector bf16_t min_pair min_nan bitcast
//@   includes <cstdint> <cstring>
/// The least element as a float; a NaN wins.
template <int N>
__device__ __forceinline__ float min_of_vector(const Vector<bf16_t, N>& v) {
  static_assert(N % 2 == 0, "pairs");
  uint32_t words[N / 2];
  memcpy(words, v.units, sizeof(words));
#pragma unroll
  for (int i = 1; i < N / 2; ++i) words[0] = min_pair<bf16_t>(words[0], words[i]);
  return min_nan(bitcast<float>(words[0] << 16), bitcast<float>(words[0] & 0xffff0000u));
}
//@ end

//@ primitive resident_ctas
/// How many CTAs of `threads` threads to ask an SM for: `wanted`, as far as the architecture has
/// room (CUDA C++ Programming Guide, technical specifications per compute capability).
constexpr int resident_ctas(int threads, int wanted) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 750
  constexpr int kThreadsPerSm = 1024;
#elif defined(__CUDA_ARCH__) && \
    (__CUDA_ARCH__ == 860 || __CUDA_ARCH__ == 870 || __CUDA_ARCH__ == 890 || __CUDA_ARCH__ >= 1200)
  constexpr int kThreadsPerSm = 1536;
#else
  constexpr int kThreadsPerSm = 2048;
#endif
  return wanted * threads <= kThreadsPerSm ? wanted : kThreadsPerSm / threads;
}
//@ end

//@ primitive debug_assert includes <cstdio>
/// In a debug build: says the message and stops the kernel unless the condition holds.
[[maybe_unused]] __device__ __forceinline__ void debug_assert(
    [[maybe_unused]] bool condition, [[maybe_unused]] const char* message) {
#ifdef TILEC_DEBUG
  if (!condition) {
    printf("%s\n", message);
    __trap();
  }
#endif
}
//@ end
