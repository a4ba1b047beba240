"""Barriers in shared memory, bulk copies and clusters, each alone and with faults that the emulator must find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.running import Map, fault, run

Array = np.ndarray[Any, Any]
SCHEDULES = [("late", 0), ("early", 0), ("chaos", 1), ("chaos", 2), ("chaos", 3)]
every_schedule = pytest.mark.parametrize(("mode", "seed"), SCHEDULES)


def kernel(parameters: str, body: str, threads: int = 128, cluster: int = 1) -> str:
    attribute = f"__cluster_dims__({cluster}, 1, 1) " if cluster > 1 else ""
    return (
        f'extern "C" __global__ void {attribute}__launch_bounds__({threads}, 1)\n'
        f"k({parameters}) {{\nconst int thread = threadIdx.x;\n{body}\n}}"
    )


# ---- a copy


def copy(
    at: str = "0, 0",
    announced: str = "barrier_arrive_expect(shared.landed, sizeof(shared.tile));",
    wait: str = "barrier_wait(shared.landed, 0);",
    fence: str = "barrier_init_fence();",
    arrivals: int = 1,
    to: str = "shared.tile.panel(0, 0)",
) -> str:
    """Rows and columns of a tile of 64 x 32 floats, as a bulk copy brings them."""
    return kernel(
        "const __grid_constant__ CUtensorMap map, const float* x, float* y",
        f"""
struct Shared {{
  PanelTile<float, 64, 32> tile;
  SharedBarrier landed;
}};
Shared& shared = cta_shared<Shared>();
if (thread == 0) {{
  barrier_init(shared.landed, {arrivals});
  {fence}
}}
__syncthreads();
if (thread == 0) {{
  {announced}
  tensor_load({to}, map, shared.landed, {at});
}}
{wait}
for (int n = thread; n < 64 * 32; n += 128) {{
  store_element(y + n, float(*shared.tile.at(n / 32, n % 32)));
}}""",
    )


def floats(rows: int, cols: int) -> Array:
    return np.arange(rows * cols, dtype=np.float32).reshape(rows, cols) + 1


def shifted(x: Array, row: int, col: int, rows: int, cols: int) -> Array:
    """A block of x, zeros where x has no element."""
    padded = np.zeros((rows, cols), x.dtype)
    for r in range(rows):
        for c in range(cols):
            if 0 <= row + r < x.shape[0] and 0 <= col + c < x.shape[1]:
                padded[r, c] = x[row + r, col + c]
    return padded


@every_schedule
@pytest.mark.parametrize(("row", "col"), [(0, 0), (3, 8), (-5, -3), (70, 20), (1000, 0), (60, 43)])
def test_a_bulk_copy(mode: Any, seed: int, row: int, col: int) -> None:
    x, y = floats(100, 44), np.zeros((64, 32), np.float32)
    body = copy().replace(", 0, 0);", ", load_element(at), load_element(at + 1));")
    body = body.replace("const float* x,", "const float* x, const int* at,")
    where = np.array([col, row], np.int32)
    run(body, Map(1, (32, 64), 128), x, where, y, block=128, mode=mode, seed=seed)
    np.testing.assert_array_equal(y, shifted(x, row, col, 64, 32))


@every_schedule
@pytest.mark.parametrize("axes", [3, 4, 5])
def test_a_bulk_copy_of_more_axes(mode: Any, seed: int, axes: int) -> None:
    """The box is 8 x 2 x 2 …; rows lie one behind the other."""
    shape = (5, 4, 3, 3, 12)[5 - axes :]
    x = np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)
    box = (8, *[2] * (axes - 1))
    count = int(np.prod(box))
    y = np.zeros(count, np.float32)
    at = [6, 2, -1, 1, 4][:axes]
    body = kernel(
        "const __grid_constant__ CUtensorMap map, const float* x, float* y",
        f"""
struct alignas(128) Shared {{
  SharedArray<float, {count}> tile;
  SharedBarrier landed;
}};
Shared& shared = cta_shared<Shared>();
if (thread == 0) {{
  barrier_init(shared.landed, 1);
  barrier_init_fence();
  tensor_prefetch(map);
  tensor_load(shared.tile, map, shared.landed, {", ".join(map(str, at))});
  barrier_arrive_expect(shared.landed, {4 * count});
}}
__syncthreads();
barrier_wait(shared.landed, 0);
for (int n = thread; n < {count}; n += 128) store_element(y + n, float(shared.tile[n]));""",
    )
    run(body, Map(1, box), x, y, block=128, mode=mode, seed=seed)
    padded = np.pad(x, 8)
    start = [c + 8 for c in reversed(at)]
    expected = padded[tuple(slice(s, s + b) for s, b in zip(start, reversed(box), strict=True))]
    np.testing.assert_array_equal(y, expected.ravel())


@every_schedule
@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"wait": ""}, "E0933", ""),
        ({"announced": "barrier_arrive(shared.landed);"}, "E0933", ""),
        ({"wait": "barrier_wait(shared.landed, 1);"}, "E0933", ""),
        ({"announced": ""}, "E0935", "waits for phase 0"),
        ({"wait": "barrier_wait(shared.landed, 0);\nbarrier_wait(shared.landed, 1);"}, "E0935", "phase 1"),
        ({"announced": "barrier_arrive_expect(shared.landed, 9000);"}, "E0935", "missing"),
        ({"wait": "if (thread != 7) barrier_wait(shared.landed, 0);"}, "E0933", ""),
        ({"fence": ""}, "E0939", "`barrier_init_fence`"),
        ({"to": "shared.tile.at(0, 4)"}, "E0931", ""),
        ({"to": "shared.tile.panel(1, 0)"}, "E0931", "writes 8192 bytes at byte 128 of an array"),
        ({"at": "0, 0, 0"}, "E0942", "3 coordinates for a tensor map of 2 axes"),
        ({"arrivals": 2}, "E0935", "1 of 2 have arrived"),
    ],
)  # fmt: skip
def test_faults_of_a_bulk_copy(mode: Any, seed: int, change: Any, code: str, words: str) -> None:
    x, y = floats(100, 44), np.zeros((64, 32), np.float32)
    found = fault(copy(**change), Map(1, (32, 64), 128), x, y, block=128, mode=mode, seed=seed)
    assert found.code == code and words in found.message, found.message


def test_a_destination_that_is_misaligned_and_rows_that_do_not_fill_the_swizzle() -> None:
    x, y = floats(100, 44), np.zeros((64, 32), np.float32)
    found = fault(copy(to="shared.tile.at(0, 4)"), Map(1, (32, 8), 128), x, y, block=128)
    assert found.code == "E0936" and "16 modulo 128" in found.message
    found = fault(copy(), Map(1, (16, 64), 128), x, y, block=128)
    assert found.code == "E0942" and "do not fill the swizzle's 128" in found.message
    body = (
        copy()
        .replace("CUtensorMap map,", "CUtensorMap,")
        .replace("map, shared", "CUtensorMap{}, shared")
    )
    assert fault(body, Map(1, (32, 64), 128), x, y, block=128).code == "E0942"


def test_a_map_larger_than_its_argument() -> None:
    x, y = floats(100, 44), np.zeros((64, 32), np.float32)
    tall = Map(1, (32, 64), 128, dims=(44, 101))
    run(copy(), tall, x, y, block=128)
    found = fault(copy("0, 60"), tall, x, y, block=128)
    assert found.code == "E0930" and "end behind `a1`" in found.message


@pytest.mark.parametrize(("mode", "seed"), SCHEDULES)
def test_bytes_that_do_not_add_up_at_the_end(mode: Any, seed: int) -> None:
    x, y = floats(100, 44), np.zeros((64, 32), np.float32)
    how: Any = {"block": 128, "mode": mode, "seed": seed}
    idle = copy(wait="return;")
    if mode != "early":
        assert fault(idle, Map(1, (32, 64), 128), x, y, **how).code == "E0940"
    more = copy(announced="barrier_arrive_expect(shared.landed, 9000);", wait="return;")
    assert fault(more, Map(1, (32, 64), 128), x, y, **how).code == "E0940"
    less = copy(announced="barrier_arrive(shared.landed);", wait="return;")
    assert fault(less, Map(1, (32, 64), 128), x, y, **how).code == "E0940"
    huge = copy(announced="barrier_arrive_expect(shared.landed, 1 << 20);")
    found = fault(huge, Map(1, (32, 64), 128), x, y, **how)
    assert found.code == "E0940" and "at most 1048575" in found.message


# ---- barriers


def barriers(body: str) -> str:
    return kernel(
        "int* y",
        f"""
struct Shared {{
  SharedBarrier barrier[2];
  SharedArray<int, 128> x;
}};
Shared& shared = cta_shared<Shared>();
{body}""",
    )


INIT = "if (thread == 0) barrier_init(shared.barrier[0], 32);\n__syncthreads();\n"


@every_schedule
def test_a_barrier_orders_those_who_arrive_and_those_who_wait(mode: Any, seed: int) -> None:
    y = np.zeros(128, np.int32)
    body = barriers(
        INIT
        + """
for (int round = 0; round < 3; ++round) {
  if (thread < 32) {
    shared.x[thread] = thread + round;
    barrier_arrive(shared.barrier[0]);
  } else {
    barrier_wait(shared.barrier[0], round % 2);
    store_element(y + thread, int(shared.x[(thread + 1) % 32]));
  }
  __syncthreads();
}"""
    )
    run(body, y, block=128, mode=mode, seed=seed)
    np.testing.assert_array_equal(y[32:], (np.arange(32, 128) + 1) % 32 + 2)
    early = body.replace("__syncthreads();\n}", "}")
    assert fault(early, y, block=128, mode=mode, seed=seed).code in ("E0933", "E0939", "E0935")


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("barrier_arrive(shared.barrier[0]);", "E0939", "before it is initialised"),
        ("barrier_wait(shared.barrier[1], 1);", "E0939", "before it is initialised"),
        (INIT + "barrier_arrive(shared.barrier[1]);", "E0939", "byte 8 of shared memory before"),
        (INIT.replace("__syncthreads();", "") + "barrier_arrive(shared.barrier[0]);", "E0939", ""),
        (INIT + INIT, "E0939", "again"),
        (INIT.replace("32", "0"), "E0939", "for 0 arrivals"),
        (
            INIT
            + "if (thread == 0) {\nbarrier_arrive_expect(shared.barrier[0], 16);\n"
            + "for (int i = 0; i < 32; ++i) barrier_arrive(shared.barrier[0]);\n}",
            "E0939",
            "all 32 of the phase have arrived",
        ),
        (
            INIT + "if (thread == 0) shared.barrier[0].state = 0;\nbarrier_wait(shared.barrier[0], 1);",
            "E0939",
            "over which something is written",
        ),
        (INIT + "barrier_wait(shared.barrier[0], 2);", "E0939", "parity 2"),
        (
            INIT + "if (thread < 32) barrier_arrive(shared.barrier[0]);\n__syncthreads();\n"
            "if (thread < 32) barrier_arrive(shared.barrier[0]);\n__syncthreads();\n"
            "barrier_wait(shared.barrier[0], 0);",
            "E0935",
            "2 phases have ended since it last waited",
        ),
        (
            INIT.replace("32", "1") + "if (thread >= 96) barrier_wait(shared.barrier[0], 0);\n"
            "if (thread == 0) {\nbarrier_arrive(shared.barrier[0]);\nbarrier_arrive(shared.barrier[0]);\n}",
            "E0939",
            "ends a second phase",
        ),
    ],
)  # fmt: skip
def test_barriers_misused(body: str, code: str, words: str) -> None:
    found = fault(barriers(body), np.zeros(128, np.int32), block=128)
    assert found.code == code and words in found.message, found.message


def test_a_deadlock_names_the_lines_of_those_who_wait() -> None:
    body = barriers(
        INIT + "if (thread < 64) {\nbarrier_wait(shared.barrier[0], 0);\n} else {\n"
        "barrier_wait(shared.barrier[0], 0);\n}"
    )
    found = fault(body, np.zeros(128, np.int32), block=128)
    assert found.code == "E0935" and "0 of 32 have arrived" in found.message
    assert "waits at line" in found.message and len(found.notes) == 3


# ---- a ring: one warp loads, the others add


def ring(
    produced: str = "barrier_arrive_expect(shared.full[s], sizeof(shared.tile[0]));",
    released: str = "if (thread % 32 == 0) barrier_arrive(shared.empty[s]);",
    wait_empty: str = "barrier_wait(shared.empty[s], n / kStages % 2 ^ 1);",
    wait_full: str = "barrier_wait(shared.full[s], n / kStages % 2);",
    before: str = "",
    order: str = "__syncwarp();",
) -> str:
    return kernel(
        "const __grid_constant__ CUtensorMap map, const float* x, float* y, int steps",
        f"""
constexpr int kStages = 3;
struct Shared {{
  PanelTile<float, 8, 32> tile[kStages];
  SharedBarrier full[kStages];
  SharedBarrier empty[kStages];
}};
Shared& shared = cta_shared<Shared>();
if (thread == 0) {{
  for (int s = 0; s < kStages; ++s) {{
    barrier_init(shared.full[s], 1);
    barrier_init(shared.empty[s], 3);
  }}
  barrier_init_fence();
}}
__syncthreads();
if (thread < 32) {{
  if (is_elected()) {{
    for (int n = 0; n < steps; ++n) {{
      const int s = n % kStages;
      {wait_empty}
      {produced}
      tensor_load(shared.tile[s].panel(0, 0), map, shared.full[s], 0, 8 * n);
    }}
  }}
}} else {{
  float sums[3] = {{}};
  for (int n = 0; n < steps; ++n) {{
    const int s = n % kStages;
    {wait_full}
    {before}
    for (int i = 0; i < 3; ++i) {{
      const int e = thread - 32 + 96 * i;
      if (e < 256) sums[i] += float(*shared.tile[s].at(e / 32, e % 32));
    }}
    {order}
    {released}
  }}
  for (int i = 0; i < 3; ++i) {{
    const int e = thread - 32 + 96 * i;
    if (e < 256) store_element(y + e, sums[i]);
  }}
}}""",
    )


@every_schedule
@pytest.mark.parametrize("steps", [1, 3, 10])
def test_a_ring(mode: Any, seed: int, steps: int) -> None:
    x, y = floats(8 * steps, 32), np.zeros((8, 32), np.float32)
    run(ring(), Map(1, (32, 8), 128), x, y, np.int32(steps), block=128, mode=mode, seed=seed)
    np.testing.assert_array_equal(y, x.reshape(steps, 8, 32).sum(0))


@every_schedule
@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({"produced": "barrier_arrive(shared.full[s]);"}, {"E0933", "E0935", "E0939", "E0940"}),
        ({"produced": ""}, {"E0935"}),
        ({"released": ""}, {"E0935"}),
        ({"released": "if (thread == 32) barrier_arrive(shared.empty[s]);"}, {"E0935"}),
        ({"wait_empty": ""}, {"E0933", "E0939"}),
        ({"wait_full": ""}, {"E0933", "E0935", "E0939"}),
        ({"wait_empty": "barrier_wait(shared.empty[s], n / kStages % 2);"}, {"E0935"}),
        ({"wait_full": "barrier_wait(shared.full[s], n / kStages % 2 ^ 1);"}, {"E0933", "E0935"}),
        ({"before": "if (thread % 32 == 0) barrier_arrive(shared.empty[s]);", "released": ""}, {"E0933"}),
        ({"order": ""}, {"E0933"}),
    ],
)  # fmt: skip
def test_faults_of_a_ring(mode: Any, seed: int, change: Any, codes: set[str]) -> None:
    x, y = floats(80, 32), np.zeros((8, 32), np.float32)
    how: Any = {"block": 128, "mode": mode, "seed": seed}
    found = fault(ring(**change), Map(1, (32, 8), 128), x, y, np.int32(10), **how)
    assert found.code in codes, found


# ---- bulk stores


def bulk_store(
    fence: str = "fence_async();",
    order: str = "__syncthreads();",
    commit: str = "bulk_commit();",
    wait: str = "bulk_wait_read<0>();",
    again: str = "__syncthreads();",
) -> str:
    return kernel(
        "const __grid_constant__ CUtensorMap map, float* y, const int* at",
        f"""
struct Shared {{
  PanelTile<float, 16, 32> tile;
}};
Shared& shared = cta_shared<Shared>();
for (int round = 0; round < 2; ++round) {{
  for (int n = thread; n < 16 * 32; n += 128) {{
    *shared.tile.at(n / 32, n % 32) = float(n + 1000 * round);
  }}
  {fence}
  {order}
  if (thread == 0) {{
    tensor_store(map, shared.tile.panel(0, 0), load_element(at), load_element(at + 1) + 16 * round);
    {commit}
    {wait}
  }}
  {again}
}}""",
    )


@every_schedule
@pytest.mark.parametrize(("row", "col"), [(0, 0), (-3, -2), (30, 20), (10, -40)])
def test_a_bulk_store_at_ragged_edges(mode: Any, seed: int, row: int, col: int) -> None:
    y = np.full((40, 44), -1, np.float32)
    where = np.array([col, row], np.int32)
    run(bulk_store(), Map(1, (32, 16), 128), y, where, block=128, mode=mode, seed=seed)
    tile = np.arange(512, dtype=np.float32).reshape(16, 32)
    both = np.concatenate([tile, tile + 1000])
    for r in range(40):
        for c in range(44):
            inside = 0 <= r - row < 32 and 0 <= c - col < 32
            assert y[r, c] == (both[r - row, c - col] if inside else -1)


@every_schedule
@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"fence": ""}, "E0941"),
        ({"fence": "if (thread != 5) fence_async();"}, "E0941"),
        ({"fence": "", "order": "__syncthreads();\nfence_async();"}, "E0941"),
        ({"order": ""}, "E0933"),
        ({"commit": "", "wait": ""}, "E0933"),
        ({"commit": ""}, "E0938"),
        ({"wait": ""}, "E0933"),
        ({"wait": "bulk_wait_read<1>();"}, "E0933"),
        ({"again": ""}, "E0933"),
    ],
)
def test_faults_of_a_bulk_store(mode: Any, seed: int, change: Any, code: str) -> None:
    y, where = np.zeros((40, 44), np.float32), np.zeros(2, np.int32)
    how: Any = {"block": 128, "mode": mode, "seed": seed}
    found = fault(bulk_store(**change), Map(1, (32, 16), 128), y, where, **how)
    assert found.code == code, found


@pytest.mark.parametrize(
    ("commit", "words"), [("", "are not committed"), ("bulk_commit();", "may still read")]
)
def test_a_thread_that_ends_with_bulk_stores(commit: str, words: str) -> None:
    y, where = np.zeros((40, 44), np.float32), np.zeros(2, np.int32)
    body = bulk_store(commit=commit, wait="return;")
    found = fault(body, Map(1, (32, 16), 128), y, where, block=128)
    assert found.code == "E0943" and words in found.message


def test_an_output_that_may_not_be_written() -> None:
    y = np.zeros((40, 44), np.float32)
    body = bulk_store()
    found = fault(
        body, Map(1, (32, 16), 128, dims=(44, 60)), y, np.array([0, 30], np.int32), block=128
    )
    assert found.code == "E0930"


# ---- clusters


def pair(
    sync: str = "cluster_sync();",
    tail: str = "barrier_wait(shared.empty, 0);",
    release: str = "barrier_arrive_at(shared.empty, 0);",
    expected: str = "barrier_arrive_expect(shared.full, 2048);",
    init_fence: str = "barrier_init_fence();",
    again: str = "",
) -> str:
    """CTA 0 loads a tile into both CTAs, which add their rank and store it."""
    return kernel(
        "const __grid_constant__ CUtensorMap map, const float* x, float* y",
        f"""
struct Shared {{
  PanelTile<float, 16, 32> tile;
  SharedBarrier full;
  SharedBarrier empty;
}};
Shared& shared = cta_shared<Shared>();
const int rank = cluster_rank();
if (thread == 0) {{
  barrier_init(shared.full, 1);
  barrier_init(shared.empty, 2 * 32);
  {init_fence}
}}
{sync}
if (thread == 0) {{
  {expected}
  if (rank == 0) tensor_load_multicast(shared.tile.panel(0, 0), map, shared.full, uint16_t(3), 0, 0);
}}
barrier_wait(shared.full, 0);
for (int n = thread; n < 512; n += 32) {{
  store_element(y + 512 * int(blockIdx.x) + n, float(*shared.tile.at(n / 32, n % 32)) + rank);
}}
{release}
if (rank == 0) {{
  {tail}
}}
{again}""",
        threads=32,
        cluster=2,
    )


@every_schedule
@pytest.mark.parametrize("grid", [2, 6])
def test_a_copy_to_both_ctas_of_a_cluster(mode: Any, seed: int, grid: int) -> None:
    x, y = floats(16, 32), np.zeros((grid, 16, 32), np.float32)
    how: Any = {"grid": grid, "cluster": 2, "mode": mode, "seed": seed}
    run(pair(), Map(1, (32, 16), 128), x, y, **how)
    np.testing.assert_array_equal(y, [x + n % 2 for n in range(grid)])
    twice = pair(again="if (thread == 0 && rank == 0) {\n}\ncluster_sync_memory();")
    run(twice, Map(1, (32, 16), 128), x, y, **how)


AGAIN = """if (thread == 0) barrier_arrive_expect(shared.full, 2048);
if (rank == 0 && thread == 0) {
  tensor_load_multicast(shared.tile.panel(0, 0), map, shared.full, uint16_t(3), 0, 0);
}
barrier_wait(shared.full, 1);
cluster_sync();"""


@every_schedule
@pytest.mark.parametrize(
    ("change", "codes"),
    [
        ({"sync": "__syncthreads();"}, {"E0939"}),
        ({"init_fence": ""}, {"E0939"}),
        ({"tail": ""}, {"E0945"}),
        ({"release": "", "tail": "", "again": AGAIN}, {"E0933"}),
        ({"release": "barrier_arrive_at(shared.empty, 2);"}, {"E0945"}),
        ({"release": "barrier_arrive_at(shared.empty, rank);"}, {"E0935"}),
        ({"expected": "if (rank == 0) barrier_arrive_expect(shared.full, 2048);"}, {"E0935"}),
    ],
)
def test_faults_of_a_cluster(mode: Any, seed: int, change: Any, codes: set[str]) -> None:
    x, y = floats(16, 32), np.zeros((2, 16, 32), np.float32)
    how: Any = {"grid": 2, "cluster": 2, "mode": mode, "seed": seed}
    found = fault(pair(**change), Map(1, (32, 16), 128), x, y, **how)
    assert found.code in codes, found


@every_schedule
def test_a_second_copy_behind_the_release_of_both(mode: Any, seed: int) -> None:
    x, y = floats(16, 32), np.zeros((2, 16, 32), np.float32)
    how: Any = {"grid": 2, "cluster": 2, "mode": mode, "seed": seed}
    run(pair(again=AGAIN), Map(1, (32, 16), 128), x, y, **how)


def test_clusters_that_the_launch_does_not_have() -> None:
    x, y = floats(16, 32), np.zeros((3, 16, 32), np.float32)
    found = fault(pair(), Map(1, (32, 16), 128), x, y, grid=2)
    assert found.code == "E0945" and "clusters of 1 CTAs, and its attribute says 2" in found.message
    found = fault(pair(), Map(1, (32, 16), 128), x, y, grid=3, cluster=2)
    assert found.code == "E0945" and "3 CTAs in clusters of 2" in found.message


def test_memory_is_ordered_by_the_barrier_of_a_cluster_that_says_so() -> None:
    body = kernel(
        "int* y",
        """
struct Shared {
  SharedArray<int, 64> x;
};
Shared& shared = cta_shared<Shared>();
shared.x[thread] = thread;
SYNC
store_element(y + 64 * int(blockIdx.x) + thread, int(shared.x[63 - thread]));""",
        threads=64,
        cluster=2,
    )
    y = np.zeros((2, 64), np.int32)
    how: Any = {"grid": 2, "cluster": 2, "block": 64}
    for sync in ("cluster_sync_memory();", "__syncthreads();"):
        run(body.replace("SYNC", sync), y, **how)
        np.testing.assert_array_equal(y, [np.arange(64)[::-1]] * 2)
    assert fault(body.replace("SYNC", "cluster_sync();"), y, **how).code == "E0933"


# ---- others


@pytest.mark.parametrize(
    ("body", "code"),
    [
        ("registers_give<24>();\nregisters_take<240>();", None),
        ("registers_give<20>();", "E0944"),
        ("registers_give<16>();", "E0944"),
        ("registers_take<264>();", "E0944"),
        ("if (thread < 96) registers_give<24>();", "E0934"),
        ("if (thread >= 128) registers_give<24>();", "E0934"),
    ],
)
def test_registers(body: str, code: str | None) -> None:
    block = 160 if "128" in body else 128
    y = np.zeros(1, np.int32)
    if code is None:
        run(kernel("int* y", body), y, block=block)
    else:
        assert fault(kernel("int* y", body), y, block=block).code == code


def test_the_elected_lane() -> None:
    y = np.zeros(64, np.int32)
    run("int* y\nif (is_elected()) store_element(y + threadIdx.x, 1);", y, block=64)
    np.testing.assert_array_equal(np.flatnonzero(y), [0, 32])
    assert fault("int* y\nif (threadIdx.x > 3) is_elected();", y).code == "E0934"


def test_dynamic_memory_with_an_alignment_of_its_own() -> None:
    body = kernel(
        "float* y",
        """
struct Shared {
  PanelTile<float, 128, 128> tile;
};
Shared& shared = dynamic_shared_aligned<Shared>();
*shared.tile.at(127, thread) = float(thread);
store_element(y + thread, float(*shared.tile.at(127, thread)));""",
    )
    y = np.zeros(128, np.float32)
    run(body, y, block=128, shared=65536 + 1024)
    np.testing.assert_array_equal(y, np.arange(128))
    found = fault(body, y, block=128, shared=65536)
    assert found.code == "E0931" and "aligned to 1024, in 65536" in found.message


def test_a_panel_tile_has_the_addresses_of_the_swizzle() -> None:
    """By the copies of every span, and by hand for one place; a place that the tile does not have is a fault."""
    body = """int* y
struct Shared {
  PanelTile<uint16_t, 16, COLS> tile;
};
Shared& shared = cta_shared<Shared>();
if (threadIdx.x == 0) {
  for (int n = 0; n < 16 * COLS; ++n) {
    store_element(y + n, int(shared_address(shared.tile.at(n / COLS, n % COLS))));
  }
}"""
    for cols, span in ((16, 32), (48, 32), (32, 64), (64, 128), (128, 128)):
        y = np.zeros((16, cols), np.int32)
        run(body.replace("COLS", str(cols)), y)
        panel = span // 2
        for row in range(16):
            for col in range(cols):
                at = (col // panel * 16 + row) * span + col % panel * 2
                at ^= (at >> 7 & (span // 16 - 1)) << 4
                assert y[row, col] == at
    for place in ("16, 0", "0, 64", "-1, 0", "0, -1"):
        bad = body.replace("COLS", "64").replace(
            "{\n  for", f"{{\n*shared.tile.at({place}) = 1;\n  for"
        )
        assert fault(bad, np.zeros((16, 64), np.int32)).code == "E0931"
