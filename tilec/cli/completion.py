"""Shell completion: click's own, which the shell asks for by the variable `_TILEC_COMPLETE`."""

from __future__ import annotations

import click
from click.shell_completion import CompletionItem, shell_complete

VARIABLE = "_TILEC_COMPLETE"
"""`bash_source` (`zsh_source`, `fish_source`) prints the script to evaluate, `bash_complete` what a word may become."""


def complete(commands: click.Command, instruction: str) -> int:
    """Do what the shell's `instruction` says; returns the exit status."""
    return shell_complete(commands, {}, "tilec", VARIABLE, instruction)


def files(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Leave the word to the shell, as a path."""
    return [CompletionItem(incomplete, type="file")]
