"""`tilec fmt`: the spacing of `.tile` files."""

from __future__ import annotations

import click

from tilec.cli.options import message_options
from tilec.jobs.formatting import FormatRequest


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--check", is_flag=True, help="Change nothing; name what would change, with exit status 1."
)
@click.option("--diff", is_flag=True, help="Change nothing; print what would change.")
@message_options
def fmt_command(
    files: tuple[str, ...], check: bool, diff: bool, diagnostics: str, json_diagnostics: bool
) -> int:
    """Give each FILE the one spacing of Tile, in place; `-` is standard input, formatted to standard output.

    Lines are not broken or joined, and comments stay. A file that cannot be parsed is left alone.
    """
    from tilec.jobs.formatting import format_files

    return format_files(FormatRequest(files, check, diff))
