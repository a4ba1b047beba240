// What a transposing copy of 4-byte elements reaches on this device: a tile of kRows x kCols through shared memory, whole 16-byte
// vectors on both sides, for several shapes and either order of the tiles. Built as a library; bench/streams.py calls `run`.
#include <cuda_runtime.h>

#include <cstdint>

constexpr int kThreads = 256;

template <int kRows, int kCols, bool kDown>
__global__ void __launch_bounds__(kThreads)
    transposed(const float4* __restrict__ x, float4* __restrict__ y, int rows, int cols) {
  __shared__ float tile[kCols][kRows + 1];
  const int across = cols / kCols, down = rows / kRows;
  const int block = static_cast<int>(blockIdx.x);
  const int i = kDown ? block % down : block / across;
  const int j = kDown ? block / down : block % across;
  constexpr int kIn = kRows * kCols / 4 / kThreads;
  float4 held[kIn];
#pragma unroll
  for (int n = 0; n < kIn; ++n) {
    const int at = n * kThreads + static_cast<int>(threadIdx.x);
    const int r = at / (kCols / 4), c = at % (kCols / 4);
    held[n] = x[(int64_t{i} * kRows + r) * (cols / 4) + j * (kCols / 4) + c];
  }
#pragma unroll
  for (int n = 0; n < kIn; ++n) {
    const int at = n * kThreads + static_cast<int>(threadIdx.x);
    const int r = at / (kCols / 4), c = at % (kCols / 4) * 4;
    tile[c][r] = held[n].x;
    tile[c + 1][r] = held[n].y;
    tile[c + 2][r] = held[n].z;
    tile[c + 3][r] = held[n].w;
  }
  __syncthreads();
#pragma unroll
  for (int n = 0; n < kIn; ++n) {
    const int at = n * kThreads + static_cast<int>(threadIdx.x);
    const int c = at / (kRows / 4), r = at % (kRows / 4) * 4;
    const float4 v = {tile[c][r], tile[c][r + 1], tile[c][r + 2], tile[c][r + 3]};
    y[(int64_t{j} * kCols + c) * (rows / 4) + i * (kRows / 4) + r / 4] = v;
  }
}

template <int kRows, int kCols>
cudaError_t launch(const void* x, void* y, int rows, int cols, bool down, cudaStream_t stream) {
  const unsigned tiles = static_cast<unsigned>(int64_t{rows} / kRows * (cols / kCols));
  const auto kernel = down ? transposed<kRows, kCols, true> : transposed<kRows, kCols, false>;
  kernel<<<tiles, kThreads, 0, stream>>>(static_cast<const float4*>(x), static_cast<float4*>(y),
                                         rows, cols);
  return cudaGetLastError();
}

// Shape `which` of six, both sizes multiples of 128.
extern "C" int run(int which, const void* x, void* y, int rows, int cols, int down, void* on) {
  const auto stream = static_cast<cudaStream_t>(on);
  switch (which) {
    case 0: return launch<32, 32>(x, y, rows, cols, down, stream);
    case 1: return launch<64, 64>(x, y, rows, cols, down, stream);
    case 2: return launch<128, 32>(x, y, rows, cols, down, stream);
    case 3: return launch<32, 128>(x, y, rows, cols, down, stream);
    case 4: return launch<128, 64>(x, y, rows, cols, down, stream);
    case 5: return launch<64, 128>(x, y, rows, cols, down, stream);
    default: return -1;
  }
}
