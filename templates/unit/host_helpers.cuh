//@ primitive is_aligned includes <cstdint>
/// Whether an address is a multiple of `bytes`.
[[maybe_unused]] inline bool is_aligned(const void* pointer, uintptr_t bytes) {
  return reinterpret_cast<uintptr_t>(pointer) % bytes == 0;
}
//@ end

//@ primitive host_floor_div includes <cstdint>
/// a / b rounded down, 0 where b is 0.
[[maybe_unused]] inline int64_t host_floor_div(int64_t a, int64_t b) {
  if (b == 0) return 0;
  const int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0);
}
//@ end

//@ primitive host_floor_mod needs host_floor_div
/// a - b * floor(a / b), 0 where b is 0.
[[maybe_unused]] inline int64_t host_floor_mod(int64_t a, int64_t b) {
  return b == 0 ? 0 : a - b * host_floor_div(a, b);
}
//@ end

//@ primitive host_min_of includes <cstdint>
/// The smaller of two sizes.
[[maybe_unused]] inline int64_t host_min_of(int64_t a, int64_t b) { return a < b ? a : b; }
//@ end

//@ primitive host_max_of includes <cstdint>
/// The larger of two sizes.
[[maybe_unused]] inline int64_t host_max_of(int64_t a, int64_t b) { return a > b ? a : b; }
//@ end

//@ primitive host_Span includes <cstdint>
/// The bytes that an argument covers.
struct host_Span {
  const void* begin;
  int64_t bytes;
  bool written;
};
//@ end

//@ primitive host_overlap needs host_Span
/// Whether a written argument shares a byte with another one.
[[maybe_unused]] inline bool host_overlap(const host_Span* spans, int count) {
  for (int i = 0; i < count; ++i) {
    for (int j = 0; j < i; ++j) {
      if (!spans[i].written && !spans[j].written) continue;
      if (spans[i].bytes <= 0 || spans[j].bytes <= 0) continue;
      const uintptr_t a = reinterpret_cast<uintptr_t>(spans[i].begin);
      const uintptr_t b = reinterpret_cast<uintptr_t>(spans[j].begin);
      if (a < b + static_cast<uintptr_t>(spans[j].bytes) &&
          b < a + static_cast<uintptr_t>(spans[i].bytes)) {
        return true;
      }
    }
  }
  return false;
}
//@ end
