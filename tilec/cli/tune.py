"""`tilec tune`: the fastest candidate of a `tune` clause, kept beside the source."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from tilec.cli.completion import files
from tilec.cli.options import message_options

if TYPE_CHECKING:
    from tilec.tuning.strategies import Kind


@click.command("tune")
@click.argument("file", shell_complete=files)
@click.argument("kernel", required=False)
@click.option(
    "-s",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A run-time size or scalar; `A..B` and `A,B` tune for several.",
)
@click.option("-D", "defines", multiple=True, metavar="NAME=VALUE", help="Set a bracket parameter.")
@click.option(
    "--device",
    type=click.Choice(["auto", "gpu", "cpu"]),
    default="auto",
    show_default=True,
    help="Where to measure; `cpu` is the emulator, whose times mean nothing for a GPU.",
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the inputs."
)
@click.option("--rtol", type=click.FloatRange(min=0), help="Replace the bounds.")
@click.option("--atol", type=click.FloatRange(min=0), help="Replace the bounds.")
@click.option("-j", "--jobs", type=click.IntRange(min=1), help="Builds at a time.")
@click.option(
    "--limit",
    type=click.FloatRange(min=0, min_open=True),
    metavar="SECONDS",
    help="Time for one candidate, then it counts as hanging. Default 30.",
)
@click.option("--arch", metavar="ARCH", help="Compile for this architecture, not the device's own.")
@click.option(
    "--search",
    type=click.Choice(["exhaustive", "guided", "tpe"]),
    default="exhaustive",
    show_default=True,
    help="All candidates, the likely fastest, or optuna's sampler.",
)
@click.option(
    "--patience",
    type=click.IntRange(min=1),
    metavar="N",
    help="End after N candidates in a row that were no faster.",
)
@click.option(
    "--trials", type=click.IntRange(min=1), metavar="N", help="Measure at most N candidates."
)
@click.option("--devices", metavar="N,N", help="GPUs of this machine, such as `0,1`; or `all`.")
@click.option(
    "--scheduler", metavar="ADDRESS", help="Measure on the workers of a dask.distributed cluster."
)
@click.option(
    "--plot",
    metavar="FILE",
    shell_complete=files,
    help="Draw a heat map and a roofline: svg, png or pdf. Needs matplotlib.",
)
@click.option("--again", is_flag=True, help="Measure what was measured before, too.")
@click.option("--nvcc", metavar="PATH", help="The nvcc to build with.")
@message_options
def tune_command(
    file: str,
    kernel: str | None,
    settings: tuple[str, ...],
    defines: tuple[str, ...],
    device: str,
    seed: int,
    rtol: float | None,
    atol: float | None,
    jobs: int | None,
    limit: float | None,
    arch: str | None,
    search: Kind,
    patience: int | None,
    trials: int | None,
    devices: str | None,
    scheduler: str | None,
    plot: str | None,
    again: bool,
    nvcc: str | None,
    diagnostics: str,
    json_diagnostics: bool,
) -> int:
    """Try the candidates of the `tune` clauses of FILE, of all its kernels or of KERNEL.

    Each is verified and timed in a process of its own kind. What was found goes to FILE.tuning beside the source, which
    `compile` and `run` use.
    """
    from tilec.jobs.tuning import TuneRequest, run_tune

    return run_tune(
        TuneRequest(
            file=file,
            kernel=kernel,
            settings=settings,
            defines=defines,
            device=device,
            seed=seed,
            rtol=rtol,
            atol=atol,
            jobs=jobs,
            limit=limit,
            again=again,
            nvcc=nvcc,
            arch=arch,
            search=search,
            patience=patience,
            trials=trials,
            devices=devices,
            scheduler=scheduler,
            plot=plot,
        )
    )
