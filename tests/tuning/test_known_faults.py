"""Faults that other tuners, caches and timers had, by row: J1 to J10."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.runtime.fake_driver import fake_device, fake_driver
from tests.tuning.conftest import program
from tests.tuning.machine import Machine
from tilec.compiler import analyse_file, compile_file
from tilec.jobs.tuned import tuned_choices
from tilec.jobs.tuning import TuneRequest, run_tune
from tilec.reference.inputs import make_inputs
from tilec.runtime import bench
from tilec.runtime.arguments import CallSizes
from tilec.runtime.device import Buffer, Gpu
from tilec.runtime.launching import ConcreteLaunch
from tilec.tuning import worker
from tilec.tuning.protocol import Measure, Measured, Setup
from tilec.tuning.records import read_file


def tuned(path: str, **options: Any) -> None:
    assert run_tune(TuneRequest(path, **options)) == 0


def choice(path: str, size: int) -> dict[str, object]:
    """What a call at one size is compiled with."""
    name = Path(path).read_text().split()[1].split("[")[0]
    found = tuned_choices(path, None, {}, "sm_90", settings=(f"N={size}",), with_cache=True)
    return dict(found.get(name, {}))


def test_j1_another_size_is_tuned_for_itself(machine: Machine) -> None:
    Path("a.tile").write_text(program("j1"))
    machine.times = {"BN = 64": 10.0}
    tuned("a.tile", settings=("N=4096",))
    machine.times = {"BN = 128": 10.0}
    tuned("a.tile", settings=("N=1000000",))
    assert choice("a.tile", 4096) == {"BN": 64}
    assert choice("a.tile", 1000000) == {"BN": 128}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("check y == x * 2.0", "check y == x * 2.0 within rtol 0.5"),
        ("check y == x * 2.0", "check y == x + x"),
        ("x[i] + x[i]", "x[i] + x[i] + 0.0"),
        ("y: f32[N]", "y: f16[N]"),
    ],
)
def test_j2_what_is_verified_or_written_is_part_of_the_key(
    machine: Machine, before: str, after: str
) -> None:
    text = program("j2")
    Path("a.tile").write_text(text)
    tuned("a.tile")
    machine.measured.clear()
    Path("a.tile").write_text(text.replace(before, after))
    tuned("a.tile")
    assert len([m for m in machine.measured if not m.final]) == 3


def test_j2_tolerances_and_seed_are_part_of_the_key(machine: Machine) -> None:
    Path("a.tile").write_text(program("j2_options"))
    tuned("a.tile")
    for options in ({"rtol": 0.1}, {"seed": 4}):
        machine.measured.clear()
        tuned("a.tile", **options)
        assert len([m for m in machine.measured if not m.final]) == 3


@pytest.mark.parametrize("damage", [b"", b"\x00\xff{", b'{"subject": 3}\n{"of": 1}\n'])
def test_j3_damaged_results_are_measured_again(
    machine: Machine, shared_cache: Path, damage: bytes
) -> None:
    Path("a.tile").write_text(program("j3"))
    machine.times = {"BN = 64": 10.0}
    tuned("a.tile")
    before = choice("a.tile", 4000)
    Path("a.tile.tuning").write_bytes(damage)
    for entry in (shared_cache / "tuning").rglob("*.jsonl"):
        entry.write_bytes(damage)
    assert choice("a.tile", 4000) == {}
    tuned("a.tile")
    assert choice("a.tile", 4000) == before == {"BN": 64}


def test_j4_nothing_is_tuned_that_was_not_asked_for(machine: Machine) -> None:
    Path("a.tile").write_text(program("j4"))
    compile_file("a.tile", archs=("sm_90",))
    assert choice("a.tile", 4000) == {}
    assert (machine.built, machine.measured) == ([], [])
    assert not Path("a.tile.tuning").exists()


def test_j5_a_search_survives_all_candidates_but_one(machine: Machine, capsys: Any) -> None:
    Path("a.tile").write_text(program("j5", "32, 64, 128, 512"))
    failure = Measured("fault", detail="the GPU stopped")
    machine.answers = {f"BN = {n};": failure for n in (32, 64, 128, 512)}
    tuned("a.tile")
    assert "untuned, 100.0 µs" in capsys.readouterr().out


def test_j6_inputs_are_made_once(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("a.tile").write_text(program("j6"))
    made = []

    def counting(*arguments: Any) -> Any:
        made.append(arguments)
        return make_inputs(*arguments)

    monkeypatch.setattr("tilec.reference.inputs.make_inputs", counting)
    sizes = CallSizes({"N": 100})
    setup = Setup("a.tile", "j6", {}, sizes, 0, None, None, "cpu", "sm_80", None, str(tmp_path))
    held = worker.Bench(setup, worker.ExitStack())
    for size in (64, 128):
        compiled = compile_file("a.tile", choices={"j6": {"BN": size}})
        answer = held.measure(Measure(compiled.kernels[0].plan, compiled.cu.encode()))
        assert answer.status == "ok"
    assert len(made) == 1


class Clocked:
    """A fake GPU whose flush takes a second and whose kernel 5 µs."""

    def __init__(self) -> None:
        self.now = 0.0
        self.log: list[str] = []
        driver = fake_driver({})
        driver.Event = self.event
        self.gpu = Gpu(driver, fake_device())
        none = Buffer("", 0, 0, 0, 0, None)
        self.flush = bench.CacheFlush(self.gpu, none, none, [(self, _launch())])

    def event(self) -> Any:
        clock = self

        class Event:
            at = 0.0

            def record(self) -> None:
                self.at = clock.now

            def time_till(self, other: Event) -> float:
                return (other.at - self.at) / 1000

        return Event()

    def prepared_async_call(self, *arguments: Any, **options: Any) -> None:
        self.log.append("flush")
        self.now += 1e6

    def kernel(self) -> None:
        self.log.append("kernel")
        self.now += 5.0


def _launch() -> ConcreteLaunch:
    return ConcreteLaunch("read_buffer", 1, 32, 0, 1, ())


def test_j7_the_flush_is_no_part_of_the_time() -> None:
    clocked = Clocked()
    times = bench.measure(clocked.gpu, clocked.flush, "read", clocked.kernel)
    assert times == pytest.approx([5.0] * len(times))
    (ours, theirs) = bench.interleaved(
        clocked.gpu, clocked.flush, "read", [clocked.kernel, clocked.kernel]
    )
    assert ours == pytest.approx([5.0] * len(ours))
    assert theirs == pytest.approx([5.0] * len(theirs))


def test_j8_every_launch_finds_a_cold_cache() -> None:
    clocked = Clocked()
    bench.measure(clocked.gpu, clocked.flush, "read", clocked.kernel)
    assert clocked.log[0::2] == ["flush"] * (len(clocked.log) // 2)
    assert clocked.log[1::2] == ["kernel"] * (len(clocked.log) // 2)


DOUBLE = """\
fn twofold(v):
    return v + v
"""


@pytest.mark.parametrize("where", ["a.tile", "parts.tile"])
def test_j9_an_edited_function_makes_results_stale(machine: Machine, where: str) -> None:
    name = f"j9_{where.partition('.')[0]}"
    text = program(name, body="twofold(x[i])")
    if where == "a.tile":
        Path("a.tile").write_text(DOUBLE + text)
    else:
        Path("parts.tile").write_text(DOUBLE)
        Path("a.tile").write_text('import "parts.tile"\n' + text)
    machine.times = {"BN = 64": 10.0}
    tuned("a.tile")
    first = compile_file("a.tile").cu
    Path(where).write_text(Path(where).read_text().replace("return v + v", "return v * 2.0"))
    assert compile_file("a.tile").cu != first
    assert tuned_choices("a.tile", name, {}, "sm_90", settings=("N=4000",)) == {}
    machine.measured.clear()
    tuned("a.tile")
    assert len([m for m in machine.measured if not m.final]) == 3


def test_j9_a_comment_makes_nothing_stale(machine: Machine) -> None:
    text = DOUBLE + program("j9_comment", body="twofold(x[i])")
    Path("a.tile").write_text(text)
    tuned("a.tile")
    machine.measured.clear()
    Path("a.tile").write_text("# why\n\n" + text + "\n# that is all\n")
    tuned("a.tile")
    assert machine.measured == []


def test_j10_warm_up_comes_first_and_inputs_are_the_same(folder: Path) -> None:
    clocked = Clocked()
    times = bench.measure(clocked.gpu, clocked.flush, "read", clocked.kernel)
    assert clocked.log.count("kernel") == bench.WARM_UP + 3 + len(times)
    Path("a.tile").write_text(program("j10"))
    _, (item,), _ = analyse_file("a.tile")
    one, two, other = (make_inputs(item.program, {"N": 50}, {}, seed)["x"] for seed in (1, 1, 2))
    assert (one == two).all()
    assert not (one == other).all()


def test_results_move_with_their_source(machine: Machine) -> None:
    Path("a.tile").write_text(program("moved"))
    machine.times = {"BN = 64": 10.0}
    tuned("a.tile")
    Path("b").mkdir()
    shutil.move("a.tile", "b/c.tile")
    shutil.move("a.tile.tuning", "b/c.tile.tuning")
    assert choice("b/c.tile", 4000) == {"BN": 64}
    assert len(read_file(Path("b/c.tile.tuning"))) == 1


def test_the_first_cause_of_a_fault_is_what_counts() -> None:
    from tilec.source.diagnostics import fail

    def faulting() -> None:
        try:
            raise fail("E0923", "the GPU stopped", note="an illegal memory access")
        finally:
            raise RuntimeError("cuMemFree failed")

    with pytest.raises(RuntimeError) as caught:
        faulting()
    assert worker._first_cause(caught.value) == "the GPU stopped: an illegal memory access"
    assert worker._first_cause(ValueError("plain\nmore")) == "plain"
