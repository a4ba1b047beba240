"""The least time of a whole launch: the work of all trips of all instances, shared evenly by the SMs of the representative device."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import prod
from typing import Any

from tilec.explain.bound import engine_clocks
from tilec.explain.walk import leaves
from tilec.explain.work import COUNTED, Counter, Scope, Work, count
from tilec.ir import kernel_ir as k
from tilec.ir.symbolic import Sym, Var
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.rates import bound_gigahertz

MOST_POINTS = 1 << 16
"""Combinations of the grid's digits that are evaluated: more are not."""

WARPGROUP_NAME, WARPGROUP_THREADS = "warpgroup", 128
"""The variable that numbers the consumers' warpgroups, and the threads of one"""

_COMPARED: Mapping[str, Callable[..., Any]] = {
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
    "or": lambda *x: any(x),
    "and": lambda *x: all(x),
}


@dataclass(frozen=True)
class Total:
    """`microseconds` by engine, for all SMs of `device` together; `flops` of products."""

    microseconds: Mapping[str, float]
    flops: float
    device: str

    @property
    def limit(self) -> str:
        """The engine that takes longest."""
        return max(self.microseconds, key=lambda name: self.microseconds[name])

    @property
    def least(self) -> float:
        """Microseconds of that engine."""
        return self.microseconds[self.limit]


def total(
    kernel: k.Kernel, arch: str, sizes: Mapping[str, int | float], moved_bytes: float
) -> Total | None:
    """Of one launch with these dims, strides and scalars, whose arguments are `moved_bytes`, each read or written once. None where trips
    or branches hang on loaded values, where the grid is too large to be looked at, or where there is no representative device."""
    device, clock = REPRESENTATIVES.get(arch), bound_gigahertz(arch)
    if device is None or clock is None:
        return None
    counter = count(kernel, arch)
    if counter.filtered:
        return None
    try:
        times = _Trips(kernel, counter, sizes).all()
    except (KeyError, OverflowError):
        return None
    whole = Work()
    for (_, work), often in zip(counter.found, times, strict=True):
        for name in COUNTED:
            setattr(whole, name, getattr(whole, name) + often * getattr(work, name))
    # what several instances read comes from the DRAM once, at least
    clocks = engine_clocks(whole, arch, moved_bytes)
    each = device.multiprocessors * clock * 1e3
    return Total({n: c / each for n, c in clocks.items()}, whole.flops, device.name)


class _Trips:
    """How often each scope's trips are done, by all CTAs of a launch."""

    def __init__(
        self, kernel: k.Kernel, counter: Counter, sizes: Mapping[str, int | float]
    ) -> None:
        self.kernel, self.counter = kernel, counter
        self.names = dict(kernel.names)
        self.known: dict[str, int] = {n: int(v) for n, v in sizes.items()}
        self.known |= dict(kernel.constants)
        self.counts = {d.name: self.number(d.trips) for d in kernel.grid}
        self.warpgroups = range(max((kernel.threads - kernel.producers) // WARPGROUP_THREADS, 1))

    def all(self) -> list[float]:
        """In the order of the counter's scopes. Raises KeyError for trips that nothing tells, OverflowError for too many instances."""
        scopes = [scope for scope, _ in self.counter.found]
        wanted = self._digits(scopes)
        if prod(self.counts[d] for d in wanted) > MOST_POINTS:
            raise OverflowError
        totals = [0.0] * len(scopes)
        others = prod(n for d, n in self.counts.items() if d not in wanted)
        for point in product(*(range(self.counts[d]) for d in wanted)):
            self.known |= dict(zip(wanted, point, strict=True))
            for n, scope in enumerate(scopes):
                totals[n] += self._trips(scope) * others
        # so many instances share a CTA's work, or so many CTAs an instance
        ctas = self.kernel.cluster if not self.kernel.cluster_digit else 1
        return [often / self.kernel.batch * ctas for often in totals]

    def _digits(self, scopes: list[Scope]) -> list[str]:
        """The digits of the grid on which trips depend."""
        found: set[str] = set()
        for scope in scopes:
            values = [scope.trips, scope.first] if isinstance(scope, k.Loop) else []
            for value in values:
                found |= self._names(value)
        return [d for d in self.counts if d in found]

    def _names(self, value: object) -> set[str]:
        found: set[str] = set()
        for leaf in leaves(value):
            if isinstance(leaf, k.Index):
                found |= {self.names.get(v, v.name) for v in leaf.sym.variables}
            elif isinstance(leaf, k.Local):
                found.add(leaf.name)
        for name in list(found):
            if name in self.counter.values:
                found |= self._names(self.counter.values[name])
        return found

    def _trips(self, scope: Scope) -> float:
        if scope is None:
            return 1.0
        if isinstance(scope, k.Loop):
            own = self._loop(scope)
        else:
            axis = next(x for x in scope.axes if x.layout.streams)
            # the work of a step is that of whole vectors
            own = self.number(axis.extent) / (axis.layout.threads * axis.layout.vector)
        return own * self._trips(self.counter.around.get(id(scope)))

    def _loop(self, loop: k.Loop) -> float:
        """The trips of a loop; where each warpgroup has its own, their mean."""
        if WARPGROUP_NAME not in self._names((loop.trips, loop.first)):
            return self._count(loop)
        found: list[float] = []
        for number in self.warpgroups:
            self.known[WARPGROUP_NAME] = number
            found.append(self._count(loop))
        del self.known[WARPGROUP_NAME]
        return sum(found) / len(found)

    def _count(self, loop: k.Loop) -> float:
        if loop.step > 1:  # shared by as many CTAs: their mean
            return max(0, self.value(loop.trips)) / loop.step
        first = self.value(loop.first) if loop.first is not None else 0
        return max(0, self.value(loop.trips) - first)

    def number(self, sym: Sym) -> int:
        """A size. Raises KeyError."""
        return sym.evaluate(self._variable)

    def _variable(self, variable: Var) -> int:
        name = self.names.get(variable, variable.name)
        for known in (name, variable.name):
            if known in self.known:
                return self.known[known]
        return self.value(self.counter.values[name])

    def value(self, expr: k.Expr) -> int:
        """An integer expression of sizes and the grid's digits. Raises KeyError for any other."""
        match expr:
            case k.Literal_():
                return int(expr.value)
            case k.Index():
                return self.number(expr.sym)
            case k.Local():
                return self.value(self.counter.values[expr.name])
            case k.Apply(op="min" | "max" as op):
                return (min if op == "min" else max)(self.value(a) for a in expr.args)
            case k.Apply(op="add" | "sub" as op):
                left, right = (self.value(a) for a in expr.args)
                return left + right if op == "add" else left - right
            case k.Apply(op="where"):
                condition, *sides = expr.args
                return self.value(sides[0 if self.value(condition) else 1])
            case k.Apply(op=op) if op in _COMPARED:
                return int(_COMPARED[op](*(self.value(a) for a in expr.args)))
            case _:
                raise KeyError(expr)
