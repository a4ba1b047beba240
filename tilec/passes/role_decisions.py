"""What an asynchronous kernel does, for the manifest: roles, channels, what leaves; and notes on its ops for their lines."""

from __future__ import annotations

from collections.abc import Iterator

from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.kernel_printer import print_expr
from tilec.ir.launch import TensorMapArgument
from tilec.ir.shares import AddShare, AwaitShare, ExpectShare, SendShare

Note = dict[str, object]

_POLICY = "read once by the grid and, up to a size, the first to leave the L2"
TRANSPORT = "bulk copy through a tensor map"


def describe_roles(kernel: k.Kernel, steps: tuple[str, ...], dealt: bool) -> Note:
    """The asynchronous part of a variant's description, {} for a kernel without roles. `steps`: what the schedule did; `dealt`: as
    in `Asynchronous`."""
    roles = next((op for op in kernel.body if isinstance(op, a.Roles)), None)
    if roles is None:
        return {}
    sends = [op for op, _ in _ops(roles.consumer) if isinstance(op, a.SendChunks)]
    walked: Note = {
        "instances": "walked by as many CTAs as the device holds at once"
        if dealt
        else "drawn from a counter by CTAs that stay, as memory says which have anything to do, or how much",
        "schedule": list(steps),
        "roles": {
            "producer": {
                "threads": kernel.producers,
                "working": 1,
                "registers": roles.producer_registers or "as launched",
            },
            "consumers": {
                "threads": roles.consumers,
                "warpgroups": roles.consumers // 128,
                "registers": roles.consumer_registers or "as launched",
                "take_turns": any(isinstance(op, a.Turn) for op, _ in _ops(roles.consumer)),
                **_ends(roles),
            },
        },
        "channels": _channels(kernel, roles),
        "departures": [],
    }
    if kernel.early:
        walked["launch"] = (
            "begins while the kernel in front of it ends, and waits for that one itself"
        )
    shares = [op for op, _ in _ops(roles.consumer) if isinstance(op, ExpectShare)]
    if shares:
        walked["split"] = _split(kernel, roles, shares[0])
    elif kernel.cluster > 1:
        walked["cluster"] = {"ctas": kernel.cluster, "neighbours_along": kernel.cluster_digit}
    if sends:
        walked["departures"] = [
            {
                "tensor": _sent_to(kernel, sends[0]),
                "transport": sent(sends[0]),
                "chunks_of_a_warp": sends[0].blocks * sends[0].panels,
                "chunks_under_way": sends[0].under_way,
            }
        ]
    return walked


def _ends(roles: a.Roles) -> Note:
    """How warpgroups end a loop of products one after the other, {} where they do not."""
    staggers = [op for op, _ in _ops(roles.consumer) if isinstance(op, a.Stagger)]
    if not staggers:
        return {}
    why = "what is behind the loop runs under the products of the next warpgroup, whose tiles the ring holds"
    return {"end_in_turn": {"trips": staggers[0].lag, "reason": why}}


def warpgroup_products(kernel: k.Kernel) -> list[Note]:
    """The products of warpgroups, each line's once."""
    found: list[Note] = []
    for op, _ in _ops(kernel.body):
        if isinstance(op, a.WarpgroupProduct):
            note: Note = {
                "at": op.span.line,
                "instruction": _instruction(op),
                "operands": _operands(op),
                "consumed": op.k_extent,
            }
            if note not in found:
                found.append(note)
    return found


def note_of(op: k.Op, kernel: k.Kernel, filling: bool) -> Note:
    """What a line's note says of an op, {} for one that says nothing. `filling`: it is the producer's."""
    match op:
        case a.TensorCopy():
            how = f"{TRANSPORT} to shared memory, `{op.buffer.name}`"
            if op.peers > 1:
                how += f", {_dealt(op)}"
            if op.policy:
                how += f", {_POLICY}"
            return {
                "what": "load",
                "tensor": tensor_of(kernel, op.map),
                "transport": how,
                "masks": [],
            }
        case a.BarrierWait() if not filling and not _is_filled(kernel, op.ring):
            return {"what": "wait", "how": f"until the sums before have been read, `{op.barrier}`"}
        case a.BarrierWait():
            how = "until the slot is free" if filling else "until the tiles have landed"
            return {"what": "wait", "how": f"{how}, `{op.barrier}`"}
        case a.LeftLoad():
            how = f"to registers, `{op.target.name}`: products do not read it across"
            return {"what": "stage", "how": f"left operand from {_shared(op.tile)} {how}"}
        case a.TileLoad():
            how = f"to registers, `{op.target.name}`: the producer has brought it"
            return {"what": "stage", "how": f"rows of {_shared(op.tile)} {how}"}
        case a.RowLoad():
            how = f"to registers, `{op.target.name}`: the producer has brought it"
            return {"what": "stage", "how": f"row {_shared(op.tile)} {how}"}
        case a.WarpgroupProduct():
            left = "registers" if isinstance(op.a, k.Fragment) else _shared(op.a)
            return {
                "what": "product",
                "instruction": _instruction(op),
                "consumed": op.k_extent,
                "a_from": left,
                "b_from": _shared(op.b),
                "warpgroup_tile": f"{64 * op.blocks} x {op.columns}",
                "operands_ahead": False,
            }
        case a.WarpgroupWait():
            if op.pending:
                groups = "group of products is" if op.pending == 1 else "groups of products are"
                how = f"until no more than {op.pending} {groups} under way"
            else:
                how = "until all products are done"
            names = ", ".join(f"`{f.name}`" for f in op.settled)
            return {"what": "wait", "how": how + (f": {names} may be read" if names else "")}
        case AwaitShare():
            return {
                "what": "wait",
                "how": f"until the sums of another CTA are there, `{op.barrier}`",
            }
        case AddShare():
            return {"what": "sums", "how": f"those of another CTA are added, `{op.buffer}`"}
        case SendShare():
            return {"what": "sums", "how": f"to another CTA of the cluster, `{op.buffer}`"}
        case a.Turn() if op.what == "take":
            return {"what": "turn", "how": "one warpgroup at a time starts the products from here"}
        case a.Turn() if op.what == "pass":
            return {"what": "turn", "how": "the next warpgroup may start its products"}
        case a.Stagger() if op.what == "begin":
            how = f"each warpgroup starts its last {op.lag} trips when the one before has started all of its own"
            return {"what": "turn", "how": how}
        case a.ClearEdges():
            side = "rows" if op.axis == 0 else "columns"
            outside = f"outside {print_expr(op.begin)} to {print_expr(op.end)}"
            how = f"{side} {outside} are set to 0, `{op.tile.buffer}`"
            if op.beside_zeros:
                how += ", where one of them is no number"
            return {"what": "stage", "how": how}
        case a.SendChunks():
            return {
                "what": "store",
                "tensor": _sent_to(kernel, op),
                "transport": sent(op),
                "masks": [],
            }
        case _:
            return {}


def _is_filled(kernel: k.Kernel, ring: str) -> bool:
    """Whether a ring is one that the producer fills."""
    return any(op.ring == ring for op, _ in _ops(kernel.body) if isinstance(op, a.BarrierExpect))


def _split(kernel: k.Kernel, roles: a.Roles, share: ExpectShare) -> Note:
    """The loop whose trips CTAs share, the bytes that each sends another one for a tile, and why: what comes to a multiprocessor for
    each byte of what the grid reads once, and what would with tiles that are as much narrower."""
    brought = [op for op, _ in _ops(roles.producer) if isinstance(op, a.TensorCopy)]
    stream = next(op.buffer for op in brought if op.policy)
    beside = sum(op.buffer.slot_bytes for op in brought if not op.policy)
    loop = next(op for op, _ in _ops(roles.consumer) if isinstance(op, k.Loop) and op.step > 1)
    each = beside / stream.slot_bytes
    return {
        "ctas": kernel.cluster,
        "loop": loop.name,
        "exchanged_bytes": share.bytes,
        "read_once": next(tensor_of(kernel, op.map) for op in brought if op.policy),
        "bytes_for_each": 1 + each,
        "bytes_for_each_unsplit": 1 + kernel.cluster * each,
    }


def tensor_of(kernel: k.Kernel, name: str) -> str:
    """The tensor of a map."""
    maps = (x for x in kernel.arguments if isinstance(x, TensorMapArgument))
    return next(x.tensor for x in maps if x.name == name)


def _sent_to(kernel: k.Kernel, op: a.SendChunks) -> str:
    return tensor_of(kernel, op.map) if op.rows is None else op.rows.pointer


def sent(op: a.SendChunks) -> str:
    """How a tile leaves."""
    size = f"{op.buffer.rows} x {op.buffer.cols}"
    if op.rows is not None:
        when = "as soon as it is packed" if op.only else "under the next instance's loop"
        return f"through shared memory, {size} of a warp at a time, row by row in words, {when}"
    when = "as soon as it is packed" if op.only else "under the next instance's loop"
    return f"bulk store through a tensor map, {size} of a warp at a time, {when}"


def _shared(tile: k.TileAddress) -> str:
    return f"shared memory, `{tile.buffer}`"


def _instruction(op: a.WarpgroupProduct) -> str:
    return f"wgmma.m64n{op.piece}k{op.k_step}"


def _operands(op: a.WarpgroupProduct) -> str:
    first, _, second = op.types.partition("_")
    return f"{first} x {second or first} -> {op.target.rep}"


def _dealt(op: a.TensorCopy) -> str:
    return f"multicast: each of {op.peers} CTAs brings its part of the {op.share} for all"


def _ops(
    body: tuple[k.Op, ...], loops: tuple[str, ...] = ()
) -> Iterator[tuple[k.Op, tuple[str, ...]]]:
    """All ops with the loops around."""
    for op in body:
        yield op, loops
        around = (*loops, op.name) if isinstance(op, k.Loop) else loops
        for name in ("producer", "consumer", "body", "then", "otherwise"):
            yield from _ops(getattr(op, name, ()), around)


def _channels(kernel: k.Kernel, roles: a.Roles) -> list[Note]:
    """By ring: slots, bytes, where it is filled, and the tiles."""
    slots = {op.name: op.slots for op in roles.producer if isinstance(op, a.RingDeclare)}
    found: dict[str, Note] = {}
    tiles: dict[str, dict[str, Note]] = {}
    filled: dict[str, dict[str, None]] = {}
    for op, loops in _ops(roles.producer):
        if isinstance(op, a.BarrierExpect):
            found.setdefault(op.ring, {"ring": op.ring, "slots": slots[op.ring], "bytes": op.bytes})
            where = "in each trip of " + " and ".join(loops) if loops else "for each instance"
            filled.setdefault(op.ring, {})[where] = None
        elif isinstance(op, a.TensorCopy):
            tile: Note = {
                "name": op.buffer.name,
                "tensor": tensor_of(kernel, op.map),
                "dtype": str(op.buffer.rep),
                "rows": op.buffer.rows,
                "cols": op.buffer.cols,
                "transport": TRANSPORT,
            }
            if op.peers > 1:
                tile["multicast"] = _dealt(op)
            if op.policy:
                tile["cache"] = _POLICY
            before = tiles.setdefault(op.ring, {}).get(op.buffer.name, {})
            known = str(before.get("tensor", "")).split(", ") if before else []
            tile["tensor"] = ", ".join(dict.fromkeys([*known, str(tile["tensor"])]))
            tiles[op.ring][op.buffer.name] = tile
    return [
        {**note, "filled": list(filled[ring]), "tiles": list(tiles[ring].values())}
        for ring, note in found.items()
    ]
