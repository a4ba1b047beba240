"""Bulk copies of tensors on the emulator, alone and with faults that it must find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.running import SCHEDULES, Map, every_schedule, fault, floats, kernel, run

Array = np.ndarray[Any, Any]


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


def shifted(x: Array, row: int, col: int, rows: int, cols: int) -> Array:
    """A block of x, zeros where x has no element."""
    padded = np.zeros((rows, cols), x.dtype)
    for r in range(rows):
        for c in range(cols):
            if 0 <= row + r < x.shape[0] and 0 <= col + c < x.shape[1]:
                padded[r, c] = x[row + r, col + c]
    return padded


@every_schedule
@pytest.mark.parametrize(("row", "col"), [(0, 0), (3, 8), (-5, -4), (70, 20), (1000, 0), (60, 44)])
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
    at = [8, 2, -1, 1, 4][:axes]
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
  tensor_ahead(map, {", ".join(map(str, at))});
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


@pytest.mark.parametrize(("col", "rest"), [(3, 12), (-3, 4), (2, 8)])
def test_a_box_that_begins_between_places_of_16_bytes(col: int, rest: int) -> None:
    x, y = floats(100, 44), np.zeros((64, 32), np.float32)
    found = fault(copy(f"{col}, 0"), Map(1, (32, 64), 128), x, y, block=128)
    assert found.code == "E0936" and f"{rest} modulo 16" in found.message


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
@pytest.mark.parametrize(("row", "col"), [(0, 0), (-3, -4), (30, 20), (10, -40)])
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


# ---- memory beside the threads


def again(between: str, order: str = "__syncthreads();") -> str:
    """A tile that a copy brings; then something else is done with its memory, and a second copy comes."""
    return copy(
        wait=f"""barrier_wait(shared.landed, 0);
{between}
{order}
if (thread == 0) {{
  barrier_arrive_expect(shared.landed, sizeof(shared.tile));
  tensor_load(shared.tile.panel(0, 0), map, shared.landed, 0, 0);
}}
barrier_wait(shared.landed, 1);"""
    )


WRITES = "*shared.tile.at(thread % 64, 5) = 1.0f;"
# The first warp waits for the last one, whose turn comes behind the others' whichever warps run ahead.
DELAY = """if (thread < 32) named_barrier_sync(1, 64);
if (thread >= 96) named_barrier_arrive(1, 64);
if (thread >= 32 && thread < 96) """
READS = "store_element(y + thread, float(*shared.tile.at(thread % 64, 5)));"


@every_schedule
@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        (again(READS + "\nfence_async();"), None, ""),
        (again(READS), "E0941", "between its read and the barrier"),
        (again(DELAY + "{\n" + READS + "\nfence_async();\n}", ""), "E0933", "has read with no"),
        (again("if (thread < 64) {\n" + WRITES + "\nfence_async();\n}"), None, ""),
        (again(DELAY + "{\n" + WRITES + "\nfence_async();\n}", ""), "E0933", "has written with no"),
        (again("if (thread < 64) {\n" + WRITES + "\n}"), "E0941", "copies to byte"),
        (again("if (thread == 0) {\n" + "barrier_arrive_expect(shared.landed, sizeof(shared.tile));\n"
               "tensor_load(shared.tile.panel(0, 0), map, shared.landed, 0, 0);\n}"),
         "E0933", ""),
    ],
)  # fmt: skip
def test_a_second_copy_to_the_same_memory(
    mode: Any, seed: int, body: str, code: Any, words: str
) -> None:
    x, y = floats(64, 32), np.zeros((64, 32), np.float32)
    how: Any = {"block": 128, "mode": mode, "seed": seed}
    if code is None:
        run(body, Map(1, (32, 64), 128), x, y, **how)
        np.testing.assert_array_equal(y, x)
    else:
        found = fault(body, Map(1, (32, 64), 128), x, y, **how)
        assert found.code in (code, "E0939"), found
        assert words in found.message or mode == "chaos", found


def test_two_copies_to_the_same_memory_at_once() -> None:
    x, y = floats(64, 32), np.zeros((64, 32), np.float32)
    body = copy().replace(
        "  tensor_load(",
        "  tensor_load(shared.tile.panel(0, 0), map, shared.landed, 0, 0);\n  tensor_load(",
    )
    found = fault(body, Map(1, (32, 64), 128), x, y, block=128)
    assert (
        found.code == "E0933" and "copies to byte" in found.message and "under way" in found.message
    )


def test_a_bulk_store_of_bytes_that_nothing_has_written() -> None:
    y, where = np.zeros((40, 44), np.float32), np.zeros(2, np.int32)
    body = bulk_store().replace("n < 16 * 32;", "n < 15 * 32;")
    assert fault(body, Map(1, (32, 16), 128), y, where, block=128).code == "E0932"


def test_a_copy_counts_the_sectors_of_its_rows() -> None:
    x, y = floats(100, 44), np.zeros((64, 32), np.float32)
    body = copy("-8, 90").replace("store_element(y", "if (n < 0) store_element(y")
    (load,) = (
        c
        for c in run(body, Map(1, (32, 64), 128), x, y, block=128, counting=True)
        if c.kind == "load"
    )
    # ten rows of 24 elements; rows lie 176 bytes apart, half a sector off every second time
    assert (load.requests, load.bytes, load.least) == (10, 10 * 96, 10 * 3)
    assert load.units == 5 * 3 + 5 * 4
