"""`tilec compile`: a `.tile` file to CUDA."""

from __future__ import annotations

import gc

import click

from tilec.cli.completion import files
from tilec.cli.options import message_options, require_option
from tilec.jobs.compiling import EMISSIONS, CompileRequest
from tilec.jobs.messages import form_of


@click.command("compile")
@click.argument("file", shell_complete=files)
@click.argument("kernel", required=False)
@click.option(
    "-o",
    "output",
    metavar="PATH",
    shell_complete=files,
    help="Where the output goes; `-` is standard output.",
)
@click.option("-D", "defines", multiple=True, metavar="NAME=VALUE", help="Set a bracket parameter.")
@click.option(
    "--arch",
    "archs",
    multiple=True,
    metavar="ARCH",
    help="A GPU architecture such as sm_90; several give one file. Default sm_80.",
)
@click.option(
    "--header", metavar="PATH", shell_complete=files, help="Also write a C and C++ header."
)
@click.option(
    "--emit", type=click.Choice(EMISSIONS), default="cu", show_default=True, help="What to write."
)
@click.option(
    "--print-after", multiple=True, metavar="PASS", help="Print the program after a pass."
)
@click.option("--save-temps", metavar="DIR", help="Keep every stage in a folder.")
@click.option("-MD", "depfile", is_flag=True, help="Write a dependency file for make or ninja.")
@click.option(
    "-MF", "depfile_path", metavar="FILE", help="Its path; default: the output's with `.d`."
)
@click.option(
    "-MT", "depfile_target", metavar="TARGET", help="Its target, as is; default: the output."
)
@click.option("--if-changed", is_flag=True, help="Leave a file alone that would not change.")
@click.option(
    "--tuned",
    is_flag=True,
    help="Compile all variants that `tilec tune` found; the launcher selects by the sizes.",
)
@click.option(
    "--variants",
    type=click.IntRange(min=1),
    metavar="N",
    help="With `--tuned`: at most so many a kernel beside the general one. Default 4.",
)
@click.option("--split", is_flag=True, help="With `--tuned`: each variant in a file of its own.")
@click.option("--no-tuned", is_flag=True, help="Do not use what `tilec tune` found.")
@click.option(
    "-j",
    "--jobs",
    type=click.IntRange(min=1),
    metavar="N",
    help="So many processes compile the kernels of a file with many. Default: one a core.",
)
@click.option("--check-only", is_flag=True, help="Report errors and warnings, write nothing.")
@require_option
@click.option("--nvcc", metavar="PATH", help="The nvcc for `--emit ptx` and `cubin`.")
@message_options
@click.option("--warnings-as-errors", is_flag=True, help="Write nothing if there is a warning.")
@click.option("--no-warnings", is_flag=True, help="Print no warnings.")
def compile_command(
    file: str,
    kernel: str | None,
    output: str | None,
    defines: tuple[str, ...],
    archs: tuple[str, ...],
    header: str | None,
    emit: str,
    print_after: tuple[str, ...],
    save_temps: str | None,
    depfile: bool,
    depfile_path: str | None,
    depfile_target: str | None,
    if_changed: bool,
    tuned: bool,
    variants: int | None,
    split: bool,
    no_tuned: bool,
    required: tuple[str, ...],
    jobs: int | None,
    check_only: bool,
    nvcc: str | None,
    diagnostics: str,
    json_diagnostics: bool,
    warnings_as_errors: bool,
    no_warnings: bool,
) -> None:
    """Compile FILE to CUDA: all its kernels, or KERNEL alone.

    The output is a function of the file, its imports and the options: the same bytes on any machine. Nothing is
    written if there is an error.
    """

    from tilec.jobs.compiling import run_compile

    # Programs are trees: looking for cycles in them takes a fifth of the time and finds none.
    gc.disable()
    request = CompileRequest(
        file=file,
        kernel=kernel,
        output=output,
        defines=defines,
        archs=archs,
        header=header,
        emit=emit,
        print_after=print_after,
        save_temps=save_temps,
        depfile=depfile or depfile_path is not None or depfile_target is not None,
        depfile_path=depfile_path,
        depfile_target=depfile_target,
        check_only=check_only,
        nvcc=nvcc,
        form=form_of(diagnostics, json_diagnostics),
        warnings_as_errors=warnings_as_errors,
        no_warnings=no_warnings,
        tuned=not no_tuned,
        if_changed=if_changed,
        dispatch=tuned,
        variants=variants,
        split=split,
        required=required,
        jobs=jobs,
    )
    run_compile(request)
