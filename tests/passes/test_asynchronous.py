"""What the asynchronous form of a nest is, and why a nest has none."""

from __future__ import annotations

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.emulator.asynchronous import Program
from tests.passes.decoding import host_program, walked
from tests.passes.scheduled import Source
from tests.passes.test_schedule import ATTENTION, changed
from tilec.compiler import compile_file
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.dtypes import BF16
from tilec.passes.asynchronous import Asynchronous

PRODUCT = """kernel k[BM = 64, BN = 64, BK = 32](a: bf16[M, K], b: bf16[K, N]) -> c: bf16[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
"""


def product(*pairs: tuple[str, str]) -> str:
    return changed(*pairs, text=PRODUCT)


def form_of(text: str, folder: Path, **defines: int) -> Asynchronous:
    found = Source(text, folder, defines).form()
    assert isinstance(found, Asynchronous), found
    return found


# ---- why not

UNSUITED = {
    "an operand is computed": (product(("a[i, k] @", "(a[i, k] * 2.0) @")), "computed, not loaded"),
    "an operand is converted": (product(("a: bf16", "a: i8"), ("a[i, k] @", "a[i, k].to(bf16) @")), "computed"),
    "a gather": (
        product(("(a: bf16[M, K]", "(t: i32[M], a: bf16[M, K]"), ("        acc = z", "        rows = t[i]\n        acc = z"),
                ("a[i, k] @", "a[rows, k].fill(0) @")), "gathered|computed",
    ),
    "bytes along rows of both": (
        product(("bf16[M, K]", "i8[K, M]"), ("bf16[K, N]", "i8[K, N]"), ("c: bf16", "c: i32"), ("zeros(f32", "zeros(i32"), ("a[i, k]", "a[k, i].T")),
        "consumed axis last in memory",
    ),
    "bytes along the long side's rows": (
        product(("bf16[M, K]", "i8[K, M]"), ("bf16[K, N]", "i8[N, K]"), ("c: bf16", "c: i32"), ("zeros(f32", "zeros(i32"), ("a[i, k]", "a[k, i].T"),
                ("b[k, j]", "b[j, k].T"), ("BM = 64", "BM = 16")),
        "consumed axis last in memory",
    ),
    "few rows and columns": (product(("BM = 64", "BM = 32"), ("BN = 64", "BN = 32")), "32 rows are fewer"),
    "few rows that are reduced": (
        product(("BM = 64", "BM = 32"), ("c: bf16[M, N]", "c: f32[M, N]"), ("c[i, j] = acc", "c[i, j] = acc / sum(acc, axis=1)[:, None]")), "32 rows are fewer",
    ),
    "a print": (product(("        c[i", '        print("x")\n        c[i')), "`print` and `assert`"),
    "a branch around a part": (
        product(("            acc += a[i, k] @ b[k, j]", "            if M > 3:\n                acc += a[i, k] @ b[k, j]\n            acc += 1.0")), "no filter",
    ),
    "an operand that is written": (
        product(("(a: bf16[M, K]", "(inout a: bf16[M, K]"), ("        c[i", "        a[i, j] = 0.0\n        c[i")), "`a` is written",
    ),
    "an operand that is read too": (
        product(("            acc +=", "            t = a[i, k]\n            s += sum(t.to(f32), axis=1)\n            acc +="),
                ("a[i, k] @", "t @"), ("        acc = z", "        s = zeros(f32, i)\n        acc = z"), ("= acc", "= acc + s[:, None]")),
        "read in registers too",
    ),
    "an odd number of warps": (product(("    for i, j in p", "    schedule warps = 6\n    for i, j in p")), "6 warps are not"),
    "wide numbers": (product(("a: bf16", "a: f32"), ("b: bf16", "b: f32")), "no tensor-core product of f32"),
    "columns that are not neighbours": (
        product(("b: bf16[K, N]", "b: bf16[K, N, 8]"), ("b[k, j]", "b[k, j, 3]")), "columns are not neighbours",
    ),
    "rows of 24 bytes": (product(("a: bf16[M, K]", "a: bf16[M, 12]"), ("range(K by BK)", "range(12 by 16)"), ("bf16[K, N]", "bf16[12, N]")),
                         "multiples of 16 bytes"),
    "a consumed extent that is no step": (product(("BK = 32", "BK = 24")), "24 is no whole number"),
    "half a step of bytes": (
        product(("bf16[M, K]", "i8[M, K]"), ("bf16[K, N]", "i8[N, K]"), ("b[k, j]", "b[j, k].T"), ("c: bf16", "c: i32"),
                ("zeros(f32", "zeros(i32"), ("BK = 32", "BK = 16")), "16 is no whole number",
    ),
    "more than the shared memory": (product(("BK = 32", "BK = 256"), ("BN = 64", "BN = 256")), "exceed the shared memory|leave no room"),
    "an address that the loop computes": (
        product(("            acc += a[i, k] @ b[k, j]", "            acc += a[i, k] @ b[span(n, BK), j]\n            n = n + 32"),
                ("        acc = z", "        n = 0\n        acc = z")), "depends on what the loop computes",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", list(UNSUITED))
def test_what_does_not_take_the_form_says_why(name: str, tmp_path: Path) -> None:
    text, reason = UNSUITED[name]
    found = Source(text, tmp_path).form()
    assert isinstance(found, str) and re.search(reason, found), found


def test_without_products_there_is_nothing_to_say(tmp_path: Path) -> None:
    text = (
        "kernel k(x: f32[M]) -> y: f32[M]:\n    for i in parallel(M by 64):\n        y[i] = x[i]\n"
    )
    assert Source(text, tmp_path).form() == ""


# ---- channels and slots


def test_tiles_of_one_product_travel_together(tmp_path: Path) -> None:
    form = form_of(PRODUCT, tmp_path)
    (channel,) = form.channels
    assert [(m.tensor, m.rows, m.cols) for m in channel.members] == [("a", 64, 32), ("b", 32, 64)]
    assert channel.bytes == 2 * (64 * 32 + 32 * 64) and channel.in_loop
    (site,) = channel.sites
    assert site.first is site.last and len(site.home) == 1


def test_what_is_loaded_once_has_a_ring_of_its_own(tmp_path: Path) -> None:
    form = form_of(ATTENTION, tmp_path)
    assert [[m.tensor for m in c.members] for c in form.channels] == [["q"], ["k"], ["v"]]
    assert [c.in_loop for c in form.channels] == [False, True, True]
    # the products of the prologue and of the loop fill one ring of keys; those of the loop and behind it one of values
    assert [len(c.sites) for c in form.channels] == [1, 2, 2]


@pytest.mark.parametrize(("asked", "found"), [(1, 2), (2, 2), (3, 3), (5, 5)])
def test_as_many_slots_as_are_asked_for_but_two(asked: int, found: int, tmp_path: Path) -> None:
    text = product(("    for i, j in p", f"    schedule stages = {asked}\n    for i, j in p"))
    assert [c.slots for c in form_of(text, tmp_path).channels] == [found]


def test_slots_fit_the_shared_memory(tmp_path: Path) -> None:
    for width, depth in ((64, 32), (128, 64), (256, 64), (256, 128)):
        form = form_of(PRODUCT, tmp_path, BM=128, BN=width, BK=depth)
        total = sum(c.slots * c.bytes for c in form.channels)
        assert total <= 232448 - 8 * 1024 and min(c.slots for c in form.channels) >= 2


# ---- clusters


@pytest.mark.parametrize(("order", "piece"), [("nt", 112), ("nn", 32)])
def test_an_instruction_has_no_more_registers_than_the_launch_gives(order: str, piece: int) -> None:
    """Four warpgroups have 128 a thread, of which 224 columns would take 138; across, pieces begin where panels do."""
    defines = {"BM": "192", "BN": "224"}
    text = compile_file(
        "samples/gemm.tile", kernel=f"gemm_{order}", archs=("sm_90a",), defines=defines
    ).cu
    assert f"wgmma_m64n{piece}k16_bf16<0, {int(order == 'nn')}>(acc" in text
    assert "wgmma_m64n224" not in text


def test_the_larger_operand_is_shared(tmp_path: Path) -> None:
    wide = form_of(PRODUCT, tmp_path, BM=64, BN=128).sharing
    tall = form_of(PRODUCT, tmp_path, BM=128, BN=64).sharing
    assert wide is not None and tall is not None and wide.size == tall.size == 2
    assert (wide.digit.name, tall.digit.name) == ("i", "j")
    assert len(wide.shared) == len(tall.shared) == 1


def test_what_is_not_shared(tmp_path: Path) -> None:
    assert form_of(ATTENTION, tmp_path).sharing is None
    # trips that differ between the CTAs of a pair, along either loop
    own = product(("range(K by BK)", "range(0 : min(K, i.stop + j.stop) by BK)"))
    assert form_of(own, tmp_path).sharing is None
    rows = product(("range(K by BK)", "range(0 : min(K, i.stop) by BK)"))
    sharing = form_of(rows, tmp_path).sharing
    assert sharing is not None and sharing.digit.name == "j"


# ---- instances


@pytest.mark.parametrize(
    ("text", "behind"),
    [
        (PRODUCT, True),
        (product(("(a:", "(d: bf16[N], a:"), ("= acc", "= acc + d[j]")), True),
        # what the loop reads
        (product(("range(K by BK)", "range(0 : min(K, i.stop) by BK)")), False),
    ],
)
def test_trip_numbers_are_divided_out_while_a_product_is_under_way(
    text: str, behind: bool, tmp_path: Path
) -> None:
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    found = compile_file(str(path), archs=("sm_90a",)).cu
    consumer = found[found.index("a_b_ring{0, 0};") :]
    loop, wait = (consumer.index(x) for x in ("for (int k_tile", "wgmma_wait<0>();"))
    (first, *_) = (m.start() for m in re.finditer(r"const int i_tile = ", consumer))
    assert loop < first < wait if behind else first < loop


# ---- tiles that leave

LEAVING = {
    "a product": (PRODUCT, True),
    "an addend": (product(("(a:", "(d: bf16[N], a:"), ("= acc", "= acc + d[j]")), True),
    "a promoted sum": (product(("acc += a[i, k] @ b[k, j]", "acc += (a[i, k] @ b[k, j]) * 0.5")), False),
    "a rescaled sum": (product(("acc += a[i, k]", "acc = acc * 0.5 + a[i, k]")), False),
    "attention": (changed(("o: f32[S, 32]", "o: bf16[S, 64]"), ("v: bf16[T, 32]", "v: bf16[T, 64]"), ("zeros(f32, i, 32)", "zeros(f32, i, 64)")), False),
    "a loop around": (
        product(("        for k in range(K by BK):\n            acc", "        for n in range(M // 7):\n            for k in range(K by BK):\n                acc")),
        False,
    ),
    "wide elements": (product(("c: bf16", "c: f32")), True),
    "wide elements, as many as accumulators": (product(("c: bf16", "c: f32"), ("BM = 64, BN = 64", "BM = 128, BN = 256")), False),
    "wide elements across": (product(("b: bf16[K, N]", "b: f8e4m3[K, N]"), ("a: bf16", "a: f8e4m3"), ("c: bf16", "c: f32")), False),
    "bytes": (product(("c: bf16", "c: f8e4m3")), None),
    "half as many columns as a chunk's": (product(("BN = 64", "BN = 32")), True),
    "few columns": (product(("BN = 64", "BN = 16")), None),
    "a bound inside": (product(("(a: bf16[M, K]", "(n: i32, a: bf16[M, K]"), ("c[i, j]", "c[span(i.start, BM, until=n), j]"), ("= acc", "= acc")), None),
    "half a tile": (product(("bf16[M, N]", "bf16[M, N, 2]"), ("c[i, j]", "c[i, j, 1]")), None),
}  # fmt: skip


@pytest.mark.parametrize("name", list(LEAVING))
def test_which_tiles_leave_in_the_next_instance(name: str, tmp_path: Path) -> None:
    text, deferred = LEAVING[name]
    departure = form_of(text, tmp_path).departure
    assert (None if departure is None else departure.deferred) == deferred


@pytest.mark.parametrize(
    ("dtype", "columns", "depth"),
    [("bf16", 128, 64), ("bf16", 160, 32), ("bf16", 96, 32), ("f32", 64, 32), ("f32", 48, 16)],
)
def test_chunks_are_as_wide_as_whole_ones_can_be(
    dtype: str, columns: int, depth: int, tmp_path: Path
) -> None:
    text = product(("c: bf16", f"c: {dtype}"), ("BN = 64", f"BN = {columns}"))
    departure = form_of(text, tmp_path).departure
    assert departure is not None and departure.depth == depth


@pytest.mark.parametrize(("panels", "slots"), [(5, 4), (3, 2), (4, 4), (5, 2), (2, 2), (1, 1)])
def test_a_chunk_waits_for_the_last_one_that_had_its_slot(panels: int, slots: int) -> None:
    buffer = a.PanelBuffer("chunks", BF16, 16, 32, slots)
    source = k.Fragment("out", BF16, ())
    sent = a.SendChunks(source, buffer, "map", (), 0, 1, 1, panels, 32, slots)
    order = [n for _ in range(3) for n in range(panels)]
    for at, number in enumerate(order[2 * panels :], 2 * panels):
        before = max(x for x in range(at) if order[x] % slots == number % slots)
        assert sent.others(number) == at - before - 1


# ---- turns


def lowered(text: str, folder: Path, **defines: int) -> k.Kernel:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    words = {n: str(v) for n, v in defines.items()}
    found = compile_file(str(path), defines=words, archs=("sm_90a",), stop="kernel-ir").kernels[0]
    return next(low for low in found.lowered["sm_90a"] if isinstance(low.body[0], a.Roles))


def flat(ops: tuple[k.Op, ...]) -> Iterator[k.Op]:
    """All ops, those inside others behind them."""
    for op in ops:
        yield op
        for name in ("body", "consumer"):
            yield from flat(getattr(op, name, ()))


def events_of(kernel: k.Kernel) -> Iterator[str]:
    """What the consumers' ops do about turns and products, one after the other."""
    for op in flat(kernel.body):
        match op:
            case a.Turn():
                yield op.what
            case a.WarpgroupProduct():
                yield "product"
            case a.WarpgroupWait():
                yield f"wait{op.pending}"
            case _:
                pass


@pytest.mark.parametrize("warpgroups", [1, 2, 3])
def test_warpgroups_take_turns_where_there_are_several(warpgroups: int, tmp_path: Path) -> None:
    text = changed(("S by 64", f"S by {64 * warpgroups}"))
    events = list(events_of(lowered(text, tmp_path)))
    # the next one starts when the scores are done: in front of the loop, and in its trips, where the product of before is still under way
    first, trip = "take product wait0 pass", "take product product wait1 pass wait0"
    # the steady loop is there twice, with a mask and without, and turns are passed on for the trips that only others need
    turns = f"begin {first} {trip} {trip} product wait0 take pass end"
    if warpgroups > 1:
        assert events == turns.split()
    else:
        assert not {"begin", "take", "pass", "end"} & set(events)
    program = Program(tmp_path / "k.tile")
    for keys in (5, 16, 50):
        ran = program.run({"S": 200, "T": keys, "scale": 0.25})
        assert set(ran.launched) <= program.asynchronous


def test_one_product_takes_no_turns(tmp_path: Path) -> None:
    ops = list(flat(lowered(PRODUCT, tmp_path, BM=128).body))
    assert not any(isinstance(op, a.Turn) for op in ops)


# ---- the order of instances


@pytest.mark.parametrize("form", ["uneven walked", "uneven walked fresh", "uneven walked ahead"])
@pytest.mark.parametrize("ctas", [1, 2, 3, 4, 7])
@pytest.mark.parametrize("trips", [(1, 1), (1, 5), (2, 4), (3, 7), (2, 8), (9, 3), (8, 6)])
def test_uneven_instances_come_once_each(trips: tuple[int, int], ctas: int, form: str) -> None:
    found = [place for cta in range(ctas) for place in walked(form, trips, cta, ctas)]
    assert Counter(found) == Counter((h, i) for h in range(trips[0]) for i in range(trips[1]))


@pytest.mark.parametrize(
    ("trips", "ctas", "spread"),
    [
        ((1, 8), 4, 1),
        ((64, 8), 8, 1),
        ((3, 64), 12, 1),
        ((16, 128), 132, 1.01),
        ((64, 32), 132, 1.01),
        ((40, 32), 132, 1.01),
        ((256, 11), 132, 1.04),
    ],
)
def test_uneven_instances_take_equally_long(
    trips: tuple[int, int], ctas: int, spread: float
) -> None:
    # trip i takes i + 1 steps
    loads = [sum(i + 1 for _, i in walked("uneven walked", trips, n, ctas)) for n in range(ctas)]
    assert max(loads) <= spread * sum(loads) / ctas


def test_few_others_are_taken_in_sections() -> None:
    # in each round of all CTAs, 16 of 64 others at most, each of some eight CTAs
    places = [walked("uneven walked", (64, 32), cta, 132) for cta in range(132)]
    for n in range(3):
        others = Counter(place[n][0] for place in places)
        assert set(others) <= set(range(16)) and max(others.values()) <= 9


@pytest.mark.parametrize("counts", [(4, 6, 16), (3, 1, 5), (2, 7, 1), (1, 1, 1)])
@pytest.mark.parametrize("ctas", [1, 8, 132])
def test_drawn_instances_come_once_each_the_longest_first(
    counts: tuple[int, int, int], ctas: int
) -> None:
    found = walked("drawn", counts, 0, ctas)
    assert len(found) == len(set(found)) == counts[0] * counts[1] * counts[2]
    if (counts, ctas) == ((4, 6, 16), 132):
        # sections of eight: all of their longest trips, then all of the next
        assert [place[0] for place in found[:192]] == [3] * 48 + [2] * 48 + [1] * 48 + [0] * 48
        assert {place[2] for place in found[:192]} == set(range(8))


def test_many_others_stay_together() -> None:
    # a CTA takes a long trip of one and a short trip of the next, and so do its neighbours
    found = [walked("uneven walked", (64, 4), cta, 4)[:2] for cta in range(4)]
    assert found == [[(0, 3), (1, 0)], [(0, 2), (1, 1)], [(0, 1), (1, 2)], [(0, 0), (1, 3)]]


@pytest.mark.parametrize("count", [1, 2, 3, 5, 7, 64, 132, 641, 65535, 65537, 2**20 + 7, 2**31 - 1])
def test_quotients_are_exact(count: int) -> None:
    numbers = [0, 1, count - 1, count, count + 1, 2 * count, 7 * count - 1, 7 * count, 2**31 - 1]
    text = "int main(int, char** argv) { int x = std::atoi(argv[1]); const int y = std::atoi(argv[2]);\n"
    text += "const IntDivisor by = int_divisor(y); const int d = take_digit(x, by); "
    text += 'std::printf("%d %d", x, d); }'
    program = host_program(text)
    for number in sorted({n for n in numbers if 0 <= n < 2**31}):
        ran = subprocess.run(
            [str(program), str(number), str(count)], capture_output=True, text=True, check=True
        )
        assert tuple(map(int, ran.stdout.split())) == divmod(number, count)


def test_causal_instances_are_uneven(tmp_path: Path) -> None:
    text = changed(("range(T by 16)", "range(0 : min(T, i.stop) by 16)"))
    assert [d.uneven for d in lowered(text, tmp_path).grid] == [True]
    assert [d.uneven for d in lowered(ATTENTION, tmp_path).grid] == [False]


def test_no_pair_has_one_that_stores_nothing() -> None:
    """Neighbours along rows whose end memory says share no tile: the second may have none, and go on."""
    path = Path(__file__).resolve().parents[2] / "samples" / "matrix_vector_and_groups.tile"
    found = compile_file(
        str(path), kernel="grouped_gemm", archs=("sm_90a",), stop="kernel-ir"
    ).kernels[0]
    low = found.lowered["sm_90a"][0]
    assert low.cluster == 2 and low.cluster_digit == "j_tile"
    # of instances that store something each has all trips of the loop
    loops = [op for op in flat(low.body) if isinstance(op, k.Loop)]
    assert loops and all(str(loop.trips.sym).count("min") == 0 for loop in loops)  # type: ignore[union-attr]
