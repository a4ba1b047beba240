"""The parent's side of the child process: started when needed, ended when a candidate spoiled it or ran past its time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from tilec.source.diagnostics import TileError, fail
from tilec.tuning.protocol import (
    Closed,
    Inbox,
    Late,
    Measure,
    Measured,
    Race,
    Raced,
    Setup,
    encode,
)
from tilec.tuning.records import Status

SETUP_LIMIT = 1200.0
"""Seconds for inputs, interpreter and check."""


@dataclass(frozen=True)
class Lost:
    """The child gave no answer."""

    status: Status
    detail: str


class Measurer:
    """Measures candidates in a child process; a new one takes the place of one that was lost. `limit` seconds a candidate; `number` is
    that of several that share the folder of a setup."""

    def __init__(self, setup: Setup, limit: float, number: int = 0) -> None:
        self.setup = setup
        self.limit = limit
        self.started = 0
        """how many processes there have been"""
        self._child: subprocess.Popen[bytes] | None = None
        self._inbox: Inbox | None = None
        self._out = -1
        self._log = Path(setup.folder) / f"messages{number}"

    def __enter__(self) -> Measurer:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._stop()

    def start(self) -> None:
        """Start the process and wait until it is ready. Raises TileError with what keeps it from measuring."""
        if self._child is not None:
            return
        to_child, self._out = os.pipe()
        back, from_child = os.pipe()
        root = str(Path(__file__).resolve().parent.parent.parent)
        path = os.pathsep.join(p for p in (root, os.environ.get("PYTHONPATH", "")) if p)
        command = [sys.executable, "-m", "tilec.tuning.worker", str(to_child), str(from_child)]
        environment = {**os.environ, "PYTHONPATH": path}
        if self.setup.visible:
            environment["CUDA_VISIBLE_DEVICES"] = self.setup.visible
        said = self._log.open("wb")
        # what a kernel prints is no part of the tuner's output
        self._child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=said,
            pass_fds=(to_child, from_child),
            env=environment,
            start_new_session=True,
        )
        said.close()
        os.close(to_child)
        os.close(from_child)
        self._inbox = Inbox(back)
        self.started += 1
        try:
            self._send(self.setup)
            ready = self._inbox.receive(SETUP_LIMIT)
        except (Closed, BrokenPipeError, Late) as error:
            words = "took too long" if isinstance(error, Late) else self._last_words()
            raise fail("E0817", "the process that measures did not start", note=words) from error
        if ready.problems:
            self._stop()
            raise TileError(list(ready.problems))

    def measure(self, request: Measure) -> Measured:
        """Verify and time one candidate. What it does to the process costs that candidate only. Raises TileError as `start`."""
        answer = self._asked(request, self.limit)
        if isinstance(answer, Lost):
            return Measured(answer.status, detail=answer.detail)
        assert isinstance(answer, Measured)
        return answer

    def race(self, request: Race) -> Raced:
        """Time several candidates in turn. Raises TileError as `start`."""
        answer = self._asked(request, self.limit * max(1, len(request.entries)))
        if isinstance(answer, Lost):
            return Raced(answer.status, detail=answer.detail)
        assert isinstance(answer, Raced)
        return answer

    def _asked(self, request: Measure | Race, limit: float) -> Measured | Raced | Lost:
        """The child's answer."""
        self.start()
        assert self._inbox is not None
        try:
            self._send(request)
            answer: Measured | Raced = self._inbox.receive(limit)
        except Late:
            self._stop()
            return Lost("hang", f"no result within {limit:g} s")
        except (Closed, BrokenPipeError):
            words = self._last_words()
            self._stop()
            return Lost("fault", words)
        if answer.status != "ok":
            self._stop()  # its memory, or the device's context, may hold anything
        return answer

    def _send(self, message: object) -> None:
        data = encode(message)
        while data:
            data = data[os.write(self._out, data) :]

    def _last_words(self) -> str:
        """How the process ended."""
        assert self._child is not None
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._child.wait(timeout=10)
        status = self._child.returncode
        said = self._log.read_bytes()
        if status is not None and status < 0:
            return f"the process was ended by {_signal_name(-status)}"
        lines = said.decode(errors="replace").strip().splitlines()
        return lines[-1] if lines else f"the process ended with status {status}"

    def _stop(self) -> None:
        """End the process, whatever it is at."""
        child, self._child = self._child, None
        if child is None:
            return
        os.close(self._out)
        if self._inbox is not None:
            os.close(self._inbox.descriptor)
        self._inbox = None
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(child.pid, signal.SIGKILL)
        # a process whose GPU hangs may be gone late; the next one starts all the same
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=10)


def _signal_name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
