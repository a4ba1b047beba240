"""The launch plan evaluated in Python: from sizes and addresses to concrete launches. No GPU is needed."""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from tilec.ir.dtypes import DType
from tilec.ir.launch import (
    WORKSPACE,
    Argument,
    IntegerArgument,
    Launch,
    LaunchPlan,
    PointerArgument,
    ScalarArgument,
    Step,
    TargetPlan,
    TensorMapArgument,
)
from tilec.ir.requirements import INSTANCE_LIMIT
from tilec.ir.selection import nearest_variant
from tilec.runtime.arguments import CallSizes, spare_bytes
from tilec.runtime.host import HostValue, evaluate_sym, holds
from tilec.source.diagnostics import fail
from tilec.source.exhaustive import assert_never
from tilec.targets.table import TARGETS

PackedValue: TypeAlias = "int | float | bool"

MAP_BYTES = 128
"""Size of a tensor map, and its alignment among the parameters of a kernel."""


@dataclass(frozen=True)
class PackedArgument:
    """One kernel argument: `code` is its letter in the module struct, `value` what that packs."""

    code: str
    value: PackedValue


@dataclass(frozen=True)
class ConcreteMap:
    """A tensor map as a kernel argument, with every number known; otherwise as `TensorMapArgument`."""

    tensor: str
    base: int
    dtype: DType
    dims: tuple[int, ...]
    strides: tuple[int, ...]
    box: tuple[int, ...]
    swizzle: int


@dataclass(frozen=True)
class ConcreteLaunch:
    """One launch with every number known; `grid` CTAs in the first dimension, at least 1."""

    kernel: str
    grid: int
    block: int
    shared_bytes: int
    cluster: int
    arguments: tuple[PackedArgument | ConcreteMap, ...]

    @property
    def has_maps(self) -> bool:
        """Whether an argument is a tensor map."""
        return any(isinstance(a, ConcreteMap) for a in self.arguments)

    @property
    def values(self) -> tuple[PackedValue, ...]:
        """What the arguments pack; of a launch without tensor maps."""
        return tuple(a.value for a in self.arguments if isinstance(a, PackedArgument))

    @property
    def format(self) -> str:
        """The arguments' struct format, native alignment: the layout of the parameters of a kernel without tensor maps."""
        assert not self.has_maps
        return "".join(a.code for a in self.arguments if isinstance(a, PackedArgument))

    @property
    def packed(self) -> bytes:
        """The parameter buffer of a kernel without tensor maps."""
        return struct.pack(self.format, *self.values)

    @property
    def offsets(self) -> tuple[int, ...]:
        """Where each argument lies in `packed_with`."""
        found: list[int] = []
        end = 0
        for argument in self.arguments:
            if isinstance(argument, ConcreteMap):
                size = MAP_BYTES
            else:
                size = struct.calcsize(argument.code)
            found.append(-(-end // size) * size)
            end = found[-1] + size
        return tuple(found)

    def packed_with(self, encode: Callable[[ConcreteMap], bytes]) -> bytes:
        """The arguments as the members of a structure, each aligned to its size; `encode` gives the bytes of a map."""
        result = bytearray()
        for argument, offset in zip(self.arguments, self.offsets, strict=True):
            result += bytes(offset - len(result))
            if isinstance(argument, ConcreteMap):
                result += encode(argument)
            else:
                result += struct.pack(argument.code, argument.value)
        return bytes(result)


def choose_target(plan: LaunchPlan, capability: tuple[int, int]) -> TargetPlan:
    """The newest target whose machine code a device of this compute capability runs.

    Code for sm_XY runs on the same major version with at least that minor one; code for sm_XYa on XY alone (CUDA
    programming guide, compute capability). Raises TileError (E0812) where there is none.
    """
    fitting = [t for t in plan.targets if runs_on(t.arch, capability)]
    if not fitting:
        compiled = ", ".join(t.arch for t in plan.targets)
        raise fail(
            "E0812",
            f"the device is sm_{capability[0]}{capability[1]}, and `{plan.name}` is compiled for {compiled}",
            help=f"compile with `--arch sm_{capability[0]}{capability[1]}`",
        )
    return max(fitting, key=lambda t: (_number(t.arch), t.arch))


def runs_on(arch: str, capability: tuple[int, int]) -> bool:
    """Whether machine code for `arch` runs on a device of this compute capability."""
    major, minor = divmod(_number(arch), 10)
    if arch.endswith("a"):
        return (major, minor) == capability
    return major == capability[0] and minor <= capability[1]


def _number(arch: str) -> int:
    return int(arch.removeprefix("sm_").rstrip("af"))


def workspace_bytes(plan: LaunchPlan, sizes: CallSizes) -> int:
    """Bytes of workspace that a call needs, or can use."""
    env = sizes.environment
    needed = max(0, evaluate_sym(plan.workspace_bytes, env))
    return needed + spare_bytes(plan, env)


def concrete_launches(
    plan: LaunchPlan,
    target: TargetPlan,
    sizes: CallSizes,
    addresses: Mapping[str, int],
    workspace: int = 0,
    *,
    multiprocessors: int,
) -> list[ConcreteLaunch]:
    """The launches of one call, in order.

    `addresses` are those of the parameters, `workspace` is the base of the temps, `multiprocessors` what the device has. A
    step whose chosen launch has no CTAs launches nothing. Raises TileError (E0712) for more CTAs than a grid can have.
    """
    env = sizes.environment
    places = {**addresses, WORKSPACE: workspace}
    for temp in plan.workspace:
        places[temp.tensor] = workspace + evaluate_sym(temp.offset, env)
    scalars = {s.name: s.dtype for s in plan.scalars}
    launches: list[ConcreteLaunch] = []
    for step in chosen_steps(target, env, places):
        chosen: Launch | None = next(
            (a for a in step.launches if holds(a.condition, env, places)), None
        )
        if chosen is None or _grid(chosen, env, multiprocessors) <= 0:
            continue
        for one in chosen.every:
            if one is not chosen and not holds(one.condition, env, places):
                continue
            grid = _grid(one, env, multiprocessors)
            if grid <= 0:
                continue
            if grid > INSTANCE_LIMIT:
                raise fail(
                    "E0712",
                    f"`{one.kernel}` would need {grid} CTAs, and a grid has at most {INSTANCE_LIMIT}",
                )
            arguments = tuple(_pack(a, env, places, scalars) for a in one.arguments)
            launches.append(
                ConcreteLaunch(
                    one.kernel, grid, one.block, one.shared_bytes, one.cluster, arguments
                )
            )
    return launches


def chosen_steps(
    target: TargetPlan, env: Mapping[str, HostValue], addresses: Mapping[str, int]
) -> tuple[Step, ...]:
    """The steps of the tuned variant that these sizes select, else the target's own."""
    selection = target.selection
    if selection is not None:
        number = nearest_variant(selection.points, [env[name] for name in selection.key])
        for alternative in selection.alternatives:
            if alternative.number == number and holds(alternative.condition, env, addresses):
                return alternative.steps
    return target.steps


def _grid(launch: Launch, env: Mapping[str, HostValue], multiprocessors: int) -> int:
    """CTAs in whole clusters, no more than are resident where the launch says so."""
    cluster = launch.cluster
    grid = -(-evaluate_sym(launch.grid, env) // cluster) * cluster
    if not launch.resident:
        return grid
    most = min(grid, max(cluster, multiprocessors * launch.resident // cluster * cluster))
    if not launch.even or grid <= 0:
        return most
    rounds = -(-grid // most)
    return -(-grid // (rounds * cluster)) * cluster


def _pack(
    argument: Argument,
    env: Mapping[str, HostValue],
    addresses: Mapping[str, int],
    scalars: Mapping[str, DType],
) -> PackedArgument | ConcreteMap:
    match argument:
        case PointerArgument():
            return PackedArgument("P", addresses[argument.tensor])
        case IntegerArgument():
            value = evaluate_sym(argument.value, env)
            return PackedArgument(
                "q" if argument.wide else "i", wrapped(value, 64 if argument.wide else 32)
            )
        case ScalarArgument():
            return pack_scalar(scalars[argument.name], env[argument.name])
        case TensorMapArgument():
            assert not argument.fault, argument.fault
            instead = argument.instead
            copied = instead is not None and holds(instead.condition, env, addresses)
            tensor = instead.tensor if instead is not None and copied else argument.tensor
            return ConcreteMap(
                tensor,
                addresses[tensor],
                argument.dtype,
                tuple(evaluate_sym(d, env) for d in argument.dims),
                tuple(evaluate_sym(d, env) for d in argument.strides),
                argument.box,
                argument.swizzle,
            )
    assert_never(argument)


def wrapped(value: int, bits: int) -> int:
    """`value` modulo 2^bits as a signed number, as a conversion in C."""
    low = value & ((1 << bits) - 1)
    return low - (1 << bits) if low >> (bits - 1) else low


_INTEGER_CODES = {4: "b", 8: "b", 16: "h", 32: "i", 64: "q"}


def pack_scalar(dtype: DType, value: HostValue) -> PackedArgument:
    """A scalar in its own dtype; floats of 16 and 8 bits in f32, as kernels take them."""
    match dtype.kind:
        case "bool":
            return PackedArgument("B", int(bool(value)))
        case "int":
            return PackedArgument(_INTEGER_CODES[dtype.bits], int(value))
        case "uint":
            return PackedArgument(_INTEGER_CODES[dtype.bits].upper(), int(value))
        case "float":
            return PackedArgument("d" if dtype.bits == 64 else "f", float(value))
    assert_never(dtype.kind)


def architecture_for(capability: tuple[int, int]) -> str:
    """The newest architecture that tilec has a table for and this device runs, with the features of this device alone where
    there is such a table. Raises TileError (E0812)."""
    exact = f"sm_{capability[0]}{capability[1]}"
    for arch in (f"{exact}a", exact):
        if arch in TARGETS:
            return arch
    fitting = [a for a in TARGETS if not a.endswith("a") and runs_on(a, capability)]
    if not fitting:
        raise fail("E0812", f"tilec has no table for the device's architecture `{exact}`")
    return fitting[-1]
