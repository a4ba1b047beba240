//! Atomics on global or shared memory. They give nothing back, so the compiler may emit reductions.
//@ primitive atomic_update includes <cstdint> <cstring> <type_traits>
/// Replaces *p by update(*p) in one step, for T of 1 to 8 bytes; small ones through the aligned
/// word around them. Stops early where the update changes nothing.
template <class T, class Update>
__device__ __forceinline__ void atomic_update(T* p, Update update) {
  using Word = std::conditional_t<sizeof(T) == 8, unsigned long long, unsigned int>;
  using Bits = std::conditional_t<
      sizeof(T) == 1, uint8_t,
      std::conditional_t<sizeof(T) == 2, uint16_t,
                         std::conditional_t<sizeof(T) == 4, uint32_t, uint64_t>>>;
  const uintptr_t address = reinterpret_cast<uintptr_t>(p);
  const uintptr_t inside = address % sizeof(Word);
  Word* word = reinterpret_cast<Word*>(address - inside);
  const int shift = static_cast<int>(8 * inside);
  const Word mask = static_cast<Word>(static_cast<Bits>(~Bits(0))) << shift;
  Word seen = *static_cast<volatile Word*>(word);
  while (true) {
    const Bits bits = static_cast<Bits>(seen >> shift);
    T value;
    memcpy(&value, &bits, sizeof(T));
    value = update(value);
    Bits changed;
    memcpy(&changed, &value, sizeof(T));
    if (changed == bits) return;
    const Word wanted = (seen & ~mask) | static_cast<Word>(changed) << shift;
    const Word before = atomicCAS(word, seen, wanted);
    if (before == seen) return;
    seen = before;
  }
}
//@ end

//@ primitive atomic_add needs atomic_update add_wrap includes <type_traits>
/// *p += x in one step; integers wrap.
template <class T>
__device__ __forceinline__ void atomic_add(T* p, T x) {
  if constexpr (std::is_floating_point<T>::value) {
    atomicAdd(p, x);
  } else if constexpr (sizeof(T) == 8) {
    atomicAdd(reinterpret_cast<unsigned long long*>(p), static_cast<unsigned long long>(x));
  } else if constexpr (sizeof(T) == 4) {
    atomicAdd(reinterpret_cast<unsigned int*>(p), static_cast<unsigned int>(x));
  } else {
    atomic_update(p, [x](T seen) { return add_wrap(seen, x); });
  }
}
//@ end

//@ primitive draw_item
/// The next number of a counter.
[[maybe_unused]] __device__ __forceinline__ int draw_item(int* counter) {
  return atomicAdd(counter, 1);
}
//@ end

//@ primitive atomic_add_f16 extends atomic_add with f16_t
/// red.add.noftz.f16: rounded to nearest even (PTX ISA, red).
[[maybe_unused]] __device__ __forceinline__ void atomic_add(f16_t* p, f16_t x) {
  asm volatile("red.relaxed.gpu.add.noftz.f16 [%0], %1;" : : "l"(p), "h"(x.bits) : "memory");
}
//@ end

//@ primitive atomic_add_bf16 extends atomic_add with bf16_t needs atomic_update widen widen_bf16
//@ needs float_to_bf16
/// red.add.noftz.bf16 since sm_90, before it by compare and swap; rounded to nearest even.
[[maybe_unused]] __device__ __forceinline__ void atomic_add(bf16_t* p, bf16_t x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.add.noftz.bf16 [%0], %1;" : : "l"(p), "h"(x.bits) : "memory");
#else
  atomic_update(p, [x](bf16_t seen) { return float_to_bf16(widen(seen) + widen(x)); });
#endif
}
//@ end

//@ primitive atomic_max needs atomic_update max_nan max_of includes <type_traits>
/// *p = max(*p, x) in one step; a NaN wins.
template <class T>
__device__ __forceinline__ void atomic_max(T* p, T x) {
  if constexpr (std::is_floating_point<T>::value) {
    atomic_update(p, [x](T seen) { return max_nan(seen, x); });
  } else if constexpr (sizeof(T) == 8) {
    using Word = std::conditional_t<std::is_signed<T>::value, long long, unsigned long long>;
    atomicMax(reinterpret_cast<Word*>(p), static_cast<Word>(x));
  } else if constexpr (sizeof(T) == 4) {
    atomicMax(p, x);
  } else {
    atomic_update(p, [x](T seen) { return max_of(seen, x); });
  }
}
//@ end

//@ primitive atomic_min needs atomic_update min_nan min_of includes <type_traits>
/// *p = min(*p, x) in one step; a NaN wins.
template <class T>
__device__ __forceinline__ void atomic_min(T* p, T x) {
  if constexpr (std::is_floating_point<T>::value) {
    atomic_update(p, [x](T seen) { return min_nan(seen, x); });
  } else if constexpr (sizeof(T) == 8) {
    using Word = std::conditional_t<std::is_signed<T>::value, long long, unsigned long long>;
    atomicMin(reinterpret_cast<Word*>(p), static_cast<Word>(x));
  } else if constexpr (sizeof(T) == 4) {
    atomicMin(p, x);
  } else {
    atomic_update(p, [x](T seen) { return min_of(seen, x); });
  }
}
//@ end

//@ primitive atomic_max_f16 extends atomic_max with f16_t
//@ needs widen widen_f16 float_to_f16 atomic_update max_nan
[[maybe_unused]] __device__ __forceinline__ void atomic_max(f16_t* p, f16_t x) {
  atomic_update(p, [x](f16_t seen) {
    return float_to_f16(max_nan(widen(seen), widen(x)));
  });
}
//@ end

//@ primitive atomic_max_bf16 extends atomic_max with bf16_t
//@ needs widen widen_bf16 float_to_bf16 atomic_update max_nan
[[maybe_unused]] __device__ __forceinline__ void atomic_max(bf16_t* p, bf16_t x) {
  atomic_update(p, [x](bf16_t seen) {
    return float_to_bf16(max_nan(widen(seen), widen(x)));
  });
}
//@ end

//@ primitive atomic_min_f16 extends atomic_min with f16_t
//@ needs widen widen_f16 float_to_f16 atomic_update min_nan
[[maybe_unused]] __device__ __forceinline__ void atomic_min(f16_t* p, f16_t x) {
  atomic_update(p, [x](f16_t seen) {
    return float_to_f16(min_nan(widen(seen), widen(x)));
  });
}
//@ end

//@ primitive atomic_min_bf16 extends atomic_min with bf16_t
//@ needs widen widen_bf16 float_to_bf16 atomic_update min_nan
[[maybe_unused]] __device__ __forceinline__ void atomic_min(bf16_t* p, bf16_t x) {
  atomic_update(p, [x](bf16_t seen) {
    return float_to_bf16(min_nan(widen(seen), widen(x)));
  });
}
//@ end
