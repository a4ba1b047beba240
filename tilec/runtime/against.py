"""`--against`: the same computation by PyTorch, on the same inputs and in turn with the kernel.

PyTorch reads the kernel's own input buffers. Its calls are captured into a CUDA graph where that is possible, so that what is
timed is the GPU's work and not Python's; "eager" in the table says where it is not. The clock is the same for both.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from tilec.ir import tile_ir as ir
from tilec.ir.dtypes import DType
from tilec.reference.numbers import Array, to_compute
from tilec.runtime import bench
from tilec.runtime.arguments import tensor_bytes, tensor_shape, tensor_strides
from tilec.runtime.outcome import Comparison, Timing
from tilec.runtime.torch_check import TorchCheck, stored_type
from tilec.runtime.verify import Case, Tolerance, elements, load_reference
from tilec.runtime.work import has_tf32
from tilec.source.diagnostics import TileError, fail

if TYPE_CHECKING:
    from tilec.runtime.device import Gpu
    from tilec.runtime.gpu_run import DeviceCall

DEFAULT_RTOL = {16: 1.6e-2, 8: 0.125, 32: 1e-4, 64: 1e-7}
"""rtol by the bits of the coarsest element type (of f16 2e-3); atol is the same times the mean magnitude of PyTorch's result."""


@dataclass(frozen=True)
class DeviceView:
    """Bytes on the GPU for `torch.as_tensor` (CUDA array interface, version 3)."""

    address: int
    size: int

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "shape": (self.size,),
            "typestr": "|u1",
            "data": (self.address, False),
            "version": 3,
        }


def find_torch() -> None:
    """Whether PyTorch is installed, without the time that importing it takes. Raises TileError (E0815)."""
    from importlib.util import find_spec

    if find_spec("torch") is None:
        raise fail(
            "E0815",
            "`--against torch` needs PyTorch, which is not installed",
            help="run `pip install torch`",
        )


def import_torch() -> Any:
    """PyTorch with a GPU. Raises TileError (E0815)."""
    find_torch()
    try:
        import torch
    except (ImportError, OSError) as error:
        note = (str(error).splitlines() or [""])[0]
        raise fail("E0815", "PyTorch cannot be loaded", note=note) from error
    if not torch.cuda.is_available():
        raise fail(
            "E0815",
            "this PyTorch uses no GPU",
            note=f"version {torch.__version__}",
            help="install one that was built for CUDA",
        )
    return torch


def input_tensors(torch: Any, case: Case, call: DeviceCall) -> dict[str, Any]:
    """Inputs as tensors in their dims: the kernel's own memory, but copies of `inout` parameters as before the launch and of
    4-bit types unpacked."""
    found = {}
    env = case.sizes.environment
    for tensor in case.program.tensors:
        if tensor.name not in case.arrays or tensor.role not in ("input", "inout"):
            continue
        shape = tensor_shape(tensor, env)
        if tensor.dtype.bits == 4 or tensor.role == "inout":
            found[tensor.name] = to_torch(
                torch, elements(tensor, case.sizes, case.arrays[tensor.name]), tensor.dtype
            ).to("cuda")
            continue
        buffer = call.buffers[tensor.name]
        if not buffer.size:
            kind = stored_type(torch, tensor.dtype)
            found[tensor.name] = torch.empty(shape, dtype=kind, device="cuda")
            continue
        flat = torch.as_tensor(DeviceView(buffer.address, buffer.size), device="cuda")
        flat = flat.view(stored_type(torch, tensor.dtype))
        if tensor.strides is None:
            found[tensor.name] = flat.view(shape)
        else:
            found[tensor.name] = flat.as_strided(shape, tensor_strides(tensor, env))
    return found


def to_torch(torch: Any, array: Array, dtype: DType) -> Any:
    """A host array in its own dims as a tensor of the type that `dtype` is stored in; 4-bit elements as bytes."""
    plain = np.ascontiguousarray(array)
    if (dtype.is_float and plain.dtype.kind == "V") or dtype.name in ("bf16", "f8e4m3", "f8e5m2"):
        return torch.from_numpy(plain.view(f"u{plain.itemsize}").copy()).view(
            stored_type(torch, dtype)
        )
    return torch.from_numpy(plain.copy())


def from_torch(tensor: Any) -> Array:
    """A tensor's values in float64, or int64."""
    import torch

    floating = tensor.dtype.is_floating_point
    found: Array = tensor.detach().to(torch.float64 if floating else torch.int64).cpu().numpy()
    return found


class Contender:
    """PyTorch's side of a comparison: `run` computes once, `results` are its outputs by name."""

    def __init__(self, torch: Any, compute: Callable[[], Mapping[str, Any]]) -> None:
        self.torch = torch
        self.compute = compute
        before = torch.cuda.memory_allocated()
        torch.cuda.reset_peak_memory_stats()
        self.results = dict(compute())
        torch.cuda.synchronize()
        self.extra_bytes = torch.cuda.max_memory_allocated() - before
        """the greatest number of bytes that one call had at a time besides its inputs"""
        self.graph: Any = None
        with suppress(RuntimeError):
            self.graph = self._captured()

    def _captured(self) -> Any:
        side = self.torch.cuda.Stream()
        side.wait_stream(self.torch.cuda.current_stream())
        with self.torch.cuda.stream(side):
            for _ in range(3):
                self.compute()
        self.torch.cuda.current_stream().wait_stream(side)
        graph = self.torch.cuda.CUDAGraph()
        with self.torch.cuda.graph(graph):
            self.kept = self.compute()
        self.torch.cuda.synchronize()
        return graph

    def run(self) -> None:
        """Enqueue one call on the current stream."""
        if self.graph is not None:
            self.graph.replay()
        else:
            self.compute()


def torch_check(
    torch: Any, case: Case, stored: Mapping[str, Any], *, wide: bool = False
) -> TorchCheck:
    """The case's check on `stored`, its inputs as tensors on the GPU; `wide` as in TorchCheck."""
    env = case.sizes.environment
    check = TorchCheck(
        torch,
        torch.device("cuda"),
        case.kernel,
        case.files,
        case.program,
        case.sizes.numbers,
        case.scalars,
        {},
        {t.name: (tensor_shape(t, env), t.dtype) for t in case.written},
        wide,
    )
    tensors: dict[str, ir.Tensor] = {t.name: t for t in case.program.tensors}
    check.inputs = {n: check.calculated(x, tensors[n].dtype) for n, x in stored.items()}
    return check


def contender(torch: Any, against: str, case: Case, call: DeviceCall) -> Contender:
    """What the kernel is compared with. Raises TileError: E0816 a check that PyTorch cannot evaluate, E0718 a function that fails."""
    stored = input_tensors(torch, case, call)
    torch.backends.cuda.matmul.allow_tf32 = has_tf32(case.program)
    if against != "torch":
        function = load_reference(against)
        names = [t.name for t in case.written]

        def compute() -> Mapping[str, Any]:
            answer = function(**stored, **case.scalars)
            if isinstance(answer, Mapping):
                return answer
            return dict(zip(names, answer if isinstance(answer, tuple) else (answer,), strict=True))

    else:
        compute = torch_check(torch, case, stored)
    try:
        found = Contender(torch, compute)
    except TileError:
        raise
    except Exception as error:
        first = (str(error).splitlines() or [type(error).__name__])[0]
        raise fail("E0816", f"PyTorch could not evaluate `{case.program.name}`: {first}") from error
    if not found.results:
        raise fail(
            "E0816",
            f"`{case.program.name}` has no `check` clause that PyTorch could evaluate",
            help="`--against MODULE:FUNCTION` compares with a function of your own",
        )
    return found


def compare_with(
    gpu: Gpu,
    flush: bench.CacheFlush,
    against: str,
    case: Case,
    call: DeviceCall,
    outputs: Mapping[str, Array],
    summary: Callable[[list[float]], Timing],
    peak_megabytes: float,
    tolerance: Tolerance,
    heard: Callable[[str, Callable[[], None], float], None] = lambda *_: None,
) -> Comparison:
    """Time kernel and PyTorch in turn and compare their results; `summary` makes a Timing of times in µs. `heard` is given the name of
    the other side, what makes one call of it, and its median."""
    torch = import_torch()
    other = contender(torch, against, case, call)
    ours, theirs = bench.interleaved(gpu, flush, "read", [call.launch, other.run])
    heard(against, other.run, statistics.median(theirs))
    close, greatest, used = True, 0.0, ""
    for tensor in case.written:
        if tensor.name not in other.results:
            continue
        have = elements(tensor, case.sizes, outputs[tensor.name])
        one, error, used = closeness(
            to_compute(have.reshape(-1), tensor.dtype),
            from_torch(other.results[tensor.name]).reshape(-1),
            coarsest(case, tensor.dtype),
            tolerance,
        )
        close, greatest = close and one, max(greatest, error)
    mode: Literal["graph", "eager"] = "graph" if other.graph is not None else "eager"
    extra = other.extra_bytes
    del other
    torch.cuda.empty_cache()  # what PyTorch holds back is missing for the next, larger size
    inputs = sum(
        tensor_bytes(t, case.sizes.environment)
        for t in case.program.tensors
        if t.name in case.arrays
    )
    return Comparison(
        against=against,
        mode=mode,
        ours=summary(ours),
        theirs=summary(theirs),
        our_peak_megabytes=peak_megabytes,
        their_peak_megabytes=(inputs + extra) / 1e6,
        max_error=greatest,
        allclose=close,
        within=used,
    )


def coarsest(case: Case, dtype: DType) -> DType:
    """The element type that PyTorch's result is as good as: the one with the fewest digits among the float inputs and an output."""
    inputs = [t.dtype for t in case.program.tensors if t.name in case.arrays and t.dtype.is_float]
    return min([dtype, *inputs], key=lambda d: d.mantissa) if dtype.is_float else dtype


def closeness(
    ours: Array, theirs: Array, dtype: DType, tolerance: Tolerance
) -> tuple[bool, float, str]:
    """Whether all elements agree within rtol and atol, the greatest difference, and the tolerances in words."""
    have, want = ours.astype(np.float64), theirs.astype(np.float64)
    finite = np.abs(want[np.isfinite(want)])
    rtol, atol = tolerance.rtol, tolerance.atol
    if not tolerance.given:
        rtol = 0.0 if not dtype.is_float else DEFAULT_RTOL[dtype.bits]
        if dtype.name == "f16":
            rtol = 2e-3
        atol = rtol * float(finite.mean()) if finite.size else 0.0
    rtol, atol = rtol or 0.0, atol or 0.0
    with np.errstate(all="ignore"):
        distance = np.abs(have - want)
    known = distance[np.isfinite(distance)]
    close = bool(np.allclose(have, want, rtol=rtol, atol=atol, equal_nan=True))
    greatest = float(known.max()) if known.size else 0.0
    return close, greatest, f"rtol {rtol:.2g}, atol {atol:.2g}"
