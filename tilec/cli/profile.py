"""`tilec profile`: what kernels use of an SM."""

from __future__ import annotations

import click

from tilec.cli.completion import files
from tilec.jobs.profiling import ProfileRequest


@click.command("profile")
@click.argument("file", shell_complete=files)
@click.argument("kernel", required=False)
@click.option("-s", "settings", multiple=True, metavar="NAME=VALUE", help="A size or scalar.")
@click.option("-D", "defines", multiple=True, metavar="NAME=VALUE", help="Set a bracket parameter.")
@click.option("--arch", metavar="ARCH", help="An architecture other than the device's.")
@click.option("--nvcc", metavar="PATH", help="The nvcc to build with.")
@click.option(
    "--ncu",
    metavar="PATH",
    default="auto",
    show_default=True,
    help="The Nsight Compute to measure with; `off`: estimate.",
)
@click.option("--json", "as_json", is_flag=True, help="Print JSON in place of tables.")
@click.option("--json-diagnostics", is_flag=True, help="Messages as JSON.")
def profile_command(
    file: str,
    kernel: str | None,
    settings: tuple[str, ...],
    defines: tuple[str, ...],
    arch: str | None,
    nvcc: str | None,
    ncu: str,
    as_json: bool,
    json_diagnostics: bool,
) -> int:
    """Registers, spills, shared memory, occupancy and its limiter of every compiled kernel of FILE.

    Needs nvcc and no GPU. On a GPU with Nsight Compute the bytes of DRAM, the tensor pipes' share and the achieved occupancy of one
    call at the example sizes are measured, else estimated.
    """
    from tilec.jobs.profiling import profile_file

    return profile_file(ProfileRequest(file, kernel, settings, defines, arch, nvcc, ncu, as_json))
