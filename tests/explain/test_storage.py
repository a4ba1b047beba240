"""The map of shared memory, the estimate of registers, layouts and their pictures."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from xml.etree import ElementTree

import pytest

from tests.explain.compiled import best, kernels
from tilec.explain.layouts import draw, elements_of, formula, held_tiles, layout_text, pictures
from tilec.explain.memory_map import memory_map
from tilec.explain.registers import registers
from tilec.ir import kernel_ir as k
from tilec.targets.table import TARGETS

CASES = [
    ("gemm", "gemm_nn", "sm_80"),
    ("gemm", "gemm_nn", "sm_90a"),
    ("attention", "attention", "sm_80"),
    ("attention", "attention", "sm_90a"),
    ("norms", "layer_norm", "sm_90"),
    ("decode", "flash_decode", "sm_90"),
]


def all_kernels() -> list[tuple[k.Kernel, str]]:
    found = []
    for file, name, arch in CASES:
        try:
            found += [(kernel, arch) for kernel in kernels(file, name, arch)]
        except KeyError:
            continue
    assert len(found) >= 12
    return found


def test_places_are_the_struct_of_the_generated_code(tmp_path: Path) -> None:
    """Offsets as the host compiler lays out members of these sizes and alignments."""
    compiler = shutil.which("g++")
    if compiler is None:
        pytest.skip("no g++: would have compared offsets with those of a struct")
    lines, expected = [], []
    for number, (kernel, _) in enumerate(all_kernels()):
        places = memory_map(kernel)
        if not places:
            continue
        members = []
        for place in places:
            buffer = place.buffer
            alignment = {"PanelBuffer": 1024, "TileBuffer": 128, "Barrier": 8}.get(
                type(buffer).__name__, 4
            )
            members.append(
                f"struct alignas({alignment}) {{ char x[{place.bytes}]; }} {place.name};"
            )
        lines.append(f"struct S{number} {{ {' '.join(members)} }};")
        for place in places:
            expected.append(f"static_assert(offsetof(S{number}, {place.name}) == {place.offset});")
        assert places[-1].offset + places[-1].bytes <= kernel.shared_bytes
        assert len({place.name for place in places}) == len(places)
    source = tmp_path / "layout.cc"
    source.write_text("\n".join(["#include <cstddef>", *lines, *expected, "int main() {}"]))
    done = subprocess.run(
        [compiler, "-std=c++17", "-fsyntax-only", str(source)], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert len(expected) > 20


def test_buffers_live_where_the_program_uses_them() -> None:
    places = {p.name: p for p in memory_map(best("attention", "attention", "sm_90a"))}
    lines = {n: (p.first.line, p.last.line) for n, p in places.items() if p.first and p.last}
    # q is loaded in line 7 and multiplied in line 13; v is read in line 21, o leaves in line 23
    assert lines["q_tiles"] == (7, 13)
    assert lines["k_tiles"] == (13, 13)
    assert lines["v_tiles"] == (21, 21)
    assert lines["o_chunks"] == (23, 23)
    gemm = {p.name: p for p in memory_map(best("gemm", "gemm_nn", "sm_90a"))}
    assert gemm["a_tiles"].loops == ("k_tile",) and gemm["c_chunks"].loops == ()
    assert "swizzle of 128 bytes" in gemm["a_tiles"].placement


@pytest.mark.parametrize(
    ("file", "name", "arch", "tiles", "held"),
    [
        ("gemm", "gemm_nn", "sm_80", 128 + 32, "acc"),
        ("attention", "attention", "sm_80", 128 + 32 + 24 + 16 + 16, "acc"),
        ("softmax", "softmax", "sm_90", 8, "x_tile"),
    ],
)
def test_registers_at_the_widest_place(
    file: str, name: str, arch: str, tiles: int, held: str
) -> None:
    found = registers(best(file, name, arch), TARGETS[arch])
    assert found.tiles == tiles
    assert found.held[0][0] == held
    assert found.total == found.tiles + found.besides


def test_registers_of_roles_are_what_the_launch_gives() -> None:
    found = registers(
        best("gemm", "gemm_nn", "sm_90a", BM="128", BN="256", BK="64"), TARGETS["sm_90a"]
    )
    # the sums of this instance, and the packed result of the last one that is still leaving
    assert dict(found.held) == {"acc": 128, "c_out": 64}
    assert found.available == 232 and found.fits


def test_the_estimate_is_near_what_ptxas_says() -> None:
    from tests.explain.compiled import SAMPLES
    from tilec.compiler import compile_file
    from tilec.jobs.profiling import build_cubin, usage
    from tilec.source.diagnostics import TileError

    compiled = compile_file(str(SAMPLES / "gemm.tile"), kernel="gemm_nn", archs=("sm_80",))
    try:
        report = build_cubin(compiled, "sm_80", None).report
    except TileError as error:
        pytest.skip(f"no nvcc ({error.diagnostics[0].message}): would have compared registers")
    (kernel,) = compiled.kernels
    said = {one.kernel: one.registers for one in usage(kernel, "sm_80", report)}
    for lowered in kernel.lowered["sm_80"]:
        estimate = registers(lowered, TARGETS["sm_80"]).total
        assert 0.8 * said[lowered.name] < estimate < 1.2 * said[lowered.name]


def test_formulas_are_the_layouts() -> None:
    """The text, evaluated, is the coordinate that the layout's own arithmetic gives."""
    count = 0
    for kernel, _ in all_kernels():
        for held in held_tiles(kernel):
            for axis in held.axes:
                text, *ranges = formula(axis.layout, kernel.workers).split(", ")
                radices = [int(r.partition(" < ")[2]) for r in ranges]
                for thread in (0, 1, 5, 33, kernel.workers - 1):
                    for register in range(axis.layout.steps * axis.layout.vector):
                        digits, rest = [], register
                        for radix in reversed(radices):
                            rest, digit = divmod(rest, radix)
                            digits.append(digit)
                        names = {f"r{n}": d for n, d in enumerate(reversed(digits))}
                        value = eval(text.replace("/", "//"), {"t": thread, **names})
                        assert value == axis.layout.coordinate(thread, register)
                        count += 1
    assert count > 1000


def test_every_element_of_a_tile_is_held_once_or_by_equal_lanes() -> None:
    for arch in ("sm_80", "sm_90a"):
        kernel = best("gemm", "gemm_nn", arch)
        held = next(h for h in held_tiles(kernel) if any("acc" in name for name in h.names))
        owners: dict[tuple[int, ...], int] = {}
        for thread in range(kernel.workers):
            for place in elements_of(held, thread):
                owners[place] = owners.get(place, 0) + 1
        constants = dict(kernel.constants)
        assert len(owners) == constants["BM"] * constants["BN"]
        assert set(owners.values()) == {1}
        assert "thread 0: (0, 0), (0, 1), (0, 8)" in layout_text(held)


def test_pictures_are_svg_with_a_cell_for_each_element() -> None:
    kernel = best("gemm", "gemm_nn", "sm_90a", BM="128", BN="256", BK="64")
    found = {picture.name: picture for picture in pictures(kernel)}
    assert set(found) == {f"gemm_nn_kernel.{n}" for n in ("i_j", "a_tiles", "b_tiles", "c_chunks")}
    for picture in found.values():
        root = ElementTree.fromstring(draw(picture))
        assert root.tag == "{http://www.w3.org/2000/svg}svg"
        cells = [g for g in root if g.tag.endswith("}g")]
        assert len(cells) == picture.rows * picture.cols == len(picture.cells)
    tile = found["gemm_nn_kernel.i_j"]
    # row 1 of the accumulators belongs to lanes 4 to 7, row 8 to lane 0 again
    texts = {(c.row, c.col): c.top for c in tile.cells}
    assert (texts[0, 0], texts[0, 2], texts[1, 0], texts[8, 0]) == ("t0", "t1", "t4", "t0")
    banks = {(c.row, c.col): c.bottom for c in found["gemm_nn_kernel.a_tiles"].cells}
    for col in range(8):
        assert len({banks[row, col] for row in range(8)}) == 8
    assert re.fullmatch(r"bank \d+", banks[0, 0])
