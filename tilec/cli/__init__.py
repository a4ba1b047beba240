"""The command line: one file a command, no logic."""

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run `tilec` with `arguments` (those of the process by default) and end the process with the exit status.

    Raises SystemExit: 0 fine, 1 the program is wrong, 2 the command line, 3 the environment, 4 the result did not
    verify, 70 an internal fault, 130 interrupted, 141 the reader of the output is gone.
    """
    from tilec.cli.outcome import run_commands

    sys.exit(run_commands(sys.argv[1:] if arguments is None else list(arguments)))
