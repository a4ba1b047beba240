//@ primitive sync_warp
/// The lanes of a warp meet; what they did to memory before is seen behind it, and nothing is read
/// ahead of it.
[[maybe_unused]] __device__ __forceinline__ void sync_warp() { __syncwarp(); }
//@ end

//@ primitive shuffle_xor includes <cstdint> <cstring>
/// x of the lane whose number differs by `lane_mask`, for any trivially copyable T. All 32 lanes
/// take part.
template <class T>
__device__ __forceinline__ T shuffle_xor(T x, int lane_mask) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &x, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_xor_sync(0xffffffffu, words[i], lane_mask);
  memcpy(&x, words, sizeof(T));
  return x;
}
//@ end

//@ primitive shuffle_up includes <cstdint> <cstring>
/// x of the lane `distance` below; the lowest lanes keep theirs. All 32 lanes take part.
template <class T>
__device__ __forceinline__ T shuffle_up(T x, int distance) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &x, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_up_sync(0xffffffffu, words[i], distance);
  memcpy(&x, words, sizeof(T));
  return x;
}
//@ end

//@ primitive shuffle_from includes <cstdint> <cstring>
/// x of lane `source`. All 32 lanes take part.
template <class T>
__device__ __forceinline__ T shuffle_from(T x, int source) {
  constexpr int kWords = (sizeof(T) + 3) / 4;
  uint32_t words[kWords] = {};
  memcpy(words, &x, sizeof(T));
#pragma unroll
  for (int i = 0; i < kWords; ++i) words[i] = __shfl_sync(0xffffffffu, words[i], source);
  memcpy(&x, words, sizeof(T));
  return x;
}
//@ end

//@ primitive uniform_int needs shuffle_from
/// x of lane 0: tells the compiler that a value is the same in the whole warp.
template <class T>
__device__ __forceinline__ T uniform_int(T x) {
  return shuffle_from(x, 0);
}
//@ end

//@ primitive any_lane
/// Whether x holds in any thread of the warp.
[[maybe_unused]] __device__ __forceinline__ bool any_lane(bool x) {
  return __any_sync(0xffffffffu, x) != 0;
}
//@ end

//@ primitive lanes_where includes <cstdint>
/// The lanes of the warp in which x holds, as bits.
[[maybe_unused]] __device__ __forceinline__ uint32_t lanes_where(bool x) {
  return __ballot_sync(0xffffffffu, x);
}
//@ end

//@ primitive count_bits includes <cstdint>
/// How many bits are set.
[[maybe_unused]] __device__ __forceinline__ int count_bits(uint32_t x) { return __popc(x); }
//@ end

//@ primitive lowest_bit includes <cstdint>
/// The place of the lowest bit that is set; there is one.
[[maybe_unused]] __device__ __forceinline__ int lowest_bit(uint32_t x) {
  return __ffs(static_cast<int>(x)) - 1;
}
//@ end

//@ primitive highest_bit includes <cstdint>
/// The place of the highest bit that is set; there is one.
[[maybe_unused]] __device__ __forceinline__ int highest_bit(uint32_t x) {
  return 31 - __clz(static_cast<int>(x));
}
//@ end

//@ primitive SurvivorWalk needs count_bits lowest_bit highest_bit max_of includes <cstdint>
/// Where a walk of the trips that survive a filter stands. What follows of 32 trips is in `left`, a
/// bit for each that survives; the next trip that nobody has asked about is `next`.
struct SurvivorWalk {
  int number = -1;
  int at = -1;
  int before = -1;
  int next = 0;
  uint32_t left = 0;

  /// Whether the walk has to go on to number `wanted`; what lies more than one behind begins anew.
  template <class Int>
  __device__ __forceinline__ bool is_before(Int wanted) {
    if (wanted < number - 1) *this = SurvivorWalk();
    return number < wanted;
  }
  /// Whether the next 32 of so many trips have to be asked about.
  template <class Int>
  __device__ __forceinline__ bool asks(Int trips) const { return left == 0 && next < trips; }
  /// The answers for them.
  __device__ __forceinline__ void take(uint32_t word) {
    left = word;
    next += 32;
  }
  /// The same; if all of them lie in front of number `wanted` they are passed by.
  template <class Int>
  __device__ __forceinline__ void pass_by(uint32_t word, Int wanted) {
    if (word != 0 && number + count_bits(word) < wanted) {
      number += count_bits(word);
      at = next + highest_bit(word);
      word = 0;
    }
    take(word);
  }
  /// To the next one, if there is one.
  __device__ __forceinline__ void step() {
    before = at;
    if (left != 0) at = next - 32 + lowest_bit(left);
    left &= left - 1;
    ++number;
  }
  /// The trip of the one that the walk stands at, or of the one before.
  template <class Int>
  __device__ __forceinline__ int trip(Int wanted) const {
    return max_of(wanted < number ? before : at, 0);
  }
};
//@ end

//@ primitive seldom
/// Stands in a branch that is seldom taken: the compiler does not compute what is in it beforehand.
[[maybe_unused]] __device__ __forceinline__ void seldom() { asm volatile(""); }
//@ end

//@ primitive lane_id
/// The number of this thread in its warp; blocks are one-dimensional.
[[maybe_unused]] __device__ __forceinline__ int lane_id() {
  return static_cast<int>(threadIdx.x % 32u);
}
//@ end

//@ primitive least_of includes <cmath> <cstdint> <type_traits>
/// -inf, or the least value of an integer type.
template <class T>
__device__ __forceinline__ T least_of() {
  if constexpr (std::is_floating_point<T>::value) {
    return -static_cast<T>(INFINITY);
  } else {
    return std::is_signed<T>::value ? static_cast<T>(uint64_t(1) << (8 * sizeof(T) - 1)) : T(0);
  }
}
//@ end

//@ primitive greatest_of includes <cmath> <cstdint> <type_traits>
/// +inf, or the greatest value of an integer type.
template <class T>
__device__ __forceinline__ T greatest_of() {
  if constexpr (std::is_floating_point<T>::value) {
    return static_cast<T>(INFINITY);
  } else {
    constexpr int kUnused = 64 - 8 * sizeof(T) + (std::is_signed<T>::value ? 1 : 0);
    return static_cast<T>(~uint64_t(0) >> kUnused);
  }
}
//@ end

//@ primitive OpSum needs add_wrap includes <type_traits>
/// Sum; integers wrap.
template <class T>
struct OpSum {
  static __device__ __forceinline__ T identity() { return T(0); }
  static __device__ __forceinline__ T combine(T a, T b) {
    if constexpr (std::is_floating_point<T>::value) {
      return a + b;
    } else {
      return add_wrap(a, b);
    }
  }
};
//@ end

//@ primitive OpProd needs mul_wrap includes <type_traits>
/// Product; integers wrap.
template <class T>
struct OpProd {
  static __device__ __forceinline__ T identity() { return T(1); }
  static __device__ __forceinline__ T combine(T a, T b) {
    if constexpr (std::is_floating_point<T>::value) {
      return a * b;
    } else {
      return mul_wrap(a, b);
    }
  }
};
//@ end

//@ primitive OpMax needs max_nan max_of least_of includes <type_traits>
/// Maximum; a NaN wins.
template <class T>
struct OpMax {
  static __device__ __forceinline__ T identity() { return least_of<T>(); }
  static __device__ __forceinline__ T combine(T a, T b) {
    if constexpr (std::is_floating_point<T>::value) {
      return max_nan(a, b);
    } else {
      return max_of(a, b);
    }
  }
};
//@ end

//@ primitive OpMin needs min_nan min_of greatest_of includes <type_traits>
/// Minimum; a NaN wins.
template <class T>
struct OpMin {
  static __device__ __forceinline__ T identity() { return greatest_of<T>(); }
  static __device__ __forceinline__ T combine(T a, T b) {
    if constexpr (std::is_floating_point<T>::value) {
      return min_nan(a, b);
    } else {
      return min_of(a, b);
    }
  }
};
//@ end

//@ primitive OpAny
/// Whether one is true.
struct OpAny {
  template <class Bool = bool>
  static __device__ __forceinline__ bool identity() { return false; }
  template <class Bool = bool>
  static __device__ __forceinline__ bool combine(Bool a, Bool b) { return a || b; }
};
//@ end

//@ primitive OpAll
/// Whether all are true.
struct OpAll {
  template <class Bool = bool>
  static __device__ __forceinline__ bool identity() { return true; }
  template <class Bool = bool>
  static __device__ __forceinline__ bool combine(Bool a, Bool b) { return a && b; }
};
//@ end

//@ primitive OpAnd
/// Bitwise and.
template <class T>
struct OpAnd {
  static __device__ __forceinline__ T identity() { return static_cast<T>(~T(0)); }
  static __device__ __forceinline__ T combine(T a, T b) { return static_cast<T>(a & b); }
};
//@ end

//@ primitive OpOr
/// Bitwise or.
template <class T>
struct OpOr {
  static __device__ __forceinline__ T identity() { return T(0); }
  static __device__ __forceinline__ T combine(T a, T b) { return static_cast<T>(a | b); }
};
//@ end

//@ primitive OpXor
/// Bitwise exclusive or.
template <class T>
struct OpXor {
  static __device__ __forceinline__ T identity() { return T(0); }
  static __device__ __forceinline__ T combine(T a, T b) { return static_cast<T>(a ^ b); }
};
//@ end

//@ primitive Indexed
/// A value and where it was.
template <class T>
struct Indexed {
  T value;
  int index;
};
//@ end

//@ primitive OpArgMax needs Indexed least_of
/// Place of the maximum as NumPy has it: a NaN wins, the first of equals.
template <class T>
struct OpArgMax {
  static __device__ __forceinline__ Indexed<T> identity() {
    return Indexed<T>{least_of<T>(), 0x7fffffff};
  }
  static __device__ __forceinline__ Indexed<T> combine(Indexed<T> a, Indexed<T> b) {
    const bool nan_a = a.value != a.value;
    const bool nan_b = b.value != b.value;
    const bool equal = nan_a ? nan_b : a.value == b.value;
    const bool greater = nan_b ? !nan_a : !nan_a && b.value > a.value;
    return greater || (equal && b.index < a.index) ? b : a;
  }
};
//@ end

//@ primitive OpArgMin needs Indexed greatest_of
/// Place of the minimum as NumPy has it: a NaN wins, the first of equals.
template <class T>
struct OpArgMin {
  static __device__ __forceinline__ Indexed<T> identity() {
    return Indexed<T>{greatest_of<T>(), 0x7fffffff};
  }
  static __device__ __forceinline__ Indexed<T> combine(Indexed<T> a, Indexed<T> b) {
    const bool nan_a = a.value != a.value;
    const bool nan_b = b.value != b.value;
    const bool equal = nan_a ? nan_b : a.value == b.value;
    const bool less = nan_b ? !nan_a : !nan_a && b.value < a.value;
    return less || (equal && b.index < a.index) ? b : a;
  }
};
//@ end

//@ primitive lane_reduce needs shuffle_xor
/// Op over the kLanes lanes (a power of two) whose numbers differ by multiples of kStride; each of
/// them gets the result, the same bits in all, as the operations of `Op` commute.
template <class Op, int kLanes, int kStride = 1, class T>
__device__ __forceinline__ T lane_reduce(T x) {
  static_assert(kLanes * kStride <= 32, "the lanes of one warp");
#pragma unroll
  for (int offset = kStride; offset < kLanes * kStride; offset *= 2) {
    x = Op::combine(x, shuffle_xor(x, offset));
  }
  return x;
}
//@ end

//@ primitive lane_reduce_with needs shuffle_xor lane_id
/// The same for a function object that need not commute: values are combined in the order of lanes.
template <int kLanes, int kStride = 1, class T, class Combine>
__device__ __forceinline__ T lane_reduce_with(T x, Combine combine) {
  static_assert(kLanes * kStride <= 32, "the lanes of one warp");
#pragma unroll
  for (int offset = kStride; offset < kLanes * kStride; offset *= 2) {
    const T other = shuffle_xor(x, offset);
    const bool upper = (lane_id() & offset) != 0;
    const T first = upper ? other : x;
    const T second = upper ? x : other;
    x = combine(first, second);
  }
  return x;
}
//@ end

//@ primitive group_reduce
/// Op over kWarps consecutive warps whose lanes all hold their warp's value; every thread gets the
/// same bits. `warp` counts inside the group, `scratch` is the group's own shared memory, kWarps
/// elements. All threads of the CTA take part; the scratch may be written again after the next
/// barrier.
template <class Op, int kWarps, class T>
__device__ __forceinline__ T group_reduce(T x, T* scratch, int warp, int lane) {
  if constexpr (kWarps == 1) {
    return x;
  } else {
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    T total = scratch[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) total = Op::combine(total, scratch[w]);
    return total;
  }
}
//@ end

//@ primitive group_reduce_slots
/// The same where the lanes of a warp hold kSlots different values: `slot` says which one this lane
/// holds, `writes` is true in one lane of each slot. The scratch has kWarps·kSlots elements.
template <class Op, int kWarps, int kSlots, class T>
__device__ __forceinline__ T group_reduce_slots(T x, T* scratch, int warp, int slot, bool writes) {
  if constexpr (kWarps == 1) {
    return x;
  } else {
    if (writes) scratch[warp * kSlots + slot] = x;
    __syncthreads();
    T total = scratch[slot];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) total = Op::combine(total, scratch[w * kSlots + slot]);
    return total;
  }
}
//@ end

//@ primitive group_reduce_with
/// group_reduce with a function object; warps are combined in order.
template <int kWarps, class T, class Combine>
__device__ __forceinline__ T group_reduce_with(T x, T* scratch, int warp, int lane,
                                               Combine combine) {
  if constexpr (kWarps == 1) {
    return x;
  } else {
    if (lane == 0) scratch[warp] = x;
    __syncthreads();
    T total = scratch[0];
#pragma unroll
    for (int w = 1; w < kWarps; ++w) total = combine(total, scratch[w]);
    return total;
  }
}
//@ end

//@ primitive lane_scan needs shuffle_up lane_id
/// Inclusive scan over the kLanes lanes (a power of two) that differ by multiples of kStride.
template <class Op, int kLanes, int kStride = 1, class T>
__device__ __forceinline__ T lane_scan(T x) {
  static_assert(kLanes * kStride <= 32, "the lanes of one warp");
  const int place = lane_id() / kStride % kLanes;
#pragma unroll
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const T below = shuffle_up(x, distance * kStride);
    if (place >= distance) x = Op::combine(below, x);
  }
  return x;
}
//@ end

//@ primitive lane_scan_before needs lane_scan shuffle_up lane_id
/// The same of the lanes before this one: the neutral element in the first.
template <class Op, int kLanes, int kStride = 1, class T>
__device__ __forceinline__ T lane_scan_before(T x) {
  const T below = shuffle_up(lane_scan<Op, kLanes, kStride>(x), kStride);
  return lane_id() / kStride % kLanes == 0 ? Op::identity() : below;
}
//@ end

//@ primitive group_scan_offset
/// What a scan over kWarps warps has to put in front of this warp's values: Op over the totals of
/// the warps before it. `total` is this warp's, the same in all lanes; scratch as in group_reduce.
template <class Op, int kWarps, class T>
__device__ __forceinline__ T group_scan_offset(T total, T* scratch, int warp, int lane) {
  if (lane == 0) scratch[warp] = total;
  __syncthreads();
  T before = Op::identity();
#pragma unroll
  for (int w = 0; w < kWarps - 1; ++w) {
    if (w < warp) before = Op::combine(before, scratch[w]);
  }
  return before;
}
//@ end
