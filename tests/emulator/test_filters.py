"""Loops with products that a condition filters, on the asynchronous path: which trips survive, none of them, masks and edges beside them."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.asynchronous import ORDERS, Arrays, Program
from tests.emulator.test_split_products import flat
from tilec.ir import asynchronous as a
from tilec.ir.shares import AddShare

ROOT = Path(__file__).resolve().parents[2]
FORMS = ROOT / "bench" / "attention_forms.tile"
PRODUCTS = ROOT / "bench" / "filters.tile"
FILTERS = Path(__file__).with_name("filters.tile")

ENDS: dict[str, tuple[slice, ...]] = {
    "none": (),
    "all": (slice(None),),
    "the first": (slice(0, 1),),
    "the last": (slice(-1, None),),
    "every other": (slice(1, None, 2),),
    "both ends": (slice(0, 1), slice(-1, None)),
}
TABLES = [*ENDS, "some"]


@cache
def program(path: Path, kernel: str, **defines: int) -> Program:
    return Program(path, kernel, defines)


def tabled(name: str, kind: str, turned: bool = False) -> Callable[[Arrays], None]:
    def change(arrays: Arrays) -> None:
        shape = arrays[name].shape
        alive = np.zeros(shape, np.bool_)
        for part in ENDS.get(kind, ()):
            alive[..., part] = True
        if kind == "some":
            alive = np.random.default_rng(3).random(shape) < 0.5
        arrays[name][...] = ~alive if turned else alive

    return change


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize(("rows", "keys"), [(1, 1), (64, 64), (200, 321)])
def test_blocks_of_a_table(rows: int, keys: int, kind: str) -> None:
    found = program(FORMS, "block_sparse", D=64, BLOCK=64)
    numbers = {"B": 1, "H": 2, "S": rows, "N": keys, "scale": 0.125}
    ran = found.run(numbers, tabled("blocks", kind))
    assert set(ran.launched) & found.asynchronous
    if kind == "none":
        assert (ran.outputs["o"].astype(np.float32) == 0).all()
        assert (ran.outputs["lse"] == -np.inf).all()


@pytest.mark.parametrize("kind", ["all", "both ends", "some", "the last", "far apart"])
def test_more_trips_than_a_word_has_bits(kind: str) -> None:
    """Some words are empty, some are passed by as a whole."""
    found = program(FORMS, "block_sparse", D=16, BLOCK=64)
    keys = 64 * 100 + 8

    def far(arrays: Arrays) -> None:
        arrays["blocks"].fill(False)
        arrays["blocks"][..., [2, 31, 33, 97, 100]] = True

    change = far if kind == "far apart" else tabled("blocks", kind)
    numbers = {"B": 1, "H": 1, "S": 40, "N": keys, "scale": 0.125}
    found.run(numbers, change, orders=ORDERS[:2])


@pytest.mark.parametrize("kind", TABLES)
@pytest.mark.parametrize("sizes", [(8, 8, 8), (300, 264, 328)])
def test_products_whose_steps_a_table_names(sizes: tuple[int, int, int], kind: str) -> None:
    numbers = dict(zip("MNK", sizes, strict=True))
    for kernel in ("blocks", "steps"):
        found = program(PRODUCTS, kernel, BN=128)
        ran = found.run(numbers, tabled("alive", kind))
        assert set(ran.launched) & found.asynchronous
        if kind == "none":
            assert (ran.outputs["c"].astype(np.float32) == 0).all()


@pytest.mark.parametrize("kind", ["none", "the first", "some", "all"])
def test_an_integer_table_the_other_way_round(kind: str) -> None:
    found = program(FILTERS, "negated")
    for rows, columns, steps in ((256, 128, 64), (520, 264, 328)):
        numbers = {"M": rows, "N": columns, "K": steps}
        ran = found.run(numbers, tabled("dead", kind, turned=True))
        assert set(ran.launched) & found.asynchronous


@pytest.mark.parametrize("every", [1, 3, 100])
@pytest.mark.parametrize("rows", [1, 130, 648])
def test_indices_say_it_beside_a_mask_in_groups_of_heads(rows: int, every: int) -> None:
    found = program(FILTERS, "strided")
    numbers = {"B": 1, "H": 4, "S": rows, "every": every, "scale": 0.125}
    assert set(found.run(numbers, orders=ORDERS[:2]).launched) & found.asynchronous


@pytest.mark.parametrize("kind", ["none", "every other", "some", "all"])
@pytest.mark.parametrize("rows", [1, 130, 648])
def test_masks_that_hold_from_some_trip_on(rows: int, kind: str) -> None:
    found = program(FILTERS, "window")
    ran = found.run({"H": 2, "S": rows, "scale": 0.125}, tabled("some", kind), orders=ORDERS[:2])
    assert set(ran.launched) & found.asynchronous


@pytest.mark.parametrize(("rows", "lengths"), [(70, (0, 200)), (64, (1, 256)), (130, (64, 65))])
def test_a_second_question_is_asked_where_the_first_one_holds(
    rows: int, lengths: tuple[int, int]
) -> None:
    """A page that is not there is a negative number: reading what is wanted of it would be a fault."""
    found = program(FILTERS, "pages")

    def change(arrays: Arrays) -> None:
        random = np.random.default_rng(5)
        arrays["length"][...] = lengths
        arrays["table"][...] = random.integers(-3, 9, arrays["table"].shape)
        arrays["wanted"][...] = random.random(9) < 0.6

    numbers = {"B": 2, "H": 2, "S": rows, "PAGES": 9, "MOST": 4, "scale": 0.125}
    assert set(found.run(numbers, change).launched) & found.asynchronous


STREAMS = {
    "one CTA": ({"ROWS": 16}, False),
    "one warpgroup": ({"ROWS": 64}, True),
    "two warpgroups": ({"ROWS": 128, "BM": 128, "BN": 128, "BK": 64}, True),
}


@pytest.mark.parametrize("kind", ["none", "the first", "some", "all"])
@pytest.mark.parametrize("name", list(STREAMS))
def test_a_stream_whose_trips_two_ctas_share(name: str, kind: str) -> None:
    defines, shared = STREAMS[name]
    found = program(FILTERS, "few", **defines)
    for columns, steps in ((264, 200), (520, 720), (136, 8)):
        numbers = {"M": min(defines["ROWS"], 72), "N": columns, "K": steps}
        ran = found.run(numbers, tabled("alive", kind), orders=ORDERS[:2])
        (kernel,) = (x for x in found.kernel.lowered["sm_90a"] if x.name in ran.launched)
        assert kernel.early
        assert any(isinstance(op, AddShare) for op in flat(kernel.body)) is shared


@pytest.mark.parametrize("kind", ["none", "some", "all"])
def test_a_left_operand_that_passes_through_registers(kind: str) -> None:
    found = program(FILTERS, "turned")
    for rows, columns, steps in ((144, 136, 400), (128, 128, 64)):
        numbers = {"M": rows, "N": columns, "K": steps}
        ran = found.run(numbers, tabled("alive", kind))
        assert set(ran.launched) & found.asynchronous


@pytest.mark.parametrize("kind", ["none", "the first", "some", "all"])
def test_a_filter_in_a_filter(kind: str) -> None:
    found = program(FILTERS, "inner")
    for groups, steps in ((5, 200), (1, 64)):
        numbers = {"G": groups, "M": 70, "N": 72, "K": steps}
        ran = found.run(numbers, tabled("used", kind))
        assert set(ran.launched) & found.asynchronous
        ran = found.run(numbers, tabled("alive", kind))
        assert set(ran.launched) & found.asynchronous


@pytest.mark.parametrize("kind", ["none", "the last", "some", "all"])
def test_numbers_that_every_trip_needs_beside_a_tile_that_is_brought(kind: str) -> None:
    found = program(FILTERS, "biased")
    (low, *_) = found.kernel.lowered["sm_90a"]
    assert any(isinstance(op, a.TileLoad) for op in flat(low.body))
    for rows, keys in ((72, 208), (64, 64), (1, 8)):
        numbers = {"H": 2, "S": rows, "N": keys, "rise": 0.01, "scale": 0.125}
        ran = found.run(numbers, tabled("some", kind))
        assert ran.launched[-1] == low.name


@pytest.mark.parametrize(
    ("first", "then"),
    [("all", "all"), ("some", "every other"), ("none", "both ends"), ("every other", "none")],
)
def test_two_loops_in_turn_with_a_filter_each(first: str, then: str) -> None:
    """The producer's number of a trip of the second loop has another C name than the consumers'."""
    found = program(FILTERS, "in_turn")
    fills = tabled("first", first), tabled("then", then)

    def change(arrays: Arrays) -> None:
        for fill in fills:
            fill(arrays)

    ran = found.run({"S": 17, "N": 72}, change)
    assert set(ran.launched) & found.asynchronous
