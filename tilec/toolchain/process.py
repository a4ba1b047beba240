"""Running a tool of the toolchain."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Ran:
    """What a command printed (stdout and stderr, in that order) and its exit status, negative for a signal."""

    command: tuple[str, ...]
    status: int
    output: str


def run_tool(command: Sequence[str], *, cwd: Path | None = None, timeout: float = 1800) -> Ran:
    """Run `command` without a shell or standard input; `timeout` in seconds.

    A command that cannot be started, or that runs out of time, is status 127 or 124 with the reason as output.
    """
    try:
        done = subprocess.run(
            list(command),
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout,
            check=False,
        )
    except OSError as error:
        return Ran(tuple(command), 127, f"{command[0]}: {error.strerror or error}")
    except subprocess.TimeoutExpired:
        return Ran(tuple(command), 124, f"{command[0]} did not end within {timeout:g} seconds")
    text = done.stdout.decode(errors="replace") + done.stderr.decode(errors="replace")
    return Ran(tuple(command), done.returncode, text)
