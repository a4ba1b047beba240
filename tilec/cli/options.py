"""Options that several commands have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import click

from tilec.jobs.messages import FORMS

Command = TypeVar("Command", bound=Callable[..., Any])


def message_options(command: Command) -> Command:
    """`--diagnostics` and `--json-diagnostics`."""
    json = click.option(
        "--json-diagnostics", is_flag=True, help="The same as `--diagnostics json`."
    )
    form = click.option(
        "--diagnostics",
        type=click.Choice(FORMS),
        default="text",
        show_default=True,
        help="Form of messages on standard error.",
    )
    return form(json(command))


def require_option(command: Command) -> Command:
    """`--require`."""
    return click.option(
        "--require",
        "required",
        multiple=True,
        metavar="tma,wgmma,pipelined,vec16",
        help="Stop if a kernel's fastest variant has lost one of these.",
    )(command)
