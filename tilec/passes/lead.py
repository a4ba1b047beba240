"""The first product of the next instance starts behind the last one of this: what an instance does beside its products passes under it.

producer  instances                       instances
            fill q, k; …                    fill q, k; …
                                          fill q, k                          once more, of any tile
consumer  instances                       wait for q, k; take the turn; start s; wait 0; pass it
            wait for q, k                 instances
            take the turn; start s          wait 0; …
            wait 0; pass it; …              loop …
            loop …                    →     wait for v; take the turn; start acc
            wait for v; start acc           next place; wait for q, k; start s
            next place                      wait 1; pass the turn; store acc
            wait 0; store acc             wait 0

Behind the last instance a product is started too, which nobody reads: in a branch ptxas would not let it run on. Its tiles are brought as all
others are.
"""

from __future__ import annotations

from dataclasses import replace

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import I32
from tilec.lazy_dataclass import dataclass
from tilec.passes.lower.roles import finds_ahead

Ops = tuple[k.Op, ...]


@dataclass(frozen=True)
class _Lead:
    """An instance's first product: its accumulators, the waits for its tiles, and what starts it."""

    declared: k.Declare
    waits: tuple[a.BarrierWait, ...]
    turn: a.Turn
    started: Ops
    target: k.Fragment

    @property
    def ops(self) -> Ops:
        return (self.declared, *self.waits, self.turn, *self.started)


def run(kernel: k.Kernel) -> k.Kernel:
    """The kernel with its first products in front of its instances; as it is where its instances do something else first or last."""
    if kernel.cluster > 1:
        return kernel
    body = tuple(_with_lead(op) if isinstance(op, a.Roles) else op for op in kernel.body)
    return replace(kernel, body=body)


def _with_lead(roles: a.Roles) -> a.Roles:
    consumers = next((op for op in roles.consumer if isinstance(op, a.Instances)), None)
    producers = next((op for op in roles.producer if isinstance(op, a.Instances)), None)
    if consumers is None or producers is None or not consumers.keep:
        return roles
    ahead = consumers if consumers.ahead else finds_ahead(consumers)
    lead = _lead(ahead.body) if ahead.ahead else None
    more = None if lead is None else _filled_once_more(producers.body, lead)
    body = None if lead is None or more is None else _moved(ahead.body, lead)
    if lead is None or more is None or body is None:
        return roles
    passed = replace(lead.turn, what="pass")
    done = a.WarpgroupWait(0, (lead.target,))
    moved = replace(ahead, first=(*lead.ops, done, passed), body=body, last=(done,))
    return replace(
        roles,
        producer=tuple(replace(op, last=more) if op is producers else op for op in roles.producer),
        consumer=tuple(moved if op is consumers else op for op in roles.consumer),
    )


def _lead(body: Ops) -> _Lead | None:
    """The first product of an instance, where it takes a turn and reads nothing but tiles that were brought for it."""
    end = next((n for n, op in enumerate(body) if isinstance(op, a.WarpgroupCommit)), None)
    if end is None or any(isinstance(op, k.Loop | k.IfUniform) for op in body[:end]):
        return None
    products = [op for op in body[:end] if isinstance(op, a.WarpgroupProduct)]
    turns = [op for op in body[:end] if isinstance(op, a.Turn)]
    if len(products) != 1 or len(turns) != 1:
        return None
    (product,), (turn,) = products, turns
    declared = [
        op for op in body[:end] if isinstance(op, k.Declare) and op.fragment == product.target
    ]
    waits = tuple(op for op in body[:end] if isinstance(op, a.BarrierWait))
    tiles = [x for x in (product.a, product.b) if isinstance(x, k.TileAddress)]
    rings = {x.slot.name for x in tiles if isinstance(x.slot, k.Local)}
    if len(rings) != 2 or rings != {f"{wait.ring}.slot" for wait in waits}:
        return None
    if len(declared) != 1 or declared[0].initial is not None or product.continues is not None:
        return None
    fences = tuple(op for op in body[:end] if isinstance(op, a.WarpgroupFence))
    return _Lead(declared[0], waits, turn, (*fences, product, body[end]), product.target)


def _filled_once_more(body: Ops, lead: _Lead) -> Ops | None:
    """The producer's ops that bring any tiles for one more first product; None where it brings them otherwise than by plain copies."""
    result: list[k.Op] = []
    for wait in lead.waits:
        begins = [
            n for n, op in enumerate(body) if isinstance(op, a.BarrierWait) and op.ring == wait.ring
        ]
        ends = [
            n for n, op in enumerate(body) if isinstance(op, a.RingAdvance) and op.name == wait.ring
        ]
        if not begins or not ends:
            return None
        for op in body[begins[0] : ends[0] + 1]:
            match op:
                case a.TensorCopy():
                    at = tuple(k.Literal_(0, I32) for _ in op.coordinates)
                    result.append(replace(op, coordinates=at))
                case a.BarrierWait() | a.BarrierExpect() | a.RingAdvance():
                    result.append(op)
                case _:
                    return None
    return tuple(result)


def _moved(body: Ops, lead: _Lead) -> Ops | None:
    """An instance's ops without its first product, and with the next one's behind its last; None where more than that product is waited
    for behind it."""
    place = next(n for n, op in enumerate(body) if isinstance(op, a.NextPlace))
    front, behind = body[: place + 1], body[place + 1 :]
    waits = [n for n, op in enumerate(behind) if isinstance(op, a.WarpgroupWait)]
    rings = {wait.ring for wait in lead.waits}
    late = any(isinstance(op, a.RingAdvance) and op.name in rings for op in behind)
    if len(waits) != 1 or late or any(isinstance(op, k.Loop) for op in behind):
        return None
    (at,) = waits
    wait = behind[at]
    assert isinstance(wait, a.WarpgroupWait)
    passed = replace(lead.turn, what="pass")
    # the turn of the first product is passed on in front of all instances, of others behind the last one
    first = next(op for op in front if isinstance(op, a.Turn) and op.what == "pass")
    taken = {id(op) for op in (*lead.ops, first)}
    kept = [op for op in front if id(op) not in taken]
    fence = max(n for n, op in enumerate(kept) if isinstance(op, a.WarpgroupFence))
    kept.insert(fence, lead.turn)
    later = (*behind[:at], replace(wait, pending=1), passed, *behind[at + 1 :])
    return (*kept, *lead.waits, *lead.started, *later)
