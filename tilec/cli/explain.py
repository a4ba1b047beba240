"""`tilec explain`: what was decided, and why."""

from __future__ import annotations

import click

from tilec.cli.completion import files
from tilec.jobs.explaining import ExplainRequest


@click.command("explain")
@click.argument("file", shell_complete=files)
@click.argument("kernel", required=False)
@click.option("-D", "defines", multiple=True, metavar="NAME=VALUE", help="Set a bracket parameter.")
@click.option("--arch", metavar="ARCH", help="A GPU architecture. Default sm_80.")
@click.option("--no-tuned", is_flag=True, help="Leave out what `tilec tune` found.")
@click.option("--json-diagnostics", is_flag=True, help="Messages as JSON.")
def explain_command(
    file: str,
    kernel: str | None,
    defines: tuple[str, ...],
    arch: str | None,
    no_tuned: bool,
    json_diagnostics: bool,
) -> int:
    """Say for each line of FILE which instruction, width, transport, stages, barriers and masks it became, and why.

    Needs neither nvcc nor a GPU. `tilec compile --emit manifest` gives the same facts as JSON.
    """
    from tilec.jobs.explaining import explain_file

    return explain_file(ExplainRequest(file, kernel, defines, arch, not no_tuned))
