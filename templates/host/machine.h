// What the parts of the emulator share: threads, warps and CTAs as they run, and the order of their
// accesses.
#ifndef TILEC_HOST_MACHINE_H
#define TILEC_HOST_MACHINE_H

#include <stdlib.h>

#include <algorithm>
#include <deque>
#include <list>
#include <map>
#include <memory>
#include <unordered_map>
#include <vector>

#include "context.h"
#include "flight.h"
#include "runtime.h"

namespace tilec_host {

constexpr size_t kStackBytes = 96 << 10;
constexpr int kBarriers = 16;

/// kPhase: waits for the phase of a barrier in shared memory. kWarpgroup, kWhole: for its
/// warpgroup, for its cluster.
enum State { kReady, kCollective, kBarrier, kPolling, kPhase, kWarpgroup, kWhole, kDone };

/// One asynchronous copy that has been issued and not been waited for.
struct Copy {
  uint32_t at;
  int bytes, read;  // read: those that come from global memory, the others become zero
  const void* from;
  bool landed;
};

struct Fiber : Thread {
  std::vector<uint32_t> clocks;  // by number: what it knows of others, in epoch `seen_epoch`
  Context context;
  State state;
  uint32_t mask;      // of the collective that it waits in
  int barrier;        // that it waits at
  std::vector<Copy> open;               // issued, not committed
  std::deque<std::vector<Copy>> groups; // committed, oldest first
  std::vector<uint32_t> fences;         // the clocks that its proxy fences began
  uint32_t taken_by_product;            // the clock of its last product of registers
  PhaseBarrier* phase_barrier;          // that it waits at, for the end of phase `wanted`
  int64_t wanted;
  int64_t arrival;  // meetings of its cluster when it arrived for the next, -1: it has not
  std::vector<BulkStore> stores;  // as open and groups
  std::deque<std::vector<BulkStore>> store_groups;
  int64_t products, products_waited;   // that it started since it last committed; that are done
  std::deque<int64_t> product_groups;  // the last product of each
  bool registers_fenced;               // since it last got accumulators back
};

/// Lanes that wait for each other. Masks that are in use at once share no lane: the lowest one
/// finds the group.
struct Group {
  uint32_t mask, arrived;
  Finish finish;
  int line;
  void* mine[32];
};

/// A barrier: how many it waits for, who has come, and what they know of each other's clocks.
struct Barrier {
  int expected, arrived, line;
  int first;
  std::vector<uint32_t> clocks;
  std::vector<int> waiting;
};

struct Warp {
  uint32_t lanes, done;
  Group groups[32];
};

/// A read of a byte of shared memory that nothing had written; no line: none.
struct Unwritten {
  int line, thread;
  uint32_t at;
};

/// Memory that is zero and takes no room before it is touched.
template <class T>
struct Zeroed {
  explicit Zeroed(size_t count) : data(static_cast<T*>(calloc(count, sizeof(T)))) {}
  ~Zeroed() { free(data); }
  Zeroed(const Zeroed&) = delete;
  Zeroed& operator=(const Zeroed&) = delete;
  T* data;
};

/// An access of a warp: where each lane of `lanes` has `bytes` bytes.
struct Request {
  int line, kind;
  uint32_t bytes, lanes;
  uintptr_t places[32];
};

/// Accesses of a warp by one part of one line: the numbers of its requests in order, and how many of
/// them each lane has made.
struct Site {
  std::vector<uint32_t> requests;
  uint32_t made[32];
};

struct Block : Cta {
  Block() : Cta{}, memory(kSharedLimit + 1024), shadows(kSharedLimit) {}
  Unwritten unwritten;
  bool active;
  bool plain;  // a barrier of all threads begins an epoch; otherwise it only joins their clocks
  int block, slot, live;
  uint32_t static_bytes;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barriers[kBarriers];
  std::map<uint32_t, PhaseBarrier> phase_barriers;  // by their place
  std::list<std::shared_ptr<Reading>> readings;
  std::vector<uint16_t> chunk_readings;  // how many of them cover a chunk
  std::vector<Warpgroup> warpgroups;
  std::vector<Request> requests;
  std::unordered_map<uint64_t, Site> sites;  // by warp, line, kind and part
  Zeroed<unsigned char> memory;
  Zeroed<Shadow> shadows;
};

/// CTAs that are resident together.
struct Cluster {
  int live, arrived;
  int64_t meetings;
  int agents;  // beside the threads: one for each barrier in shared memory, which counts its phases
  std::vector<uint32_t> clocks;
};

struct Machine {
  Launch* launch;
  Invoke invoke;
  void* kernel;
  Context main;
  std::vector<std::unique_ptr<Block>> blocks;
  std::vector<Cluster> clusters;
  std::unique_ptr<Stacks> stacks;
  bool progress;
  uint64_t random;
};

extern Machine machine;

inline Block& block_of(const Thread* t) { return *static_cast<Block*>(t->cta); }
inline Fiber& me() { return *static_cast<Fiber*>(self); }
inline void leave() { switch_context(me().context, machine.main); }
inline Cluster& cluster_of(const Block& block) {
  return machine.clusters[block.slot / machine.launch->cluster];
}
inline Block& block_at(const Block& peer, int rank) {
  const int cluster = machine.launch->cluster;
  return *machine.blocks[peer.slot / cluster * cluster + rank];
}
inline int cluster_threads() { return machine.launch->cluster * machine.launch->block; }
inline Fiber& fiber_at(const Block& peer, int number) {
  const int threads = machine.launch->block;
  return block_at(peer, number / threads).fibers[number % threads];
}

inline uint64_t random_below(uint64_t bound) {
  uint64_t x = machine.random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  machine.random = x;
  return x % bound;
}

/// Adds the requests of a CTA that has ended to the launch's counters.
void finish_requests(Block& block);

void record_for(const Fiber& fiber, Code code, int other, int other_line, const char* form, ...)
    __attribute__((format(printf, 5, 6)));

/// What a thread, or a CTA, may not leave behind; for a CTA, whether there is none of it.
void check_thread_end();
bool check_cta_end(Block& block);
/// A thread that waits for nothing but copies which may land now.
Fiber* waits_for_bytes();
void describe_wait(const Fiber& fiber, char* text, size_t size);
void meet_cluster(Cluster& cluster);
/// The CTA of this rank, which is still there.
Block& peer_of(int rank);

/// In chaos, bulk copies and products that are under way may happen now.
void drift_engines();
void drift_products();

// ---- clocks: what happened before what

constexpr int kThreadBits = 14, kClockBits = 24;

inline uint64_t stamp_by(const Cta& owner, uint32_t number, uint32_t clock, bool atomic) {
  return static_cast<uint64_t>(owner.epoch) << (kThreadBits + kClockBits + 1) |
         static_cast<uint64_t>(clock & ((1u << kClockBits) - 1)) << (kThreadBits + 1) |
         static_cast<uint64_t>(number) << 1 | (atomic ? 1u : 0u);
}
inline uint64_t stamp_of(const Thread& t, bool atomic) {
  return stamp_by(*t.cta, t.number, t.clock, atomic);
}
inline uint32_t epoch_of(uint64_t s) { return static_cast<uint32_t>(s >> (kThreadBits + kClockBits + 1)); }
inline uint32_t clock_of(uint64_t s) { return s >> (kThreadBits + 1) & ((1u << kClockBits) - 1); }
inline int thread_of(uint64_t s) { return static_cast<int>(s >> 1 & ((1u << kThreadBits) - 1)); }
inline bool by_agent(uint64_t s) { return thread_of(s) >= cluster_threads(); }

/// Whether a stamp in this thread's CTA lies before what it does now.
inline bool before_me(uint64_t s) {
  const Cta& cta = *self->cta;
  const int number = thread_of(s);
  if (epoch_of(s) < cta.epoch || number == self->number) return true;
  const std::vector<uint32_t>& seen = me().clocks;
  return self->seen_epoch == cta.epoch && number < static_cast<int>(seen.size()) &&
         clock_of(s) <= seen[number];
}

/// The clocks that `t` knows, begun anew in each epoch: a barrier that begins one orders
/// everything.
inline std::vector<uint32_t>& clocks_of(Thread& t) {
  const Block& block = block_of(&t);
  std::vector<uint32_t>& clocks = static_cast<Fiber&>(t).clocks;
  if (t.seen_epoch != block.epoch) {
    clocks.clear();
    t.seen_epoch = block.epoch;
  }
  clocks.resize(cluster_threads() + cluster_of(block).agents);
  clocks[t.number] = t.clock;
  return clocks;
}

inline void join(std::vector<uint32_t>& into, const std::vector<uint32_t>& from) {
  if (into.size() < from.size()) into.resize(from.size());
  for (size_t i = 0; i < from.size(); ++i) into[i] = std::max(into[i], from[i]);
}

inline void release(Thread& t, std::vector<uint32_t>& into) {
  join(into, clocks_of(t));
  ++t.clock;
}

inline void acquire(Thread& t, const std::vector<uint32_t>& from) { join(clocks_of(t), from); }

// ---- accesses beside the threads

/// Checks that `clocks` know of everything that was written to bytes which an operation beside the
/// threads is to read, and that it passed a proxy fence.
void check_async_read(const Block& block, const std::vector<uint32_t>& clocks, uint32_t at,
                      int bytes, const char* what);

/// Checks that this thread knows of every access to bytes that such an operation is to write.
void check_async_write(Block& owner, uint32_t at, int bytes);

/// Whether `clocks` know that a reading is over.
bool is_over(const Reading& reading, const std::vector<uint32_t>& clocks);

/// The same for a write by another CTA's thread that is no copy.
void check_peer_write(Block& owner, const SharedAddress& where, int rank, int bytes, int access);

/// Notes a reading of this block's chunks.
void begin_reading(Block& block, const std::shared_ptr<Reading>& reading);

}  // namespace tilec_host

#endif
