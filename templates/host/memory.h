//! The host's form of memory.cuh and of what tile.cuh does with memory: every access is checked.
//@ primitive SharedPointer
/// A pointer into an array of shared memory; it knows the array's bounds and the line that made it.
template <class T>
struct SharedPointer {
  tilec_host::SharedAddress where;
  SharedPointer operator+(int64_t n) const {
    SharedPointer moved = *this;
    moved.where.at += n * static_cast<int64_t>(sizeof(T));
    return moved;
  }
  SharedPointer operator-(int64_t n) const { return *this + -n; }
  auto operator*() const;
  T get() const {
    T value;
    tilec_host::read_shared(&value, where, sizeof(T), alignof(T));
    return value;
  }
  void set(const T& value) const { tilec_host::write_shared(where, &value, sizeof(T), alignof(T)); }
};
//@ end

//@ primitive SharedReference needs SharedPointer
/// An element of shared memory: read when it is converted to T, written when it is assigned.
template <class T>
struct SharedReference {
  SharedPointer<T> place;
  operator T() const { return place.get(); }
  const SharedReference& operator=(const T& value) const {
    place.set(value);
    return *this;
  }
  const SharedReference& operator=(const SharedReference& other) const { return *this = T(other); }
  const SharedReference& operator+=(const T& value) const { return *this = place.get() + value; }
  const SharedReference& operator-=(const T& value) const { return *this = place.get() - value; }
  const SharedReference& operator*=(const T& value) const { return *this = place.get() * value; }
  SharedPointer<T> operator&() const { return place; }
};
template <class T>
inline auto SharedPointer<T>::operator*() const {
  return SharedReference<T>{*this};
}
//@ end

//@ primitive SharedArray needs SharedPointer SharedReference
/// An index, with the line that it stands on.
struct SharedIndex {
  int64_t n;
  int line;
  template <class I>
  SharedIndex(I i, int at = __builtin_LINE()) : n(static_cast<int64_t>(i)), line(at) {}
};

template <class T, int N>
struct SharedArray {
  alignas(T) unsigned char bytes[sizeof(T) * N];
  SharedPointer<T> at(int64_t n, int line) const {
    const int64_t begin = tilec_host::shared_offset(bytes), size = sizeof(bytes);
    const int64_t place = begin + n * static_cast<int64_t>(sizeof(T));
    return SharedPointer<T>{{place, begin, begin + size, line}};
  }
  SharedReference<T> operator[](SharedIndex i) const { return {at(i.n, i.line)}; }
  SharedPointer<T> operator+(SharedIndex i) const { return at(i.n, i.line); }
};
//@ end

//@ primitive shared_place needs SharedPointer SharedArray
/// What an operation on shared memory was given: a pointer that knows its array, an array, or a
/// plain pointer.
template <class T>
inline tilec_host::SharedAddress shared_place(const SharedPointer<T>& p, int) {
  return p.where;
}
template <class T, int N>
inline tilec_host::SharedAddress shared_place(const SharedArray<T, N>& a, int line) {
  return a.at(0, line).where;
}
inline tilec_host::SharedAddress shared_place(const void* p, int line) {
  return tilec_host::whole_shared(p, line);
}
//@ end

//@ primitive cta_shared
template <class T>
inline T& cta_shared() {
  return *static_cast<T*>(tilec_host::static_shared(sizeof(T), alignof(T)));
}
//@ end

//@ primitive load_vector needs Vector kAccessBytes SharedPointer
template <int kAlign, int N, class T>
inline Vector<T, N> load_vector(const T* p, int line = __builtin_LINE()) {
  constexpr int kBytes = sizeof(Vector<T, N>);
  Vector<T, N> v;
  tilec_host::read_global(&v, p, kBytes, kAccessBytes<kAlign, kBytes>, line);
  return v;
}
template <int kAlign, int N, class T>
inline Vector<T, N> load_vector(const SharedPointer<T>& p, int line = __builtin_LINE()) {
  constexpr int kBytes = sizeof(Vector<T, N>);
  Vector<T, N> v;
  tilec_host::note(line);
  tilec_host::read_shared(&v, p.where, kBytes, kAccessBytes<kAlign, kBytes>);
  return v;
}
//@ end

//@ primitive store_vector needs Vector kAccessBytes SharedPointer
template <int kAlign, class T, int N>
inline void store_vector(T* p, const Vector<T, N>& v, int line = __builtin_LINE()) {
  constexpr int kBytes = sizeof(Vector<T, N>);
  tilec_host::write_global(p, &v, kBytes, kAccessBytes<kAlign, kBytes>, line);
}
template <int kAlign, class T, int N>
inline void store_vector(const SharedPointer<T>& p, const Vector<T, N>& v,
                         int line = __builtin_LINE()) {
  constexpr int kBytes = sizeof(Vector<T, N>);
  tilec_host::note(line);
  tilec_host::write_shared(p.where, &v, kBytes, kAccessBytes<kAlign, kBytes>);
}
//@ end

//@ primitive load_vector_partial needs Vector load_vector kPerUnit
template <int kAlign, int N, class T, class Count>
inline Vector<T, N> load_vector_partial(const T* p, Count count, int line = __builtin_LINE()) {
  if (count >= static_cast<Count>(N)) return load_vector<kAlign, N>(p, line);
  Vector<T, N> v = {};
  if (count <= 0) return v;
  const int whole = static_cast<int>(count);
  const int units = (whole + kPerUnit<T> - 1) / kPerUnit<T>;
  tilec_host::read_global(&v, p, units * static_cast<int>(sizeof(T)), sizeof(T), line);
  if (whole % kPerUnit<T> != 0) v.set(whole, {});
  return v;
}
//@ end

//@ primitive store_vector_partial needs Vector store_vector kPerUnit
template <int kAlign, class T, int N, class Count>
inline void store_vector_partial(T* p, const Vector<T, N>& v, Count count,
                                 int line = __builtin_LINE()) {
  if (count >= static_cast<Count>(N)) {
    store_vector<kAlign>(p, v, line);
    return;
  }
  if (count <= 0) return;
  const int whole = static_cast<int>(count);
  const int units = whole / kPerUnit<T>;
  tilec_host::write_global(p, &v, units * static_cast<int>(sizeof(T)), sizeof(T), line);
  if (whole % kPerUnit<T> != 0) {
    // The first element of the last byte; the second one stays.
    Vector<T, kPerUnit<T>> both = load_vector<1, kPerUnit<T>>(p + units, line);
    both.set(0, v.get(whole - 1));
    store_vector<1>(p + units, both, line);
  }
}
//@ end

//@ primitive load_aligned needs Vector load_vector
template <int N, class Pointer>
inline auto load_aligned(const Pointer& p, int line = __builtin_LINE()) {
  return load_vector<alignof(decltype(load_vector<1, N>(p))), N>(p, line);
}
//@ end

//@ primitive load_single needs Vector load_vector
template <int N, class T>
inline Vector<T, N> load_single(const T* p, int line = __builtin_LINE()) {
  return load_vector<alignof(T), N>(p, line);
}
template <int N, class T>
inline Vector<T, N> load_single(const SharedPointer<T>& p, int line = __builtin_LINE()) {
  return load_vector<alignof(T), N>(p, line);
}
//@ end

//@ primitive load_aligned_partial needs Vector load_vector_partial
template <int N, class T>
inline Vector<T, N> load_aligned_partial(const T* p, int count, int line = __builtin_LINE()) {
  return load_vector_partial<alignof(Vector<T, N>), N>(p, count, line);
}
//@ end

//@ primitive load_single_partial needs Vector load_vector_partial
template <int N, class T>
inline Vector<T, N> load_single_partial(const T* p, int count, int line = __builtin_LINE()) {
  return load_vector_partial<alignof(T), N>(p, count, line);
}
//@ end

//@ primitive store_aligned needs Vector store_vector
template <class Pointer, class T, int N>
inline void store_aligned(const Pointer& p, const Vector<T, N>& v, int line = __builtin_LINE()) {
  store_vector<alignof(Vector<T, N>)>(p, v, line);
}
//@ end

//@ primitive store_whole needs Vector store_aligned
template <class Pointer, class T, int N>
inline void store_whole(const Pointer& p, const Vector<T, N>& v, int line = __builtin_LINE()) {
  store_aligned(p, v, line);
}
//@ end

//@ primitive store_single needs Vector store_vector
template <class Pointer, class T, int N>
inline void store_single(const Pointer& p, const Vector<T, N>& v, int line = __builtin_LINE()) {
  store_vector<alignof(T)>(p, v, line);
}
//@ end

//@ primitive store_aligned_partial needs Vector store_vector_partial
template <class T, int N>
inline void store_aligned_partial(T* p, const Vector<T, N>& v, int count,
                                  int line = __builtin_LINE()) {
  store_vector_partial<alignof(Vector<T, N>)>(p, v, count, line);
}
//@ end

//@ primitive store_single_partial needs Vector store_vector_partial
template <class T, int N>
inline void store_single_partial(T* p, const Vector<T, N>& v, int count,
                                 int line = __builtin_LINE()) {
  store_vector_partial<alignof(T)>(p, v, count, line);
}
//@ end

//@ primitive load_first needs Vector load_vector
template <int N, class T>
inline Vector<T, N> load_first(const T* p, int count, int line = __builtin_LINE()) {
  Vector<T, N> v = {};
  const int whole = count < N ? count : N;
  if (whole > 0) {
    tilec_host::read_global(&v, p, whole * static_cast<int>(sizeof(T)), sizeof(T), line);
  }
  return v;
}
//@ end

//@ primitive load_window needs load_aligned load_first
template <int N, class T>
inline Vector<T, N> load_window(const T* p, int at, int room, int line = __builtin_LINE()) {
  if (at <= room - N) return load_aligned<N>(p + at, line);
  return load_first<N>(p + at, room - at, line);
}
//@ end

//@ primitive load_shifted needs Vector
template <int N, int kAccess, bool kNear = false, class T>
inline Vector<T, N> load_shifted(const T* p, int at, int line = __builtin_LINE()) {
  constexpr int kEach = kAccess / static_cast<int>(sizeof(T));
  constexpr int kReads = static_cast<int>(sizeof(T)) * N / kAccess + 1;
  unsigned char bytes[kReads * kAccess];
  const int reads = kNear && at % kEach == 0 ? kReads - 1 : kReads;
  for (int i = 0; i < reads; ++i) {
    tilec_host::read_global(bytes + i * kAccess, p + (at - at % kEach + i * kEach), kAccess,
                            kAccess, line);
  }
  Vector<T, N> v;
  std::memcpy(&v, bytes + at % kEach * sizeof(T), sizeof(v));
  return v;
}
//@ end

//@ primitive load_within needs Vector
template <int N, class T>
inline Vector<T, N> load_within(const T* p, int at, int count, int line = __builtin_LINE()) {
  Vector<T, N> v = {};
  for (int e = 0; e < N; ++e) {
    if (at + e < 0 || at + e >= count) continue;
    tilec_host::read_global(&v.units[e], p + (at + e), sizeof(T), sizeof(T), line);
  }
  return v;
}
//@ end

//@ primitive store_window needs store_aligned
template <class T, int N>
inline void store_window(T* p, const Vector<T, N>& v, int first, int count,
                         int line = __builtin_LINE()) {
  const int begin = first > 0 ? first : 0;
  const int end = count < N ? count : N;
  if (begin == 0 && end == N) {
    store_aligned(p, v, line);
  } else if (begin < end) {
    const int bytes = (end - begin) * static_cast<int>(sizeof(T));
    tilec_host::write_global(p + begin, &v.units[begin], bytes, sizeof(T), line);
  }
}
//@ end

//@ primitive combine_partials needs SharedPointer SharedArray load_element
template <class Op, int kCount, int kStride = 1, class T>
inline T combine_partials(const SharedPointer<T>& partials, int line = __builtin_LINE()) {
  tilec_host::note(line);
  T total = partials.get();
  for (int i = 1; i < kCount; ++i) total = Op::combine(total, (partials + i * kStride).get());
  return total;
}
template <class Op, int kCount, int kStride = 1, class T>
inline T combine_partials(const T* partials, int line = __builtin_LINE()) {
  T total = load_element(partials, line);
  for (int i = 1; i < kCount; ++i) {
    total = Op::combine(total, load_element(partials + i * kStride, line));
  }
  return total;
}
template <class Op, int kCount, int kStride = 1, class T, int N>
inline T combine_partials(const SharedArray<T, N>& partials, int line = __builtin_LINE()) {
  return combine_partials<Op, kCount, kStride>(partials.at(0, line), line);
}
//@ end

//@ primitive combine_partials_before needs SharedPointer SharedArray
template <class Op, int kCount, int kStride = 1, class T>
inline T combine_partials_before(const SharedPointer<T>& partials, int before,
                                 int line = __builtin_LINE()) {
  tilec_host::note(line);
  T total = Op::identity();
  for (int i = 0; i < before && i < kCount; ++i) {
    total = Op::combine(total, (partials + i * kStride).get());
  }
  return total;
}
template <class Op, int kCount, int kStride = 1, class T, int N>
inline T combine_partials_before(const SharedArray<T, N>& partials, int before,
                                 int line = __builtin_LINE()) {
  return combine_partials_before<Op, kCount, kStride>(partials.at(0, line), before, line);
}
//@ end

//@ primitive combine_partials_by_lanes needs SharedPointer SharedArray lane_id lane_reduce
template <class Op, int kCount, class T>
inline T combine_partials_by_lanes(const SharedPointer<T>& partials, int line = __builtin_LINE()) {
  tilec_host::note(line);
  T total = Op::identity();
  for (int i = lane_id(); i < kCount; i += 32) total = Op::combine(total, (partials + i).get());
  return lane_reduce<Op, 32>(total, line);
}
template <class Op, int kCount, class T, int N>
inline T combine_partials_by_lanes(const SharedArray<T, N>& partials, int line = __builtin_LINE()) {
  return combine_partials_by_lanes<Op, kCount>(partials.at(0, line), line);
}
//@ end

//@ primitive combine_partials_before_by_lanes needs SharedPointer SharedArray lane_id lane_reduce
template <class Op, int kCount, class T>
inline T combine_partials_before_by_lanes(const SharedPointer<T>& partials, int before,
                                          int line = __builtin_LINE()) {
  tilec_host::note(line);
  T total = Op::identity();
  for (int i = lane_id(); i < before && i < kCount; i += 32) {
    total = Op::combine(total, (partials + i).get());
  }
  return lane_reduce<Op, 32>(total, line);
}
template <class Op, int kCount, class T, int N>
inline T combine_partials_before_by_lanes(const SharedArray<T, N>& partials, int before,
                                          int line = __builtin_LINE()) {
  return combine_partials_before_by_lanes<Op, kCount>(partials.at(0, line), before, line);
}
//@ end

//@ primitive load_element needs SharedPointer
template <class T>
inline T load_element(const T* p, int line = __builtin_LINE()) {
  T value;
  tilec_host::read_global(&value, p, sizeof(T), alignof(T), line);
  return value;
}
template <class T>
inline T load_element(const SharedPointer<T>& p, int line = __builtin_LINE()) {
  tilec_host::note(line);
  return p.get();
}
//@ end

//@ primitive store_element needs SharedPointer
template <class T>
inline void store_element(T* p, std::common_type_t<T> x, int line = __builtin_LINE()) {
  tilec_host::write_global(p, &x, sizeof(T), alignof(T), line);
}
template <class T>
inline void store_element(const SharedPointer<T>& p, std::common_type_t<T> x,
                          int line = __builtin_LINE()) {
  tilec_host::note(line);
  p.set(x);
}
//@ end

//@ primitive load_nibble needs load_element i4_t u4_t wrap_i4 wrap_u4
inline uint8_t load_nibble(const u4_t* p, int64_t offset, int line = __builtin_LINE()) {
  return wrap_u4(load_element(p + offset / 2, line).bits >> (offset % 2 == 0 ? 0 : 4));
}
inline int8_t load_nibble(const i4_t* p, int64_t offset, int line = __builtin_LINE()) {
  return wrap_i4(load_element(p + offset / 2, line).bits >> (offset % 2 == 0 ? 0 : 4));
}
//@ end

//@ primitive renew
inline void renew(int&) {}
//@ end

//@ primitive opaque_zero
inline unsigned opaque_zero() { return 0; }
//@ end
