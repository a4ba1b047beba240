// What a kernel sees of the emulator: threads as fibers, memory that is checked, collective
// operations.
//
// A primitive takes the line of its caller as a default argument. Lines of the kernel text count
// from 1; what is included has lines of kForeign and above (a `#line` at its head), and such a call
// keeps the line that its caller noted.
#ifndef TILEC_HOST_RUNTIME_H
#define TILEC_HOST_RUNTIME_H

#include <math.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

#include <cmath>
#include <limits>
#include <type_traits>

#define __device__
#define __host__
#define __global__ inline
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __forceinline__ inline __attribute__((always_inline))

struct uint2 {
  uint32_t x, y;
};
struct uint4 {
  uint32_t x, y, z, w;
};
struct dim3 {
  unsigned x, y, z;
};

/// As CUDA has it, beside the functions of the C library.
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }

/// As CUDA has them; set whenever a fiber is resumed.
extern dim3 threadIdx, blockIdx, blockDim, gridDim;

namespace tilec_host {

constexpr int kForeign = 1000000;
constexpr int kMostThreads = 1024;

/// What went wrong; the number behind E of the diagnostic's code.
enum Code : int32_t {
  kGlobalBounds = 930,
  kSharedBounds = 931,
  kUninitialised = 932,
  kRace = 933,
  kDivergence = 934,
  kDeadlock = 935,
  kMisaligned = 936,
  kTrap = 937,
  kUncommitted = 938,
  kBarrierUse = 939,
  kTransactions = 940,
  kProxyFence = 941,
  kDescriptor = 942,
  kUnwaited = 943,
  kRegisters = 944,
  kCluster = 945,
  kRegisterFence = 946,
};

/// When an asynchronous write lands: at the wait that covers it, at its issue, or anywhere between.
/// Who runs ahead: the lower warps, the higher ones, or nobody in particular.
enum Mode : int32_t { kLate = 0, kEarly = 1, kChaos = 2 };

/// Memory that a kernel may use. `written` has a byte for each one, not 0 where it holds a value,
/// or is null.
struct Allocation {
  uintptr_t begin, end;
  uint8_t* written;
  const char* name;
  int32_t writable;
};

/// The first fault of a launch. `other` is the other thread, -1 for none; lines count in the kernel
/// text, 0: unknown.
struct Fault {
  int32_t code, line, thread, block, other, other_line;
  char text[512];
};

/// Requests of warps at one line. `units`: sectors of 32 bytes, or wavefronts of shared memory;
/// `least`: how many the bytes need at least. `kind`: 0 load, 1 store, 2 shared load, 3 shared
/// store.
struct Counter {
  int32_t line, kind;
  int64_t requests, units, least, bytes;
};

struct KeptStacks;

/// One launch, filled in by the caller. Layout shared with tilec/emulator/library.py.
struct Launch {
  int64_t grid;
  int32_t block, shared_bytes, resident, mode;
  uint64_t seed;
  const unsigned char* arguments;
  const Allocation* allocations;
  int32_t allocation_count, counter_capacity;
  Counter* counters;
  int32_t counter_count, counting;
  int32_t cluster;  // CTAs of a cluster, 1: none
  Fault fault;
  KeptStacks* kept;  // or null
};

struct Cta;

/// A thread. `line` is where it was last seen in the kernel text, `number` counts through the
/// CTAs of a cluster.
struct Thread {
  int32_t line;
  int32_t thread;
  int32_t number;
  uint32_t clock;
  uint32_t seen_epoch;
  Cta* cta;
};

/// Who touched a byte of shared memory last; a stamp is epoch, clock, thread and whether it was an
/// atomic.
struct Shadow {
  uint64_t write, read, read_other;
  uint16_t pending;  // 1 + the number of the thread whose asynchronous copy is under way
};

/// The part of a CTA that the checks use.
struct Cta {
  unsigned char* shared;
  Shadow* shadow;
  uint32_t shared_bytes;
  uint32_t epoch, first_epoch;
  int32_t pending,
      reading;  // bytes that copies are to write, operations that read beside the threads
};

extern Thread* self;
extern bool counting;
extern const Allocation* recent;

using Invoke = void (*)(void* kernel, const unsigned char* arguments);
int run(Launch* launch, Invoke invoke, void* kernel);
bool fits_cluster(Launch* launch, int cluster);

[[noreturn]] void fault(Code code, int other, int other_line, const char* form, ...)
    __attribute__((format(printf, 4, 5)));
const Allocation* find_allocation(uintptr_t p, int bytes, bool store);
void count_access(uintptr_t p, int bytes, int part, int kind);
void check_written(const Allocation* a, uintptr_t p, int bytes);
[[noreturn]] void misaligned(uintptr_t p, int access, const char* what);
void barrier(int id, int threads, bool waits);
void trap();

inline void note(int line) {
  if (line < kForeign) self->line = line;
}

// ---- collectives: the last lane of the mask to arrive runs `finish` over what all lanes brought

using Finish = void (*)(void* const* lanes, uint32_t present);
void collective(uint32_t mask, Finish finish, void* mine, const char* name);

/// A rendezvous of the lanes of `mask` that also orders their accesses to memory.
void sync_warp(uint32_t mask);

/// Waits until ready(what) holds, in turn with everybody else.
void wait_until(bool (*ready)(void*), void* what);

// ---- global memory

inline __attribute__((always_inline)) const Allocation* allocation_of(uintptr_t p, int bytes,
                                                                      bool store) {
  const Allocation* a = recent;
  if (p >= a->begin && p + bytes <= a->end && (!store || a->writable)) return a;
  return find_allocation(p, bytes, store);
}

/// `bytes` from global memory in accesses of `access` bytes each.
inline __attribute__((always_inline)) void read_global(void* to, const void* from, int bytes,
                                                       int access, int line) {
  note(line);
  const uintptr_t p = reinterpret_cast<uintptr_t>(from);
  if (p % access != 0) misaligned(p, access, "global");
  const Allocation* a = allocation_of(p, bytes, false);
  if (a->written) check_written(a, p, bytes);
  if (counting) {
    for (int i = 0; i < bytes; i += access) count_access(p + i, access, i, 0);
  }
  memcpy(to, from, bytes);
}

inline __attribute__((always_inline)) void write_global(void* to, const void* from, int bytes,
                                                        int access, int line) {
  note(line);
  const uintptr_t p = reinterpret_cast<uintptr_t>(to);
  if (p % access != 0) misaligned(p, access, "global");
  const Allocation* a = allocation_of(p, bytes, true);
  if (a->written) memset(a->written + (p - a->begin), 1, bytes);
  if (counting) {
    for (int i = 0; i < bytes; i += access) count_access(p + i, access, i, 1);
  }
  memcpy(to, from, bytes);
}

// ---- shared memory

enum Access { kRead, kWrite, kAtomic };
void check_shared(uint32_t offset, int bytes, Access access);

/// A place in shared memory and the array that it may not leave; both in bytes from the CTA's first
/// one.
struct SharedAddress {
  int64_t at, begin, end;
  int32_t line;
};

inline uint32_t shared_offset(const void* p) {
  return static_cast<uint32_t>(static_cast<const unsigned char*>(p) - self->cta->shared);
}

/// The address of a pointer into shared memory that knows no array: the bounds are the CTA's.
inline SharedAddress whole_shared(const void* p, int line) {
  return SharedAddress{shared_offset(p), 0, self->cta->shared_bytes, line};
}

[[noreturn]] void shared_bounds(const SharedAddress& where, int bytes, bool store);

inline unsigned char* enter_shared(const SharedAddress& where, int bytes, int access, Access kind) {
  note(where.line);
  if (where.at < where.begin || where.at + bytes > where.end ||
      where.end > self->cta->shared_bytes) {
    shared_bounds(where, bytes, kind != kRead);
  }
  if (where.at % access != 0) misaligned(where.at, access, "shared");
  check_shared(static_cast<uint32_t>(where.at), bytes, kind);
  if (counting) {
    for (int i = 0; i < bytes; i += access) {
      count_access(where.at + i, access, i, kind == kRead ? 2 : 3);
    }
  }
  return self->cta->shared + where.at;
}

inline void read_shared(void* to, const SharedAddress& where, int bytes, int access) {
  memcpy(to, enter_shared(where, bytes, access, kRead), bytes);
}

inline void write_shared(const SharedAddress& where, const void* from, int bytes, int access) {
  memcpy(enter_shared(where, bytes, access, kWrite), from, bytes);
}

/// The CTA's memory as a T, at its first byte.
void* static_shared(uint32_t bytes, uint32_t align);

/// The dynamic shared memory behind it.
void* dynamic_shared();

/// The same for a struct whose launch asks for `align` bytes more.
void* dynamic_shared_aligned(uint32_t align);

// ---- asynchronous copies of this thread

/// Starts a copy of `bytes`, of which the first `read` come from global memory and the others
/// become zero.
void async_copy(const SharedAddress& to, const void* from, int bytes, int read);
void async_commit();
void async_wait(int groups);

// ---- entry

template <class Next>
inline Next take(const unsigned char* arguments, size_t& offset) {
  offset = (offset + alignof(Next) - 1) / alignof(Next) * alignof(Next);
  Next value;
  memcpy(&value, arguments + offset, sizeof(Next));
  offset += sizeof(Next);
  return value;
}

template <class Function>
struct Call;
template <class... A>
struct Call<void (*)(A...)> {
  struct Do {
    template <class... B>
    Do(void (*kernel)(A...), B... values) {
      kernel(values...);
    }
  };
  static void go(void* kernel, const unsigned char* arguments) {
    size_t offset = 0;
    // Braces: the arguments are taken from the left to the right.
    Do{reinterpret_cast<void (*)(A...)>(kernel), take<A>(arguments, offset)...};
    (void)arguments;
    (void)offset;
  }
};

/// `cluster` is what the kernel's attribute says.
template <class Function>
int enter(Launch* launch, Function kernel, int cluster = 1) {
  if (!fits_cluster(launch, cluster)) return 1;
  return run(launch, &Call<Function>::go, reinterpret_cast<void*>(kernel));
}

}  // namespace tilec_host

#include "engines.h"

// ---- the CUDA built-ins that kernel text may use

inline void __syncthreads(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::barrier(0, 0, true);
}

inline void __trap(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::trap();
}

#endif
