//! The host's form of tensor.cuh. Who holds which element is written here from the formulas of the
//! PTX ISA (sections on ldmatrix, stmatrix and the fragments of mma), and shares nothing with the
//! compiler's own layouts.
//@ primitive shared_address needs SharedPointer
/// The window of shared memory begins at 0: descriptors hold places in the CTA's memory.
inline uint32_t shared_address(const void* p) { return tilec_host::shared_offset(p); }
template <class T>
inline uint32_t shared_address(const SharedPointer<T>& p) {
  return static_cast<uint32_t>(p.where.at);
}
//@ end

//@ primitive copy_at_once
//@ end

//@ primitive cp_async_partial needs shared_place
template <int kBytes, class Pointer>
inline void cp_async_partial(const Pointer& to, const void* from, int bytes,
                             int line = __builtin_LINE()) {
  static_assert(kBytes == 4 || kBytes == 8 || kBytes == 16, "what cp.async copies");
  tilec_host::note(line);
  tilec_host::async_copy(shared_place(to, line), from, kBytes, bytes);
}
//@ end

//@ primitive cp_async needs cp_async_partial
template <int kBytes, class Pointer>
inline void cp_async(const Pointer& to, const void* from, bool valid = true,
                     int line = __builtin_LINE()) {
  cp_async_partial<kBytes>(to, from, valid ? kBytes : 0, line);
}
//@ end

//@ primitive cp_async_commit
inline void cp_async_commit(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::async_commit();
}
//@ end

//@ primitive cp_async_wait
template <int kGroups>
inline void cp_async_wait(int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::async_wait(kGroups);
}
//@ end

//@ primitive MatrixRow
/// What a lane brings to ldmatrix or stmatrix: its row of 8 elements, and one word of each matrix.
struct MatrixRow {
  uint16_t row[8];
  uint32_t words[4];
};
//@ end

//@ primitive load_matrices needs MatrixRow shared_place lane_id
/// kCount matrices. Word m of a lane holds elements (lane/4, 2·(lane%4)) and the one to its right
/// of matrix m; of the transposed matrix, elements (2·(lane%4), lane/4) and the one below it. Row r
/// of matrix m comes from lane 8m + r.
template <int kCount, bool kTransposed, class Pointer>
inline void load_matrices(uint32_t* r, const Pointer& row, const char* name, int line) {
  tilec_host::note(line);
  MatrixRow mine = {};
  if (lane_id() < 8 * kCount) tilec_host::read_shared(mine.row, shared_place(row, line), 16, 16);
  tilec_host::collective(
      ~0u,
      [](void* const* lanes, uint32_t) {
        for (int lane = 0; lane < 32; ++lane) {
          auto* taker = static_cast<MatrixRow*>(lanes[lane]);
          for (int m = 0; m < kCount; ++m) {
            const auto element = [&](int i, int j) -> uint32_t {
              return static_cast<const MatrixRow*>(lanes[8 * m + i])->row[j];
            };
            const int fixed = lane / 4, moving = 2 * (lane % 4);
            taker->words[m] = kTransposed
                                  ? element(moving, fixed) | element(moving + 1, fixed) << 16
                                  : element(fixed, moving) | element(fixed, moving + 1) << 16;
          }
        }
      },
      &mine, name);
  for (int m = 0; m < kCount; ++m) r[m] = mine.words[m];
}
//@ end

//@ primitive ldmatrix_x1 needs load_matrices
template <class Pointer>
inline void ldmatrix_x1(uint32_t (&r)[1], const Pointer& row, int line = __builtin_LINE()) {
  load_matrices<1, false>(r, row, "`ldmatrix_x1`", line);
}
//@ end

//@ primitive ldmatrix_x2 needs load_matrices
template <class Pointer>
inline void ldmatrix_x2(uint32_t (&r)[2], const Pointer& row, int line = __builtin_LINE()) {
  load_matrices<2, false>(r, row, "`ldmatrix_x2`", line);
}
//@ end

//@ primitive ldmatrix_x4 needs load_matrices
template <class Pointer>
inline void ldmatrix_x4(uint32_t (&r)[4], const Pointer& row, int line = __builtin_LINE()) {
  load_matrices<4, false>(r, row, "`ldmatrix_x4`", line);
}
//@ end

//@ primitive ldmatrix_x1_trans needs load_matrices
template <class Pointer>
inline void ldmatrix_x1_trans(uint32_t (&r)[1], const Pointer& row, int line = __builtin_LINE()) {
  load_matrices<1, true>(r, row, "`ldmatrix_x1_trans`", line);
}
//@ end

//@ primitive ldmatrix_x2_trans needs load_matrices
template <class Pointer>
inline void ldmatrix_x2_trans(uint32_t (&r)[2], const Pointer& row, int line = __builtin_LINE()) {
  load_matrices<2, true>(r, row, "`ldmatrix_x2_trans`", line);
}
//@ end

//@ primitive ldmatrix_x4_trans needs load_matrices
template <class Pointer>
inline void ldmatrix_x4_trans(uint32_t (&r)[4], const Pointer& row, int line = __builtin_LINE()) {
  load_matrices<4, true>(r, row, "`ldmatrix_x4_trans`", line);
}
//@ end

//@ primitive store_matrices needs MatrixRow shared_place lane_id
/// kCount matrices from registers: lane 8m + r stores row r of matrix m.
template <int kCount, class Pointer>
inline void store_matrices(const Pointer& row, const uint32_t* r, const char* name, int line) {
  tilec_host::note(line);
  MatrixRow mine = {};
  for (int m = 0; m < kCount; ++m) mine.words[m] = r[m];
  tilec_host::collective(
      ~0u,
      [](void* const* lanes, uint32_t) {
        for (int lane = 0; lane < 8 * kCount; ++lane) {
          auto* taker = static_cast<MatrixRow*>(lanes[lane]);
          for (int j = 0; j < 8; ++j) {
            const auto* holder = static_cast<const MatrixRow*>(lanes[lane % 8 * 4 + j / 2]);
            taker->row[j] = static_cast<uint16_t>(holder->words[lane / 8] >> j % 2 * 16);
          }
        }
      },
      &mine, name);
  if (lane_id() < 8 * kCount) tilec_host::write_shared(shared_place(row, line), mine.row, 16, 16);
}
//@ end

//@ primitive stmatrix_x2 needs store_matrices
template <class Pointer>
inline void stmatrix_x2(const Pointer& row, const uint32_t (&r)[2], int line = __builtin_LINE()) {
  store_matrices<2>(row, r, "`stmatrix_x2`", line);
}
//@ end

//@ primitive stmatrix_x4 needs store_matrices
template <class Pointer>
inline void stmatrix_x4(const Pointer& row, const uint32_t (&r)[4], int line = __builtin_LINE()) {
  store_matrices<4>(row, r, "`stmatrix_x4`", line);
}
//@ end

//@ primitive permute_bytes
inline uint32_t permute_bytes(uint32_t low, uint32_t high, uint32_t chosen) {
  const uint64_t both = static_cast<uint64_t>(high) << 32 | low;
  uint32_t result = 0;
  for (int i = 0; i < 4; ++i) {
    const int byte = static_cast<int>(chosen >> 4 * i & 7);
    result |= static_cast<uint32_t>(both >> 8 * byte & 0xff) << 8 * i;
  }
  return result;
}
//@ end

//@ primitive movmatrix_trans
/// Lane l holds row l/4 in words of two; element (i, j) goes to (j, i).
inline uint32_t movmatrix_trans(uint32_t word, int line = __builtin_LINE()) {
  tilec_host::note(line);
  uint32_t mine[2] = {word, 0};
  tilec_host::collective(
      ~0u,
      [](void* const* lanes, uint32_t) {
        for (int lane = 0; lane < 32; ++lane) {
          for (int half = 0; half < 2; ++half) {
            const int row = lane % 4 * 2 + half, col = lane / 4;
            const auto* holder = static_cast<const uint32_t*>(lanes[row * 4 + col / 2]);
            const uint32_t element = holder[0] >> col % 2 * 16 & 0xffff;
            static_cast<uint32_t*>(lanes[lane])[1] |= element << half * 16;
          }
        }
      },
      mine, "`movmatrix_trans`");
  return mine[1];
}
//@ end

//@ primitive transpose_block needs Vector movmatrix_trans
template <class T>
inline Vector<T, 2> transpose_block(const Vector<T, 2>& pair, int line = __builtin_LINE()) {
  uint32_t word = 0;
  memcpy(&word, &pair, sizeof word);
  word = movmatrix_trans(word, line);
  Vector<T, 2> across;
  memcpy(&across, &word, sizeof word);
  return across;
}
//@ end

//@ primitive Fragments
/// A place in a matrix.
struct Element {
  int row, col;
};

/// Element i of a lane, for operands of 16-bit elements: m16n8k16 (8 of A, 4 of B) and m16n8k8 (4
/// and 2).
struct Fragments16 {
  static constexpr int kBits = 16;
  static Element a(int lane, int i) {
    const int group = lane >> 2, place = lane % 4;
    const bool lower = i < 2 || (4 <= i && i < 6);
    return {lower ? group : group + 8, place * 2 + (i & 1) + (i < 4 ? 0 : 8)};
  }
  static Element b(int lane, int i) { return {lane % 4 * 2 + (i & 1) + (i < 2 ? 0 : 8), lane >> 2}; }
};

/// The same for 8-bit elements: m16n8k32 (16 of A, 8 of B).
struct Fragments8 {
  static constexpr int kBits = 8;
  static Element a(int lane, int i) {
    const int group = lane >> 2, place = lane % 4;
    const bool lower = i < 4 || (8 <= i && i < 12);
    return {lower ? group : group + 8, place * 4 + (i & 3) + (i < 8 ? 0 : 16)};
  }
  static Element b(int lane, int i) { return {lane % 4 * 4 + (i & 3) + (i < 4 ? 0 : 16), lane >> 2}; }
};

/// The same for tf32: m16n8k8 (4 of A, 2 of B).
struct Fragments32 {
  static constexpr int kBits = 32;
  static Element a(int lane, int i) {
    const int group = lane >> 2, place = lane % 4;
    return {i == 0 || i == 2 ? group : group + 8, i < 2 ? place : place + 4};
  }
  static Element b(int lane, int i) { return {i == 0 ? lane % 4 : lane % 4 + 4, lane >> 2}; }
};

/// Element i of the sums, 16 by 8 of 32 bits.
inline Element sum_element(int lane, int i) {
  return {i < 2 ? lane >> 2 : (lane >> 2) + 8, lane % 4 * 2 + (i & 1)};
}
//@ end

//@ primitive warp_multiply needs Fragments
//@ needs bitcast widen widen_bf16 widen_f16 widen_f8e4m3 widen_f8e5m2
/// What a lane brings to a product.
template <class Sum>
struct Operands {
  Sum* d;
  const uint32_t* a;
  const uint32_t* b;
};

/// d += a·b, k elements deep: exact products summed in order in the wider type, rounded once.
template <class Fragments, class Left, int kDepth, class Right = Left, class Sum>
inline void warp_multiply(Sum* d, const uint32_t* a, const uint32_t* b, const char* name, int line) {
  using Wide = std::conditional_t<std::is_floating_point<Sum>::value, double, int64_t>;
  tilec_host::note(line);
  Operands<Sum> mine{d, a, b};
  tilec_host::collective(
      ~0u,
      [](void* const* lanes, uint32_t) {
        constexpr int kBits = Fragments::kBits, kPerWord = 32 / kBits;
        constexpr uint32_t kMask = static_cast<uint32_t>((uint64_t(1) << kBits) - 1);
        static Wide left[16][kDepth], right[8][kDepth];
        for (int lane = 0; lane < 32; ++lane) {
          const auto& brought = *static_cast<const Operands<Sum>*>(lanes[lane]);
          const auto bits = [](const uint32_t* words, int i) {
            return words[i / kPerWord] >> i % kPerWord * kBits & kMask;
          };
          for (int i = 0; i < 16 * kDepth / 32; ++i) {
            const Element e = Fragments::a(lane, i);
            left[e.row][e.col] = Left::value(bits(brought.a, i));
          }
          for (int i = 0; i < 8 * kDepth / 32; ++i) {
            const Element e = Fragments::b(lane, i);
            right[e.col][e.row] = Right::value(bits(brought.b, i));
          }
        }
        for (int lane = 0; lane < 32; ++lane) {
          Sum* sums = static_cast<const Operands<Sum>*>(lanes[lane])->d;
          for (int i = 0; i < 4; ++i) {
            const Element e = sum_element(lane, i);
            Wide total = sums[i];
            for (int k = 0; k < kDepth; ++k) total += left[e.row][k] * right[e.col][k];
            sums[i] = static_cast<Sum>(total);
          }
        }
      },
      &mine, name);
}

struct DecodeBf16 {
  static double value(uint32_t bits) { return widen(bf16_t{static_cast<uint16_t>(bits)}); }
};
struct DecodeF16 {
  static double value(uint32_t bits) { return f16_to_float(f16_t{static_cast<uint16_t>(bits)}); }
};
struct DecodeTf32 {
  static double value(uint32_t bits) { return bitcast<float>(bits & ~0x1fffu); }
};
struct DecodeE4m3 {
  static double value(uint32_t bits) { return widen(f8e4m3_t{static_cast<uint8_t>(bits)}); }
};
struct DecodeE5m2 {
  static double value(uint32_t bits) { return widen(f8e5m2_t{static_cast<uint8_t>(bits)}); }
};
struct DecodeS8 {
  static int64_t value(uint32_t bits) { return static_cast<int8_t>(bits); }
};
struct DecodeU8 {
  static int64_t value(uint32_t bits) { return static_cast<uint8_t>(bits); }
};
//@ end

//@ primitive mma_m16n8k16_f16 needs warp_multiply
inline void mma_m16n8k16_f16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments16, DecodeF16, 16>(d, a, b, "`mma_m16n8k16_f16`", line);
}
//@ end

//@ primitive mma_m16n8k16_bf16 needs warp_multiply
inline void mma_m16n8k16_bf16(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments16, DecodeBf16, 16>(d, a, b, "`mma_m16n8k16_bf16`", line);
}
//@ end

//@ primitive mma_m16n8k8_f16 needs warp_multiply
inline void mma_m16n8k8_f16(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments16, DecodeF16, 8>(d, a, b, "`mma_m16n8k8_f16`", line);
}
//@ end

//@ primitive mma_m16n8k8_bf16 needs warp_multiply
inline void mma_m16n8k8_bf16(float (&d)[4], const uint32_t (&a)[2], const uint32_t (&b)[1],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments16, DecodeBf16, 8>(d, a, b, "`mma_m16n8k8_bf16`", line);
}
//@ end

//@ primitive mma_m16n8k8_tf32 needs warp_multiply
inline void mma_m16n8k8_tf32(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments32, DecodeTf32, 8>(d, a, b, "`mma_m16n8k8_tf32`", line);
}
//@ end

//@ primitive mma_m16n8k32_s8 needs warp_multiply
inline void mma_m16n8k32_s8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments8, DecodeS8, 32>(d, a, b, "`mma_m16n8k32_s8`", line);
}
//@ end

//@ primitive mma_m16n8k32_u8 needs warp_multiply
inline void mma_m16n8k32_u8(int32_t (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments8, DecodeU8, 32>(d, a, b, "`mma_m16n8k32_u8`", line);
}
//@ end

//@ primitive mma_m16n8k32_e4m3 needs warp_multiply
inline void mma_m16n8k32_e4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments8, DecodeE4m3, 32, DecodeE4m3>(d, a, b, "`mma_m16n8k32_e4m3`", line);
}
//@ end

//@ primitive mma_m16n8k32_e5m2 needs warp_multiply
inline void mma_m16n8k32_e5m2(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments8, DecodeE5m2, 32, DecodeE5m2>(d, a, b, "`mma_m16n8k32_e5m2`", line);
}
//@ end

//@ primitive mma_m16n8k32_e4m3_e5m2 needs warp_multiply
inline void mma_m16n8k32_e4m3_e5m2(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments8, DecodeE4m3, 32, DecodeE5m2>(d, a, b, "`mma_m16n8k32_e4m3_e5m2`", line);
}
//@ end

//@ primitive mma_m16n8k32_e5m2_e4m3 needs warp_multiply
inline void mma_m16n8k32_e5m2_e4m3(float (&d)[4], const uint32_t (&a)[4], const uint32_t (&b)[2],
                   int line = __builtin_LINE()) {
  warp_multiply<Fragments8, DecodeE5m2, 32, DecodeE4m3>(d, a, b, "`mma_m16n8k32_e5m2_e4m3`", line);
}
//@ end

//@ primitive SharedTile needs SharedPointer
/// As on the device: the addresses are the same, so that conflicts of banks are.
template <class T, int kRows, int kCols>
struct alignas(128) SharedTile {
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr int kChunks = kCols / kChunk;
  static constexpr bool kSwizzled = kChunks % 8 == 0 || (kChunks & (kChunks - 1)) == 0;
  static constexpr int kPitch = kSwizzled || kChunks % 2 == 1 ? kCols : kCols + kChunk;
  alignas(T) unsigned char storage[sizeof(T) * kRows * kPitch];

  SharedPointer<T> at(int row, int col, int line = __builtin_LINE()) const {
    int chunk = col / kChunk;
    if (kSwizzled && kChunks >= 8) chunk ^= row % 8;
    if (kSwizzled && 1 < kChunks && kChunks < 8) chunk ^= row / (8 / kChunks) % kChunks;
    const int64_t begin = tilec_host::shared_offset(storage), size = sizeof(storage);
    const int64_t place = int64_t(row) * kPitch + chunk * kChunk + col % kChunk;
    // A column that the tile does not have would be an element of another row.
    const int64_t at = col < 0 || col >= kCols ? size : place * static_cast<int64_t>(sizeof(T));
    return SharedPointer<T>{{begin + at, begin, begin + size, line}};
  }

  SharedPointer<T> beyond(int row, int col, int rows, int cols,
                          int line = __builtin_LINE()) const {
    return at(row + rows, col + cols, line);
  }
};
//@ end

//@ primitive SteppedTile needs SharedTile
template <class T, int kRows, int kCols>
using SteppedTile = SharedTile<T, kRows, kCols>;
//@ end

//@ primitive PlainTile needs SharedPointer
template <class T, int kRows, int kCols>
struct alignas(128) PlainTile {
  static constexpr int kChunk = 16 / static_cast<int>(sizeof(T));
  static constexpr bool kPanels = sizeof(T) == 1;
  static constexpr int kPitch = kPanels ? 16 : kCols + (kCols / kChunk % 2 == 0 ? kChunk : 0);
  alignas(T) unsigned char storage[sizeof(T) * kRows * (kPanels ? kCols : kPitch)];

  SharedPointer<T> at(int row, int col, int line = __builtin_LINE()) const {
    const int64_t begin = tilec_host::shared_offset(storage), size = sizeof(storage);
    const int64_t place = kPanels ? (int64_t(col) / 16 * kRows + row) * 16 + col % 16
                                  : int64_t(row) * kPitch + col;
    const bool outside = col < 0 || col >= kCols || row < 0 || row >= kRows;
    const int64_t at = outside ? size : place * static_cast<int64_t>(sizeof(T));
    return SharedPointer<T>{{begin + at, begin, begin + size, line}};
  }
};
//@ end

//@ primitive store_shared_vector needs Vector store_vector
template <class T, int N>
inline void store_shared_vector(const SharedPointer<T>& p, const Vector<T, N>& v,
                                int line = __builtin_LINE()) {
  store_vector<sizeof(Vector<T, N>)>(p, v, line);
}
//@ end

//@ primitive dynamic_shared
template <class T>
inline T& dynamic_shared() {
  return *static_cast<T*>(tilec_host::dynamic_shared());
}
//@ end

//@ primitive mma_m8n8k4_f64
/// What a lane brings: element (lane/4, lane%4) of the left operand, (lane%4, lane/4) of the right
/// one, and sums (lane/4, 2·(lane%4)) and the one to the right.
struct OperandsF64 {
  double* d;
  double a, b;
};
inline void mma_m8n8k4_f64(double (&d)[2], double a, double b, int line = __builtin_LINE()) {
  tilec_host::note(line);
  OperandsF64 mine{d, a, b};
  tilec_host::collective(
      ~0u,
      [](void* const* lanes, uint32_t) {
        const auto of = [&](int lane) { return static_cast<const OperandsF64*>(lanes[lane]); };
        for (int lane = 0; lane < 32; ++lane) {
          for (int i = 0; i < 2; ++i) {
            const int row = lane / 4, col = lane % 4 * 2 + i;
            long double total = of(lane)->d[i];
            for (int k = 0; k < 4; ++k) {
              total += static_cast<long double>(of(4 * row + k)->a) * of(4 * col + k)->b;
            }
            of(lane)->d[i] = static_cast<double>(total);
          }
        }
      },
      &mine, "`mma_m8n8k4_f64`");
}
//@ end

//@ primitive named_barrier_sync
inline void named_barrier_sync(int id, int threads, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::barrier(id, threads, true);
}
//@ end

//@ primitive named_barrier_arrive
inline void named_barrier_arrive(int id, int threads, int line = __builtin_LINE()) {
  tilec_host::note(line);
  tilec_host::barrier(id, threads, false);
}
//@ end

//@ primitive tf32_t
struct tf32_t;
//@ end

//@ primitive WmmaElement needs widen widen_f16 widen_bf16
/// What an element is in memory, the depth of a block, and its value in a product.
template <class T>
struct WmmaElement {
  using Stored = T;
  static constexpr int kDepth = 16;
  static double value(T x) {
    if constexpr (std::is_integral<T>::value) {
      return static_cast<double>(x);
    } else {
      return widen(x);
    }
  }
};
//@ end

//@ primitive wmma_element_f16
//@ end

//@ primitive wmma_element_bf16
//@ end

//@ primitive wmma_element_tf32 needs WmmaElement tf32_t
/// The product reads 10 bits of the mantissa; nearest, ties away from zero (CUDA guide,
/// `__float_to_tf32`).
template <>
struct WmmaElement<tf32_t> {
  using Stored = float;
  static constexpr int kDepth = 8;
  static double value(float x) {
    if (!std::isfinite(x)) return x;
    int exponent;
    const double fraction = std::frexp(static_cast<double>(x), &exponent);
    return std::ldexp(std::round(std::ldexp(fraction, 11)), exponent - 11);
  }
};
//@ end

//@ primitive WmmaLeft needs WmmaElement
/// Which lane holds which element is not specified (CUDA guide, warp matrix functions): here lane l
/// holds elements l, l + 32 … by rows.
template <class T, bool kRows>
struct WmmaLeft {
  using Element = WmmaElement<T>;
  static constexpr bool kByRows = kRows;
  static constexpr int kColumns = Element::kDepth;
  typename Element::Stored held[Element::kDepth / 2];
};
//@ end

//@ primitive WmmaRight needs WmmaElement
template <class T, bool kRows>
struct WmmaRight {
  using Element = WmmaElement<T>;
  static constexpr bool kByRows = kRows;
  static constexpr int kColumns = 16;
  typename Element::Stored held[Element::kDepth / 2];
};
//@ end

//@ primitive WmmaSums
template <class T, int kDepth = 16>
struct WmmaSums {
  T held[8];
};
//@ end

//@ primitive wmma_fill needs WmmaSums
template <class T, int kDepth>
inline void wmma_fill(WmmaSums<T, kDepth>& sums, T x, int line = __builtin_LINE()) {
  tilec_host::note(line);
  for (T& held : sums.held) held = x;
}
//@ end

//@ primitive wmma_place needs SharedPointer lane_id
/// Where in memory the i-th element of this lane lies, from the first one of a block of `columns`.
inline int64_t wmma_place(int i, int columns, bool by_rows, unsigned stride) {
  const int n = lane_id() + 32 * i, row = n / columns, col = n % columns;
  return by_rows ? int64_t(row) * stride + col : int64_t(col) * stride + row;
}

/// A pointer must be a multiple of 32 bytes and a stride one of 16 bytes.
template <class T>
inline void wmma_check(const T* p, unsigned stride) {
  const uintptr_t at = reinterpret_cast<uintptr_t>(p);
  if (at % 32 != 0) tilec_host::misaligned(at, 32, "global");
  if (stride * sizeof(T) % 16 != 0) tilec_host::misaligned(stride * sizeof(T), 16, "a row of");
}
template <class T>
inline void wmma_check(const SharedPointer<T>& p, unsigned stride) {
  if (p.where.at % 32 != 0) tilec_host::misaligned(static_cast<uintptr_t>(p.where.at), 32, "shared");
  if (stride * sizeof(T) % 16 != 0) tilec_host::misaligned(stride * sizeof(T), 16, "a row of");
}
//@ end

//@ primitive wmma_load needs wmma_place load_element
template <class Operand, class Pointer>
inline void wmma_load(Operand& x, const Pointer& p, unsigned stride, int line = __builtin_LINE()) {
  tilec_host::note(line);
  wmma_check(p, stride);
  tilec_host::collective(~0u, nullptr, nullptr, "`wmma_load`");
  for (int i = 0; i < Operand::Element::kDepth / 2; ++i) {
    x.held[i] = load_element(p + wmma_place(i, Operand::kColumns, Operand::kByRows, stride), line);
  }
}
//@ end

//@ primitive wmma_multiply needs WmmaSums WmmaElement
/// What a lane brings.
template <class Sums, class Left, class Right>
struct WmmaOperands {
  Sums* sums;
  const Left* a;
  const Right* b;
};
/// A sum as it is kept: integers wrap.
inline void wmma_keep(float& sum, double total) { sum = static_cast<float>(total); }
inline void wmma_keep(int& sum, double total) {
  sum = static_cast<int>(static_cast<uint32_t>(static_cast<int64_t>(total)));
}
template <class T, int kDepth, class Left, class Right>
inline void wmma_multiply(WmmaSums<T, kDepth>& sums, const Left& a, const Right& b,
                          int line = __builtin_LINE()) {
  using Element = typename Left::Element;
  using Brought = WmmaOperands<WmmaSums<T, kDepth>, Left, Right>;
  static_assert(Element::kDepth == kDepth, "sums of another form of product");
  tilec_host::note(line);
  Brought mine{&sums, &a, &b};
  tilec_host::collective(
      ~0u,
      [](void* const* lanes, uint32_t) {
        static double left[16][16], right[16][16];
        const auto of = [&](int lane) { return static_cast<const Brought*>(lanes[lane]); };
        for (int n = 0; n < 16 * kDepth; ++n) {
          left[n / kDepth][n % kDepth] = Element::value(of(n % 32)->a->held[n / 32]);
          right[n / 16][n % 16] = Element::value(of(n % 32)->b->held[n / 32]);
        }
        for (int n = 0; n < 256; ++n) {
          T& sum = of(n % 32)->sums->held[n / 32];
          double total = static_cast<double>(sum);
          for (int k = 0; k < kDepth; ++k) total += left[n / 16][k] * right[k][n % 16];
          wmma_keep(sum, total);
        }
      },
      &mine, "`wmma_multiply`");
}
//@ end

//@ primitive wmma_store needs WmmaSums wmma_place store_element
template <class Pointer, class T, int kDepth>
inline void wmma_store(const Pointer& p, const WmmaSums<T, kDepth>& sums, unsigned stride,
                       int line = __builtin_LINE()) {
  tilec_host::note(line);
  wmma_check(p, stride);
  tilec_host::collective(~0u, nullptr, nullptr, "`wmma_store`");
  for (int i = 0; i < 8; ++i) {
    store_element(p + wmma_place(i, 16, true, stride), sums.held[i], line);
  }
}
//@ end
