"""What `tilec tune` measures on: the emulator, GPUs of this machine, or those of a cluster's workers."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from tilec.jobs.requests import parse_archs
from tilec.source.diagnostics import fail

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tilec.toolchain.driver import Driver
    from tilec.tuning.cluster import Cluster
    from tilec.tuning.lanes import Lanes


@dataclass(frozen=True)
class Device:
    """What candidates are measured on: `name` of the GPU, or "emulator". `visible`: one entry a GPU, as in `CUDA_VISIBLE_DEVICES`;
    `cluster` where other machines measure."""

    name: str
    arch: str
    emulated: bool
    visible: tuple[str, ...] = ("",)
    cluster: Cluster | None = field(default=None, compare=False)

    def lanes(self, files: Sequence[str]) -> Lanes:
        """The places where a search over a program of these files measures."""
        from tilec.tuning.lanes import local_lanes

        if self.cluster is None:
            return partial(local_lanes, visible=self.visible)
        from tilec.tuning.cluster import program_files

        return self.cluster.lanes(program_files(files))

    def close(self) -> None:
        """End the connection to a cluster."""
        if self.cluster is not None:
            self.cluster.close()


def choose_device(
    device: str, arch: str | None, devices: str | None, scheduler: str | None
) -> Device:
    """What the options name; `arch` None: the newest that the device runs. Raises TileError: E0709, E0724 options, E0802, E0805 no
    emulator, E0812 no GPU, E0821, E0822 no cluster."""
    if devices is not None and (scheduler is not None or device == "cpu"):
        other = "--scheduler" if scheduler is not None else "--device cpu"
        raise fail("E0709", f"`--devices` names GPUs of this machine, and `{other}` uses none")
    if scheduler is not None:
        from tilec.tuning.cluster import connect

        return on_cluster(connect(scheduler), device == "cpu", arch)
    if device == "cpu":
        from tilec.emulator.build import host_toolchain
        from tilec.tuning.records import EMULATOR

        host_toolchain()
        return Device(EMULATOR, parse_archs((arch,) if arch else ())[-1], True)
    from tilec.runtime.device import no_gpu
    from tilec.toolchain.driver import query_driver

    driver = query_driver()
    if not driver.devices:
        raise no_gpu(driver.problem)
    numbers = _numbers(devices, driver)
    first = driver.devices[numbers[0]]
    for number in numbers[1:]:
        other_name = driver.devices[number].name
        if other_name != first.name:
            raise fail(
                "E0724",
                f"GPU {number} is another one, {other_name}, than GPU {numbers[0]}, {first.name}",
                help="times of different GPUs cannot be compared: tune on each by itself",
            )
    named = _architecture(arch, first.compute_capability)
    visible = ("",) if devices is None else tuple(_visible(n) for n in numbers)
    return Device(first.name, named, False, visible)


def on_cluster(cluster: Cluster, emulated: bool, arch: str | None) -> Device:
    """The workers of a cluster. Raises TileError (E0822) where they do not suit."""
    from tilec.tuning.records import EMULATOR

    facts = cluster.alike(emulated)
    if emulated:
        return Device(EMULATOR, parse_archs((arch,) if arch else ())[-1], True, cluster=cluster)
    return Device(facts.gpu, _architecture(arch, facts.capability), False, cluster=cluster)


def _architecture(arch: str | None, capability: tuple[int, int]) -> str:
    """The architecture to compile for. Raises TileError (E0707 unknown, E0812 one that the device does not run)."""
    from tilec.runtime.launching import architecture_for, runs_on

    if arch is None:
        return architecture_for(capability)
    (named,) = parse_archs((arch,))
    if not runs_on(named, capability):
        raise fail(
            "E0812",
            f"the device is sm_{capability[0]}{capability[1]}, which runs no code for {named}",
            help="leave `--arch` out, or tune where there is such a device",
        )
    return named


def _numbers(devices: str | None, driver: Driver) -> list[int]:
    """The numbers that `--devices` lists, each once; the first alone without it. Raises TileError (E0724)."""
    count = len(driver.devices)
    if devices is None:
        return [0]
    if devices == "all":
        return list(range(count))
    numbers: list[int] = []
    for word in devices.split(","):
        if not word.strip().isdigit() or int(word) >= count:
            there = "GPU 0 alone" if count == 1 else f"GPUs 0 to {count - 1}"
            raise fail(
                "E0724",
                f"`--devices {devices}`: there is no GPU `{word.strip()}`",
                help=f"there is {there}; `all` names them all",
            )
        numbers.append(int(word))
    return list(dict.fromkeys(numbers))


def _visible(number: int) -> str:
    """What a child's `CUDA_VISIBLE_DEVICES` says for a GPU that this process knows by a number."""
    given = os.environ.get("CUDA_VISIBLE_DEVICES", "")
    names = [n.strip() for n in given.split(",") if n.strip()]
    return names[number] if number < len(names) else str(number)
