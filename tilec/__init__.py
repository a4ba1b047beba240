"""tilec: a compiler from the Tile language to CUDA.

`tilec.compile("gemm.tile", BM=128)` gives a kernel that is called with arrays; `tilec.benchmark` and `tilec.assert_close` time and
compare. Nothing is imported before it is used.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"

if TYPE_CHECKING:
    from tilec import torch
    from tilec.calling.compiling import compile_kernel as compile
    from tilec.calling.devices import compute_capability, cuda_available, gpu_name
    from tilec.calling.kernel import Kernel
    from tilec.calling.measuring import Measurement, assert_close, benchmark
    from tilec.source.diagnostics import TileError

_PLACES = {
    "Kernel": ("tilec.calling.kernel", "Kernel"),
    "Measurement": ("tilec.calling.measuring", "Measurement"),
    "TileError": ("tilec.source.diagnostics", "TileError"),
    "assert_close": ("tilec.calling.measuring", "assert_close"),
    "benchmark": ("tilec.calling.measuring", "benchmark"),
    "compile": ("tilec.calling.compiling", "compile_kernel"),
    "compute_capability": ("tilec.calling.devices", "compute_capability"),
    "cuda_available": ("tilec.calling.devices", "cuda_available"),
    "gpu_name": ("tilec.calling.devices", "gpu_name"),
}

__all__ = [
    "Kernel", "Measurement", "TileError", "__version__", "assert_close", "benchmark", "compile", "compute_capability",
    "cuda_available", "gpu_name", "torch",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    if name == "torch":
        from importlib import import_module

        return import_module("tilec.torch")
    if name not in _PLACES:
        raise AttributeError(f"module `tilec` has no attribute `{name}`")
    from importlib import import_module

    module, attribute = _PLACES[name]
    value = getattr(import_module(module), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
