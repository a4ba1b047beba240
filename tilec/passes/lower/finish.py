"""The kernel that a lowered nest makes: its parameters, constants, grid and body."""

from __future__ import annotations

from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.launch import Argument, IntegerArgument, PointerArgument, ScalarArgument
from tilec.ir.symbolic import Sym, Var
from tilec.passes.grid_order import section_size
from tilec.passes.lower.context import Context
from tilec.passes.uses import all_ops


def finish(context: Context, grid: tuple[k.GridDigit, ...], name: str, body_name: str) -> k.Kernel:
    """The kernel; only tensors, sizes and scalars that its body names are parameters."""
    variant = context.variant
    program = context.program
    instances = Sym.of(1)
    for digit in grid:
        instances = instances * digit.trips
    for axis in variant.level.axes.values():
        if axis.layout.streams:
            context.used_syms |= axis.extent.variables
    used = set(context.used_syms)
    arguments: list[Argument] = []
    tensors = []
    for tensor in program.tensors:
        if tensor.name in context.pointers:
            arguments.append(PointerArgument(tensor.name))
            tensors.append((tensor.name, tensor.dtype, context.pointers[tensor.name]))
    dims = [v for v in program.dims if v in used]
    arguments += [IntegerArgument(v.name, Sym.of(v)) for v in dims]
    declared = {s.name for s in program.scalars}
    for tensor in program.tensors:
        for stride in tensor.strides or ():
            for var in sorted(stride.variables):
                argument = IntegerArgument(var.name, Sym.of(var))
                named = var.name in declared or argument in arguments
                if var.kind == "scalar" and var in used and not named:
                    arguments.append(argument)
    if grid and grid[-1].section:
        size = section_size(grid, variant.blocks_per_sm, context.target)
        arguments.append(IntegerArgument(grid[-1].section, context.facts.numeric(size)))
    used_scalars = _scalars_used(context)
    arguments += [ScalarArgument(s.name) for s in program.scalars if s.name in used_scalars]
    axes = tuple(
        sorted(
            {a.name: a for a in (*variant.level.axes.values(), *context.extra_axes)}.values(),
            key=lambda a: (min((d.divisor for d in a.layout.thread_digits), default=0), a.name),
        )
    )
    constants: list[tuple[str, int]] = [
        (tile, number)
        for tile, number in program.tiles.items()
        if Var(tile, "tile") in used or any(Var(tile, "tile") in d.trips.variables for d in grid)
    ]
    return k.Kernel(
        name,
        body_name,
        variant.level.threads * variant.batch,
        variant.blocks_per_sm,
        variant.batch,
        tuple(constants),
        tuple(arguments),
        tuple(tensors),
        grid,
        instances,
        axes,
        tuple(context.shared),
        tuple(context.tiles),
        tuple(context.out),
        _variable_names(context),
        variant.batch > 1,
        cluster=variant.level.ctas,
        span=context.nest.span,
    )


def _variable_names(context: Context) -> tuple[tuple[Var, str], ...]:
    """C names of trips, and of parameters and tile sizes as C++ spells them."""
    names = dict(context.var_names)
    for var in context.used_syms:
        if var.kind in ("dim", "tile", "scalar"):
            names[var] = context.names.spell(var.name)
    return tuple(sorted(names.items()))


def _scalars_used(context: Context) -> set[str]:
    found: set[str] = set()
    for op in all_ops(context.nest.body):
        if isinstance(op, t.Scalar):
            found.add(op.name)
    found |= {v.name for v in context.used_syms if v.kind == "scalar"}
    return found
