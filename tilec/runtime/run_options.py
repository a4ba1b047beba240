"""What a run of one kernel is asked for."""

from __future__ import annotations

from typing import Protocol


class RunOptions(Protocol):
    """The part of a request that concerns one kernel; as in `tilec.jobs.running.RunRequest`."""

    @property
    def settings(self) -> tuple[str, ...]:
        """`-s`."""

    @property
    def inputs(self) -> tuple[str, ...]:
        """`--input`."""

    @property
    def seed(self) -> int:
        """`--seed`."""

    @property
    def size(self) -> str | None:
        """`--size`."""

    @property
    def small(self) -> bool:
        """`--small`."""

    @property
    def reference(self) -> str | None:
        """`--reference`."""

    @property
    def rtol(self) -> float | None:
        """`--rtol`."""

    @property
    def atol(self) -> float | None:
        """`--atol`."""

    @property
    def bench(self) -> bool:
        """`--bench`."""

    @property
    def against(self) -> str | None:
        """`--against`."""

    @property
    def energy(self) -> bool:
        """`--energy`."""

    @property
    def save(self) -> str | None:
        """`--save`."""

    @property
    def nvcc(self) -> str | None:
        """`--nvcc`."""
