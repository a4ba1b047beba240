// The scheduler of the emulator, its barriers and collectives. Built once, linked into every
// kernel's library.
#include <stdarg.h>

#include "machine.h"

dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace tilec_host {

Thread* self;
bool counting;
const Allocation* recent;
Machine machine;

namespace {

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

}  // namespace

void record_for(const Fiber& fiber, Code code, int other, int other_line, const char* form, ...) {
  va_list rest;
  va_start(rest, form);
  record(code, fiber.line, fiber.thread, block_of(&fiber).block, other, other_line, form, rest);
  va_end(rest);
}

namespace {

// ---- fibers

void fiber_main() {
  machine.invoke(machine.kernel, machine.launch->arguments);
  Fiber& fiber = me();
  Block& block = block_of(&fiber);
  check_thread_end();
  fiber.state = kDone;
  machine.progress = true;
  --block.live;
  Cluster& cluster = cluster_of(block);
  --cluster.live;
  if (fiber.arrival == cluster.meetings) --cluster.arrived;
  meet_cluster(cluster);
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
  block.plain = machine.launch->cluster == 1;
  block.slot = slot;
  block.block = number;
  block.live = threads;
  block.static_bytes = 0;
  block.unwritten = {-1, 0, 0};
  block.shared_bytes = machine.launch->shared_bytes;
  if (block.pending) {
    for (uint32_t i = 0; i < kSharedLimit; ++i) block.shadow[i].pending = 0;
  }
  block.pending = 0;
  block.reading = 0;
  block.phase_barriers.clear();
  block.readings.clear();
  block.chunk_readings.clear();
  block.requests.clear();
  block.sites.clear();
  block.warpgroups.assign(threads / kGroupThreads, Warpgroup{});
  block.first_epoch = ++block.epoch;
  memset(block.shared, 0xa5, machine.launch->shared_bytes);
  for (int i = 0; i < threads; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.line = 0;
    fiber.thread = i;
    fiber.number = slot % machine.launch->cluster * threads + i;
    fiber.clock = 1;
    fiber.cta = &block;
    fiber.state = kReady;
    fiber.arrival = -1;
    fiber.open.clear();
    fiber.groups.clear();
    fiber.fences.clear();
    fiber.taken_by_product = 0;
    fiber.stores.clear();
    fiber.store_groups.clear();
    fiber.products = fiber.products_waited = 0;
    fiber.product_groups.clear();
    fiber.registers_fenced = false;
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

/// Whether shared memory was read before it was written, and no thread wrote it since the last
/// barrier.
bool report_unwritten(Block& block) {
  const Unwritten& read = block.unwritten;
  if (read.line < 0) return false;
  Fiber& fiber = block.fibers[read.thread];
  fiber.line = read.line;
  record_for(fiber, kUninitialised, -1, 0,
             "reads byte %u of shared memory, which nothing has written", read.at);
  return true;
}

/// The first thread that waits at another line than this one.
const Fiber* waits_elsewhere(const Fiber& fiber) {
  for (auto& owned : machine.blocks) {
    for (const Fiber& other : owned->fibers) {
      if (owned->active && other.state != kDone && other.line != fiber.line) return &other;
    }
  }
  return nullptr;
}

void report_deadlock(const Fiber& fiber) {
  char how[200] = "waits";
  if (fiber.state == kPhase) describe_wait(fiber, how, sizeof(how));
  const Fiber* other = waits_elsewhere(fiber);
  char lines[80] = "";
  if (other)
    snprintf(lines, sizeof(lines), "; thread %d waits at line %d", other->thread, other->line);
  record_for(fiber, kDeadlock, other ? other->thread : -1, other ? other->line : 0,
             "%s, and no thread of the %d resident CTAs can go on%s", how,
             static_cast<int>(machine.blocks.size()), lines);
}

bool waits_for_engine(const Fiber& fiber) {
  return fiber.state == kPolling || fiber.state == kPhase || fiber.state == kWhole;
}

/// No thread can go on: say which one waits for whom.
void report_stuck() {
  const Fiber* polling = nullptr;
  for (auto& owned : machine.blocks) {
    Block& block = *owned;
    if (!block.active) continue;
    for (Fiber& fiber : block.fibers) {
      if (waits_for_engine(fiber)) {
        if (!polling || (polling->state == kWhole && fiber.state != kWhole)) polling = &fiber;
        continue;
      }
      if (fiber.state == kWarpgroup) {
        const int first = fiber.thread / kGroupThreads * kGroupThreads;
        for (int i = first; i < first + kGroupThreads; ++i) {
          const Fiber& other = block.fibers[i];
          if (other.state == kWarpgroup || waits_for_engine(other)) continue;
          record_for(fiber, kDivergence, other.thread, other.line,
                     "waits for thread %d of its warpgroup, which %s", other.thread,
                     other.state == kDone ? "has left the kernel" : "waits somewhere else");
          return;
        }
        if (!polling) polling = &fiber;
      }
      if (fiber.state == kCollective) {
        const Group& group = block.warps[fiber.thread / 32].groups[__builtin_ctz(fiber.mask)];
        const uint32_t missing = group.mask & ~group.arrived & block.warps[fiber.thread / 32].lanes;
        const Fiber& other = block.fibers[fiber.thread / 32 * 32 + __builtin_ctz(missing)];
        if (waits_for_engine(other)) continue;
        record_for(fiber, kDivergence, other.thread, other.line,
                   "waits for thread %d of its warp, which %s", other.thread,
                   other.state == kDone ? "has left the kernel" : "waits somewhere else");
        return;
      }
      if (fiber.state == kBarrier) {
        const Barrier& barrier = block.barriers[fiber.barrier];
        for (const Fiber& other : block.fibers) {
          const bool there = other.state == kBarrier && other.barrier == fiber.barrier;
          if (there || waits_for_engine(other)) continue;
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
  if (polling) report_deadlock(*polling);
}

void make_blocks(int count) {
  const int threads = machine.launch->block;
  machine.blocks.clear();
  for (int b = 0; b < count; ++b) {
    auto block = std::make_unique<Block>();
    block->fibers.resize(threads);
    block->warps.resize((threads + 31) / 32);
    const uintptr_t base = reinterpret_cast<uintptr_t>(block->memory.data);
    block->shared = block->memory.data + (1024 - base % 1024) % 1024;
    block->shadow = block->shadows.data;
    machine.blocks.push_back(std::move(block));
  }
  machine.stacks =
      std::make_unique<Stacks>(count * threads, kStackBytes, machine.launch->kept);
}

/// Starts the CTAs of a cluster in its slots.
void start_cluster(int cluster, int64_t first) {
  const int size = machine.launch->cluster;
  machine.clusters[cluster] = Cluster{};
  machine.clusters[cluster].live = cluster_threads();
  for (int i = 0; i < size; ++i) {
    const int slot = cluster * size + i;
    start_block(*machine.blocks[slot], static_cast<int>(first + i), slot);
  }
}

/// Who has a turn when: the CTAs, or the warps of one.
struct Order {
  int count, first;
  bool down;
  int at(int i) const { return ((down ? count - 1 - i : i) + first) % count; }
};

/// Late, from the lowest number up; early, from the highest one down; in chaos, from anywhere.
Order order_of(int count) {
  const int mode = machine.launch->mode;
  if (mode != kChaos) return {count, 0, mode == kEarly};
  const int first = static_cast<int>(random_below(count));
  return {count, first, random_below(2) == 1};
}

bool can_go_on(const Block& block, int warp) {
  const int first = warp * 32;
  const int last = std::min<int>(first + 32, static_cast<int>(block.fibers.size()));
  for (int i = first; i < last; ++i) {
    if (block.fibers[i].state == kReady) return true;
  }
  return false;
}

/// Gives each warp of a CTA a turn. Unless there is chaos, those in front run as far ahead of the
/// others as they can: whoever may go on again does so first.
void run_warps(Block& block) {
  const Order order = order_of(static_cast<int>(block.warps.size()));
  const bool chaos = machine.launch->mode == kChaos;
  int w = 0;
  while (w < order.count) {
    run_warp(block, order.at(w));
    if (machine.launch->fault.code) return;
    int next = chaos ? w + 1 : 0;
    while (next <= w && !can_go_on(block, order.at(next))) ++next;
    w = next;
  }
}

/// Runs all CTAs, as many at a time as are resident. Returns 1 after a fault.
int run_blocks(int resident) {
  Launch* launch = machine.launch;
  const int size = launch->cluster;
  machine.clusters.resize(resident / size);
  int64_t next = 0;
  for (int c = 0; c < resident / size; ++c, next += size) start_cluster(c, next);
  int running = resident;
  while (running > 0) {
    machine.progress = false;
    const Order slots = order_of(resident);
    for (int i = 0; i < resident; ++i) {
      const int slot = slots.at(i);
      Block& block = *machine.blocks[slot];
      if (!block.active) continue;
      run_warps(block);
      if (launch->fault.code) return 1;
      if (block.live == 0) {
        if (report_unwritten(block) || !check_cta_end(block)) return 1;
        if (counting) finish_requests(block);
        block.active = false;
        --running;
        machine.progress = true;
        if (cluster_of(block).live == 0 && next < launch->grid) {
          start_cluster(slot / size, next);
          next += size;
          running += size;
        }
      }
    }
    if (!machine.progress && running > 0) {
      if (Fiber* waiting = waits_for_bytes()) {
        waiting->state = kReady;
        continue;
      }
      report_stuck();
      return 1;
    }
  }
  return 0;
}

}  // namespace

void fault(Code code, int other, int other_line, const char* form, ...) {
  va_list rest;
  va_start(rest, form);
  record(code, self->line, self->thread, block_of(self).block, other, other_line, form, rest);
  va_end(rest);
  while (true) leave();
}

bool fits_cluster(Launch* launch, int cluster) {
  launch->fault = Fault{};
  launch->counter_count = 0;
  Fault& f = launch->fault;
  f.other = -1;
  if (launch->cluster != cluster) {
    f.code = kCluster;
    snprintf(f.text, sizeof(f.text),
             "is launched in clusters of %d CTAs, and its attribute says %d", launch->cluster,
             cluster);
  } else if (launch->grid % cluster != 0 || cluster > 16) {
    f.code = kCluster;
    snprintf(f.text, sizeof(f.text), "is launched with %lld CTAs in clusters of %d",
             static_cast<long long>(launch->grid), cluster);
  }
  return f.code == 0;
}

int run(Launch* launch, Invoke invoke, void* kernel) {
  launch->fault = Fault{};
  launch->counter_count = 0;
  machine.launch = launch;
  machine.invoke = invoke;
  machine.kernel = kernel;
  machine.random = launch->seed * 2 + 0x9e3779b97f4a7c15u;
  counting = launch->counting != 0;
  static const Allocation nothing{1, 0, nullptr, "", 0};
  recent = &nothing;
  blockDim = dim3{static_cast<unsigned>(launch->block), 1, 1};
  gridDim = dim3{static_cast<unsigned>(launch->grid), 1, 1};
  const int clusters = std::max(1, launch->resident / launch->cluster);
  const int resident =
      static_cast<int>(std::min<int64_t>(launch->grid, int64_t(clusters) * launch->cluster));
  make_blocks(resident);
  const int status = machine.stacks->whole() ? run_blocks(resident) : 2;
  // Every kernel has a library, and a machine, of its own: what is not in use is given back, but
  // stacks to whoever keeps them.
  machine.blocks.clear();
  machine.stacks.reset();
  fflush(stdout);
  return status;
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
      if (block.plain) {
        ++block.epoch;
      } else {
        for (Fiber& other : block.fibers) release(other, b.clocks);
        acquire(fiber, b.clocks);
      }
    } else if (waits) {
      acquire(fiber, b.clocks);
    }
    for (const int waiting : b.waiting) {
      Fiber& other = block.fibers[waiting];
      other.state = kReady;
      if (!all || !block.plain) acquire(other, b.clocks);
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

}  // namespace tilec_host
