"""Which bytes of global memory operations move, and which instances ask for the same ones."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from tilec.explain.walk import leaves
from tilec.ir import kernel_ir as k
from tilec.ir.launch import TensorMapArgument
from tilec.ir.symbolic import Var
from tilec.source.text import Span


@dataclass(frozen=True)
class Traffic:
    """One access of global memory: `total` bytes of a CTA in a trip, `piece` bytes at a time of a thread (0: by an engine), of elements
    of `element` bytes, `width` neighbours of which are in one thread."""

    op: k.Op | k.Expr
    span: Span
    tensor: str
    total: float
    piece: int = 0
    element: int = 0
    width: int = 1
    store: bool = False


class Addresses:
    """What is known of pointers and coordinates while a kernel is walked. `digits` are the grid's, by C name; `depends` says on
    which of them a variable or pointer depends; `widths` has the bits of an element by pointer."""

    def __init__(self, kernel: k.Kernel) -> None:
        self.kernel = kernel
        self.names = dict(kernel.names)
        self.digits = {d.name for d in kernel.grid if d.trips.constant != 1}
        self.depends: dict[str, set[str]] = {}
        self.widths: dict[str, int] = {}
        self._tensors: dict[str, str] = {}

    def pointer(self, op: k.Pointer) -> None:
        """A pointer is declared."""
        self._tensors[op.name], self.widths[op.name] = op.tensor, op.dtype.bits
        self.depends[op.name] = self.digits_of(op.offset)

    def tensor(self, pointer: str) -> str:
        """The tensor that a pointer points into."""
        return self._tensors.get(pointer, pointer)

    def digits_of(self, *values: object) -> set[str]:
        """The digits of the grid in each trip of which expressions have another value."""
        found: set[str] = set()
        for value in values:
            for leaf in leaves(value):
                if isinstance(leaf, k.Local):
                    found |= self.depends.get(leaf.name, set())
                elif isinstance(leaf, k.Memory):
                    found |= self.depends.get(leaf.pointer, set())
                elif isinstance(leaf, k.Index):
                    # inside `h // G`, `min(i, n)` several trips of a digit give one number
                    for atom in (atom for monomial, _ in leaf.sym.terms for atom in monomial):
                        if isinstance(atom, Var):
                            name = self.names.get(atom, atom.name)
                            found |= {name} & self.digits
                            found |= self.depends.get(name, set())
        return found

    def of_map(self, name: str) -> str:
        """The tensor of a map."""
        maps = (x for x in self.kernel.arguments if isinstance(x, TensorMapArgument))
        return next(x.tensor for x in maps if x.name == name)

    def elements(self, axes: tuple[k.LoopAxis, ...]) -> float:
        """Elements that the threads of the CTA hold along axes, each once; an extent that is known bounds them."""
        group = self.kernel.workers // self.kernel.batch
        threads = prod(axis.layout.threads for axis in axes)
        elements = 1.0
        for axis in axes:
            capacity = axis.layout.threads * axis.layout.vector
            if not axis.layout.streams:
                capacity *= axis.layout.steps
            known = axis.extent.constant
            elements *= min(capacity, known) if known else capacity
        shared_out = max(1.0, threads / group)
        return elements / shared_out * self.kernel.batch
