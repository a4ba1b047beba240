
// Each launcher once more, with its arguments as words of 8 bytes in their order: so an extension
// of Python can call any of them.
#include <utility>

namespace {
template <class T>
T host_unpacked(uint64_t word) {
  static_assert(sizeof(T) <= sizeof(word), "one word holds an argument");
  T value;
  std::memcpy(&value, &word, sizeof(T));
  return value;
}

template <class... T, size_t... kPlace>
cudaError_t host_call_packed(cudaError_t (*launcher)(T...), const uint64_t* words,
                             std::index_sequence<kPlace...>) {
  return launcher(host_unpacked<T>(words[kPlace])...);
}

template <class... T>
cudaError_t host_call_packed(cudaError_t (*launcher)(T...), const uint64_t* words) {
  return host_call_packed(launcher, words, std::index_sequence_for<T...>{});
}
}  // namespace
