"""Waits for asynchronous products: in front of all that touches their registers, with what they release behind; each is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pytest

from tests.emulator.asynchronous import Program
from tests.emulator.test_samples import SAMPLES, without
from tilec.compiler import compile_file
from tilec.emulator.machine import EmulatedModule
from tilec.emulator.text import kernel_texts
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import F32
from tilec.ir.kernel_walking import inside
from tilec.ir.symbolic import Sym
from tilec.passes import retire
from tilec.source.diagnostics import TileError
from tilec.toolchain.cache import default_cache

# ---- groups by hand

SCORES, SUMS, WEIGHTS = (k.Fragment(name, F32) for name in ("scores", "sums", "weights"))
KEY, VALUE = a.BarrierRelease("k_free", "k_ring"), a.BarrierRelease("v_free", "v_ring")
FIRST = a.WarpgroupCommit((SCORES,), (), (KEY, a.RingAdvance("k_ring")))
SECOND = a.WarpgroupCommit((SUMS,), (WEIGHTS,), (VALUE, a.RingAdvance("v_ring")))


def touch(fragment: k.Fragment, function: str = "neg") -> k.Op:
    """An op that reads a fragment and writes another."""
    value = k.Apply(function, (k.Element(fragment, F32),), F32)
    return k.Assign(k.Fragment("other", F32), value)


def kinds(*ops: k.Op) -> list[str]:
    """What `retire` makes of a consumer's body: waits with how many groups stay, releases, the rest by type."""
    roles = a.Roles(128, 0, 0, (), ops)
    kernel = k.Kernel("n", "b", 256, 1, 1, (), (), (), (), Sym.of(1), (), (), (), (roles,))
    (found,) = retire.run(kernel).body
    assert isinstance(found, a.Roles)
    return [_kind(op) for op in found.consumer]


def _kind(op: k.Op) -> str:
    match op:
        case a.WarpgroupWait():
            return f"wait {op.pending}"
        case a.BarrierRelease():
            return f"release {op.barrier}"
        case a.WarpgroupCommit():
            return "commit"
        case a.RingAdvance():
            return f"advance {op.name}"
        case _:
            return type(op).__name__


def test_a_touch_waits_for_its_group_alone() -> None:
    assert kinds(FIRST, SECOND, touch(SCORES), touch(SUMS)) == [
        "commit", "commit", "wait 1", "release k_free", "advance k_ring", "Assign",
        "wait 0", "release v_free", "advance v_ring", "Assign",
    ]  # fmt: skip


def test_a_later_group_brings_the_earlier_ones() -> None:
    """One after the other: the first one's slot is free while the second is waited for."""
    assert kinds(FIRST, SECOND, touch(SUMS))[2:8] == [
        "wait 1", "release k_free", "advance k_ring", "wait 0", "release v_free", "advance v_ring",
    ]  # fmt: skip


def test_registers_that_a_product_reads_are_not_overwritten() -> None:
    assert kinds(FIRST, SECOND, k.Assign(WEIGHTS, k.Literal_(0.0, F32)))[5] == "wait 0"
    assert kinds(FIRST, SECOND, touch(k.Fragment("idle", F32)))[2] == "Assign"


def test_long_functions_run_when_nothing_is_under_way() -> None:
    idle = k.Fragment("idle", F32)
    assert kinds(SECOND, touch(idle))[1] == "Assign"
    assert kinds(SECOND, touch(idle, "exp2"))[1] == "wait 0"


def test_long_functions_in_front_of_an_exchange_run_beside_products() -> None:
    idle = k.Fragment("idle", F32)
    exchange = k.Assign(idle, k.LaneReduce("max", k.Element(idle, F32), F32, "", 4, 1))
    assert kinds(SECOND, touch(idle, "tanh"), exchange, touch(idle, "exp2"))[1:4] == [
        "Assign", "Assign", "wait 0",
    ]  # fmt: skip
    # nothing long waits for this one
    assert kinds(SECOND, touch(idle, "tanh"), exchange, touch(idle))[1] == "wait 0"
    assert kinds(SECOND, exchange, touch(idle, "tanh"))[1:3] == ["Assign", "wait 0"]


def test_a_ring_goes_on_before_its_next_tile_is_waited_for() -> None:
    assert kinds(FIRST, a.BarrierWait("v_full", "v_ring"))[1] == "BarrierWait"
    assert kinds(FIRST, a.BarrierWait("k_full", "k_ring"))[1] == "wait 0"


def test_nothing_is_under_way_where_a_loop_begins_and_behind_all() -> None:
    loop = k.Loop("n", k.Literal_(3, F32), (replace(FIRST),))
    assert kinds(FIRST, loop)[:4] == ["commit", "wait 0", "release k_free", "advance k_ring"]
    assert kinds(FIRST)[1:] == ["wait 0", "release k_free", "advance k_ring"]


# ---- every kernel of the samples

KERNELS: list[tuple[str, str, Mapping[str, str]]] = [
    ("gemm", "gemm_nn", {}),
    ("gemm", "gemm_nt", {"BM": "64", "BN": "256", "BK": "64"}),
    ("gemm_bias_gelu", "gemm_bias_gelu", {}),
    ("quantised", "gemm_fp8_blocks", {}),
    ("matrix_vector_and_groups", "gemm_split_k", {}),
    ("matrix_vector_and_groups", "grouped_gemm", {}),
    ("attention", "attention", {}),
    ("attention", "attention", {"CAUSAL": "true", "D": "64", "BM": "192", "BN": "64"}),
    ("attention_variants", "packed", {}),
    ("attention_variants", "sliding_window", {}),
    ("attention_variants", "soft_cap_alibi", {"BM": "64"}),
    ("decode", "flash_decode", {"G": "64"}),
]


@pytest.mark.parametrize(("file", "kernel", "defines"), KERNELS)
def test_nothing_touches_what_is_under_way(file: str, kernel: str, defines: Any) -> None:
    path = str(SAMPLES / f"{file}.tile")
    found = compile_file(
        path, kernel=kernel, defines=defines, archs=("sm_90a",), stop="kernel-ir"
    ).kernels[0]
    seen = 0
    for low in found.lowered["sm_90a"]:
        for op in low.body:
            if isinstance(op, a.Roles):
                walk = Walk()
                walk.block(op.consumer)
                assert not walk.pending
                seen += walk.groups
    assert seen > 0


class Walk:
    """The groups under way at each op."""

    def __init__(self) -> None:
        self.pending: list[a.WarpgroupCommit] = []
        self.groups = 0

    def block(self, ops: tuple[k.Op, ...]) -> None:
        for op in ops:
            match op:
                case a.WarpgroupProduct():
                    self.groups += 1
                    read = {op.a.name} if isinstance(op.a, k.Fragment) else set()
                    self.touched(read, op)
                case a.WarpgroupCommit():
                    self.pending.append(op)
                case a.WarpgroupWait():
                    del self.pending[: len(self.pending) - op.pending]
                case k.Loop() | a.Instances():
                    self.block(op.body)
                case _:
                    names = {f.name for f in fragments(op)}
                    self.touched(names, op)

    def touched(self, names: set[str], op: k.Op) -> None:
        for group in self.pending:
            held = {f.name for f in (*group.targets, *group.sources)}
            assert not names & held, f"{type(op).__name__} touches {sorted(names & held)}"


def fragments(op: k.Op) -> Iterator[k.Fragment]:
    return (part for part in inside(op) if isinstance(part, k.Fragment))


# ---- on the emulator


@pytest.mark.parametrize(
    ("file", "defines", "numbers"),
    [
        ("gemm", {"BM": 64, "BN": 64, "BK": 64}, {"M": 328, "N": 264, "K": 200}),
        ("attention", {"D": 64, "BM": 64, "BN": 32}, {"B": 1, "H": 2, "S": 72, "T": 200, "scale": 0.1}),
    ],
)  # fmt: skip
def test_each_wait_is_needed(file: str, defines: Any, numbers: Any) -> None:
    program = Program(SAMPLES / f"{file}.tile", "gemm_nn" if file == "gemm" else None, defines)
    text = kernel_texts(program.file.cu)[0].text
    count = text[: text.index("_body_2(")].count("wgmma_wait<")
    assert count == (2 if file == "gemm" else 6)
    for number in range(count):
        cu = without(program.file.cu, number, r"^\s+wgmma_wait<")
        module = EmulatedModule("without.cu", cu, default_cache())
        with pytest.raises((TileError, AssertionError)):
            program.run(numbers, orders=[("late", 0)], module=module)
