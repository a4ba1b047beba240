// What is under way beside the threads: phases of barriers, bulk copies, products.
#ifndef TILEC_HOST_FLIGHT_H
#define TILEC_HOST_FLIGHT_H

#include <bitset>
#include <deque>
#include <map>
#include <memory>
#include <vector>

#include "runtime.h"

namespace tilec_host {

struct Block;

constexpr uint32_t kSharedLimit = 256 << 10;
constexpr int kChunkBytes = 16;
constexpr int kChunks = kSharedLimit / kChunkBytes;
constexpr int kGroupThreads = 128;

/// Chunks of shared memory that an operation reads, and when each of its threads knew that it had:
/// of every warp one must be known to who writes there.
struct Reading {
  std::bitset<kChunks> chunks;
  uint32_t first, last;
  int left;                   // chunks that nobody has written since
  int number, threads, line;  // the first of its threads, by its number in the cluster
  int unfinished;
  std::vector<uint32_t> done;  // by thread: its clock behind the wait, 0: has not waited
};

/// A row of a box: where its first byte comes from or goes to, and which bytes of it are inside of
/// the tensor.
struct BoxRow {
  uintptr_t place;
  int skipped, bytes;
};

struct Box {
  std::vector<BoxRow> rows;
  int row_bytes, bytes, swizzle;
  bool rounds;
};

/// A load that has not landed, or a value that another CTA has sent.
struct BulkLoad {
  std::shared_ptr<Box> box;
  uint32_t at;
  int issuer, line;  // its number in the cluster
  std::vector<unsigned char> sent;
};

struct BulkStore {
  std::shared_ptr<Box> box;
  uint32_t at;
  std::shared_ptr<Reading> reading;
  bool done;
};

/// An mbarrier.
struct PhaseBarrier {
  uint32_t at;
  int arrivals, missing;  // of the phase: that end it, that have not come
  int64_t bytes;          // announced and not landed
  int64_t phase;          // how many have ended
  int agent;
  uint64_t init;  // the stamp of its initialisation
  int init_line, expect_line;
  bool fenced, proxied;              // init is seen by the cluster, by asynchronous copies
  bool known;                        // by all threads of the cluster
  std::vector<uint32_t> now, ended;  // what arrivals know, and did when the last phase ended
  std::vector<int> waiting;          // numbers of threads that have not gone on
  std::deque<BulkLoad> loads;
  std::map<int, int64_t> seen;           // by thread: how many phases had ended when it last waited
  int64_t remote_phase, remote_meeting;  // of the last arrival from another CTA, -1: none
};

/// The accumulators of products that are under way, 64 rows.
struct Sums {
  int columns;
  bool integer;
  uint32_t* top[kGroupThreads];
  uint32_t* bottom[kGroupThreads];
  std::vector<uint32_t> values;
  std::bitset<kGroupThreads> held;  // whose registers are poisoned
  int64_t last;                     // the youngest product
};

struct Product {
  int64_t number;
  ProductForm form;
  uint64_t a, b;
  bool accumulate, done;
  std::vector<uint32_t> registers;  // four of each thread
  std::shared_ptr<Sums> sums;
  std::shared_ptr<Reading> reading;
};

struct Warpgroup {
  int arrived, line;
  void* mine[kGroupThreads];
  int64_t started;
  std::deque<Product> products;
  std::vector<uint32_t> known;  // to all of its threads
};

}  // namespace tilec_host

#endif
