//! The host's form of atomic.cuh: one thread runs at a time, so an update is a read and a write.
//@ primitive atomic_update needs SharedPointer
/// Replaces the T at p, in global or shared memory, by update of it.
template <class T, class Update>
inline void atomic_update(T* p, Update update, int line = __builtin_LINE()) {
  T value;
  tilec_host::read_global(&value, p, sizeof(T), sizeof(T), line);
  value = update(value);
  tilec_host::write_global(p, &value, sizeof(T), sizeof(T), line);
}
template <class T, class Update>
inline void atomic_update(const SharedPointer<T>& p, Update update, int line = __builtin_LINE()) {
  tilec_host::note(line);
  unsigned char* place = tilec_host::enter_shared(p.where, sizeof(T), sizeof(T), tilec_host::kAtomic);
  T value;
  memcpy(&value, place, sizeof(T));
  value = update(value);
  memcpy(place, &value, sizeof(T));
}
//@ end

//@ primitive atomic_values needs add_wrap max_nan min_nan max_of min_of widen widen_f16 widen_bf16
//@ needs float_to_f16 float_to_bf16
inline f16_t narrowed(f16_t, float x) { return float_to_f16(x); }
inline bf16_t narrowed(bf16_t, float x) { return float_to_bf16(x); }
template <class T>
inline T sum_of_values(T a, T b) {
  if constexpr (std::is_floating_point<T>::value) return a + b;
  else if constexpr (std::is_integral<T>::value) return add_wrap(a, b);
  else return narrowed(a, widen(a) + widen(b));
}
template <class T>
inline T max_of_values(T a, T b) {
  if constexpr (std::is_floating_point<T>::value) return max_nan(a, b);
  else if constexpr (std::is_integral<T>::value) return max_of(a, b);
  else return narrowed(a, max_nan(widen(a), widen(b)));
}
template <class T>
inline T min_of_values(T a, T b) {
  if constexpr (std::is_floating_point<T>::value) return min_nan(a, b);
  else if constexpr (std::is_integral<T>::value) return min_of(a, b);
  else return narrowed(a, min_nan(widen(a), widen(b)));
}
//@ end

//@ primitive atomic_add needs atomic_update atomic_values
template <class Pointer, class T>
inline void atomic_add(const Pointer& p, T x, int line = __builtin_LINE()) {
  atomic_update(p, [x](T seen) { return sum_of_values(seen, x); }, line);
}
//@ end

//@ primitive red_add
//@ end

//@ primitive red_add_f16
//@ end

//@ primitive red_add_bf16
//@ end

//@ primitive atomic_add_vector needs Vector atomic_values
template <int kBytes, class T, int N>
inline void atomic_add_vector(T* p, const Vector<T, N>& v, int line = __builtin_LINE()) {
  constexpr int kEach = kBytes / static_cast<int>(sizeof(T));
  for (int i = 0; i < N; i += kEach) {
    T seen[kEach];
    tilec_host::read_global(seen, p + i, kBytes, kBytes, line);
    for (int e = 0; e < kEach; ++e) seen[e] = sum_of_values(seen[e], v.units[i + e]);
    tilec_host::write_global(p + i, seen, kBytes, kBytes, line);
  }
}
//@ end

//@ primitive atomic_add_vector_partial needs Vector atomic_add atomic_add_vector
template <int kBytes, class T, int N>
inline void atomic_add_vector_partial(T* p, const Vector<T, N>& v, int count,
                                      int line = __builtin_LINE()) {
  if (count >= N) {
    atomic_add_vector<kBytes>(p, v, line);
    return;
  }
  for (int e = 0; e < count; ++e) atomic_add(p + e, v.units[e], line);
}
//@ end

//@ primitive draw_item needs atomic_update
inline int draw_item(int* counter, int line = __builtin_LINE()) {
  int before = 0;
  atomic_update(counter, [&before](int seen) { return (before = seen) + 1; }, line);
  return before;
}
//@ end

//@ primitive atomic_max needs atomic_update atomic_values
template <class Pointer, class T>
inline void atomic_max(const Pointer& p, T x, int line = __builtin_LINE()) {
  atomic_update(p, [x](T seen) { return max_of_values(seen, x); }, line);
}
//@ end

//@ primitive atomic_min needs atomic_update atomic_values
template <class Pointer, class T>
inline void atomic_min(const Pointer& p, T x, int line = __builtin_LINE()) {
  atomic_update(p, [x](T seen) { return min_of_values(seen, x); }, line);
}
//@ end

//@ primitive atomic_add_f16
//@ end

//@ primitive atomic_add_bf16
//@ end

//@ primitive atomic_max_f16
//@ end

//@ primitive atomic_max_bf16
//@ end

//@ primitive atomic_min_f16
//@ end

//@ primitive atomic_min_bf16
//@ end
