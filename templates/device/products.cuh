//@ primitive SharedTile
/// kRows x kCols elements of shared memory in 16-byte chunks, placed so that eight neighbouring
/// rows of one column of chunks lie in eight different bank groups: by exclusive or of the chunk
/// with the row, or, where the number of chunks does not allow that, by an odd pitch.
template <class T, int kRows, int kCols>
struct alignas(128) SharedTile {
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr int kChunks = kCols / kChunk;
  static constexpr bool kSwizzled = kChunks % 8 == 0 || (kChunks & (kChunks - 1)) == 0;
  static constexpr int kPitch = kSwizzled || kChunks % 2 == 1 ? kCols : kCols + kChunk;
  static_assert(kCols % kChunk == 0, "whole chunks");
  T storage[kRows * kPitch];

  __device__ __forceinline__ T* at(int row, int col) {
    int chunk = col / kChunk;
    if constexpr (kSwizzled && kChunks >= 8) {
      chunk ^= row % 8;
    } else if constexpr (kSwizzled && kChunks > 1) {
      chunk ^= row / (8 / kChunks) % kChunks;
    }
    return storage + row * kPitch + chunk * kChunk + col % kChunk;
  }

  /// The element `rows` below and `cols` behind (row, col): `rows` a multiple of 8, `cols` one of
  /// two chunks, `col` in the first two. What is constant of both costs a thread no register, and
  /// what turns its chunk is one operation.
  __device__ __forceinline__ T* beyond(int row, int col, int rows, int cols) {
    if constexpr (kSwizzled && kChunks >= 8) {
      constexpr int kSpan = 8 * kChunk;
      const int chunk = (col / kChunk) ^ (row % 8);
      const int place = row * kPitch + chunk * kChunk + col % kChunk;
      return storage + (place ^ cols % kSpan) + cols / kSpan * kSpan + rows * kPitch;
    } else {
      return at(row + rows, col + cols);
    }
  }
};
//@ end

//@ primitive SteppedTile needs SharedTile
/// The same for coordinates that are not negative: the compiler then sees that rows eight apart,
/// and multiples of that, lie at constant distances, and needs one register for all of them.
template <class T, int kRows, int kCols>
struct SteppedTile : SharedTile<T, kRows, kCols> {
  using Base = SharedTile<T, kRows, kCols>;

  __device__ __forceinline__ T* at(int row, int col) {
    unsigned chunk = static_cast<unsigned>(col) / Base::kChunk;
    if constexpr (Base::kSwizzled && Base::kChunks >= 8) {
      chunk ^= static_cast<unsigned>(row) % 8;
    } else if constexpr (Base::kSwizzled && Base::kChunks > 1) {
      chunk ^= static_cast<unsigned>(row) / (8 / Base::kChunks) % Base::kChunks;
    }
    return this->storage + row * Base::kPitch + chunk * Base::kChunk +
           static_cast<unsigned>(col) % Base::kChunk;
  }
};
//@ end

//@ primitive PlainTile
/// kRows x kCols elements of shared memory for load_matrix_sync, which knows no swizzle: rows lie
/// an odd number of 16-byte chunks apart, so that eight of them lie in eight different bank groups.
/// 8-bit elements lie in panels of 16 columns, so that blocks start at multiples of 32 bytes.
template <class T, int kRows, int kCols>
struct alignas(128) PlainTile {
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr bool kPanels = sizeof(T) == 1;
  static constexpr int kPitch = kPanels ? kChunk : kCols + (kCols / kChunk % 2 == 0 ? kChunk : 0);
  static_assert(kCols % kChunk == 0, "whole chunks");
  T storage[kRows * (kPanels ? kCols : kPitch)];

  __device__ __forceinline__ T* at(int row, int col) {
    if constexpr (kPanels) {
      return storage + (col / kChunk * kRows + row) * kChunk + col % kChunk;
    } else {
      return storage + row * kPitch + col;
    }
  }
};
//@ end

//@ primitive store_shared_vector needs Vector includes <cstring>
/// A vector of 16 bytes to shared memory.
template <class T, int N>
__device__ __forceinline__ void store_shared_vector(T* p, const Vector<T, N>& v) {
  *reinterpret_cast<Vector<T, N>*>(p) = v;
}
//@ end

//@ primitive dynamic_shared
/// The CTA's dynamic shared memory, laid out as the struct T.
template <class T>
__device__ __forceinline__ T& dynamic_shared() {
  extern __shared__ uint4 dynamic_shared_storage[];
  return *reinterpret_cast<T*>(dynamic_shared_storage);
}
//@ end

//@ primitive OperandA includes <cstdint>
/// A warp's 16 x k block of the left operand, in the registers of mma.
struct OperandA {
  uint32_t x[4];
};
//@ end

//@ primitive OperandB includes <cstdint>
/// A warp's k x 8 block of the right operand.
struct OperandB {
  uint32_t x[2];
};
//@ end

//@ primitive load_a needs OperandA lane_id ldmatrix_x4
/// Rows row … row+15 and 32 bytes of k from a tile that holds the operand's rows as its rows.
template <class Tile>
__device__ __forceinline__ void load_a(OperandA& a, Tile& tile, int row, int k) {
  const int lane = lane_id();
  ldmatrix_x4(a.x, tile.beyond(lane % 16, lane / 16 * Tile::kChunk, row, k));
}
//@ end

//@ primitive load_a_transposed needs OperandA lane_id ldmatrix_x4_trans
/// The same from a tile that holds k as its rows (16-bit elements).
template <class Tile>
__device__ __forceinline__ void load_a_transposed(OperandA& a, Tile& tile, int row, int k) {
  const int lane = lane_id();
  ldmatrix_x4_trans(a.x, tile.at(k + lane / 16 * 8 + lane % 8, row + lane / 8 % 2 * 8));
}
//@ end

//@ primitive load_b needs OperandB lane_id ldmatrix_x4 ldmatrix_x2
/// kTiles blocks of eight columns from `column` on and 32 bytes of k, from a tile that holds the
/// operand's columns as its rows.
template <int kTiles, class Tile>
__device__ __forceinline__ void load_b(OperandB (&b)[kTiles], Tile& tile, int column, int k) {
  const int lane = lane_id();
#pragma unroll
  for (int n = 0; n + 1 < kTiles; n += 2) {
    uint32_t r[4];
    ldmatrix_x4(r, tile.beyond(lane / 16 * 8 + lane % 8, lane / 8 % 2 * Tile::kChunk,
                               column + n * 8, k));
    b[n].x[0] = r[0];
    b[n].x[1] = r[1];
    b[n + 1].x[0] = r[2];
    b[n + 1].x[1] = r[3];
  }
  if constexpr (kTiles % 2 == 1) {
    ldmatrix_x2(b[kTiles - 1].x, tile.beyond(lane % 8, lane / 8 % 2 * Tile::kChunk,
                                             column + (kTiles - 1) * 8, k));
  }
}
//@ end

//@ primitive load_b_transposed needs OperandB lane_id ldmatrix_x4_trans ldmatrix_x2_trans
/// The same from a tile that holds k as its rows (16-bit elements). More blocks than one begin at a
/// multiple of 16 columns.
template <int kTiles, class Tile>
__device__ __forceinline__ void load_b_transposed(OperandB (&b)[kTiles], Tile& tile, int column,
                                                  int k) {
  const int lane = lane_id();
#pragma unroll
  for (int n = 0; n + 1 < kTiles; n += 2) {
    uint32_t r[4];
    ldmatrix_x4_trans(r, tile.beyond(lane / 8 % 2 * 8 + lane % 8, lane / 16 * 8, k,
                                     column + n * 8));
    b[n].x[0] = r[0];
    b[n].x[1] = r[1];
    b[n + 1].x[0] = r[2];
    b[n + 1].x[1] = r[3];
  }
  if constexpr (kTiles % 2 == 1) {
    ldmatrix_x2_trans(b[kTiles - 1].x, tile.at(k + lane / 8 % 2 * 8 + lane % 8,
                                               column + (kTiles - 1) * 8));
  }
}
//@ end

//@ primitive pack_a needs OperandA Vector includes <cstring>
/// The left operand from accumulator-shaped registers: rows `top` and eight below it, columns of
/// two neighbouring blocks of eight (16-bit elements).
template <class T>
__device__ __forceinline__ void pack_a(OperandA& a, const Vector<T, 2>& top_left,
                                       const Vector<T, 2>& bottom_left,
                                       const Vector<T, 2>& top_right,
                                       const Vector<T, 2>& bottom_right) {
  static_assert(sizeof(T) == 2, "16-bit elements");
  memcpy(&a.x[0], &top_left, 4);
  memcpy(&a.x[1], &bottom_left, 4);
  memcpy(&a.x[2], &top_right, 4);
  memcpy(&a.x[3], &bottom_right, 4);
}
//@ end

//@ primitive LeftBytes needs Vector includes <cstdint> <cstring>
/// Registers of a left operand of 8-bit elements, in the order of accumulators: pairs of columns in
/// each block of eight, those of two neighbouring blocks in a word. Index it with constants only.
template <class T, int kRows, int kBlocks>
struct LeftBytes {
  static_assert(sizeof(T) == 1 && kBlocks % 2 == 0, "pairs of blocks of 8-bit elements");
  uint32_t words[kRows][kBlocks / 2];

  struct Pair {
    uint32_t& word;
    const int block;
    __device__ __forceinline__ void operator=(const Vector<T, 2>& pair) {
      uint16_t bits;
      memcpy(&bits, &pair, 2);
      word = block % 2 ? (word & 0xffffu) | uint32_t{bits} << 16 : (word & 0xffff0000u) | bits;
    }
  };
  struct Row {
    uint32_t* const words;
    __device__ __forceinline__ Pair operator[](int block) const {
      return {words[block / 2], block};
    }
  };
  __device__ __forceinline__ Row operator[](int row) { return {words[row]}; }
};
//@ end

//@ primitive take_left needs LeftBytes OperandA
/// The left operand of a thread's rows `row` and row + 1 for 32 columns from block `block` on:
/// places of the consumed axis stand for columns as in an interleaved right operand.
template <class T, int kRows, int kBlocks>
__device__ __forceinline__ void take_left(OperandA& a, const LeftBytes<T, kRows, kBlocks>& left,
                                          int row, int block) {
  a.x[0] = left.words[row][block / 2];
  a.x[1] = left.words[row + 1][block / 2];
  a.x[2] = left.words[row][block / 2 + 1];
  a.x[3] = left.words[row + 1][block / 2 + 1];
}
//@ end

//@ primitive gather_quad needs Vector bitcast shuffle_xor lane_id includes <cstdint>
/// Four lanes hold neighbouring pairs of a row in each of four blocks of eight columns; afterwards
/// lane q of them holds all eight elements of block q (16-bit elements): a 4 x 4 transposition of
/// words in two exchanges.
template <class T>
__device__ __forceinline__ Vector<T, 8> gather_quad(const Vector<T, 2>& a, const Vector<T, 2>& b,
                                                    const Vector<T, 2>& c,
                                                    const Vector<T, 2>& d) {
  static_assert(sizeof(T) == 2, "16-bit elements");
  const bool odd = (lane_id() & 1) != 0;
  const bool upper = (lane_id() & 2) != 0;
  const uint32_t w0 = bitcast<uint32_t>(a);
  const uint32_t w1 = bitcast<uint32_t>(b);
  const uint32_t w2 = bitcast<uint32_t>(c);
  const uint32_t w3 = bitcast<uint32_t>(d);
  const uint32_t first = shuffle_xor(odd ? w0 : w1, 1);
  const uint32_t second = shuffle_xor(odd ? w2 : w3, 1);
  const uint32_t p0 = odd ? first : w0;
  const uint32_t p1 = odd ? w1 : first;
  const uint32_t q0 = odd ? second : w2;
  const uint32_t q1 = odd ? w3 : second;
  const uint32_t third = shuffle_xor(upper ? p0 : q0, 2);
  const uint32_t fourth = shuffle_xor(upper ? p1 : q1, 2);
  Vector<uint32_t, 4> words;
  words[0] = upper ? third : p0;
  words[1] = upper ? fourth : p1;
  words[2] = upper ? q0 : third;
  words[3] = upper ? q1 : fourth;
  return bitcast<Vector<T, 8>>(words);
}
//@ end

//@ primitive transpose_quad needs shuffle_xor lane_id includes <cstdint>
/// Word n of lane q of four becomes word q of lane n, in two exchanges.
[[maybe_unused]] __device__ __forceinline__ void transpose_quad(uint32_t (&w)[4]) {
  const bool odd = (lane_id() & 1) != 0;
  const bool upper = (lane_id() & 2) != 0;
  const uint32_t first = shuffle_xor(odd ? w[0] : w[1], 1);
  const uint32_t second = shuffle_xor(odd ? w[2] : w[3], 1);
  const uint32_t p0 = odd ? first : w[0];
  const uint32_t p1 = odd ? w[1] : first;
  const uint32_t q0 = odd ? second : w[2];
  const uint32_t q1 = odd ? w[3] : second;
  const uint32_t third = shuffle_xor(upper ? p0 : q0, 2);
  const uint32_t fourth = shuffle_xor(upper ? p1 : q1, 2);
  w[0] = upper ? third : p0;
  w[1] = upper ? fourth : p1;
  w[2] = upper ? q0 : third;
  w[3] = upper ? q1 : fourth;
}
//@ end

//@ primitive spread_quad needs Vector bitcast transpose_quad includes <cstdint>
/// Lane q of four holds all eight elements of block q of a row; afterwards it holds the pair q of
/// each of the four blocks (16-bit elements).
template <class T>
__device__ __forceinline__ void spread_quad(Vector<T, 2>& a, Vector<T, 2>& b, Vector<T, 2>& c,
                                            Vector<T, 2>& d, const Vector<T, 8>& line) {
  static_assert(sizeof(T) == 2, "16-bit elements");
  uint32_t w[4] = {line.words[0], line.words[1], line.words[2], line.words[3]};
  transpose_quad(w);
  a = bitcast<Vector<T, 2>>(w[0]);
  b = bitcast<Vector<T, 2>>(w[1]);
  c = bitcast<Vector<T, 2>>(w[2]);
  d = bitcast<Vector<T, 2>>(w[3]);
}
//@ end

//@ primitive spread_quad_bytes needs Vector bitcast transpose_quad byte_permute includes <cstdint>
/// The same for two blocks a lane, of 8-bit elements: lane q of four holds blocks 2q and 2q + 1.
template <class T>
__device__ __forceinline__ void spread_quad_bytes(Vector<T, 2> (&blocks)[8],
                                                  const Vector<T, 16>& line) {
  static_assert(sizeof(T) == 1, "8-bit elements");
  // a word has a pair of each of the two blocks
  uint32_t w[4] = {byte_permute<0x5410>(line.words[0], line.words[2]),
                   byte_permute<0x7632>(line.words[0], line.words[2]),
                   byte_permute<0x5410>(line.words[1], line.words[3]),
                   byte_permute<0x7632>(line.words[1], line.words[3])};
  transpose_quad(w);
#pragma unroll
  for (int lane = 0; lane < 4; ++lane) {
    blocks[2 * lane] = bitcast<Vector<T, 2>>(static_cast<uint16_t>(w[lane]));
    blocks[2 * lane + 1] = bitcast<Vector<T, 2>>(static_cast<uint16_t>(w[lane] >> 16));
  }
}
//@ end

//@ primitive join_rows needs Vector
/// One column of two rows of accumulators.
template <class T>
__device__ __forceinline__ Vector<T, 2> join_rows(const Vector<T, 2>& first,
                                                  const Vector<T, 2>& second, int column) {
  Vector<T, 2> joined;
  joined[0] = first[column];
  joined[1] = second[column];
  return joined;
}
//@ end

//@ primitive transpose_block needs Vector bitcast movmatrix_trans includes <cstdint>
/// The lanes of a warp hold neighbouring pairs along the rows of an 8 by 8 block; afterwards along
/// its columns (16-bit elements).
template <class T>
__device__ __forceinline__ Vector<T, 2> transpose_block(const Vector<T, 2>& pair) {
  static_assert(sizeof(T) == 2, "16-bit elements");
  return bitcast<Vector<T, 2>>(movmatrix_trans(bitcast<uint32_t>(pair)));
}
//@ end

//@ primitive MmaBf16 needs OperandA OperandB mma_m16n8k16_bf16
/// bf16 operands, f32 accumulators.
struct MmaBf16 {
  static __device__ __forceinline__ void multiply(float (&d)[4], const OperandA& a,
                                                  const OperandB& b) {
    mma_m16n8k16_bf16(d, a.x, b.x);
  }
};
//@ end

//@ primitive MmaF16 needs OperandA OperandB mma_m16n8k16_f16 mma_m16n8k8_f16 includes <cstdint>
/// f16 operands, f32 accumulators; two steps of half the depth before sm_80.
struct MmaF16 {
  static __device__ __forceinline__ void multiply(float (&d)[4], const OperandA& a,
                                                  const OperandB& b) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 800
    const uint32_t first[2] = {a.x[0], a.x[1]};
    const uint32_t second[2] = {a.x[2], a.x[3]};
    mma_m16n8k8_f16(d, first, {b.x[0]});
    mma_m16n8k8_f16(d, second, {b.x[1]});
#else
    mma_m16n8k16_f16(d, a.x, b.x);
#endif
  }
};
//@ end

//@ primitive MmaTf32 needs OperandA OperandB mma_m16n8k8_tf32 includes <cstdint>
/// f32 operands rounded to tf32 (nearest, ties away), f32 accumulators.
struct MmaTf32 {
  static __device__ __forceinline__ uint32_t round(uint32_t x) {
    return (x & 0x7f800000u) == 0x7f800000u ? x : (x + 0x1000u) & 0xffffe000u;
  }
  static __device__ __forceinline__ void multiply(float (&d)[4], const OperandA& a,
                                                  const OperandB& b) {
    const uint32_t left[4] = {round(a.x[0]), round(a.x[1]), round(a.x[2]), round(a.x[3])};
    const uint32_t right[2] = {round(b.x[0]), round(b.x[1])};
    mma_m16n8k8_tf32(d, left, right);
  }
};
//@ end

//@ primitive MmaS8 needs OperandA OperandB mma_m16n8k32_s8
/// i8 operands, i32 accumulators.
struct MmaS8 {
  static __device__ __forceinline__ void multiply(int (&d)[4], const OperandA& a,
                                                  const OperandB& b) {
    mma_m16n8k32_s8(d, a.x, b.x);
  }
};
//@ end

//@ primitive MmaU8 needs OperandA OperandB mma_m16n8k32_u8
/// u8 operands, i32 accumulators.
struct MmaU8 {
  static __device__ __forceinline__ void multiply(int (&d)[4], const OperandA& a,
                                                  const OperandB& b) {
    mma_m16n8k32_u8(d, a.x, b.x);
  }
};
//@ end

//@ primitive MmaE4m3 needs OperandA OperandB mma_m16n8k32_e4m3
/// f8e4m3 operands, f32 accumulators.
struct MmaE4m3 {
  static __device__ __forceinline__ void multiply(float (&d)[4], const OperandA& a,
                                                  const OperandB& b) {
    mma_m16n8k32_e4m3(d, a.x, b.x);
  }
};
//@ end

//@ primitive MmaE5m2 needs OperandA OperandB mma_m16n8k32_e5m2
/// f8e5m2 operands, f32 accumulators.
struct MmaE5m2 {
  static __device__ __forceinline__ void multiply(float (&d)[4], const OperandA& a,
                                                  const OperandB& b) {
    mma_m16n8k32_e5m2(d, a.x, b.x);
  }
};
//@ end

//@ primitive accumulate_product needs OperandA OperandB Vector
/// top and bottom += a * b: the two rows, eight apart, of a 16 x 8 block of accumulators.
template <class Mma, class T>
__device__ __forceinline__ void accumulate_product(Vector<T, 2>& top, Vector<T, 2>& bottom,
                                                   const OperandA& a, const OperandB& b) {
  T d[4] = {top[0], top[1], bottom[0], bottom[1]};
  Mma::multiply(d, a, b);
  top[0] = d[0];
  top[1] = d[1];
  bottom[0] = d[2];
  bottom[1] = d[3];
}
//@ end

//@ primitive wmma_load_block needs wmma_load
/// The block of an operand whose first element is (row, col) of a tile.
template <class Operand, class Tile>
__device__ __forceinline__ void wmma_load_block(Operand& x, Tile& tile, int row, int col) {
  wmma_load(x, tile.at(row, col), Tile::kPitch);
}
//@ end

//@ primitive wmma_add needs Vector lane_id sync_warp wmma_store load_aligned OpSum
/// A warp's 16 x 16 sums, added to accumulators in the registers of mma: rows `lane / 4` and eight
/// below it, pairs of columns of two blocks of eight. They pass through rows first … first+15 of a
/// tile, which are this warp's own.
template <class T, class Sums, class Tile>
__device__ __forceinline__ void wmma_add(Vector<T, 2>& top_left, Vector<T, 2>& bottom_left,
                                         Vector<T, 2>& top_right, Vector<T, 2>& bottom_right,
                                         const Sums& sums, Tile& tile, int first) {
  const int row = first + lane_id() / 4;
  const int col = lane_id() % 4 * 2;
  sync_warp();
  wmma_store(tile.at(first, 0), sums, Tile::kPitch);
  sync_warp();
  const Vector<T, 2> a = load_aligned<2>(tile.at(row, col));
  const Vector<T, 2> b = load_aligned<2>(tile.at(row + 8, col));
  const Vector<T, 2> c = load_aligned<2>(tile.at(row, col + 8));
  const Vector<T, 2> d = load_aligned<2>(tile.at(row + 8, col + 8));
#pragma unroll
  for (int i = 0; i < 2; ++i) {
    top_left[i] = OpSum<T>::combine(top_left[i], a[i]);
    bottom_left[i] = OpSum<T>::combine(bottom_left[i], b[i]);
    top_right[i] = OpSum<T>::combine(top_right[i], c[i]);
    bottom_right[i] = OpSum<T>::combine(bottom_right[i], d[i]);
  }
}
//@ end
