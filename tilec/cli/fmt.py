"""`tilec fmt`: the spacing of `.tile` files."""

from __future__ import annotations

import click

from tilec.jobs.formatting import FormatRequest
from tilec.jobs.messages import FORMS


@click.command("fmt")
@click.argument("files", nargs=-1, required=True, metavar="FILE...")
@click.option(
    "--check", is_flag=True, help="Change nothing; name what would change, with exit status 1."
)
@click.option("--diff", is_flag=True, help="Change nothing; print what would change.")
@click.option(
    "--diagnostics",
    type=click.Choice(FORMS),
    default="text",
    show_default=True,
    help="Form of messages on standard error.",
)
@click.option("--json-diagnostics", is_flag=True, help="The same as `--diagnostics json`.")
def fmt_command(
    files: tuple[str, ...], check: bool, diff: bool, diagnostics: str, json_diagnostics: bool
) -> int:
    """Give each FILE the one spacing of Tile, in place; `-` is standard input, formatted to standard output.

    Lines are not broken or joined, and comments stay. A file that cannot be parsed is left alone.
    """
    from tilec.jobs.formatting import format_files

    return format_files(FormatRequest(files, check, diff))
