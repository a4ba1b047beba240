"""Launches with tensor maps, clusters and resident CTAs: the C launcher against the Python evaluation, on a driver that
writes down what it encodes."""

from __future__ import annotations

import random
import threading
from collections import Counter
from dataclasses import replace
from pathlib import Path

import pytest

from tests.cpp.recorded_launcher import Answer, RecordedLaunchers, recorded_map
from tests.mapped import doubled, many
from tilec.compiled import CompiledFile
from tilec.compiler import compile_file
from tilec.runtime.arguments import CallSizes, first_violation
from tilec.runtime.launching import choose_target, concrete_launches

EXTENTS = [0, 1, 2, 3, 4, 7, 8, 12, 16, 24, 32, 40, 64, 100, 4096, 1 << 20, (1 << 31) - 8]


def random_call(rng: random.Random, compiled: CompiledFile) -> tuple[CallSizes, dict[str, int]]:
    plan = compiled.kernels[0].plan
    extents = EXTENTS if rng.random() < 0.3 else EXTENTS[1:13]
    sizes = CallSizes(
        {v.name: rng.choice(extents) for v in plan.dims},
        {},
        {v.name: rng.choice(EXTENTS) for v in plan.strides},
    )
    shift = rng.choice([0, 0, 0, 8, 16])
    return sizes, {t.name: (n + 1 << 55) + shift for n, t in enumerate(plan.parameters)}


@pytest.mark.parametrize("make", [doubled, many])
def test_both_readers_make_the_same_maps(make, tmp_path: Path) -> None:
    compiled = make()
    (kernel,) = compiled.kernels
    launchers = RecordedLaunchers(compiled, tmp_path)
    rng = random.Random(3)
    seen: Counter[str] = Counter()
    for _ in range(600):
        sizes, addresses = random_call(rng, compiled)
        answer = launchers.call(kernel, sizes, addresses, 0, 90)
        broken = first_violation(kernel.plan, sizes, addresses, None)
        assert (answer.status != 0) == bool(broken), (sizes, answer.sentence)
        if broken:
            continue
        target = choose_target(kernel.plan, (9, 0))
        launches = concrete_launches(kernel.plan, target, sizes, addresses, multiprocessors=7)
        assert [(x.kernel, x.grid, x.block, x.shared_bytes) for x in answer.launches] == [
            (x.kernel, x.grid, x.block, x.shared_bytes) for x in launches
        ], sizes
        for got, expected in zip(answer.launches, launches, strict=True):
            packed = expected.packed_with(recorded_map)
            assert got.arguments[: len(packed)] == packed, (sizes, expected)
            assert expected.grid % expected.cluster == 0
            seen[expected.kernel] += 1
    names = {launch.kernel for t in kernel.plan.targets for s in t.steps for launch in s.launches}
    assert set(seen) == names
    assert all(n > 20 for name, n in seen.items() if "kernel" not in name), seen


SIZES = CallSizes({"M": 100, "N": 640, "lda": 1000})
PLACES = {"x": 1 << 40, "y": 1 << 41}


def ask(launchers: RecordedLaunchers, compiled: CompiledFile, sizes: CallSizes = SIZES) -> Answer:
    return launchers.call(compiled.kernels[0], sizes, PLACES, 0, 90)


def test_a_map_is_made_once_and_the_device_asked_once(tmp_path: Path) -> None:
    compiled = doubled()
    launchers = RecordedLaunchers(compiled, tmp_path)
    first = ask(launchers, compiled)
    assert first.launches[0].grid == 6
    for _ in range(5):
        assert ask(launchers, compiled).launches == first.launches
    library = launchers.library
    made = library.encodings_made(), library.searches_made(), library.questions()
    assert made == (1, 1, 1)
    others = [CallSizes({"M": 100 + n, "N": 640, "lda": 1000}) for n in range(1, 16)]
    for sizes in others:
        ask(launchers, compiled, sizes)
    ask(launchers, compiled)
    assert library.encodings_made() == 16, "sixteen maps are kept"
    ask(launchers, compiled, CallSizes({"M": 5, "N": 640, "lda": 1000}))
    ask(launchers, compiled)
    assert library.encodings_made() == 18, "the oldest one makes room"


def test_each_thread_keeps_maps_of_its_own(tmp_path: Path) -> None:
    compiled = doubled()
    launchers = RecordedLaunchers(compiled, tmp_path)
    ask(launchers, compiled)
    other = threading.Thread(target=ask, args=(launchers, compiled))
    other.start()
    other.join()
    assert launchers.library.encodings_made() == 2
    assert launchers.library.searches_made() == 1


@pytest.mark.parametrize("runtime", [12000, 12040, 12050, 13000])
def test_toolkits_before_and_after_versions_of_entry_points(runtime, tmp_path: Path) -> None:
    compiled = doubled()
    answer = ask(RecordedLaunchers(compiled, tmp_path, runtime), compiled)
    assert (answer.status, len(answer.launches)) == (0, 1)


def test_what_the_driver_refuses(tmp_path: Path) -> None:
    compiled = doubled()
    launchers = RecordedLaunchers(compiled, tmp_path)
    launchers.library.without_encoder()
    answer = ask(launchers, compiled)
    assert (answer.status, answer.sentence) == (1, "x needs a driver of CUDA 12 or later")
    assert answer.launches == ()
    # without a map there is nothing to refuse
    general = CallSizes({"M": 100, "N": 640, "lda": 1001})
    assert ask(launchers, compiled, general).status == 0


def test_a_map_that_the_driver_does_not_make(tmp_path: Path) -> None:
    compiled = doubled()
    wrong = compiled.cu.replace("{int64_t{lda} * 2}", "{int64_t{lda} * 2 + 1}")
    assert wrong != compiled.cu
    launchers = RecordedLaunchers(replace(compiled, cu=wrong), tmp_path)
    answer = ask(launchers, compiled)
    assert answer.status == 1
    assert answer.sentence == "x has no tensor map (CUresult = 1)"


@pytest.mark.parametrize(("multiprocessors", "grid"), [(132, 130), (7, 6), (1, 2)])
def test_resident_ctas_come_in_whole_clusters(multiprocessors, grid, tmp_path: Path) -> None:
    compiled = doubled()
    launchers = RecordedLaunchers(compiled, tmp_path)
    launchers.library.set_multiprocessors(multiprocessors)
    assert ask(launchers, compiled).launches[0].grid == grid
    (kernel,) = compiled.kernels
    (launch,) = concrete_launches(
        kernel.plan, kernel.plan.targets[0], SIZES, PLACES, multiprocessors=multiprocessors
    )
    assert launch.grid == grid


def test_kernels_that_begin_early_are_launched_so(tmp_path: Path) -> None:
    """Those of the form with streams alone: what does not wait itself may not."""
    path = Path(__file__).resolve().parents[2] / "samples" / "gemm_skinny.tile"
    compiled = compile_file(str(path), kernel="gemm_skinny_nt", archs=("sm_90a",))
    (kernel,) = compiled.kernels
    launchers = RecordedLaunchers(compiled, tmp_path)
    counts = []
    for sizes, shift in (
        ((16, 640, 64), 0),
        ((16, 641, 64), 0),
        ((16, 640, 65), 0),
        ((16, 640, 64), 2),
    ):
        places = {"a": (1 << 40) + shift, "b": 1 << 41, "c": 1 << 42}
        given = CallSizes(dict(zip("MNK", sizes, strict=True)))
        before = launchers.library.early()
        answer = launchers.call(kernel, given, places, 0, 90)
        counts.append((answer.launches[0].kernel, launchers.library.early() - before))
    early = {low.name for low in kernel.lowered["sm_90a"] if low.early}
    assert counts == [(name, int(name in early)) for name, _ in counts]
    assert [name.removeprefix("gemm_skinny_nt_kernel") for name, _ in counts] == [
        "", "_any_out", "_any", "_any",
    ]  # fmt: skip
    assert [count for _, count in counts] == [1, 1, 0, 0]
