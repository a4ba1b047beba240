// What the parts of the emulator share: threads, warps and CTAs as they run, and the order of their
// accesses.
#ifndef TILEC_HOST_MACHINE_H
#define TILEC_HOST_MACHINE_H

#include <stdlib.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "context.h"
#include "runtime.h"

namespace tilec_host {

constexpr size_t kStackBytes = 96 << 10;
constexpr uint32_t kSharedLimit = 256 << 10;
constexpr int kBarriers = 16;

enum State { kReady, kCollective, kBarrier, kPolling, kDone };

/// One asynchronous copy that has been issued and not been waited for.
struct Copy {
  uint32_t at;
  int bytes, read;  // read: those that come from global memory, the others become zero
  const void* from;
  bool landed;
};

struct Fiber : Thread {
  std::vector<uint32_t> clocks;         // what `seen` points to
  Context context;
  State state;
  uint32_t mask;      // of the collective that it waits in
  int barrier;        // that it waits at
  std::vector<Copy> open;               // issued, not committed
  std::deque<std::vector<Copy>> groups; // committed, oldest first
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

struct Block : Cta {
  Block() : Cta{}, memory(kSharedLimit + 1024), shadows(kSharedLimit) {}
  Unwritten unwritten;
  bool active;
  int block, live;
  uint32_t static_bytes;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barriers[kBarriers];
  Zeroed<unsigned char> memory;
  Zeroed<Shadow> shadows;
};

struct Request {
  uint32_t bytes;
  std::map<int, uintptr_t> places;  // by lane: which lanes go together depends on their numbers
};

struct Machine {
  Launch* launch;
  Invoke invoke;
  void* kernel;
  Context main;
  std::vector<std::unique_ptr<Block>> blocks;
  std::unique_ptr<Stacks> stacks;
  bool progress;
  uint64_t random;
  // (block, warp, line, kind, part, occurrence) → the accesses of its lanes
  std::map<std::vector<int64_t>, Request> requests;
  std::map<std::vector<int64_t>, int64_t> occurrences;
};

extern Machine machine;

inline Block& block_of(const Thread* t) { return *static_cast<Block*>(t->cta); }
inline Fiber& me() { return *static_cast<Fiber*>(self); }

inline uint64_t random_below(uint64_t bound) {
  uint64_t x = machine.random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  machine.random = x;
  return x % bound;
}

/// Adds the requests of a CTA that has ended to the launch's counters.
void finish_requests(int64_t block);

// ---- clocks: what happened before what

constexpr int kThreadBits = 11, kClockBits = 24;

inline uint64_t stamp_of(const Thread& t, bool atomic) {
  return static_cast<uint64_t>(t.cta->epoch) << (kThreadBits + kClockBits + 1) |
         static_cast<uint64_t>(t.clock & ((1u << kClockBits) - 1)) << (kThreadBits + 1) |
         static_cast<uint64_t>(t.thread) << 1 | (atomic ? 1u : 0u);
}
inline uint32_t epoch_of(uint64_t s) { return static_cast<uint32_t>(s >> (kThreadBits + kClockBits + 1)); }
inline uint32_t clock_of(uint64_t s) { return s >> (kThreadBits + 1) & ((1u << kClockBits) - 1); }
inline int thread_of(uint64_t s) { return static_cast<int>(s >> 1 & ((1u << kThreadBits) - 1)); }

inline bool before_me(uint64_t s) {
  const Cta& cta = *self->cta;
  if (epoch_of(s) < cta.epoch || thread_of(s) == self->thread) return true;
  return self->seen_epoch == cta.epoch && clock_of(s) <= self->seen[thread_of(s)];
}

/// The clocks that `t` knows, begun anew in each epoch: a barrier of the whole CTA orders
/// everything.
inline uint32_t* clocks_of(Thread& t) {
  const Block& block = block_of(&t);
  if (!t.seen) {
    Fiber& fiber = static_cast<Fiber&>(t);
    fiber.clocks.resize(block.fibers.size());
    t.seen = fiber.clocks.data();
  }
  if (t.seen_epoch != block.epoch) {
    memset(t.seen, 0, block.fibers.size() * sizeof(uint32_t));
    t.seen_epoch = block.epoch;
  }
  t.seen[t.thread] = t.clock;
  return t.seen;
}

inline void release(Thread& t, std::vector<uint32_t>& into) {
  const uint32_t* seen = clocks_of(t);
  into.resize(block_of(&t).fibers.size());
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], seen[i]);
  ++t.clock;
}

inline void acquire(Thread& t, const std::vector<uint32_t>& from) {
  uint32_t* seen = clocks_of(t);
  for (size_t i = 0; i < from.size(); ++i) seen[i] = std::max(seen[i], from[i]);
}

}  // namespace tilec_host

#endif
