"""The launch plan: what the host does to run a compiled kernel.

One data structure, two readers: `emit` renders it to C (the `extern "C"` launcher), the runtime evaluates it in
Python and launches through pycuda. A test asserts that they agree.

C signature, in this order: tensors and outputs as declared, run-time dims in order of first appearance, declared
stride names, scalars, `void* workspace`, `cudaStream_t stream`.
"""

from __future__ import annotations

import math
from dataclasses import field
from typing import TypeAlias

from tilec.ir.dtypes import DType
from tilec.ir.selection import Point
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tensor_maps import ALIGNMENT, DIM_LIMIT, STRIDE_LIMIT, box_fault
from tilec.ir.tile_ir import Contract, HostExpr, HostNumber, HostOp, HostScalar, ScalarInput, Tensor
from tilec.lazy_dataclass import dataclass

WORKSPACE = "the workspace"
"""The name of the workspace in sentences and addresses: no tensor is called so."""


@dataclass(frozen=True)
class Aligned:
    """True iff the address of tensor `tensor` (a parameter or temp) is a multiple of `bytes`."""

    tensor: str
    bytes: int


@dataclass(frozen=True)
class Always:
    """True."""


@dataclass(frozen=True)
class Given:
    """True iff the call was given a workspace."""


LaunchCondition: TypeAlias = "HostExpr | Aligned | Always | Given | AllOf | AnyOf"


@dataclass(frozen=True)
class AllOf:
    """True iff every part is (no part: true)."""

    parts: tuple[LaunchCondition, ...]


@dataclass(frozen=True)
class AnyOf:
    """True iff one part is (no part: false)."""

    parts: tuple[LaunchCondition, ...]


@dataclass(frozen=True)
class PointerArgument:
    """Address of a tensor parameter, or of a temp inside the workspace."""

    tensor: str


@dataclass(frozen=True)
class IntegerArgument:
    """A number computed by the host; 32-bit `int`, or `long long` where `wide`."""

    name: str
    value: Sym
    wide: bool = False


@dataclass(frozen=True)
class ScalarArgument:
    """A scalar parameter in its own dtype."""

    name: str


@dataclass(frozen=True)
class Instead:
    """A temp that takes a tensor's place in a call in which `condition` holds."""

    tensor: str
    condition: HostExpr


@dataclass(frozen=True)
class TensorMapArgument:
    """A map by which bulk copies address a tensor (`cuTensorMapEncodeTiled`), 128 bytes by value. All lists have the fastest axis
    first: `dims` in elements, `strides` in bytes of every axis but the first, `box` the elements of one copy. `swizzle`: 0, 32, 64 or 128
    bytes, what a row of the box spans at most. `fault` must be "", and a launch needs `addressable`. `instead`: a copy of the tensor that
    some calls address in its place; the strides are those of both where both can be meant."""

    name: str
    tensor: str
    dtype: DType
    dims: tuple[Sym, ...]
    strides: tuple[Sym, ...]
    box: tuple[int, ...]
    swizzle: int
    instead: Instead | None = None

    @property
    def fault(self) -> str:
        """Why no tensor has such a map, "" where one can."""
        return box_fault(self.dtype, len(self.dims), len(self.strides), self.box, self.swizzle)

    @property
    def addressable(self) -> LaunchCondition:
        """Whether a call's tensor can have the map. What holds for every call is left out."""
        aligned = Aligned(self.tensor, ALIGNMENT)
        parts: list[LaunchCondition] = [aligned]
        if self.instead is not None:
            parts = [AnyOf((self.instead.condition, aligned))]
        for dim in self.dims:
            parts += _at_least(dim, 1) + _at_most(dim, DIM_LIMIT)
        for stride in self.strides:
            shared = math.gcd(ALIGNMENT, *(coefficient for _, coefficient in stride.terms))
            if shared != ALIGNMENT:
                part = Sym(tuple((atoms, c // shared) for atoms, c in stride.terms))
                step = Sym.of(ALIGNMENT // shared)
                rest = HostOp("%", (part, step)) if part.variables else part % step
                parts.append(HostOp("==", (rest, Sym.of(0))))
            factors = [a for atoms, _ in stride.terms for a in atoms]
            # those of a copy follow from its dims
            own = len(stride.terms) == 1 and {Sym.of(a) for a in factors} <= set(self.dims)
            if self.instead is None and not own:
                parts += _at_least(stride, 1)
            parts += _at_most(stride, STRIDE_LIMIT)
        return AllOf(tuple(dict.fromkeys(parts)))


Argument: TypeAlias = "PointerArgument | IntegerArgument | ScalarArgument | TensorMapArgument"


@dataclass(frozen=True)
class Launch:
    """One kernel launch: `grid` CTAs (one dimension; 0 or less: nothing is launched) of `block` threads with `shared_bytes`
    of dynamic shared memory. Among the launches of a step the first whose `condition` holds runs.

    `cluster` CTAs form a cluster (the kernel's own attribute says so too); the grid is a multiple of it. `resident` > 0: no more CTAs
    than the device holds at once with that many on a multiprocessor, in whole clusters; each walks several instances. `even`: as few of
    them as walk all in as many rounds. `early`: the launch may begin while the one in front of it in the stream ends (programmatic
    dependent launch), where it has at most the first number of CTAs of
    `overlaps` or at least the second one; the kernel waits itself, and is right without that too. `about`: what sets it apart, for a comment."""

    kernel: str
    condition: LaunchCondition
    grid: Sym
    block: int
    arguments: tuple[Argument, ...]
    shared_bytes: int = 0
    cluster: int = 1
    resident: int = 0
    even: bool = False
    early: bool = False
    overlaps: tuple[int, int] | None = None
    before: tuple[Launch, ...] = ()
    """launches in front of this one, each where its own condition holds besides"""
    after: tuple[Launch, ...] = ()
    """the same behind it"""
    about: str = ""

    @property
    def every(self) -> tuple[Launch, ...]:
        """This launch and those in front of it and behind it, in order."""
        return (*self.before, self, *self.after)


@dataclass(frozen=True)
class Step:
    """Alternatives for one nest of `instances` instances (fewer than 2^31), the general one last."""

    launches: tuple[Launch, ...]
    instances: Sym = field(default_factory=lambda: Sym.of(1))


@dataclass(frozen=True)
class Workspace:
    """A temp's place: `offset` and `bytes` from the workspace's base, multiples of 256."""

    tensor: str
    offset: Sym
    bytes: Sym


@dataclass(frozen=True)
class Spare:
    """Bytes of workspace behind all others that a call with `condition` can use; without a workspace it takes another variant."""

    bytes: Sym
    condition: HostExpr


@dataclass(frozen=True)
class Alternative:
    """Steps that take the place of a target's own where the selection names `number` and `condition` holds. `label` says which candidate
    they are of."""

    number: int
    label: str
    condition: LaunchCondition
    steps: tuple[Step, ...]


@dataclass(frozen=True)
class Selection:
    """The choice of an alternative by the values of `key` (dims, strides, scalars): see `tilec.ir.selection`. A number without an
    alternative stands for the target's own steps."""

    key: tuple[str, ...]
    points: tuple[Point, ...]
    alternatives: tuple[Alternative, ...]


@dataclass(frozen=True)
class TargetPlan:
    """The steps for one architecture, such as "sm_80"; the launcher takes the newest one that the device can run. `selection`: what was
    tuned goes before `steps`, which take every call that it does not."""

    arch: str
    steps: tuple[Step, ...]
    selection: Selection | None = None

    @property
    def every_step(self) -> tuple[Step, ...]:
        """The steps of all alternatives, and the target's own."""
        tuned = self.selection.alternatives if self.selection else ()
        return (*(s for a in tuned for s in a.steps), *self.steps)

    @property
    def every_launch(self) -> tuple[Launch, ...]:
        """The launches of all of these, those in front of others and behind them too."""
        return tuple(one for s in self.every_step for x in s.launches for one in x.every)


@dataclass(frozen=True)
class LaunchPlan:
    """Everything between a call and its launches. `strides` are the names bound by `strides (…)` clauses, in order.

    Before launching: every dim in [0, 2^31); `contracts` hold; no output or inout overlaps another argument's bytes; every output of
    a kernel without elements needs no address. A violated condition launches nothing."""

    name: str
    tensors: tuple[Tensor, ...]
    dims: tuple[Var, ...]
    scalars: tuple[ScalarInput, ...]
    targets: tuple[TargetPlan, ...]
    strides: tuple[Var, ...] = ()
    contracts: tuple[Contract, ...] = ()
    workspace: tuple[Workspace, ...] = ()
    workspace_bytes: Sym = field(default_factory=lambda: Sym.of(0))
    """without the spare ones"""
    spare: Spare | None = None

    @property
    def parameters(self) -> tuple[Tensor, ...]:
        """The tensors of the signature: all but the temps."""
        return tuple(t for t in self.tensors if t.role != "temp")


def _at_least(value: Sym, low: int) -> list[LaunchCondition]:
    least = value.bounds(size_range)[0]
    holds = least is not None and least >= low
    return [] if holds else [HostOp(">=", (value, HostNumber(low)))]


def _at_most(value: Sym, high: int) -> list[LaunchCondition]:
    most = value.bounds(size_range)[1]
    holds = most is not None and most <= high
    return [] if holds else [HostOp("<=", (value, HostNumber(high)))]


def size_range(var: Var) -> tuple[int | None, int | None]:
    """The values of a variable of the launch plan: a run-time size is in [0, 2^31), a tile size at least 1."""
    match var.kind:
        case "dim":
            return (0, (1 << 31) - 1)
        case "tile":
            return (1, (1 << 31) - 1)
        case _:
            return (None, None)


def product(factors: tuple[Sym, ...]) -> Sym:
    """Product of Syms, 1 for none."""
    total = Sym.of(1)
    for factor in factors:
        total = total * factor
    return total


__all__ = [
    "WORKSPACE", "Aligned", "AllOf", "Alternative", "Always", "AnyOf", "Argument", "Given", "HostExpr", "HostNumber", "HostOp", "HostScalar",
    "Instead", "IntegerArgument", "Launch", "LaunchCondition", "LaunchPlan", "PointerArgument", "ScalarArgument", "Selection", "Spare",
    "Step", "TargetPlan", "TensorMapArgument", "Workspace", "product", "size_range",
]  # fmt: skip
