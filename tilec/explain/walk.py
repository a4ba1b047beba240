"""Walking Kernel IR: blocks in order, and what an operation mentions."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, is_dataclass

from tilec.ir import kernel_ir as k

BLOCKS = ("producer", "consumer", "body", "then", "otherwise")
"""Fields of operations that hold operations."""


def all_ops(body: tuple[k.Op, ...]) -> Iterator[k.Op]:
    """Every operation, an outer one before those inside."""
    for op in body:
        yield op
        for name in BLOCKS:
            yield from all_ops(getattr(op, name, ()))


def mentioned(op: k.Op) -> Iterator[object]:
    """What the fields of an operation hold, down to the leaves; not the operations inside it."""
    for field in fields(op):
        if field.name not in BLOCKS and field.name != "span":
            yield from leaves(getattr(op, field.name))


def leaves(value: object) -> Iterator[object]:
    yield value
    if isinstance(value, tuple):
        for item in value:
            yield from leaves(item)
    elif is_dataclass(value) and not isinstance(value, k.LoopAxis | k.Op):
        for field in fields(value):
            yield from leaves(getattr(value, field.name))
