//! What works beside the threads: barriers in shared memory, bulk copies of tensors, products of
//! warpgroups, clusters. One wrapper for one instruction; encodings are those of the PTX ISA.
//@ primitive SharedBarrier includes <cstdint>
/// An mbarrier: a phase ends when as many threads as it was initialised with have arrived and all
/// bytes that were announced have landed.
struct alignas(8) SharedBarrier {
  uint64_t state;
};
//@ end

//@ primitive barrier_init needs SharedBarrier shared_address
/// One thread, before anybody uses the barrier: `arrivals` end a phase.
[[maybe_unused]] __device__ __forceinline__ void barrier_init(SharedBarrier& barrier,
                                                              int arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;"
               :
               : "r"(shared_address(&barrier)), "r"(arrivals)
               : "memory");
}
//@ end

//@ primitive barrier_init_fence
/// Behind the last barrier_init: the cluster and asynchronous copies see the barriers.
[[maybe_unused]] __device__ __forceinline__ void barrier_init_fence() {
  asm volatile("fence.mbarrier_init.release.cluster;" : : : "memory");
}
//@ end

//@ primitive barrier_arrive needs SharedBarrier shared_address
/// Arrives once; what this thread did before is seen by whoever waits for the phase.
[[maybe_unused]] __device__ __forceinline__ void barrier_arrive(SharedBarrier& barrier) {
  asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];"
               :
               : "r"(shared_address(&barrier))
               : "memory");
}
//@ end

//@ primitive barrier_arrive_at needs SharedBarrier shared_address includes <cstdint>
/// Arrives at the same barrier of CTA `rank` of the cluster.
[[maybe_unused]] __device__ __forceinline__ void barrier_arrive_at(SharedBarrier& barrier,
                                                                   int rank) {
  asm volatile(
      "{\n"
      ".reg .b32 remote;\n"
      "mapa.shared::cluster.u32 remote, %0, %1;\n"
      "mbarrier.arrive.shared::cluster.b64 _, [remote];\n"
      "}"
      :
      : "r"(shared_address(&barrier)), "r"(rank)
      : "memory");
}
//@ end

//@ primitive barrier_arrive_expect needs SharedBarrier shared_address
/// Arrives and announces `bytes` that asynchronous copies will bring.
[[maybe_unused]] __device__ __forceinline__ void barrier_arrive_expect(SharedBarrier& barrier,
                                                                       int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;"
               :
               : "r"(shared_address(&barrier)), "r"(bytes)
               : "memory");
}
//@ end

//@ primitive barrier_wait needs SharedBarrier shared_address
/// Waits until the phase of this parity has ended: 0 for the first one, then 1, 0, 1. Parity 1 on a
/// new barrier passes at once.
[[maybe_unused]] __device__ __forceinline__ void barrier_wait(SharedBarrier& barrier, int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}"
      :
      : "r"(shared_address(&barrier)), "r"(parity)
      : "memory");
}
//@ end

//@ primitive barrier_wait_cluster needs SharedBarrier shared_address
/// Waits until the phase of this parity has ended, 0 for the first one, then 1, 0, 1: what other
/// CTAs of the cluster have sent is there.
[[maybe_unused]] __device__ __forceinline__ void barrier_wait_cluster(SharedBarrier& barrier,
                                                                      int parity) {
  asm volatile(
      "{\n"
      ".reg .pred done;\n"
      "again:\n"
      "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 done, [%0], %1;\n"
      "@!done bra again;\n"
      "}"
      :
      : "r"(shared_address(&barrier)), "r"(parity)
      : "memory");
}
//@ end

//@ primitive fence_async
/// What this thread wrote to shared memory is seen by asynchronous copies and products that are
/// started behind a barrier from here.
[[maybe_unused]] __device__ __forceinline__ void fence_async() {
  asm volatile("fence.proxy.async.shared::cta;" : : : "memory");
}
//@ end

//@ primitive cluster_rank includes <cstdint>
/// The number of this CTA within its cluster.
[[maybe_unused]] __device__ __forceinline__ int cluster_rank() {
  uint32_t rank;
  asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return static_cast<int>(rank);
}
//@ end

//@ primitive cluster_sync
/// All threads of the cluster meet. Orders no memory but the barriers behind barrier_init_fence.
[[maybe_unused]] __device__ __forceinline__ void cluster_sync() {
  asm volatile("barrier.cluster.arrive.relaxed;" : : : "memory");
  asm volatile("barrier.cluster.wait.acquire;" : : : "memory");
}
//@ end

//@ primitive cluster_sync_memory
/// All threads of the cluster meet; what they wrote before is seen by all.
[[maybe_unused]] __device__ __forceinline__ void cluster_sync_memory() {
  asm volatile("barrier.cluster.arrive.release;" : : : "memory");
  asm volatile("barrier.cluster.wait.acquire;" : : : "memory");
}
//@ end

//@ primitive cluster_arrive
/// Says that this thread runs, without waiting.
[[maybe_unused]] __device__ __forceinline__ void cluster_arrive() {
  asm volatile("barrier.cluster.arrive.relaxed;" : : : "memory");
}
//@ end

//@ primitive cluster_wait
/// Waits until all threads of the cluster have said so.
[[maybe_unused]] __device__ __forceinline__ void cluster_wait() {
  asm volatile("barrier.cluster.wait.acquire;" : : : "memory");
}
//@ end

//@ primitive cluster_release
/// Says that this thread is done with what it read and wrote so far, without waiting.
[[maybe_unused]] __device__ __forceinline__ void cluster_release() {
  asm volatile("barrier.cluster.arrive.release;" : : : "memory");
}
//@ end

//@ primitive cluster_acquire
/// Waits until all threads of the cluster have said so.
[[maybe_unused]] __device__ __forceinline__ void cluster_acquire() {
  asm volatile("barrier.cluster.wait.acquire;" : : : "memory");
}
//@ end

//@ primitive store_at_rank includes <cstdint>
/// `value` to the same place in the shared memory of CTA `rank` of the cluster.
template <class T>
__device__ __forceinline__ void store_at_rank(T* place, int rank, const T& value) {
  uint64_t address;
  asm volatile("mapa.u64 %0, %1, %2;" : "=l"(address) : "l"(place), "r"(rank));
  *reinterpret_cast<T*>(address) = value;
}
//@ end

//@ primitive send_to_rank needs SharedBarrier shared_address includes <cstdint> <cstring>
/// `value`, of 4, 8 or 16 bytes, to the same place in the shared memory of CTA `rank` of the
/// cluster, where `landed` counts the bytes (PTX ISA, st.async).
template <class T>
__device__ __forceinline__ void send_to_rank(T* place, int rank, const T& value,
                                             SharedBarrier& landed) {
  static_assert(sizeof(T) == 4 || sizeof(T) == 8 || sizeof(T) == 16, "one instruction");
  uint32_t to, counted;
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(to)
               : "r"(shared_address(place)), "r"(rank));
  asm volatile("mapa.shared::cluster.u32 %0, %1, %2;"
               : "=r"(counted)
               : "r"(shared_address(&landed)), "r"(rank));
  if constexpr (sizeof(T) == 4) {
    uint32_t word;
    memcpy(&word, &value, 4);
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];"
                 :
                 : "r"(to), "r"(word), "r"(counted)
                 : "memory");
  } else if constexpr (sizeof(T) == 16) {
    uint32_t words[4];
    memcpy(words, &value, 16);
    asm volatile(
        "st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];"
        :
        : "r"(to), "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(counted)
        : "memory");
  } else {
    uint64_t word;
    memcpy(&word, &value, 8);
    asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.b64 [%0], %1, [%2];"
                 :
                 : "r"(to), "l"(word), "r"(counted)
                 : "memory");
  }
}
//@ end

//@ primitive send_share needs SharedBarrier Vector send_to_rank
/// A warpgroup's accumulators to the same threads of CTA `rank` of the cluster, where `landed`
/// counts the bytes: four of a thread side by side, neighbouring threads behind each other.
template <class Sums, class T, int kRows, int kSteps>
__device__ __forceinline__ void send_share(Sums& sums, const Vector<T, 2> (&acc)[kRows][kSteps],
                                          int rank, SharedBarrier& landed) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
  for (int row = 0; row < kRows; row += 2) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      Vector<T, 4> four;
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        four[e] = acc[row][step][e];
        four[2 + e] = acc[row + 1][step][e];
      }
      send_to_rank(&sums[(row / 2 * kSteps + step) * 128 + thread], rank, four, landed);
    }
  }
}
//@ end

//@ primitive add_share needs Vector
/// Adds to a warpgroup's accumulators those that send_share has brought.
template <class Sums, class T, int kRows, int kSteps>
__device__ __forceinline__ void add_share(Vector<T, 2> (&acc)[kRows][kSteps], const Sums& sums) {
  const int thread = static_cast<int>(threadIdx.x) % 128;
#pragma unroll
  for (int row = 0; row < kRows; row += 2) {
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
      const Vector<T, 4> four = sums[(row / 2 * kSteps + step) * 128 + thread];
#pragma unroll
      for (int e = 0; e < 2; ++e) {
        acc[row][step][e] += four[e];
        acc[row + 1][step][e] += four[2 + e];
      }
    }
  }
}
//@ end

//@ primitive launch_dependents
/// The kernel behind this one in the stream may begin where there is room. What it reads and writes
/// it waits for itself.
[[maybe_unused]] __device__ __forceinline__ void launch_dependents() {
  asm volatile("griddepcontrol.launch_dependents;" : : : "memory");
}
//@ end

//@ primitive wait_prerequisites
/// Waits until the kernel in front of this one in the stream is done, and what it wrote is seen.
[[maybe_unused]] __device__ __forceinline__ void wait_prerequisites() {
  asm volatile("griddepcontrol.wait;" : : : "memory");
}
//@ end

//@ primitive announce_item needs store_at_rank shuffle_from lane_id
/// `item` of the first lane to the same place in each of the kCluster CTAs of a cluster. All lanes
/// of a warp take part.
template <int kCluster, class Place>
__device__ __forceinline__ void announce_item(const Place& place, int item) {
  const int known = shuffle_from(item, 0);
  if (lane_id() < kCluster) store_at_rank(place, lane_id(), known);
}
//@ end

//@ primitive send_item needs SharedBarrier send_to_rank shuffle_from lane_id sync_warp
/// `item` of the first lane to the same place in each of the kCluster CTAs of a cluster, where
/// `landed` counts the bytes. All lanes of a warp take part.
template <int kCluster, class Place>
__device__ __forceinline__ void send_item(const Place& place, int item, SharedBarrier& landed) {
  const int known = shuffle_from(item, 0);
  sync_warp();
  if (lane_id() < kCluster) send_to_rank(place, lane_id(), known, landed);
}
//@ end

//@ primitive registers_give
/// All warps of a warpgroup: keeps kCount registers a thread (a multiple of 8), gives others back.
template <int kCount>
__device__ __forceinline__ void registers_give() {
  asm volatile("setmaxnreg.dec.sync.aligned.u32 %0;" : : "n"(kCount));
}
//@ end

//@ primitive registers_take
/// All warps of a warpgroup: waits until it has kCount registers a thread (a multiple of 8).
template <int kCount>
__device__ __forceinline__ void registers_take() {
  asm volatile("setmaxnreg.inc.sync.aligned.u32 %0;" : : "n"(kCount));
}
//@ end

//@ primitive is_elected includes <cstdint>
/// True in one lane of a warp whose lanes are all here.
[[maybe_unused]] __device__ __forceinline__ bool is_elected() {
  uint32_t elected;
  asm volatile(
      "{\n"
      ".reg .pred chosen;\n"
      "elect.sync _|chosen, 0xffffffff;\n"
      "selp.u32 %0, 1, 0, chosen;\n"
      "}"
      : "=r"(elected)
      :
      : "memory");
  return elected != 0;
}
//@ end

//@ primitive PanelTile
/// kRows x kCols elements in panels of up to 128 bytes of columns, one panel behind the other. The
/// 16-byte chunks of a row of a panel are exchanged by the row's number, as bulk copies with a
/// swizzle do and as wgmma reads them.
template <class T, int kRowCount, int kColCount>
struct alignas(1024) PanelTile {
  static constexpr int kRows = kRowCount;
  static constexpr int kCols = kColCount;
  static constexpr int kRowBytes = kCols * static_cast<int>(sizeof(T));
  static constexpr int kSpan = kRowBytes % 128 == 0 ? 128 : kRowBytes % 64 == 0 ? 64 : 32;
  static constexpr int kPanel = kSpan / static_cast<int>(sizeof(T));
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static_assert(kRows % 8 == 0 && kRowBytes % kSpan == 0 && kPanel % kChunk == 0,
                "whole panels, in blocks of 8 rows");
  T storage[kRows * kCols];

  /// The number of an element in the order of memory.
  static __device__ __forceinline__ int place(int row, int col) {
    const int chunk = (col % kPanel / kChunk) ^ (row / (128 / kSpan) % (kSpan / 16));
    return (col / kPanel * kRows + row) * kPanel + chunk * kChunk + col % kChunk;
  }

  /// The element of such a number.
  __device__ __forceinline__ T* from(int place) { return &storage[place]; }

  /// The place of an element.
  __device__ __forceinline__ T* at(int row, int col) { return from(place(row, col)); }

  /// Where row `row` of the panel of column `col` begins: what a bulk copy writes from there on.
  __device__ __forceinline__ T* panel(int row, int col) {
    return &storage[(col / kPanel * kRows + row) * kPanel];
  }
};
//@ end

//@ primitive RowTile
/// kCols elements of one row, where a bulk copy may write them.
template <class T, int kColCount>
struct alignas(128) RowTile {
  static constexpr int kCols = kColCount;
  T storage[kCols];

  /// The place of an element.
  __device__ __forceinline__ T* at(int col) { return &storage[col]; }
};
//@ end

//@ primitive k_major_descriptor needs PanelTile shared_address includes <cstdint>
/// What wgmma is told of an operand whose columns are consumed: from (row, col) on. Bits 0-13
/// address / 16, 16-29 unused here, 32-45 the bytes of 8 rows / 16, 62-63 the swizzle.
template <class T, int kRows, int kCols>
__device__ __forceinline__ uint64_t k_major_descriptor(PanelTile<T, kRows, kCols>& tile, int row,
                                                       int col) {
  using Tile = PanelTile<T, kRows, kCols>;
  constexpr uint64_t kSwizzle = Tile::kSpan == 128 ? 1 : Tile::kSpan == 64 ? 2 : 3;
  constexpr uint64_t kForm =
      kSwizzle << 62 | uint64_t{8 * Tile::kSpan / 16} << 32 | uint64_t{1} << 16;
  const uint32_t place =
      static_cast<uint32_t>(col / Tile::kPanel * kRows + row) * (Tile::kSpan / 16) +
      static_cast<uint32_t>(col % Tile::kPanel * static_cast<int>(sizeof(T))) / 16;
  return kForm + (((shared_address(&tile) & 0x3ffffu) >> 4) + place);
}
//@ end

//@ primitive mn_major_descriptor needs PanelTile shared_address includes <cstdint>
/// The same of one whose rows are consumed: bits 16-29 the bytes from panel to panel / 16.
template <class T, int kRows, int kCols>
__device__ __forceinline__ uint64_t mn_major_descriptor(PanelTile<T, kRows, kCols>& tile, int row,
                                                        int col) {
  using Tile = PanelTile<T, kRows, kCols>;
  constexpr uint64_t kSwizzle = Tile::kSpan == 128 ? 1 : Tile::kSpan == 64 ? 2 : 3;
  constexpr uint64_t kForm = kSwizzle << 62 | uint64_t{8 * Tile::kSpan / 16} << 32 |
                             uint64_t{kRows * Tile::kSpan / 16} << 16;
  const uint32_t place =
      static_cast<uint32_t>(col / Tile::kPanel * kRows + row) * (Tile::kSpan / 16) +
      static_cast<uint32_t>(col % Tile::kPanel * static_cast<int>(sizeof(T))) / 16;
  return kForm + (((shared_address(&tile) & 0x3ffffu) >> 4) + place);
}
//@ end

//@ primitive turned_place needs PanelTile lane_id
/// Where a thread's part of a left operand that load_turned brings begins in a tile, for the 16
/// columns from `col` on and rows from 0 on.
template <class T, int kRows, int kCols>
__device__ __forceinline__ int turned_place(PanelTile<T, kRows, kCols>& tile, int col) {
  const int lane = lane_id();
  if constexpr (sizeof(T) == 4) return tile.place(lane % 4, col + lane / 4);
  // Each matrix has rows 4t, 4t + 1 or 4t + 2, 4t + 3 of 16: transposed, a lane has two of them for
  // a pair of columns, and two matrices have the four that its register takes of each.
  const int row = lane / 16 * 16 + lane / 8 % 2 * 2 + lane % 8 / 2 * 4 + lane % 2;
  return tile.place(row, col);
}
//@ end

//@ primitive load_turned needs OperandA PanelTile ldmatrix_x4_trans permute_bytes bitcast
//@ includes <cstdint>
/// A warp's left operand of wgmma from a tile whose rows are consumed, for elements that wgmma does
/// not read across itself: 32 bytes of depth from row `k`, a multiple of 8, on, of the 16 columns
/// of a turned_place. Of 8-bit elements a thread gets columns col + lane / 4 * 2 and the next one,
/// of 32-bit ones col + lane / 4 and the one eight further: its two rows of accumulators.
template <class T, int kRows, int kCols>
__device__ __forceinline__ void load_turned(OperandA& a, PanelTile<T, kRows, kCols>& tile, int k,
                                            int place) {
  using Tile = PanelTile<T, kRows, kCols>;
  if constexpr (sizeof(T) == 4) {
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      // Four rows and eight columns further the chunk's number differs by these bits.
      const int chunks = i / 2 * 4 / (128 / Tile::kSpan) % (Tile::kSpan / 16) ^ i % 2 * 2;
      const T element =
          *tile.from((place ^ chunks * Tile::kChunk) + (k + i / 2 * 4) * Tile::kPanel);
      a.x[i] = bitcast<uint32_t>(element);
    }
  } else {
    static_assert(sizeof(T) == 1, "elements of 8 or 32 bits");
    uint32_t pairs[4];
    ldmatrix_x4_trans(pairs, tile.from(place + k * Tile::kPanel));
    a.x[0] = permute_bytes(pairs[0], pairs[1], 0x6420);
    a.x[1] = permute_bytes(pairs[0], pairs[1], 0x7531);
    a.x[2] = permute_bytes(pairs[2], pairs[3], 0x6420);
    a.x[3] = permute_bytes(pairs[2], pairs[3], 0x7531);
  }
}
//@ end

//@ primitive load_four needs load_aligned load_element bitcast includes <cstdint>
/// Elements `col` to `col + 3` of `columns` single bytes from p on as a word; 0 for what is not
/// there.
template <class T>
__device__ __forceinline__ uint32_t load_four(const T* p, int col, int columns) {
  if (col + 4 <= columns && reinterpret_cast<uintptr_t>(p + col) % 4 == 0) {
    return bitcast<uint32_t>(load_aligned<4>(p + col));
  }
  uint32_t word = 0;
#pragma unroll
  for (int e = 0; e < 4; ++e) {
    if (col + e < columns) {
      word |= uint32_t{bitcast<uint8_t>(load_element(p + col + e))} << 8 * e;
    }
  }
  return word;
}
//@ end

//@ primitive interleave_row needs Vector load_four store_aligned permute_bytes bitcast
//@ includes <cstdint>
/// 16 elements from `first` on of row `row` of `columns` single bytes, rows one behind the other
/// from p on, to `to`, where rows have `padded` bytes, a multiple of 16, zeros behind the last
/// element: place 4t + r is that of element 8 (r / 2) + 2t + r % 2.
template <class T>
__device__ __forceinline__ void interleave_row(T* to, const T* p, int row, int columns, int padded,
                                               int first) {
  static_assert(sizeof(T) == 1, "elements of 8 bits");
  if (first >= padded) return;
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    words[i] = load_four(p + int64_t{columns} * row, first + 4 * i, columns);
  }
  Vector<uint32_t, 4> v;
#pragma unroll
  for (int t = 0; t < 4; ++t) {
    v[t] = permute_bytes(words[t / 2], words[2 + t / 2], t % 2 ? 0x7632 : 0x5410);
  }
  store_aligned(to + int64_t{padded} * row + first, bitcast<Vector<T, 16>>(v));
}
//@ end

//@ primitive turn_tile needs Vector load_four store_aligned permute_bytes bitcast
//@ includes <cstdint>
/// 128 rows and 128 columns, from (row_first, col_first) on, of rows x columns single bytes, rows
/// `stride` apart from p on: transposed to `to`, `padded` bytes a column, a multiple of 16, zeros
/// behind the last row. 256 threads, 16 rows of four columns each. With kInterleaved place 4t + r
/// of 16 is that of row 8 (r / 2) + 2t + r % 2.
template <bool kInterleaved, class Buffer, class T>
__device__ __forceinline__ void turn_tile(Buffer& buffer, T* to, const T* p, int64_t stride,
                                          int rows, int columns, int padded, int row_first,
                                          int col_first) {
  static_assert(sizeof(T) == 1, "elements of 8 bits");
  const int thread = static_cast<int>(threadIdx.x);
  const int lane = thread % 32;
  const int chunk = thread / 32;
  uint32_t words[16];
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    const int place = kInterleaved ? i % 4 / 2 * 8 + i / 4 * 2 + i % 2 : i;
    const int row = row_first + chunk * 16 + place;
    words[i] = load_four(p + stride * row, col_first + 4 * lane, row < rows ? columns : 0);
  }
  Vector<uint32_t, 4> column[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const uint32_t* const four = &words[4 * i];
    const uint32_t low[2] = {permute_bytes(four[0], four[1], 0x5140),
                             permute_bytes(four[2], four[3], 0x5140)};
    const uint32_t high[2] = {permute_bytes(four[0], four[1], 0x7362),
                              permute_bytes(four[2], four[3], 0x7362)};
    column[0][i] = permute_bytes(low[0], low[1], 0x5410);
    column[1][i] = permute_bytes(low[0], low[1], 0x7632);
    column[2][i] = permute_bytes(high[0], high[1], 0x5410);
    column[3][i] = permute_bytes(high[0], high[1], 0x7632);
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) buffer[(4 * lane + i) * 8 + (chunk ^ lane % 8)] = column[i];
  __syncthreads();
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    const int col = thread / 8 + 32 * i;
    const int part = thread % 8;
    const Vector<uint32_t, 4> v = buffer[col * 8 + (part ^ col / 4 % 8)];
    if (col_first + col < columns && row_first + 16 * part < padded) {
      store_aligned(to + int64_t{padded} * (col_first + col) + row_first + 16 * part,
                    bitcast<Vector<T, 16>>(v));
    }
  }
}
//@ end

//@ primitive load_rows needs PanelTile Vector ldmatrix_x4 bitcast lane_id load_aligned
//@ includes <cstdint>
/// A warp's 16 rows of a tile, from `row` on, as accumulators of wgmma lie: the row of lane / 4 and
/// the one eight further, in pairs of columns (elements of 8 or 16 bits).
template <class T, int kRows, int kCols, int kPairs>
__device__ __forceinline__ void load_rows(Vector<T, 2> (&top)[kPairs],
                                          Vector<T, 2> (&bottom)[kPairs],
                                          PanelTile<T, kRows, kCols>& tile, int row) {
  static_assert(kPairs * 8 <= kCols, "columns of the tile");
  const int lane = lane_id();
  if constexpr (sizeof(T) == 2) {
    static_assert(kPairs % 2 == 0, "two blocks of eight columns at once");
#pragma unroll
    for (int n = 0; n < kPairs; n += 2) {
      uint32_t r[4];
      ldmatrix_x4(r, tile.at(row + lane % 16, n * 8 + lane / 16 * 8));
      top[n] = bitcast<Vector<T, 2>>(r[0]);
      bottom[n] = bitcast<Vector<T, 2>>(r[1]);
      top[n + 1] = bitcast<Vector<T, 2>>(r[2]);
      bottom[n + 1] = bitcast<Vector<T, 2>>(r[3]);
    }
  } else {
    static_assert(sizeof(T) == 1, "elements of 8 or 16 bits");
#pragma unroll
    for (int n = 0; n < kPairs; ++n) {
      top[n] = load_aligned<2>(tile.at(row + lane / 4, n * 8 + lane % 4 * 2));
      bottom[n] = load_aligned<2>(tile.at(row + lane / 4 + 8, n * 8 + lane % 4 * 2));
    }
  }
}
//@ end

//@ primitive load_row_bits needs PanelTile ldmatrix_x4 lane_id shuffle_from byte_permute
//@ permute_bytes includes <cstdint>
/// The same of truth values: a word for each of the two rows, a bit for each column of a lane.
/// A matrix gives a lane four neighbours of 16 columns, two of which each of two lanes of the row
/// needs: lanes exchange bits, not bytes.
template <int kRows, int kCols>
__device__ __forceinline__ void load_row_bits(uint32_t& top, uint32_t& bottom,
                                              PanelTile<bool, kRows, kCols>& tile, int row) {
  static_assert(kCols % 32 == 0 && kCols <= 128, "two matrices of 16 columns at once");
  const int lane = lane_id();
  const int near = lane / 4 * 4 + lane % 4 / 2;
  const uint32_t half = lane % 2 ? 0x7632u : 0x5410u;
  // of 32 columns each, bits 0, 1, 4 and 5 of the bytes 0 and 2
  uint32_t parts[2][4] = {};
#pragma unroll
  for (int n = 0; n < kCols / 32; ++n) {
    uint32_t r[4];
    ldmatrix_x4(r, tile.at(row + lane % 16, n * 32 + lane / 16 * 16));
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      const uint32_t two = r[i] + r[i + 2] * 16;
      parts[i][n] = (two | two >> 7) & 0x00330033u;
    }
  }
  uint32_t words[2];
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    const uint32_t low = byte_permute<0x6240>(parts[i][0], parts[i][1]);
    const uint32_t high = byte_permute<0x6240>(parts[i][2], parts[i][3]);
    const uint32_t even = permute_bytes(shuffle_from(low, near), shuffle_from(high, near), half);
    const uint32_t odd =
        permute_bytes(shuffle_from(low, near + 2), shuffle_from(high, near + 2), half);
    words[i] = even + odd * 4;
  }
  top = words[0];
  bottom = words[1];
}
//@ end

//@ primitive load_row_words needs PanelTile lane_id includes <cstdint>
/// The same of a tile that lies as such words, those of 8 rows in each row of it.
template <int kRows, int kCols>
__device__ __forceinline__ void load_row_words(uint32_t& top, uint32_t& bottom,
                                               PanelTile<uint32_t, kRows, kCols>& tile, int row) {
  static_assert(kCols == 32, "a word for each lane");
  top = *tile.at(row / 8, lane_id());
  bottom = *tile.at(row / 8 + 1, lane_id());
}
//@ end

//@ primitive pack_tile needs Vector load_four load_aligned bitcast shuffle_xor byte_permute
//@ any_lane group_reduce OpAny store_element includes <cstdint>
/// kRows x kCols truth values, from (row_first, col_first) on, of rows x columns, rows `stride`
/// apart from p on, as four words a row to `to`: bits 2n and 2n + 1 of word t are columns 8n + 2t
/// and 8n + 2t + 1, as a lane of wgmma's accumulators has them. Up to the next multiple of 8 rows,
/// all false where there are none. `some`: whether one is true; where none is, 1 to `empty`. 128
/// threads.
template <int kRows, int kCols, class Scratch>
__device__ __forceinline__ void pack_tile(uint32_t* to, bool* some, int* empty, Scratch& scratch,
                                          const bool* p, int64_t stride, int rows, int columns,
                                          int row_first, int col_first) {
  static_assert(kCols == 128 || kCols == 64, "a row of 8 or 4 lanes");
  constexpr int kLanes = kCols / 16;
  constexpr int kAtOnce = 128 / kLanes;
  static_assert(kRows % kAtOnce == 0, "all lanes have as many rows");
  const int thread = static_cast<int>(threadIdx.x);
  const int c = thread % kLanes;
  const int col = col_first + c * 16;
  const int first = row_first + thread / kLanes;
  Vector<uint32_t, 4> bytes[kRows / kAtOnce];
  const uint64_t ends = static_cast<uint64_t>(stride) | static_cast<uint64_t>(columns);
  if ((reinterpret_cast<uintptr_t>(p) | ends) % 16 == 0) {
#pragma unroll
    for (int n = 0; n < kRows / kAtOnce; ++n) {
      bytes[n] = {};
      if (first + n * kAtOnce < rows && col < columns) {
        const auto v = load_aligned<16>(p + stride * (first + n * kAtOnce) + col);
        bytes[n] = bitcast<Vector<uint32_t, 4>>(v);
      }
    }
  } else {
#pragma unroll
    for (int n = 0; n < kRows / kAtOnce; ++n) {
      const int row = first + n * kAtOnce;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        bytes[n][i] = load_four(p + stride * row, col + 4 * i, row < rows ? columns : 0);
      }
    }
  }
  uint32_t any = 0;
#pragma unroll
  for (int n = 0; n < kRows / kAtOnce; ++n) {
    // four bits of words 0 and 2, and 16 bits above those of words 1 and 3
    uint32_t even = bytes[n][0] + bytes[n][2] * 4;
    uint32_t odd = bytes[n][1] + bytes[n][3] * 4;
    even = (even | even >> 7) & 0x000f000fu;
    odd = (odd | odd >> 7) & 0x000f000fu;
    any |= even | odd;
    even <<= 4 * (c % 4);
    odd <<= 4 * (c % 4);
    uint32_t own = c % 2 ? odd : even;
    own |= shuffle_xor(c % 2 ? even : odd, 1);
    own |= shuffle_xor(own, 2);
    const int row = first + n * kAtOnce;
    uint32_t word = c / 2 % 2 ? own >> 16 : own & 0xffffu;
    int at = c % 2 * 2 + c / 2;
    if constexpr (kLanes == 8) {
      const uint32_t other = shuffle_xor(own, 4);
      word = c < 4 ? byte_permute<0x5410>(own, other) : byte_permute<0x7632>(other, own);
      at = c % 2 * 2 + c / 4;
    }
    if (c % 4 < 16 / kLanes && row < (rows + 7) / 8 * 8) {
      store_element(to + int64_t{row} * 4 + at, word);
    }
  }
  const bool found = group_reduce<OpAny, 4>(any_lane(any != 0), scratch, thread / 32, thread % 32);
  if (thread == 0) store_element(some, found);
  if (thread == 0 && !found) store_element(empty, 1);
}
//@ end

//@ primitive load_row needs RowTile Vector ldmatrix_x4 bitcast lane_id renew includes <cstdint>
/// A tile of one row as accumulators of wgmma lie: in pairs of columns, the same in each row. Each
/// matrix has one row eight times. The place is not kept for the next instance's row.
template <class T, int kCols, int kPairs>
__device__ __forceinline__ void load_row(Vector<T, 2> (&row)[kPairs], RowTile<T, kCols>& tile) {
  static_assert(sizeof(T) == 2 && kPairs % 4 == 0 && kPairs * 8 <= kCols, "whole matrices");
  int col = lane_id() / 8 * 8;
  renew(col);
#pragma unroll
  for (int n = 0; n < kPairs; n += 4) {
    uint32_t r[4];
    ldmatrix_x4(r, tile.at(col + n * 8));
#pragma unroll
    for (int e = 0; e < 4; ++e) row[n + e] = bitcast<Vector<T, 2>>(r[e]);
  }
}
//@ end

//@ primitive tensor_prefetch includes <cuda.h>
/// Fetches a tensor map ahead of its first use.
[[maybe_unused]] __device__ __forceinline__ void tensor_prefetch(const CUtensorMap& map) {
  asm volatile("prefetch.tensormap [%0];" : : "l"(&map) : "memory");
}
//@ end

//@ primitive tensor_ahead includes <cuda.h>
/// The L2 fetches a map's box from coordinates, the fastest first, as a tensor_load reads it.
[[maybe_unused]] __device__ __forceinline__ void tensor_ahead(const CUtensorMap& map, int x,
                                                              int y) {
  asm volatile("cp.async.bulk.prefetch.tensor.2d.L2.global [%0, {%1, %2}];"
               :
               : "l"(&map), "r"(x), "r"(y)
               : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_ahead(const CUtensorMap& map, int x, int y,
                                                              int z) {
  asm volatile("cp.async.bulk.prefetch.tensor.3d.L2.global [%0, {%1, %2, %3}];"
               :
               : "l"(&map), "r"(x), "r"(y), "r"(z)
               : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_ahead(const CUtensorMap& map, int x, int y,
                                                              int z, int w) {
  asm volatile("cp.async.bulk.prefetch.tensor.4d.L2.global [%0, {%1, %2, %3, %4}];"
               :
               : "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w)
               : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_ahead(const CUtensorMap& map, int x, int y,
                                                              int z, int w, int v) {
  asm volatile("cp.async.bulk.prefetch.tensor.5d.L2.global [%0, {%1, %2, %3, %4, %5}];"
               :
               : "l"(&map), "r"(x), "r"(y), "r"(z), "r"(w), "r"(v)
               : "memory");
}
//@ end

//@ primitive tensor_load_row needs SharedBarrier shared_address includes <cstdint> <cuda.h>
/// Starts the copy of a box of a map with one dimension, from x on, to shared memory; its bytes
/// count towards `landed`. Places outside the tensor become zero.
[[maybe_unused]] __device__ __forceinline__ void tensor_load_row(void* to, const CUtensorMap& map,
                                                                 SharedBarrier& landed, int x) {
  asm volatile(
      "cp.async.bulk.tensor.1d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3}], [%2];"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "r"(x)
      : "memory");
}
//@ end

//@ primitive tensor_load needs SharedBarrier shared_address includes <cstdint> <cuda.h>
/// Starts the copy of a map's box from coordinates, the fastest first, to shared memory; its bytes
/// count towards `landed`. Places outside the tensor become zero.
[[maybe_unused]] __device__ __forceinline__ void tensor_load(void* to, const CUtensorMap& map,
                                                             SharedBarrier& landed, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4}], [%2];"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "r"(x), "r"(y)
      : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_load(void* to, const CUtensorMap& map,
                                                             SharedBarrier& landed, int x, int y,
                                                             int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5}], [%2];"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "r"(x), "r"(y), "r"(z)
      : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_load(void* to, const CUtensorMap& map,
                                                             SharedBarrier& landed, int x, int y,
                                                             int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6}], [%2];"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "r"(x), "r"(y), "r"(z),
        "r"(w)
      : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_load(void* to, const CUtensorMap& map,
                                                             SharedBarrier& landed, int x, int y,
                                                             int z, int w, int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes "
      "[%0], [%1, {%3, %4, %5, %6, %7}], [%2];"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "r"(x), "r"(y), "r"(z),
        "r"(w), "r"(v)
      : "memory");
}
//@ end

//@ primitive cache_policy includes <cstdint>
/// How the L2 keeps what a copy reads: `first` to leave (PTX ISA, createpolicy), or, 0, as usual:
/// without a policy, as with one of evict_normal a read of 470 MB takes a sixth longer on an H200.
[[maybe_unused]] __device__ __forceinline__ uint64_t cache_policy(bool first) {
  uint64_t evict_first;
  asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(evict_first));
  return first ? evict_first : 0;
}
//@ end

//@ primitive tensor_load_by_policy needs SharedBarrier shared_address includes <cstdint> <cuda.h>
/// tensor_load with a policy of the L2, which is not 0.
[[maybe_unused]] __device__ __forceinline__ void tensor_load_by_policy(
    void* to, const CUtensorMap& map, SharedBarrier& landed, uint64_t policy, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%4, %5}], [%2], %3;"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "l"(policy), "r"(x),
        "r"(y)
      : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_load_by_policy(
    void* to, const CUtensorMap& map, SharedBarrier& landed, uint64_t policy, int x, int y,
    int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%4, %5, %6}], [%2], %3;"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "l"(policy), "r"(x),
        "r"(y), "r"(z)
      : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_load_by_policy(
    void* to, const CUtensorMap& map, SharedBarrier& landed, uint64_t policy, int x, int y, int z,
    int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%4, %5, %6, %7}], [%2], %3;"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "l"(policy), "r"(x),
        "r"(y), "r"(z), "r"(w)
      : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_load_by_policy(
    void* to, const CUtensorMap& map, SharedBarrier& landed, uint64_t policy, int x, int y, int z,
    int w, int v) {
  asm volatile(
      "cp.async.bulk.tensor.5d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".L2::cache_hint [%0], [%1, {%4, %5, %6, %7, %8}], [%2], %3;"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "l"(policy), "r"(x),
        "r"(y), "r"(z), "r"(w), "r"(v)
      : "memory");
}
//@ end

//@ primitive tensor_load_hinted needs SharedBarrier tensor_load tensor_load_by_policy
//@ includes <cstdint> <cuda.h>
/// tensor_load with a cache_policy.
template <class... Coordinates>
__device__ __forceinline__ void tensor_load_hinted(void* to, const CUtensorMap& map,
                                                   SharedBarrier& landed, uint64_t policy,
                                                   Coordinates... at) {
  if (policy != 0) {
    tensor_load_by_policy(to, map, landed, policy, at...);
  } else {
    tensor_load(to, map, landed, at...);
  }
}
//@ end

//@ primitive tensor_load_multicast needs SharedBarrier shared_address includes <cstdint> <cuda.h>
/// The same into each CTA of the cluster whose bit is set in `ranks`: to the same place, counted by
/// the same barrier of each.
[[maybe_unused]] __device__ __forceinline__ void tensor_load_multicast(
    void* to, const CUtensorMap& map, SharedBarrier& landed, uint16_t ranks, int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5}], [%2], %3;"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "h"(ranks), "r"(x),
        "r"(y)
      : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_load_multicast(
    void* to, const CUtensorMap& map, SharedBarrier& landed, uint16_t ranks, int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6}], [%2], %3;"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "h"(ranks), "r"(x),
        "r"(y), "r"(z)
      : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_load_multicast(
    void* to, const CUtensorMap& map, SharedBarrier& landed, uint16_t ranks, int x, int y, int z,
    int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster [%0], [%1, {%4, %5, %6, %7}], [%2], %3;"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "h"(ranks), "r"(x),
        "r"(y), "r"(z), "r"(w)
      : "memory");
}
//@ end

//@ primitive tensor_load_multicast_by_policy needs SharedBarrier shared_address
//@ includes <cstdint> <cuda.h>
/// tensor_load_multicast with a policy of the L2, which is not 0.
[[maybe_unused]] __device__ __forceinline__ void tensor_load_multicast_by_policy(
    void* to, const CUtensorMap& map, SharedBarrier& landed, uint16_t ranks, uint64_t policy,
    int x, int y) {
  asm volatile(
      "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%5, %6}], [%2], %3, %4;"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "h"(ranks), "l"(policy),
        "r"(x), "r"(y)
      : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_load_multicast_by_policy(
    void* to, const CUtensorMap& map, SharedBarrier& landed, uint16_t ranks, uint64_t policy,
    int x, int y, int z) {
  asm volatile(
      "cp.async.bulk.tensor.3d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%5, %6, %7}], [%2], %3, %4;"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "h"(ranks), "l"(policy),
        "r"(x), "r"(y), "r"(z)
      : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_load_multicast_by_policy(
    void* to, const CUtensorMap& map, SharedBarrier& landed, uint16_t ranks, uint64_t policy,
    int x, int y, int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.shared::cluster.global.mbarrier::complete_tx::bytes"
      ".multicast::cluster.L2::cache_hint [%0], [%1, {%5, %6, %7, %8}], [%2], %3, %4;"
      :
      : "r"(shared_address(to)), "l"(&map), "r"(shared_address(&landed)), "h"(ranks), "l"(policy),
        "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
//@ end

//@ primitive tensor_load_multicast_hinted
//@ needs SharedBarrier tensor_load_multicast tensor_load_multicast_by_policy
//@ includes <cstdint> <cuda.h>
/// tensor_load_multicast with a cache_policy.
template <class... Coordinates>
__device__ __forceinline__ void tensor_load_multicast_hinted(void* to, const CUtensorMap& map,
                                                             SharedBarrier& landed, uint16_t ranks,
                                                             uint64_t policy, Coordinates... at) {
  if (policy != 0) {
    tensor_load_multicast_by_policy(to, map, landed, ranks, policy, at...);
  } else {
    tensor_load_multicast(to, map, landed, ranks, at...);
  }
}
//@ end

//@ primitive tensor_store needs shared_address includes <cuda.h>
/// Starts the copy of a map's box from shared memory to coordinates; places outside the tensor are
/// left alone. It belongs to the bulk group that bulk_commit closes.
[[maybe_unused]] __device__ __forceinline__ void tensor_store(const CUtensorMap& map,
                                                              const void* from, int x, int y) {
  asm volatile("cp.async.bulk.tensor.2d.global.shared::cta.bulk_group [%0, {%2, %3}], [%1];"
               :
               : "l"(&map), "r"(shared_address(from)), "r"(x), "r"(y)
               : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_store(const CUtensorMap& map,
                                                              const void* from, int x, int y,
                                                              int z) {
  asm volatile("cp.async.bulk.tensor.3d.global.shared::cta.bulk_group [%0, {%2, %3, %4}], [%1];"
               :
               : "l"(&map), "r"(shared_address(from)), "r"(x), "r"(y), "r"(z)
               : "memory");
}
[[maybe_unused]] __device__ __forceinline__ void tensor_store(const CUtensorMap& map,
                                                              const void* from, int x, int y,
                                                              int z, int w) {
  asm volatile(
      "cp.async.bulk.tensor.4d.global.shared::cta.bulk_group [%0, {%2, %3, %4, %5}], [%1];"
      :
      : "l"(&map), "r"(shared_address(from)), "r"(x), "r"(y), "r"(z), "r"(w)
      : "memory");
}
//@ end

//@ primitive bulk_commit
/// Makes a group of the bulk stores that this thread has started since the last one.
[[maybe_unused]] __device__ __forceinline__ void bulk_commit() {
  asm volatile("cp.async.bulk.commit_group;" : : : "memory");
}
//@ end

//@ primitive bulk_wait_read
/// Waits until all but the kGroups youngest groups of this thread have read their shared memory.
template <int kGroups>
__device__ __forceinline__ void bulk_wait_read() {
  asm volatile("cp.async.bulk.wait_group.read %0;" : : "n"(kGroups) : "memory");
}
//@ end

//@ primitive wgmma_fence
/// All warps of a warpgroup, before the first product: registers written before are seen by it.
[[maybe_unused]] __device__ __forceinline__ void wgmma_fence() {
  asm volatile("wgmma.fence.sync.aligned;" : : : "memory");
}
//@ end

//@ primitive wgmma_commit
/// Makes a group of the products that this warpgroup has started since the last one.
[[maybe_unused]] __device__ __forceinline__ void wgmma_commit() {
  asm volatile("wgmma.commit_group.sync.aligned;" : : : "memory");
}
//@ end

//@ primitive wgmma_wait
/// Waits until all but the kGroups youngest groups of products are done.
template <int kGroups>
__device__ __forceinline__ void wgmma_wait() {
  asm volatile("wgmma.wait_group.sync.aligned %0;" : : "n"(kGroups) : "memory");
}
//@ end

//@ primitive settle needs Vector includes <type_traits>
/// Behind a wait: what reads these registers is not moved in front of it.
template <int kRows, int kCols, class T, int N>
__device__ __forceinline__ void settle(Vector<T, N> (&registers)[kRows][kCols]) {
#pragma unroll
  for (int i = 0; i < kRows; ++i) {
#pragma unroll
    for (int j = 0; j < kCols; ++j) {
#pragma unroll
      for (int n = 0; n < N; ++n) {
        if constexpr (std::is_same<T, float>::value) {
          asm volatile("" : "+f"(registers[i][j].units[n]) : : "memory");
        } else {
          asm volatile("" : "+r"(registers[i][j].units[n]) : : "memory");
        }
      }
    }
  }
}
//@ end

//@ primitive combine_exponentials_by_lanes needs lane_id lane_reduce OpSum exp_fast
/// The sum of kCount sums of exp(x - value), each with its own value, as one of exp(x - reference),
/// by the lanes of a warp: the same bits in every thread.
template <int kCount, class T>
__device__ __forceinline__ T combine_exponentials_by_lanes(const T* sums, const T* values,
                                                           T reference) {
  T total = 0;
#pragma unroll
  for (int i = 0; i < kCount; i += 32) {
    if (i + 32 <= kCount || i + lane_id() < kCount) {
      total += sums[i + lane_id()] * exp_fast(values[i + lane_id()] - reference);
    }
  }
  return lane_reduce<OpSum<T>, 32>(total);
}
//@ end

//@ primitive held_by_warp needs renew
/// How many of the `count` elements of a row a warp holds: kSteps vectors of kWidth in each of
/// kThreads threads, one behind the other from thread to thread; the row begins with element
/// `shift` of the first.
template <int kSteps, int kThreads, int kWidth>
__device__ __forceinline__ int held_by_warp(int warp, int count, int shift) {
  constexpr int kOwn = 32 * kWidth;
  constexpr int kStep = kThreads * kWidth;
  renew(warp);  // computed where it is needed, not kept from row to row
  const int behind = count + shift - warp * kOwn;
  const int whole = behind < 0 ? 0 : behind / kStep;
  const int steps = whole < kSteps ? whole : kSteps;
  const int rest = steps < kSteps ? behind - steps * kStep : 0;
  const int more = rest < 0 ? 0 : rest < kOwn ? rest : kOwn;
  return steps * kOwn + more - (warp == 0 ? shift : 0);
}
//@ end

//@ primitive as_whole_row needs held_by_warp
/// A warp's sum as that of a row all of whose elements are like the warp's.
template <int kSteps, int kThreads, int kWidth>
__device__ __forceinline__ float as_whole_row(float sum, int warp, int count, int shift) {
  const int own = held_by_warp<kSteps, kThreads, kWidth>(warp, count, shift);
  return own > 0 ? sum * (static_cast<float>(count) / static_cast<float>(own)) : 0.0f;
}
//@ end

//@ primitive combine_spreads_by_lanes needs lane_id lane_reduce OpSum held_by_warp
/// The sum of squares of distances from `mean` out of kCount sums of squares of distances from the
/// means of warps, whose sums are `sums`, by the lanes of a warp: the same bits in every thread.
template <int kCount, int kSteps, int kThreads, int kWidth>
__device__ __forceinline__ float combine_spreads_by_lanes(const float* squares, const float* sums,
                                                          float mean, int count, int shift) {
  float total = 0.0f;
#pragma unroll
  for (int i = 0; i < kCount; i += 32) {
    const int warp = i + lane_id();
    const int own = warp < kCount ? held_by_warp<kSteps, kThreads, kWidth>(warp, count, shift) : 0;
    if (own > 0) {
      const float distance = sums[warp] / static_cast<float>(own) - mean;
      total += squares[warp] + static_cast<float>(own) * distance * distance;
    }
  }
  return lane_reduce<OpSum<float>, 32>(total);
}
//@ end

//@ primitive RingPlace
/// A place in a ring of kSlots slots; the parity changes with every round.
template <int kSlots>
struct RingPlace {
  int slot;
  int parity;

  __device__ __forceinline__ void advance() {
    if (++slot == kSlots) {
      slot = 0;
      parity ^= 1;
    }
  }
  /// The slot before this one.
  __device__ __forceinline__ int previous() const { return (slot == 0 ? kSlots : slot) - 1; }
};
//@ end

//@ primitive dynamic_shared_aligned needs shared_address uniform_int includes <cstdint>
/// The CTA's dynamic shared memory, laid out as the struct T, from its first multiple of T's
/// alignment on: the launch has as many bytes more. All threads of a warp call it: the address is
/// kept once for the warp, and not computed anew wherever it is used.
template <class T>
__device__ __forceinline__ T& dynamic_shared_aligned() {
  extern __shared__ uint4 dynamic_shared_storage[];
  constexpr uint32_t kMask = static_cast<uint32_t>(alignof(T)) - 1;
  const uint32_t first = (shared_address(dynamic_shared_storage) + kMask) & ~kMask;
  return *static_cast<T*>(__cvta_shared_to_generic(uniform_int(first)));
}
//@ end

//@ primitive store_pair needs shared_address includes <cstdint> <type_traits>
/// Two neighbours of 32 bits to shared memory. Accumulators leave as the floats that they are:
/// those that pass as words are moved before the next product, and ptxas waits for that.
template <class T>
__device__ __forceinline__ void store_pair(T* p, T x, T y) {
  static_assert(sizeof(T) == 4, "elements of 32 bits");
  const uint32_t at = shared_address(p);
  if constexpr (std::is_same<T, float>::value) {
    asm volatile("st.shared.v2.f32 [%0], {%1, %2};" : : "r"(at), "f"(x), "f"(y) : "memory");
  } else {
    asm volatile("st.shared.v2.b32 [%0], {%1, %2};" : : "r"(at), "r"(x), "r"(y) : "memory");
  }
}
//@ end

//@ primitive pack_chunk needs PanelTile Vector lane_id stmatrix_x4 store_pair
//@ includes <cstdint> <cstring>
/// A warp's 16 rows of 128 or 64 bytes from registers of accumulators' shape (`top`, and `bottom`
/// eight rows below, or, where they are kPaired, the rows between them) to shared memory.
template <bool kPaired = false, class T, int kCols>
__device__ __forceinline__ void pack_chunk(PanelTile<T, 16, kCols>& chunk,
                                           const Vector<T, 2>* top, const Vector<T, 2>* bottom) {
  static_assert(sizeof(T) >= 2, "elements of 16 or 32 bits");
  static_assert(PanelTile<T, 16, kCols>::kPanel == kCols && kCols % 16 == 0, "one panel");
  constexpr int kStride = kPaired ? 2 : 1, kBelow = kPaired ? 1 : 8;
  const int lane = lane_id();
  if constexpr (sizeof(T) == 2) {
#pragma unroll
    for (int j = 0; j < kCols / 16; ++j) {
      uint32_t words[4];
      memcpy(&words[0], &top[2 * j], 4);
      memcpy(&words[1], &bottom[2 * j], 4);
      memcpy(&words[2], &top[2 * j + 1], 4);
      memcpy(&words[3], &bottom[2 * j + 1], 4);
      const int row = lane % 8 * kStride + lane / 8 % 2 * kBelow;
      stmatrix_x4(chunk.at(row, 16 * j + lane / 16 * 8), words);
    }
  } else {
#pragma unroll
    for (int j = 0; j < kCols / 8; ++j) {
      const int col = 8 * j + lane % 4 * 2;
      store_pair(chunk.at(lane / 4 * kStride, col), top[j][0], top[j][1]);
      store_pair(chunk.at(lane / 4 * kStride + kBelow, col), bottom[j][0], bottom[j][1]);
    }
  }
}
//@ end

//@ primitive pack_chunk_across needs PanelTile Vector lane_id store_aligned store_element
//@ needs store_pair
/// The same where rows of accumulators are columns of the chunk: 16 of them, which are neighbours
/// in pairs where they are kPaired.
template <bool kPaired, class T, int kRows>
__device__ __forceinline__ void pack_chunk_across(PanelTile<T, kRows, 16>& chunk,
                                                  const Vector<T, 2>* top,
                                                  const Vector<T, 2>* bottom) {
  const int lane = lane_id();
#pragma unroll
  for (int j = 0; j < kRows / 8; ++j) {
#pragma unroll
    for (int e = 0; e < 2; ++e) {
      const int row = 8 * j + lane % 4 * 2 + e;
      if constexpr (kPaired && sizeof(T) == 4) {
        store_pair(chunk.at(row, lane / 4 * 2), top[j][e], bottom[j][e]);
      } else if constexpr (kPaired) {
        Vector<T, 2> pair;
        pair[0] = top[j][e];
        pair[1] = bottom[j][e];
        store_aligned(chunk.at(row, lane / 4 * 2), pair);
      } else {
        store_element(chunk.at(row, lane / 4), top[j][e]);
        store_element(chunk.at(row, lane / 4 + 8), bottom[j][e]);
      }
    }
  }
}
//@ end

//@ primitive send_chunk needs PanelTile Vector lane_id pack_chunk fence_async tensor_store
//@ needs bulk_commit bulk_wait_read includes <cuda.h>
/// A warp's chunk, as pack_chunk, to coordinates of a map, through shared memory that all but its
/// kOthers youngest stores have left.
template <int kOthers, bool kPaired = false, class T, int kCols, class... Coordinates>
__device__ __forceinline__ void send_chunk(PanelTile<T, 16, kCols>& chunk, const CUtensorMap& map,
                                           const Vector<T, 2>* top, const Vector<T, 2>* bottom,
                                           Coordinates... at) {
  const int lane = lane_id();
  if (lane == 0) bulk_wait_read<kOthers>();
  __syncwarp();
  pack_chunk<kPaired>(chunk, top, bottom);
  fence_async();
  __syncwarp();
  if (lane == 0) {
    tensor_store(map, chunk.panel(0, 0), at...);
    bulk_commit();
  }
}
//@ end

//@ primitive send_chunk_across needs PanelTile Vector lane_id pack_chunk_across fence_async
//@ needs tensor_store bulk_commit bulk_wait_read includes <cuda.h>
/// The same of a chunk as pack_chunk_across.
template <int kOthers, bool kPaired, class T, int kRows, class... Coordinates>
__device__ __forceinline__ void send_chunk_across(PanelTile<T, kRows, 16>& chunk,
                                                  const CUtensorMap& map, const Vector<T, 2>* top,
                                                  const Vector<T, 2>* bottom, Coordinates... at) {
  const int lane = lane_id();
  if (lane == 0) bulk_wait_read<kOthers>();
  __syncwarp();
  pack_chunk_across<kPaired>(chunk, top, bottom);
  fence_async();
  __syncwarp();
  if (lane == 0) {
    tensor_store(map, chunk.panel(0, 0), at...);
    bulk_commit();
  }
}
//@ end

//@ primitive write_chunk needs PanelTile Vector lane_id pack_chunk load_aligned store_aligned
//@ needs store_element shuffle_from sync_warp includes <cstdint> <cstring>
/// A warp's chunk, as pack_chunk, through shared memory to (row, col) of a matrix of row_end x
/// col_end elements whose rows begin anywhere from p on, `stride` elements apart: a row at a time,
/// in words. Places outside are left alone.
template <class T, int kCols>
__device__ __forceinline__ void write_chunk(PanelTile<T, 16, kCols>& chunk, T* p, int64_t stride,
                                            int row, int row_end, int col, int col_end,
                                            const Vector<T, 2>* top, const Vector<T, 2>* bottom) {
  const int lane = lane_id();
  sync_warp();
  pack_chunk(chunk, top, bottom);
  sync_warp();
  const int columns = col_end - col < kCols ? col_end - col : kCols;
  T* const to = p + stride * row + col;
#pragma unroll 1
  for (int i = 0; i < 16; ++i) {
    if (row + i >= row_end) break;
    T* const line = to + stride * i;
    if constexpr (sizeof(T) == 4) {
      if (lane < columns) store_element(line + lane, *chunk.at(i, lane));
    } else {
      Vector<T, 2> pair = load_aligned<2>(chunk.at(i, 2 * lane % kCols));
      const int odd = reinterpret_cast<uintptr_t>(line) % 4 != 0 ? 1 : 0;
      if (odd != 0) {
        // words begin at the second element of a pair
        if (lane == 0 && columns > 0) store_element(line, pair[0]);
        uint32_t word;
        memcpy(&word, &pair, 4);
        word = word >> 16 | shuffle_from(word, (lane + 1) % 32) << 16;
        memcpy(&pair, &word, 4);
      }
      const int at = 2 * lane + odd;
      if (at + 1 < columns) store_aligned(line + at, pair);
      else if (at < columns) store_element(line + at, pair[0]);
    }
  }
}
//@ end

//@ primitive clear_outside needs PanelTile Vector store_shared_vector
/// kThreads threads set to zero what of a tile's rows (kAxis 0) or columns (1) is not in
/// [begin, end). kInterleaved: of 16 columns place 4t + r has number 8 (r / 2) + 2t + r % 2.
template <int kThreads, int kAxis, bool kInterleaved = false, class T, int kRows, int kCols>
__device__ __forceinline__ void clear_outside(PanelTile<T, kRows, kCols>& tile, int begin, int end,
                                              int thread) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  constexpr int kChunks = kRows * kCols / kChunk;
#pragma unroll 1
  for (int n = thread; n < kChunks; n += kThreads) {
    const int row = n / (kCols / kChunk);
    const int col = n % (kCols / kChunk) * kChunk;
    if constexpr (kAxis == 0) {
      if (row < begin || row >= end) store_shared_vector(tile.at(row, col), Vector<T, kChunk>{});
    } else if (col < begin || col + kChunk > end) {
#pragma unroll 1
      for (int i = 0; i < kChunk; ++i) {
        const int number = col + (kInterleaved ? i % 4 / 2 * 8 + i / 4 * 2 + i % 2 : i);
        if (number < begin || number >= end) *tile.at(row, col + i) = T{};
      }
    }
  }
}
//@ end

//@ primitive columns_upto needs min_of includes <cstdint>
/// Bit n for a lane's column 8·floor(n / 2) + n % 2 of 16 pairs, from its first one on, where that
/// is at most x.
[[maybe_unused]] __device__ __forceinline__ uint32_t columns_upto(int x) {
  const int count = x < 0 ? 0 : min_of((x >> 3) * 2 + min_of(x & 7, 1) + 1, 32);
  return count == 0 ? 0u : 0xffffffffu >> (32 - count);
}
//@ end

//@ primitive columns_from needs min_of includes <cstdint>
/// Bits of the columns that are at least x.
[[maybe_unused]] __device__ __forceinline__ uint32_t columns_from(int x) {
  const int count = x < 0 ? 0 : min_of((x >> 3) * 2 + min_of(x & 7, 2), 32);
  return count == 32 ? 0u : 0xffffffffu << count;
}
//@ end

//@ primitive has_column includes <cstdint>
/// Bit n of a lane's columns.
[[maybe_unused]] __device__ __forceinline__ bool has_column(uint32_t columns, int n) {
  return (columns >> n & 1u) != 0;
}
//@ end

//@ primitive unfinite_bits includes <cstdint>
/// Not 0 where one of the two elements of T in a word is an infinity or a NaN: an exponent of ones,
/// plus its lowest bit, carries into the sign.
template <class T>
__device__ __forceinline__ uint32_t unfinite_bits(uint32_t word);
//@ end

//@ primitive unfinite_bits_bf16 extends unfinite_bits with bf16_t includes <cstdint>
template <>
[[maybe_unused]] __device__ __forceinline__ uint32_t unfinite_bits<bf16_t>(uint32_t word) {
  return ((word & 0x7f807f80u) + 0x00800080u) & 0x80008000u;
}
//@ end

//@ primitive unfinite_bits_f16 extends unfinite_bits with f16_t includes <cstdint>
template <>
[[maybe_unused]] __device__ __forceinline__ uint32_t unfinite_bits<f16_t>(uint32_t word) {
  return ((word & 0x7c007c00u) + 0x04000400u) & 0x80008000u;
}
//@ end

//@ primitive unfinite_outside needs PanelTile Vector load_vector unfinite_bits any_lane lane_id
//@ includes <cstdint> <cstring>
/// Whether a tile's rows that are not in [begin, end) have an infinity or a NaN. Each warp asks for
/// itself, all with the same answer; the tile may be overwritten behind a fence.
template <class T, int kRows, int kCols>
__device__ __forceinline__ bool unfinite_outside(PanelTile<T, kRows, kCols>& tile, int begin,
                                                 int end) {
  constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  constexpr int kChunks = kCols / kChunk;
  const int first = begin < 0 ? 0 : begin < kRows ? begin : kRows;
  const int last = end < first ? first : end < kRows ? end : kRows;
  uint32_t found = 0;
#pragma unroll 1
  for (int n = lane_id(); n < (first + kRows - last) * kChunks; n += 32) {
    const int row = n / kChunks < first ? n / kChunks : n / kChunks - first + last;
    const Vector<T, kChunk> chunk = load_vector<16, kChunk>(tile.at(row, n % kChunks * kChunk));
    uint32_t words[4];
    memcpy(words, &chunk, 16);
#pragma unroll
    for (int i = 0; i < 4; ++i) found |= unfinite_bits<T>(words[i]);
  }
  return any_lane(found != 0);
}
//@ end

//@ primitive kFirstTurn
/// The named barrier of the first warpgroup's turn; those of the others follow.
constexpr int kFirstTurn = 3;
//@ end
