"""From what a command raises to messages and an exit status. No traceback reaches the user."""

from __future__ import annotations

import difflib
import errno
import os
import re
import signal
import sys
from collections.abc import Iterable, Sequence
from itertools import pairwise
from pathlib import Path

import click

from tilec.cli.group import COMMANDS, commands
from tilec.jobs.messages import Form, form_of, render
from tilec.source.diagnostics import Diagnostic, TileError, fail

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EIO)
"""What the system says where there is no room for standard output."""

INTERRUPTED = 128 + int(signal.SIGINT)
BROKEN_PIPE = 128 + 13
"""Exit statuses as a shell reports the signals SIGINT and SIGPIPE."""


def run_commands(arguments: Sequence[str]) -> int:
    """Run the command that `arguments` name; returns the exit status, having printed every message."""
    try:
        try:
            if instruction := os.environ.get("_TILEC_COMPLETE"):
                from tilec.cli.completion import complete

                return complete(commands, instruction)
            # not `commands.main`, which turns a closed pipe into an exit status of its own
            with commands.make_context("tilec", list(arguments)) as context:
                status = commands.invoke(context)
            sys.stdout.flush()
        except TileError as error:
            show(error.diagnostics, _wanted_form(arguments))
            return error.exit_code
        except click.exceptions.Exit as stop:
            sys.stdout.flush()
            return stop.exit_code
        except click.exceptions.NoArgsIsHelpError as error:
            sys.stderr.write(error.format_message() + "\n")
            return error.exit_code
        except click.ClickException as error:
            usage = usage_error(error)
            show(usage.diagnostics, _wanted_form(arguments))
            return usage.exit_code
        except (click.Abort, KeyboardInterrupt):
            sys.stderr.write("interrupted\n")
            return INTERRUPTED
        except BrokenPipeError:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in _FULL and error.filename is None:
                _discard_output()
                full = fail("E0704", f"cannot write the output: {(error.strerror or '').lower()}")
                show(full.diagnostics, _wanted_form(arguments))
                return full.exit_code
            fault = _fault(error, arguments)
            show(fault.diagnostics, _wanted_form(arguments))
            return fault.exit_code
    except BrokenPipeError:
        _discard_output()
        return BROKEN_PIPE
    return status if isinstance(status, int) else 0


def _discard_output() -> None:
    """Send what is still buffered nowhere: it has no reader or no room, and the interpreter would complain at its end."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def show(diagnostics: Iterable[Diagnostic], form: Form) -> None:
    """Print messages on standard error in `form`."""
    found = list(diagnostics)
    if found:
        sys.stderr.write(render(found, form) + "\n")


def usage_error(error: click.ClickException) -> TileError:
    """click's complaint about the command line in our form."""
    message = error.format_message().rstrip(".")
    message = message[:1].lower() + message[1:]
    context = error.ctx if isinstance(error, click.UsageError) else None
    if isinstance(error, click.NoSuchOption) and (owners := _with_option(error.option_name)):
        message = f"no such option `{error.option_name}`"
        listed = " and ".join(f"`tilec {name}`" for name in owners)
        return fail("E0701", message, help=f"that is one of {listed}")
    if isinstance(error, click.NoSuchOption) and error.possibilities:
        message = f"no such option `{error.option_name}`"
        names = sorted(error.possibilities)
        meant = (difflib.get_close_matches(error.option_name, names, n=1) or names)[0]
        return fail("E0701", message, help=f"did you mean `{meant}`?")
    if mistyped := re.fullmatch(r"no such command '(\S+)'", message):
        message = f"no such command `{mistyped[1]}`"
        if near := difflib.get_close_matches(mistyped[1], COMMANDS, n=1):
            return fail("E0701", message, help=f"did you mean `tilec {near[0]}`?")
    message = re.sub(r"is not a valid float( range)?$", "is no number", message)
    message = re.sub(r"is not a valid integer( range)?$", "is no whole number", message)
    path = context.command_path if context else "tilec"
    return fail("E0701", message.replace("'", "`"), help=f"`{path} --help` lists what there is")


def _with_option(option: str) -> list[str]:
    """The commands that have an option."""
    found = []
    for name in COMMANDS:
        command = commands.get_command(click.Context(commands), name)
        options = [p for p in command.params if isinstance(p, click.Option)] if command else []
        if any(option in (*p.opts, *p.secondary_opts) for p in options):
            found.append(name)
    return found


def _wanted_form(arguments: Sequence[str]) -> Form:
    """The form of messages that the command line asks for (it may be too wrong to be parsed)."""
    wanted = "text"
    for argument, following in pairwise([*arguments, ""]):
        if argument == "--diagnostics":
            wanted = following
        elif argument.startswith("--diagnostics="):
            wanted = argument.partition("=")[2]
    return form_of(wanted, "--json-diagnostics" in arguments)


def _fault(error: Exception, arguments: Sequence[str]) -> TileError:
    """The internal fault for an exception nobody expected, with a bundle of all `.tile` files named."""
    import shlex

    from tilec.toolchain.fault import internal_fault

    files: dict[str, str | bytes] = {"command.txt": f"tilec {shlex.join(arguments)}\n"}
    sources = [a for a in arguments if a.endswith(".tile")]
    for name in sources:
        try:
            files[Path(name).name] = Path(name).read_bytes()
        except OSError:
            continue
    return internal_fault(error, _doing(error, sources), files)


def _doing(error: Exception, sources: Sequence[str]) -> str:
    """What tilec was at, by the innermost of its own frames."""
    place = ""
    frame = error.__traceback__
    while frame is not None:
        name = str(frame.tb_frame.f_globals.get("__name__", ""))
        if name.startswith("tilec.") and not name.startswith("tilec.cli"):
            place = name
        frame = frame.tb_next
    of = f" on `{sources[0]}`" if sources else ""
    if place.startswith("tilec.passes."):
        return f"running the pass `{place.rpartition('.')[2]}`{of}"
    return f"working in `{place}`{of}" if place else f"working{of}"
