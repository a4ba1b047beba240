"""The launch plan evaluated in Python."""

from __future__ import annotations

import struct
from dataclasses import replace
from functools import partial

import pytest

from tests.runtime.plans import scaled_rows, two_steps
from tilec.ir.dtypes import BF16, BOOL, F64, I8, U16, U64
from tilec.ir.launch import TargetPlan
from tilec.runtime.arguments import CallSizes
from tilec.runtime.launching import (
    PackedArgument,
    architecture_for,
    choose_target,
    concrete_launches,
    pack_scalar,
    runs_on,
    workspace_bytes,
    wrapped,
)
from tilec.source.diagnostics import TileError

launch_all = partial(concrete_launches, multiprocessors=5)

PLACES = {"x": 1 << 40, "y": 1 << 41}


def launches(dims: dict[str, int], places: dict[str, int] = PLACES):
    plan = scaled_rows()
    sizes = CallSizes(dims, {"scale": 0.5})
    return launch_all(plan, choose_target(plan, (9, 0)), sizes, places)


def test_the_first_launch_whose_condition_holds_is_taken() -> None:
    (vector,) = launches({"M": 9, "N": 8})
    assert (vector.kernel, vector.grid, vector.block, vector.shared_bytes) == (
        "scaled_rows_v8",
        3,
        128,
        1024,
    )
    (general,) = launches({"M": 9, "N": 8}, {"x": (1 << 40) + 2, "y": 1 << 41})
    assert (general.kernel, general.grid, general.block) == ("scaled_rows_v1", 9, 64)


def test_arguments_are_packed_as_the_kernel_declares_them() -> None:
    (launch,) = launches({"M": 1 << 20, "N": 1 << 20})
    assert launch.format == "PPiqf"
    expected = struct.pack("@QQi4xqf", 1 << 40, 1 << 41, 1 << 20, 1 << 40, 0.5)
    assert launch.packed == expected


@pytest.mark.parametrize(
    ("instances", "resident", "even"),
    [(1, 1, 1), (5, 5, 5), (6, 5, 3), (9, 5, 5), (11, 5, 4), (16, 5, 4), (1000, 5, 5)],
)
def test_rounds_are_equal_where_the_launch_says_so(
    instances: int, resident: int, even: int
) -> None:
    plan = scaled_rows()
    (step,) = plan.targets[-1].steps
    for asked, expected in ((False, resident), (True, even)):
        launch = replace(step.launches[1], resident=1, even=asked)
        target = TargetPlan("sm_90", (replace(step, launches=(launch,)),))
        sizes = CallSizes({"M": instances, "N": 8}, {"scale": 0.5})
        (found,) = launch_all(plan, target, sizes, PLACES)
        assert found.grid == expected


def test_an_empty_grid_launches_nothing() -> None:
    assert launches({"M": 0, "N": 8}) == []


def test_too_many_ctas_are_refused() -> None:
    plan = two_steps()
    target = plan.targets[0]
    places = {"x": 4096, "s": 8192}
    assert len(launch_all(plan, target, CallSizes({"N": 1 << 30}), places)) == 2
    wide = scaled_rows()
    huge = CallSizes({"M": (1 << 31) + 1, "N": 8}, {"scale": 1.0})
    with pytest.raises(TileError, match="a grid has at most"):
        launch_all(wide, wide.targets[0], huge, {"x": 2, "y": 4096})


def test_temps_lie_in_the_workspace() -> None:
    plan, sizes = two_steps(), CallSizes({"N": 1000})
    assert workspace_bytes(plan, sizes) == 4 * 4 + 256
    first, last = launch_all(plan, plan.targets[0], sizes, {"x": 512, "s": 1024}, 1 << 20)
    assert [a.value for a in first.arguments] == [512, (1 << 20) + 256]
    assert [a.value for a in last.arguments] == [(1 << 20) + 256, 1024]
    assert (first.grid, last.grid) == (4, 1)


@pytest.mark.parametrize(
    ("arch", "capability", "runs"),
    [
        ("sm_80", (8, 0), True),
        ("sm_80", (8, 9), True),
        ("sm_89", (8, 6), False),
        ("sm_80", (9, 0), False),
        ("sm_90a", (9, 0), True),
        ("sm_100", (10, 3), True),
        ("sm_90a", (10, 0), False),
    ],
)
def test_which_machine_code_runs_where(arch, capability, runs) -> None:
    assert runs_on(arch, capability) == runs


def test_the_newest_fitting_target_is_chosen() -> None:
    assert choose_target(scaled_rows(), (8, 6)).arch == "sm_80"
    assert choose_target(scaled_rows(), (9, 0)).arch == "sm_90"
    with pytest.raises(TileError) as error:
        choose_target(scaled_rows(), (7, 5))
    assert error.value.diagnostics[0].code == "E0812"
    assert error.value.exit_code == 3


def test_the_table_of_this_device_alone_comes_first() -> None:
    assert architecture_for((9, 0)) == "sm_90a"
    assert architecture_for((8, 0)) == "sm_80"
    assert architecture_for((10, 0)) == "sm_100"
    assert architecture_for((8, 8)) == "sm_87"
    with pytest.raises(TileError, match="no table for the device's architecture `sm_70`"):
        architecture_for((7, 0))
    plan = scaled_rows()
    (step,) = plan.targets[1].steps
    both = replace(plan, targets=(TargetPlan("sm_90a", (step,)), *plan.targets))
    assert choose_target(both, (9, 0)).arch == "sm_90a"
    assert choose_target(both, (8, 0)).arch == "sm_80"


def test_integers_wrap_as_in_c() -> None:
    assert wrapped(1 << 31, 32) == -(1 << 31)
    assert wrapped(-1, 32) == -1
    assert wrapped((1 << 63) + 5, 64) == -(1 << 63) + 5


def test_scalars_by_dtype() -> None:
    assert pack_scalar(BOOL, True).code == "B"
    assert pack_scalar(I8, -3).code == "b"
    assert pack_scalar(U16, 65535).code == "H"
    assert pack_scalar(U64, 1 << 63).value == 1 << 63
    assert pack_scalar(F64, 0.1).value == 0.1
    assert pack_scalar(BF16, 0.5) == PackedArgument("f", 0.5)
