"""`tilec cache`: what tilec keeps, and removing it."""

from __future__ import annotations

import click


@click.group("cache")
def cache_command() -> None:
    """What tilec keeps: built kernels, the emulator, parse tables, templates, faults, results of the tuner.

    No result depends on it. `TILEC_CACHE_DIR` names another folder; `/dev/null` keeps nothing.
    """


@cache_command.command("list")
def list_command() -> None:
    """Print every entry with its kind, size and age."""
    from tilec.jobs.caching import list_cache

    for line in list_cache():
        click.echo(line)


@cache_command.command("path")
def path_command() -> None:
    """Print the folder."""
    from tilec.jobs.caching import cache_path, unused_cache

    click.echo(cache_path())
    if unused := unused_cache():
        click.echo(unused, err=True)


@cache_command.command("verify")
def verify_command() -> int:
    """Check the bytes of every entry against its hash.

    Prints those that are broken; the exit status is 1 if there is one. A broken entry is never used, and is written anew.
    """
    from tilec.jobs.caching import verify_cache

    lines, status = verify_cache()
    for line in lines:
        click.echo(line)
    return status


@cache_command.command("clear")
@click.option(
    "--older-than",
    type=click.FloatRange(min=0),
    metavar="DAYS",
    help="Only what was written more than so many days ago.",
)
def clear_command(older_than: float | None) -> None:
    """Remove every entry, and nothing else that lies in the folder."""
    from tilec.jobs.caching import clear_cache

    click.echo(clear_cache(older_than))
