"""Ragged size sets."""

from __future__ import annotations

from dataclasses import replace

from tests.ir.programs import gemm, softmax, vector_add
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import Contract, HostNumber, HostOp
from tilec.runtime.sizes import ELEMENT_LIMIT, ragged_sizes, tile_extents

N, C = Var("N", "dim"), Var("C", "dim")


def test_they_start_around_the_tile() -> None:
    sizes = [s["N"] for s in ragged_sizes(vector_add(64))]
    assert sizes[:3] == [65, 63, 1]
    assert {0, 64, 67, 129} <= set(sizes)
    assert len(sizes) == len(set(sizes)) == 20


def test_every_program_has_twenty_different_sets_and_always_the_same() -> None:
    for program in (vector_add(), softmax(), gemm()):
        sizes = ragged_sizes(program)
        assert len(sizes) == 20
        assert len({tuple(s.items()) for s in sizes}) == 20
        assert sizes == ragged_sizes(program)
        assert all(list(s) == [d.name for d in program.dims] for s in sizes)
        for dim in program.dims:
            assert any(s[dim.name] == 0 for s in sizes), f"{program.name} {dim}"
            assert any(s[dim.name] == 1 for s in sizes), f"{program.name} {dim}"


def test_tiles_come_from_accesses_and_grid_steps() -> None:
    assert tile_extents(vector_add(64), N) == {64}
    assert tile_extents(softmax(), C) == set()
    assert {v.name: tile_extents(gemm(16, 8), v) for v in gemm().dims} == {
        "M": {16},
        "N": {16},
        "K": {8},
    }


def test_bounds_and_contracts_are_respected() -> None:
    limited = replace(softmax(), upper={C: 100}, lower={C: 3})
    assert all(3 <= s["C"] <= 100 for s in ragged_sizes(limited))
    multiple = Contract(HostOp("==", (Sym.of(N) % 6, HostNumber(0))), "N % 6 == 0")
    kept = ragged_sizes(replace(vector_add(64), contracts=(multiple,)))
    assert len(kept) == 20
    assert all(s["N"] % 6 == 0 for s in kept)


def test_dims_that_must_be_equal_are_made_equal() -> None:
    program = gemm()
    same = Contract(HostOp("==", (Sym.of(program.dims[0]), Sym.of(program.dims[1]))), "M == N")
    sizes = ragged_sizes(replace(program, contracts=(same,)))
    names = [d.name for d in program.dims]
    assert len(sizes) == 20
    assert all(s[names[0]] == s[names[1]] for s in sizes)


def test_no_tensor_is_larger_than_the_limit() -> None:
    for sizes in ragged_sizes(vector_add(1 << 22)):
        assert sizes["N"] <= 4 * ELEMENT_LIMIT


def test_a_program_without_dims_has_one_set() -> None:
    assert ragged_sizes(replace(vector_add(), dims=())) == [{}]


def test_contracts_that_nothing_satisfies_give_no_set() -> None:
    never = Contract(HostOp("<", (Sym.of(N), HostNumber(0))), "N < 0")
    assert ragged_sizes(replace(vector_add(), contracts=(never,)), count=2) == []
