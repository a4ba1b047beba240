"""What a call must satisfy before anything is launched, in the order in which it is checked.

The list follows from the launch plan. `emit` renders it to C, the runtime evaluates it in Python; both refuse a call
with the same sentence.
"""

from __future__ import annotations

from typing import TypeAlias

from tilec.ir.launch import WORKSPACE, LaunchPlan, product, size_range
from tilec.ir.symbolic import Sym
from tilec.ir.tile_ir import Contract, Tensor
from tilec.lazy_dataclass import dataclass

BYTES_LIMIT = 1 << 60
"""An argument has at most as many bytes; far above any memory, far below where 64-bit offsets wrap."""

INSTANCE_LIMIT = (1 << 31) - 1
"""Instances of one nest, and CTAs of one grid (CUDA programming guide, technical specifications)."""

WORKSPACE_ALIGNMENT = 256
"""Bytes; what allocators of the CUDA runtime give."""


@dataclass(frozen=True)
class NotNegative:
    """A size, a stride, or a dimension that is an expression, is at least 0. `subject` is what the sentence calls it."""

    subject: str
    value: Sym

    @property
    def sentence(self) -> str:
        """Why a call is refused."""
        return f"{self.subject} is negative"


@dataclass(frozen=True)
class Holds:
    """A `require` clause is true."""

    contract: Contract

    @property
    def sentence(self) -> str:
        """Why a call is refused."""
        return f"requires {self.contract.text}"


@dataclass(frozen=True)
class Addressable:
    """An argument (a tensor, or the workspace) has at most BYTES_LIMIT bytes."""

    name: str

    @property
    def sentence(self) -> str:
        """Why a call is refused."""
        return f"{self.name} has more than 2^60 bytes"


@dataclass(frozen=True)
class FitsGrid:
    """A nest has at most INSTANCE_LIMIT instances."""

    instances: Sym

    @property
    def sentence(self) -> str:
        """Why a call is refused."""
        return "a parallel nest has more than 2^31 - 1 instances"


@dataclass(frozen=True)
class Present:
    """An argument with bytes has an address."""

    name: str

    @property
    def sentence(self) -> str:
        """Why a call is refused."""
        return f"{self.name} is null"


@dataclass(frozen=True)
class AlignedAddress:
    """The address of an argument is a multiple of `bytes`."""

    name: str
    bytes: int

    @property
    def sentence(self) -> str:
        """Why a call is refused."""
        return f"{self.name} is misaligned"


@dataclass(frozen=True)
class Separate:
    """No written argument shares a byte with another one. The sentence names the two: `c overlaps a`."""

    written: tuple[bool, ...]
    names: tuple[str, ...]


Requirement: TypeAlias = (
    "NotNegative | Holds | Addressable | FitsGrid | Present | AlignedAddress | Separate"
)


def requirements(plan: LaunchPlan) -> tuple[Requirement, ...]:
    """All of a plan, in order; each may rely on those before it."""
    found: list[Requirement] = [NotNegative(v.name, Sym.of(v)) for v in plan.dims + plan.strides]
    for tensor in plan.parameters:
        found += [
            NotNegative(f"a dimension of {tensor.name}, {dim},", dim)
            for dim in dict.fromkeys(tensor.dims)
            if _can_be_negative(dim)
        ]
    found += [Holds(c) for c in plan.contracts]
    steps = [step for target in plan.targets for step in target.steps]
    found += [FitsGrid(s) for s in dict.fromkeys(step.instances for step in steps)]
    for tensor in plan.parameters:
        found += [Addressable(tensor.name), Present(tensor.name)]
        if tensor.dtype.bits > 8:
            found.append(AlignedAddress(tensor.name, tensor.dtype.bits // 8))
    if plan.workspace:
        found += [
            Addressable(WORKSPACE),
            Present(WORKSPACE),
            AlignedAddress(WORKSPACE, WORKSPACE_ALIGNMENT),
        ]
    written = [t.role != "input" for t in plan.parameters]
    names = [t.name for t in plan.parameters]
    if plan.workspace:
        written.append(True)
        names.append(WORKSPACE)
    if len(names) > 1 and any(written):
        found.append(Separate(tuple(written), tuple(names)))
    return tuple(found)


def _can_be_negative(dim: Sym) -> bool:
    low = dim.bounds(size_range)[0]
    return low is None or low < 0


def tensor_extent(tensor: Tensor) -> Sym:
    """Bytes of a tensor that has elements, from its first to its last one; dimensions are at least 0."""
    if tensor.strides is None:
        elements = product(tensor.dims)
    else:
        elements = Sym.of(1)
        for dim, stride in zip(tensor.dims, tensor.strides, strict=True):
            elements = elements + (dim - 1) * stride
    if tensor.dtype.bits < 8:
        per_byte = 8 // tensor.dtype.bits
        return (elements + (per_byte - 1)) // per_byte
    return elements * (tensor.dtype.bits // 8)


__all__ = [
    "BYTES_LIMIT", "INSTANCE_LIMIT", "WORKSPACE", "WORKSPACE_ALIGNMENT", "Addressable", "AlignedAddress", "FitsGrid",
    "Holds", "NotNegative", "Present", "Requirement", "Separate", "requirements", "size_range", "tensor_extent",
]  # fmt: skip
