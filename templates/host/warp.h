//! The host's form of warp.cuh: lanes meet, and the last one to arrive moves what all of them
//! brought.
//@ primitive exchange
/// What a lane brings to a shuffle, where it takes from, and what it gets.
template <class T>
struct Exchange {
  T brought;
  int source;
  T got;
};

/// x of lane `source`, for the lanes of `mask`.
template <class T>
inline T exchange(uint32_t mask, T x, int source, const char* name) {
  Exchange<T> mine{x, source, x};
  tilec_host::collective(
      mask,
      [](void* const* lanes, uint32_t present) {
        for (int lane = 0; lane < 32; ++lane) {
          if (!(present >> lane & 1u)) continue;
          auto* taker = static_cast<Exchange<T>*>(lanes[lane]);
          if (!(present >> taker->source & 1u)) {
            tilec_host::fault(tilec_host::kDivergence, -1, 0,
                              "takes part in a shuffle in which lane %d reads lane %d, which is not "
                              "in it", lane, taker->source);
          }
          taker->got = static_cast<Exchange<T>*>(lanes[taker->source])->brought;
        }
      },
      &mine, name);
  return mine.got;
}
//@ end

//@ primitive lane_id
inline int lane_id() { return tilec_host::self->thread % 32; }
//@ end

//@ primitive shuffle_xor needs exchange lane_id
template <class T>
inline T shuffle_xor(T x, int lane_mask, int line = __builtin_LINE()) {
  tilec_host::note(line);
  return exchange(~0u, x, (lane_id() ^ lane_mask) & 31, "`shuffle_xor`");
}
//@ end

//@ primitive shuffle_up needs exchange lane_id
template <class T>
inline T shuffle_up(T x, int distance, int line = __builtin_LINE()) {
  tilec_host::note(line);
  const int source = lane_id() - distance;
  return exchange(~0u, x, source < 0 ? lane_id() : source, "`shuffle_up`");
}
//@ end

//@ primitive shuffle_from needs exchange
template <class T>
inline T shuffle_from(T x, int source, int line = __builtin_LINE()) {
  tilec_host::note(line);
  return exchange(~0u, x, source & 31, "`shuffle_from`");
}
//@ end

//@ primitive uniform_int needs shuffle_from
template <class T>
inline T uniform_int(T x, int line = __builtin_LINE()) {
  return shuffle_from(x, 0, line);
}
//@ end

//@ primitive warp_builtins needs exchange lane_id
template <class T>
inline T __shfl_sync(uint32_t mask, T x, int source, int width = 32, int line = __builtin_LINE()) {
  tilec_host::note(line);
  const int first = lane_id() / width * width;
  return exchange(mask, x, first + (source & (width - 1)), "`__shfl_sync`");
}
template <class T>
inline T __shfl_xor_sync(uint32_t mask, T x, int lane_mask, int width = 32,
                         int line = __builtin_LINE()) {
  tilec_host::note(line);
  const int source = lane_id() ^ lane_mask;
  // A lane of a later segment is out of reach; one of an earlier segment can be read (PTX ISA,
  // shfl).
  return exchange(mask, x, source / width > lane_id() / width ? lane_id() : source, "`__shfl_xor_sync`");
}
template <class T>
inline T __shfl_up_sync(uint32_t mask, T x, unsigned distance, int width = 32,
                        int line = __builtin_LINE()) {
  tilec_host::note(line);
  const int source = lane_id() - static_cast<int>(distance);
  return exchange(mask, x, source < lane_id() / width * width ? lane_id() : source, "`__shfl_up_sync`");
}
template <class T>
inline T __shfl_down_sync(uint32_t mask, T x, unsigned distance, int width = 32,
                          int line = __builtin_LINE()) {
  tilec_host::note(line);
  const int source = lane_id() + static_cast<int>(distance);
  const int end = (lane_id() / width + 1) * width;
  return exchange(mask, x, source >= end ? lane_id() : source, "`__shfl_down_sync`");
}

/// A vote: every lane gets the bits of those that brought true.
struct Vote {
  bool brought;
  uint32_t got;
};
inline uint32_t vote(uint32_t mask, bool x, const char* name) {
  Vote mine{x, 0};
  tilec_host::collective(
      mask,
      [](void* const* lanes, uint32_t present) {
        uint32_t bits = 0;
        for (int lane = 0; lane < 32; ++lane) {
          if ((present >> lane & 1u) && static_cast<Vote*>(lanes[lane])->brought) bits |= 1u << lane;
        }
        for (int lane = 0; lane < 32; ++lane) {
          if (present >> lane & 1u) static_cast<Vote*>(lanes[lane])->got = bits;
        }
      },
      &mine, name);
  return mine.got;
}
inline uint32_t __ballot_sync(uint32_t mask, bool x, int line = __builtin_LINE()) {
  tilec_host::note(line);
  return vote(mask, x, "`__ballot_sync`");
}
inline int __any_sync(uint32_t mask, bool x, int line = __builtin_LINE()) {
  return __ballot_sync(mask, x, line) != 0;
}
inline int __all_sync(uint32_t mask, bool x, int line = __builtin_LINE()) {
  return __ballot_sync(mask, !x, line) == 0;
}
inline void __syncwarp(uint32_t mask = ~0u, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::sync_warp(mask);
}
//@ end

//@ primitive any_lane needs warp_builtins
inline bool any_lane(bool x, int line = __builtin_LINE()) { return __any_sync(~0u, x, line) != 0; }
//@ end

//@ primitive lanes_where needs warp_builtins
inline uint32_t lanes_where(bool x, int line = __builtin_LINE()) {
  return __ballot_sync(~0u, x, line);
}
//@ end

//@ primitive count_bits
inline int count_bits(uint32_t x) { return __builtin_popcount(x); }
//@ end

//@ primitive highest_bit
inline int highest_bit(uint32_t x) { return 31 - __builtin_clz(x); }
//@ end

//@ primitive lowest_bit
inline int lowest_bit(uint32_t x) { return __builtin_ctz(x); }
//@ end

//@ primitive seldom
inline void seldom() {}
//@ end

//@ primitive sync_warp
inline void sync_warp(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::sync_warp(~0u);
}
//@ end

//@ primitive gather_quad needs Vector shuffle_xor
/// Lane q of four gets all eight elements of block q: word by word from the lane that holds it.
template <class T>
inline Vector<T, 8> gather_quad(const Vector<T, 2>& a, const Vector<T, 2>& b, const Vector<T, 2>& c, const Vector<T, 2>& d,
                                int line = __builtin_LINE()) {
  const Vector<T, 2> mine[4] = {a, b, c, d};
  const int q = lane_id() % 4;
  Vector<T, 8> line_of_mine;
  for (int distance = 0; distance < 4; ++distance) {
    // every lane sends to the lane `distance` away what that one collects: its block's pair
    const Vector<T, 2> pair = shuffle_xor(mine[q ^ distance], distance, line);
    line_of_mine.set(2 * (q ^ distance), pair.get(0));
    line_of_mine.set(2 * (q ^ distance) + 1, pair.get(1));
  }
  return line_of_mine;
}
//@ end

//@ primitive spread_quad needs Vector shuffle_xor
/// Lane q of four gets the pair q of each block: pair by pair from the lane that holds the block.
template <class T>
inline void spread_quad(Vector<T, 2>& a, Vector<T, 2>& b, Vector<T, 2>& c, Vector<T, 2>& d, const Vector<T, 8>& row,
                        int line = __builtin_LINE()) {
  Vector<T, 2>* const blocks[4] = {&a, &b, &c, &d};
  const int q = lane_id() % 4;
  for (int distance = 0; distance < 4; ++distance) {
    const int other = q ^ distance;
    Vector<T, 2> pair;
    pair.set(0, row.get(2 * other));
    pair.set(1, row.get(2 * other + 1));
    *blocks[other] = shuffle_xor(pair, distance, line);
  }
}
//@ end

//@ primitive spread_quad_bytes needs Vector shuffle_xor
/// The same, two blocks a lane.
template <class T>
inline void spread_quad_bytes(Vector<T, 2> (&blocks)[8], const Vector<T, 16>& row, int line = __builtin_LINE()) {
  const int q = lane_id() % 4;
  for (int distance = 0; distance < 4; ++distance) {
    const int other = q ^ distance;
    for (int block = 0; block < 2; ++block) {
      Vector<T, 2> pair;
      pair.set(0, row.get(8 * block + 2 * other));
      pair.set(1, row.get(8 * block + 2 * other + 1));
      blocks[2 * other + block] = shuffle_xor(pair, distance, line);
    }
  }
}
//@ end

//@ primitive lane_reduce needs shuffle_xor
template <class Op, int kLanes, int kStride = 1, class T>
inline T lane_reduce(T x, int line = __builtin_LINE()) {
  for (int offset = kStride; offset < kLanes * kStride; offset *= 2) {
    x = Op::combine(x, shuffle_xor(x, offset, line));
  }
  return x;
}
//@ end

//@ primitive lane_reduce_with needs exchange lane_id
template <int kLanes, int kStride = 1, class T, class Combine>
inline T lane_reduce_with(T x, Combine combine, int line = __builtin_LINE()) {
  tilec_host::note(line);
  // The same tree as on the device: pairs, pairs of pairs, always in the order of lanes.
  for (int offset = kStride; offset < kLanes * kStride; offset *= 2) {
    const T other = exchange(~0u, x, lane_id() ^ offset, "`lane_reduce_with`");
    x = lane_id() & offset ? combine(other, x) : combine(x, other);
  }
  return x;
}
//@ end

//@ primitive lane_scan needs shuffle_up lane_id
template <class Op, int kLanes, int kStride = 1, class T>
inline T lane_scan(T x, int line = __builtin_LINE()) {
  const int place = lane_id() / kStride % kLanes;
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const T below = shuffle_up(x, distance * kStride, line);
    if (place >= distance) x = Op::combine(below, x);
  }
  return x;
}
//@ end

//@ primitive lane_scan_before needs exchange lane_id
template <class Op, int kLanes, int kStride = 1, class T>
inline T lane_scan_before(T x, int line = __builtin_LINE()) {
  tilec_host::note(line);
  // One lane after the other, in the tree's order of the device: pairs, pairs of pairs.
  const int place = lane_id() / kStride % kLanes;
  T through = x;
  for (int distance = 1; distance < kLanes; distance *= 2) {
    const int from = place >= distance ? lane_id() - distance * kStride : lane_id();
    const T other = exchange(~0u, through, from, "`lane_scan_before`");
    if (place >= distance) through = Op::combine(other, through);
  }
  const int from = place > 0 ? lane_id() - kStride : lane_id();
  const T before = exchange(~0u, through, from, "`lane_scan_before`");
  return place > 0 ? before : Op::identity();
}
//@ end

//@ primitive group_reduce_with needs SharedPointer shared_place
template <int kWarps, class T, class Scratch, class Combine>
inline T group_reduce_with(T x, const Scratch& scratch, int warp, int lane, Combine combine,
                           int line = __builtin_LINE()) {
  tilec_host::note(line);
  if (kWarps == 1) return x;
  const SharedPointer<T> place{shared_place(scratch, line)};
  if (lane == 0) (place + warp).set(x);
  tilec_host::barrier(0, 0, true);
  T total = place.get();
  for (int w = 1; w < kWarps; ++w) total = combine(total, (place + w).get());
  return total;
}
//@ end

//@ primitive group_reduce needs group_reduce_with
template <class Op, int kWarps, class T, class Scratch>
inline T group_reduce(T x, const Scratch& scratch, int warp, int lane, int line = __builtin_LINE()) {
  return group_reduce_with<kWarps>(
      x, scratch, warp, lane, [](T a, T b) { return Op::combine(a, b); }, line);
}
//@ end

//@ primitive group_reduce_slots needs SharedPointer shared_place
template <class Op, int kWarps, int kSlots, class T, class Scratch>
inline T group_reduce_slots(T x, const Scratch& scratch, int warp, int slot, bool writes,
                            int line = __builtin_LINE()) {
  tilec_host::note(line);
  if (kWarps == 1) return x;
  const SharedPointer<T> place{shared_place(scratch, line)};
  if (writes) (place + (warp * kSlots + slot)).set(x);
  tilec_host::barrier(0, 0, true);
  T total = (place + slot).get();
  for (int w = 1; w < kWarps; ++w) total = Op::combine(total, (place + (w * kSlots + slot)).get());
  return total;
}
//@ end

//@ primitive group_scan_offset needs SharedPointer shared_place
template <class Op, int kWarps, class T, class Scratch>
inline T group_scan_offset(T total, const Scratch& scratch, int warp, int lane,
                           int line = __builtin_LINE()) {
  tilec_host::note(line);
  const SharedPointer<T> place{shared_place(scratch, line)};
  if (lane == 0) (place + warp).set(total);
  tilec_host::barrier(0, 0, true);
  T before = Op::identity();
  for (int w = 0; w < kWarps - 1 && w < warp; ++w) before = Op::combine(before, (place + w).get());
  return before;
}
//@ end
