"""`tilec doctor`: what this machine has, and what it lacks."""

from __future__ import annotations

import json

import click


@click.command()
@click.option("--json", "as_json", is_flag=True, help="Print the facts as JSON.")
@click.option("--nvcc", metavar="PATH", help="The nvcc to look at.")
def doctor(as_json: bool, nvcc: str | None) -> None:
    """Check driver, GPU, nvcc, host compiler and pycuda.

    The exit status is 0 if kernels can be built (nvcc and a host compiler are there), else 3.
    """
    from tilec.toolchain.doctor import examine

    health = examine(nvcc)
    if as_json:
        click.echo(json.dumps(health.as_json(), indent=2))
    else:
        width = max(len(check.name) for check in health.checks)
        click.echo(f"tilec {health.tilec}")
        for check in health.checks:
            click.echo(f"  {'ok' if check.ok else '--'}  {check.name:<{width}}  {check.found}")
            if not check.ok and check.help:
                click.echo(f"      {'':<{width}}  {check.help}")
    raise SystemExit(0 if health.can_build else 3)
