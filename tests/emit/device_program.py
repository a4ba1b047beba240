"""A library of driver functions over the device primitives, for the GPU (nvcc) and, the parts that are plain C++, for
the CPU (g++ with host stand-ins for single instructions)."""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from tilec.emit.primitives import closure, includes

INTEGERS = tuple(f"{sign}int{bits}_t" for bits in (8, 16, 32, 64) for sign in ("", "u"))
NARROW = ("f8e4m3_t", "f8e5m2_t", "f16_t", "bf16_t")
FLOATS = ("float", "double")
VALUES = ("bool", *INTEGERS, *NARROW, *FLOATS)
PACKED = {"i4_t": "int8_t", "u4_t": "uint8_t"}
UNARY = ("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tanh", "erf", "sigmoid")
BINARY = ("div", "pow")
ROUNDINGS = ("abs_of", "floor_of", "ceil_of", "round_of")
INTEGER_BINARY = (
    "add_wrap",
    "sub_wrap",
    "mul_wrap",
    "power_of",
    "floor_div",
    "floor_mod",
    "shift_left",
    "shift_right",
    "max_of",
    "min_of",
)
VECTOR_ATOMICS = (
    ("float", 4, (8, 16)),
    ("f16_t", 8, (4, 8, 16)),
    ("bf16_t", 8, (4, 8, 16)),
)
"""Types, elements of a vector of 16 bytes, and bytes that an instruction takes."""
ALIGNMENTS = (1, 2, 4, 8, 16)
LENGTHS = (1, 2, 4, 8, 16, 32)


@dataclass(frozen=True)
class Driver:
    """One exported function: for each i, `body` reads xs and ys (element types x and y) and writes out."""

    name: str
    x: str
    y: str
    out: str
    body: str
    collective: bool = False


def _elementwise(
    name: str, x: str, out: str, expression: str, y: str = "int8_t", guard: str = ""
) -> Driver:
    return Driver(name, x, y, out, f"{guard}const {x} x = xs[i];\n  out[i] = {expression};")


def drivers() -> list[Driver]:
    """Every function of the library; the collective ones need a GPU."""
    made: list[Driver] = []
    for source in VALUES:
        for target in (*VALUES, *PACKED):
            name = f"convert_{source}_{target}"
            out = PACKED.get(target, target)
            made.append(_elementwise(name, source, out, f"convert<{target}>(x)"))
    for target in NARROW:
        body = f"store_vector<4>(out + 8 * i, convert_vector<{target}>(load_vector<4, 8>(xs + 8 * i)));"
        made.append(Driver(f"pairs_{target}", "float", "int8_t", target, body))
    for packed in PACKED:
        body = (
            "store_vector<4>(out + 8 * i, convert_vector<float>(load_vector<4, 8>(xs + 4 * i)));\n"
        )
        made.append(Driver(f"unpack_{packed}", packed, "int8_t", "float", body))
        body = f"store_vector<4>(out + 4 * i, convert_vector<{packed}>(load_vector<4, 8>(xs + 8 * i)));"
        made.append(Driver(f"pack_{packed}", "float", "int8_t", packed, body))
    for mode in ("fast", "strict"):
        for kind in FLOATS:
            for function in UNARY:
                name = f"{function}_{mode}_{kind}"
                made.append(_elementwise(name, kind, kind, f"{function}_{mode}(x)"))
            for function in BINARY:
                name = f"{function}_{mode}_{kind}"
                made.append(_elementwise(name, kind, kind, f"{function}_{mode}(x, ys[i])", kind))
    made.append(_elementwise("div_by", "float", "float", "div_by(x, divisor(ys[i]))", "float"))
    factors = "x * divisor_scale(ys[i]) * divisor_reciprocal(ys[i])"
    made.append(_elementwise("by_factors", "float", "float", factors, "float"))
    load = "const auto v = load_aligned<8>(xs + 8 * i);\n"
    for walk in range(4):
        body = f"{load}  store_vector<16>(out + 8 * i, widen_vector<{walk}>(v));"
        made.append(Driver(f"widen_vector_{walk}", "bf16_t", "int8_t", "float", body))
    for extreme in ("max", "min"):
        body = f"{load}  out[i] = {extreme}_of_vector(v);"
        made.append(Driver(f"{extreme}_of_vector", "bf16_t", "int8_t", "float", body))
    for function in ("tanh_half", "sigmoid_half"):
        made.append(_elementwise(function, "float", "float", f"{function}(x)"))
    for kind in FLOATS:
        for function in ROUNDINGS:
            made.append(_elementwise(f"{function}_{kind}", kind, kind, f"{function}(x)"))
        for function in ("max_nan", "min_nan", "floor_div", "floor_mod"):
            name = f"{function}_{kind}"
            made.append(_elementwise(name, kind, kind, f"{function}(x, ys[i])", kind))
    for kind in INTEGERS:
        for function in INTEGER_BINARY:
            name = f"{function}_{kind}"
            made.append(_elementwise(name, kind, kind, f"{function}(x, ys[i])", kind))
        for function in ("neg_wrap", "abs_wrap"):
            made.append(_elementwise(f"{function}_{kind}", kind, kind, f"{function}(x)"))
    made.append(
        _elementwise(
            "quotient", "int32_t", "int32_t", "quotient_of(x, int_divisor(ys[i]))", "int32_t"
        )
    )
    made.append(_elementwise("ceil_div", "int32_t", "int32_t", "ceil_div(x, ys[i])", "int32_t"))
    for kind in ("uint8_t", "bf16_t", "float", "double", "u4_t"):
        for align in ALIGNMENTS:
            for length in LENGTHS:
                if align < {"bf16_t": 2, "float": 4, "double": 8}.get(kind, 1):
                    continue
                # Row i of 64 units; ys[2i] is where its elements start, in units, ys[2i + 1] how many.
                body = (
                    f"const int start = ys[2 * i];\n  const int count = ys[2 * i + 1];\n"
                    f"  const auto v = load_vector_partial<{align}, {length}>(xs + 64 * i + start, "
                    f"count);\n"
                    f"  store_vector_partial<{align}>(out + 64 * i + start, v, count);"
                )
                made.append(Driver(f"partial_{kind}_{align}_{length}", kind, "int32_t", kind, body))
    for access, start in (("aligned", 0), ("single", 1)):
        # Row i of 64 elements: eight from `start` whole, then, from 16 on, ys[i] of eight.
        body = (
            f"const float* from = xs + 64 * i + {start};\n  float* to = out + 64 * i + {start};\n"
            f"  store_{access}(to, load_{access}<8>(from));\n"
            f"  const int count = ys[i];\n"
            f"  const auto part = load_{access}_partial<8>(from + 16, count);\n"
            f"  store_{access}_partial(to + 16, part, count);"
        )
        made.append(Driver(f"walk_{access}", "float", "int32_t", "float", body))
    body = "out[i] = combine_partials<OpSum<float>, 4, 2>(xs + i);"
    made.append(
        Driver(
            "partials", "float", "int8_t", "float", f'debug_assert(i >= 0, "a place");\n  {body}'
        )
    )
    for kind, out in (("u4_t", "uint8_t"), ("i4_t", "int8_t")):
        name = f"nibble_{kind}"
        made.append(Driver(name, kind, "int8_t", out, "out[i] = load_nibble(xs, i);"))
    return made + _collective()


def _collective() -> list[Driver]:
    made: list[Driver] = []
    place = "const int thread = threadIdx.x;\n  const int warp = thread / 32;\n  "
    for kind in ("int32_t", "uint8_t", "int64_t", "float", "double"):
        for op in ("OpSum", "OpProd", "OpMax", "OpMin"):
            for lanes, stride in ((32, 1), (8, 1), (4, 8), (2, 4), (1, 1)):
                for what in ("reduce", "scan"):
                    body = f"out[i] = lane_{what}<{op}<{kind}>, {lanes}, {stride}>(xs[i]);"
                    name = f"{what}_{op}_{kind}_{lanes}_{stride}"
                    made.append(Driver(name, kind, "int8_t", kind, body, True))
            body = (
                f"__shared__ {kind} scratch[4];\n  {place}"
                f"out[i] = group_reduce<{op}<{kind}>, 2>(lane_reduce<{op}<{kind}>, 32>(xs[i]), "
                f"scratch + warp / 2 * 2, warp % 2, thread % 32);"
            )
            made.append(Driver(f"group_{op}_{kind}", kind, "int8_t", kind, body, True))
    for op in ("OpArgMax", "OpArgMin"):
        body = (
            f"__shared__ Indexed<float> scratch[4];\n  {place}"
            f"const Indexed<float> x{{xs[i], thread}};\n"
            f"  out[i] = group_reduce<{op}<float>, 4>(lane_reduce<{op}<float>, 32>(x), scratch, warp, "
            f"thread % 32).index;"
        )
        made.append(Driver(f"group_{op}", "float", "int8_t", "int32_t", body, True))
    body = (
        "__shared__ float scratch[32];\n  "
        + place
        + "out[i] = group_reduce_slots<OpSum<float>, 4, 8>(lane_reduce<OpSum<float>, 4, 8>(xs[i]), "
        "scratch, warp, thread % 8, thread % 32 < 8);"
    )
    made.append(Driver("slots", "float", "int8_t", "float", body, True))
    body = (
        "__shared__ int32_t scratch[4];\n  "
        + place
        + "const int32_t below = lane_scan<OpSum<int32_t>, 32>(xs[i]);\n"
        "  const int32_t total = shuffle_from(below, 31);\n"
        "  out[i] = below + group_scan_offset<OpSum<int32_t>, 4>(total, scratch, warp, thread % 32);"
    )
    made.append(Driver("group_scan", "int32_t", "int8_t", "int32_t", body, True))
    for name in ("combine_partials_before", "combine_partials_before_by_lanes"):
        body = (
            "__shared__ int32_t scratch[4];\n  "
            + place
            + "const int32_t total = lane_reduce<OpSum<int32_t>, 32>(xs[i]);\n"
            "  if (thread % 32 == 0) scratch[warp] = total;\n  __syncthreads();\n"
            "  const int32_t before = lane_scan_before<OpSum<int32_t>, 32>(xs[i]);\n"
            f"  out[i] = before + {name}<OpSum<int32_t>, 4>(scratch, warp);"
        )
        made.append(Driver(name, "int32_t", "int8_t", "int32_t", body, True))
    # The 128 elements of a CTA in reverse, through its shared memory.
    body = (
        "struct Shared {\n    SharedArray<float, 128> row;\n  };\n  auto& shared = cta_shared<Shared>();\n"
        "  const int thread = threadIdx.x;\n  shared.row[thread] = load_element(xs + i);\n"
        "  __syncthreads();\n  store_element(out + i, shared.row[127 - thread]);"
    )
    made.append(Driver("through_shared", "float", "int8_t", "float", body, True))
    for kind, length in (("int8_t", 1), ("bf16_t", 1), ("bf16_t", 8), ("float", 4)):
        name = f"reload_{kind}_{length}"
        steps = "".join(f"  v = reload<{walk}>(v);\n" for walk in range(3))
        body = f"auto v = load_single<{length}>(xs + {length} * i);\n{steps}"
        body += f"  store_single(out + {length} * i, v);"
        made.append(Driver(name, kind, "int8_t", kind, body, True))
    # a*x + b composed in order: associative, not commutative.
    body = (
        "struct Affine {\n    uint32_t a;\n    uint32_t b;\n  };\n  __shared__ Affine scratch[4];\n  "
        + place
        + "const auto after = [](Affine f, Affine g) {\n"
        "    return Affine{f.a * g.a, g.a * f.b + g.b};\n  };\n"
        "  Affine x{2 * xs[i] + 1, xs[i]};\n"
        "  x = group_reduce_with<4>(lane_reduce_with<32>(x, after), scratch, warp, thread % 32, after);\n"
        "  out[i] = x.b ^ x.a;"
    )
    made.append(Driver("ordered", "uint32_t", "int8_t", "uint32_t", body, True))
    made.append(
        Driver(
            "any_all",
            "bool",
            "int8_t",
            "uint8_t",
            "const bool any = lane_reduce<OpAny, 8>(xs[i]);\n"
            "  const bool all = lane_reduce<OpAll, 8>(xs[i]);\n"
            "  out[i] = convert<uint8_t>(any) + 2 * convert<uint8_t>(all);",
            True,
        )
    )
    for op in ("OpAnd", "OpOr", "OpXor"):
        body = f"out[i] = lane_reduce<{op}<uint32_t>, 32>(uniform_int(xs[0]) ^ xs[i]);"
        made.append(Driver(f"bits_{op}", "uint32_t", "int8_t", "uint32_t", body, True))
    for kind in (*INTEGERS, *FLOATS, "f16_t", "bf16_t"):
        for op in ("add", "max", "min"):
            body = f"atomic_{op}(out + i % 7, xs[i]);"
            made.append(Driver(f"atomic_{op}_{kind}", kind, "int8_t", kind, body, True))
    for kind, length, widths in VECTOR_ATOMICS:
        place = f"out + i % 7 * {length}, load_aligned<{length}>(xs + {length} * i)"
        for width in widths:
            body = f"atomic_add_vector<{width}>({place});"
            made.append(
                Driver(f"atomic_add_vector_{width}_{kind}", kind, "int8_t", kind, body, True)
            )
            counted = f"{place}, static_cast<int>(i % {length + 2}) - 1"
            body = f"atomic_add_vector_partial<{width}>({counted});"
            name = f"atomic_add_vector_partial_{width}_{kind}"
            made.append(Driver(name, kind, "int8_t", kind, body, True))
    return made


def _function(driver: Driver) -> str:
    return (
        f"__device__ void {driver.name}_at(const {driver.x}* xs, const {driver.y}* ys, "
        f"{driver.out}* out, int64_t i) {{\n  {driver.body}\n}}\n"
    ).replace(
        "const int8_t* ys", "const int8_t*" if "ys[" not in driver.body else "const int8_t* ys"
    )


_RUN_GPU = """
using Kernel = void (*)(const void*, const void*, void*, int64_t);
int run(Kernel kernel, const void* xs, int64_t x_bytes, const void* ys, int64_t y_bytes, void* out,
        int64_t out_bytes, int64_t n) {
  void *x = nullptr, *y = nullptr, *z = nullptr;
  cudaMalloc(&x, x_bytes + 1);
  cudaMalloc(&y, y_bytes + 1);
  cudaMalloc(&z, out_bytes + 1);
  cudaMemcpy(x, xs, x_bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(y, ys, y_bytes, cudaMemcpyHostToDevice);
  cudaMemcpy(z, out, out_bytes, cudaMemcpyHostToDevice);
  kernel<<<static_cast<unsigned>((n + 127) / 128), 128>>>(x, y, z, n);
  cudaMemcpy(out, z, out_bytes, cudaMemcpyDeviceToHost);
  cudaFree(x);
  cudaFree(y);
  cudaFree(z);
  return static_cast<int>(cudaGetLastError());
}
"""

_ARGUMENTS = (
    "const void* xs, int64_t x_bytes, const void* ys, int64_t y_bytes, void* out, "
    "int64_t out_bytes, int64_t n"
)


def gpu_source() -> str:
    """The library as a .cu file: every driver, a kernel and an exported function each."""
    made = drivers()
    text = "\n".join(map(_function, made))
    bounds = "__launch_bounds__(128, resident_ctas(128, 4))"
    parts = [_prelude(text + bounds), text, _RUN_GPU]
    for driver in made:
        casts = (
            f"static_cast<const {driver.x}*>(xs), static_cast<const {driver.y}*>(ys), "
            f"static_cast<{driver.out}*>(out), i"
        )
        parts.append(
            f"__global__ void {bounds} {driver.name}_kernel(const void* xs, const void* ys, void* out, "
            f"int64_t n) {{\n  const int64_t i = int64_t(blockIdx.x) * 128 + threadIdx.x;\n"
            f"  if (i < n) {driver.name}_at({casts});\n}}\n"
            f'extern "C" int run_{driver.name}({_ARGUMENTS}) {{\n'
            f"  return run({driver.name}_kernel, xs, x_bytes, ys, y_bytes, out, out_bytes, n);\n}}\n"
        )
    return "\n".join(parts)


def _prelude(text: str, replaced: dict[str, str] | None = None) -> str:
    blocks = closure(text)
    headers = "".join(f"#include {header}\n" for header in includes(blocks))
    bodies = "\n\n".join((replaced or {}).get(block.name, block.text) for block in blocks)
    return f"{headers}\nnamespace {{\n{bodies}\n}}  // namespace\n"


_HOST_HEADER = """
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#define __device__
#define __forceinline__ inline
struct uint2 { uint32_t x, y; };
struct uint4 { uint32_t x, y, z, w; };
using std::fma;
template <class To, class From> To host_truncate(From x) {
  if (x != x) return 77;
  if (x >= std::ldexp(From(1), std::numeric_limits<To>::digits)) return std::numeric_limits<To>::max();
  if (x <= From(std::numeric_limits<To>::min())) return std::numeric_limits<To>::min();
  return static_cast<To>(x);
}
struct { unsigned x, y, z; } gridDim = {1, 1, 1};
inline uint32_t __byte_perm(uint32_t low, uint32_t high, unsigned digits) {
  const uint64_t bytes = uint64_t{high} << 32 | low;
  uint32_t picked = 0;
  for (int i = 0; i < 4; ++i) picked |= uint32_t(bytes >> (digits >> 4 * i & 7) * 8 & 255) << 8 * i;
  return picked;
}
inline double rsqrt(double x) { return 1.0 / std::sqrt(x); }
inline int32_t __float2int_rz(float x) { return host_truncate<int32_t>(x); }
inline int32_t __double2int_rz(double x) { return host_truncate<int32_t>(x); }
inline uint32_t __float2uint_rz(float x) { return host_truncate<uint32_t>(x); }
inline uint32_t __double2uint_rz(double x) { return host_truncate<uint32_t>(x); }
inline int64_t __float2ll_rz(float x) { return host_truncate<int64_t>(x); }
inline int64_t __double2ll_rz(double x) { return host_truncate<int64_t>(x); }
inline uint64_t __float2ull_rz(float x) { return host_truncate<uint64_t>(x); }
inline uint64_t __double2ull_rz(double x) { return host_truncate<uint64_t>(x); }
template <class From> float host_toward_zero(From x) {
  using Wide = long double;
  float y = static_cast<float>(x);
  if (std::fabs(Wide(y)) > std::fabs(Wide(x))) y = std::nextafter(y, 0.0f);
  return y;
}
inline float __double2float_rz(double x) { return host_toward_zero(x); }
inline float __int2float_rz(int32_t x) { return host_toward_zero(x); }
inline float __uint2float_rz(uint32_t x) { return host_toward_zero(x); }
inline float __ll2float_rz(int64_t x) { return host_toward_zero(x); }
inline float __ull2float_rz(uint64_t x) { return host_toward_zero(x); }
inline uint64_t __umul64hi(uint64_t x, uint64_t y) {
  return static_cast<uint64_t>(static_cast<unsigned __int128>(x) * y >> 64);
}
inline int __clzll(long long x) { return __builtin_clzll(static_cast<unsigned long long>(x)); }
inline int __float2int_rn(float x) { return static_cast<int>(std::rint(x)); }
inline int __double2int_rn(double x) { return static_cast<int>(std::rint(x)); }
inline double __dmul_rn(double x, double y) { return x * y; }
inline float __fdiv_rn(float x, float y) { return x / y; }
inline double __ddiv_rn(double x, double y) { return x / y; }
inline float __fsqrt_rn(float x) { return std::sqrt(x); }
inline double __dsqrt_rn(double x) { return std::sqrt(x); }
inline float __frsqrt_rn(float x) { return static_cast<float>(1.0L / std::sqrt((long double)x)); }
"""

_FLUSH = "std::fabs(y) < 0x1p-126f ? std::copysign(0.0f, y) : y"

_HOST_INSTRUCTIONS = {
    "exp2_approx": f"inline float exp2_approx(float x) {{ float y = std::exp2(x); return {_FLUSH}; }}",
    "log2_approx": "inline float log2_approx(float x) { return std::log2(x); }",
    "reciprocal_approx": "inline float reciprocal_approx(float x) "
    f"{{ float y = 1.0f / x; return {_FLUSH}; }}",
    "divide_full": "inline float divide_full(float x, float y) { return x / y; }",
    "sqrt_approx": "inline float sqrt_approx(float x) { return std::sqrt(x); }",
    "rsqrt_approx": "inline float rsqrt_approx(float x) "
    "{ return static_cast<float>(1.0L / std::sqrt((long double)x)); }",
    "tanh_approx": "inline float tanh_approx(float x) { return std::tanh(x); }",
    "f16_to_float": "inline float f16_to_float(f16_t x) "
    "{ _Float16 y; memcpy(&y, &x, 2); return static_cast<float>(y); }",
    "float_to_f16": "inline f16_t float_to_f16(float x) "
    "{ _Float16 y = static_cast<_Float16>(x); f16_t z; memcpy(&z, &y, 2); return z; }",
}


def host_source() -> str:
    """The library as C++ for the CPU, without the collective drivers."""
    made = [driver for driver in drivers() if not driver.collective]
    text = "\n".join(map(_function, made))
    parts = [_HOST_HEADER, _prelude(text, _HOST_INSTRUCTIONS), text]
    for driver in made:
        parts.append(
            f'extern "C" int run_{driver.name}(const {driver.x}* xs, int64_t, const {driver.y}* ys, '
            f"int64_t, {driver.out}* out, int64_t, int64_t n) {{\n"
            f"  for (int64_t i = 0; i < n; ++i) {driver.name}_at(xs, ys, out, i);\n  return 0;\n}}\n"
        )
    return "\n".join(parts)


def compile_library(command: Sequence[str], source: Path, library: Path) -> None:
    """Runs a compiler; the test fails with its output."""
    done = subprocess.run(
        [*command, "-o", str(library), str(source)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, (done.stdout + done.stderr)[-4000:]


Array = npt.NDArray[np.generic]


class Library:
    """A compiled library of drivers."""

    def __init__(self, path: Path, gpu: bool) -> None:
        self._library = ctypes.CDLL(str(path))
        self.gpu = gpu

    def run(self, name: str, n: int, xs: Array, out: Array, ys: Array | None = None) -> Array:
        """Calls one driver for i < n; `out` is read and written in place, and returned."""
        second = np.zeros(1, np.int8) if ys is None else np.ascontiguousarray(ys)
        first = np.ascontiguousarray(xs)
        assert out.flags.c_contiguous
        arguments: list[object] = []
        for array in (first, second, out):
            arguments += [ctypes.c_void_p(array.ctypes.data), ctypes.c_int64(array.nbytes)]
        status = getattr(self._library, f"run_{name}")(*arguments, ctypes.c_int64(n))
        assert status == 0, f"{name}: CUDA error {status}"
        return out
