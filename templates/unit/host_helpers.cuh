//@ primitive host_is_aligned includes <cstdint>
/// Whether an address is a multiple of `bytes`.
[[maybe_unused]] inline bool host_is_aligned(const void* pointer, uintptr_t bytes) {
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

//@ primitive host_floor_mod needs host_floor_div includes <cstdint>
/// a - b * floor(a / b), 0 where b is 0.
[[maybe_unused]] inline int64_t host_floor_mod(int64_t a, int64_t b) {
  return b == 0 ? 0 : a - b * host_floor_div(a, b);
}
//@ end

//@ primitive host_ceil_div includes <cstdint>
/// a / b rounded up, for a from 0 and b from 1 on.
[[maybe_unused]] constexpr int64_t host_ceil_div(int64_t a, int64_t b) {
  return a / b + (a % b != 0 ? 1 : 0);
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

//@ primitive host_min_nan
/// The smaller of two numbers, NaN where one is.
[[maybe_unused]] inline double host_min_nan(double a, double b) { return a != a || a < b ? a : b; }
//@ end

//@ primitive host_max_nan
/// The larger of two numbers, NaN where one is.
[[maybe_unused]] inline double host_max_nan(double a, double b) { return a != a || a > b ? a : b; }
//@ end

//@ primitive host_saturated includes <cstdint>
/// Whether a size of about `estimate` does not fit; then `end` is the nearer end of int64_t. A
/// double near 2^63 is off by less than 2^12, and the margin here is 2^51.
[[maybe_unused]] inline bool host_saturated(double estimate, int64_t* end) {
  constexpr double kEnd = 9.22e18;
  if (estimate > -kEnd && estimate < kEnd) return false;
  *end = estimate < 0 ? INT64_MIN : INT64_MAX;
  return true;
}
//@ end

//@ primitive host_times needs host_saturated includes <cstdint>
/// a * b, saturating.
[[maybe_unused]] inline int64_t host_times(int64_t a, int64_t b) {
  int64_t end = 0;
  const double estimate = static_cast<double>(a) * static_cast<double>(b);
  return host_saturated(estimate, &end) ? end : a * b;
}
//@ end

//@ primitive host_plus needs host_saturated includes <cstdint>
/// a + b, saturating.
[[maybe_unused]] inline int64_t host_plus(int64_t a, int64_t b) {
  int64_t end = 0;
  const double estimate = static_cast<double>(a) + static_cast<double>(b);
  return host_saturated(estimate, &end) ? end : a + b;
}
//@ end

//@ primitive host_Sentence includes <cstddef> <cstdio> <initializer_list>
/// A number that a sentence mentions.
struct host_Number {
  const char* name;
  double value;
  template <class T>
  host_Number(const char* name_of, T number) : name(name_of), value(static_cast<double>(number)) {}
};

/// Why the last call on this thread was refused, or "".
struct host_Sentence {
  char text[512];

  void clear() { text[0] = '\0'; }

  /// `reason (M = 3, N = 4)`; returns the status of a call that is refused.
  cudaError_t refuse(const char* reason, std::initializer_list<host_Number> numbers = {}) {
    return refuse(reason, "", "", numbers);
  }

  /// The same for a sentence in three parts.
  cudaError_t refuse(const char* subject, const char* verb, const char* object,
                     std::initializer_list<host_Number> numbers = {}) {
    clear();
    append("%s%s%s", subject, verb, object);
    const char* before = " (";
    for (const host_Number& number : numbers) {
      append("%s%s = %.10g", before, number.name, number.value);
      before = ", ";
    }
    if (numbers.size() != 0) append("%s", ")");
    return cudaErrorInvalidValue;
  }

 private:
  template <class... Values>
  void append(const char* format, Values... values) {
    size_t used = 0;
    while (text[used] != '\0') ++used;
    std::snprintf(text + used, sizeof(text) - used, format, values...);
  }
};
//@ end

//@ primitive host_check_arguments needs host_Sentence includes <cstdint>
/// A pointer that a call was given, and what has to be true of it.
struct host_Argument {
  const char* name;
  const void* pointer;
  int64_t bytes;
  uintptr_t alignment;
  bool written;
};

/// Whether two arguments share a byte.
[[maybe_unused]] inline bool host_overlap(const host_Argument& a, const host_Argument& b) {
  const uintptr_t a_begin = reinterpret_cast<uintptr_t>(a.pointer);
  const uintptr_t b_begin = reinterpret_cast<uintptr_t>(b.pointer);
  return a.bytes > 0 && b.bytes > 0 && a_begin < b_begin + static_cast<uintptr_t>(b.bytes) &&
         b_begin < a_begin + static_cast<uintptr_t>(a.bytes);
}

/// Refuses what is too large, null or misaligned, and a written argument that overlaps another one.
template <size_t kCount>
cudaError_t host_check_arguments(const host_Argument (&arguments)[kCount],
                                 host_Sentence* sentence) {
  constexpr int64_t kMostBytes = int64_t{1} << 60;
  for (const host_Argument& a : arguments) {
    if (a.bytes > kMostBytes) return sentence->refuse(a.name, " has", " more than 2^60 bytes");
    if (a.pointer == nullptr && a.bytes > 0) return sentence->refuse(a.name, " is", " null");
    if (reinterpret_cast<uintptr_t>(a.pointer) % a.alignment != 0) {
      return sentence->refuse(a.name, " is", " misaligned", {{"bytes wanted", a.alignment}});
    }
  }
  for (size_t i = 0; i < kCount; ++i) {
    for (size_t j = i + 1; j < kCount; ++j) {
      const host_Argument& a = arguments[i];
      const host_Argument& b = arguments[j];
      if ((a.written || b.written) && host_overlap(a, b)) {
        const host_Argument& written = a.written ? a : b;
        const host_Argument& other = a.written ? b : a;
        return sentence->refuse(written.name, " overlaps ", other.name);
      }
    }
  }
  return cudaSuccess;
}
//@ end

//@ primitive host_compute_capability
/// 10 * major + minor of the current device.
[[maybe_unused]] inline cudaError_t host_compute_capability(int* compute) {
  int device = 0;
  int major = 0;
  int minor = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device);
  if (status != cudaSuccess) return status;
  status = cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device);
  *compute = 10 * major + minor;
  return status;
}
//@ end

//@ primitive host_whole_clusters includes <cstdint>
/// CTAs in whole clusters.
[[maybe_unused]] inline int64_t host_whole_clusters(int64_t ctas, int cluster) {
  return (ctas + cluster - 1) / cluster * cluster;
}
//@ end

//@ primitive host_limit_to_resident includes <atomic> <cstdint>
/// Leaves no more CTAs than the current device holds at once, `each` on a multiprocessor, in whole
/// clusters.
[[maybe_unused]] inline cudaError_t host_limit_to_resident(int64_t* ctas, int each, int cluster) {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices];
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  std::atomic<int>* const place = device < kDevices ? &known[device] : nullptr;
  int count = place != nullptr ? place->load(std::memory_order_relaxed) : 0;
  if (count == 0) {
    status = cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    if (status != cudaSuccess) return status;
    if (place != nullptr) place->store(count, std::memory_order_relaxed);
  }
  int64_t most = int64_t{count} * each / cluster * cluster;
  if (most < cluster) most = cluster;
  if (*ctas > most) *ctas = most;
  return cudaSuccess;
}
//@ end

//@ primitive host_even_rounds includes <cstdint>
/// As few CTAs, in whole clusters, as walk `instances` in as many rounds as `ctas` do.
[[maybe_unused]] inline int64_t host_even_rounds(int64_t instances, int64_t ctas, int cluster) {
  const int64_t places = ctas / cluster;
  const int64_t wanted = (instances + cluster - 1) / cluster;
  if (places < 1 || wanted < 1) return ctas;
  const int64_t rounds = (wanted + places - 1) / places;
  return (wanted + rounds - 1) / rounds * cluster;
}
//@ end

//@ primitive host_limit_to_clusters includes <atomic> <cstdint>
/// The same for clusters of more than two CTAs, which a part of the device holds together: as many
/// as it says. Lets clusters have more than eight CTAs, which not every device does.
template <auto kKernel>
cudaError_t host_limit_to_clusters(int64_t* ctas, int threads, int shared_bytes, int cluster) {
  constexpr int kDevices = 64;
  static std::atomic<int> known[kDevices];
  int device = 0;
  cudaError_t status = cudaGetDevice(&device);
  if (status != cudaSuccess) return status;
  std::atomic<int>* const place = device < kDevices ? &known[device] : nullptr;
  int count = place != nullptr ? place->load(std::memory_order_relaxed) : 0;
  if (count == 0) {
    const void* const symbol = reinterpret_cast<const void*>(kKernel);
    if (cluster > 8) {
      status = cudaFuncSetAttribute(symbol, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
      if (status != cudaSuccess) return status;
    }
    if (shared_bytes > 48 * 1024) {
      status = cudaFuncSetAttribute(symbol, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                    shared_bytes);
      if (status != cudaSuccess) return status;
    }
    cudaLaunchAttribute size{};
    size.id = cudaLaunchAttributeClusterDimension;
    size.val.clusterDim.x = static_cast<unsigned>(cluster);
    size.val.clusterDim.y = 1;
    size.val.clusterDim.z = 1;
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(cluster));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.dynamicSmemBytes = static_cast<size_t>(shared_bytes);
    config.attrs = &size;
    config.numAttrs = 1;
    status = cudaOccupancyMaxActiveClusters(&count, symbol, &config);
    if (status != cudaSuccess) return status;
    if (count < 1) count = 1;
    if (place != nullptr) place->store(count, std::memory_order_relaxed);
  }
  const int64_t most = int64_t{count} * cluster;
  if (*ctas > most) *ctas = most;
  return cudaSuccess;
}
//@ end

//@ primitive host_tensor_map needs host_Sentence includes <cstdint> <cstring> <cuda.h>
/// What a tensor map says of a tensor: the fastest axis first, strides in bytes of the axes behind
/// it, 0 for what is not there.
struct host_TensorMap {
  const void* base;
  CUtensorMapDataType type;
  CUtensorMapSwizzle swizzle;
  int rank;
  int64_t dims[5];
  int64_t strides[4];
  int box[5];
};

/// Whether two maps are one.
[[maybe_unused]] inline bool host_same_map(const host_TensorMap& a, const host_TensorMap& b) {
  if (a.base != b.base || a.type != b.type || a.swizzle != b.swizzle || a.rank != b.rank) {
    return false;
  }
  for (int i = 0; i < 5; ++i) {
    if (a.dims[i] != b.dims[i] || a.box[i] != b.box[i]) return false;
    if (i < 4 && a.strides[i] != b.strides[i]) return false;
  }
  return true;
}

using host_EncodeMap = decltype(&cuTensorMapEncodeTiled);

/// The driver's function that makes tensor maps, null where it has none: nothing has to be linked.
[[maybe_unused]] inline host_EncodeMap host_find_encoder() {
  void* found = nullptr;
  cudaDriverEntryPointQueryResult answer{};
#if CUDART_VERSION >= 12050
  const cudaError_t status = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &found,
                                                              12000, cudaEnableDefault, &answer);
#else
  const cudaError_t status =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &found, cudaEnableDefault, &answer);
#endif
  const bool there = status == cudaSuccess && answer == cudaDriverEntryPointSuccess;
  return there ? reinterpret_cast<host_EncodeMap>(found) : nullptr;
}

/// The map of the tensor `name`. Each thread keeps those that it made last.
[[maybe_unused]] inline cudaError_t host_tensor_map(CUtensorMap* map, const char* name,
                                                    const host_TensorMap& wanted,
                                                    host_Sentence* sentence) {
  struct Kept {
    host_TensorMap of;
    unsigned char bytes[sizeof(CUtensorMap)];
  };
  constexpr int kKept = 16;
  thread_local Kept kept[kKept];
  thread_local int oldest = 0;
  for (const Kept& k : kept) {
    if (host_same_map(k.of, wanted)) {
      std::memcpy(map, k.bytes, sizeof(*map));
      return cudaSuccess;
    }
  }
  static const host_EncodeMap encode = host_find_encoder();
  if (encode == nullptr) return sentence->refuse(name, " needs", " a driver of CUDA 12 or later");
  cuuint64_t dims[5] = {}, strides[4] = {};
  cuuint32_t box[5] = {}, steps[5] = {};
  for (int i = 0; i < wanted.rank; ++i) {
    dims[i] = static_cast<cuuint64_t>(wanted.dims[i]);
    if (i + 1 < wanted.rank) strides[i] = static_cast<cuuint64_t>(wanted.strides[i]);
    box[i] = static_cast<cuuint32_t>(wanted.box[i]);
    steps[i] = 1;
  }
  const CUresult result =
      encode(map, wanted.type, static_cast<cuuint32_t>(wanted.rank),
             const_cast<void*>(wanted.base), dims, strides, box, steps,
             CU_TENSOR_MAP_INTERLEAVE_NONE, wanted.swizzle, CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
             CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return sentence->refuse(name, " has no", " tensor map", {{"CUresult", result}});
  }
  kept[oldest].of = wanted;
  std::memcpy(kept[oldest].bytes, map, sizeof(*map));
  oldest = (oldest + 1) % kKept;
  return cudaSuccess;
}
//@ end

//@ primitive host_launch includes <cstdint> <type_traits>
/// What is launched: CTAs, threads of each, and its dynamic shared memory in bytes.
struct host_Grid {
  int64_t ctas;
  int threads;
  int shared_bytes = 0;
};

/// Launches a kernel. The result is that of this launch: an error that an earlier call left behind
/// for cudaGetLastError is not read, and stays.
template <class... Parameters>
cudaError_t host_launch(void (*kernel)(Parameters...), host_Grid grid, cudaStream_t stream,
                        std::common_type_t<Parameters>... arguments) {
  const void* const symbol = reinterpret_cast<const void*>(kernel);
  if (grid.shared_bytes > 48 * 1024) {
    const cudaError_t status = cudaFuncSetAttribute(
        symbol, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.shared_bytes);
    if (status != cudaSuccess) return status;
  }
  void* pointers[] = {&arguments..., nullptr};
  return cudaLaunchKernel(symbol, dim3(static_cast<unsigned>(grid.ctas)),
                          dim3(static_cast<unsigned>(grid.threads)), pointers,
                          static_cast<size_t>(grid.shared_bytes), stream);
}
//@ end

//@ primitive host_tuned_variant
/// Sizes that were tuned for, and the variant found.
template <size_t kSizes>
struct host_TunedSizes {
  double sizes[kSizes];
  int variant;
};

/// How many times as large one size is as the other, each plus one; 2^64 where they have no ratio.
[[maybe_unused]] inline double host_ratio(double a, double b) {
  if (a == b) return 1.0;
  if (!(a >= 0.0 && b >= 0.0 && a <= 1e300 && b <= 1e300)) return 18446744073709551616.0;
  a += 1.0;
  b += 1.0;
  return a > b ? a / b : b / a;
}

/// The variant of the tuned sizes with the least product of ratios, 0 where all are beyond `reach`.
template <size_t kSizes, size_t kCount>
int host_tuned_variant(const host_TunedSizes<kSizes> (&tuned)[kCount],
                       const double (&call)[kSizes], double reach) {
  double best = -1.0;
  int variant = 0;
  for (const host_TunedSizes<kSizes>& one : tuned) {
    double apart = 1.0;
    for (size_t i = 0; i < kSizes; ++i) apart *= host_ratio(one.sizes[i], call[i]);
    if (best < 0.0 || apart < best) {
      best = apart;
      variant = one.variant;
    }
  }
  return best <= reach ? variant : 0;
}
//@ end

//@ primitive host_launch_early needs host_launch includes <cstdint> <type_traits>
/// The same of a kernel that may begin while the one in front of it in the stream ends, and waits
/// for that one itself; only where it `overlaps`.
template <class... Parameters>
cudaError_t host_launch_early(bool overlaps, void (*kernel)(Parameters...), host_Grid grid,
                              cudaStream_t stream, std::common_type_t<Parameters>... arguments) {
  const void* const symbol = reinterpret_cast<const void*>(kernel);
  if (grid.shared_bytes > 48 * 1024) {
    const cudaError_t status = cudaFuncSetAttribute(
        symbol, cudaFuncAttributeMaxDynamicSharedMemorySize, grid.shared_bytes);
    if (status != cudaSuccess) return status;
  }
  void* pointers[] = {&arguments..., nullptr};
  cudaLaunchAttribute attribute{};
  attribute.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  attribute.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config{};
  config.gridDim = dim3(static_cast<unsigned>(grid.ctas));
  config.blockDim = dim3(static_cast<unsigned>(grid.threads));
  config.dynamicSmemBytes = static_cast<size_t>(grid.shared_bytes);
  config.stream = stream;
  config.attrs = &attribute;
  config.numAttrs = overlaps ? 1 : 0;
  return cudaLaunchKernelExC(&config, symbol, pointers);
}
//@ end
