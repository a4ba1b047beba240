// What the emulator's checks of memory do off the common path, asynchronous copies, and counters.
// Built once.
#include "machine.h"

namespace tilec_host {

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

namespace {

uint32_t dynamic_begin(const Block& block) { return (block.static_bytes + 1023) / 1024 * 1024; }

}  // namespace

void* static_shared(uint32_t bytes, uint32_t align) {
  Block& block = block_of(self);
  if (align > 1024 || bytes + 1023 + block.shared_bytes > kSharedLimit) {
    fault(kSharedBounds, -1, 0, "declares %u bytes of shared memory", bytes);
  }
  if (block.static_bytes == 0) {
    block.static_bytes = bytes;
    block.shared_bytes = block.shared_bytes ? dynamic_begin(block) + block.shared_bytes : bytes;
    memset(block.shared, 0xa5, bytes);
  }
  return block.shared;
}

void* dynamic_shared() {
  Block& block = block_of(self);
  return block.shared + dynamic_begin(block);
}

void* dynamic_shared_aligned(uint32_t align) {
  Block& block = block_of(self);
  const uint32_t asked = machine.launch->shared_bytes;
  if (align > 1024 || align > asked) {
    fault(kSharedBounds, -1, 0, "aligns %u bytes of dynamic shared memory to %u", asked, align);
  }
  // Where the memory begins is not known: `align` bytes of it may lie in front of the struct.
  block.shared_bytes = dynamic_begin(block) + asked - align;
  return dynamic_shared();
}

namespace {

/// A byte is read before anything was written there. Where another thread writes it before the next
/// barrier, that is a race and reported as one; so the report waits.
void unwritten(uint32_t at) {
  Block& block = block_of(self);
  if (block.unwritten.line >= 0) return;
  block.unwritten = {self->line, self->thread, at};
}

}  // namespace

namespace {

/// Who wrote or read last, in words.
const Fiber* author_of(const Block& block, uint64_t stamp, char* text, size_t size) {
  if (by_agent(stamp)) {
    snprintf(text, size, "a bulk copy");
    return nullptr;
  }
  const Fiber& other = fiber_at(block, thread_of(stamp));
  if (other.cta == self->cta) {
    snprintf(text, size, "thread %d", other.thread);
  } else {
    snprintf(text, size, "thread %d of CTA %d", other.thread, block_of(&other).block);
  }
  return &other;
}

[[noreturn]] void race(const Block& block, const char* verb, uint32_t at, uint64_t stamp,
                       const char* did) {
  char who[64];
  const Fiber* other = author_of(block, stamp, who, sizeof(who));
  fault(kRace, other ? other->thread : -1, other ? other->line : 0,
        "%s byte %u of shared memory, which %s has %s with no %s between", verb, at, who, did,
        other ? "barrier" : "wait for its barrier");
}

[[noreturn]] void under_way(const Block& block, const char* verb, uint32_t at) {
  const Fiber& other = fiber_at(block, block.shadow[at].pending - 1);
  fault(kRace, other.thread, other.line,
        "%s byte %u of shared memory while an asynchronous copy of thread %d to it is under way",
        verb, at, other.thread);
}

/// A write to a chunk that products or bulk stores have read: they are over, and we know of it.
void check_readings(Block& block, uint32_t at) {
  const uint32_t chunk = at / kChunkBytes;
  for (auto place = block.readings.begin(); place != block.readings.end();) {
    Reading& reading = **place;
    if (chunk < reading.first || chunk > reading.last || !reading.chunks[chunk]) {
      ++place;
      continue;
    }
    if (!is_over(reading, clocks_of(*self))) {
      fault(kRace, fiber_at(block, reading.number).thread, reading.line,
            "writes byte %u of shared memory, which a %s of line %d may still read", at,
            reading.threads == 1 ? "bulk store" : "product", reading.line);
    }
    reading.chunks[chunk] = false;
    --block.chunk_readings[chunk];
    if (--reading.left == 0) {
      place = block.readings.erase(place);
      --block.reading;
    } else {
      ++place;
    }
  }
}

/// Whether a thread's access passed one of its proxy fences, as far as `clocks` know.
bool fenced(const Block& block, const std::vector<uint32_t>& clocks, uint64_t stamp) {
  const Fiber& writer = fiber_at(block, thread_of(stamp));
  const auto fence = std::upper_bound(writer.fences.begin(), writer.fences.end(), clock_of(stamp));
  return fence != writer.fences.end() && *fence <= clocks[writer.number];
}

/// Whether what a thread read had come when it said that it had read it: behind a proxy fence, or
/// where a product of its warp took it. Loads of shared memory may be overtaken by an arrival.
bool settled(const Block& block, const std::vector<uint32_t>& clocks, uint64_t stamp) {
  return fenced(block, clocks, stamp) ||
         clock_of(stamp) < fiber_at(block, thread_of(stamp)).taken_by_product;
}

bool known(const Block& block, const std::vector<uint32_t>& clocks, uint64_t stamp) {
  const int number = thread_of(stamp);
  return epoch_of(stamp) < block.epoch ||
         (number < static_cast<int>(clocks.size()) && clock_of(stamp) <= clocks[number]);
}

[[noreturn]] void unfenced(const Block& block, const char* verb, uint32_t at, uint64_t stamp,
                           const char* did = "write") {
  char who[64];
  const Fiber* other = author_of(block, stamp, who, sizeof(who));
  fault(kProxyFence, other->thread, other->line,
        "%s byte %u of shared memory beside the threads, and %s has not executed `fence_async` "
        "between its %s and the barrier",
        verb, at, who, did);
}

}  // namespace

void check_shared(uint32_t offset, int bytes, Access access) {
  Block& block = block_of(self);
  const uint64_t mine = stamp_of(*self, access == kAtomic);
  for (uint32_t at = offset; at < offset + bytes; ++at) {
    Shadow& s = block.shadow[at];
    if (block.pending && s.pending) under_way(block, "accesses", at);
    const bool written = epoch_of(s.write) >= block.first_epoch;
    const bool both_atomic = access == kAtomic && (s.write & 1);
    if (written && !both_atomic && !before_me(s.write)) {
      race(block, access == kRead ? "reads" : "writes", at, s.write, "written");
    }
    if (access != kWrite && !written) unwritten(at);
    if (access == kRead) {
      if (before_me(s.read)) {
        s.read = mine;
      } else {
        s.read_other = mine;
      }
    } else {
      for (const uint64_t read : {s.read, s.read_other}) {
        if (epoch_of(read) >= block.first_epoch && !before_me(read)) {
          race(block, "writes", at, read, "read");
        }
      }
      if (block.reading && block.chunk_readings[at / kChunkBytes]) check_readings(block, at);
      s.write = mine;
    }
  }
}

void check_peer_write(Block& owner, const SharedAddress& where, int rank, int bytes, int access) {
  note(where.line);
  if (owner.slot != block_of(self).slot && cluster_of(owner).meetings == 0) {
    fault(kCluster, -1, 0, "writes to CTA %d of its cluster, which may not have started", rank);
  }
  if (where.at < where.begin || where.at + bytes > where.end || where.end > owner.shared_bytes) {
    shared_bounds(where, bytes, true);
  }
  if (where.at % access != 0) misaligned(where.at, access, "shared");
  const std::vector<uint32_t>& clocks = clocks_of(*self);
  const uint32_t begin = static_cast<uint32_t>(where.at);
  for (uint32_t at = begin; at < begin + bytes; ++at) {
    const Shadow& s = owner.shadow[at];
    if (s.pending) under_way(owner, "writes", at);
    if (epoch_of(s.write) >= owner.first_epoch && !known(owner, clocks, s.write)) {
      race(owner, "writes", at, s.write, "written");
    }
    for (const uint64_t read : {s.read, s.read_other}) {
      if (epoch_of(read) >= owner.first_epoch && !known(owner, clocks, read)) {
        race(owner, "writes", at, read, "read");
      }
    }
  }
}

void write_peer(const SharedAddress& where, int rank, const void* from, int bytes, int access) {
  Block& owner = peer_of(rank);
  check_peer_write(owner, where, rank, bytes, access);
  const uint32_t begin = static_cast<uint32_t>(where.at);
  for (uint32_t at = begin; at < begin + bytes; ++at) {
    owner.shadow[at].write = stamp_by(owner, self->number, self->clock, false);
  }
  memcpy(owner.shared + begin, from, bytes);
}

// ---- accesses beside the threads

void check_async_read(const Block& block, const std::vector<uint32_t>& clocks, uint32_t at,
                      int bytes, const char* what) {
  uint64_t last = ~uint64_t(0);
  for (uint32_t end = at + bytes; at < end; ++at) {
    const Shadow& s = block.shadow[at];
    if (s.pending) under_way(block, what, at);
    if (s.write == last) continue;
    last = s.write;
    if (epoch_of(s.write) < block.first_epoch) {
      unwritten(at);
    } else if (!known(block, clocks, s.write)) {
      race(block, what, at, s.write, "written");
    } else if (!by_agent(s.write) && !fenced(block, clocks, s.write)) {
      unfenced(block, what, at, s.write);
    }
  }
}

void check_async_write(Block& owner, uint32_t at, int bytes) {
  const std::vector<uint32_t>& clocks = clocks_of(*self);
  uint64_t last = 0, last_read = 0, last_other = 0;
  for (uint32_t end = at + bytes; at < end; ++at) {
    Shadow& s = owner.shadow[at];
    if (s.pending) under_way(owner, "copies to", at);
    if (owner.reading && owner.chunk_readings[at / kChunkBytes]) check_readings(owner, at);
    if (s.write != last && epoch_of(s.write) >= owner.first_epoch) {
      if (!known(owner, clocks, s.write)) race(owner, "copies to", at, s.write, "written");
      if (!by_agent(s.write) && !fenced(owner, clocks, s.write)) {
        unfenced(owner, "copies to", at, s.write);
      }
      last = s.write;
    }
    if (s.read == last_read && s.read_other == last_other) continue;
    for (const uint64_t read : {s.read, s.read_other}) {
      if (epoch_of(read) < owner.first_epoch) continue;
      if (!known(owner, clocks, read)) race(owner, "copies to", at, read, "read");
      if (!by_agent(read) && !settled(owner, clocks, read)) {
        unfenced(owner, "copies to", at, read, "read");
      }
    }
    last_read = s.read;
    last_other = s.read_other;
  }
}

bool is_over(const Reading& reading, const std::vector<uint32_t>& clocks) {
  for (int first = 0; first < reading.threads; first += 32) {
    bool found = false;
    for (int i = first; i < std::min(first + 32, reading.threads) && !found; ++i) {
      const size_t number = reading.number + i;
      found = reading.done[i] && number < clocks.size() && reading.done[i] <= clocks[number];
    }
    if (!found) return false;
  }
  return true;
}

void begin_reading(Block& block, const std::shared_ptr<Reading>& reading) {
  block.chunk_readings.resize(kChunks);
  // One like an earlier one of the same threads, which is over, takes its place.
  for (auto place = block.readings.begin(); place != block.readings.end(); ++place) {
    const Reading& old = **place;
    if (old.number != reading->number || old.threads != reading->threads || old.unfinished ||
        old.first != reading->first || old.last != reading->last || old.left != reading->left ||
        old.chunks != reading->chunks) {
      continue;
    }
    *place = reading;
    return;
  }
  block.readings.push_back(reading);
  ++block.reading;
  for (uint32_t c = reading->first; c <= reading->last; ++c)
    block.chunk_readings[c] += reading->chunks[c];
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
    block.shadow[at + i].pending = static_cast<uint16_t>(self->number + 1);
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
  Block& block = block_of(self);
  const int warp = self->thread / 32, lane = self->thread % 32;
  const uint64_t key = (static_cast<uint64_t>(self->line) << 32 | static_cast<uint64_t>(part) << 8 |
                        static_cast<uint64_t>(warp) << 2 | static_cast<uint64_t>(kind));
  Site& site = block.sites[key];
  const uint32_t n = site.made[lane]++;
  if (n == site.requests.size()) {
    site.requests.push_back(static_cast<uint32_t>(block.requests.size()));
    block.requests.push_back(Request{self->line, kind, 0, 0, {}});
  }
  Request& r = block.requests[site.requests[n]];
  r.bytes = static_cast<uint32_t>(bytes);
  r.lanes |= 1u << lane;
  r.places[lane] = p;
}

namespace {

/// Pieces of `unit` bytes that some lanes of a request touch, by number, each once and in order.
void touched(const Request& r, uint32_t lanes, uint32_t unit, std::vector<uintptr_t>& pieces) {
  pieces.clear();
  bool ordered = true;
  for (uint32_t rest = lanes; rest; rest &= rest - 1) {
    const uintptr_t p = r.places[__builtin_ctz(rest)];
    for (uintptr_t piece = p / unit; piece <= (p + r.bytes - 1) / unit; ++piece) {
      if (!pieces.empty() && piece == pieces.back()) continue;
      ordered = ordered && (pieces.empty() || piece > pieces.back());
      pieces.push_back(piece);
    }
  }
  if (ordered) return;
  std::sort(pieces.begin(), pieces.end());
  pieces.erase(std::unique(pieces.begin(), pieces.end()), pieces.end());
}

/// Passes over the 32 banks of 4 bytes: of 8-byte accesses half a warp at a time, of 16-byte ones a
/// quarter.
int64_t wavefronts(const Request& r, std::vector<uintptr_t>& words) {
  const int together = r.bytes <= 4 ? 32 : static_cast<int>(128 / r.bytes);
  int64_t total = 0;
  for (int first = 0; first < 32; first += together) {
    const uint32_t mask = together == 32 ? ~0u : ((1u << together) - 1u) << first;
    touched(r, r.lanes & mask, 4, words);
    int64_t banks[32] = {};
    for (const uintptr_t w : words) ++banks[w % 32];
    total += *std::max_element(banks, banks + 32);
  }
  return total;
}

/// Different bytes that the lanes touch.
int64_t bytes_touched(const Request& r, std::vector<uintptr_t>& places) {
  places.clear();
  for (uint32_t rest = r.lanes; rest; rest &= rest - 1) {
    places.push_back(r.places[__builtin_ctz(rest)]);
  }
  std::sort(places.begin(), places.end());
  int64_t total = 0;
  uintptr_t end = 0;
  for (const uintptr_t p : places) {
    total += p + r.bytes - std::max(p, std::min(end, p + r.bytes));
    end = p + r.bytes;
  }
  return total;
}

}  // namespace

void finish_requests(Block& block) {
  Launch& launch = *machine.launch;
  std::vector<uintptr_t> pieces;
  Counter* found = nullptr;
  for (const Request& r : block.requests) {
    if (!found || found->line != r.line || found->kind != r.kind) {
      found = std::find_if(
          launch.counters, launch.counters + launch.counter_count,
          [&r](const Counter& c) { return c.line == r.line && c.kind == r.kind; });
    }
    if (found == launch.counters + launch.counter_count) {
      if (launch.counter_count == launch.counter_capacity) {
        found = nullptr;
        continue;
      }
      ++launch.counter_count;
      *found = Counter{r.line, r.kind, 0, 0, 0, 0};
    }
    const bool global = r.kind < 2;
    const int64_t unit = global ? 32 : 128;
    if (global) touched(r, r.lanes, 32, pieces);
    ++found->requests;
    found->units += global ? static_cast<int64_t>(pieces.size()) : wavefronts(r, pieces);
    found->least += (bytes_touched(r, pieces) + unit - 1) / unit;
    found->bytes += static_cast<int64_t>(__builtin_popcount(r.lanes)) * r.bytes;
  }
  block.requests.clear();
  block.sites.clear();
}

}  // namespace tilec_host
