"""What the tuner and its child process say to each other: pickled messages, each preceded by its length."""

from __future__ import annotations

import pickle
import select
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from tilec.ir.launch import LaunchPlan
from tilec.plan.candidate import Choice
from tilec.runtime.arguments import CallSizes
from tilec.source.diagnostics import Diagnostic
from tilec.tuning.records import Status


@dataclass(frozen=True)
class Setup:
    """What every candidate is measured with. `device` "cpu" is the emulator; `arch` is what was compiled for; `folder` holds what one
    child leaves to the next."""

    file: str
    kernel: str
    defines: Mapping[str, str]
    sizes: CallSizes
    seed: int
    rtol: float | None
    atol: float | None
    device: Literal["gpu", "cpu"]
    arch: str
    nvcc: str | None
    folder: str
    visible: str = ""
    """the GPU that the child sees, as in `CUDA_VISIBLE_DEVICES`; "": all, of which it takes the first"""


@dataclass(frozen=True)
class Ready:
    """The answer to a Setup; `problems` are what keeps it from measuring anything."""

    problems: tuple[Diagnostic, ...] = ()


@dataclass(frozen=True)
class Measure:
    """One candidate: machine code, or the text for the emulator. `best` is the fastest so far in µs: what is clearly slower is timed
    only briefly. `final` has been verified, and is timed at length. `choice` is what the candidate was compiled with."""

    plan: LaunchPlan
    code: bytes
    best: float | None = None
    final: bool = False
    choice: Choice = field(default_factory=dict)


@dataclass(frozen=True)
class Measured:
    """The answer: times of single calls in µs, or what went wrong."""

    status: Status
    times: tuple[float, ...] = ()
    detail: str = ""


@dataclass(frozen=True)
class Race:
    """Candidates that have been verified, each as in Measure: one call of each in turn, so that clocks and temperature are alike."""

    entries: tuple[tuple[LaunchPlan, bytes], ...]


@dataclass(frozen=True)
class Raced:
    """The answer: times in µs for each entry, or what went wrong."""

    status: Status
    times: tuple[tuple[float, ...], ...] = ()
    detail: str = ""


_LENGTH = 8


def encode(message: object) -> bytes:
    """A message with its length."""
    body = pickle.dumps(message)
    return len(body).to_bytes(_LENGTH, "little") + body


class Closed(Exception):
    """The other side is gone."""


class Late(Exception):
    """No answer within the time."""


class Inbox:
    """Messages that arrive at a file descriptor."""

    def __init__(self, descriptor: int) -> None:
        self.descriptor = descriptor
        self.pending = b""

    def receive(self, timeout: float | None = None) -> Any:
        """The next message. Raises Closed, and Late where `timeout` seconds pass."""
        deadline = None if timeout is None else time.monotonic() + timeout
        length = int.from_bytes(self._take(_LENGTH, deadline), "little")
        return pickle.loads(self._take(length, deadline))

    def _take(self, count: int, deadline: float | None) -> bytes:
        import os

        while len(self.pending) < count:
            if deadline is not None:
                left = deadline - time.monotonic()
                if left <= 0 or not select.select([self.descriptor], [], [], left)[0]:
                    raise Late
            block = os.read(self.descriptor, 1 << 16)
            if not block:
                raise Closed
            self.pending += block
        taken, self.pending = self.pending[:count], self.pending[count:]
        return taken
