"""The pass: every slice and reshape of a program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.passes.reindex.reshaping import Reshaping
from tilec.passes.reindex.slicing import cuts_of
from tilec.passes.reindex.twins import Stuck, Twins
from tilec.passes.schedule.clone import Numbers
from tilec.passes.uses import all_ops
from tilec.source.diagnostics import TileError, fail


def run(program: t.Program) -> t.Program:
    """The program without Slice and Reshape. Raises E0518 where what is sliced or reshaped has to be computed as a whole."""
    if not any(True for nest in program.nests for _ in _reindexed(nest)):
        return program
    numbers = Numbers(program.nests)
    for number, nest in enumerate(program.nests):
        twins = Twins(program, nest, numbers)
        shapes = Reshaping(twins)
        for op in _reindexed(nest):
            try:
                if isinstance(op, t.Slice):
                    new = shapes.parts.part(op.arg, cuts_of(op))
                else:
                    new = shapes.shaped(op.arg, tuple(a.extent for a in op.out.type.axes))
            except Stuck as stuck:
                raise _error(op, stuck) from None
            twins.replaced[op.out.id] = new
        nests = (*program.nests[:number], twins.finished(), *program.nests[number + 1 :])
        program = replace(program, nests=nests, views=tuple(twins.views))
    return program


def _reindexed(nest: t.Nest) -> Iterator[t.Slice | t.Reshape]:
    for op in all_ops(nest.body):
        if isinstance(op, t.Slice | t.Reshape):
            yield op


def _error(op: t.Slice | t.Reshape, stuck: Stuck) -> TileError:
    sliced = isinstance(op, t.Slice)
    name = f"`{stuck.value.name}`" if stuck.value.name else "a value that it is made of"
    return fail(
        "E0518",
        f"the {'slice' if sliced else '`.reshape`'} cannot be compiled: {name} {stuck.why}",
        op.span,
        label="this slice" if sliced else "this reshape",
        note="slices and reshapes are computed from the elements that they need, back to where those are loaded",
        help="write the tile to a `temp` in one `parallel` nest, and load "
        + ("the part" if sliced else "a `.view` of it")
        + " in the next",
    )
