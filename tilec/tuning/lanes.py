"""Places where candidates are measured, one at a time in each: processes on this machine, a GPU each, or workers of a cluster."""

from __future__ import annotations

import queue
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, ExitStack, contextmanager
from dataclasses import replace
from typing import Protocol

from tilec.tuning.building import Ready
from tilec.tuning.measurer import Measurer
from tilec.tuning.protocol import Measure, Measured, Race, Raced, Setup


class Lane(Protocol):
    """Verifies and times. What a candidate does costs that candidate only. Raises TileError where it can measure nothing at all."""

    def measure(self, request: Measure) -> Measured:
        """One candidate."""

    def race(self, request: Race) -> Raced:
        """Several that have been verified, in turn."""


Lanes = Callable[[Setup, float], AbstractContextManager[Sequence[Lane]]]
"""Opens the lanes of a search: from what each is set up with, and the time limit of a candidate in seconds."""


@contextmanager
def local_lanes(
    setup: Setup, limit: float, visible: Sequence[str] = ("",)
) -> Iterator[Sequence[Lane]]:
    """Processes on this machine, one for each of `visible`, the GPU that it sees as in `CUDA_VISIBLE_DEVICES`; "": all."""
    with ExitStack() as stack:
        lanes = [
            stack.enter_context(Measurer(replace(setup, visible=gpu), limit, number))
            for number, gpu in enumerate(visible)
        ]
        if len(lanes) > 1:
            lanes[0].start()  # it leaves the expected results to the others
        yield lanes


def measure_all(
    lanes: Sequence[Lane],
    work: Iterable[Ready],
    best: Callable[[], float | None],
    note: Callable[[Ready, Measured], None],
) -> None:
    """Measure candidates as they come, each in the first lane that is free. `best` and `note` are called by this thread alone."""
    if len(lanes) == 1:
        for ready in work:
            note(
                ready,
                lanes[0].measure(Measure(ready.plan, ready.code, best(), choice=ready.choice)),
            )
        return
    free: queue.Queue[Lane] = queue.Queue()
    done: queue.Queue[tuple[Ready, Measured | BaseException]] = queue.Queue()
    for lane in lanes:
        free.put(lane)

    def run(lane: Lane, ready: Ready, request: Measure) -> None:
        answer: Measured | BaseException
        try:
            answer = lane.measure(request)
        except BaseException as error:
            answer = error
        done.put((ready, answer))
        free.put(lane)

    def take(block: bool) -> None:
        ready, answer = done.get(block=block)
        if isinstance(answer, BaseException):
            raise answer
        note(ready, answer)

    pending = 0
    with ThreadPoolExecutor(len(lanes)) as pool:
        for ready in work:
            lane = free.get()
            while not done.empty():
                take(block=False)
                pending -= 1
            pool.submit(
                run, lane, ready, Measure(ready.plan, ready.code, best(), choice=ready.choice)
            )
            pending += 1
        for _ in range(pending):
            take(block=True)
