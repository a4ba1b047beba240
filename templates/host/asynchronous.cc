// Barriers in shared memory, bulk copies of tensors, clusters. Built once.
#include "machine.h"

namespace tilec_host {

namespace {

constexpr int kMostCounted = (1 << 20) - 1;  // arrivals, and bytes announced, of a phase
constexpr uint32_t kMapMagic = 0x70616d74;
constexpr uint64_t kBarrierState = 0xba881e5000000000u;

uint64_t state_of(uint32_t at) { return kBarrierState | at; }

/// The barrier at a place, which this thread knows to be initialised.
PhaseBarrier& barrier_at(Block& owner, uint32_t at) {
  const auto found = owner.phase_barriers.find(at);
  if (found == owner.phase_barriers.end()) {
    fault(kBarrierUse, -1, 0,
          "uses the barrier at byte %u of shared memory before it is initialised", at);
  }
  PhaseBarrier& b = found->second;
  uint64_t state;
  memcpy(&state, owner.shared + at, sizeof(state));
  if (state != state_of(at)) {
    fault(kBarrierUse, -1, 0,
          "uses the barrier at byte %u of shared memory, over which something is written", at);
  }
  const Fiber& author = fiber_at(owner, thread_of(b.init));
  const std::vector<uint32_t>& clocks = clocks_of(*self);
  const bool seen = b.known || epoch_of(b.init) < owner.epoch || author.number == self->number ||
                    clock_of(b.init) <= clocks[author.number];
  if (!seen) {
    fault(kBarrierUse, author.thread, b.init_line,
          "uses the barrier at byte %u of shared memory, and none of all threads is behind its "
          "initialisation",
          at);
  }
  return b;
}

/// Ends the phase if nothing is missing.
void end_phase(Block& owner, PhaseBarrier& b) {
  if (b.missing || b.bytes) return;
  b.now.resize(std::max<size_t>(b.now.size(), b.agent + 1));
  b.now[b.agent] = static_cast<uint32_t>(b.phase + 1);
  b.ended = b.now;
  for (const int number : b.waiting) {
    Fiber& other = fiber_at(owner, number);
    if (other.wanted < b.phase) {
      fault(kBarrierUse, other.thread, other.line,
            "ends a second phase of the barrier at byte %u of shared memory before thread %d has "
            "seen "
            "the end of the first one",
            b.at, other.thread);
    }
    other.state = kReady;
  }
  ++b.phase;
  b.missing = b.arrivals;
  machine.progress = true;
}

void count_bytes(PhaseBarrier& b, int64_t bytes) {
  b.bytes += bytes;
  if (b.bytes > kMostCounted || b.bytes < -kMostCounted) {
    fault(kTransactions, -1, 0,
          "counts %lld bytes at the barrier at byte %u of shared memory, and a phase "
          "has at most %d",
          static_cast<long long>(b.bytes), b.at, kMostCounted);
  }
}

/// Where byte `o` of the CTA's memory lies under a swizzle: chunks of a row by the row's number.
uint32_t swizzled(uint32_t o, int span) { return span ? o ^ ((o >> 7 & (span / 16 - 1)) << 4) : o; }

/// f32 to tf32: the nearest with 10 bits of mantissa, ties to even; NaN and infinities stay.
void round_to_tf32(std::vector<unsigned char>& row) {
  for (size_t i = 0; i < row.size(); i += 4) {
    uint32_t bits;
    memcpy(&bits, row.data() + i, 4);
    if ((bits & 0x7f800000u) != 0x7f800000u) bits = (bits + 0xfffu + (bits >> 13 & 1)) & ~0x1fffu;
    memcpy(row.data() + i, &bits, 4);
  }
}

/// The oldest load of a barrier arrives.
void land(Block& owner, PhaseBarrier& b) {
  const BulkLoad load = b.loads.front();
  b.loads.pop_front();
  const Box& box = *load.box;
  if (!load.sent.empty()) memcpy(owner.shared + load.at, load.sent.data(), load.sent.size());
  std::vector<unsigned char> row(box.row_bytes);
  uint32_t at = load.at;
  for (const BoxRow& source : box.rows) {
    memset(row.data(), 0, row.size());
    if (source.bytes) {
      memcpy(row.data() + source.skipped, reinterpret_cast<const void*>(source.place),
             source.bytes);
    }
    if (box.rounds) round_to_tf32(row);
    for (int i = 0; i < box.row_bytes; i += kChunkBytes) {
      memcpy(owner.shared + swizzled(at + i, box.swizzle), row.data() + i, kChunkBytes);
    }
    at += box.row_bytes;
  }
  const uint64_t stamp = stamp_by(owner, b.agent, static_cast<uint32_t>(b.phase + 1), false);
  for (uint32_t i = load.at; i < load.at + box.bytes; ++i) {
    owner.shadow[i].pending = 0;
    owner.shadow[i].write = stamp;
  }
  owner.pending -= box.bytes;
  count_bytes(b, -box.bytes);
  end_phase(owner, b);
}

void store(BulkStore& s, const Block& block) {
  if (s.done) return;
  s.done = true;
  const Box& box = *s.box;
  uint32_t at = s.at;
  for (const BoxRow& row : box.rows) {
    for (int i = row.skipped; i < row.skipped + row.bytes;) {
      const int count = std::min(kChunkBytes - i % kChunkBytes, row.skipped + row.bytes - i);
      memcpy(reinterpret_cast<void*>(row.place + (i - row.skipped)),
             block.shared + swizzled(at + i, box.swizzle), count);
      i += count;
    }
    at += box.row_bytes;
  }
}

uint32_t place_of_barrier(const void* barrier) {
  const uintptr_t p = reinterpret_cast<uintptr_t>(barrier);
  if (p % 8 != 0) misaligned(p, 8, "shared");
  const int64_t at = static_cast<const unsigned char*>(barrier) - self->cta->shared;
  if (at < 0 || at + 8 > self->cta->shared_bytes) {
    fault(kSharedBounds, -1, 0, "has a barrier outside of shared memory");
  }
  return static_cast<uint32_t>(at);
}

void arrive(const void* barrier, int rank, int64_t bytes) {
  drift_engines();
  const uint32_t at = place_of_barrier(barrier);
  Block& owner = peer_of(rank);
  PhaseBarrier& b = barrier_at(owner, at);
  Fiber& fiber = me();
  const bool remote = &owner != fiber.cta;
  if (remote && !b.fenced) {
    fault(kBarrierUse, -1, b.init_line,
          "arrives at a barrier of another CTA, and no `barrier_init_fence` "
          "is behind its initialisation");
  }
  if (b.missing == 0) {
    fault(kBarrierUse, -1, 0,
          "arrives at the barrier at byte %u of shared memory, at which all %d of the "
          "phase have arrived",
          at, b.arrivals);
  }
  if (bytes) {
    b.expect_line = fiber.line;
    count_bytes(b, bytes);
  }
  release(fiber, b.now);
  if (remote) {
    b.remote_phase = b.phase;
    b.remote_meeting = cluster_of(owner).meetings;
  }
  --b.missing;
  end_phase(owner, b);
}

}  // namespace

void phase_init(const void* barrier, int arrivals) {
  Block& block = block_of(self);
  Fiber& fiber = me();
  const uint32_t at = place_of_barrier(barrier);
  if (arrivals < 1 || arrivals > kMostCounted) {
    fault(kBarrierUse, -1, 0, "initialises a barrier for %d arrivals", arrivals);
  }
  if (block.phase_barriers.count(at)) {
    fault(kBarrierUse, -1, block.phase_barriers[at].init_line,
          "initialises the barrier at byte %u of shared memory again", at);
  }
  block.plain = false;
  check_shared(at, 8, kWrite);
  const uint64_t state = state_of(at);
  memcpy(block.shared + at, &state, sizeof(state));
  PhaseBarrier b = {};
  b.at = at;
  b.arrivals = b.missing = arrivals;
  b.agent = cluster_threads() + cluster_of(block).agents++;
  if (b.agent >= 1 << kThreadBits) fault(kBarrierUse, -1, 0, "initialises too many barriers");
  b.init = stamp_of(fiber, false);
  b.init_line = fiber.line;
  b.remote_phase = -1;
  block.phase_barriers[at] = std::move(b);
}

namespace {

void fence_barriers(bool cluster) {
  for (auto& [at, b] : block_of(self).phase_barriers) {
    if (thread_of(b.init) != self->number) continue;
    b.proxied = true;
    b.fenced = b.fenced || cluster;
  }
}

}  // namespace

void phase_init_fence() { fence_barriers(true); }

void async_fence() {
  Fiber& fiber = me();
  block_of(self).plain = false;
  fiber.fences.push_back(++fiber.clock);
  fence_barriers(false);
}

void phase_arrive(const void* barrier, int rank) { arrive(barrier, rank, 0); }

void phase_arrive_expect(const void* barrier, int bytes) {
  if (bytes < 0) fault(kTransactions, -1, 0, "announces %d bytes", bytes);
  arrive(barrier, -1, bytes);
}

void phase_wait(const void* barrier, int parity) {
  drift_engines();
  Fiber& fiber = me();
  Block& block = block_of(self);
  PhaseBarrier& b = barrier_at(block, place_of_barrier(barrier));
  if (parity != 0 && parity != 1)
    fault(kBarrierUse, -1, 0, "waits for a phase of parity %d", parity);
  if ((b.phase & 1) == parity) {
    fiber.phase_barrier = &b;
    fiber.wanted = b.phase;
    fiber.state = kPhase;
    b.waiting.push_back(fiber.number);
    leave();
    // Resumed before the end: nobody else could go on.
    while (b.phase == fiber.wanted) {
      if (b.loads.empty()) {
        fault(kTransactions, -1, 0,
              "waits at the barrier at byte %u of shared memory, where %lld bytes more have come "
              "than were announced",
              b.at, static_cast<long long>(-b.bytes));
      }
      land(block, b);
    }
    fiber.state = kReady;
    b.waiting.erase(std::find(b.waiting.begin(), b.waiting.end(), fiber.number));
  }
  acquire(fiber, b.ended);
  b.seen[fiber.number] = b.phase;
}

Fiber* waits_for_bytes() {
  for (auto& owned : machine.blocks) {
    if (!owned->active) continue;
    for (Fiber& fiber : owned->fibers) {
      if (fiber.state != kPhase) continue;
      const PhaseBarrier& b = *fiber.phase_barrier;
      int64_t bytes = 0;
      for (const BulkLoad& load : b.loads) bytes += load.box->bytes;
      if (b.missing == 0 && b.bytes > 0 && b.bytes <= bytes) return &fiber;
    }
  }
  return nullptr;
}

void describe_wait(const Fiber& fiber, char* text, size_t size) {
  PhaseBarrier& b = *fiber.phase_barrier;
  char lag[80] = "";
  const int64_t behind = b.phase - b.seen[fiber.number];
  if (behind >= 2) {
    snprintf(lag, sizeof(lag), " (%lld phases have ended since it last waited)",
             static_cast<long long>(behind));
  }
  snprintf(text, size,
           "waits for phase %lld of the barrier at byte %u of shared memory, at which %d of %d "
           "have arrived "
           "and %lld bytes are missing%s",
           static_cast<long long>(b.phase), b.at, b.arrivals - b.missing, b.arrivals,
           static_cast<long long>(b.bytes), lag);
}

// ---- bulk copies

void check_map(const TensorMap& map) {
  if (map.magic != kMapMagic) fault(kDescriptor, -1, 0, "is given something that is no tensor map");
}

namespace {

/// The box at these coordinates. Every byte that is inside of the tensor is checked.
std::shared_ptr<Box> box_of(const TensorMap& map, const int* at, int axes, bool store) {
  check_map(map);
  if (map.rank != axes) {
    fault(kDescriptor, -1, 0, "has %d coordinates for a tensor map of %d axes", axes, map.rank);
  }
  auto box = std::make_shared<Box>();
  int rows = 1;
  for (int axis = 1; axis < axes; ++axis) rows *= map.box[axis];
  box->row_bytes = map.box[0] * map.element;
  box->bytes = rows * box->row_bytes;
  box->swizzle = map.swizzle;
  box->rounds = map.rounds != 0;
  if (map.swizzle && box->row_bytes != map.swizzle && rows > 1) {
    fault(kDescriptor, -1, 0, "copies rows of %d bytes, which do not fill the swizzle's %d",
          box->row_bytes, map.swizzle);
  }
  // seen on an H200: a box that begins elsewhere is an illegal instruction
  const int64_t begin = int64_t(at[0]) * map.element;
  if (begin % 16 != 0) misaligned(static_cast<uintptr_t>(begin), 16, "a row of");
  const int64_t first = std::max<int64_t>(0, -int64_t(at[0]));
  const int64_t last = std::min<int64_t>(map.box[0], static_cast<int64_t>(map.dims[0]) - at[0]);
  for (int r = 0; r < rows; ++r) {
    uintptr_t place = map.base;
    bool inside = first < last;
    for (int axis = 1, rest = r; axis < axes; rest /= map.box[axis++]) {
      const int64_t n = int64_t(at[axis]) + rest % map.box[axis];
      inside = inside && n >= 0 && n < static_cast<int64_t>(map.dims[axis]);
      place += n * map.strides[axis - 1];
    }
    if (!inside) {
      box->rows.push_back({0, 0, 0});
      continue;
    }
    place += (at[0] + first) * map.element;
    const int bytes = static_cast<int>(last - first) * map.element;
    box->rows.push_back({place, static_cast<int>(first) * map.element, bytes});
    const Allocation* a = allocation_of(place, bytes, store);
    if (a->written && store) memset(a->written + (place - a->begin), 1, bytes);
    if (a->written && !store) check_written(a, place, bytes);
    if (counting) count_access(place, bytes, r, store ? 1 : 0);
  }
  return box;
}

void check_place(const SharedAddress& where, const Box& box, bool store) {
  note(where.line);
  if (where.at < where.begin || where.at + box.bytes > where.end ||
      where.end > self->cta->shared_bytes) {
    shared_bounds(where, box.bytes, store);
  }
  if (where.at % 128 != 0) misaligned(where.at, 128, "shared");
}

}  // namespace

void bulk_load(const SharedAddress& to, const TensorMap& map, const void* barrier, unsigned ranks,
               const int* at, int axes) {
  drift_engines();
  Fiber& fiber = me();
  const auto box = box_of(map, at, axes, false);
  check_place(to, *box, true);
  const uint32_t place = place_of_barrier(barrier), begin = static_cast<uint32_t>(to.at);
  const unsigned own = 1u << cluster_rank();
  if (ranks == 0) ranks = own;
  for (int rank = 0; ranks >> rank; ++rank) {
    if (!(ranks >> rank & 1)) continue;
    Block& owner = peer_of(rank);
    PhaseBarrier& b = barrier_at(owner, place);
    const bool own_cta = &owner == fiber.cta;
    if (own_cta ? !b.proxied && !b.fenced : !b.fenced) {
      fault(kBarrierUse, -1, b.init_line,
            "has a copy counted by a barrier, and no `barrier_init_fence` is "
            "behind its initialisation");
    }
    check_async_write(owner, begin, box->bytes);
    for (uint32_t i = begin; i < begin + box->bytes; ++i) {
      owner.shadow[i].pending = static_cast<uint16_t>(fiber.number + 1);
    }
    owner.pending += box->bytes;
    if (!own_cta) {
      b.remote_phase = b.phase;
      b.remote_meeting = cluster_of(owner).meetings;
    }
    b.loads.push_back({box, begin, fiber.number, fiber.line, {}});
    if (machine.launch->mode == kEarly) land(owner, b);
  }
}

void send_peer(const SharedAddress& where, int rank, const void* from, int bytes,
               const void* barrier) {
  drift_engines();
  Fiber& fiber = me();
  Block& owner = peer_of(rank);
  check_peer_write(owner, where, rank, bytes, bytes);
  PhaseBarrier& b = barrier_at(owner, place_of_barrier(barrier));
  if (&owner != fiber.cta && !b.fenced) {
    fault(kBarrierUse, -1, b.init_line,
          "sends what a barrier of another CTA counts, and no `barrier_init_fence` is behind its "
          "initialisation");
  }
  const uint32_t begin = static_cast<uint32_t>(where.at);
  for (uint32_t i = begin; i < begin + bytes; ++i) {
    owner.shadow[i].pending = static_cast<uint16_t>(fiber.number + 1);
  }
  owner.pending += bytes;
  // what this thread did before is known behind the phase, which does not end before the bytes land
  release(fiber, b.now);
  if (&owner != fiber.cta) {
    b.remote_phase = b.phase;
    b.remote_meeting = cluster_of(owner).meetings;
  }
  auto box = std::make_shared<Box>();
  box->bytes = bytes;
  const unsigned char* value = static_cast<const unsigned char*>(from);
  b.loads.push_back({box, begin, fiber.number, fiber.line, {value, value + bytes}});
  if (machine.launch->mode == kEarly) land(owner, b);
}

void bulk_store(const TensorMap& map, const SharedAddress& from, const int* at, int axes) {
  drift_engines();
  Fiber& fiber = me();
  Block& block = block_of(self);
  const auto box = box_of(map, at, axes, true);
  if (box->rounds) fault(kDescriptor, -1, 0, "stores through a map that rounds");
  check_place(from, *box, false);
  const uint32_t begin = static_cast<uint32_t>(from.at);
  check_async_read(block, clocks_of(fiber), begin, box->bytes, "stores");
  auto reading = std::make_shared<Reading>();
  reading->first = begin / kChunkBytes;
  reading->last = (begin + box->bytes - 1) / kChunkBytes;
  for (uint32_t c = reading->first; c <= reading->last; ++c) reading->chunks[c] = true;
  reading->left = static_cast<int>(reading->last - reading->first) + 1;
  reading->number = fiber.number;
  reading->threads = reading->unfinished = 1;
  reading->line = fiber.line;
  reading->done.resize(1);
  begin_reading(block, reading);
  fiber.stores.push_back({box, begin, reading, false});
  if (machine.launch->mode == kEarly) store(fiber.stores.back(), block);
}

void bulk_commit() {
  drift_engines();
  Fiber& fiber = me();
  fiber.store_groups.push_back(std::move(fiber.stores));
  fiber.stores.clear();
}

void bulk_wait(int groups) {
  drift_engines();
  Fiber& fiber = me();
  if (!fiber.stores.empty()) {
    fault(kUncommitted, -1, 0, "waits for bulk stores while %d are not committed",
          static_cast<int>(fiber.stores.size()));
  }
  while (static_cast<int>(fiber.store_groups.size()) > groups) {
    for (BulkStore& s : fiber.store_groups.front()) {
      store(s, block_of(self));
      s.reading->done[0] = fiber.clock;
      s.reading->unfinished = 0;
    }
    fiber.store_groups.pop_front();
  }
}

void drift_engines() {
  if (machine.launch->mode != kChaos) return;
  Fiber& fiber = me();
  Block& block = block_of(self);
  for (auto& [at, b] : block.phase_barriers) {
    if (!b.loads.empty() && random_below(4) == 0) land(block, b);
  }
  for (auto& group : fiber.store_groups) {
    for (BulkStore& s : group) {
      if (random_below(4) == 0) store(s, block);
    }
  }
  for (BulkStore& s : fiber.stores) {
    if (random_below(4) == 0) store(s, block);
  }
  drift_products();
}

// ---- clusters

Block& peer_of(int rank) {
  Block& block = block_of(self);
  if (rank < 0) return block;
  if (rank >= machine.launch->cluster) {
    fault(kCluster, -1, 0, "addresses CTA %d of a cluster of %d", rank, machine.launch->cluster);
  }
  Block& peer = block_at(block, rank);
  if (peer.live == 0) fault(kCluster, -1, 0, "addresses CTA %d of its cluster, which has ended", rank);
  return peer;
}

int cluster_rank() { return block_of(self).slot % machine.launch->cluster; }

void cluster_tell() {
  Fiber& fiber = me();
  release(fiber, cluster_of(block_of(self)).clocks);
}

void cluster_arrive() {
  Fiber& fiber = me();
  if (fiber.arrival >= 0) fault(kCluster, -1, 0, "arrives twice at the barrier of its cluster");
  Cluster& cluster = cluster_of(block_of(self));
  fiber.arrival = cluster.meetings;
  ++cluster.arrived;
  meet_cluster(cluster);
}

void cluster_await(bool learn) {
  drift_engines();
  Fiber& fiber = me();
  Cluster& cluster = cluster_of(block_of(self));
  if (fiber.arrival < 0) fault(kCluster, -1, 0, "waits for its cluster and has not arrived");
  if (fiber.arrival == cluster.meetings) {
    fiber.state = kWhole;
    leave();
  }
  fiber.arrival = -1;
  if (learn) acquire(fiber, cluster.clocks);
}

void cluster_meet(bool learn) {
  cluster_arrive();
  cluster_await(learn);
}

void meet_cluster(Cluster& cluster) {
  if (cluster.arrived == 0 || cluster.arrived < cluster.live) return;
  cluster.arrived = 0;
  ++cluster.meetings;
  machine.progress = true;
  for (auto& owned : machine.blocks) {
    if (&cluster_of(*owned) != &cluster || !owned->active) continue;
    for (auto& [at, b] : owned->phase_barriers) b.known = b.known || b.fenced;
    for (Fiber& fiber : owned->fibers) {
      if (fiber.state == kWhole) fiber.state = kReady;
    }
  }
}

// ---- ends

void check_thread_end() {
  const Fiber& fiber = me();
  if (!fiber.stores.empty())
    fault(kUnwaited, -1, 0, "ends with bulk stores that are not committed");
  if (!fiber.store_groups.empty()) {
    fault(kUnwaited, -1, 0, "ends with bulk stores that may still read shared memory");
  }
  if (fiber.products) fault(kUnwaited, -1, 0, "ends with products that are not committed");
  if (!fiber.product_groups.empty()) {
    fault(kUnwaited, -1, 0, "ends with products that it has not waited for");
  }
}

bool check_cta_end(Block& block) {
  for (auto& [at, b] : block.phase_barriers) {
    Fiber& fiber = block.fibers[0];
    fiber.line = b.expect_line ? b.expect_line : b.init_line;
    if (!b.loads.empty()) {
      Fiber& issuer = fiber_at(block, b.loads.front().issuer);
      const int line = issuer.line;
      issuer.line = b.loads.front().line;
      record_for(issuer, kTransactions, -1, 0,
                 "starts a copy whose bytes, counted at the barrier at byte %u of shared memory, "
                 "nobody has "
                 "waited for when the CTA ends",
                 at);
      issuer.line = line;
      return false;
    }
    if (b.bytes) {
      const bool more = b.bytes > 0;
      record_for(
          fiber, kTransactions, -1, 0,
          "ends with %lld bytes at the barrier at byte %u of shared memory that %s",
          static_cast<long long>(more ? b.bytes : -b.bytes), at,
          more ? "were announced and have not landed" : "have landed and were not announced");
      return false;
    }
    if (b.remote_phase < 0 || cluster_of(block).meetings > b.remote_meeting) continue;
    bool seen = false;
    for (const auto& [thread, phases] : b.seen) seen = seen || phases > b.remote_phase;
    if (!seen) {
      record_for(fiber, kCluster, -1, 0,
                 "ends its CTA, and nobody in it has waited for what another one did at the "
                 "barrier at byte "
                 "%u of shared memory",
                 at);
      return false;
    }
  }
  return true;
}

}  // namespace tilec_host
