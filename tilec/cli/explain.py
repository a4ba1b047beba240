"""`tilec explain`: what was decided, and why."""

from __future__ import annotations

import click

from tilec.cli.completion import files
from tilec.cli.options import require_option
from tilec.jobs.explaining import ExplainRequest
from tilec.source.diagnostics import fail


@click.command("explain")
@click.argument("file", metavar="FILE|CODE", shell_complete=files)
@click.argument("kernel", required=False)
@click.option("-D", "defines", multiple=True, metavar="NAME=VALUE", help="Set a bracket parameter.")
@click.option(
    "-s",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A size at which launches are bounded.",
)
@click.option("--arch", metavar="ARCH", help="A GPU architecture. Default sm_80.")
@click.option("--no-tuned", is_flag=True, help="Leave out what `tilec tune` found.")
@require_option
@click.option("--svg", metavar="DIR", shell_complete=files, help="Also draw layouts into a folder.")
@click.option(
    "--html",
    metavar="PATH",
    shell_complete=files,
    help="Write a report of all passes in place of the text.",
)
@click.option("--json-diagnostics", is_flag=True, help="Messages as JSON.")
def explain_command(
    file: str,
    kernel: str | None,
    defines: tuple[str, ...],
    settings: tuple[str, ...],
    arch: str | None,
    no_tuned: bool,
    required: tuple[str, ...],
    svg: str | None,
    html: str | None,
    json_diagnostics: bool,
) -> int:
    """Say what a message's CODE such as E0312 means, or for each line of FILE which instruction, width, transport, stages, barriers and masks it became, and why.

    Needs neither nvcc nor a GPU. `tilec compile --emit manifest` gives the same facts as JSON.
    """
    from tilec.jobs.codes import explain_code, is_code
    from tilec.jobs.explaining import explain_file

    if is_code(file):
        if kernel or defines or settings or arch or no_tuned or required or svg or html:
            raise fail("E0709", f"`{file}` is a code, which takes no kernel and no options")
        return explain_code(file)

    return explain_file(
        ExplainRequest(file, kernel, defines, arch, not no_tuned, required, settings, svg, html)
    )
