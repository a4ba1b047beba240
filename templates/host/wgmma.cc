// Products of warpgroups, from the PTX ISA: descriptors, canonical layouts, fragments. Built once.
#include "machine.h"

namespace tilec_host {

namespace {

constexpr int kRows = 64, kDepthBytes = 32;
constexpr uint32_t kPoison = 0x7fc5dead;  // a NaN

Warpgroup& warpgroup_of(const Fiber& fiber) {
  Block& block = block_of(&fiber);
  const size_t group = fiber.thread / kGroupThreads;
  if (group >= block.warpgroups.size()) {
    fault(kDivergence, -1, 0, "is in a warpgroup of fewer than 128 threads");
  }
  return block.warpgroups[group];
}

/// All threads of a warpgroup meet; the last one runs finish(group, what all brought).
template <class F>
void meet_warpgroup(void* mine, const char* name, F finish) {
  Fiber& fiber = me();
  Warpgroup& group = warpgroup_of(fiber);
  const int first = fiber.thread / kGroupThreads * kGroupThreads;
  Block& block = block_of(self);
  if (group.arrived == 0) {
    group.line = fiber.line;
  } else if (group.line != fiber.line) {
    fault(kDivergence, -1, group.line, "calls %s while others of its warpgroup are at line %d",
          name, group.line);
  }
  group.mine[fiber.thread - first] = mine;
  if (++group.arrived < kGroupThreads) {
    fiber.state = kWarpgroup;
    leave();
    return;
  }
  group.arrived = 0;
  finish(group);
  for (int i = first; i < first + kGroupThreads; ++i) block.fibers[i].state = kReady;
  machine.progress = true;
}

// ---- operands in shared memory

/// A matrix descriptor, decoded; all in bytes.
struct Descriptor {
  uint32_t start, leading, stride;
  int span;  // of the swizzle, 0: none
};

Descriptor decode(uint64_t bits, const char* which) {
  static const int kSpans[4] = {0, 128, 64, 32};
  const uint64_t kUnused = uint64_t(3) << 14 | uint64_t(3) << 30 | uint64_t(0x3fffc) << 44;
  if (bits & kUnused) {
    fault(kDescriptor, -1, 0, "has a descriptor of %s with bits set that must be 0: %016llx", which,
          static_cast<unsigned long long>(bits));
  }
  const auto field = [&](int first) { return static_cast<uint32_t>(bits >> first & 0x3fff) << 4; };
  return {field(0), field(16), field(32), kSpans[bits >> 62]};
}

/// Where a byte of an operand lies: `n` counts along rows of the left one, columns of the right
/// one, `k` along the depth in elements. PTX ISA, canonical layouts of wgmma.
uint32_t place_of(const Descriptor& d, bool mn_major, int n, int k, int element) {
  uint32_t at;
  if (mn_major) {
    const int panel = d.span ? d.span / element : 8;
    at = n / panel * (d.span ? d.leading : d.stride) + k / 8 * (d.span ? d.stride : d.leading) +
         k % 8 * (d.span ? d.span : 16) + n % panel * element;
  } else {
    const int byte = k * element;
    at = n / 8 * d.stride +
         (d.span ? n % 8 * d.span + byte : byte / 16 * d.leading + n % 8 * 16 + byte % 16);
  }
  at += d.start;
  const uint32_t row = d.span ? at >> 7 & (d.span / 16 - 1) : 0;
  return at ^ row << 4;
}

int bytes_of(Operand kind) { return kind == kTf32 ? 4 : kind == kBf16 || kind == kF16 ? 2 : 1; }

/// Marks the chunks of an operand.
void mark(Reading& reading, const Descriptor& d, bool mn_major, int count, Operand kind) {
  const int element = bytes_of(kind), depth = kDepthBytes / element, run = 16 / element;
  for (int n = 0; n < count; n += mn_major ? run : 1) {
    for (int k = 0; k < depth; k += mn_major ? 1 : run) {
      const uint32_t at = place_of(d, mn_major, n, k, element);
      if (at + 16 > self->cta->shared_bytes) {
        fault(kSharedBounds, -1, 0,
              "has an operand with 16 bytes at byte %u of %u of shared memory", at,
              self->cta->shared_bytes);
      }
      reading.chunks[at / 16] = true;
    }
  }
}

// ---- values

double power(int exponent) { return std::ldexp(1.0, exponent); }

/// A binary float of these field widths, with infinities where the format has them.
double small_float(uint32_t bits, int exponent_bits, int mantissa_bits, bool infinite) {
  const int top = (1 << exponent_bits) - 1, bias = top / 2;
  const int exponent = bits >> mantissa_bits & top;
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  double x;
  if (exponent == top && infinite) {
    x = mantissa ? NAN : INFINITY;
  } else if (exponent == top && mantissa == (1 << mantissa_bits) - 1) {
    x = NAN;
  } else {
    const int whole = exponent ? mantissa + (1 << mantissa_bits) : mantissa;
    x = whole * power((exponent ? exponent : 1) - bias - mantissa_bits);
  }
  return bits >> (exponent_bits + mantissa_bits) & 1 ? -x : x;
}

const double* table_of(Operand kind) {
  static std::vector<double> tables[7];
  std::vector<double>& t = tables[kind];
  if (t.empty()) {
    t.resize(kind == kF16 ? 1 << 16 : 1 << 8);
    for (size_t i = 0; i < t.size(); ++i) {
      const uint32_t bits = static_cast<uint32_t>(i);
      t[i] = kind == kF16    ? small_float(bits, 5, 10, true)
             : kind == kE4m3 ? small_float(bits, 4, 3, false)
             : kind == kE5m2 ? small_float(bits, 5, 2, true)
             : kind == kS8   ? static_cast<double>(static_cast<int8_t>(bits))
                             : static_cast<double>(bits);
    }
  }
  return t.data();
}

double value_of(Operand kind, const void* p) {
  if (kind == kBf16 || kind == kTf32) {
    uint32_t bits = 0;
    memcpy(reinterpret_cast<char*>(&bits) + (kind == kBf16 ? 2 : 0), p, kind == kBf16 ? 2 : 4);
    if (kind == kTf32) bits &= ~0x1fffu;
    float x;
    memcpy(&x, &bits, 4);
    return x;
  }
  uint16_t bits = 0;
  memcpy(&bits, p, bytes_of(kind));
  return table_of(kind)[bits];
}

/// Row and place along the depth of element i of a thread's registers of the left operand.
void left_element(Operand kind, int thread, int i, int& row, int& k) {
  const int group = thread % 32 / 4, lane = thread % 4, base = thread / 32 * 16;
  switch (bytes_of(kind)) {
    case 4:
      row = base + group + i % 2 * 8;
      k = lane + i / 2 * 4;
      break;
    case 2:
      row = base + group + i / 2 % 2 * 8;
      k = lane * 2 + i % 2 + i / 4 * 8;
      break;
    default:
      row = base + group + i / 4 % 2 * 8;
      k = lane * 4 + i % 4 + i / 8 * 16;
  }
}

/// The word of the sums for element i of a thread's accumulators.
uint32_t& sum_of(Sums& sums, int thread, int i) {
  const int row = thread / 32 * 16 + thread % 32 / 4 + i / 2 % 2 * 8;
  const int col = i / 4 * 8 + thread % 4 * 2 + i % 2;
  return sums.values[row * sums.columns + col];
}
uint32_t& register_of(const Sums& sums, int thread, int i) {
  return (i / 2 % 2 ? sums.bottom : sums.top)[thread][i / 4 * 2 + i % 2];
}

void compute(Product& p) {
  if (p.done) return;
  p.done = true;
  static double left[kDepthBytes][kRows], right[kDepthBytes][256], total[256];
  const ProductForm& form = p.form;
  const int element = bytes_of(form.left), depth = kDepthBytes / element, columns = form.columns;
  const unsigned char* shared = self->cta->shared;
  if (form.registers) {
    for (int thread = 0; thread < kGroupThreads; ++thread) {
      const auto* bytes = reinterpret_cast<const unsigned char*>(&p.registers[4 * thread]);
      for (int i = 0; i < 16 / element; ++i) {
        int row, k;
        left_element(form.left, thread, i, row, k);
        left[k][row] = value_of(form.left, bytes + i * element);
      }
    }
  } else {
    const Descriptor d = decode(p.a, "a");
    for (int row = 0; row < kRows; ++row) {
      for (int k = 0; k < depth; ++k) {
        left[k][row] =
            value_of(form.left, shared + place_of(d, form.transposed_a, row, k, element));
      }
    }
  }
  const Descriptor d = decode(p.b, "b");
  for (int n = 0; n < columns; ++n) {
    for (int k = 0; k < depth; ++k) {
      right[k][n] = value_of(form.right, shared + place_of(d, form.transposed_b, n, k, element));
    }
  }
  for (int row = 0; row < kRows; ++row) {
    uint32_t* sums = &p.sums->values[row * columns];
    for (int n = 0; n < columns; ++n) {
      float x;
      memcpy(&x, &sums[n], 4);
      total[n] = !p.accumulate ? 0.0 : p.sums->integer ? static_cast<int32_t>(sums[n]) : x;
    }
    for (int k = 0; k < depth; ++k) {
      const double a = left[k][row];
      for (int n = 0; n < columns; ++n) total[n] += a * right[k][n];
    }
    for (int n = 0; n < columns; ++n) {
      if (p.sums->integer) {
        sums[n] = static_cast<uint32_t>(static_cast<int64_t>(total[n]));
      } else {
        const float x = static_cast<float>(total[n]);
        memcpy(&sums[n], &x, 4);
      }
    }
  }
}

// ---- accumulators

void take_registers(Sums& sums, int thread, bool poisons) {
  for (int i = 0; i < sums.columns / 2; ++i) {
    sum_of(sums, thread, i) = register_of(sums, thread, i);
    if (poisons) register_of(sums, thread, i) = kPoison;
  }
  sums.held[thread] = poisons;
}

void give_registers(Sums& sums, int thread) {
  for (int i = 0; i < sums.columns / 2; ++i) {
    if (sums.held[thread] && register_of(sums, thread, i) != kPoison) {
      fault(kRace, -1, 0, "has written to an accumulator of a product under way");
    }
    register_of(sums, thread, i) = sum_of(sums, thread, i);
  }
  sums.held[thread] = false;
}

/// What a thread brings to a product.
struct Brought {
  uint32_t *top, *bottom;
  uint64_t a, b;
  bool accumulate;
  const uint32_t* registers;
  const ProductForm* form;
};

/// The accumulators of a product: those of one under way, or new ones.
std::shared_ptr<Sums> sums_for(const Warpgroup& group, const Brought* const* brought,
                               bool integer) {
  const int columns = brought[0]->form->columns;
  for (const Product& p : group.products) {
    bool same = p.sums->columns == columns, apart = true;
    for (int t = 0; t < kGroupThreads; ++t) {
      same = same && p.sums->top[t] == brought[t]->top && p.sums->bottom[t] == brought[t]->bottom;
      for (const uint32_t* mine : {brought[t]->top, brought[t]->bottom}) {
        for (const uint32_t* other : {p.sums->top[t], p.sums->bottom[t]}) {
          apart = apart && (mine >= other + p.sums->columns / 4 || other >= mine + columns / 4);
        }
      }
    }
    if (same) return p.sums;
    if (!apart) fault(kRace, -1, 0, "starts a product into some accumulators of one under way");
  }
  auto sums = std::make_shared<Sums>();
  sums->columns = columns;
  sums->integer = integer;
  sums->values.resize(kRows * columns);
  for (int t = 0; t < kGroupThreads; ++t) {
    sums->top[t] = brought[t]->top;
    sums->bottom[t] = brought[t]->bottom;
  }
  return sums;
}

std::shared_ptr<Reading> reading_of(const Brought& brought, int number) {
  const ProductForm& form = *brought.form;
  auto reading = std::make_shared<Reading>();
  if (!form.registers) mark(*reading, decode(brought.a, "a"), form.transposed_a, kRows, form.left);
  mark(*reading, decode(brought.b, "b"), form.transposed_b, form.columns, form.right);
  reading->left = static_cast<int>(reading->chunks.count());
  reading->first = static_cast<uint32_t>(reading->chunks._Find_first());
  reading->number = number;
  reading->threads = reading->unfinished = kGroupThreads;
  reading->line = self->line;
  reading->done.resize(kGroupThreads);
  for (uint32_t c = reading->first; c < kChunks;
       c = static_cast<uint32_t>(reading->chunks._Find_next(c))) {
    reading->last = c;
  }
  return reading;
}

/// What all threads of a warpgroup know.
void common_knowledge(Warpgroup& group, Block& block, int first) {
  group.known = clocks_of(block.fibers[first]);
  for (int t = 1; t < kGroupThreads; ++t) {
    const std::vector<uint32_t>& clocks = clocks_of(block.fibers[first + t]);
    for (size_t i = 0; i < clocks.size(); ++i) group.known[i] = std::min(group.known[i], clocks[i]);
  }
}

void start(Warpgroup& group) {
  Block& block = block_of(self);
  const int first = self->thread / kGroupThreads * kGroupThreads;
  const auto* brought = reinterpret_cast<const Brought* const*>(group.mine);
  const Brought& mine = *brought[0];
  for (int t = 1; t < kGroupThreads; ++t) {
    const Brought& other = *brought[t];
    if (other.a != mine.a || other.b != mine.b || other.accumulate != mine.accumulate) {
      fault(kDescriptor, first + t, 0,
            "starts a product whose descriptors differ between threads %d and %d", first,
            first + t);
    }
  }
  const bool early = machine.launch->mode == kEarly;
  const ProductForm& form = *mine.form;
  const auto sums = sums_for(group, brought, form.left == kS8 || form.left == kU8);
  for (int t = 0; t < kGroupThreads; ++t) {
    if (sums->last == 0 && !block.fibers[first + t].registers_fenced) {
      fault(kRegisterFence, first + t, 0,
            "starts a product, and thread %d has not executed `wgmma_fence` since it got registers "
            "of the last one back",
            first + t);
    }
  }
  Product p{++group.started,
            form,
            mine.a,
            mine.b,
            mine.accumulate,
            false,
            {},
            sums,
            reading_of(mine, block.fibers[first].number)};
  sums->last = p.number;
  common_knowledge(group, block, first);
  const Reading& reading = *p.reading;
  for (uint32_t c = reading.first; c <= reading.last; ++c) {
    if (reading.chunks[c])
      check_async_read(block, group.known, c * kChunkBytes, kChunkBytes, "multiplies");
  }
  begin_reading(block, p.reading);
  for (int t = 0; t < kGroupThreads; ++t) {
    if (!sums->held[t]) take_registers(*sums, t, !early);
    if (form.registers) {
      p.registers.insert(p.registers.end(), brought[t]->registers, brought[t]->registers + 4);
      // a product waits for the registers that it reads
      Fiber& fiber = block.fibers[first + t];
      fiber.taken_by_product = ++fiber.clock;
    }
    ++block.fibers[first + t].products;
  }
  if (early) {
    compute(p);
    for (int t = 0; t < kGroupThreads; ++t) give_registers(*sums, t);
  }
  group.products.push_back(std::move(p));
}

}  // namespace

void product_start(const ProductForm& form, void* top, void* bottom, uint64_t a,
                   const uint32_t* registers, uint64_t b, bool accumulate) {
  drift_engines();
  Brought mine{static_cast<uint32_t*>(top),
               static_cast<uint32_t*>(bottom),
               a,
               b,
               accumulate,
               registers,
               &form};
  meet_warpgroup(&mine, "`wgmma`", start);
}

void product_fence() {
  warpgroup_of(me());
  collective(~0u, nullptr, nullptr, "`wgmma_fence`");
  me().registers_fenced = true;
}

void product_commit() {
  drift_engines();
  Fiber& fiber = me();
  const Warpgroup& group = warpgroup_of(fiber);
  collective(~0u, nullptr, nullptr, "`wgmma_commit`");
  const int64_t last =
      fiber.product_groups.empty() ? fiber.products_waited : fiber.product_groups.back();
  fiber.product_groups.push_back(last + fiber.products);
  fiber.products = 0;
  (void)group;
}

void product_wait(int groups) {
  drift_engines();
  Fiber& fiber = me();
  Warpgroup& group = warpgroup_of(fiber);
  collective(~0u, nullptr, nullptr, "`wgmma_wait`");
  if (fiber.products) {
    fault(kUncommitted, -1, 0, "waits for products while %lld are not committed",
          static_cast<long long>(fiber.products));
  }
  int64_t last = fiber.products_waited;
  while (static_cast<int>(fiber.product_groups.size()) > groups) {
    last = fiber.product_groups.front();
    fiber.product_groups.pop_front();
  }
  const int mine = fiber.thread % kGroupThreads;
  for (Product& p : group.products) {
    if (p.number <= fiber.products_waited || p.number > last) continue;
    compute(p);
    p.reading->done[mine] = fiber.clock;
    --p.reading->unfinished;
  }
  for (Product& p : group.products) {
    if (p.number > last || p.sums->last > last) continue;
    fiber.registers_fenced = false;
    if (p.sums->held[mine]) give_registers(*p.sums, mine);
  }
  fiber.products_waited = last;
  while (!group.products.empty() && group.products.front().reading->unfinished == 0) {
    group.products.pop_front();
  }
}

void drift_products() {
  for (Warpgroup& group : block_of(self).warpgroups) {
    for (Product& p : group.products) {
      if (p.done) continue;
      if (random_below(8) == 0) compute(p);
      break;
    }
  }
}

void set_registers(int count) {
  if (count % 8 != 0 || count < 24 || count > 256) {
    fault(kRegisters, -1, 0, "sets its registers to %d: a multiple of 8 from 24 to 256", count);
  }
  meet_warpgroup(nullptr, "a change of registers", [](Warpgroup&) {});
}

}  // namespace tilec_host
