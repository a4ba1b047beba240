"""Instances whose loops leave sums to what stands behind them have more threads where they are few.

for c in parallel(C by BC):                    64 instances of 64 threads are a 30th of a machine's: 1024 each read eight
    for r in range(N by BR):                   times as fast; 2048 instances fill it as they are, and a combination of
        s += sum(x[r, c], axis=0)              1024 parts behind two trips takes longer than those
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.launch import AllOf, AnyOf, LaunchCondition
from tilec.ir.symbolic import Sym
from tilec.passes.levels import power_of_two
from tilec.passes.variants import Level
from tilec.targets.devices import REPRESENTATIVES
from tilec.targets.table import Target

MOST = 1024
"""Threads of an instance: 64 of them read 1.8, 2.7, 3.7 TB/s with 256, 512, 1024 (measured on an H200)."""

WORDS = 16
"""Registers in tiles up to which so many threads have room for the rest; with more they are half as many."""

THREADS = 512
"""Of a multiprocessor: where instances with their usual threads are fewer than that they are few."""

LEAST_TRIPS, MANY_TRIPS = 4, 16
"""Of a loop: from which on it pays to combine more parts behind it, where instances are few, and however many there are (a product of 16384
rows with a vector has 157 µs with 256 threads and 126 with 1024; 2048 instances of 8 trips lose a sixth)."""


def are_few(
    program: t.Program, nest: t.Nest, threads: int, target: Target
) -> tuple[LaunchCondition, ...]:
    """What the launch asks: whether instances of so many threads leave three quarters of the machine's idle, and have trips enough; () where it does
    not know."""
    facts = Facts.of(program)
    instances = Sym.of(1)
    for loop in nest.grid:
        instances = instances * loop.trips
    trips = [_trips(op) for op in nest.body.ops if isinstance(op, t.For)]
    asked = [facts.numeric(instances), *map(facts.numeric, trips)]
    if any(v.kind != "dim" for sym in asked for v in sym.variables):
        return ()
    room = REPRESENTATIVES[target.arch].multiprocessors * THREADS
    few = t.HostOp("<", (asked[0], Sym.of(room // threads)))
    pays, always = (t.HostOp(">=", (asked[1], Sym.of(n))) for n in (LEAST_TRIPS, MANY_TRIPS))
    return (AnyOf((AllOf((few, pays)), always)),)


def level_of(
    vectors: int, usual: int, shared_out: Callable[[int, bool], Level | None]
) -> Level | None:
    """The level of an instance of so many vectors for few instances; None where it has no more threads than the usual one. `shared_out`
    gives that of a number of threads."""
    for most in (MOST, MOST // 2):
        threads = power_of_two(min(vectors, most))
        level = shared_out(threads, True)
        if level is None or level.threads <= usual:
            continue
        if threads < MOST or level.words <= WORDS:
            return level
    return None


def _trips(op: t.For) -> Sym:
    """Trips of a loop with those of the first loop in it."""
    inner: Sequence[t.For] = [x for x in op.body.ops if isinstance(x, t.For)]
    return op.trips * _trips(inner[0]) if inner else op.trips
