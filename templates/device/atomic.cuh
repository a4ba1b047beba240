//! Atomics on global memory, those of a float or an integer on shared memory too. They give nothing
//! back, so the compiler may emit reductions.
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
/// red.add.noftz.f16 on global memory: rounded to nearest even (PTX ISA, red).
[[maybe_unused]] __device__ __forceinline__ void atomic_add(f16_t* p, f16_t x) {
  asm volatile("red.relaxed.gpu.global.add.noftz.f16 [%0], %1;"
               :
               : "l"(__cvta_generic_to_global(p)), "h"(x.bits)
               : "memory");
}
//@ end

//@ primitive atomic_add_bf16 extends atomic_add with bf16_t needs atomic_update widen widen_bf16
//@ needs float_to_bf16
/// red.add.noftz.bf16 on global memory since sm_90, before it by compare and swap; rounded to
/// nearest even.
[[maybe_unused]] __device__ __forceinline__ void atomic_add(bf16_t* p, bf16_t x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  asm volatile("red.relaxed.gpu.global.add.noftz.bf16 [%0], %1;"
               :
               : "l"(__cvta_generic_to_global(p)), "h"(x.bits)
               : "memory");
#else
  atomic_update(p, [x](bf16_t seen) { return float_to_bf16(widen(seen) + widen(x)); });
#endif
}
//@ end

//@ primitive red_add needs atomic_add includes <cstdint>
/// p[n] += x[n], each element in one step of its own, by one instruction on kWords words of global
/// memory at a multiple of their size (PTX ISA, red: vectors since sm_90; before it one by one).
template <int kWords>
__device__ __forceinline__ void red_add(float* p, const uint32_t (&x)[kWords]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  static_assert(kWords == 2 || kWords == 4, "vectors of two or four floats");
  if constexpr (kWords == 4) {
    asm volatile("red.relaxed.gpu.global.add.v4.f32 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(p)), "f"(__uint_as_float(x[0])),
                   "f"(__uint_as_float(x[1])), "f"(__uint_as_float(x[2])),
                   "f"(__uint_as_float(x[3]))
                 : "memory");
  } else {
    asm volatile("red.relaxed.gpu.global.add.v2.f32 [%0], {%1, %2};"
                 :
                 : "l"(__cvta_generic_to_global(p)), "f"(__uint_as_float(x[0])),
                   "f"(__uint_as_float(x[1]))
                 : "memory");
  }
#else
#pragma unroll
  for (int n = 0; n < kWords; ++n) atomic_add(p + n, __uint_as_float(x[n]));
#endif
}
//@ end

//@ primitive red_add_f16 extends red_add with f16_t
/// The same on pairs of f16, of which every architecture takes one at a time.
template <int kWords>
__device__ __forceinline__ void red_add(f16_t* p, const uint32_t (&x)[kWords]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  constexpr int kEach = kWords;
#else
  constexpr int kEach = 1;
#endif
#pragma unroll
  for (int n = 0; n < kWords; n += kEach) {
    const auto at = __cvta_generic_to_global(p + 2 * n);
    if constexpr (kEach == 4) {
      asm volatile("red.relaxed.gpu.global.add.noftz.v4.f16x2 [%0], {%1, %2, %3, %4};"
                   :
                   : "l"(at), "r"(x[n]), "r"(x[n + 1]), "r"(x[n + 2]), "r"(x[n + 3])
                   : "memory");
    } else if constexpr (kEach == 2) {
      asm volatile("red.relaxed.gpu.global.add.noftz.v2.f16x2 [%0], {%1, %2};"
                   :
                   : "l"(at), "r"(x[n]), "r"(x[n + 1])
                   : "memory");
    } else {
      asm volatile("red.relaxed.gpu.global.add.noftz.f16x2 [%0], %1;"
                   :
                   : "l"(at), "r"(x[n])
                   : "memory");
    }
  }
}
//@ end

//@ primitive red_add_bf16 extends red_add with bf16_t needs atomic_add atomic_add_bf16
/// The same on pairs of bf16, since sm_90 alone.
template <int kWords>
__device__ __forceinline__ void red_add(bf16_t* p, const uint32_t (&x)[kWords]) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
  if constexpr (kWords == 4) {
    asm volatile("red.relaxed.gpu.global.add.noftz.v4.bf16x2 [%0], {%1, %2, %3, %4};"
                 :
                 : "l"(__cvta_generic_to_global(p)), "r"(x[0]), "r"(x[1]), "r"(x[2]), "r"(x[3])
                 : "memory");
  } else if constexpr (kWords == 2) {
    asm volatile("red.relaxed.gpu.global.add.noftz.v2.bf16x2 [%0], {%1, %2};"
                 :
                 : "l"(__cvta_generic_to_global(p)), "r"(x[0]), "r"(x[1])
                 : "memory");
  } else {
    asm volatile("red.relaxed.gpu.global.add.noftz.bf16x2 [%0], %1;"
                 :
                 : "l"(__cvta_generic_to_global(p)), "r"(x[0])
                 : "memory");
  }
#else
#pragma unroll
  for (int n = 0; n < 2 * kWords; ++n) {
    bf16_t one;
    one.bits = static_cast<uint16_t>(x[n / 2] >> 16 * (n % 2));
    atomic_add(p + n, one);
  }
#endif
}
//@ end

//@ primitive atomic_add_vector needs Vector red_add includes <cstdint> <cstring>
/// p[n] += v[n], each element in one step of its own, kBytes of them in an instruction; p is a
/// multiple of that.
template <int kBytes, class T, int N>
__device__ __forceinline__ void atomic_add_vector(T* p, const Vector<T, N>& v) {
  static_assert(sizeof(v) % kBytes == 0, "whole pieces");
#pragma unroll
  for (int i = 0; i < static_cast<int>(sizeof(v)) / kBytes; ++i) {
    uint32_t words[kBytes / 4];
    memcpy(words, reinterpret_cast<const unsigned char*>(&v) + i * kBytes, kBytes);
    red_add(p + i * kBytes / static_cast<int>(sizeof(T)), words);
  }
}
//@ end

//@ primitive atomic_add_vector_partial needs Vector atomic_add atomic_add_vector
/// The same for the first `count` elements of v.
template <int kBytes, class T, int N>
__device__ __forceinline__ void atomic_add_vector_partial(T* p, const Vector<T, N>& v, int count) {
  if (count >= N) {
    atomic_add_vector<kBytes>(p, v);
    return;
  }
#pragma unroll
  for (int e = 0; e < N; ++e) {
    if (e < count) atomic_add(p + e, v.units[e]);
  }
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
