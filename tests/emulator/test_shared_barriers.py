"""Barriers in shared memory, rings, and what goes with roles of warps, alone and with faults that the emulator must find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.running import Map, every_schedule, fault, floats, kernel, run

Array = np.ndarray[Any, Any]


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
        ("SharedBarrier other;\nbarrier_init(other, 1);", "E0931", "outside of shared memory"),
        ("barrier_init(*reinterpret_cast<SharedBarrier*>(shared.x.bytes + 4), 1);", "E0936", "4 modulo 8"),
        (INIT + "barrier_arrive_expect(shared.barrier[0], -1);", "E0940", "announces -1"),
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
    order: str = "fence_async();\n__syncwarp();",
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
        ({"order": ""}, {"E0933", "E0941"}),
        ({"order": "__syncwarp();"}, {"E0941"}),
    ],
)  # fmt: skip
def test_faults_of_a_ring(mode: Any, seed: int, change: Any, codes: set[str]) -> None:
    x, y = floats(80, 32), np.zeros((8, 32), np.float32)
    how: Any = {"block": 128, "mode": mode, "seed": seed}
    found = fault(ring(**change), Map(1, (32, 8), 128), x, y, np.int32(10), **how)
    assert found.code in codes, found


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
    assert found.code == "E0931" and "of an array of 65536" in found.message
    found = fault(body, y, block=128, shared=1000)
    assert found.code == "E0931" and "aligns 1000 bytes" in found.message


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
