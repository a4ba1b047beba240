"""The kernel of a nest in the asynchronous form: what the producer and the consumers do, one beside the other."""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import I32
from tilec.ir.kernel_walking import substituted
from tilec.ir.symbolic import Sym, Var
from tilec.passes.lower.asynchronous import Roles

PRODUCERS = 128
"""Threads behind the consumers: registers are dealt out to whole warpgroups."""


def with_roles(
    kernel: k.Kernel, roles: Roles, producer: tuple[k.Op, ...], first: tuple[k.Op, ...]
) -> k.Kernel:
    """The kernel with its roles, maps, rings and barriers; `first` is what is done ahead of them."""
    form = roles.form
    both = a.Roles(
        form.threads,
        form.registers[0],
        form.registers[1],
        _rotated(_with_own_trips(producer, roles), roles),
        _rotated(roles.consumer(kernel.body), roles),
        first,
    )
    sharing, split = form.sharing, form.split
    digit = roles.context.var_names[sharing.digit] if sharing else ""
    exchange = (roles.sums.full, roles.sums.free) if roles.sums is not None else ()
    uneven = kernel.grid[-1].backwards and form.dealt
    if uneven:
        both = replace(both, consumer=_ahead(both.consumer))
    last = kernel.grid[-1].name
    shares = k.SharedBuffer(f"{last}{a.SHARES}", I32, 4, f"what the places of {last} are told by")
    return replace(
        kernel,
        shared=(*kernel.shared, shares) if uneven else kernel.shared,
        threads=form.threads + PRODUCERS,
        producers=PRODUCERS,
        arguments=(*roles.maps.values(), *kernel.arguments),
        panels=tuple(
            sorted(
                (*roles.panels, *([roles.leaving.buffer] if roles.leaving is not None else [])),
                key=lambda panel: -panel.alignment,
            )
        ),
        barriers=(*roles.barriers, *exchange),
        cluster=sharing.size if sharing else split.size if split else 1,
        cluster_digit=digit,
        # a short kernel, all of whose CTAs run at once: none of the next one's takes the place of one of its own
        early=bool(form.streams),
        grid=tuple(
            replace(d, backwards=False, uneven=True) if uneven and d is kernel.grid[-1] else d
            for d in kernel.grid
        ),
        body=(both,),
    )


def _with_own_trips(producer: tuple[k.Op, ...], roles: Roles) -> tuple[k.Op, ...]:
    """The producer's ops, in which the trips that consumers have other C names for have the producer's."""
    consumers = roles.context.var_names
    own = {
        var: Sym.of(Var(name, "trip", -1))
        for var, name in roles.trip_names.items()
        if consumers.get(var) != name
    }
    ops: tuple[k.Op, ...] = substituted(producer, own) if own else producer
    return ops


def _rotated(ops: tuple[k.Op, ...], roles: Roles) -> tuple[k.Op, ...]:
    """The ops of a role, whose instances rotate where some have less to do than others."""
    return tuple(
        replace(op, rotated=roles.rotated) if isinstance(op, a.Instances) else op for op in ops
    )


def _ahead(ops: tuple[k.Op, ...]) -> tuple[k.Op, ...]:
    """The consumers' ops, which find the next instance while the last product of one is under way, where registers hold what it takes."""
    return tuple(finds_ahead(op) if isinstance(op, a.Instances) and op.keep else op for op in ops)


def finds_ahead(op: a.Instances) -> a.Instances:
    """A role's instances, of which each finds the next one behind its last product."""
    started = [n for n, x in enumerate(op.body) if isinstance(x, a.WarpgroupCommit)]
    if not started or any(isinstance(x, a.NextUnless) for x in op.body):
        return op
    at = started[-1] + 1
    return replace(op, body=(*op.body[:at], a.NextPlace(), *op.body[at:]), ahead=True)
