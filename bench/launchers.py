"""Generated C launchers called from Python through ctypes, on PyTorch's stream, for timing beside PyTorch."""

from __future__ import annotations

import ctypes
import hashlib
import os
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import torch

from tilec.compiled import CompiledKernel
from tilec.compiler import compile_file
from tilec.toolchain.build import find_toolchain
from tilec.toolchain.shared_library import build_shared_library

_FLOATS = {"f32", "bf16", "f16"}


class Launcher:
    """One kernel's launcher. Call it with tensors and outputs in the order of the signature, then sizes, then scalars."""

    def __init__(self, library: ctypes.CDLL, kernel: CompiledKernel):
        self.function = getattr(library, kernel.name)
        self.error = getattr(library, f"{kernel.name}_error")
        self.error.restype = ctypes.c_char_p
        self.bytes = getattr(library, f"{kernel.name}_workspace_bytes")
        self.bytes.restype = ctypes.c_size_t
        plan = kernel.plan
        self.tensors = len(plan.parameters)
        self.sizes = [v.name for v in plan.dims]
        self.dims = len(plan.dims) + len(plan.strides)
        kinds: list[Any] = [ctypes.c_void_p] * self.tensors + [ctypes.c_int] * self.dims
        for scalar in plan.scalars:
            kinds.append(ctypes.c_float if scalar.dtype.name in _FLOATS else ctypes.c_int)
        self.function.argtypes = [*kinds, ctypes.c_void_p, ctypes.c_void_p]
        self.workspace: torch.Tensor | None = None

    def __call__(self, *arguments: Any) -> None:
        sizes = arguments[self.tensors : self.tensors + self.dims]
        needed = self.bytes(*sizes)
        if needed and (self.workspace is None or self.workspace.numel() < needed):
            self.workspace = torch.empty(needed, dtype=torch.uint8, device="cuda")
        pointers = [a.data_ptr() for a in arguments[: self.tensors]]
        place = self.workspace.data_ptr() if self.workspace is not None else None
        stream = torch.cuda.current_stream().cuda_stream
        status = self.function(*pointers, *arguments[self.tensors :], place, stream)
        if status:
            raise RuntimeError(f"launcher returned {status}: {self.error().decode()}")


def build_ahead(wanted: list[tuple[str, str, str, dict[str, object]]]) -> None:
    """Build several launchers at once: (path, kernel, arch, defines) each."""
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(lambda w: load(w[0], w[1], w[2], **w[3]), wanted))


def load(path: str, kernel: str, arch: str, **defines: object) -> Launcher:
    """Compile one kernel of a `.tile` file for `arch` and load its launcher."""
    compiled = compile_file(
        path, kernel=kernel, archs=(arch,), defines={k: str(v) for k, v in defines.items()}
    )
    name = hashlib.sha256(compiled.cu.encode()).hexdigest()[:16]
    folder = Path(os.environ.get("TILEC_BENCH_DIR", tempfile.gettempdir()))
    library = folder / f"{kernel}_{name}.so"
    if not library.exists():
        build_shared_library(compiled.cu, [arch], library, toolchain=find_toolchain())
    return Launcher(ctypes.CDLL(str(library)), compiled.kernel(kernel))
