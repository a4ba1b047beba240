//@ primitive WrapWord includes <cstdint> <type_traits>
/// The unsigned type in which arithmetic on the integer T wraps without undefined behaviour.
template <class T>
using WrapWord = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
//@ end

//@ primitive add_wrap needs WrapWord
/// a + b modulo 2^bits.
template <class T>
__device__ __forceinline__ T add_wrap(T a, T b) {
  return static_cast<T>(static_cast<WrapWord<T>>(a) + static_cast<WrapWord<T>>(b));
}
//@ end

//@ primitive sub_wrap needs WrapWord
/// a - b modulo 2^bits.
template <class T>
__device__ __forceinline__ T sub_wrap(T a, T b) {
  return static_cast<T>(static_cast<WrapWord<T>>(a) - static_cast<WrapWord<T>>(b));
}
//@ end

//@ primitive mul_wrap needs WrapWord
/// a * b modulo 2^bits.
template <class T>
__device__ __forceinline__ T mul_wrap(T a, T b) {
  return static_cast<T>(static_cast<WrapWord<T>>(a) * static_cast<WrapWord<T>>(b));
}
//@ end

//@ primitive power_of needs mul_wrap
/// base to the power exponent, modulo 2^bits. A negative exponent leaves 0 of all but 1 and -1.
template <class T>
__device__ __forceinline__ T power_of(T base, T exponent) {
  T result = 1;
  if (std::is_signed<T>::value && exponent < T(1) && exponent != T(0)) {
    if (base != T(1) && base != T(-1)) return T(0);
    exponent = static_cast<T>(exponent & 1);
  }
  for (uint64_t left = static_cast<uint64_t>(exponent); left != 0; left >>= 1) {
    if ((left & 1) != 0) result = mul_wrap(result, base);
    base = mul_wrap(base, base);
  }
  return result;
}
//@ end

//@ primitive neg_wrap needs WrapWord
/// -x modulo 2^bits: the least value stays itself.
template <class T>
__device__ __forceinline__ T neg_wrap(T x) {
  return static_cast<T>(WrapWord<T>(0) - static_cast<WrapWord<T>>(x));
}
//@ end

//@ primitive abs_wrap needs neg_wrap
/// |x|; the least value stays itself.
template <class T>
__device__ __forceinline__ T abs_wrap(T x) {
  if constexpr (std::is_signed<T>::value) {
    return x < 0 ? neg_wrap(x) : x;
  } else {
    return x;
  }
}
//@ end

//@ primitive max_of
/// The greater of two integers.
template <class T>
__device__ __forceinline__ T max_of(T a, T b) {
  return a > b ? a : b;
}
/// Of two widths: in the wider one.
template <class T, class U>
__device__ __forceinline__ auto max_of(T a, U b) -> decltype(true ? T() : U()) {
  return a > b ? a : b;
}
//@ end

//@ primitive min_of
/// The lesser of two integers.
template <class T>
__device__ __forceinline__ T min_of(T a, T b) {
  return a < b ? a : b;
}
/// Of two widths: in the wider one.
template <class T, class U>
__device__ __forceinline__ auto min_of(T a, U b) -> decltype(true ? T() : U()) {
  return a < b ? a : b;
}
//@ end

//@ primitive abs_of
/// |x| of a float.
[[maybe_unused]] __device__ __forceinline__ float abs_of(float x) { return fabsf(x); }
[[maybe_unused]] __device__ __forceinline__ double abs_of(double x) { return ::fabs(x); }
//@ end

//@ primitive floor_of
/// The greatest whole number not above x.
[[maybe_unused]] __device__ __forceinline__ float floor_of(float x) { return floorf(x); }
[[maybe_unused]] __device__ __forceinline__ double floor_of(double x) { return ::floor(x); }
//@ end

//@ primitive ceil_of
/// The least whole number not below x.
[[maybe_unused]] __device__ __forceinline__ float ceil_of(float x) { return ceilf(x); }
[[maybe_unused]] __device__ __forceinline__ double ceil_of(double x) { return ::ceil(x); }
//@ end

//@ primitive round_of
/// The nearest whole number, halves to the even one.
[[maybe_unused]] __device__ __forceinline__ float round_of(float x) { return rintf(x); }
[[maybe_unused]] __device__ __forceinline__ double round_of(double x) { return ::rint(x); }
//@ end

//@ primitive ceil_div
/// a / b rounded up, for b > 0 and any a: no sum that could leave 32 bits.
[[maybe_unused]] __device__ __forceinline__ int ceil_div(int a, int b) {
  return a / b + (a % b > 0 ? 1 : 0);
}
//@ end

//@ primitive IntDivisor includes <cstdint>
/// A count of at least 1 that many numbers are divided by, with its reciprocal times 2^32, which is
/// not too large, and so little too small that a quotient by it is at most 2 too small.
struct IntDivisor {
  uint32_t reciprocal;
  int value;
};
//@ end

//@ primitive int_divisor needs IntDivisor reciprocal_approx
/// A count as a divisor, 1 where it is less: an approximate reciprocal, and one step of Newton's
/// method.
[[maybe_unused]] __device__ __forceinline__ IntDivisor int_divisor(int count) {
  const uint32_t y = static_cast<uint32_t>(count < 1 ? 1 : count);
  const float close = reciprocal_approx(static_cast<float>(y)) * 4294966784.0f;  // below 2^32
  uint32_t z = static_cast<uint32_t>(close);
  z += static_cast<uint32_t>(uint64_t{z} * (0u - y * z) >> 32);
  return IntDivisor{z, static_cast<int>(y)};
}
//@ end

//@ primitive quotient_of needs IntDivisor
/// floor(x / y) for 0 <= x.
[[maybe_unused]] __device__ __forceinline__ int quotient_of(int x, const IntDivisor& y) {
  const int near = static_cast<int>(uint64_t{static_cast<uint32_t>(x)} * y.reciprocal >> 32);
  const int rest = x - near * y.value;
  return near + (rest >= y.value ? 1 : 0) + (rest - y.value >= y.value ? 1 : 0);
}
//@ end

//@ primitive take_digit needs IntDivisor quotient_of
/// x mod y, and x becomes floor(x / y): the lowest digit of x leaves it.
[[maybe_unused]] __device__ __forceinline__ int take_digit(int& x, const IntDivisor& y) {
  const int above = quotient_of(x, y);
  const int digit = x - above * y.value;
  x = above;
  return digit;
}
//@ end

//@ primitive renew
/// Hides where a number comes from: what follows from it is computed behind here, and not kept in
/// registers over the loop in front.
[[maybe_unused]] __device__ __forceinline__ void renew(int& number) {
  asm volatile("" : "+r"(number));
}
//@ end

//@ primitive swept_row
/// Row of tile `number` of rows x columns ones that are taken in groups of kRows rows, each swept
/// along the columns. The last group has the rows that are left.
template <int kRows>
__device__ __forceinline__ int swept_row(int number, int rows, int columns) {
  const int group = (rows < kRows ? rows : kRows) * columns;
  const int first = number / group * kRows;
  const int height = rows - first < kRows ? rows - first : kRows;
  return first + number % group % height;
}
//@ end

//@ primitive swept_row_by extends swept_row with IntDivisor needs quotient_of renew
/// The same for many numbers: `group` is min(rows, kRows) * columns. Whole groups are divided by
/// kRows, which a division by either of the two would not be.
template <int kRows>
__device__ __forceinline__ int swept_row(int number, int rows, const IntDivisor& group) {
  const int first = quotient_of(number, group);
  const int within = number - first * group.value;
  const int left = rows - first * kRows;
  if (left >= kRows) return first * kRows + within % kRows;
  int height = left;
  renew(height);
  return first * kRows + within % height;
}
//@ end

//@ primitive swept_column
/// Column of the same.
template <int kRows>
__device__ __forceinline__ int swept_column(int number, int rows, int columns) {
  const int group = (rows < kRows ? rows : kRows) * columns;
  const int left = rows - number / group * kRows;
  return number % group / (left < kRows ? left : kRows);
}
//@ end

//@ primitive swept_column_by extends swept_column with IntDivisor needs quotient_of renew
/// The same for many numbers.
template <int kRows>
__device__ __forceinline__ int swept_column(int number, int rows, const IntDivisor& group) {
  const int first = quotient_of(number, group);
  const int within = number - first * group.value;
  const int left = rows - first * kRows;
  if (left >= kRows) return within / kRows;
  int height = left;
  renew(height);
  return within / height;
}
//@ end

//@ primitive floor_div needs neg_wrap
/// The quotient rounded down. Integers: b = 0 gives 0, the least value over -1 wraps. Floats: as
/// NumPy's floor_divide, from an exact remainder.
template <class T>
__device__ __forceinline__ T floor_div(T a, T b) {
  if constexpr (std::is_signed<T>::value) {
    if (b == 0) return T(0);
    if (b == -1) return neg_wrap(a);
    const T quotient = static_cast<T>(a / b);
    return static_cast<T>(quotient - (a % b != 0 && (a < 0) != (b < 0) ? 1 : 0));
  } else {
    return b == 0 ? T(0) : static_cast<T>(a / b);
  }
}
template <class T, class U>
__device__ __forceinline__ auto floor_div(T a, U b) -> decltype(true ? T() : U()) {
  using Wide = decltype(true ? T() : U());
  return floor_div(static_cast<Wide>(a), static_cast<Wide>(b));
}
[[maybe_unused]] __device__ __forceinline__ float floor_div(float a, float b) {
  if (b == 0.0f) return a / b;
  const float rest = fmodf(a, b);
  float quotient = (a - rest) / b;
  if (rest != 0.0f && (b < 0.0f) != (rest < 0.0f)) quotient -= 1.0f;
  if (quotient == 0.0f) return copysignf(0.0f, a / b);
  const float down = floorf(quotient);
  return quotient - down > 0.5f ? down + 1.0f : down;
}
[[maybe_unused]] __device__ __forceinline__ double floor_div(double a, double b) {
  if (b == 0.0) return a / b;
  const double rest = ::fmod(a, b);
  double quotient = (a - rest) / b;
  if (rest != 0.0 && (b < 0.0) != (rest < 0.0)) quotient -= 1.0;
  if (quotient == 0.0) return ::copysign(0.0, a / b);
  const double down = ::floor(quotient);
  return quotient - down > 0.5 ? down + 1.0 : down;
}
//@ end

//@ primitive floor_mod includes <type_traits>
/// The remainder with the sign of b. Integers: b = 0 gives 0. Floats: as NumPy's remainder.
template <class T>
__device__ __forceinline__ T floor_mod(T a, T b) {
  if constexpr (std::is_signed<T>::value) {
    if (b == 0 || b == -1) return T(0);
    const T rest = static_cast<T>(a % b);
    return static_cast<T>(rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest);
  } else {
    return b == 0 ? T(0) : static_cast<T>(a % b);
  }
}
template <class T, class U>
__device__ __forceinline__ auto floor_mod(T a, U b) -> decltype(true ? T() : U()) {
  using Wide = decltype(true ? T() : U());
  return floor_mod(static_cast<Wide>(a), static_cast<Wide>(b));
}
[[maybe_unused]] __device__ __forceinline__ float floor_mod(float a, float b) {
  const float rest = fmodf(a, b);
  if (rest == 0.0f) return copysignf(0.0f, b);
  return (b < 0.0f) != (rest < 0.0f) ? rest + b : rest;
}
[[maybe_unused]] __device__ __forceinline__ double floor_mod(double a, double b) {
  const double rest = ::fmod(a, b);
  if (rest == 0.0) return ::copysign(0.0, b);
  return (b < 0.0) != (rest < 0.0) ? rest + b : rest;
}
//@ end

//@ primitive shift_left needs WrapWord
/// x·2^n modulo 2^bits; a count that is not in [0, bits) gives 0.
template <class T, class Count>
__device__ __forceinline__ T shift_left(T x, Count n) {
  const bool inside = static_cast<WrapWord<Count>>(n) < 8 * sizeof(T);
  return inside ? static_cast<T>(static_cast<WrapWord<T>>(x) << n) : T(0);
}
//@ end

//@ primitive shift_right needs WrapWord includes <type_traits>
/// floor(x / 2^n); a count that is not in [0, bits) gives 0, or -1 for a negative x.
template <class T, class Count>
__device__ __forceinline__ T shift_right(T x, Count n) {
  const bool inside = static_cast<WrapWord<Count>>(n) < 8 * sizeof(T);
  if constexpr (std::is_signed<T>::value) {
    return static_cast<T>(x >> (inside ? n : static_cast<Count>(8 * sizeof(T) - 1)));
  } else {
    return inside ? static_cast<T>(x >> n) : T(0);
  }
}
//@ end

//@ primitive uneven_few
/// Whether so few others share the workers of an uneven grid that each has several of them.
[[maybe_unused]] __device__ __forceinline__ bool uneven_few(int workers, int others) {
  return others <= workers / 4 * 3;
}
//@ end

//@ primitive UnevenShares needs IntDivisor
/// What the places of an uneven grid are divided by; where the others are few, how many rounds a
/// section of them takes, and its reciprocal; where they are many, how many full rounds there are
/// and how many pairs of others these take whole.
struct UnevenShares {
  IntDivisor by;
  int rounds;
  int pairs;
};
//@ end

//@ primitive uneven_section
/// How many of `others` are taken together, so that about eight of the workers read the same at the
/// same time: an even number of sections that take no more rounds than all at once.
[[maybe_unused]] __device__ __forceinline__ int uneven_section(int workers, int trips, int others) {
  const int all = (trips * others - 1) / workers + 1;
  for (int sections = (others * 8 / workers + 1) / 2 * 2; sections > 1; sections -= 2) {
    const int size = others / sections;
    const int rounds = (trips * size - 1) / workers + 1;
    if (size * sections == others && rounds * sections <= all) return size;
  }
  return others;
}
//@ end

//@ primitive drawn_section
/// How many of a loop's trips, a divisor of them, are taken together where each stands for `each`
/// that read something else, so that two of the workers, and more where some of these are short,
/// read the same at the same time.
[[maybe_unused]] __device__ __forceinline__ int drawn_section(int workers, int trips, int each) {
  int size = workers / 2 / (each < 1 ? 1 : each);
  if (size >= trips) return trips;
  if (size < 1) return 1;
  while (trips % size != 0) --size;
  return size;
}
//@ end

//@ primitive uneven_shares needs UnevenShares IntDivisor int_divisor quotient_of uneven_few
//@ needs uneven_section
/// What is the same for all places: `workers` share `trips` of a loop whose later trips take
/// longer, for each of `others`.
[[maybe_unused]] __device__ __forceinline__ UnevenShares uneven_shares(int workers, int trips,
                                                                       int others) {
  if (uneven_few(workers, others)) {
    const int size = uneven_section(workers, trips, others);
    const IntDivisor rounds = int_divisor((trips * size - 1) / workers + 1);
    return UnevenShares{int_divisor(size), rounds.value, static_cast<int>(rounds.reciprocal)};
  }
  const IntDivisor by = int_divisor(trips);
  const int rounds = trips * others / (2 * workers);
  return UnevenShares{by, rounds, quotient_of(rounds * workers, by)};
}
//@ end

//@ primitive store_shares needs UnevenShares
/// Four words of shared memory take what is the same for all places.
template <class Words>
__device__ __forceinline__ void store_shares(Words& to, const UnevenShares& shares) {
  to[0] = static_cast<int>(shares.by.reciprocal);
  to[1] = shares.by.value;
  to[2] = shares.rounds;
  to[3] = shares.pairs;
}
//@ end

//@ primitive load_shares needs UnevenShares
/// What `store_shares` left.
template <class Words>
__device__ __forceinline__ UnevenShares load_shares(Words& from) {
  return UnevenShares{{static_cast<uint32_t>(from[0]), from[1]}, from[2], from[3]};
}
//@ end

//@ primitive UnevenPlace
/// A trip of the uneven loop, and which of the others it belongs to.
struct UnevenPlace {
  int trip;
  int other;
};
//@ end

//@ primitive section_place needs UnevenPlace
/// The instance `number` of those of a loop whose later trips take longer, for each of `others`:
/// these are taken `size` at a time, the longest trips of a section first.
[[maybe_unused]] __device__ __forceinline__ UnevenPlace section_place(int number, int trips,
                                                                      int others, int size) {
  const int section = number / (size * trips);
  const int first = section * size;
  const int within = number - first * trips;
  const int count = others - first < size ? others - first : size;
  return UnevenPlace{trips - 1 - within / count, first + within % count};
}
//@ end

//@ primitive uneven_place needs UnevenPlace UnevenShares IntDivisor take_digit uneven_few
/// The instance at place `turn` of a worker, or at the next one that has any; its trip is -1 behind
/// the last, so that all have about the same to do. Where the others are few, they are taken in
/// sections, of each the longest trips first, dealt to and fro. Where they are many, workers side
/// by side read the same: each round is a long trip of one and a short trip of the next for each
/// worker; what is left when no round is full comes one by one, the longest first, dealt to and
/// fro.
[[maybe_unused]] __device__ __forceinline__ UnevenPlace uneven_place(int& turn, int worker,
                                                                     int workers, int trips,
                                                                     int others,
                                                                     const UnevenShares& shares) {
  if (uneven_few(workers, others)) {
    const IntDivisor rounds{static_cast<uint32_t>(shares.pairs), shares.rounds};
    for (;; ++turn) {
      int section = turn;
      const int round = take_digit(section, rounds);
      const int first = section * shares.by.value;
      if (first >= others) return UnevenPlace{-1, 0};
      int above = round * workers + ((round + section) % 2 == 0 ? worker : workers - 1 - worker);
      if (above >= trips * shares.by.value) continue;
      const int other = take_digit(above, shares.by);
      return UnevenPlace{trips - 1 - above, first + other};
    }
  }
  const int rounds = shares.rounds;
  const int pairs = shares.pairs;
  const int left = others - 2 * pairs;
  int rank = 0;
  if (turn < 2 * rounds) {
    int pair = turn / 2 * workers + worker;
    const int trip = take_digit(pair, shares.by);
    if (pair < pairs && turn % 2 == 0) return UnevenPlace{trips - 1 - trip, 2 * pair};
    if (pair < pairs) return UnevenPlace{trip, 2 * pair + 1};
    rank = left * trips - 1 - 2 * ((pair - pairs) * trips + trip) - turn % 2;
  } else {
    const int single = turn - 2 * rounds;
    rank = single * workers + (single % 2 == 0 ? worker : workers - 1 - worker);
    if (rank >= trips * others - 2 * rounds * workers) return UnevenPlace{-1, 0};
  }
  return UnevenPlace{trips - 1 - rank / left, 2 * pairs + rank % left};
}
//@ end
