// What a kernel sees of the engines that work beside the threads: barriers in shared memory, bulk
// copies of tensors, products of warpgroups, clusters.
#ifndef TILEC_HOST_ENGINES_H
#define TILEC_HOST_ENGINES_H

namespace tilec_host {

/// A tensor map. Layout shared with tilec/emulator/tensor_maps.py; the fastest axis comes first.
struct TensorMap {
  uint32_t magic;
  uint8_t element, rank, swizzle, rounds;  // rounds: loads become tf32
  uint64_t base;
  uint64_t dims[5], strides[4];
  uint16_t box[5];
  uint8_t rest[30];
};

/// Types of a product's operands.
enum Operand : int8_t { kBf16, kF16, kTf32, kS8, kU8, kE4m3, kE5m2 };

/// One form of wgmma; the depth is 32 bytes.
struct ProductForm {
  int columns;
  Operand left, right;
  bool registers;  // the left operand's
  bool transposed_a, transposed_b;
};

void phase_init(const void* barrier, int arrivals);
void phase_init_fence();
/// Arrives at the barrier of this place in CTA `rank` of the cluster (-1: this one).
void phase_arrive(const void* barrier, int rank);
void phase_arrive_expect(const void* barrier, int bytes);
void phase_wait(const void* barrier, int parity);
void async_fence();

int cluster_rank();
/// Says what this thread has done so far to those who learn it when the cluster meets.
void cluster_tell();
/// Says that this thread is there.
void cluster_arrive();
/// Waits until all threads of the cluster have said so since; `learn`: what they have told.
void cluster_await(bool learn);
/// Both.
void cluster_meet(bool learn);
/// Writes to the same place in the shared memory of CTA `rank` of the cluster.
void write_peer(const SharedAddress& where, int rank, const void* from, int bytes, int access);
/// The same beside the threads: the barrier of this place in that CTA counts the bytes.
void send_peer(const SharedAddress& where, int rank, const void* from, int bytes,
               const void* barrier);
void set_registers(int count);

/// To the CTAs whose bits are set in `ranks`, 0: to this one.
void bulk_load(const SharedAddress& to, const TensorMap& map, const void* barrier, unsigned ranks,
               const int* at, int axes);
void bulk_store(const TensorMap& map, const SharedAddress& from, const int* at, int axes);
void bulk_commit();
void bulk_wait(int groups);
void check_map(const TensorMap& map);

void product_start(const ProductForm& form, void* top, void* bottom, uint64_t a,
                   const uint32_t* registers, uint64_t b, bool accumulate);
void product_fence();
void product_commit();
void product_wait(int groups);

}  // namespace tilec_host

/// As in cuda.h; what it holds is the emulator's.
struct alignas(128) CUtensorMap {
  tilec_host::TensorMap map;
};
static_assert(sizeof(CUtensorMap) == 128, "128 bytes");

#endif
