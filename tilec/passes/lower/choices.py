"""What a rare subtraction means for the rows of its block: which depend on its condition, and what those are where it does not hold."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from tilec.ir import tile_ir as t
from tilec.passes.uses import Definitions, number

STEPS = frozenset({"fma", "neg", "add", "sub", "mul", "where"})
"""What a row costs little to be computed by twice, in front of the branch and in it."""


@dataclass
class Chosen:
    """The rows that depend on the condition of a rare subtraction."""

    usual: dict[int, t.Value] = field(default_factory=dict)
    """by value, the value that it has where no row of the warp needs the subtraction"""
    rows: list[t.Value] = field(default_factory=list)
    """those that others read"""
    inner: set[int] = field(default_factory=set)
    """those that only such rows are made of"""


def is_rare(op: t.Op) -> bool:
    """Whether an op is a subtraction of few rows."""
    return isinstance(op, t.Elementwise) and op.op == "sub_if"


def row_of(definitions: Definitions, condition: t.Value) -> t.Value:
    """The condition of the rows before it was spread over a tile."""
    op = definitions.defining.get(condition.id)
    return op.arg if isinstance(op, t.Rearrange) else condition


def measured(definitions: Definitions, condition: t.Value) -> tuple[t.Elementwise, t.Value] | None:
    """The choice and the limit of `abs(where(c, 0, x)) > limit`: `abs(x) >= limit` holds wherever that does, as no limit is below the
    number that replaces a row's missing bound, and wherever x is an infinity."""
    defining = definitions.defining
    op = defining.get(condition.id)
    if not isinstance(op, t.Elementwise) or op.op != "gt":
        return None
    size = defining.get(op.args[0].id)
    if not isinstance(size, t.Elementwise) or size.op != "abs":
        return None
    choice = defining.get(size.args[0].id)
    if not isinstance(choice, t.Elementwise) or choice.op != "where":
        return None
    return (choice, op.args[1]) if number(definitions, choice.args[1]) == 0 else None


def chosen_rows(definitions: Definitions, ops: list[t.Op], at: int) -> Chosen:
    """The rows of a block that depend on the condition of the rare subtraction `ops[at]`, as far as they can be computed there."""
    rare = ops[at]
    assert isinstance(rare, t.Elementwise)
    row = row_of(definitions, rare.args[2])
    found = Chosen()
    asked = measured(definitions, row)
    if asked is not None:
        choice = asked[0]
        missing = definitions.defining.get(choice.args[0].id)
        if (
            isinstance(missing, t.Elementwise)
            and missing.op == "eq"
            and choice.args[2] in missing.args
            and any(math.isinf(number(definitions, a) or 0.0) for a in missing.args)
        ):
            # an infinite bound makes the warp take the branch
            found.usual[choice.out.id] = choice.args[2]
    later = {value.id for op in ops[at + 1 :] for value in op.outs}
    follows: list[t.Value] = []
    for op in ops[at + 1 :]:
        if not isinstance(op, t.Elementwise) or op.op not in STEPS:
            continue
        if op.out.type.rank == 0 or op.out.type.axes != row.type.axes:
            continue
        known = {value.id for value in follows}
        if any(arg.id in later and arg.id not in known for arg in op.args):
            continue
        chooses = op.op == "where" and op.args[0] is row
        if chooses:
            found.usual[op.out.id] = op.args[2]
        if chooses or any(arg.id in known or arg.id in found.usual for arg in op.args):
            follows.append(op.out)
    inside = {value.id for value in follows}
    for value in follows:
        users = definitions.users[value.id]
        if all(user.outs and user.outs[0].id in inside for user in users):
            found.inner.add(value.id)
        else:
            found.rows.append(value)
    return found
