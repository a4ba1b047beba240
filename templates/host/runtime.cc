// The scheduler of the emulator and what its checks do off the common path. Built once, linked into every kernel's library.
#include "runtime.h"

#include <stdarg.h>
#include <stdlib.h>

#include <algorithm>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "context.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace tilec_host {

Thread* self;
bool counting;
const Allocation* recent;

namespace {

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
  Context context;
  State state;
  uint32_t mask;      // of the collective that it waits in
  int barrier;        // that it waits at
  std::vector<Copy> open;               // issued, not committed
  std::deque<std::vector<Copy>> groups; // committed, oldest first
};

/// Lanes that wait for each other. Masks that are in use at once share no lane: the lowest one finds the group.
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

struct Block : Cta {
  Unwritten unwritten;
  bool active;
  int block, live;
  uint32_t static_bytes;
  std::vector<Fiber> fibers;
  std::vector<Warp> warps;
  Barrier barriers[kBarriers];
  std::vector<unsigned char> memory;
  std::vector<Shadow> shadows;
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

Machine machine;

Block& block_of(const Thread* t) { return *static_cast<Block*>(t->cta); }
Fiber& me() { return *static_cast<Fiber*>(self); }

uint64_t random_below(uint64_t bound) {
  uint64_t x = machine.random;
  x ^= x << 13;
  x ^= x >> 7;
  x ^= x << 17;
  machine.random = x;
  return x % bound;
}

void leave() { switch_context(me().context, machine.main); }

void record(Code code, int line, int thread, int block, int other, int other_line,
            const char* form, va_list rest) {
  Fault& f = machine.launch->fault;
  f.code = code;
  f.line = line;
  f.thread = thread;
  f.block = block;
  f.other = other;
  f.other_line = other_line;
  vsnprintf(f.text, sizeof(f.text), form, rest);
}

void record_for(const Fiber& fiber, Code code, int other, int other_line, const char* form, ...)
    __attribute__((format(printf, 5, 6)));
void record_for(const Fiber& fiber, Code code, int other, int other_line, const char* form, ...) {
  va_list rest;
  va_start(rest, form);
  record(code, fiber.line, fiber.thread, block_of(&fiber).block, other, other_line, form, rest);
  va_end(rest);
}

// ---- clocks: what happened before what

constexpr int kThreadBits = 11, kClockBits = 24;

uint64_t stamp_of(const Thread& t, bool atomic) {
  return static_cast<uint64_t>(t.cta->epoch) << (kThreadBits + kClockBits + 1) |
         static_cast<uint64_t>(t.clock & ((1u << kClockBits) - 1)) << (kThreadBits + 1) |
         static_cast<uint64_t>(t.thread) << 1 | (atomic ? 1u : 0u);
}
uint32_t epoch_of(uint64_t s) { return static_cast<uint32_t>(s >> (kThreadBits + kClockBits + 1)); }
uint32_t clock_of(uint64_t s) { return s >> (kThreadBits + 1) & ((1u << kClockBits) - 1); }
int thread_of(uint64_t s) { return static_cast<int>(s >> 1 & ((1u << kThreadBits) - 1)); }

bool before_me(uint64_t s) {
  const Cta& cta = *self->cta;
  if (epoch_of(s) < cta.epoch || thread_of(s) == self->thread) return true;
  return self->seen_epoch == cta.epoch && clock_of(s) <= self->seen[thread_of(s)];
}

/// The clocks that `t` knows, begun anew in each epoch: a barrier of the whole CTA orders everything.
uint32_t* clocks_of(Thread& t) {
  const Block& block = block_of(&t);
  if (!t.seen) t.seen = static_cast<uint32_t*>(malloc(kMostThreads * sizeof(uint32_t)));
  if (t.seen_epoch != block.epoch) {
    memset(t.seen, 0, block.fibers.size() * sizeof(uint32_t));
    t.seen_epoch = block.epoch;
  }
  t.seen[t.thread] = t.clock;
  return t.seen;
}

void release(Thread& t, std::vector<uint32_t>& into) {
  const uint32_t* seen = clocks_of(t);
  into.resize(block_of(&t).fibers.size());
  for (size_t i = 0; i < into.size(); ++i) into[i] = std::max(into[i], seen[i]);
  ++t.clock;
}

void acquire(Thread& t, const std::vector<uint32_t>& from) {
  uint32_t* seen = clocks_of(t);
  for (size_t i = 0; i < from.size(); ++i) seen[i] = std::max(seen[i], from[i]);
}

// ---- fibers

void fiber_main() {
  machine.invoke(machine.kernel, machine.launch->arguments);
  Fiber& fiber = me();
  Block& block = block_of(&fiber);
  fiber.state = kDone;
  machine.progress = true;
  --block.live;
  Warp& warp = block.warps[fiber.thread / 32];
  warp.done |= 1u << fiber.thread % 32;
  leave();
}

void resume(Fiber& fiber) {
  self = &fiber;
  threadIdx.x = fiber.thread;
  blockIdx.x = block_of(&fiber).block;
  switch_context(machine.main, fiber.context);
}

void start_block(Block& block, int number, int slot) {
  const int threads = machine.launch->block;
  block.active = true;
  block.block = number;
  block.live = threads;
  block.static_bytes = 0;
  block.unwritten = {-1, 0, 0};
  block.shared_bytes = machine.launch->shared_bytes;
  if (block.pending) {
    for (Shadow& s : block.shadows) s.pending = 0;
  }
  block.pending = 0;
  block.first_epoch = ++block.epoch;
  memset(block.shared, 0xa5, kSharedLimit);
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.line = 0;
    fiber.thread = i;
    fiber.clock = 1;
    fiber.cta = &block;
    fiber.state = kReady;
    fiber.open.clear();
    fiber.groups.clear();
    prepare_context(fiber.context, machine.stacks->at(slot * threads + i), machine.stacks->bytes(),
                    fiber_main);
  }
  for (size_t w = 0; w < block.warps.size(); ++w) {
    const int lanes = std::min(32, threads - static_cast<int>(w) * 32);
    block.warps[w] = Warp{};
    block.warps[w].lanes = lanes == 32 ? ~0u : (1u << lanes) - 1u;
  }
  for (Barrier& b : block.barriers) b = Barrier{};
}

/// Resumes the lanes of a warp until each waits for something outside of it.
void run_warp(Block& block, int warp) {
  const int first = warp * 32;
  const int last = std::min<int>(first + 32, static_cast<int>(block.fibers.size()));
  const bool chaos = machine.launch->mode == kChaos;
  bool any = true;
  while (any) {
    any = false;
    const int turn = chaos ? static_cast<int>(random_below(last - first)) : 0;
    for (int i = first; i < last; ++i) {
      Fiber& fiber = block.fibers[first + (i - first + turn) % (last - first)];
      if (fiber.state != kReady) continue;
      any = true;
      machine.progress = true;
      resume(fiber);
      if (machine.launch->fault.code) return;
    }
  }
  for (int i = first; i < last; ++i) {
    if (block.fibers[i].state == kPolling) {
      resume(block.fibers[i]);
      if (machine.launch->fault.code) return;
    }
  }
}

/// Whether shared memory was read before it was written, and no thread wrote it since the last barrier.
bool report_unwritten(Block& block) {
  const Unwritten& read = block.unwritten;
  if (read.line < 0) return false;
  Fiber& fiber = block.fibers[read.thread];
  fiber.line = read.line;
  record_for(fiber, kUninitialised, -1, 0,
             "reads byte %u of shared memory, which nothing has written", read.at);
  return true;
}

/// No thread can go on: say which one waits for whom.
void report_stuck() {
  const Fiber* polling = nullptr;
  for (auto& owned : machine.blocks) {
    Block& block = *owned;
    if (!block.active) continue;
    for (Fiber& fiber : block.fibers) {
      if (fiber.state == kPolling) {
        if (!polling) polling = &fiber;
        continue;
      }
      if (fiber.state == kCollective) {
        const Group& group = block.warps[fiber.thread / 32].groups[__builtin_ctz(fiber.mask)];
        const uint32_t missing = group.mask & ~group.arrived & block.warps[fiber.thread / 32].lanes;
        const Fiber& other = block.fibers[fiber.thread / 32 * 32 + __builtin_ctz(missing)];
        if (other.state == kPolling) continue;
        record_for(fiber, kDivergence, other.thread, other.line,
                   "waits for thread %d of its warp, which %s", other.thread,
                   other.state == kDone ? "has left the kernel" : "waits somewhere else");
        return;
      }
      if (fiber.state == kBarrier) {
        const Barrier& barrier = block.barriers[fiber.barrier];
        for (const Fiber& other : block.fibers) {
          const bool there = other.state == kBarrier && other.barrier == fiber.barrier;
          if (there || other.state == kPolling) continue;
          if (fiber.barrier != 0 && other.state != kDone) continue;
          record_for(fiber, kDivergence, other.thread, other.line,
                     "waits at a barrier of %d threads, which thread %d %s", barrier.expected,
                     other.thread,
                     other.state == kDone ? "has left the kernel without" : "does not reach");
          return;
        }
        if (!polling) polling = &fiber;
      }
    }
  }
  if (polling) {
    record_for(*polling, kDeadlock, -1, 0, "waits, and no thread of the %d resident CTAs can go on",
               static_cast<int>(machine.blocks.size()));
  }
}

void make_blocks(int count) {
  const int threads = machine.launch->block;
  machine.blocks.clear();
  for (int b = 0; b < count; ++b) {
    auto block = std::make_unique<Block>();
    block->fibers.resize(threads);
    block->warps.resize((threads + 31) / 32);
    block->memory.resize(kSharedLimit + 1024);
    const uintptr_t base = reinterpret_cast<uintptr_t>(block->memory.data());
    block->shared = block->memory.data() + (1024 - base % 1024) % 1024;
    block->shadows.resize(kSharedLimit);
    block->shadow = block->shadows.data();
    machine.blocks.push_back(std::move(block));
  }
  machine.stacks = std::make_unique<Stacks>(count * threads, kStackBytes);
}

// ---- counters

void finish_requests(int64_t block);

}  // namespace

void fault(Code code, int other, int other_line, const char* form, ...) {
  va_list rest;
  va_start(rest, form);
  record(code, self->line, self->thread, block_of(self).block, other, other_line, form, rest);
  va_end(rest);
  while (true) leave();
}

int run(Launch* launch, Invoke invoke, void* kernel) {
  launch->fault = Fault{};
  launch->counter_count = 0;
  machine.launch = launch;
  machine.invoke = invoke;
  machine.kernel = kernel;
  machine.random = launch->seed * 2 + 0x9e3779b97f4a7c15u;
  machine.requests.clear();
  machine.occurrences.clear();
  counting = launch->counting != 0;
  static const Allocation nothing{1, 0, nullptr, "", 0};
  recent = &nothing;
  blockDim = dim3{static_cast<unsigned>(launch->block), 1, 1};
  gridDim = dim3{static_cast<unsigned>(launch->grid), 1, 1};
  const int resident = static_cast<int>(std::min<int64_t>(launch->resident, launch->grid));
  const int threads = launch->block;
  if (static_cast<int>(machine.blocks.size()) != resident ||
      static_cast<int>(machine.blocks[0]->fibers.size()) != threads) {
    make_blocks(resident);
  }
  if (!machine.stacks->whole()) {
    machine.blocks.clear();
    return 2;
  }
  int64_t next = 0;
  for (auto& block : machine.blocks) block->active = false;
  for (int b = 0; b < resident; ++b) start_block(*machine.blocks[b], static_cast<int>(next++), b);
  int running = resident;
  while (running > 0) {
    machine.progress = false;
    const int turn = launch->mode == kChaos ? static_cast<int>(random_below(resident)) : 0;
    for (int i = 0; i < resident; ++i) {
      const int slot = (i + turn) % resident;
      Block& block = *machine.blocks[slot];
      if (!block.active) continue;
      const int warps = static_cast<int>(block.warps.size());
      const int first = launch->mode == kChaos ? static_cast<int>(random_below(warps)) : 0;
      for (int w = 0; w < warps; ++w) {
        run_warp(block, (w + first) % warps);
        if (launch->fault.code) return 1;
      }
      if (block.live == 0) {
        if (report_unwritten(block)) return 1;
        if (counting) finish_requests(block.block);
        block.active = false;
        --running;
        machine.progress = true;
        if (next < launch->grid) {
          start_block(block, static_cast<int>(next++), slot);
          ++running;
        }
      }
    }
    if (!machine.progress && running > 0) {
      report_stuck();
      return 1;
    }
  }
  fflush(stdout);
  return 0;
}

void trap() { fault(kTrap, -1, 0, "stops the kernel"); }

void wait_until(bool (*ready)(void*), void* what) {
  Fiber& fiber = me();
  while (!ready(what)) {
    fiber.state = kPolling;
    leave();
  }
  fiber.state = kReady;
  machine.progress = true;
}

// ---- barriers and collectives

void barrier(int id, int threads, bool waits) {
  Fiber& fiber = me();
  Block& block = block_of(self);
  const bool all = id == 0 && threads == 0;
  const int expected = all ? static_cast<int>(block.fibers.size()) : threads;
  if (id < 0 || id >= kBarriers || expected <= 0 || expected % 32 != 0) {
    if (!all) {
      fault(kDivergence, -1, 0, "uses barrier %d for %d threads: 16 barriers, whole warps", id,
            expected);
    }
  }
  Barrier& b = block.barriers[id];
  if (b.arrived == 0) {
    b.expected = expected;
    b.line = fiber.line;
    b.first = fiber.thread;
    b.clocks.clear();
  } else if (b.expected != expected || (all && b.line != fiber.line)) {
    fault(kDivergence, b.first, b.line,
          "comes to a barrier while thread %d waits at another one", b.first);
  }
  ++b.arrived;
  if (!all) release(fiber, b.clocks);
  if (b.arrived == b.expected) {
    b.arrived = 0;
    if (all) {
      if (report_unwritten(block)) leave();
      ++block.epoch;
    } else if (waits) {
      acquire(fiber, b.clocks);
    }
    for (const int waiting : b.waiting) {
      Fiber& other = block.fibers[waiting];
      other.state = kReady;
      if (!all) acquire(other, b.clocks);
    }
    b.waiting.clear();
    machine.progress = true;
    return;
  }
  if (!waits) return;
  b.waiting.push_back(fiber.thread);
  fiber.state = kBarrier;
  fiber.barrier = id;
  leave();
}

void collective(uint32_t mask, Finish finish, void* mine, const char* name) {
  Fiber& fiber = me();
  Block& block = block_of(self);
  Warp& warp = block.warps[fiber.thread / 32];
  const uint32_t bit = 1u << fiber.thread % 32;
  if (!(mask & bit)) fault(kDivergence, -1, 0, "calls %s with a mask that leaves it out", name);
  const uint32_t needed = mask & warp.lanes;
  Group& group = warp.groups[__builtin_ctz(needed)];
  if (group.arrived == 0) {
    group.mask = needed;
    group.finish = finish;
    group.line = fiber.line;
  } else if (group.mask != needed || group.finish != finish || group.line != fiber.line) {
    const int other = fiber.thread / 32 * 32 + __builtin_ctz(group.arrived);
    fault(kDivergence, other, group.line,
          "calls %s while thread %d of its warp waits in another operation", name, other);
  }
  group.arrived |= bit;
  group.mine[fiber.thread % 32] = mine;
  if (group.arrived != needed) {
    fiber.state = kCollective;
    fiber.mask = needed;
    leave();
    return;
  }
  group.arrived = 0;
  if (finish) finish(group.mine, needed);
  for (uint32_t rest = needed & ~bit; rest; rest &= rest - 1) {
    block.fibers[fiber.thread / 32 * 32 + __builtin_ctz(rest)].state = kReady;
  }
  machine.progress = true;
}

void sync_warp(uint32_t mask) {
  // A rendezvous that also orders memory: everyone's clocks, then everyone learns them.
  static const Finish order = [](void* const*, uint32_t present) {
    Block& block = block_of(self);
    const int base = self->thread / 32 * 32;
    std::vector<uint32_t> clocks;
    for (uint32_t r = present; r; r &= r - 1) release(block.fibers[base + __builtin_ctz(r)], clocks);
    for (uint32_t r = present; r; r &= r - 1) acquire(block.fibers[base + __builtin_ctz(r)], clocks);
  };
  collective(mask, order, nullptr, "`__syncwarp`");
}

// ---- memory

const Allocation* find_allocation(uintptr_t p, int bytes, bool store) {
  const Launch& launch = *machine.launch;
  const char* verb = store ? "writes" : "reads";
  const Allocation* nearest = nullptr;
  uintptr_t distance = ~uintptr_t(0);
  for (int i = 0; i < launch.allocation_count; ++i) {
    const Allocation& a = launch.allocations[i];
    if (p >= a.begin && p + bytes <= a.end) {
      if (store && !a.writable) fault(kGlobalBounds, -1, 0, "writes to the input `%s`", a.name);
      recent = &a;
      return &a;
    }
    const uintptr_t off = p < a.begin ? a.begin - p : p + bytes > a.end ? p + bytes - a.end : 0;
    if (off < distance) {
      distance = off;
      nearest = &a;
    }
  }
  if (!nearest) fault(kGlobalBounds, -1, 0, "%s %d bytes, and has no memory", verb, bytes);
  const bool below = p < nearest->begin;
  const unsigned long long away = below ? nearest->begin - p : p + bytes - nearest->end;
  fault(kGlobalBounds, -1, 0, "%s %d bytes, %s `%s` by %llu bytes", verb, bytes,
        below ? "which begin before" : "which end behind", nearest->name, away);
}

void check_written(const Allocation* a, uintptr_t p, int bytes) {
  for (int i = 0; i < bytes; ++i) {
    if (!a->written[p - a->begin + i]) {
      fault(kUninitialised, -1, 0, "reads byte %llu of `%s`, which nothing has written",
            static_cast<unsigned long long>(p - a->begin + i), a->name);
    }
  }
}

void misaligned(uintptr_t p, int access, const char* what) {
  fault(kMisaligned, -1, 0, "accesses %d bytes of %s memory at an address that is %d modulo %d",
        access, what, static_cast<int>(p % access), access);
}

void shared_bounds(const SharedAddress& where, int bytes, bool store) {
  fault(kSharedBounds, -1, 0, "%s %d bytes at byte %lld of an array of %lld bytes in shared memory",
        store ? "writes" : "reads", bytes, static_cast<long long>(where.at - where.begin),
        static_cast<long long>(where.end - where.begin));
}

void* static_shared(uint32_t bytes, uint32_t align) {
  Block& block = block_of(self);
  if (align > 1024 || bytes + block.shared_bytes > kSharedLimit) {
    fault(kSharedBounds, -1, 0, "declares %u bytes of shared memory", bytes);
  }
  if (block.static_bytes == 0) {
    block.static_bytes = bytes;
    block.shared_bytes += bytes;
  }
  return block.shared;
}

void* dynamic_shared() {
  Block& block = block_of(self);
  return block.shared + (block.static_bytes + 1023) / 1024 * 1024;
}

namespace {

/// A byte is read before anything was written there. Where another thread writes it before the next barrier, that is a race
/// and reported as one; so the report waits.
void unwritten(uint32_t at) {
  Block& block = block_of(self);
  if (block.unwritten.line >= 0) return;
  block.unwritten = {self->line, self->thread, at};
}

}  // namespace

void check_shared(uint32_t offset, int bytes, Access access) {
  const Cta& cta = *self->cta;
  const uint64_t mine = stamp_of(*self, access == kAtomic);
  for (uint32_t at = offset; at < offset + bytes; ++at) {
    Shadow& s = cta.shadow[at];
    if (cta.pending && s.pending) {
      fault(kRace, s.pending - 1, 0,
            "accesses byte %u of shared memory while an asynchronous copy of thread %d to it is "
            "under way", at, s.pending - 1);
    }
    const bool written = epoch_of(s.write) >= cta.first_epoch;
    const bool both_atomic = access == kAtomic && (s.write & 1);
    if (written && !both_atomic && !before_me(s.write)) {
      const int other = thread_of(s.write);
      fault(kRace, other, static_cast<const Block&>(cta).fibers[other].line,
            "%s byte %u of shared memory, which thread %d has written with no barrier between",
            access == kRead ? "reads" : "writes", at, other);
    }
    if (access != kWrite && !written) unwritten(at);
    if (access == kRead) {
      if (epoch_of(s.read) != cta.epoch || thread_of(s.read) == self->thread) {
        s.read = mine;
      } else {
        s.read_other = mine;
      }
    } else {
      for (const uint64_t read : {s.read, s.read_other}) {
        if (epoch_of(read) >= cta.first_epoch && !before_me(read)) {
          const int other = thread_of(read);
          fault(kRace, other, static_cast<const Block&>(cta).fibers[other].line,
                "writes byte %u of shared memory, which thread %d has read with no barrier between",
                at, other);
        }
      }
      s.write = mine;
    }
  }
}

// ---- asynchronous copies

namespace {

void land(Copy& copy) {
  if (copy.landed) return;
  copy.landed = true;
  unsigned char* to = self->cta->shared + copy.at;
  memcpy(to, copy.from, copy.read);
  memset(to + copy.read, 0, copy.bytes - copy.read);
}

/// In chaos, anything that is under way in this thread may land now.
void drift() {
  if (machine.launch->mode != kChaos) return;
  Fiber& fiber = me();
  for (auto& group : fiber.groups) {
    for (Copy& copy : group) {
      if (random_below(4) == 0) land(copy);
    }
  }
  for (Copy& copy : fiber.open) {
    if (random_below(4) == 0) land(copy);
  }
}

}  // namespace

void async_copy(const SharedAddress& to, const void* from, int bytes, int read) {
  drift();
  Block& block = block_of(self);
  enter_shared(to, bytes, bytes, kWrite);
  const uintptr_t p = reinterpret_cast<uintptr_t>(from);
  read = std::max(0, std::min(read, bytes));
  if (read > 0) {
    if (p % bytes != 0) misaligned(p, bytes, "global");
    const Allocation* a = allocation_of(p, read, false);
    if (a->written) check_written(a, p, read);
    if (counting) count_access(p, read, 0, 0);
  }
  const uint32_t at = static_cast<uint32_t>(to.at);
  Copy copy{at, bytes, read, from, false};
  if (machine.launch->mode == kEarly) land(copy);
  for (int i = 0; i < bytes; ++i) {
    block.shadow[at + i].pending = static_cast<uint16_t>(self->thread + 1);
  }
  block.pending += bytes;
  me().open.push_back(copy);
}

void async_commit() {
  drift();
  Fiber& fiber = me();
  fiber.groups.push_back(std::move(fiber.open));
  fiber.open.clear();
}

void async_wait(int groups) {
  drift();
  Fiber& fiber = me();
  Block& block = block_of(self);
  if (!fiber.open.empty()) {
    fault(kUncommitted, -1, 0, "waits for asynchronous copies while %d are not committed",
          static_cast<int>(fiber.open.size()));
  }
  while (static_cast<int>(fiber.groups.size()) > groups) {
    for (Copy& copy : fiber.groups.front()) {
      land(copy);
      for (int i = 0; i < copy.bytes; ++i) {
        Shadow& s = block.shadow[copy.at + i];
        s.pending = 0;
        s.write = stamp_of(fiber, false);
      }
      block.pending -= copy.bytes;
    }
    fiber.groups.pop_front();
  }
}

// ---- counters

void count_access(uintptr_t p, int bytes, int part, int kind) {
  const int64_t block = block_of(self).block, line = self->line;
  const int64_t n = machine.occurrences[{block, self->thread, line, kind, part}]++;
  Request& r = machine.requests[{block, self->thread / 32, line, kind, part, n}];
  r.bytes = static_cast<uint32_t>(bytes);
  r.places[self->thread % 32] = p;
}

namespace {

int64_t distinct(std::vector<uintptr_t>& places) {
  std::sort(places.begin(), places.end());
  return std::unique(places.begin(), places.end()) - places.begin();
}

/// Sectors of 32 bytes that the lanes touch.
int64_t sectors(const Request& r) {
  std::vector<uintptr_t> touched;
  for (const auto& [lane, p] : r.places) {
    for (uintptr_t s = p / 32; s <= (p + r.bytes - 1) / 32; ++s) touched.push_back(s);
  }
  return distinct(touched);
}

/// Passes over the 32 banks of 4 bytes: of 8-byte accesses half a warp at a time, of 16-byte ones a quarter.
int64_t wavefronts(const Request& r) {
  const int together = r.bytes <= 4 ? 32 : static_cast<int>(128 / r.bytes);
  int64_t total = 0;
  for (int first = 0; first < 32; first += together) {
    std::vector<uintptr_t> words;
    const auto end = r.places.lower_bound(first + together);
    for (auto place = r.places.lower_bound(first); place != end; ++place) {
      const uintptr_t p = place->second;
      for (uintptr_t w = p / 4; w <= (p + r.bytes - 1) / 4; ++w) words.push_back(w);
    }
    words.resize(distinct(words));
    int64_t banks[32] = {};
    for (const uintptr_t w : words) ++banks[w % 32];
    total += *std::max_element(banks, banks + 32);
  }
  return total;
}

/// Adds the requests of a CTA that has ended to the launch's counters.
void finish_requests(int64_t block) {
  Launch& launch = *machine.launch;
  const auto begin = machine.requests.lower_bound({block});
  const auto end = machine.requests.lower_bound({block + 1});
  for (auto place = begin; place != end; ++place) {
    const auto& key = place->first;
    const Request& r = place->second;
    const int line = static_cast<int>(key[2]), kind = static_cast<int>(key[3]);
    Counter* found = nullptr;
    for (int i = 0; i < launch.counter_count; ++i) {
      if (launch.counters[i].line == line && launch.counters[i].kind == kind) found = &launch.counters[i];
    }
    if (!found) {
      if (launch.counter_count == launch.counter_capacity) continue;
      found = &launch.counters[launch.counter_count++];
      *found = Counter{line, kind, 0, 0, 0, 0};
    }
    std::vector<uintptr_t> bytes_touched;
    for (const auto& [lane, p] : r.places) {
      for (uint32_t i = 0; i < r.bytes; ++i) bytes_touched.push_back(p + i);
    }
    const int64_t touched = distinct(bytes_touched);
    const int64_t unit = kind < 2 ? 32 : 128;
    ++found->requests;
    found->units += kind < 2 ? sectors(r) : wavefronts(r);
    found->least += (touched + unit - 1) / unit;
    found->bytes += static_cast<int64_t>(r.places.size()) * r.bytes;
  }
  machine.requests.erase(begin, end);
  machine.occurrences.erase(machine.occurrences.lower_bound({block}),
                            machine.occurrences.lower_bound({block + 1}));
}

}  // namespace
}  // namespace tilec_host
