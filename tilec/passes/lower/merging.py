"""Two reductions of a row through one exchange: each warp takes the second relative to its own result of the first.

    m = reduce max x                         m_w = the warp's own maximum
    s = reduce sum exp(x - m)        →       s_w = the warp's own sum of exp(x - m_w)
                                             exchange m_w, s_w
                                             m = max of m_w,  s = sum of s_w * exp(m_w - m)

    a = reduce sum x                         a_w, of n_w elements, stands for a = a_w * n / n_w
    d = reduce sum (x - a / n)^2     →       d_w = the warp's own sum of squares
                                             exchange a_w, d_w
                                             a = sum of a_w,  d = sum of d_w + n_w * (a_w / n_w - a / n)^2

The second form is that of Chan, Golub and LeVeque, "Updating formulae and a pairwise algorithm for computing sample variances" (1979).
Where a warp has nothing but -inf, or nothing, its sum is 0; a row of -inf alone has the sum exp(-inf + inf), which is NaN, as before.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import F32
from tilec.ir.symbolic import Sym
from tilec.passes.placement import Placement, is_inline_kind
from tilec.passes.uses import Definitions, operands


@dataclass(frozen=True)
class Merge:
    """`second` is taken relative to each warp's own `first`; `again` are scalars that follow from `first`, in order, and are computed
    once more behind the exchange."""

    kind: Literal["exp", "spread"]
    first: t.Reduce
    second: t.Reduce
    again: tuple[t.Op, ...] = ()


def merges(
    block: t.Block, definitions: Definitions, placement: Placement, math: str, extent: Sym
) -> dict[int, Merge]:
    """The pairs of a block that holds rows of `extent` elements, by the ids of both results."""
    found: dict[int, Merge] = {}
    if math != "fast":
        return found
    ops = list(block.ops)
    places = [n for n, op in enumerate(ops) if isinstance(op, t.Reduce)]
    for n, later in pairwise(places):
        first, second = ops[n], ops[later]
        assert isinstance(first, t.Reduce) and isinstance(second, t.Reduce)
        if first.out.id in found or not (_is_plain(first) and _is_plain(second)):
            continue
        between = ops[n + 1 : later]
        merge = _exponentials(first, second, definitions) or _spread(
            first, second, definitions, extent
        )
        if merge is not None and _is_free(merge, between, placement):
            found[first.out.id] = found[second.out.id] = merge
    return found


def _is_plain(op: t.Reduce) -> bool:
    """A float for a whole row, all of which exists."""
    axes = op.arg.type.axes
    return (
        len(axes) == 1
        and op.out.type.rank == 0
        and op.out.type.dtype == F32
        and op.arg.type.dtype == F32
        and not op.partial
        and not axes[0].presence
    )


def _exponentials(first: t.Reduce, second: t.Reduce, definitions: Definitions) -> Merge | None:
    exp = definitions.defining.get(second.arg.id)
    if (first.op, second.op) != ("max", "sum"):
        return None
    if not isinstance(exp, t.Elementwise) or exp.op != "exp":
        return None
    sub = definitions.defining.get(exp.args[0].id)
    if not isinstance(sub, t.Elementwise) or sub.op != "sub":
        return None
    if [a.id for a in sub.args] != [first.arg.id, first.out.id]:
        return None
    return Merge("exp", first, second)


def _spread(
    first: t.Reduce, second: t.Reduce, definitions: Definitions, extent: Sym
) -> Merge | None:
    square = definitions.defining.get(second.arg.id)
    if (first.op, second.op) != ("sum", "sum"):
        return None
    if not isinstance(square, t.Elementwise) or square.op != "mul":
        return None
    if square.args[0].id != square.args[1].id:
        return None
    sub = definitions.defining.get(square.args[0].id)
    if not isinstance(sub, t.Elementwise) or sub.op != "sub" or sub.args[0].id != first.arg.id:
        return None
    mean = definitions.defining.get(sub.args[1].id)
    if not isinstance(mean, t.Elementwise) or mean.op != "div" or mean.out.type.rank:
        return None
    size = definitions.defining.get(mean.args[1].id)
    if mean.args[0].id != first.out.id or not isinstance(size, t.FromSym) or size.sym != extent:
        return None
    return Merge("spread", first, second, (mean,))


def _is_free(merge: Merge, between: list[t.Op], placement: Placement) -> bool:
    """Whether nothing between the two needs the first as it will be: tiles are computed where they are used, behind the second."""
    follows = {merge.first.out.id}
    for op in between:
        if not follows & {v.id for v in operands(op)}:
            if not isinstance(op, t.Constant | t.FromSym | t.Scalar) and not is_inline_kind(op):
                return False
            continue
        if op.out.type.rank == 0:
            if op not in merge.again:
                return False
        elif not is_inline_kind(op) or op.out.id in placement.held:
            return False
        follows.add(op.out.id)
    return True
