"""Independent pieces of work in several processes that are copies of this one."""

from __future__ import annotations

import gc
import io
import os
import pickle
import signal
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import Any, Generic, TypeVar

from tilec.lazy_dataclass import dataclass

Result = TypeVar("Result")

DRAWS = 2048
"""Pieces of work are drawn in at most so many batches, whose numbers a pipe holds at once (4 bytes each; POSIX wants 512, all
systems have 16 kB)."""

_NUMBER = 4
"""Bytes of a batch's number in the pipe."""


def cores() -> int:
    """How many cores this process may use."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


@dataclass
class _Worker(Generic[Result]):
    """A copy of this process that works: its id, and the end of the pipe where it answers."""

    process: int
    answer: int


def forked(
    count: int, work: Callable[[int], Result], jobs: int, common: Sequence[object] = ()
) -> list[Result | None]:
    """`work(n)` for each n below `count`, by this process and up to `jobs - 1` copies of it, each of which draws what nobody has
    drawn; in order.

    None where `work` raised or a process ended early: who needs the result calls `work` again, and meets the exception with its
    traceback; all are None where the system does not copy processes. Results are pickled; objects of `common` in them stay the
    same objects. KeyboardInterrupt ends the copies.
    """
    if not hasattr(os, "fork"):
        return [None] * count
    each = -(-count // DRAWS)
    numbers, writer = os.pipe()
    os.write(writer, b"".join(n.to_bytes(_NUMBER, "big") for n in range(-(-count // each))))
    os.close(writer)
    workers: list[_Worker[Result]] = []
    found: dict[int, Result] = {}
    try:
        for _ in range(min(jobs, count) - 1):
            worker = _start(numbers, count, each, work, common)
            if worker is None:
                break
            workers.append(worker)
        found = _drawn(numbers, count, each, work)
        while workers:
            found |= _answer(workers[-1], common)
            workers.pop()
    finally:
        os.close(numbers)
        for worker in workers:
            with suppress(OSError):
                os.kill(worker.process, signal.SIGKILL)
            with suppress(OSError):
                os.waitpid(worker.process, 0)
            with suppress(OSError):
                os.close(worker.answer)
    return [found.get(n) for n in range(count)]


def _start(
    numbers: int,
    count: int,
    each: int,
    work: Callable[[int], Result],
    common: Sequence[object],
) -> _Worker[Result] | None:
    """A copy of this process at work; None where the system has no room for one."""
    answer, writer = os.pipe()
    try:
        process = os.fork()
    except OSError:
        os.close(answer)
        os.close(writer)
        return None
    if process:
        os.close(writer)
        return _Worker(process, answer)
    status = 1
    try:
        os.close(answer)
        # objects that wait to be collected are the parent's to finalise, those of a GPU's driver above all
        gc.disable()
        found = _drawn(numbers, count, each, work)
        with open(writer, "wb") as file:
            _Sender(file, common).dump(found)
        status = 0
    finally:
        # nothing of what this process has in common with its parent is to be done twice: no buffers, no `atexit`
        os._exit(status)


def _drawn(numbers: int, count: int, each: int, work: Callable[[int], Result]) -> dict[int, Result]:
    """Works as long as there is something to draw."""
    found: dict[int, Result] = {}
    while drawn := os.read(numbers, _NUMBER):
        first = int.from_bytes(drawn, "big") * each
        for n in range(first, min(first + each, count)):
            with suppress(Exception):
                found[n] = work(n)
    return found


def _answer(worker: _Worker[Result], common: Sequence[object]) -> dict[int, Result]:
    """What a copy found, nothing where it did not come to its end."""
    with open(worker.answer, "rb", closefd=False) as file:
        content = file.read()
    _, status = os.waitpid(worker.process, 0)
    os.close(worker.answer)
    if status:
        return {}
    found: dict[int, Result] = _Receiver(io.BytesIO(content), common).load()
    return found


class _Sender(pickle.Pickler):
    """Pickles; objects that both processes have by their place in `common`."""

    def __init__(self, file: Any, common: Sequence[object]) -> None:
        super().__init__(file, pickle.HIGHEST_PROTOCOL)
        self._places = {id(one): place for place, one in enumerate(common)}

    def persistent_id(self, obj: object) -> int | None:
        """The place in `common`."""
        return self._places.get(id(obj))


class _Receiver(pickle.Unpickler):
    """The counterpart of `_Sender`."""

    def __init__(self, file: Any, common: Sequence[object]) -> None:
        super().__init__(file)
        self._common = common

    def persistent_load(self, pid: int) -> object:
        """The object at a place in `common`."""
        return self._common[pid]
