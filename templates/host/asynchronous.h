//! The host's form of asynchronous.cuh. Descriptors are the device's text: they hold the same
//! addresses and are decoded where they are used.
//@ primitive Line
/// The line of a caller, for functions that differ in how many numbers they take.
struct Line {
  int at;
  explicit Line(int line) : at(line) {}
};
//@ end

//@ primitive SharedBarrier
struct alignas(8) SharedBarrier {
  uint64_t state;
};
//@ end

//@ primitive barrier_init needs SharedBarrier
inline void barrier_init(SharedBarrier& barrier, int arrivals, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::phase_init(&barrier, arrivals);
}
//@ end

//@ primitive barrier_init_fence
inline void barrier_init_fence(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::phase_init_fence();
}
//@ end

//@ primitive barrier_arrive needs SharedBarrier
inline void barrier_arrive(SharedBarrier& barrier, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::phase_arrive(&barrier, -1);
}
//@ end

//@ primitive barrier_arrive_at needs SharedBarrier
inline void barrier_arrive_at(SharedBarrier& barrier, int rank, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::phase_arrive(&barrier, rank);
}
//@ end

//@ primitive barrier_arrive_expect needs SharedBarrier
inline void barrier_arrive_expect(SharedBarrier& barrier, int bytes, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::phase_arrive_expect(&barrier, bytes);
}
//@ end

//@ primitive barrier_wait needs SharedBarrier
inline void barrier_wait(SharedBarrier& barrier, int parity, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::phase_wait(&barrier, parity);
}
//@ end

//@ primitive barrier_wait_cluster needs SharedBarrier
inline void barrier_wait_cluster(SharedBarrier& barrier, int parity, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::phase_wait(&barrier, parity);
}
//@ end

//@ primitive fence_async
inline void fence_async(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::async_fence();
}
//@ end

//@ primitive cluster_rank
inline int cluster_rank() { return tilec_host::cluster_rank(); }
//@ end

//@ primitive cluster_sync
inline void cluster_sync(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::cluster_meet(false);
}
//@ end

//@ primitive cluster_arrive
inline void cluster_arrive(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::cluster_arrive();
}
//@ end

//@ primitive cluster_wait
inline void cluster_wait(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::cluster_await(false);
}
//@ end

//@ primitive cluster_release
inline void cluster_release(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::cluster_tell();
  tilec_host::cluster_arrive();
}
//@ end

//@ primitive cluster_acquire
inline void cluster_acquire(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::cluster_await(true);
}
//@ end

//@ primitive store_at_rank needs SharedPointer
template <class T>
inline void store_at_rank(const SharedPointer<T>& place, int rank, const std::common_type_t<T>& value,
                          int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::write_peer(place.where, rank, &value, sizeof(T), alignof(T));
}
//@ end

//@ primitive send_to_rank needs SharedPointer SharedBarrier
template <class T>
inline void send_to_rank(const SharedPointer<T>& place, int rank, const std::common_type_t<T>& value,
                         SharedBarrier& landed, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::send_peer(place.where, rank, &value, sizeof(T), &landed);
}
//@ end

//@ primitive send_item needs SharedBarrier send_to_rank shuffle_from lane_id sync_warp
template <int kCluster, class Place>
inline void send_item(const Place& place, int item, SharedBarrier& landed,
                      int line = __builtin_LINE()) {
  const int known = shuffle_from(item, 0, line);
  sync_warp(line);
  if (lane_id() < kCluster) send_to_rank(place, lane_id(), known, landed, line);
}
//@ end

//@ primitive cluster_sync_memory
inline void cluster_sync_memory(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::cluster_tell();
  tilec_host::cluster_meet(true);
}
//@ end

//@ primitive launch_dependents
/// One kernel after the other here.
inline void launch_dependents() {}
//@ end

//@ primitive wait_prerequisites
inline void wait_prerequisites() {}
//@ end

//@ primitive registers_give
template <int kCount>
inline void registers_give(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::set_registers(kCount);
}
//@ end

//@ primitive registers_take
template <int kCount>
inline void registers_take(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::set_registers(kCount);
}
//@ end

//@ primitive is_elected needs lane_id
inline bool is_elected(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::collective(~0u, nullptr, nullptr, "`is_elected`");
  return lane_id() == 0;
}
//@ end

//@ primitive dynamic_shared_aligned
template <class T>
inline T& dynamic_shared_aligned(int line = __builtin_LINE()) {
  tilec_host::note(line);
  return *static_cast<T*>(tilec_host::dynamic_shared_aligned(alignof(T)));
}
//@ end

//@ primitive PanelTile needs SharedPointer
/// As on the device: the addresses are the same.
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
  unsigned char storage[sizeof(T) * kRows * kCols];

  SharedPointer<T> at(int row, int col, int line = __builtin_LINE()) const {
    const int place = col % kPanel * static_cast<int>(sizeof(T));
    return pointer(row, col, (place / 16 ^ row * kSpan / 128 % (kSpan / 16)) * 16 + place % 16,
                   line);
  }
  SharedPointer<T> panel(int row, int col, int line = __builtin_LINE()) const {
    return pointer(row, col, 0, line);
  }
  static int place(int row, int col) {
    const int chunk = col % kPanel / kChunk ^ row * kSpan / 128 % (kSpan / 16);
    return (col / kPanel * kRows + row) * kPanel + chunk * kChunk + col % kChunk;
  }
  SharedPointer<T> from(int place, int line = __builtin_LINE()) const {
    const int64_t begin = tilec_host::shared_offset(storage), size = sizeof(storage);
    return SharedPointer<T>{
        {begin + int64_t(place) * int64_t(sizeof(T)), begin, begin + size, line}};
  }

 private:
  SharedPointer<T> pointer(int row, int col, int place, int line) const {
    const int64_t begin = tilec_host::shared_offset(storage), size = sizeof(storage);
    // A place that the tile does not have would be one of another panel.
    const bool inside = row >= 0 && row < kRows && col >= 0 && col < kCols;
    const int64_t at = inside ? (int64_t(col / kPanel) * kRows + row) * kSpan + place : size;
    return SharedPointer<T>{{begin + at, begin, begin + size, line}};
  }
};
//@ end

//@ primitive RowTile needs SharedPointer
template <class T, int kColCount>
struct alignas(128) RowTile {
  static constexpr int kCols = kColCount;
  unsigned char storage[sizeof(T) * kCols];

  SharedPointer<T> at(int col, int line = __builtin_LINE()) const {
    const int64_t begin = tilec_host::shared_offset(storage), size = sizeof(T) * kCols;
    const int64_t place = col >= 0 && col < kCols ? int64_t(col) * int64_t(sizeof(T)) : size;
    return SharedPointer<T>{{begin + place, begin, begin + size, line}};
  }
};
//@ end

//@ primitive store_pair needs SharedPointer Vector store_vector
template <class T>
inline void store_pair(const SharedPointer<T>& p, T x, T y, int line = __builtin_LINE()) {
  Vector<T, 2> pair;
  pair[0] = x;
  pair[1] = y;
  store_vector<8>(p, pair, line);
}
//@ end

//@ primitive tensor_prefetch
inline void tensor_prefetch(const CUtensorMap& map, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::check_map(map.map);
}
//@ end

//@ primitive tensor_ahead needs Line
/// Nothing here has caches.
inline void tensor_ahead(const CUtensorMap& map, int, int,
                         Line line = Line(__builtin_LINE())) {
  tilec_host::note(line.at);
  tilec_host::check_map(map.map);
}
inline void tensor_ahead(const CUtensorMap& map, int, int, int,
                         Line line = Line(__builtin_LINE())) {
  tilec_host::note(line.at);
  tilec_host::check_map(map.map);
}
inline void tensor_ahead(const CUtensorMap& map, int, int, int, int,
                         Line line = Line(__builtin_LINE())) {
  tilec_host::note(line.at);
  tilec_host::check_map(map.map);
}
inline void tensor_ahead(const CUtensorMap& map, int, int, int, int, int,
                         Line line = Line(__builtin_LINE())) {
  tilec_host::note(line.at);
  tilec_host::check_map(map.map);
}
//@ end

//@ primitive tensor_load_row needs SharedBarrier shared_place Line
template <class Pointer>
inline void tensor_load_row(const Pointer& to, const CUtensorMap& map, SharedBarrier& landed,
                            int x, Line line = Line(__builtin_LINE())) {
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, 0, &x, 1);
}
//@ end

//@ primitive tensor_load needs SharedBarrier shared_place Line
template <class Pointer>
inline void tensor_load(const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, int x,
                        int y, Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, 0, at, 2);
}
template <class Pointer>
inline void tensor_load(const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, int x,
                        int y, int z, Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, 0, at, 3);
}
template <class Pointer>
inline void tensor_load(const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, int x,
                        int y, int z, int w, Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z, w};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, 0, at, 4);
}
template <class Pointer>
inline void tensor_load(const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, int x,
                        int y, int z, int w, int v, Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z, w, v};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, 0, at, 5);
}
//@ end

//@ primitive cache_policy
/// Nothing here has caches.
inline uint64_t cache_policy(bool first) { return first ? 1 : 0; }
//@ end

//@ primitive tensor_load_by_policy
// A part of the device's tensor_load_hinted, which is whole here.
//@ end

//@ primitive tensor_load_hinted needs SharedBarrier shared_place Line
template <class Pointer>
inline void tensor_load_hinted(
    const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, uint64_t, int x, int y,
    Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, 0, at, 2);
}
template <class Pointer>
inline void tensor_load_hinted(
    const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, uint64_t, int x, int y,
    int z, Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, 0, at, 3);
}
template <class Pointer>
inline void tensor_load_hinted(
    const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, uint64_t, int x, int y,
    int z, int w, Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z, w};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, 0, at, 4);
}
template <class Pointer>
inline void tensor_load_hinted(
    const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, uint64_t, int x, int y,
    int z, int w, int v, Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z, w, v};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, 0, at, 5);
}
//@ end

//@ primitive tensor_load_multicast needs SharedBarrier shared_place Line
template <class Pointer>
inline void tensor_load_multicast(const Pointer& to, const CUtensorMap& map, SharedBarrier& landed,
                                  uint16_t ranks, int x, int y,
                                  Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, ranks, at, 2);
}
template <class Pointer>
inline void tensor_load_multicast(const Pointer& to, const CUtensorMap& map, SharedBarrier& landed,
                                  uint16_t ranks, int x, int y, int z,
                                  Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, ranks, at, 3);
}
template <class Pointer>
inline void tensor_load_multicast(const Pointer& to, const CUtensorMap& map, SharedBarrier& landed,
                                  uint16_t ranks, int x, int y, int z, int w,
                                  Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z, w};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, ranks, at, 4);
}
//@ end

//@ primitive tensor_load_multicast_by_policy
// A part of the device's tensor_load_multicast_hinted, which is whole here.
//@ end

//@ primitive tensor_load_multicast_hinted needs SharedBarrier shared_place Line
template <class Pointer>
inline void tensor_load_multicast_hinted(
    const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, uint16_t ranks, uint64_t,
    int x, int y, Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, ranks, at, 2);
}
template <class Pointer>
inline void tensor_load_multicast_hinted(
    const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, uint16_t ranks, uint64_t,
    int x, int y, int z, Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, ranks, at, 3);
}
template <class Pointer>
inline void tensor_load_multicast_hinted(
    const Pointer& to, const CUtensorMap& map, SharedBarrier& landed, uint16_t ranks, uint64_t,
    int x, int y, int z, int w, Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z, w};
  tilec_host::note(line.at);
  tilec_host::bulk_load(shared_place(to, line.at), map.map, &landed, ranks, at, 4);
}
//@ end

//@ primitive tensor_store needs shared_place Line
template <class Pointer>
inline void tensor_store(const CUtensorMap& map, const Pointer& from, int x, int y,
                         Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y};
  tilec_host::note(line.at);
  tilec_host::bulk_store(map.map, shared_place(from, line.at), at, 2);
}
template <class Pointer>
inline void tensor_store(const CUtensorMap& map, const Pointer& from, int x, int y, int z,
                         Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z};
  tilec_host::note(line.at);
  tilec_host::bulk_store(map.map, shared_place(from, line.at), at, 3);
}
template <class Pointer>
inline void tensor_store(const CUtensorMap& map, const Pointer& from, int x, int y, int z, int w,
                         Line line = Line(__builtin_LINE())) {
  const int at[] = {x, y, z, w};
  tilec_host::note(line.at);
  tilec_host::bulk_store(map.map, shared_place(from, line.at), at, 4);
}
//@ end

//@ primitive bulk_commit
inline void bulk_commit(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::bulk_commit();
}
//@ end

//@ primitive bulk_wait_read
template <int kGroups>
inline void bulk_wait_read(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::bulk_wait(kGroups);
}
//@ end

//@ primitive wgmma_fence
inline void wgmma_fence(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::product_fence();
}
//@ end

//@ primitive wgmma_commit
inline void wgmma_commit(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::product_commit();
}
//@ end

//@ primitive wgmma_wait
template <int kGroups>
inline void wgmma_wait(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::product_wait(kGroups);
}
//@ end

//@ primitive combine_exponentials_by_lanes needs SharedPointer shared_place lane_id lane_reduce
//@ needs OpSum exp_fast
template <int kCount, class Sums, class Values, class T>
inline T combine_exponentials_by_lanes(const Sums& sums, const Values& values, T reference,
                                       int line = __builtin_LINE()) {
  tilec_host::note(line);
  const SharedPointer<T> own{shared_place(sums, line)}, from{shared_place(values, line)};
  T total = 0;
  for (int i = lane_id(); i < kCount; i += 32) {
    total += (own + i).get() * exp_fast((from + i).get() - reference);
  }
  return lane_reduce<OpSum<T>, 32>(total, line);
}
//@ end

//@ primitive combine_spreads_by_lanes needs SharedPointer shared_place lane_id lane_reduce OpSum
//@ needs held_by_warp
template <int kCount, int kSteps, int kThreads, int kWidth, class Squares, class Sums>
inline float combine_spreads_by_lanes(const Squares& squares, const Sums& sums, float mean,
                                      int count, int shift, int line = __builtin_LINE()) {
  tilec_host::note(line);
  const SharedPointer<float> own{shared_place(squares, line)}, from{shared_place(sums, line)};
  float total = 0.0f;
  for (int i = lane_id(); i < kCount; i += 32) {
    const int held = held_by_warp<kSteps, kThreads, kWidth>(i, count, shift);
    if (held == 0) continue;
    const float distance = (from + i).get() / static_cast<float>(held) - mean;
    total += (own + i).get() + static_cast<float>(held) * distance * distance;
  }
  return lane_reduce<OpSum<float>, 32>(total, line);
}
//@ end

//@ primitive settle needs Vector
template <int kRows, int kCols, class T, int N>
inline void settle(Vector<T, N> (&)[kRows][kCols]) {}
//@ end
