"""Products whose short side a pair of CTAs deals out, so that the pair brings the other operand once, and those of wide tiles."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.emulator.asynchronous import Program
from tests.emulator.test_split_products import BATCHES, PRODUCT, TRANSPOSED, flat, form
from tilec.compiler import compile_file
from tilec.ir.asynchronous import TensorCopy
from tilec.ir.shares import AddShare
from tilec.ir.symbolic import Sym

PAIR = PRODUCT.replace("ROWS = 64", "ROWS = 128")
TURNED = TRANSPOSED.replace("ROWS = 64", "ROWS = 128")
MANY = BATCHES.replace("M <= 64", "M <= 128")
CASES: dict[str, tuple[str, dict[str, int], tuple[tuple[int, int, int], ...]]] = {
    "plain": (PAIR, {}, ((128, 264, 264), (70, 520, 64))),
    # the second CTA of each pair has no rows
    "turned": (TURNED, {}, ((64, 128, 128), (3, 392, 192))),
    "batches": (MANY, {"Z": 2}, ((100, 200, 136),)),
}


@pytest.mark.parametrize("name", list(CASES))
def test_every_order_has_the_right_sums(name: str, tmp_path: Path) -> None:
    text, extra, sizes = CASES[name]
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    program = Program(path)
    names = [x.name for x in program.kernel.lowered["sm_90a"]]
    assert names[:3] == ["k_kernel_wide", "k_kernel_paired", "k_kernel"]
    for m, n, depth in sizes:
        ran = program.run({"M": m, "N": n, "K": depth, **extra})
        assert set(ran.launched) == {"k_kernel_paired"}


def test_a_pair_brings_the_stream_once_and_is_early(tmp_path: Path) -> None:
    found = form(PAIR, tmp_path, BM=64)
    assert found.sharing is not None and found.split is None
    (stream,) = found.streams
    assert stream.value in found.sharing.shared and stream.times == Sym.of(1)
    # more rows than a pair has: others read the same
    assert form(PAIR.replace("M <= ROWS", "M <= 2 * ROWS"), tmp_path, BM=64).streams == ()
    path = tmp_path / "k.tile"
    path.write_text(PAIR, encoding="utf-8")
    (kernel,) = compile_file(str(path), archs=("sm_90a",)).kernels
    low = next(x for x in kernel.lowered["sm_90a"] if x.name == "k_kernel_paired")
    assert low.early and low.cluster == 2 and low.cluster_digit
    copies = {x.map: x for x in flat(low.body) if isinstance(x, TensorCopy)}
    assert copies["b_map"].peers == 2 and copies["b_map"].policy == "b_policy"
    assert copies["a_map"].peers == 1 and not copies["a_map"].policy
    assert not any(isinstance(x, AddShare) for x in flat(low.body))
    text = compile_file(str(path), archs=("sm_90a",)).cu
    assert "tensor_load_multicast_hinted(shared.b_tiles" in text


def test_wide_tiles_are_for_launches_that_they_fill(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(TRANSPOSED, encoding="utf-8")
    program = Program(path)
    wide = "k_kernel_wide"
    for columns, chosen in ((98 * 256, False), (99 * 256 - 8, True), (133 * 256, False)):
        ran = program.run({"M": 5, "N": columns, "K": 8})
        assert (wide in ran.launched) is chosen, columns


def test_a_launch_with_idle_multiprocessors_waits_for_the_one_in_front(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(PAIR, encoding="utf-8")
    compiled = compile_file(str(path), archs=("sm_90a",))
    early = [x for s in compiled.kernels[0].plan.targets[0].steps for x in s.launches if x.early]
    assert len(early) > 1 and {x.overlaps for x in early} == {(66, 123)}
    calls = re.findall(r"= host_launch_early\((.*?),\s+k_kernel", compiled.cu)
    assert calls == ["ctas <= 66 || ctas >= 123"] * len(early)
