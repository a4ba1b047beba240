"""The child process that measures: `python -m tilec.tuning.worker IN OUT` with the numbers of two open file descriptors.

It holds inputs, the oracle and the GPU. Whatever a candidate does – a hang, a fault, a signal – ends this process and nothing else.
"""

from __future__ import annotations

import os
import statistics
import sys
import time
from collections.abc import Sequence
from contextlib import AbstractContextManager, ExitStack, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilec.emulator.machine import Emulator
from tilec.ir.launch import LaunchPlan
from tilec.plan.candidate import Choice
from tilec.runtime import bench
from tilec.runtime.device import Gpu, open_gpu
from tilec.runtime.gpu_run import DeviceCall, prepare_call
from tilec.runtime.verify import Case, Tolerance
from tilec.source.diagnostics import TileError
from tilec.tuning.oracle import Oracle, load_oracle, prepare_oracle
from tilec.tuning.protocol import (
    Closed,
    Inbox,
    Measure,
    Measured,
    Race,
    Raced,
    Ready,
    Setup,
    encode,
)

SLOWER = 1.5
"""A candidate this much slower than the best so far is not timed further."""

_BRIEF_RUNS = 5
_RUNS = 15
_FINAL_RUNS = 60


def main() -> None:
    """Serve until the other side closes."""
    _end_with_parent()
    inbox, out = Inbox(int(sys.argv[1])), int(sys.argv[2])
    with ExitStack() as stack:
        try:
            bench_of = Bench(inbox.receive(), stack)
            problems: tuple[Any, ...] = ()
        except TileError as error:
            problems = tuple(error.diagnostics)
        except Closed:
            return
        _send(out, Ready(problems))
        while not problems:
            try:
                request = inbox.receive()
            except Closed:
                break
            race = isinstance(request, Race)
            _send(out, bench_of.race(request) if race else bench_of.measure(request))


def _end_with_parent() -> None:
    """A tuner that is killed leaves no process behind, not even one in a kernel without end (prctl(2), PR_SET_PDEATHSIG)."""
    import ctypes
    import signal

    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).prctl(1, int(signal.SIGKILL))


def _send(out: int, message: object) -> None:
    data = encode(message)
    while data:
        data = data[os.write(out, data) :]


def make_case(setup: Setup) -> Case:
    """The call that is measured, its inputs made."""
    from tilec.compiler import analyse_file
    from tilec.reference.inputs import make_inputs

    files, (item,), _ = analyse_file(
        setup.file, kernel=setup.kernel, defines=setup.defines, arch=setup.arch
    )
    sizes = setup.sizes
    arrays = make_inputs(item.program, sizes.numbers, dict(sizes.scalars), setup.seed)
    return Case(item.program, files, item.syntax, sizes, arrays, setup.seed)


def chosen_case(setup: Setup, case: Case, choice: Choice) -> Case:
    """The same call of the program as a candidate of this choice was compiled from."""
    from tilec.compiler import analyse_file

    files, (item,), _ = analyse_file(
        setup.file,
        kernel=setup.kernel,
        defines=setup.defines,
        arch=setup.arch,
        choices={setup.kernel: choice},
    )
    return replace(case, program=item.program, files=files, kernel=item.syntax)


class Bench:
    """Everything that one candidate after another is measured with."""

    def __init__(self, setup: Setup, stack: ExitStack) -> None:
        self.gpu: Gpu | Emulator = (
            stack.enter_context(open_gpu()) if setup.device == "gpu" else Emulator(setup.arch)
        )
        self.setup = setup
        self.case = make_case(setup)
        self.oracle = self._oracle(setup)
        self.flush: bench.CacheFlush | None = None
        if isinstance(self.gpu, Gpu):
            from tilec.toolchain.build import find_toolchain
            from tilec.toolchain.cache import default_cache

            cache = default_cache()
            self.flush = bench.prepare_flush(
                self.gpu, find_toolchain(setup.nvcc, cache=cache), cache
            )
            stack.callback(self.flush.free)
        self.own_modules = len(self.gpu.modules) if isinstance(self.gpu, Gpu) else 0
        """modules that are not a candidate's"""

    def _oracle(self, setup: Setup) -> Oracle:
        folder = Path(setup.folder)
        kept = load_oracle(self.case, folder)
        if kept is None:
            kept = prepare_oracle(self.case, Tolerance(setup.rtol, setup.atol))
            kept.save(folder)
        return kept

    def measure(self, request: Measure) -> Measured:
        """Verify one candidate, then time it."""
        try:
            with self._call(request.plan, request.code) as call:
                if wrong := self._verify(call, request):
                    return Measured("wrong", detail=wrong)
                return Measured("ok", tuple(self._time(call, request)))
        except Exception as error:
            # after a fault the driver refuses to free memory too, which hides what came first
            return Measured("fault", detail=_first_cause(error))
        finally:
            self._unload()

    def race(self, request: Race) -> Raced:
        """Time several candidates in turn."""
        try:
            with ExitStack() as stack:
                calls = []
                for plan, code in request.entries:
                    call = stack.enter_context(self._call(plan, code))
                    call.launch()
                    call.finish()
                    calls.append(call)
                return Raced("ok", tuple(map(tuple, self._in_turn(calls))))
        except Exception as error:
            return Raced("fault", detail=_first_cause(error))
        finally:
            self._unload()

    def _in_turn(self, calls: Sequence[DeviceCall]) -> list[list[float]]:
        if isinstance(self.gpu, Gpu) and self.flush is not None and all(c.launches for c in calls):
            launches = [call.launch for call in calls]
            return bench.interleaved(self.gpu, self.flush, "read", launches)
        times: list[list[float]] = [[] for _ in calls]
        for _ in range(_BRIEF_RUNS):
            for call, own in zip(calls, times, strict=True):
                own += self._time_emulated(call)
        return times

    def _call(self, plan: LaunchPlan, code: bytes) -> AbstractContextManager[DeviceCall]:
        if isinstance(self.gpu, Gpu):
            module: Any = self.gpu.load(code)
        else:
            module = self.gpu.module("candidate.cu", code.decode())
        return prepare_call(self.gpu, plan, module, self.case.sizes, self.case.arrays)

    def _unload(self) -> None:
        if isinstance(self.gpu, Gpu):
            self.gpu.unload(self.own_modules)

    def _verify(self, call: DeviceCall, request: Measure) -> str:
        call.launch()
        call.finish()
        if request.final:
            return ""
        outputs = call.results()
        call.check_surroundings()
        wrong = self.oracle.judge(outputs)
        if not wrong or not request.choice:
            return wrong
        return self.oracle.judge_as(chosen_case(self.setup, self.case, request.choice), outputs)

    def _time(self, call: DeviceCall, request: Measure) -> list[float]:
        if not call.launches:
            return [0.0]
        if not isinstance(self.gpu, Gpu) or self.flush is None:
            return self._time_emulated(call)
        times = bench.sample(self.gpu, self.flush, "read", call.launch, _BRIEF_RUNS + 2)[2:]
        slow = request.best is not None and statistics.median(times) > SLOWER * request.best
        if slow and not request.final:
            return times
        runs = _FINAL_RUNS if request.final else _RUNS
        return bench.sample(self.gpu, self.flush, "read", call.launch, runs)

    def _time_emulated(self, call: DeviceCall) -> list[float]:
        start = time.perf_counter()
        call.launch()
        return [(time.perf_counter() - start) * 1e6]


def _first_cause(error: BaseException) -> str:
    """What the first of a chain of exceptions says, a message of ours before others."""
    chain = [error]
    while (before := chain[-1].__cause__ or chain[-1].__context__) is not None:
        chain.append(before)
    for one in chain:
        if isinstance(one, TileError):
            notes = one.diagnostics[0].notes
            return ": ".join((one.diagnostics[0].message, *notes[:1]))
    return (str(chain[-1]).strip().splitlines() or [type(chain[-1]).__name__])[0]


if __name__ == "__main__":
    main()
