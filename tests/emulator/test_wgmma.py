"""Products of warpgroups on the emulator: every type, layout and width against NumPy, and faults that it must find."""

from __future__ import annotations

import re
import time
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from tests.emulator.running import Map, every_schedule, fault, kernel, run
from tests.emulator.test_primitives import words_of
from tilec.emit.wgmma import DEPTHS, all_forms
from tilec.emulator.text import cluster_of, product_text

Array = np.ndarray[Any, Any]
BF16, E4M3, E5M2 = ml_dtypes.bfloat16, ml_dtypes.float8_e4m3fn, ml_dtypes.float8_e5m2
NAMES: dict[Any, str] = {
    BF16: "bf16_t", np.float16: "f16_t", np.float32: "float", np.int8: "int8_t", np.uint8: "uint8_t",
    E4M3: "f8e4m3_t", E5M2: "f8e5m2_t",
}  # fmt: skip
WIDTHS = (8, 24, 64, 96, 128, 256)
TYPES: list[tuple[str, Any, Any, int]] = [
    ("bf16", BF16, BF16, 128),
    ("f16", np.float16, np.float16, 64),
    ("tf32", np.float32, np.float32, 128),
    ("s8", np.int8, np.int8, 32),
    ("u8", np.uint8, np.uint8, 64),
    ("e4m3", E4M3, E4M3, 128),
    ("e5m2", E5M2, E5M2, 64),
    ("e4m3_e5m2", E4M3, E5M2, 32),
    ("e5m2_e4m3", E5M2, E4M3, 128),
]
"""Names, operands, and bytes of a row of shared memory: each span of a swizzle occurs."""


def values(random: np.random.Generator, kind: Any, shape: tuple[int, ...]) -> Array:
    if np.dtype(kind).kind in "iu":
        bounds = np.iinfo(kind)
        return random.integers(bounds.min, bounds.max + 1, shape).astype(kind)
    return random.normal(size=shape).astype(np.float32).astype(kind)


def exact(x: Array) -> Array:
    if x.dtype == np.float32:
        x = (x.view(np.uint32) & ~np.uint32(0x1FFF)).view(np.float32)
    return x.astype(np.float64)


def stored(width: int, at: int) -> str:
    """Both rows of each eight columns to a row-major block behind `at` elements of y."""
    return f"""for (int j = 0; j < {width // 8}; ++j) {{
    for (int e = 0; e < 2; ++e) {{
      const int row = thread / 32 * 16 + thread % 32 / 4, col = 8 * j + thread % 4 * 2 + e;
      store_element(y + {at} + row * {width} + col, acc[0][j].units[e]);
      store_element(y + {at} + (row + 8) * {width} + col, acc[1][j].units[e]);
    }}
  }}"""


def product(
    name: str, width: int, at: int, sums: str, steps: int, left: str, right: str, begin: str
) -> str:
    return f"""{{
  Vector<{sums}, 2> acc[2][{width // 8}];
  for (auto& row : acc) {{
    for (auto& v : row) v.units[0] = v.units[1] = 3;
  }}
  wgmma_fence();
  for (int s = 0; s < {steps}; ++s) {{
    {name}(acc[0], acc[1], {left}, {right}, {begin});
  }}
  wgmma_commit();
  wgmma_wait<0>();
  settle(acc);
  {stored(width, at)}
}}
"""


def tiles(left: str, right: str, a: tuple[int, int], b: tuple[int, int]) -> str:
    return f"""
struct Shared {{
  PanelTile<{left}, {a[0]}, {a[1]}> a;
  PanelTile<{right}, {b[0]}, {b[1]}> b;
}};
Shared& shared = cta_shared<Shared>();
for (int n = thread; n < {a[0] * a[1]}; n += 128) *shared.a.at(n / {a[1]}, n % {a[1]}) = load_element(a + n);
for (int n = thread; n < {b[0] * b[1]}; n += 128) *shared.b.at(n / {b[1]}, n % {b[1]}) = load_element(b + n);
fence_async();
__syncthreads();
"""


def compare(got: Array, expected: Array) -> None:
    if got.dtype == np.int32:
        np.testing.assert_array_equal(got, expected.astype(np.int64))
    else:
        np.testing.assert_allclose(got, expected, rtol=2e-6, atol=2e-5)


@every_schedule
@pytest.mark.parametrize(("types", "left", "right", "row"), TYPES)
def test_products(mode: Any, seed: int, types: str, left: Any, right: Any, row: int) -> None:
    """K-major operands: from shared memory, begun anew; with the left one in registers, added to 3."""
    random = np.random.default_rng(1)
    element, depth = np.dtype(left).itemsize, DEPTHS[types]
    k, steps = row // element, row // 32
    a, b = values(random, left, (64, k)), values(random, right, (256, k))
    held = np.stack(
        [
            np.stack([words_of(a[w * 16 : w * 16 + 16, s * depth : s * depth + depth], True) for w in range(4)])
            for s in range(steps)
        ]
    )  # fmt: skip
    sums = "int32_t" if types in ("s8", "u8") else "float"
    plain = "<0, 0>" if types in ("bf16", "f16") else ""
    single = "<0>" if plain else ""
    body, at = "", 0
    for width in WIDTHS:
        descriptor = f"k_major_descriptor(shared.b, 0, s * {depth})"
        name = f"wgmma_m64n{width}k{depth}_{types}"
        shared = f"k_major_descriptor(shared.a, 0, s * {depth})"
        body += product(name + plain, width, at, sums, steps, shared, descriptor, "s > 0")
        at += 64 * width
        body += product(
            name + "_registers" + single, width, at, sums, steps, "x[s]", descriptor, "true"
        )
        at += 64 * width
    loads = f"""OperandA x[{steps}];
for (int n = 0; n < {4 * steps}; ++n) x[n / 4].x[n % 4] = load_element(held + n / 4 * 512 + thread * 4 + n % 4);
"""
    text = kernel(
        f"const {NAMES[left]}* a, const {NAMES[right]}* b, const uint32_t* held, {sums}* y",
        tiles(NAMES[left], NAMES[right], (64, k), (256, k)) + loads + body,
    )
    y = np.zeros(at, np.int32 if sums == "int32_t" else np.float32)
    run(text, a, b, held, y, block=128, mode=mode, seed=seed)
    expected = exact(a) @ exact(b).T
    at = 0
    for width in WIDTHS:
        for start in (0, 3):
            got = y[at : at + 64 * width].reshape(64, width)
            compare(got, expected[:, :width] + start)
            at += 64 * width


@every_schedule
@pytest.mark.parametrize("types", ["bf16", "f16"])
@pytest.mark.parametrize("width", [16, 32, 96, 192])
def test_products_of_operands_whose_rows_are_consumed(
    mode: Any, seed: int, types: str, width: int
) -> None:
    """Every combination of majors; the right tile's rows have 32, 64 and 128 bytes of a panel."""
    random = np.random.default_rng(2)
    kind = BF16 if types == "bf16" else np.float16
    a, b = values(random, kind, (64, 32)), values(random, kind, (width, 32))
    name = f"wgmma_m64n{width}k16_{types}"
    body, at = "", 0
    for ta, tb in ((0, 1), (1, 0), (1, 1)):
        left = (
            "mn_major_descriptor(shared.at, 16 * s, 0)"
            if ta
            else "k_major_descriptor(shared.a, 0, 16 * s)"
        )
        right = (
            "mn_major_descriptor(shared.bt, 16 * s, 0)"
            if tb
            else "k_major_descriptor(shared.b, 0, 16 * s)"
        )
        body += product(f"{name}<{ta}, {tb}>", width, at, "float", 2, left, right, "s > 0")
        at += 64 * width
    t = NAMES[kind]
    text = kernel(
        f"const {t}* a, const {t}* b, float* y",
        f"""
struct Shared {{
  PanelTile<{t}, 64, 32> a;
  PanelTile<{t}, 32, 64> at;
  PanelTile<{t}, {width}, 32> b;
  PanelTile<{t}, 32, {width}> bt;
}};
Shared& shared = cta_shared<Shared>();
for (int n = thread; n < 64 * 32; n += 128) {{
  *shared.a.at(n / 32, n % 32) = load_element(a + n);
  *shared.at.at(n % 32, n / 32) = load_element(a + n);
}}
for (int n = thread; n < {width} * 32; n += 128) {{
  *shared.b.at(n / 32, n % 32) = load_element(b + n);
  *shared.bt.at(n % 32, n / 32) = load_element(b + n);
}}
fence_async();
__syncthreads();
{body}""",
    )  # fmt: skip
    y = np.zeros((3, 64, width), np.float32)
    run(text, a, b, y, block=128, mode=mode, seed=seed)
    for got in y:
        compare(got, exact(a) @ exact(b).T)


@pytest.mark.parametrize("major", ["k", "mn"])
def test_operands_without_a_swizzle(major: str) -> None:
    """Core matrices of 8 x 16 bytes, one behind the other: 64 or 32 of them along rows, 2 along the depth."""
    random = np.random.default_rng(3)
    a, b = values(random, BF16, (64, 16)), values(random, BF16, (32, 16))
    if major == "k":
        place = "(k / 8 * (ROWS / 8) + n / 8) * 64 + n % 8 * 8 + k % 8"
        leading, stride = "ROWS / 8 * 128", "128"
    else:
        place = "(n / 8 * 2 + k / 8) * 64 + k % 8 * 8 + n % 8"
        leading, stride = "128", "256"

    def filled(name: str, rows: int) -> str:
        return (
            f"for (int i = thread; i < {rows} * 16; i += 128) {{\nconst int n = i / 16, k = i % 16;\n"
            f"shared.{name}[{place.replace('ROWS', str(rows))}] = load_element({name} + i);\n}}\n"
        )

    def described(name: str, rows: int) -> str:
        return (
            f"uint64_t({stride} / 16) << 32 | uint64_t({leading.replace('ROWS', str(rows))} / 16) << 16 | "
            f"shared_address(shared.{name} + 0) >> 4"
        )

    transposed = "<1, 1>" if major == "mn" else "<0, 0>"
    text = kernel(
        "const bf16_t* a, const bf16_t* b, float* y",
        """
struct alignas(128) Shared {
  SharedArray<bf16_t, 64 * 16> a;
  SharedArray<bf16_t, 32 * 16> b;
};
Shared& shared = cta_shared<Shared>();
"""
        + filled("a", 64)
        + filled("b", 32)
        + "fence_async();\n__syncthreads();\n"
        + product("wgmma_m64n32k16_bf16" + transposed, 32, 0, "float", 1, described("a", 64), described("b", 32), "false"),
    )  # fmt: skip
    y = np.zeros((64, 32), np.float32)
    run(text, a, b, y, block=128)
    compare(y, exact(a) @ exact(b).T)


# ---- faults


def one(
    fence: str = "fence_async();",
    order: str = "__syncthreads();",
    left: str = "k_major_descriptor(shared.a, 0, 0)",
    before: str = "",
    registers: str = "wgmma_fence();",
    commit: str = "wgmma_commit();",
    between: str = "",
    wait: str = "wgmma_wait<0>();",
) -> str:
    text = tiles("bf16_t", "bf16_t", (64, 16), (32, 16))
    text = text.replace("fence_async();", fence).replace("__syncthreads();", order)
    return kernel(
        "const bf16_t* a, const bf16_t* b, float* y",
        f"""{text}
Vector<float, 2> acc[2][4] = {{}};
{before}
{registers}
wgmma_m64n32k16_bf16<0, 0>(acc[0], acc[1], {left}, k_major_descriptor(shared.b, 0, 0), true);
{commit}
{between}
{wait}
{stored(32, 0)}""",
    )


DESCRIPTOR = "k_major_descriptor(shared.a, 0, 0)"


@every_schedule
@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"fence": ""}, "E0941", "`fence_async`"),
        ({"fence": "if (thread != 9) fence_async();"}, "E0941", "thread 9"),
        ({"order": ""}, "E0933", "multiplies byte"),
        ({"registers": ""}, "E0946", "`wgmma_fence`"),
        ({"commit": ""}, "E0938", "1 are not committed"),
        ({"wait": ""}, "E0943", "has not waited"),
        ({"commit": "", "wait": ""}, "E0943", "not committed"),
        ({"wait": "wgmma_wait<1>();"}, "E0943", "has not waited"),
        ({"between": "*shared.a.at(0, 0) = bf16_t{};"}, "E0933", ""),
        ({"between": "if (thread == 99) *shared.b.at(31, 15) = bf16_t{};"}, "E0933", "may still read"),
        ({"between": "wgmma_wait<0>();\nif (thread == 99) *shared.b.at(31, 15) = bf16_t{};"}, "E0933", "may still"),
        ({"left": DESCRIPTOR + " + (uint64_t(16) << 32)"}, "E0931", "at byte 3072 of 3072"),
        ({"left": DESCRIPTOR + " + (uint64_t(2048) << 32)"}, "E0931", "has an operand"),
        ({"left": DESCRIPTOR + " | uint64_t(1) << 49"}, "E0942", "must be 0"),
        ({"left": DESCRIPTOR + " + thread / 64"}, "E0942", "differ between threads 0 and 64"),
        ({"before": "if (thread >= 96) return;"}, "E0934", "left the kernel"),
        ({"before": "if (thread < 32) {\nwgmma_fence();\n} else {\n__syncwarp();\n}\nif (thread == 3) return;"},
         "E0934", ""),
    ],
)  # fmt: skip
def test_faults_of_a_product(mode: Any, seed: int, change: Any, code: str, words: str) -> None:
    random = np.random.default_rng(4)
    a, b = values(random, BF16, (64, 16)), values(random, BF16, (32, 16))
    y = np.zeros((64, 32), np.float32)
    run(one(), a, b, y, block=128, mode=mode, seed=seed)
    compare(y, exact(a) @ exact(b).T)
    found = fault(one(**change), a, b, y, block=128, mode=mode, seed=seed)
    assert found.code == code and words in found.message, found


def test_accumulators_under_way() -> None:
    """Read, they are no numbers; written, that is found; in the early mode neither shows."""
    a, b = np.ones((64, 16), BF16), np.ones((32, 16), BF16)
    y = np.zeros((64, 32), np.float32)
    read = one(
        between="if (acc[0][0].units[0] == 16.0f) __trap();\nif (acc[1][3].units[1] > 0.0f) __trap();"
    )
    run(read, a, b, y, block=128)
    assert fault(read, a, b, y, block=128, mode="early").code == "E0937"
    found = fault(one(between="acc[1][2].units[0] = 1.0f;"), a, b, y, block=128)
    assert found.code == "E0933" and "accumulator of a product under way" in found.message
    second = "wgmma_m64n16k16_bf16<0, 0>(acc[0] + 1, acc[1] + 1, {0}, k_major_descriptor(shared.b, 0, 0), true);"
    found = fault(one(commit=second.format(DESCRIPTOR) + "\nwgmma_commit();"), a, b, y, block=128)
    assert found.code == "E0933" and "some accumulators" in found.message


def test_a_descriptor_with_a_wrong_stride_gives_wrong_sums() -> None:
    """Within bounds it reads something that was written: the comparison with the interpreter finds that."""
    random = np.random.default_rng(6)
    a, b = values(random, BF16, (64, 16)), values(random, BF16, (32, 16))
    y = np.zeros((64, 32), np.float32)
    run(one(left=DESCRIPTOR + " + (uint64_t(8) << 32)"), a, b, y, block=128)
    expected = exact(a) @ exact(b).T
    compare(y[:8], expected[:8])
    assert (np.abs(y[8:] - expected[8:]) > 1e-3).mean() > 0.9


def test_a_group_that_may_stay_under_way() -> None:
    """Of two groups the first is done behind a wait for all but one, and the chain keeps its order."""
    a, b = np.ones((64, 16), BF16), np.ones((32, 16), BF16)
    y = np.zeros((64, 32), np.float32)
    again = (
        "wgmma_commit();\nVector<float, 2> other[2][4] = {};\n"
        f"wgmma_m64n32k16_bf16<0, 0>(other[0], other[1], {DESCRIPTOR}, k_major_descriptor(shared.b, 0, 0), true);\n"
        "wgmma_commit();\nwgmma_wait<1>();\nif (acc[0][0].units[0] != 16.0f) __trap();\n"
        "if (other[0][0].units[0] == other[0][0].units[0]) __trap();\n"
        f"wgmma_fence();\nwgmma_m64n32k16_bf16<0, 0>(acc[0], acc[1], {DESCRIPTOR}, k_major_descriptor(shared.b, 0, 0), true);\n"
        "wgmma_commit();\nwgmma_wait<1>();\nif (other[1][3].units[1] != 16.0f) __trap();"
    )
    run(one(commit=again), a, b, y, block=128)
    assert (y == 32).all()


@every_schedule
def test_operands_that_older_copies_bring(mode: Any, seed: int) -> None:
    """What `cp.async` wrote passes a proxy fence, as a store does."""
    random = np.random.default_rng(7)
    a, b = values(random, BF16, (64, 16)), values(random, BF16, (32, 16))
    y = np.zeros((64, 32), np.float32)
    body = one().replace(
        "*shared.a.at(n / 16, n % 16) = load_element(a + n);",
        "if (n % 8 == 0) cp_async<16>(shared.a.at(n / 16, n % 16), a + n);",
    )
    waited = "cp_async_commit();\ncp_async_wait<0>();\nfence_async();"
    how: Any = {"block": 128, "mode": mode, "seed": seed}
    run(body.replace("fence_async();", waited), a, b, y, **how)
    compare(y, exact(a) @ exact(b).T)
    assert fault(body.replace("fence_async();", waited[:-14]), a, b, y, **how).code == "E0941"
    early = body.replace("fence_async();", "cp_async_commit();\nfence_async();")
    assert fault(early, a, b, y, **how).code == "E0933"


def test_registers_fenced_again_behind_a_wait() -> None:
    a, b = np.ones((64, 16), BF16), np.ones((32, 16), BF16)
    product = f"wgmma_m64n32k16_bf16<0, 0>(acc[0], acc[1], {DESCRIPTOR}, k_major_descriptor(shared.b, 0, 0), true);"
    again = f"wgmma_wait<0>();\nFENCE\n{product}\nwgmma_commit();"
    y = np.zeros((64, 32), np.float32)
    run(one(between=again.replace("FENCE", "wgmma_fence();")), a, b, y, block=128)
    assert (y == 32).all()
    for mode in ("late", "early", "chaos"):
        body = one(between=again.replace("FENCE", "if (thread >= 32) wgmma_fence();"))
        found = fault(body, a, b, y, block=128, mode=mode)
        assert found.code == "E0946" and "thread 0 has not" in found.message


def test_an_operand_that_nothing_has_written() -> None:
    a, b = np.ones((64, 16), BF16), np.ones((32, 16), BF16)
    body = one().replace("n < 1024;", "n < 1008;")
    assert fault(body, a, b, np.zeros((64, 32), np.float32), block=128).code == "E0932"


def test_a_product_in_less_than_a_warpgroup() -> None:
    y = np.zeros((64, 32), np.float32)
    a, b = np.ones((64, 16), BF16), np.ones((32, 16), BF16)
    found = fault(one().replace("n += 128", "n += 64"), a, b, y, block=64)
    assert found.code == "E0934" and "fewer than 128" in found.message


# ---- a whole product


def gemm(
    release: str = "if (thread % 32 == 0) barrier_arrive(shared.empty[s]);",
    wait: str = "wgmma_wait<0>();",
    full: str = "barrier_wait(shared.full[s], n / kStages % 2);",
    expect: str = "barrier_arrive_expect(shared.full[s], sizeof(shared.a[0]) + sizeof(shared.b[0]));",
) -> str:
    """128 x 128 tiles: one warp loads, two warpgroups multiply and store by a bulk copy."""
    return kernel(
        "const __grid_constant__ CUtensorMap ma, const __grid_constant__ CUtensorMap mb, "
        "const __grid_constant__ CUtensorMap mc, const bf16_t* a, const bf16_t* b, float* c, int n_tiles, int steps",
        f"""
constexpr int kStages = 3;
struct Shared {{
  PanelTile<bf16_t, 128, 64> a[kStages];
  PanelTile<bf16_t, 128, 64> b[kStages];
  PanelTile<float, 128, 128> c;
  SharedBarrier full[kStages];
  SharedBarrier empty[kStages];
}};
Shared& shared = dynamic_shared_aligned<Shared>();
if (thread == 0) {{
  for (int s = 0; s < kStages; ++s) {{
    barrier_init(shared.full[s], 1);
    barrier_init(shared.empty[s], 8);
  }}
  barrier_init_fence();
}}
__syncthreads();
const int row = int(blockIdx.x) / n_tiles * 128, col = int(blockIdx.x) % n_tiles * 128;
if (thread >= 256) {{
  registers_give<24>();
  if (thread == 256) {{
    for (int n = 0; n < steps; ++n) {{
      const int s = n % kStages;
      barrier_wait(shared.empty[s], n / kStages % 2 ^ 1);
      {expect}
      tensor_load(shared.a[s].panel(0, 0), ma, shared.full[s], 64 * n, row);
      tensor_load(shared.b[s].panel(0, 0), mb, shared.full[s], 64 * n, col);
    }}
  }}
}} else {{
  registers_take<240>();
  const int half = thread / 128 * 64;
  Vector<float, 2> acc[2][16];
  for (int n = 0; n < steps; ++n) {{
    const int s = n % kStages;
    {full}
    wgmma_fence();
    for (int k = 0; k < 4; ++k) {{
      wgmma_m64n128k16_bf16<0, 0>(acc[0], acc[1], k_major_descriptor(shared.a[s], half, 16 * k),
                                  k_major_descriptor(shared.b[s], 0, 16 * k), n > 0 || k > 0);
    }}
    wgmma_commit();
    {wait}
    {release}
  }}
  wgmma_wait<0>();
  settle(acc);
  for (int j = 0; j < 16; ++j) {{
    const int r = half + thread % 128 / 32 * 16 + thread % 32 / 4, q = 8 * j + thread % 4 * 2;
    store_aligned(shared.c.at(r, q), acc[0][j]);
    store_aligned(shared.c.at(r + 8, q), acc[1][j]);
  }}
  fence_async();
  named_barrier_sync(1 + thread / 128, 128);
  if (thread % 128 == 0) {{
    for (int p = 0; p < 4; ++p) tensor_store(mc, shared.c.panel(half, 32 * p), col + 32 * p, row + half);
    bulk_commit();
    bulk_wait_read<0>();
  }}
}}""",
        threads=384,
    )


def run_gemm(text: str, m: int, n: int, k: int, run: Any = run, **how: Any) -> Any:
    random = np.random.default_rng(5)
    a, b = values(random, BF16, (m, k)), values(random, BF16, (n, k))
    c = np.zeros((m, n), np.float32)
    rows, cols, steps = -(-m // 128), -(-n // 128), -(-k // 64)
    maps = Map(3, (64, 128), 128), Map(4, (64, 128), 128), Map(5, (32, 64), 128)
    found = run(
        text, *maps, a, b, c, np.int32(cols), np.int32(steps),
        grid=rows * cols, block=384, shared=170 * 1024, **how,
    )  # fmt: skip
    return (found, c, exact(a) @ exact(b).T)


@every_schedule
@pytest.mark.parametrize(("m", "n", "k"), [(128, 128, 64), (200, 136, 328)])
def test_a_whole_product(mode: Any, seed: int, m: int, n: int, k: int) -> None:
    _, c, expected = run_gemm(gemm(), m, n, k, mode=mode, seed=seed)
    np.testing.assert_allclose(c, expected, rtol=1e-5, atol=1e-4)


@every_schedule
@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({"wait": ""}, {"E0933"}),
        ({"wait": "wgmma_wait<1>();"}, {"E0933"}),
        ({"full": "if (thread % 128 == 5) barrier_wait(shared.full[s], n / kStages % 2);"}, {"E0933"}),
        ({"release": ""}, {"E0935"}),
        ({"release": "if (thread % 128 == 0) barrier_arrive(shared.empty[s]);"}, {"E0935"}),
        ({"expect": "barrier_arrive_expect(shared.full[s], sizeof(shared.a[0]));"},
         {"E0933", "E0935", "E0939", "E0940"}),
        ({"expect": "barrier_arrive_expect(shared.full[s], 2 * sizeof(shared.a[0]) - 16);"},
         {"E0933", "E0935", "E0939", "E0940"}),
    ],
)  # fmt: skip
def test_faults_of_a_whole_product(mode: Any, seed: int, change: Any, codes: set[str]) -> None:
    found, _, _ = run_gemm(gemm(**change), 128, 128, 512, run=fault, mode=mode, seed=seed)
    assert found.code in codes, found


def test_a_whole_product_is_fast() -> None:
    run_gemm(gemm(), 128, 128, 64)
    begin = time.perf_counter()
    run_gemm(gemm(), 256, 256, 256)
    assert time.perf_counter() - begin < 2


# ---- texts


def test_every_form_has_a_host_form() -> None:
    for form in all_forms():
        text = product_text(form)
        assert f" {form.name}(" in text and f"{{{form.columns}, " in text
        assert ("template" in text) == (form.types in ("bf16", "f16"))
    kinds = set(re.findall(r"tilec_host::(k[A-Z]\w+)", "".join(map(product_text, all_forms()))))
    assert kinds == {"kBf16", "kF16", "kTf32", "kS8", "kU8", "kE4m3", "kE5m2"}


def test_the_cluster_that_an_attribute_asks_for() -> None:
    text = "__global__ void __cluster_dims__(2, 1, 1)\na(int x) {\n}\n__global__ void b() {}"
    assert (cluster_of(text, "a"), cluster_of(text, "b")) == (2, 1)
