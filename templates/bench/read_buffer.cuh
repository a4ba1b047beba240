// Reads `count` 16-byte words and nothing else: fills the L2 cache with clean lines before a timed launch.
extern "C" __global__ void __launch_bounds__(256)
read_buffer(const uint4* __restrict__ words, long long count, unsigned* __restrict__ sink) {
  const long long stride = 256LL * gridDim.x;
  unsigned folded = 0;
  for (long long n = 256LL * blockIdx.x + threadIdx.x; n < count; n += stride) {
    const uint4 word = words[n];
    folded |= word.x | word.y | word.z | word.w;
  }
  // the buffer holds zeros, so this never happens; the compiler cannot know and keeps the loads
  if (folded != 0) {
    *sink = folded;
  }
}
