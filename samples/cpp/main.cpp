// Calls two generated kernels from a C++17 program and compares them with the CPU.
//
//   rows            run on a stream of its own and verify
//   rows --graph    capture the launches in a CUDA graph, replay it twice and verify
//   rows --errors   calls that violate a contract: refused with a sentence, nothing is launched
//
// Exit status 0: all is well; 1: a result is wrong; 3: there is no GPU.

#include <cuda_runtime_api.h>

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "softmax.h"
#include "vector_add.h"

namespace {

[[noreturn]] void fail(const char* what, const char* why) {
  throw std::runtime_error(std::string(what) + ": " + why);
}

void check(cudaError_t status, const char* what) {
  if (status != cudaSuccess) fail(what, cudaGetErrorString(status));
}

/// A launcher's status; where it refused the call, `sentence` says why.
void check_launch(cudaError_t status, const char* what, const char* sentence) {
  if (status == cudaSuccess) return;
  fail(what, *sentence != '\0' ? sentence : cudaGetErrorString(status));
}

struct FreeOnDevice {
  void operator()(void* pointer) const { cudaFree(pointer); }
};

/// Memory on the device, freed with the object.
template <class T>
class DeviceArray {
 public:
  explicit DeviceArray(size_t count) : bytes_(count * sizeof(T)) {
    void* pointer = nullptr;
    check(cudaMalloc(&pointer, bytes_), "cudaMalloc");
    pointer_.reset(static_cast<T*>(pointer));
  }
  T* get() const { return pointer_.get(); }
  void upload(const std::vector<T>& values, cudaStream_t stream) const {
    check(cudaMemcpyAsync(get(), values.data(), bytes_, cudaMemcpyHostToDevice, stream), "upload");
  }
  void poison(cudaStream_t stream) const {
    check(cudaMemsetAsync(get(), 0xff, bytes_, stream), "poison");
  }
  std::vector<T> download(cudaStream_t stream) const {
    std::vector<T> values(bytes_ / sizeof(T));
    const auto status =
        cudaMemcpyAsync(values.data(), get(), bytes_, cudaMemcpyDeviceToHost, stream);
    check(status, "download");
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
    return values;
  }

 private:
  size_t bytes_;
  std::unique_ptr<T, FreeOnDevice> pointer_;
};

/// A stream that does not wait for the default one.
class Stream {
 public:
  Stream() {
    check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreate");
  }
  ~Stream() { cudaStreamDestroy(stream_); }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }

 private:
  cudaStream_t stream_ = nullptr;
};

// bf16 is the upper half of a float.
using bf16_bits = uint16_t;

bf16_bits to_bf16(float x) {
  uint32_t bits = 0;
  std::memcpy(&bits, &x, sizeof(bits));
  return static_cast<bf16_bits>((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

float from_bf16(bf16_bits half) {
  const uint32_t bits = static_cast<uint32_t>(half) << 16;
  float x = 0;
  std::memcpy(&x, &bits, sizeof(x));
  return x;
}

/// Numbers in [-4, 4), the same in every run.
float number(size_t i) {
  return static_cast<float>((i * 2654435761u >> 8) % 65536) / 8192.0f - 4.0f;
}

/// One softmax and one addition with their inputs and outputs on the device.
class Work {
 public:
  Work(int rows, int columns, int count, cudaStream_t stream)
      : rows_(rows), columns_(columns), count_(count),
        x_(size_t(rows) * size_t(columns)), a_(size_t(count)), b_(size_t(count)),
        device_x_(x_.size()), device_y_(x_.size()),
        device_a_(a_.size()), device_b_(b_.size()), device_c_(a_.size()) {
    for (size_t i = 0; i < x_.size(); ++i) x_[i] = to_bf16(number(i));
    for (size_t i = 0; i < a_.size(); ++i) a_[i] = number(i), b_[i] = number(i + 77);
    device_x_.upload(x_, stream);
    device_a_.upload(a_, stream);
    device_b_.upload(b_, stream);
    poison(stream);
    check(cudaStreamSynchronize(stream), "cudaStreamSynchronize");
  }

  /// Fill the outputs with NaN.
  void poison(cudaStream_t stream) const {
    device_y_.poison(stream);
    device_c_.poison(stream);
  }

  /// Launch both kernels. Neither needs workspace: softmax_workspace_bytes(…) is 0.
  void launch(cudaStream_t stream) const {
    const auto softmax_status =
        softmax(device_x_.get(), device_y_.get(), rows_, columns_, nullptr, stream);
    check_launch(softmax_status, "softmax", softmax_error());
    const auto add_status =
        vector_add(device_a_.get(), device_b_.get(), device_c_.get(), count_, nullptr, stream);
    check_launch(add_status, "vector_add", vector_add_error());
  }

  /// Compare the outputs with the CPU.
  bool verify(const char* how, cudaStream_t stream) const {
    const std::vector<bf16_bits> y = device_y_.download(stream);
    double worst = 0;
    for (int r = 0; r < rows_; ++r) {
      const size_t row = size_t(r) * size_t(columns_);
      double most = -INFINITY, sum = 0;
      const size_t end = row + size_t(columns_);
      for (size_t c = row; c < end; ++c) most = std::fmax(most, from_bf16(x_[c]));
      for (size_t c = row; c < end; ++c) sum += std::exp(from_bf16(x_[c]) - most);
      for (size_t c = row; c < end; ++c) {
        const double wanted = std::exp(from_bf16(x_[c]) - most) / sum;
        const double error = std::fabs(from_bf16(y[c]) - wanted) / wanted;
        worst = error <= worst ? worst : error;  // a NaN stays
      }
    }
    const std::vector<float> c = device_c_.download(stream);
    size_t wrong = 0;
    for (size_t i = 0; i < c.size(); ++i) wrong += c[i] == a_[i] + b_[i] ? 0 : 1;
    // Rounding to bf16 is 2^-9; the exponential and the sum in f32 add little.
    const bool good = worst <= std::ldexp(1.0, -9) * 1.01 && wrong == 0;
    std::printf("%s: softmax %d x %d, largest relative error %.3g; vector_add %d, %zu wrong: %s\n",
                how, rows_, columns_, worst, count_, wrong, good ? "ok" : "WRONG");
    return good;
  }

 private:
  int rows_, columns_, count_;
  std::vector<bf16_bits> x_;
  std::vector<float> a_, b_;
  DeviceArray<bf16_bits> device_x_, device_y_;
  DeviceArray<float> device_a_, device_b_, device_c_;
};

bool run_on_a_stream() {
  const Stream stream;
  bool good = true;
  for (const int columns : {1000, 1003, 8192}) {
    const Work work(257, columns, 100003, stream);
    work.launch(stream);
    good = work.verify("stream", stream) && good;
  }
  return good;
}

bool run_in_a_graph() {
  const Stream stream;
  const Work work(257, 1003, 100003, stream);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeGlobal), "cudaStreamBeginCapture");
  work.launch(stream);
  check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
  check(cudaGraphInstantiateWithFlags(&executable, graph, 0), "cudaGraphInstantiate");
  bool good = true;
  for (const char* replay : {"first replay", "second replay"}) {
    work.poison(stream);
    check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
    good = work.verify(replay, stream) && good;
  }
  check(cudaGraphExecDestroy(executable), "cudaGraphExecDestroy");
  check(cudaGraphDestroy(graph), "cudaGraphDestroy");
  return good;
}

/// Whether a call was refused with a sentence that holds `part`.
bool refused(cudaError_t status, const char* sentence, const char* part) {
  const bool good = status == cudaErrorInvalidValue && std::strstr(sentence, part) != nullptr;
  std::printf("%-40s %s\n", sentence, good ? "refused" : "NOT REFUSED AS IT SHOULD BE");
  return good;
}

bool refuses_add(const float* a, const float* b, float* c, int count, const char* part) {
  return refused(vector_add(a, b, c, count, nullptr, nullptr), vector_add_error(), part);
}

bool refuses_softmax(const void* x, void* y, int rows, int columns, const char* part) {
  return refused(softmax(x, y, rows, columns, nullptr, nullptr), softmax_error(), part);
}

bool provoke_errors() {
  // Addresses that are never read: a call that is refused launches nothing, so this needs no GPU.
  float* const a = reinterpret_cast<float*>(uintptr_t{1} << 20);
  float* const b = a + 4096;
  float* const c = b + 4096;
  float* const odd = reinterpret_cast<float*>((uintptr_t{1} << 24) + 2);
  bool good = refuses_add(a, b, c, -1, "N is negative (N = -1)");
  good &= refuses_add(a, b, b + 100, 4096, "c overlaps b");
  good &= refuses_add(a, b, a, 1, "c overlaps a");
  good &= refuses_add(a, b, odd, 16, "c is misaligned");
  good &= refuses_add(nullptr, b, c, 16, "a is null");
  good &= refuses_softmax(a, c, 4, 200000, "requires C <= 131072 (C = 200000)");
  good &= refuses_softmax(a, c, -4, 20, "R is negative");
  good &= refuses_softmax(a, nullptr, 4, 20, "y is null");

  // A call without elements is fine without addresses.
  const bool empty = vector_add(nullptr, nullptr, nullptr, 0, nullptr, nullptr) == cudaSuccess;
  const bool cleared = *vector_add_error() == '\0';
  std::printf("%-40s %s\n", "no elements", empty && cleared ? "fine" : "REFUSED");
  return good && empty && cleared;
}

/// After an error that another call left behind, the launchers work and report success.
bool ignore_a_foreign_error() {
  const Stream stream;
  const Work work(3, 100, 1000, stream);
  static_cast<void>(cudaSetDevice(-1));
  work.launch(stream);
  const bool kept = cudaGetLastError() != cudaSuccess;
  std::printf("an error of another call: %s\n", kept ? "left to its owner" : "TAKEN");
  return work.verify("after it", stream) && kept;
}

bool has_device() {
  int count = 0;
  const bool found = cudaGetDeviceCount(&count) == cudaSuccess && count > 0;
  cudaGetLastError();
  return found;
}

int run(const std::string& mode) {
  const bool errors = mode == "--errors";
  if (errors && !provoke_errors()) return 1;
  if (!has_device()) {
    std::printf("no GPU: %s\n", errors ? "nothing more to try" : "nothing was run");
    return errors ? 0 : 3;
  }
  if (errors) {
    check(cudaDeviceSynchronize(), "a call that was refused launched something");
    return ignore_a_foreign_error() ? 0 : 1;
  }
  return (mode == "--graph" ? run_in_a_graph() : run_on_a_stream()) ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const std::string mode = argc > 1 ? argv[1] : "";
  if (argc > 2 || (argc == 2 && mode != "--graph" && mode != "--errors")) {
    std::fprintf(stderr, "usage: %s [--graph | --errors]\n", argv[0]);
    return 2;
  }
  try {
    return run(mode);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
