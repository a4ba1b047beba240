"""The host's primitives, each alone, against NumPy and the formulas of the PTX ISA."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.running import fault, kernel, run
from tilec.emit.primitives import load_primitives
from tilec.emulator.text import host_blocks

Array = np.ndarray[Any, Any]


def test_no_block_is_left_that_only_a_gpu_understands() -> None:
    device = load_primitives().blocks
    guarded = re.compile(r"#if defined\(__CUDA_ARCH__\).*?(#else.*?)?#endif", re.DOTALL)
    gpu = re.compile(r"\basm\b|\b__[a-z]\w*_(sync|r[nz])\b|\batomic[A-Z]\w*\(|\*p\b|\bp\[")
    shared = [b for b in host_blocks() if b.name in device and b.text == device[b.name].text]
    assert len(shared) > 50
    assert [b.name for b in shared if gpu.search(guarded.sub(lambda m: m[1] or "", b.text))] == []


def test_every_block_follows_what_it_needs() -> None:
    seen: set[str] = set()
    for block in host_blocks():
        assert {*block.needs, *block.condition} <= seen, block.name
        seen.add(block.name)


# ---- lanes


def test_votes_and_bits() -> None:
    x = np.array([0, 1, -1, 0x40000000, 0x00F0, -(2**31), 3, 5] * 4, np.int32)
    votes, counts, low, high = (np.zeros_like(x) for _ in range(4))
    body = (
        "const int32_t* xs, int32_t* votes, int32_t* counts, int32_t* low, int32_t* high\n"
        "const int32_t x = load_element(xs + threadIdx.x);\n"
        "const uint32_t bits = static_cast<uint32_t>(x);\n"
        "store_element(votes + threadIdx.x, static_cast<int32_t>(lanes_where(x > 2)));\n"
        "store_element(counts + threadIdx.x, count_bits(bits));\n"
        "store_element(low + threadIdx.x, bits == 0 ? -1 : lowest_bit(bits));\n"
        "store_element(high + threadIdx.x, bits == 0 ? -1 : highest_bit(bits));"
    )
    run(body, x, votes, counts, low, high, block=32)
    words = x.astype(np.uint32)
    vote = sum(1 << lane for lane in range(32) if x[lane] > 2)
    assert (votes.astype(np.uint32) == vote).all()
    assert counts.tolist() == [int(w).bit_count() for w in words]
    assert high.tolist() == [int(w).bit_length() - 1 for w in words]
    assert low.tolist() == [(int(w) & -int(w)).bit_length() - 1 for w in words]


@pytest.mark.parametrize("share", [0.0, 0.03, 0.5, 1.0])
def test_a_walk_finds_every_trip_that_survives(share: float) -> None:
    """One after the other with the one before, at once, and again from the front; beyond the last one it stays inside the trips."""
    for trips in (1, 31, 32, 33, 150):
        alive = (np.random.default_rng(trips).random(trips) < share).astype(np.int32)
        known = np.flatnonzero(alive).tolist()
        wanted = [0, *(n - back for n in range(1, len(known)) for back in (0, 1))]
        wanted += [len(known) - 1, 0, len(known) // 2, max(0, len(known) - 2), len(known) - 1]
        numbers = np.array(wanted, np.int32)
        found = np.full(len(wanted), -7, np.int32)
        body = (
            "const int32_t* alive, const int32_t* wanted, int32_t* found\n"
            "SurvivorWalk walk;\n"
            f"for (int n = 0; n < {len(wanted)}; ++n) {{\n"
            "const int number = load_element(wanted + n);\n"
            "while (walk.is_before(number)) {\n"
            f"while (walk.asks({trips})) {{\n"
            "const int at = walk.next + lane_id();\n"
            f"const bool lives = at < {trips} && load_element(alive + min_of(at, {trips - 1})) != 0;\n"
            "walk.pass_by(lanes_where(lives), number);\n"
            "}\n"
            "walk.step();\n"
            "}\n"
            "if (threadIdx.x == 0) store_element(found + n, walk.trip(number));\n"
            "}"
        )
        run(body, alive, numbers, found, block=32)
        assert [known[n] if 0 <= n < len(known) else 0 for n in wanted] == found.tolist()


@pytest.mark.parametrize(
    ("call", "source"),
    [
        ("shuffle_xor(x, 5)", lambda i: i ^ 5),
        ("shuffle_up(x, 3)", lambda i: max(i - 3, 0) if i >= 3 else i),
        ("shuffle_from(x, 7)", lambda i: 7),
        ("uniform_int(x)", lambda i: 0),
        ("__shfl_sync(~0u, x, 2, 8)", lambda i: i // 8 * 8 + 2),
        ("__shfl_xor_sync(~0u, x, 1)", lambda i: i ^ 1),
        ("__shfl_up_sync(~0u, x, 2, 16)", lambda i: i - 2 if i % 16 >= 2 else i),
        ("__shfl_down_sync(~0u, x, 2, 16)", lambda i: i + 2 if i % 16 < 14 else i),
    ],
)
def test_shuffles(call: str, source: Callable[[int], int]) -> None:
    x = np.arange(64, dtype=np.int64) * 0x100000001
    y = np.zeros_like(x)
    body = f"const int64_t* xs, int64_t* y\nconst int64_t x = load_element(xs + threadIdx.x);\nstore_element(y + threadIdx.x, {call});"
    run(body, x, y, block=64)
    np.testing.assert_array_equal(y, [x[i // 32 * 32 + source(i % 32)] for i in range(64)])


def test_votes() -> None:
    y = np.zeros(96, np.int32)
    body = """int* y
const int i = threadIdx.x;
store_element(y + i, static_cast<int>(__ballot_sync(~0u, i % 3 == 0)));
store_element(y + 32 + i, __any_sync(~0u, i == 31) + 2 * __all_sync(~0u, i != 31));
if (i % 2) store_element(y + 64 + i, static_cast<int>(__ballot_sync(0xaaaaaaaau, true)));"""
    run(body, y)
    assert set(y[:32]) == {np.int32(sum(1 << i for i in range(0, 32, 3)))}
    assert set(y[32:64]) == {1}
    assert set(y[65:96:2].view(np.uint32)) == {0xAAAAAAAA} and set(y[64:96:2]) == {0}


def test_a_warp_with_fewer_lanes() -> None:
    y = np.zeros(48, np.int32)
    body = "int* y\nstore_element(y + threadIdx.x, shuffle_xor(static_cast<int>(threadIdx.x), 1));"
    run(body, y, block=48)
    np.testing.assert_array_equal(y, np.arange(48) ^ 1)
    assert fault(body.replace(", 1)", ", 16)"), y, block=48).code == "E0934"


def test_reductions_and_scans() -> None:
    x = np.random.default_rng(1).integers(-50, 50, 64).astype(np.int32)
    y = np.zeros(448, np.int32)
    body = """const int* xs, int* y
struct Shared {
  SharedArray<int, 2> partial;
  SharedArray<int, 2> scratch;
  SharedArray<int, 16> slots;
};
Shared& shared = cta_shared<Shared>();
const int i = threadIdx.x, warp = i / 32, lane = i % 32;
const int x = load_element(xs + i);
const int sum = lane_reduce<OpSum<int>, 32>(x);
if (lane == 0) shared.partial[warp] = sum;
__syncthreads();
store_element(y + i, combine_partials<OpSum<int>, 2>(shared.partial));
store_element(y + 64 + i, lane_reduce<OpMax<int>, 4, 8>(x));
const int below = lane_scan<OpSum<int>, 32>(x);
store_element(y + 128 + i, below + group_scan_offset<OpSum<int>, 2>(sum, shared.scratch, warp, lane));
const int slot = group_reduce_slots<OpSum<int>, 2, 8>(lane_reduce<OpSum<int>, 4, 8>(x), shared.slots, warp, lane % 8, lane < 8);
store_element(y + 192 + i, slot);
const int before = lane_scan_before<OpSum<int>, 32>(x);
store_element(y + 256 + i, before + combine_partials_before<OpSum<int>, 2>(shared.partial, warp));
store_element(y + 320 + i, before + combine_partials_before_by_lanes<OpSum<int>, 2>(shared.partial, warp));
store_element(y + 384 + i, lane_scan_before<OpMax<int>, 4, 8>(x));"""
    run(body, x, y, block=64)
    assert set(y[:64]) == {x.sum()}
    by_column = x.reshape(2, 4, 8)
    expected = np.broadcast_to(by_column.max(1, keepdims=True), (2, 4, 8)).reshape(64)
    np.testing.assert_array_equal(y[64:128], expected)
    np.testing.assert_array_equal(y[128:192], np.cumsum(x))
    np.testing.assert_array_equal(y[192:256], np.tile(by_column.sum((0, 1)), 8))
    for first in (256, 320):
        np.testing.assert_array_equal(y[first : first + 64], np.cumsum(x) - x)
    least = np.full((2, 1, 8), np.iinfo(np.int32).min)
    before = np.concatenate([least, np.maximum.accumulate(by_column, 1)[:, :3]], axis=1)
    np.testing.assert_array_equal(y[384:], before.reshape(64))


def test_reductions_that_do_not_commute_keep_the_order() -> None:
    x = np.arange(64, dtype=np.int32)
    y = np.zeros(64, np.int32)
    body = """const int* xs, int* y
struct Shared {
  SharedArray<int, 2> scratch;
};
Shared& shared = cta_shared<Shared>();
const int i = threadIdx.x;
const auto last = [](int a, int b) { return a > b ? -1000 : b; };
const int x = lane_reduce_with<32>(load_element(xs + i), last);
store_element(y + i, group_reduce_with<2>(x, shared.scratch, i / 32, i % 32, last));"""
    run(body, x, y, block=64)
    assert set(y) == {63}


# ---- memory


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 7, 8, 9])
@pytest.mark.parametrize("access", ["aligned", "single"])
def test_partial_accesses_touch_nothing_else(count: int, access: str) -> None:
    x = np.arange(8, dtype=np.float32) + 1
    kept = max(0, min(count, 8))
    y = np.full(8, -1, np.float32)
    body = (
        "const float* x, float* y, int count\nif (threadIdx.x == 0) {\n"
        f"const Vector<float, 8> v = load_{access}_partial<8>(x, count);\n"
        f"store_{access}_partial(y, v, count);\n}}"
    )
    run(body, x[:kept].copy(), y[:kept].copy(), np.int32(count))
    whole = np.zeros(8, np.float32)
    run(
        body.replace(f"store_{access}_partial(y, v, count)", "store_single(y, v)"),
        x,
        whole,
        np.int32(count),
    )
    np.testing.assert_array_equal(whole, np.where(np.arange(8) < kept, x, 0))
    if kept:
        run(body, x, y, np.int32(count))
        np.testing.assert_array_equal(y, np.where(np.arange(8) < kept, x, -1))


@pytest.mark.parametrize(("kind", "name"), [(np.int8, "i4_t"), (np.uint8, "u4_t")])
def test_single_nibbles(kind: Any, name: str) -> None:
    x = np.arange(16, dtype=np.uint8) * 17 + 3
    y = np.zeros(32, np.int32)
    body = f"const {name}* x, int* y\nstore_element(y + threadIdx.x, load_nibble(x, threadIdx.x));"
    run(body, x, y)
    values = np.stack([x & 15, x >> 4], axis=1).ravel().astype(np.int32)
    np.testing.assert_array_equal(y, values - 16 * (values > 7) if kind is np.int8 else values)
    assert fault(body.replace("(x, ", "(x, 1 + "), x, y).code == "E0930"


def test_atomics() -> None:
    kinds = {"int": np.int32, "float": np.float32, "int64_t": np.int64, "double": np.float64}
    for name, kind in kinds.items():
        x = np.random.default_rng(2).integers(-9, 9, 32).astype(kind)
        y = np.zeros(3, kind)
        body = (
            f"const {name}* xs, {name}* y\nconst {name} x = load_element(xs + threadIdx.x);\n"
            "atomic_add(y, x);\natomic_max(y + 1, x);\natomic_min(y + 2, x);"
        )
        run(body, x, y)
        np.testing.assert_array_equal(y, [x.sum(), max(x.max(), 0), min(x.min(), 0)])
    for name, small in (("f16_t", np.float16), ("bf16_t", ml_dtypes.bfloat16)):
        y = np.zeros(1, small)
        run(f"{name}* y\natomic_add(y, convert<{name}>(float(threadIdx.x % 2)));", y)
        assert float(y[0]) == 16


def test_atomics_of_vectors_are_aligned_and_counted() -> None:
    body = "float* y\nVector<float, 4> v = {};\nv[threadIdx.x % 4] = 1.0f;\n"
    body += "atomic_add_vector<16>(y + threadIdx.x / 16 * 4, v);"
    y = np.zeros(8, np.float32)
    loads, stores = run(body, y, counting=True)
    np.testing.assert_array_equal(y, [4] * 8)
    assert (loads.kind, stores.kind) == ("load", "store")
    assert (stores.requests, stores.units, stores.least) == (1, 1, 1)
    message = fault(body.replace("y + ", "y + 1 + "), np.zeros(12, np.float32))
    assert message.code == "E0936"
    outside = fault(body.replace("/ 16", "/ 8"), y)
    assert outside.code == "E0930"


def test_conversions_are_those_of_numpy() -> None:
    x = np.concatenate(
        [
            np.random.default_rng(3).normal(0, 1, 200).astype(np.float32)
            * np.float32(10.0) ** np.arange(-10, 10).repeat(10),
            np.float32(
                [0, -0.0, np.inf, -np.inf, 65519, 65520, 2**-25, 3 * 2**-25, 2**-24, 448, 464, 480]
            ),
        ]
    ).astype(np.float32)
    n = len(x)
    half, brain, back = (
        np.zeros(n, np.float16),
        np.zeros(n, ml_dtypes.bfloat16),
        np.zeros(n, np.float32),
    )
    body = """const float* xs, f16_t* h, bf16_t* b, float* back, int n
for (int i = threadIdx.x; i < n; i += 32) {
  const float x = load_element(xs + i);
  store_element(h + i, convert<f16_t>(x));
  store_element(b + i, convert<bf16_t>(x));
  store_element(back + i, convert<float>(convert<f16_t>(x)));
}"""
    run(body, x, half, brain, back, np.int32(n))
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(half.view(np.uint16), x.astype(np.float16).view(np.uint16))
        np.testing.assert_array_equal(
            brain.view(np.uint16), x.astype(ml_dtypes.bfloat16).view(np.uint16)
        )
        np.testing.assert_array_equal(back, x.astype(np.float16).astype(np.float32))


# ---- matrices


def test_ldmatrix() -> None:
    x = np.arange(4 * 64, dtype=np.uint16)
    for count, trans in itertools.product((1, 2, 4), (False, True)):
        y = np.zeros((32, 4), np.uint32).view(np.int32)
        body = f"""const uint16_t* xs, int* y
struct Shared {{
  SharedArray<uint16_t, 256> x;
}};
Shared& shared = cta_shared<Shared>();
const int lane = threadIdx.x;
cp_async<16>(shared.x + lane * 8, xs + lane * 8);
cp_async_commit();
cp_async_wait<0>();
__syncthreads();
uint32_t r[{count}];
ldmatrix_x{count}{"_trans" if trans else ""}(r, shared.x + lane % {8 * count} * 8);
for (int i = 0; i < {count}; ++i) store_element(y + lane * 4 + i, static_cast<int>(r[i]));"""
        run(body, x, y)
        matrices = x.reshape(4, 8, 8)
        for lane, m in itertools.product(range(32), range(count)):
            held = matrices[m].T if trans else matrices[m]
            low, high = held[lane // 4, 2 * (lane % 4)], held[lane // 4, 2 * (lane % 4) + 1]
            assert y.view(np.uint32)[lane, m] == int(low) | int(high) << 16


def test_ldmatrix_wants_rows_of_16_bytes() -> None:
    body = """int* y
struct Shared {
  SharedArray<uint16_t, 512> x;
};
Shared& shared = cta_shared<Shared>();
for (int i = 0; i < 16; ++i) shared.x[threadIdx.x * 16 + i] = uint16_t(i);
__syncthreads();
uint32_t r[1];
ldmatrix_x1(r, shared.x + threadIdx.x * 9);"""
    assert fault(body, np.zeros(1, np.int32)).code == "E0936"


@pytest.mark.parametrize("count", [2, 4])
def test_stmatrix_undoes_ldmatrix(count: int) -> None:
    x = np.random.default_rng(4).integers(0, 65536, 64 * count).astype(np.uint16)
    y = np.zeros_like(x)
    body = f"""const uint16_t* xs, uint16_t* y
struct Shared {{
  SharedArray<uint16_t, {64 * count}> x;
  SharedArray<uint16_t, {64 * count}> y;
}};
Shared& shared = cta_shared<Shared>();
const int lane = threadIdx.x;
for (int i = lane; i < {64 * count}; i += 32) shared.x[i] = load_element(xs + i);
__syncthreads();
uint32_t r[{count}];
ldmatrix_x{count}(r, shared.x + lane % {8 * count} * 8);
stmatrix_x{count}(shared.y + lane % {8 * count} * 8, r);
__syncthreads();
for (int i = lane; i < {64 * count}; i += 32) store_element(y + i, uint16_t(shared.y[i]));"""
    run(body, x, y)
    np.testing.assert_array_equal(x, y)


def test_movmatrix_transposes() -> None:
    x = np.random.default_rng(4).integers(0, 65536, (8, 8)).astype(np.uint16)
    y = np.zeros_like(x)
    body = """const uint32_t* xs, uint32_t* y
const int lane = threadIdx.x;
store_element(y + lane, movmatrix_trans(load_element(xs + lane)));"""
    # a lane's word is two neighbours of a row, before and after
    run(body, x.view(np.uint32), y.view(np.uint32))
    np.testing.assert_array_equal(x.T, y)


BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
PRODUCTS: list[tuple[str, Any, int]] = [
    ("mma_m16n8k16_f16", np.float16, 16),
    ("mma_m16n8k16_bf16", BF16, 16),
    ("mma_m16n8k8_f16", np.float16, 8),
    ("mma_m16n8k8_bf16", BF16, 8),
    ("mma_m16n8k8_tf32", np.float32, 8),
    ("mma_m16n8k32_s8", np.int8, 32),
    ("mma_m16n8k32_u8", np.uint8, 32),
    ("mma_m16n8k32_e4m3", E4M3, 32),
    ("mma_m16n8k32_e5m2", E5M2, 32),
]


def words_of(matrix: Array, rows: bool) -> Array:
    """Registers of all lanes, (32, words). The PTX ISA's figures, read by words: lane 4g + t holds of a left operand
    rows g and g + 8, of a right one column g; along the depth, the t-th word of each half, rows before halves."""
    if not rows:
        matrix = matrix.T
    per_word = 4 // matrix.itemsize
    words = np.ascontiguousarray(matrix).view(np.uint32).reshape(matrix.shape[0], -1)
    assert words.shape[1] == matrix.shape[1] // per_word
    halves = range(words.shape[1] // 4)
    lanes = []
    for g, t in itertools.product(range(8), range(4)):
        blocks = (g, g + 8) if rows else (g,)
        lanes.append([words[r, 4 * h + t] for h in halves for r in blocks])
    return np.array(lanes, np.uint32)


@pytest.mark.parametrize(("name", "kind", "depth"), PRODUCTS)
def test_products(name: str, kind: Any, depth: int) -> None:
    random = np.random.default_rng(5)
    integer = np.dtype(kind).kind in "iu"
    if integer:
        bounds = np.iinfo(kind)
        a = random.integers(bounds.min, bounds.max + 1, (16, depth)).astype(kind)
        b = random.integers(bounds.min, bounds.max + 1, (depth, 8)).astype(kind)
        c = random.integers(-1000, 1000, (16, 8)).astype(np.int32)
    else:
        a = random.normal(size=(16, depth)).astype(np.float32).astype(kind)
        b = random.normal(size=(depth, 8)).astype(np.float32).astype(kind)
        c = random.normal(size=(16, 8)).astype(np.float32)
    left, right = words_of(a, True), words_of(b, False)
    d = c.reshape(2, 8, 4, 2).transpose(1, 2, 0, 3).reshape(32, 4).copy()
    na, nb = left.shape[1], right.shape[1]
    sums = "int32_t" if integer else "float"
    body = f"""const uint32_t* as, const uint32_t* bs, {sums}* ds
const int lane = threadIdx.x;
uint32_t a[{na}], b[{nb}];
{sums} d[4];
for (int i = 0; i < {na}; ++i) a[i] = load_element(as + lane * {na} + i);
for (int i = 0; i < {nb}; ++i) b[i] = load_element(bs + lane * {nb} + i);
for (int i = 0; i < 4; ++i) d[i] = load_element(ds + lane * 4 + i);
{name}(d, a, b);
for (int i = 0; i < 4; ++i) store_element(ds + lane * 4 + i, d[i]);"""
    run(body, left, right, d)
    got = d.reshape(8, 4, 2, 2).transpose(2, 0, 1, 3).reshape(16, 8)
    if integer:
        np.testing.assert_array_equal(got, c + a.astype(np.int32) @ b.astype(np.int32))
        return
    if name.endswith("tf32"):
        a, b = ((x.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32) for x in (a, b))
    exact = c.astype(np.float64) + a.astype(np.float64) @ b.astype(np.float64)
    np.testing.assert_allclose(got, exact, rtol=2**-23, atol=1e-12)


def test_the_product_of_doubles() -> None:
    random = np.random.default_rng(7)
    a, b, c = random.normal(size=(8, 4)), random.normal(size=(4, 8)), random.normal(size=(8, 8))
    d = c.copy()
    body = """const double* as, const double* bs, double* ds
const int lane = threadIdx.x;
double d[2] = {load_element(ds + lane * 2), load_element(ds + lane * 2 + 1)};
mma_m8n8k4_f64(d, load_element(as + lane), load_element(bs + lane));
store_element(ds + lane * 2, d[0]);
store_element(ds + lane * 2 + 1, d[1]);"""
    # lane 4·row + k holds a[row, k], lane 4·col + k holds b[k, col], lane 4·row + col/2 two sums
    run(body, a, np.ascontiguousarray(b.T), d)
    np.testing.assert_allclose(d, c + a @ b, rtol=1e-15, atol=1e-15)


@pytest.mark.parametrize(("left", "right"), [(E4M3, E5M2), (E5M2, E4M3)])
def test_products_of_two_kinds_of_f8(left: Any, right: Any) -> None:
    kinds = "e5m2_e4m3" if left is E5M2 else "e4m3_e5m2"
    a = np.arange(512).reshape(16, 32).astype(np.float32) % 7 - 3
    b = np.arange(256).reshape(32, 8).astype(np.float32) % 5 - 2
    d = np.zeros((32, 4), np.float32)
    body = f"""const uint32_t* as, const uint32_t* bs, float* ds
const int lane = threadIdx.x;
uint32_t a[4], b[2];
float d[4] = {{}};
for (int i = 0; i < 4; ++i) a[i] = load_element(as + lane * 4 + i);
for (int i = 0; i < 2; ++i) b[i] = load_element(bs + lane * 2 + i);
mma_m16n8k32_{kinds}(d, a, b);
for (int i = 0; i < 4; ++i) store_element(ds + lane * 4 + i, d[i]);"""
    run(body, words_of(a.astype(left), True), words_of(b.astype(right), False), d)
    got = d.reshape(8, 4, 2, 2).transpose(2, 0, 1, 3).reshape(16, 8)
    np.testing.assert_array_equal(got, a @ b)


@pytest.mark.parametrize(("kind", "name"), [(np.float16, "f16_t"), (BF16, "bf16_t")])
@pytest.mark.parametrize(("rows_a", "rows_b"), list(itertools.product((False, True), repeat=2)))
def test_wmma(kind: Any, name: str, rows_a: bool, rows_b: bool) -> None:
    random = np.random.default_rng(8)
    a, b = (random.normal(size=(16, 16)).astype(np.float32).astype(kind) for _ in range(2))
    c = np.zeros((16, 16), np.float32)
    body = f"""const {name}* a, const {name}* b, float* c
WmmaLeft<{name}, {str(rows_a).lower()}> left;
WmmaRight<{name}, {str(rows_b).lower()}> right;
WmmaSums<float> sums;
wmma_fill(sums, 0.5f);
wmma_load(left, a, 16);
wmma_load(right, b, 16);
wmma_multiply(sums, left, right);
wmma_store(c, sums, 16);"""
    run(body, *(np.ascontiguousarray(x if r else x.T) for x, r in ((a, rows_a), (b, rows_b))), c)
    np.testing.assert_allclose(c, a.astype(np.float64) @ b.astype(np.float64) + 0.5, rtol=1e-6)
    late = body.replace("wmma_load(left, a, 16)", "wmma_load(left, a + 8, 16)")
    assert fault(late, a, b, c).code == "E0936"


@pytest.mark.parametrize(
    ("kind", "name", "element", "sum_type"),
    [
        (np.int8, "int8_t", "int8_t", np.int32),
        (np.uint8, "uint8_t", "uint8_t", np.int32),
        (np.float32, "float", "tf32_t", np.float32),
    ],
)
def test_wmma_of_other_elements(kind: Any, name: str, element: str, sum_type: Any) -> None:
    depth = 8 if element == "tf32_t" else 16
    random = np.random.default_rng(9)
    a, b = (random.integers(0, 100, size=s).astype(kind) for s in ((16, depth), (depth, 16)))
    if element == "tf32_t":
        a[0, 0] = 1 + 2.0**-11  # a tie, rounded away from zero
        b[:, 0] = np.eye(depth)[0]
    c = np.zeros((16, 16), sum_type)
    of = "float" if sum_type is np.float32 else "int"
    body = f"""const {name}* a, const {name}* b, {of}* c
WmmaLeft<{element}, true> left;
WmmaRight<{element}, false> right;
WmmaSums<{of}, {depth}> sums;
wmma_fill(sums, {of}(1));
wmma_load(left, a, {depth});
wmma_load(right, b, {depth});
wmma_multiply(sums, left, right);
wmma_store(c, sums, 16);"""
    run(body, a, np.ascontiguousarray(b.T), c)
    if element == "tf32_t":
        a[0, 0] = 1 + 2.0**-10
    expected = a.astype(np.float64) @ b.astype(np.float64) + 1
    np.testing.assert_array_equal(c, expected.astype(sum_type))


def named(consumer: str, producer: str = "named_barrier_arrive(1, 64);") -> str:
    """Warp 0 writes and goes on, warp 1 waits and reads."""
    return f"""int* y
struct Shared {{
  SharedArray<int, 32> x;
}};
Shared& shared = cta_shared<Shared>();
const int i = threadIdx.x;
if (i < 32) {{
  shared.x[i] = i;
  {producer}
}} else {{
  {consumer}
  store_element(y + i, int(shared.x[(i + 1) % 32]));
}}"""


def test_named_barriers_order_those_who_meet() -> None:
    y = np.zeros(64, np.int32)
    run(named("named_barrier_sync(1, 64);"), y, block=64)
    np.testing.assert_array_equal(y[32:], (np.arange(32) + 1) % 32)
    assert fault(named(""), y, block=64).code == "E0933"
    assert fault(named("named_barrier_sync(2, 64);"), y, block=64).code in ("E0934", "E0935")
    assert fault(named("named_barrier_sync(1, 32);"), y, block=64).code == "E0934"
    assert fault(named("named_barrier_sync(1, 48);"), y, block=64).code == "E0934"


@pytest.mark.parametrize(
    ("workers", "trips", "each", "size"),
    [
        (132, 16, 6, 8),
        (132, 16, 1, 16),
        (132, 128, 1, 64),
        (132, 7, 8, 7),
        (132, 7, 30, 1),
        (3, 2, 4, 1),
        (132, 5, 0, 5),
    ],
)
def test_a_section_of_what_is_drawn_is_a_whole_part(
    workers: int, trips: int, each: int, size: int
) -> None:
    found = np.zeros(1, np.int32)
    body = f"int* y\n store_element(y, drawn_section({workers}, {trips}, {each}));"
    run(body, found)
    assert found[0] == size and trips % size == 0


def test_bits_of_columns_are_those_that_a_bound_leaves() -> None:
    first, count = -20, 180
    bits = np.full((count, 2), 7, np.uint32)
    body = f"""uint32_t* y
        const int x = static_cast<int>(threadIdx.x) + {first};
        store_element(y + threadIdx.x * 2, columns_upto(x));
        store_element(y + threadIdx.x * 2 + 1, columns_from(x));"""
    run(body, bits, block=count)
    n = np.arange(32)
    columns = n // 2 * 8 + n % 2
    for x, (upto, above) in zip(range(first, first + count), bits, strict=True):
        assert upto == sum(1 << int(b) for b in n[columns <= x])
        assert above == sum(1 << int(b) for b in n[columns >= x])


@pytest.mark.parametrize(
    ("workers", "trips", "others"),
    [
        (132, 8, 256),
        (132, 11, 256),
        (132, 22, 128),
        (132, 22, 99),
        (132, 5, 100),
        (132, 32, 64),
        (132, 32, 40),
        (132, 31, 48),
        (132, 1, 1),
        (7, 5, 40),
        (7, 4, 9),
        (64, 3, 65),
        (1, 3, 5),
    ],
)
def test_uneven_places_are_each_instance_once_and_even(
    workers: int, trips: int, others: int
) -> None:
    turns = trips * others // workers + 4
    places = np.full(workers * turns * 2, -2, np.int32)
    body = f"""int* y
        const int worker = threadIdx.x;
        const UnevenShares shares = uneven_shares({workers}, {trips}, {others});
        for (int turn = 0, n = 0; n < {turns}; ++turn, ++n) {{
          const UnevenPlace p = uneven_place(turn, worker, {workers}, {trips}, {others}, shares);
          store_element(y + (worker * {turns} + n) * 2, p.trip);
          store_element(y + (worker * {turns} + n) * 2 + 1, p.other);
        }}"""
    run(body, places, block=workers)
    found = places.reshape(workers, turns, 2)
    there = found[:, :, 0] >= 0
    # places that have an instance come first, and the last turn has none
    assert (np.diff(there.astype(int), axis=1) <= 0).all() and not there[:, -1].any()
    pairs = [tuple(p) for p in found[there]]
    assert len(pairs) == len(set(pairs)) == trips * others
    assert set(pairs) == set(itertools.product(range(trips), range(others)))
    # a trip costs its number and two more
    loads = np.where(there, found[:, :, 0] + 3, 0).sum(1)
    longest = trips + 2
    assert loads.max() <= loads.sum() / workers + longest


def test_late_the_lowest_warp_that_can_go_on_does_and_early_the_highest() -> None:
    body = kernel(
        "int* count, int* order",
        """
const int warp = thread / 32;
if (warp == 0) named_barrier_sync(1, 64);
if (warp == 2) named_barrier_sync(2, 64);
if (thread % 32 == 0) {
  const int place = load_element(count);
  store_element(order + place, warp);
  store_element(count, place + 1);
}
if (warp == 1) {
  named_barrier_arrive(1, 64);
  named_barrier_arrive(2, 64);
}""",
        threads=96,
    )
    for mode, expected in (("late", [1, 0, 2]), ("early", [1, 2, 0])):
        order = np.full(3, -1, np.int32)
        run(body, np.zeros(1, np.int32), order, block=96, mode=mode)
        assert order.tolist() == expected


def test_late_the_first_cta_is_in_front_and_early_the_last() -> None:
    body = """int* count, int* order
if (threadIdx.x == 0) {
  const int place = load_element(count);
  store_element(order + place, static_cast<int>(blockIdx.x));
  store_element(count, place + 1);
}"""
    for mode, expected in (("late", [0, 1]), ("early", [1, 0])):
        order = np.full(2, -1, np.int32)
        run(body, np.zeros(1, np.int32), order, grid=2, mode=mode)
        assert order.tolist() == expected
