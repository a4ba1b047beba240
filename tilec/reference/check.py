"""The `check` clause: a second oracle, NumPy in float64 on whole arrays, straight from the syntax.

Shares nothing with the analysis or the interpreter but the tables of element types and functions.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from typing import Any

import numpy as np

from tilec.ir.dtypes import DType
from tilec.ir.symbolic import Sym
from tilec.ir.tile_ir import Program, Tensor
from tilec.reference.check_evaluation import Block, Entity, Evaluation
from tilec.reference.interpreter import scalar_values
from tilec.reference.memory import Memory, wide_dtype
from tilec.reference.numbers import Array, round_to
from tilec.reference.whole import CannotBlock, TooLarge, Whole, Wholes
from tilec.source.diagnostics import fail
from tilec.syntax import ast
from tilec.syntax.loading import Program as Files
from tilec.syntax.loading import Scope

AT_ONCE = 1 << 24
"""Elements of the largest array of a check that is evaluated without blocks."""
IN_A_BLOCK = 1 << 22
"""Elements aimed at for the largest array of a block."""
WORK = 5 * 10**11
"""Operations of the largest check that is evaluated: less than a minute of NumPy's products on two cores."""
AT_MOST = 1 << 27
"""Elements of the largest array where blocks are impossible: 1 GB, a few of which fit into the reference's 4 GB."""


@dataclass(frozen=True)
class Checked:
    """What a check says about one output: `expected` in float64 (float32 for outputs of 16 bits or fewer, int64, bool), of which `covered` elements are stated (None: all)."""

    name: str
    expected: Array
    covered: Array | None
    rtol: float | None = None
    atol: float | None = None
    start: int = 0
    """where the rows of `expected` begin along the output's leading dimension"""


def evaluate_check(
    kernel: ast.Kernel,
    files: Files,
    module: ast.Module,
    program: Program,
    sizes: Mapping[str, int],
    arrays: Mapping[str, Array],
    scalars: Mapping[str, float | int] | None = None,
) -> list[Checked]:
    """Evaluate the check clause of `kernel`, which `module` of `files` declares and `program` was analysed from.

    `arrays` holds inputs and `inout` tensors before the launch, in storage form. An empty list where the kernel has no check.
    Raises TileError: E0905 what cannot be evaluated, E0906 too large.
    """
    parts: dict[tuple[int, str], list[Checked]] = {}
    for number, part in _parts(kernel, files, module, program, sizes, arrays, scalars or {}):
        parts.setdefault((number, part.name), []).append(part)
    return [_whole(blocks) for blocks in parts.values()]


def check_blocks(
    kernel: ast.Kernel,
    files: Files,
    module: ast.Module,
    program: Program,
    sizes: Mapping[str, int],
    arrays: Mapping[str, Array],
    scalars: Mapping[str, float | int] | None = None,
) -> Iterator[Checked]:
    """As `evaluate_check`, some rows of an output at a time where the check is large: each is to be compared and dropped."""
    for _, part in _parts(kernel, files, module, program, sizes, arrays, scalars or {}):
        yield part


def _parts(
    kernel: ast.Kernel,
    files: Files,
    module: ast.Module,
    program: Program,
    sizes: Mapping[str, int],
    arrays: Mapping[str, Array],
    scalars: Mapping[str, float | int],
) -> Iterator[tuple[int, Checked]]:
    checks = [c for c in kernel.clauses if isinstance(c, ast.Check)]
    for number, check in enumerate(checks):
        clause = _Clause(check, files.scope(module), files, program, sizes, arrays, scalars)
        for part in clause.results():
            yield number, part


def _whole(blocks: list[Checked]) -> Checked:
    """One output from its rows."""
    if len(blocks) == 1:
        return blocks[0]
    covered = None
    if any(b.covered is not None for b in blocks):
        covered = np.concatenate(
            [
                np.ones(b.expected.shape, np.bool_) if b.covered is None else b.covered
                for b in blocks
            ]
        )
    return replace(
        blocks[0], expected=np.concatenate([b.expected for b in blocks]), covered=covered
    )


class _Clause:
    """One check clause with everything that it is evaluated from."""

    def __init__(
        self,
        check: ast.Check,
        scope: Scope,
        files: Files,
        program: Program,
        sizes: Mapping[str, int],
        arrays: Mapping[str, Array],
        scalars: Mapping[str, float | int],
    ) -> None:
        self.check = check
        self.scope = scope
        self.files = files
        self.program = program
        self.sizes = sizes
        self.numbers: dict[str, Entity] = {}
        for name, value in program.statics.items():
            self.numbers[name] = value if isinstance(value, DType) else Whole(np.asarray(value))
        for var in program.dims:
            self.numbers[var.name] = Whole(np.asarray(sizes[var.name], np.int64))
        for name, number in scalar_values(program, scalars).items():
            dtype = next(s.dtype for s in program.scalars if s.name == name)
            exact = round_to(np.asarray(float(number)), dtype) if dtype.is_float else number
            kind = np.float64 if dtype.is_float else np.int64
            self.numbers[name] = Whole(np.asarray(exact, kind))
        self.inputs: dict[str, tuple[Tensor, Array]] = {}
        for tensor in program.tensors:
            if tensor.role in ("input", "inout") and tensor.name in arrays:
                strides = None
                if tensor.strides is not None:
                    strides = tuple(self.size(s) for s in tensor.strides)
                memory = Memory(tensor, self.shape(tensor), strides, arrays[tensor.name])
                self.inputs[tensor.name] = (tensor, memory.data)
        self.rtol: float | None = None
        self.atol: float | None = None
        self.expected: dict[str, Array] = {}
        self.covered: dict[str, Array] = {}

    def size(self, sym: Sym) -> int:
        """A dimension's number."""
        program = self.program
        return sym.evaluate(
            lambda v: program.tiles[v.name] if v.kind == "tile" else self.sizes[v.name]
        )

    def shape(self, tensor: Tensor) -> tuple[int, ...]:
        """A tensor's numbers."""
        return tuple(self.size(d) for d in tensor.dims)

    def results(self) -> Iterator[Checked]:
        """At once if everything is small, else in blocks, else at once with more memory."""
        self.rtol, self.atol = self.tolerance(self.check.rtol), self.tolerance(self.check.atol)
        try:
            self.run(Wholes(AT_ONCE, WORK), None)
        except TooLarge:
            try:
                name, step = self.split()
            except (CannotBlock, TooLarge):
                self.at_most()
            else:
                for start in range(0, self.sizes[name], step):
                    stop = min(self.sizes[name], start + step)
                    self.run(Wholes(AT_MOST, inf), Block(name, start, stop))
                    yield from self.stated(start)
                return
        yield from self.stated(0)

    def stated(self, start: int) -> Iterator[Checked]:
        """What the last run says, rows from `start` on."""
        for name, expected in self.expected.items():
            covered = None if self.covered[name].all() else self.covered[name]
            yield Checked(name, expected, covered, self.rtol, self.atol, start)

    def at_most(self) -> None:
        """Without blocks, up to AT_MOST."""
        try:
            self.run(Wholes(AT_MOST, WORK), None)
        except (TooLarge, MemoryError):
            raise fail(
                "E0906",
                "this check takes too much memory or time to be evaluated",
                self.check.span,
                help="run with smaller sizes, `-s M=…`",
            ) from None

    def split(self) -> tuple[str, int]:
        """The dimension that leads every output, and how many of its rows make a block. Raises CannotBlock, TooLarge."""
        outputs = [t for t in self.program.tensors if t.role in ("output", "inout")]
        leads = {t.dims[0] if t.dims else Sym.of(1) for t in outputs}
        names = [v.name for v in self.program.dims if {Sym.of(v)} == leads]
        if not names:
            raise CannotBlock
        (name,) = names
        extent = self.sizes[name]
        trial = Wholes(AT_MOST, WORK)
        self.run(trial, Block(name, 0, min(1, extent)))
        if trial.work * extent > WORK:
            raise TooLarge
        return name, max(1, IN_A_BLOCK // trial.largest)

    def tolerance(self, expression: ast.Expr | None) -> float | None:
        """The number after `rtol` or `atol`."""
        if expression is None:
            return None
        value = Evaluation(self, Wholes(AT_ONCE, WORK), None).whole(expression)
        return float(value.data)

    def run(self, wholes: Wholes, block: Block | None) -> None:
        """One evaluation of the clause, into `expected` and `covered`."""
        self.expected, self.covered = {}, {}
        evaluation = Evaluation(self, wholes, block)
        for statement in self.check.body:
            evaluation.statement(statement)

    def state(
        self, name: str, position: tuple[Any, ...], value: Array, block: Block | None
    ) -> None:
        """`name[position] == value` for the rows of a block."""
        tensor = self.program.tensor(name)
        shape = self.shape(tensor)
        if block is not None:
            shape = (block.stop - block.start, *shape[1:])
        if name not in self.expected:
            kind = np.dtype(np.int64 if tensor.dtype.is_integer else np.bool_)
            if tensor.dtype.is_float:
                kind = wide_dtype(tensor.dtype)
            self.expected[name] = np.zeros(shape, kind)
            self.covered[name] = np.zeros(shape, np.bool_)
        target, covered = self.expected[name], self.covered[name]
        with np.errstate(over="ignore"):  # beyond the type it is infinite
            target[position] = np.broadcast_to(value, target[position].shape)
        covered[position] = True
