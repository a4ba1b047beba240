// Behind a generated file with the kernel `empty`: calls of its launcher, and bare launches, in a loop of the host.

#include <chrono>

namespace {
__global__ void bare_kernel(const float*, const float*, float*, int, int) {}

template <class Call>
double microseconds(int calls, Call call) {
  const auto begin = std::chrono::steady_clock::now();
  for (int i = 0; i < calls; ++i) call();
  const std::chrono::duration<double, std::micro> spent = std::chrono::steady_clock::now() - begin;
  return spent.count() / calls;
}
}  // namespace

/// Microseconds of a call of the launcher, or -1 where one failed.
extern "C" double time_launcher(int calls, const float* a, const float* b, float* c, int n,
                                cudaStream_t stream) {
  cudaError_t status = cudaSuccess;
  const double spent = microseconds(calls, [&] {
    const cudaError_t now = empty(a, b, c, n, 0, nullptr, stream);
    if (now != cudaSuccess) status = now;
  });
  return status == cudaSuccess ? spent : -1.0;
}

/// The same of the least that a launch takes: a kernel with as many arguments, nothing checked.
extern "C" double time_bare(int calls, const float* a, const float* b, float* c, int n,
                            cudaStream_t stream) {
  const double spent =
      microseconds(calls, [&] { bare_kernel<<<1, 64, 0, stream>>>(a, b, c, n, 0); });
  return cudaPeekAtLastError() == cudaSuccess ? spent : -1.0;
}

/// One bare launch: the least that a call from Python through ctypes takes.
extern "C" int launch_bare(const float* a, const float* b, float* c, int n, int run, void*,
                           cudaStream_t stream) {
  bare_kernel<<<1, 64, 0, stream>>>(a, b, c, n, run);
  return cudaPeekAtLastError();
}
