"""Sizes and scalars of a call, and what the launcher checks before it launches."""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeAlias

from tilec.ir.dtypes import DType
from tilec.ir.launch import LaunchPlan
from tilec.ir.requirements import (
    BYTES_LIMIT,
    INSTANCE_LIMIT,
    WORKSPACE,
    Addressable,
    AlignedAddress,
    FitsGrid,
    Holds,
    NotNegative,
    Present,
    Requirement,
    Separate,
    requirements,
)
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import Contract, Program, ScalarInput, Tensor
from tilec.runtime.host import Environment, HostValue, evaluate, evaluate_sym
from tilec.source.diagnostics import TileError, fail
from tilec.source.exhaustive import assert_never

SIZE_LIMIT = 1 << 31
"""Every run-time size is below it."""

Setting: TypeAlias = "str | int | float | bool"
"""A value as a command line or an `example` clause gives it."""


@dataclass(frozen=True)
class CallSizes:
    """The numbers of one call. Scalars are rounded to their dtype."""

    dims: Mapping[str, int]
    scalars: Mapping[str, HostValue] = field(default_factory=dict)
    strides: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[str, int] = field(default_factory=dict)
    """by how many elements the addresses of tensors are shifted from where they are allocated"""

    @property
    def environment(self) -> Environment:
        """All of them by name."""
        return {**self.dims, **self.strides, **self.scalars}

    @property
    def numbers(self) -> dict[str, int]:
        """Dims and strides by name."""
        return {**self.dims, **self.strides}

    def __str__(self) -> str:
        numbers = {**self.dims, **self.strides, **self.scalars}
        parts = [f"{n}={v:g}" if isinstance(v, float) else f"{n}={v}" for n, v in numbers.items()]
        return " ".join([*parts, *(f"{name}+{shift}" for name, shift in self.offsets.items())])


def bind_sizes(
    plan: LaunchPlan,
    settings: Mapping[str, Setting],
    example: Mapping[str, Setting] | None = None,
    shapes: Mapping[str, Sequence[int]] | None = None,
    *,
    statics: Mapping[str, object] | None = None,
) -> CallSizes:
    """Every dim, stride and scalar of a call.

    `settings` come first, then the shapes of the arrays given (by tensor name), then `example`, then the defaults of
    scalars; a stride name without a value is the dense one. Raises TileError: E0711 for a size without a value,
    E0712 for a value that does not fit, E0714 for an array whose shape contradicts.
    """
    dims = {v.name for v in plan.dims}
    strides = {v.name for v in plan.strides}
    scalars = {s.name: s for s in plan.scalars}
    for name in settings:
        if name not in dims and name not in strides and name not in scalars:
            raise _unknown(plan, name, statics or {})
    numbers = {n: _size(n, settings[n]) for n in sorted(dims | strides) if n in settings}
    _from_shapes(plan, shapes or {}, numbers)
    offered = example or {}
    for name in sorted(dims | strides):
        if name not in numbers and name in offered:
            numbers[name] = _size(name, offered[name])
    missing = [v.name for v in plan.dims if v.name not in numbers]
    if missing:
        names = ", ".join(f"`{n}`" for n in missing)
        raise fail(
            "E0711",
            f"kernel `{plan.name}` needs a value for {names}",
            help=f"give `-s {missing[0]}=…`, or write an `example` clause in the kernel",
        )
    values = {n: _scalar(s, settings, offered) for n, s in scalars.items()}
    _dense_strides(plan, numbers, values)
    sizes = CallSizes(
        {v.name: numbers[v.name] for v in plan.dims},
        values,
        {v.name: numbers[v.name] for v in plan.strides},
    )
    check_shapes(plan, sizes, shapes or {})
    return sizes


def _unknown(plan: LaunchPlan, name: str, statics: Mapping[str, object]) -> TileError:
    if name in statics:
        return fail(
            "E0712",
            f"`{name}` is a compile-time parameter of `{plan.name}`",
            help=f"set it with `-D {name}=…`",
        )
    known = (
        [v.name for v in plan.dims]
        + [v.name for v in plan.strides]
        + [s.name for s in plan.scalars]
    )
    listed = ", ".join(f"`{n}`" for n in known) or "none"
    return fail(
        "E0712", f"kernel `{plan.name}` has no size or scalar `{name}`", help=f"it has {listed}"
    )


def _size(name: str, value: Setting) -> int:
    try:
        number = int(value, 0) if isinstance(value, str) else int(value)
        if isinstance(value, float) and number != value:
            raise ValueError
    except (ValueError, OverflowError):
        raise fail(
            "E0712",
            f"`{name}` is a size, and `{value}` is no integer",
            help=f"write digits or a power: `-s {name}=4096`, `-s {name}=10**6`",
        ) from None
    if not 0 <= number < SIZE_LIMIT:
        raise fail(
            "E0712",
            f"the size `{name}` is {number}",
            help="a size is at least 0 and less than 2147483648",
        )
    return number


def _scalar(
    scalar: ScalarInput, settings: Mapping[str, Setting], example: Mapping[str, Setting]
) -> HostValue:
    value = settings.get(scalar.name, example.get(scalar.name, scalar.default))
    if value is None:
        raise fail(
            "E0711",
            f"the scalar `{scalar.name}` needs a value",
            help=f"give `-s {scalar.name}=…`, a default, or a value in an `example` clause",
        )
    return scalar_value(scalar, value)


def scalar_value(scalar: ScalarInput, value: Setting) -> HostValue:
    """`value` (also as text) in the scalar's dtype, floats rounded to it. Raises TileError (E0712)."""
    dtype = scalar.dtype
    wrong = fail("E0712", f"`{value}` is no value of `{scalar.name}: {dtype}`")
    if dtype.kind == "bool":
        words: Mapping[str, bool] = {"true": True, "1": True, "false": False, "0": False}
        text = str(value).lower()
        if text not in words:
            raise wrong
        return words[text]
    try:
        if dtype.is_float:
            return round_float(float(value), dtype)
        number = int(value, 0) if isinstance(value, str) else int(value)
    except (ValueError, OverflowError):
        raise wrong from None
    if (
        number != (number if isinstance(value, str) else value)
        or not dtype.minimum <= number <= dtype.maximum
    ):
        raise wrong
    return number


def round_float(value: float, dtype: DType) -> float:
    """`value` rounded to the nearest value of a float dtype (ties to even; overflow to inf, saturation for f8)."""
    if dtype.bits == 64 or value == 0 or not math.isfinite(value):
        return value
    if dtype.bits == 32:
        try:
            (rounded,) = struct.unpack("<f", struct.pack("<f", value))
        except OverflowError:
            return math.copysign(math.inf, value)
        return float(rounded)
    bias = (1 << (dtype.exponent - 1)) - 1
    exponent = max(math.frexp(value)[1] - 1, 1 - bias)
    step = math.ldexp(1.0, exponent - dtype.mantissa)
    rounded = round(value / step) * step
    # e4m3 uses the top exponent for numbers too, its top mantissa alone is NaN
    top = (
        (2 - 2 * dtype.epsilon) * 2.0**8
        if dtype.name == "f8e4m3"
        else (2 - dtype.epsilon) * 2.0**bias
    )
    if abs(rounded) > top:
        return math.copysign(top if dtype.bits == 8 else math.inf, value)
    return rounded


def _from_shapes(
    plan: LaunchPlan, shapes: Mapping[str, Sequence[int]], numbers: dict[str, int]
) -> None:
    """Add the dims that follow from arrays: a bare name, or `coefficient·name + constant`."""
    for tensor in plan.parameters:
        shape = shapes.get(tensor.name)
        if shape is None:
            continue
        if len(shape) != len(tensor.dims):
            raise fail(
                "E0714",
                f"`{tensor.name}` has {len(tensor.dims)} dimensions, and the array {len(shape)}",
                tensor.span if tensor.span.start or tensor.span.end else None,
            )
        for dim, extent in zip(tensor.dims, shape, strict=True):
            solved = _solve(dim, extent)
            if solved and solved[0].kind == "dim" and solved[0].name not in numbers:
                numbers[solved[0].name] = _size(solved[0].name, solved[1])


def _solve(dim: Sym, extent: int) -> tuple[Var, int] | None:
    """The variable of `c·v + k` and its value where that is `extent`; None for any other form."""
    constant = sum(c for m, c in dim.terms if not m)
    terms = [(m, c) for m, c in dim.terms if m]
    if len(terms) != 1 or len(terms[0][0]) != 1:
        return None
    atom, coefficient = terms[0][0][0], terms[0][1]
    if not isinstance(atom, Var) or (extent - constant) % coefficient:
        return None
    return atom, (extent - constant) // coefficient


def _dense_strides(
    plan: LaunchPlan, numbers: dict[str, int], scalars: Mapping[str, HostValue]
) -> None:
    """Stride names without a value get the one that makes their tensor dense."""
    for tensor in plan.parameters:
        if tensor.strides is None:
            continue
        step = 1
        for dim, stride in zip(reversed(tensor.dims), reversed(tensor.strides), strict=True):
            (atom,) = stride.variables if len(stride.variables) == 1 else (None,)
            if atom is not None and stride == Sym.of(atom) and atom.name not in numbers:
                numbers[atom.name] = step
            env = {**numbers, **scalars}
            # a stride that is no bare name may hold one that a later dimension sets
            known = all(v.name in env for v in stride.variables)
            reach = abs(evaluate_sym(stride, env)) if known else step
            step = max(step, reach) * max(1, evaluate_sym(dim, env))
    for variable in plan.strides:
        numbers.setdefault(variable.name, 1)


def check_shapes(plan: LaunchPlan, sizes: CallSizes, shapes: Mapping[str, Sequence[int]]) -> None:
    """Raises TileError (E0714) where an array's shape is not what the sizes make of its parameter's dims."""
    for tensor in plan.parameters:
        shape = shapes.get(tensor.name)
        if shape is None:
            continue
        wanted = tensor_shape(tensor, sizes.environment)
        if tuple(shape) != wanted:
            dims = ", ".join(map(str, tensor.dims))
            raise fail(
                "E0714",
                f"`{tensor.name}: {tensor.dtype}[{dims}]` is {list(wanted)} here, and the array {list(shape)}",
            )


def tensor_shape(tensor: Tensor, env: Environment) -> tuple[int, ...]:
    """The dims as numbers; a negative one is 0."""
    return tuple(max(0, evaluate_sym(d, env)) for d in tensor.dims)


def tensor_strides(tensor: Tensor, env: Environment) -> tuple[int, ...]:
    """The strides in elements as numbers."""
    return tuple(evaluate_sym(s, env) for s in tensor.row_major)


def tensor_bytes(tensor: Tensor, env: Environment) -> int:
    """Bytes from the first to the last element; 0 without elements."""
    shape = tensor_shape(tensor, env)
    if not all(shape):
        return 0
    last = sum((n - 1) * s for n, s in zip(shape, tensor_strides(tensor, env), strict=True))
    return ((last + 1) * tensor.dtype.bits + 7) // 8


def check_call(
    plan: LaunchPlan,
    sizes: CallSizes,
    addresses: Mapping[str, int] | None = None,
    workspace: int | None = None,
) -> None:
    """What the launcher checks, in its order; addresses where they are given.

    Raises TileError: E0712 sizes, E0713 contracts, E0714 addresses, E0715 overlaps.
    """
    for name, value in sizes.dims.items():
        if value >= SIZE_LIMIT:
            raise fail("E0712", f"the size `{name}` is {value}", help=_SIZE_HELP)
    found = first_violation(plan, sizes, addresses, workspace)
    if found is None:
        return
    violated, sentence = found
    match violated:
        case NotNegative():
            value = evaluate_sym(violated.value, sizes.environment)
            raise fail("E0712", f"the size `{violated.value}` is {value}", help=_SIZE_HELP)
        case Holds():
            contract = violated.contract
            raise fail(
                "E0713",
                f"`require {contract.text}` does not hold for {_used(contract, sizes)}",
                contract.span if contract.span.end else None,
                help="give other sizes with `-s`",
            )
        case FitsGrid() | Addressable():
            raise fail("E0712", sentence, help="give other sizes with `-s`")
        case Present():
            raise fail("E0714", f"`{violated.name}` has elements and no address")
        case AlignedAddress():
            raise fail(
                "E0714", f"the address of `{violated.name}` is not a multiple of {violated.bytes}"
            )
        case Separate():
            one, _, other = sentence.partition(" overlaps ")
            raise fail(
                "E0715",
                f"the bytes of `{one}` overlap those of `{other}`",
                help="an output and an `inout` parameter need memory of their own",
            )
    assert_never(violated)


_SIZE_HELP = "a size is from 0 to 2147483647"


def first_violation(
    plan: LaunchPlan,
    sizes: CallSizes,
    addresses: Mapping[str, int] | None = None,
    workspace: int | None = None,
) -> tuple[Requirement, str] | None:
    """The first requirement of the plan that a call does not satisfy, with the launcher's sentence (without its numbers).

    Without `addresses` those that concern them are left out, without `workspace` those of the workspace.
    """
    env = sizes.environment
    places = dict(addresses or {})
    if workspace is not None:
        places[WORKSPACE] = workspace
    for requirement in requirements(plan):
        match requirement:
            case NotNegative():
                holds = evaluate_sym(requirement.value, env) >= 0
            case Holds():
                holds = bool(evaluate(requirement.contract.condition, env))
            case FitsGrid():
                holds = evaluate_sym(requirement.instances, env) <= INSTANCE_LIMIT
            case Addressable():
                holds = _argument_bytes(plan, requirement.name, env, places) <= BYTES_LIMIT
            case Present():
                empty = _argument_bytes(plan, requirement.name, env, places) <= 0
                holds = empty or places.get(requirement.name, 1) != 0
            case AlignedAddress():
                holds = places.get(requirement.name, 0) % requirement.bytes == 0
            case Separate():
                overlap = first_overlap(plan, sizes, places)
                if overlap:
                    return requirement, f"{overlap[0]} overlaps {overlap[1]}"
                continue
            case _:
                assert_never(requirement)
        if not holds:
            return requirement, requirement.sentence
    return None


def spare_bytes(plan: LaunchPlan, env: Environment) -> int:
    """Bytes of workspace that a call can do without, and uses where it has them."""
    spare = plan.spare
    if spare is None or not evaluate(spare.condition, env):
        return 0
    return max(0, evaluate_sym(spare.bytes, env))


def _argument_bytes(
    plan: LaunchPlan, name: str, env: Environment, places: Mapping[str, int]
) -> int:
    for tensor in plan.parameters:
        if tensor.name == name:
            return tensor_bytes(tensor, env)
    needed = evaluate_sym(plan.workspace_bytes, env)
    return needed + spare_bytes(plan, env) if places.get(WORKSPACE, 1) else needed


def _used(contract: Contract, sizes: CallSizes) -> str:
    import re

    words = set(re.findall(r"\w+", contract.text))
    used = {n: v for n, v in sizes.environment.items() if n in words} or sizes.environment
    return ", ".join(f"{n} = {v}" for n, v in used.items())


def first_overlap(
    plan: LaunchPlan, sizes: CallSizes, addresses: Mapping[str, int]
) -> tuple[str, str] | None:
    """The first written argument and another one that share a byte; one without bytes shares none. Arguments without an
    address are left out; that of the workspace is under its name."""
    env = sizes.environment
    ranges = [
        (
            name,
            written,
            addresses[name],
            addresses[name] + _argument_bytes(plan, name, env, addresses),
        )
        for requirement in requirements(plan)
        if isinstance(requirement, Separate)
        for name, written in zip(requirement.names, requirement.written, strict=True)
        if name in addresses
    ]
    for index, (one, one_written, start, end) in enumerate(ranges):
        for other, other_written, low, high in ranges[index + 1 :]:
            if not (one_written or other_written):
                continue
            if start < high and low < end and start < end and low < high:
                return (one, other) if one_written else (other, one)
    return None


def plan_without_launches(program: Program) -> LaunchPlan:
    """The plan of a program that is only interpreted: its signature and contracts."""
    dims = set(program.dims)
    strides = {
        variable: None
        for tensor in program.tensors
        for stride in tensor.strides or ()
        for variable in sorted(stride.variables)
        if variable.kind == "dim" and variable not in dims
    }
    return LaunchPlan(
        program.name,
        program.tensors,
        program.dims,
        program.scalars,
        (),
        strides=tuple(strides),
        contracts=program.contracts,
    )
