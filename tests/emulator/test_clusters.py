"""Clusters of CTAs on the emulator, and faults that it must find."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from tests.emulator.running import Map, every_schedule, fault, floats, kernel, run

Array = np.ndarray[Any, Any]


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
fence_async();
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
        ({"release": "", "tail": "", "again": AGAIN}, {"E0933", "E0939"}),
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


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ("if (rank == 1) return;\nfor (int i = 0; i < 9; ++i) cluster_sync();\nARRIVE", "E0945", "which has ended"),
        ("if (rank == 1) return;\nfor (int i = 0; i < 9; ++i) cluster_sync();\nLOAD", "E0945", "which has ended"),
        ("cluster_sync();\nif (rank == 0) {\nARRIVE\n}", "E0939", "of another CTA, and no `barrier_init_fence`"),
        ("barrier_init_fence();\ncluster_sync();\nif (rank == 0) {\nARRIVE\n}", "E0945", "nobody in it has waited"),
        ("barrier_init_fence();\ncluster_sync();\nif (rank == 0) {\nARRIVE\n}\ncluster_sync();", None, ""),
        ("if (thread > 3) return;\ncluster_sync();", None, ""),
        ("if (rank == 0) cluster_sync();\nbarrier_wait(shared.barrier, 0);", "E0935", "waits"),
        ("cluster_arrive();\nif (rank == 0) cluster_wait();", None, ""),
        ("cluster_arrive();\nif (thread > 3) return;\nif (rank == 0) cluster_wait();\ncluster_sync();", "E0945", "arrives twice"),
        ("cluster_arrive();\nif (thread > 3) return;\ncluster_wait();\ncluster_sync();", None, ""),
        ("cluster_wait();", "E0945", "has not arrived"),
        ("if (rank == 0) cluster_arrive();\nif (rank == 0) cluster_wait();\nelse barrier_wait(shared.barrier, 0);", "E0935", "waits"),
    ],
)  # fmt: skip
def test_ctas_that_depend_on_each_other(body: str, code: str | None, words: str) -> None:
    body = body.replace("ARRIVE", "barrier_arrive_at(shared.barrier, 1);")
    body = body.replace(
        "LOAD",
        "tensor_load_multicast(shared.x, map, shared.barrier, uint16_t(2), 0, 0);",
    )
    text = kernel(
        "const __grid_constant__ CUtensorMap map, const float* x",
        f"""
struct alignas(128) Shared {{
  SharedArray<float, 32> x;
  SharedBarrier barrier;
}};
Shared& shared = cta_shared<Shared>();
const int rank = cluster_rank();
if (thread == 0) barrier_init(shared.barrier, 32);
cluster_sync_memory();
{body}""",
        threads=32,
        cluster=2,
    )
    how: Any = {"grid": 2, "cluster": 2}
    if code is None:
        run(text, Map(1, (32, 1)), floats(1, 32), **how)
    else:
        found = fault(text, Map(1, (32, 1)), floats(1, 32), **how)
        assert found.code == code and words in found.message, found


def test_clusters_that_the_launch_does_not_have() -> None:
    x, y = floats(16, 32), np.zeros((3, 16, 32), np.float32)
    found = fault(pair(), Map(1, (32, 16), 128), x, y, grid=2)
    assert found.code == "E0945" and "clusters of 1 CTAs, and its attribute says 2" in found.message
    found = fault(pair(), Map(1, (32, 16), 128), x, y, grid=3, cluster=2)
    assert found.code == "E0945" and "3 CTAs in clusters of 2" in found.message
    large = pair().replace("__cluster_dims__(2,", "__cluster_dims__(32,")
    assert fault(large, Map(1, (32, 16), 128), x, y, grid=32, cluster=32).code == "E0945"


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
