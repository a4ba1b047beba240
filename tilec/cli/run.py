"""`tilec run`: kernels on the GPU, the emulator or in the interpreter, verified."""

from __future__ import annotations

import click

from tilec.cli.completion import files
from tilec.cli.options import message_options, require_option
from tilec.jobs.messages import form_of

DEVICES = ("auto", "gpu", "cpu", "reference")


@click.command("run")
@click.argument("file", required=False, shell_complete=files)
@click.argument("kernel", required=False)
@click.option(
    "-s",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    help="A run-time size or scalar; `A..B` and `A,B` name several.",
)
@click.option("-D", "defines", multiple=True, metavar="NAME=VALUE", help="Set a bracket parameter.")
@click.option(
    "--input", "inputs", multiple=True, metavar="NAME=FILE", help="An argument from a .npy file."
)
@click.option(
    "--seed", type=click.IntRange(min=0), default=0, show_default=True, help="Of the inputs."
)
@click.option(
    "--size", type=click.Choice(["example", "cpu"]), help="Which `example` clauses to run."
)
@click.option("--small", is_flag=True, help="Run at 20 ragged size sets instead.")
@click.option(
    "--device", type=click.Choice(DEVICES), default="auto", show_default=True, help="Where to run."
)
@click.option(
    "--arch", metavar="ARCH", help="Compile for this architecture; default: the device's."
)
@click.option(
    "--reference", metavar="MODULE:FUNCTION", help="Also verify against a Python function."
)
@click.option(
    "--rtol", type=click.FloatRange(min=0), help="Replace the bounds: relative tolerance."
)
@click.option(
    "--atol", type=click.FloatRange(min=0), help="Replace the bounds: absolute tolerance."
)
@click.option("--bench", is_flag=True, help="Time each kernel that verified.")
@click.option(
    "--against",
    metavar="torch|MODULE:FUNCTION",
    help="Also time PyTorch evaluating the check, or a function of yours, in turn with the kernel.",
)
@click.option(
    "--energy", is_flag=True, help="With --bench: joules a call, by the GPU's own counter."
)
@click.option(
    "--tuned", is_flag=True, help="Run what `compile --tuned` writes: all variants that were found."
)
@click.option("--no-tuned", is_flag=True, help="Do not use what `tilec tune` found.")
@click.option("--csv", "csv_path", metavar="PATH", help="Write the times as CSV.")
@click.option("--plot", "plot_path", metavar="PATH", help="Draw the times over a range of sizes.")
@click.option("--save", metavar="DIR", help="Keep inputs and outputs as .npy files.")
@click.option(
    "--json", "json_path", metavar="PATH", help="Write the results as JSON; `-` is standard output."
)
@click.option(
    "--early",
    is_flag=True,
    help="On the emulator, asynchronous copies land at once and higher warps run ahead.",
)
@click.option(
    "--chaos", type=click.IntRange(min=0), metavar="SEED", help="On the emulator, in random order."
)
@click.option("--counters", is_flag=True, help="Count the emulator's memory requests, for --json.")
@require_option
@click.option("--nvcc", metavar="PATH", help="The nvcc to build with.")
@message_options
def run_command(
    file: str | None,
    kernel: str | None,
    settings: tuple[str, ...],
    defines: tuple[str, ...],
    inputs: tuple[str, ...],
    seed: int,
    size: str | None,
    small: bool,
    device: str,
    arch: str | None,
    reference: str | None,
    rtol: float | None,
    atol: float | None,
    bench: bool,
    against: str | None,
    energy: bool,
    tuned: bool,
    no_tuned: bool,
    required: tuple[str, ...],
    csv_path: str | None,
    plot_path: str | None,
    save: str | None,
    json_path: str | None,
    early: bool,
    chaos: int | None,
    counters: bool,
    nvcc: str | None,
    diagnostics: str,
    json_diagnostics: bool,
) -> int:
    """Run KERNEL of FILE and verify what it computes.

    Without KERNEL all kernels of the file run, without FILE those of every .tile file in the current folder. The exit
    status is the worst of them.
    """
    from tilec.jobs.running import RunRequest, run_files

    return run_files(
        RunRequest(
            file=file,
            kernel=kernel,
            settings=settings,
            defines=defines,
            inputs=inputs,
            seed=seed,
            size=size,
            small=small,
            device=device,
            arch=arch,
            reference=reference,
            rtol=rtol,
            atol=atol,
            bench=bench,
            against=against,
            tuned=not no_tuned,
            dispatch=tuned,
            energy=energy,
            csv_path=csv_path,
            plot_path=plot_path,
            save=save,
            json_path=json_path,
            early=early,
            chaos=chaos,
            counters=counters,
            nvcc=nvcc,
            required=required,
            form=form_of(diagnostics, json_diagnostics),
        )
    )
