"""`tilec new`: a program to start from."""

from __future__ import annotations

import click


@click.command("new")
@click.argument("name")
def new_command(name: str) -> None:
    """Write NAME.tile: a small kernel with a check and examples, which `tilec run NAME.tile` verifies as it is.

    A file that is there is left alone.
    """
    from tilec.jobs.starting import write_program

    path = write_program(name)
    click.echo(f"wrote `{path}`; `tilec run {path}` runs and verifies it")
