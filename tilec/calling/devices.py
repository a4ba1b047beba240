"""What GPUs are here, without any CUDA package."""

from __future__ import annotations

from functools import cache

from tilec.runtime.device import no_gpu
from tilec.toolchain.driver import Device, query_driver


@cache
def devices() -> tuple[Device, ...]:
    """The GPUs that the driver sees, asked once."""
    return query_driver().devices


def cuda_available() -> bool:
    """Whether the driver sees a GPU."""
    return bool(devices())


def gpu_name(index: int = 0) -> str:
    """`NVIDIA H200`. Raises TileError (E0812) without that GPU."""
    return _device(index).name


def compute_capability(index: int = 0) -> tuple[int, int]:
    """`(9, 0)`. Raises TileError (E0812) without that GPU."""
    return _device(index).compute_capability


def _device(index: int) -> Device:
    found = devices()
    if not 0 <= index < len(found):
        raise no_gpu(query_driver().problem or f"the driver sees {len(found)} devices")
    return found[index]
