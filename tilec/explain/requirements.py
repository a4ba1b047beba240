"""Optimisations that a program may not lose: what `--require` asks for, and why a kernel does not have it.

Looked at is the variant that is launched where every condition holds: the first of each nest.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from tilec.compiled import CompiledKernel
from tilec.explain.walk import all_ops
from tilec.explain.work import scopes
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.kernel_operands import ProductStep
from tilec.ir.kernel_wmma import WmmaProduct
from tilec.source.diagnostics import Diagnostic
from tilec.source.text import NOWHERE, Span
from tilec.targets.table import TARGETS

REQUIREMENTS: Mapping[str, str] = {
    "tma": "operand tiles of products travel by bulk copies (Tensor Memory Accelerator)",
    "wgmma": "products are those of warpgroups",
    "pipelined": "operand tiles of a loop are brought while earlier ones are multiplied",
    "vec16": "global memory is accessed 16 bytes at a time, or by bulk copies",
}
"""What `--require` takes, and what each means."""

VECTOR = 16
"""Bytes of the widest access of a thread."""
SMALL = 16
"""An access of fewer bytes than the largest one's share by this is not asked to be wide: a value a row beside whole rows."""

Products = k.Product | ProductStep | WmmaProduct | a.WarpgroupProduct


@dataclass(frozen=True)
class Lost:
    """A requirement that a kernel does not meet: why, where, and what to change."""

    name: str
    reason: str
    span: Span
    help: str
    no_product: bool = False


def lost(kernel: CompiledKernel, arch: str, wanted: Sequence[str]) -> list[Diagnostic]:
    """E0651 for every requirement of `wanted` that a nest of the kernel does not meet on `arch`, in the order of `REQUIREMENTS`."""
    by_name = {one.name: one for one in kernel.lowered[arch]}
    described = {one["kernel"]: one for one in kernel.manifest["targets"][arch]}
    found: list[Diagnostic] = []
    multiplies = any(_products(one) for one in kernel.lowered[arch])
    for target in kernel.plan.targets:
        for step in target.steps if target.arch == arch else ():
            best = step.launches[0].kernel
            if best not in described:
                continue  # it only prepares what another kernel counts in
            for one in _lost(by_name[best], described[best], arch):
                # a nest beside that of a kernel's products has none, and nothing to lose
                if one.name in wanted and not (multiplies and one.no_product):
                    found.append(
                        Diagnostic(
                            "E0651",
                            f"`{kernel.name}` for {arch} is without `{one.name}`, which is required: {one.reason}",
                            one.span if one.span.source.text else kernel.program.span,
                            label="here",
                            notes=(f"`{one.name}`: {REQUIREMENTS[one.name]}",),
                            helps=(one.help,),
                        )
                    )
    return found


def _lost(kernel: k.Kernel, described: Mapping[str, Any], arch: str) -> Iterator[Lost]:
    products = _products(kernel)
    if not products:
        for name in ("tma", "wgmma", "pipelined"):
            change = "require it of kernels with `@` alone"
            yield Lost(name, "it has no product", NOWHERE, change, True)
        yield from _narrow(kernel, arch)
        return
    first = products[0].span
    why, change = _not_asynchronous(described, arch)
    if not any(isinstance(op, a.TensorCopy) for op in all_ops(kernel.body)):
        yield Lost("tma", why, first, change)
    if not all(isinstance(op, a.WarpgroupProduct) for op in products):
        yield Lost("wgmma", why, first, change)
    yield from _not_pipelined(kernel, products)
    yield from _narrow(kernel, arch)


def _products(kernel: k.Kernel) -> list[Products]:
    return [op for op in all_ops(kernel.body) if isinstance(op, Products)]


def _not_asynchronous(described: Mapping[str, Any], arch: str) -> tuple[str, str]:
    """Why a kernel has no products of warpgroups, which bulk copies feed, and what to change."""
    if "wgmma" not in TARGETS[arch].features:
        able = [t.arch for t in TARGETS.values() if "wgmma" in t.features]
        return (
            f"tilec has that form for {' and '.join(able)} alone, and this is {arch}",
            f"compile for {' or '.join(able)}: `--arch {able[-1]}`",
        )
    reason = described.get("not_asynchronous") or "the schedule asks for another form"
    return str(reason), "change what the reason names, or leave `schedule mma` out"


def _not_pipelined(kernel: k.Kernel, products: Sequence[Products]) -> Iterator[Lost]:
    slots = {t.name: t.slots for t in kernel.tiles} | {p.name: p.slots for p in kernel.panels}
    looped = False
    for loop in (op for op in all_ops(kernel.body) if isinstance(op, k.Loop)):
        inside = list(all_ops(loop.body))
        looped |= any(isinstance(op, Products) for op in inside)
        brought = {name: op for op in inside for name in _filled(op)}
        for op in inside:
            if not isinstance(op, Products):
                continue
            for tile in (op.a, op.b):
                if isinstance(tile, k.TileAddress) and tile.buffer in brought:
                    if slots[tile.buffer] > 1:
                        continue
                    yield _unstaged(brought[tile.buffer], tile.buffer, loop, op.span)
                    return
    if not looped:
        yield Lost(
            "pipelined",
            "its products are in no loop, so that nothing can be brought ahead",
            products[0].span,
            "consume the long axis block by block: `for k in range(K by BK)`",
        )


def _unstaged(op: k.Op, buffer: str, loop: k.Loop, span: Span) -> Lost:
    reason = f"`{buffer}` is filled in each trip of {loop.name} right before it is multiplied"
    if isinstance(op, k.StoreTile) and (op.value is not None or not _is_chunk(op)):
        return Lost(
            "pipelined",
            f"{reason}, because its elements are computed on the way",
            span,
            "multiply what is loaded as it is and compute on the result, or store the computed operand first",
        )
    return Lost(
        "pipelined",
        f"{reason}: it has one slot",
        span,
        "use smaller tiles, so that shared memory has room for two, or `schedule stages = 2`",
    )


def _is_chunk(op: k.StoreTile) -> bool:
    """Whether an element goes to a tile as it was loaded."""
    return op.source is not None and op.source.rep == op.rep


def _filled(op: k.Op) -> tuple[str, ...]:
    match op:
        case k.CopyAsync() | k.StoreTile():
            return (op.tile.buffer,)
        case a.TensorCopy():
            return (op.buffer.name,)
        case _:
            return ()


def _narrow(kernel: k.Kernel, arch: str) -> Iterator[Lost]:
    """The widest of the accesses that move too little at a time: one message says enough."""
    moved = [one for _, work in scopes(kernel, arch) for one in work.traffic]
    largest = max((one.total for one in moved), default=0.0)
    for one in sorted(moved, key=lambda access: -access.total):
        if not 0 < one.piece < VECTOR or one.total * SMALL < largest:
            continue
        what = "stored" if one.store else "loaded"
        pieces = f"`{one.tensor}` is {what} {one.piece} byte{'s' * (one.piece > 1)} at a time"
        if one.width == 1:
            reason = f"{pieces}: neighbours along its last dimension are in different threads"
            change = "let the last dimension of the tile be the last of the tensor"
        elif one.piece == one.element:
            reason = f"{pieces}: nothing says that its vectors begin at multiples of 16 bytes"
            change = (
                "begin spans at multiples of the tile, along dimensions in which rows are dense"
            )
        else:
            reason = f"{pieces}: a thread has {one.width} neighbours"
            change = "use a longer tile along the last dimension"
        yield Lost("vec16", reason, one.span, change)
        return
