"""Fields: accesses that select one of few neighbours of each coordinate, `t[i, 0]` and `t[i, 1]` of pairs."""

from __future__ import annotations

from tilec.ir import tile_ir as t
from tilec.ir.symbolic import Sym

MOST_FIELDS = 8
"""Neighbours of one coordinate of which a load is one: of more most of the vectors would not be asked for."""


def shape_of(program: t.Program, access: t.Access) -> tuple[tuple[Sym, ...], tuple[Sym, ...]]:
    """Dimensions and strides of what an access looks at."""
    tensor = program.tensor(access.tensor)
    view = next((v for v in program.views if v.name == access.view), None)
    if view is None:
        return tensor.dims, tensor.row_major
    return view.dims, t.Tensor("", tensor.dtype, view.dims, "input").row_major


def field_stride(program: t.Program, access: t.Access, along: int) -> int | None:
    """How many neighbours a coordinate of term `along` has of which the terms behind it select one by numbers; None for any other access."""
    term = access.terms[along]
    if along == len(access.terms) - 1 or not isinstance(term, t.AtSpan | t.AtAll):
        return None
    dims, strides = shape_of(program, access)
    stride = strides[along].constant
    if stride is None or not 1 < stride <= MOST_FIELDS or strides[-1].constant != 1:
        return None
    for behind, dim in zip(access.terms[along + 1 :], dims[along + 1 :], strict=True):
        number = behind.index.constant if isinstance(behind, t.AtScalar) else None
        if number is None or dim.constant is None or not 0 <= number < dim.constant:
            return None
    return stride
