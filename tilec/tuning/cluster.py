"""Candidates measured by the workers of a dask.distributed cluster: each worker has a process that measures, as this machine would have.

Code is compiled and built here. A worker gets the program's files, the machine code and the launch plan, and answers with times. What a
candidate does ends the worker's process that measures and not the worker.
"""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

import tilec
from tilec.source.diagnostics import TileError, fail
from tilec.tuning.measurer import SETUP_LIMIT, Measurer
from tilec.tuning.protocol import Measure, Measured, Race, Raced, Setup

CONNECT_LIMIT = 30
"""Seconds for the scheduler to answer."""

ANSWER_LIMIT = 60.0
"""Seconds that a worker's answer may take beyond what its process may."""


@dataclass(frozen=True)
class WorkerFacts:
    """What a worker says of itself: tilec's version, its first GPU (name "" without one) and why there is none."""

    tilec: str
    gpu: str
    capability: tuple[int, int]
    problem: str


def facts_here() -> WorkerFacts:
    """Of this process; workers run it."""
    from tilec.toolchain.driver import query_driver

    driver = query_driver()
    if not driver.devices:
        return WorkerFacts(tilec.__version__, "", (0, 0), driver.problem)
    first = driver.devices[0]
    return WorkerFacts(tilec.__version__, first.name, first.compute_capability, "")


class Cluster:
    """A connection to a scheduler. `workers`: facts by address, in the order of addresses."""

    def __init__(self, client: Any) -> None:
        self.client = client
        answers: Mapping[str, WorkerFacts] = client.run(facts_here)
        self.workers = dict(sorted(answers.items()))

    def alike(self, emulated: bool) -> WorkerFacts:
        """What all workers have in common. Raises TileError (E0822) where there are none, where one has another tilec or another GPU."""
        if not self.workers:
            raise fail(
                "E0822", "the cluster has no workers", help="start some: `dask worker ADDRESS`"
            )
        first = next(iter(self.workers.values()))
        for address, facts in self.workers.items():
            if facts.tilec != tilec.__version__:
                raise fail(
                    "E0822",
                    f"the worker {address} has tilec {facts.tilec}, and this is {tilec.__version__}",
                )
            if emulated:
                continue
            if not facts.gpu:
                raise fail("E0822", f"the worker {address} has no GPU", note=facts.problem)
            if facts.gpu != first.gpu:
                raise fail(
                    "E0822",
                    f"the worker {address} has another GPU, {facts.gpu}, than the first, {first.gpu}",
                    help="times of different GPUs cannot be compared: tune for each with workers of its own",
                )
        return first

    def lanes(self, sources: Mapping[str, bytes]) -> Callable[[Setup, float], Any]:
        """The lanes of a search, one a worker; `sources` are the program's files by name, the main one first."""
        return partial(_lanes, self, sources)

    def close(self) -> None:
        """End the connection."""
        self.client.close()


def connect(address: str) -> Cluster:
    """The cluster of a scheduler. Raises TileError: E0821 without distributed, E0822 where it does not answer."""
    try:
        from distributed import Client
    except ModuleNotFoundError as error:
        raise fail(
            "E0821",
            "`--scheduler` needs dask.distributed, which is not installed",
            help="run `pip install 'tilec[tune]'`",
        ) from error
    try:
        client = Client(address, timeout=CONNECT_LIMIT)
    except (OSError, ValueError, TypeError) as error:
        said = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise fail(
            "E0822",
            f"no scheduler answers at `{address}`",
            note=said,
            help="`dask scheduler` prints its address, such as `tcp://10.0.0.1:8786`",
        ) from error
    return Cluster(client)


@contextmanager
def _lanes(
    cluster: Cluster, sources: Mapping[str, bytes], setup: Setup, limit: float
) -> Iterator[Sequence[RemoteLane]]:
    key = f"{os.getpid()}-{setup.folder}"
    lanes = [RemoteLane(cluster.client, w, key, sources, setup, limit) for w in cluster.workers]
    try:
        yield lanes
    finally:
        for lane in lanes:
            lane.close()


@dataclass(frozen=True)
class RemoteLane:
    """One worker's process that measures."""

    client: Any
    worker: str
    key: str
    sources: Mapping[str, bytes]
    setup: Setup
    limit: float

    def measure(self, request: Measure) -> Measured:
        """See Lane. Raises TileError (E0822) where the worker is lost: nothing is known of the candidate then."""
        found: Measured = self._asked(request, 1)
        return found

    def race(self, request: Race) -> Raced:
        """See Lane."""
        found: Raced = self._asked(request, len(request.entries))
        return found

    def _asked(self, request: Measure | Race, count: int) -> Any:
        future = self.client.submit(
            answer_here,
            self.key,
            self.sources,
            self.setup,
            self.limit,
            request,
            workers=[self.worker],
            pure=False,
            retries=0,
        )
        try:
            answer = future.result(timeout=SETUP_LIMIT + self.limit * count + ANSWER_LIMIT)
        except TileError:
            raise
        except Exception as error:
            said = (str(error).strip().splitlines() or [type(error).__name__])[0]
            raise fail(
                "E0822",
                f"the worker {self.worker} was lost",
                note=said,
                help="what was measured is kept: the same command goes on from there",
            ) from error
        if isinstance(answer, tuple):
            raise TileError(list(answer))
        return answer

    def close(self) -> None:
        """End the process that measures; a worker that is gone has none."""
        with suppress(Exception):
            future = self.client.submit(close_here, self.key, workers=[self.worker], pure=False)
            future.result(timeout=CONNECT_LIMIT)


@dataclass
class _Kept:
    """What a worker keeps between the candidates of a search."""

    folder: tempfile.TemporaryDirectory[str]
    measurer: Measurer
    lock: threading.Lock


_KEPT: dict[tuple[str, str], _Kept] = {}
_LOCK = threading.Lock()


def answer_here(
    key: str,
    sources: Mapping[str, bytes],
    setup: Setup,
    limit: float,
    request: Measure | Race,
) -> Any:
    """On a worker: measure. Diagnostics, as a tuple, where nothing can be measured at all."""
    kept = _kept(_own(key), sources, setup, limit)
    try:
        with kept.lock:
            if isinstance(request, Race):
                return kept.measurer.race(request)
            return kept.measurer.measure(request)
    except TileError as error:
        return tuple(error.diagnostics)


def close_here(key: str) -> None:
    """On a worker: end the process that measures."""
    with _LOCK:
        kept = _KEPT.pop(_own(key), None)
    if kept is not None:
        kept.measurer.__exit__(None, None, None)
        kept.folder.cleanup()


def _own(key: str) -> tuple[str, str]:
    """The search, and the worker: several workers may be threads of one process."""
    from distributed import get_worker

    return key, str(get_worker().address)


def _kept(key: tuple[str, str], sources: Mapping[str, bytes], setup: Setup, limit: float) -> _Kept:
    with _LOCK:
        if key not in _KEPT:
            folder = tempfile.TemporaryDirectory(prefix="tilec-tune-")
            for name, content in sources.items():
                path = Path(folder.name) / "program" / name
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            main = next(iter(sources))
            own = replace(setup, file=str(Path(folder.name) / "program" / main), folder=folder.name)
            _KEPT[key] = _Kept(folder, Measurer(own, limit), threading.Lock())
        return _KEPT[key]


def program_files(files: Sequence[str]) -> dict[str, bytes]:
    """A program's files by their paths from the folder that holds all of them, in the same order."""
    paths = [Path(f).resolve() for f in files]
    root = Path(os.path.commonpath([p.parent for p in paths]))
    return {str(p.relative_to(root)): p.read_bytes() for p in paths}
