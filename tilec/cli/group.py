"""The group of commands; a command's module is imported when that command runs."""

from __future__ import annotations

from importlib import import_module

import click

import tilec

COMMANDS = {
    "compile": "Compile a .tile file to CUDA.",
    "run": "Run kernels and verify what they compute.",
    "tune": "Find the fastest candidate of a `tune` clause.",
    "profile": "Registers, shared memory, occupancy and traffic of kernels.",
    "explain": "Say what was decided for each line, and why; or what a code means.",
    "fmt": "Give .tile files the one spacing of Tile.",
    "new": "Write a program to start from.",
    "cache": "List, verify and clear what tilec keeps.",
    "doctor": "Check driver, GPU, nvcc, host compiler and pycuda.",
}
"""Each command and its line in `tilec --help`. Command `x` is the object `x` (or `x_command`) of `tilec.cli.x`."""


class LazyGroup(click.Group):
    """Commands by name from `COMMANDS`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The names in the order of the table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or None where there is none of that name."""
        if cmd_name not in COMMANDS:
            return None
        module = import_module(f"tilec.cli.{cmd_name}")
        command: click.Command = (
            getattr(module, f"{cmd_name}_command", None) or module.__dict__[cmd_name]
        )
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The table, without importing anything."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


def _print_cmake_folder(context: click.Context) -> None:
    from tilec.resources import resource_path

    click.echo(resource_path("templates", "cmake"))
    context.exit()


@click.group(cls=LazyGroup, context_settings={"help_option_names": ["-h", "--help"]})
@click.option(
    "--cmake-dir",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=lambda context, option, given: _print_cmake_folder(context) if given else None,
    help="Print the folder for Tilec_DIR or CMAKE_PREFIX_PATH and exit.",
)
@click.version_option(tilec.__version__, prog_name="tilec", message="%(prog)s %(version)s")
def commands() -> None:
    """tilec compiles the Tile language to CUDA."""
