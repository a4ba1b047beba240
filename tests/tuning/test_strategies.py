"""Which candidates are tried: the cost model, the strategies, where a search ends, and how it goes on."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.tuning.conftest import program
from tests.tuning.machine import Machine
from tilec.compiler import compile_file
from tilec.jobs.tuning import TuneRequest, run_tune
from tilec.runtime.arguments import CallSizes
from tilec.runtime.work import requested_bytes
from tilec.source.diagnostics import TileError
from tilec.tuning.cost import Estimate, estimate
from tilec.tuning.protocol import Measured, Raced
from tilec.tuning.records import Found, Trial, read_file
from tilec.tuning.strategies import Exhaustive, since_better

GEMM = """\
kernel product[BM = 128, BN = 128, BK = 64](a: bf16[M, K], b: bf16[K, N]) -> c: bf16[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
"""
VALUES = "32, 64, 128, 192, 320, 384, 448, 512, 640, 768, 896, 1024, 1280, 1536, 1792, 2048"


def found_in(path: str) -> Found:
    (found,) = read_file(Path(path)).values()
    return found


def costed(arch: str, sizes: dict[str, int], **choice: Any) -> Estimate:
    Path("g.tile").write_text(GEMM)
    compiled = compile_file("g.tile", archs=(arch,), choices={"product": choice})
    found = estimate(compiled.kernels[0], arch, CallSizes(sizes))
    assert found is not None
    return found


def test_a_wave_that_is_partly_full_costs_a_whole_one(folder: Path) -> None:
    # one CTA a multiprocessor: 132 of them in the first wave
    full = costed("sm_90a", {"M": 1536, "N": 2816, "K": 4096}, BM=128, BN=256)
    over = costed("sm_90a", {"M": 1536, "N": 3072, "K": 4096}, BM=128, BN=256)
    assert (full.resident, full.waves) == (1, 1.0)
    assert 1.0 < over.waves < 1.2
    assert over.microseconds > 1.8 * full.microseconds


def test_tiles_beyond_an_edge_are_counted(folder: Path) -> None:
    sizes = {"M": 65, "N": 8192, "K": 8192}
    small = costed("sm_80", sizes, BM=64, BN=128)
    one = CallSizes(sizes)
    wasted = [
        requested_bytes(
            compile_file("g.tile", archs=("sm_80",), choices={"product": {"BM": bm}})
            .kernels[0]
            .program,
            one,
        )
        for bm in (64, 128)
    ]
    assert small.bound in ("L2", "products", "DRAM")
    # two rows of tiles of 64, or one of 128: the same whole tiles of `a`, `b` asked for twice or once
    assert wasted[0] is not None and wasted[1] is not None
    assert wasted[0] > 1.3 * wasted[1]


def test_small_tiles_ask_the_cache_more_often(folder: Path) -> None:
    sizes = {"M": 4096, "N": 4096, "K": 4096}
    small = costed("sm_90", sizes, BM=32, BN=32, BK=32)
    large = costed("sm_90", sizes, BM=128, BN=128, BK=32)
    assert small.bound == "L2"
    assert small.microseconds > 2 * large.microseconds


def test_asynchronous_products_cost_less_than_synchronous_ones(folder: Path) -> None:
    sizes = {"M": 8192, "N": 8192, "K": 8192}
    with_roles = costed("sm_90a", sizes, BM=128, BN=256)
    without = costed("sm_90", sizes, BM=128, BN=128)
    assert with_roles.bound == "products"
    # a roofline of 989 TFLOP/s
    assert 1100 < with_roles.microseconds < 1500
    assert without.microseconds > 1.2 * with_roles.microseconds
    assert costed("sm_90a", sizes, BM=32, BN=128).microseconds > with_roles.microseconds


def test_nothing_launched_has_no_cost(folder: Path) -> None:
    Path("g.tile").write_text(GEMM)
    kernel = compile_file("g.tile", archs=("sm_80",)).kernels[0]
    assert estimate(kernel, "sm_80", CallSizes({"M": 0, "N": 64, "K": 64})) is None


def test_candidates_are_tried_in_the_order_of_their_cost(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.tile").write_text(program("ordered", "32, 64, 128, 512"))
    order = {"32": 3.0, "64": 1.0, "128": 4.0, "512": 2.0, "256": 9.0}

    def cost(kernel: Any, arch: str, sizes: CallSizes) -> Estimate:
        assert (arch, dict(sizes.dims)) == ("sm_90", {"N": 4000})
        return Estimate(order[kernel.manifest["candidate"]["BN"]], 1, 1.0, "DRAM")

    monkeypatch.setattr("tilec.tuning.search.estimate", cost)
    assert run_tune(TuneRequest("a.tile", jobs=1)) == 0
    assert list(found_in("a.tile.tuning").trials) == [
        "untuned",
        "BN=64",
        "BN=512",
        "BN=32",
        "BN=128",
    ]


def by_size(monkeypatch: pytest.MonkeyPatch) -> None:
    """The cost model prefers small tiles."""

    def cost(kernel: Any, arch: str, sizes: CallSizes) -> Estimate:
        return Estimate(float(kernel.manifest["candidate"]["BN"]), 1, 1.0, "DRAM")

    monkeypatch.setattr("tilec.tuning.search.estimate", cost)


def test_a_guided_search_tries_the_likely_ones_and_ends(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    Path("a.tile").write_text(program("guided", VALUES))
    by_size(monkeypatch)
    machine.times = {"BN = 64;": 40.0, "BN = 2048;": 10.0}
    request = TuneRequest("a.tile", search="guided", patience=5, jobs=1)
    assert run_tune(request) == 0
    found = found_in("a.tile.tuning")
    tried = set(found.trials)
    assert {"untuned", "BN=32", "BN=64", "BN=128"} <= tried
    assert "BN=2048" not in tried
    assert found.best is not None
    assert (dict(found.best.choice), found.best.search) == ({"BN": 64}, "guided")
    assert "BN=64, 40.0 µs" in capsys.readouterr().out
    # again: nothing is measured, nor built
    before = len(machine.built), len(machine.measured)
    assert run_tune(request) == 0
    assert (len(machine.built), len(machine.measured)) == before
    # an exhaustive search afterwards tries the rest, and only that
    machine.measured.clear()
    assert run_tune(TuneRequest("a.tile", jobs=1)) == 0
    assert len(machine.measured) == 17 - len(tried)
    after = found_in("a.tile.tuning")
    assert after.best is not None
    assert dict(after.best.choice) == {"BN": 2048}


def test_no_more_trials_than_asked_for(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    Path("a.tile").write_text(program("few", VALUES))
    by_size(monkeypatch)
    assert run_tune(TuneRequest("a.tile", trials=6, jobs=1)) == 0
    assert len(machine.measured) == 6
    assert list(found_in("a.tile.tuning").trials)[:3] == ["untuned", "BN=32", "BN=64"]


@pytest.mark.parametrize("kind", ["guided", "exhaustive"])
def test_an_interrupted_search_measures_nothing_twice(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, kind: Any
) -> None:
    Path("a.tile").write_text(program(f"resumed_{kind}", VALUES))
    by_size(monkeypatch)
    request = TuneRequest("a.tile", search=kind, patience=8, jobs=1)
    whole = machine.measure

    def until_the_sixth(measured: Any) -> Measured:
        if len(machine.measured) == 5:
            raise KeyboardInterrupt
        return whole(measured)

    monkeypatch.setattr(machine, "measure", until_the_sixth)
    with pytest.raises(KeyboardInterrupt):
        run_tune(request)
    kept = found_in("a.tile.tuning")
    assert (len(kept.trials), kept.best) == (5, None)
    monkeypatch.setattr(machine, "measure", whole)
    assert run_tune(request) == 0
    codes = [m.code for m in machine.measured]
    assert len(set(codes)) == len(codes)
    found = found_in("a.tile.tuning")
    assert found.best is not None
    assert list(found.trials)[:5] == list(kept.trials)


def test_candidates_since_the_last_that_was_better() -> None:
    def trial(us: float | None, status: Any = "ok", twin: str = "") -> Trial:
        return Trial({}, status, us, twin=twin)

    assert since_better([]) == 0
    assert since_better([trial(5.0), trial(6.0), trial(None, "rejected"), trial(4.97)]) == 2
    assert since_better([trial(5.0), trial(5.0, twin="BM=64"), trial(6.0)]) == 1
    assert since_better([trial(5.0), trial(6.0), trial(4.0), trial(9.0), trial(None, "wrong")]) == 1


def test_an_exhaustive_search_without_patience_is_one_batch() -> None:
    assert Exhaustive([{}, {"BM": 1}], lambda choices: [], None).batch({}) == []


def test_finalists_are_raced_in_turn(machine: Machine) -> None:
    Path("a.tile").write_text(program("raced", "32, 64, 128, 512"))
    machine.times = {"BN = 64;": 50.0, "BN = 128;": 51.0, "BN = 32;": 90.0}
    run_tune(TuneRequest("a.tile"))
    (race,) = machine.races
    assert [_tile(code.decode()) for _, code in race.entries] == ["64", "128", "256"]
    assert not [m for m in machine.measured if m.final]


def _tile(cu: str) -> str:
    """The BN that a text was generated for."""
    return re.findall(r"constexpr int BN = (\d+);", cu)[0]


def test_finalists_that_do_not_fit_at_once_run_one_after_the_other(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.tile").write_text(program("apart"))
    machine.times = {"BN = 64;": 50.0}
    monkeypatch.setattr(machine, "race", lambda request: Raced("fault", detail="no memory"))
    assert run_tune(TuneRequest("a.tile")) == 0
    assert len([m for m in machine.measured if m.final]) == 4
    found = found_in("a.tile.tuning")
    assert found.best is not None
    assert dict(found.best.choice) == {"BN": 64}


def test_a_sampler_that_is_not_installed_is_a_message(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.tile").write_text(program("no_sampler"))
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(TileError) as caught:
        run_tune(TuneRequest("a.tile", device="cpu", search="tpe"))
    assert caught.value.diagnostics[0].code == "E0819"
    assert "pip install 'tilec[tune]'" in caught.value.diagnostics[0].helps[0]


def test_the_sampler_goes_where_candidates_were_fast(
    machine: Machine, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    pytest.importorskip("optuna", reason="would have let optuna choose the candidates")
    text = program("sampled", VALUES).replace("key (N)", ", warps in (1, 2, 4, 8, 16) key (N)")
    Path("a.tile").write_text(text)

    def answer(request: Any) -> Measured:
        tile = int(_tile(request.code.decode()))
        slow = 10.0 + abs(tile - 896) / 50
        return Measured("ok", (slow, slow, slow))

    monkeypatch.setattr(machine, "answer", answer)
    request = TuneRequest("a.tile", search="tpe", patience=24, trials=24, jobs=1)
    assert run_tune(request) == 0
    found = found_in("a.tile.tuning")
    names = list(found.trials)
    assert len([t for t in found.trials.values() if not t.twin]) == 24
    near = [
        n
        for n in names
        if int(n.split()[0].removeprefix("BN=") if "BN" in n else 0) in (768, 896, 1024)
    ]
    # three of sixteen values; a sampler that learned nothing would give them a fifth
    assert len(near) >= len(names) / 4
    assert found.best is not None
    assert found.best.choice["BN"] == 896
    before = len(machine.measured)
    assert run_tune(request) == 0
    assert len(machine.measured) == before
