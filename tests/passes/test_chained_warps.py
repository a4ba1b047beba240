"""Products of warps that are chained in registers: which tiles they take, what their rings bring, and what stands between their steps."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from tilec.compiled import CompiledKernel
from tilec.compiler import compile_file
from tilec.ir import kernel_ir as k
from tilec.ir.kernel_operands import ProductStep, ReadOperands
from tilec.passes import between

ROOT = Path(__file__).resolve().parents[2]
ATTENTION = ROOT / "samples" / "attention.tile"


def compiled(
    arch: str, path: Path = ATTENTION, kernel: str = "attention", **defines: object
) -> CompiledKernel:
    words = {n: str(v) for n, v in defines.items()}
    file = compile_file(
        str(path), kernel=kernel, archs=(arch,), defines=words, stop="kernel-ir", command=""
    )
    return file.kernels[0]


def within(ops: tuple[k.Op, ...]) -> Iterator[k.Op]:
    for op in ops:
        yield op
        for name in ("body", "then", "otherwise"):
            yield from within(getattr(op, name, ()))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_100"])
@pytest.mark.parametrize(("width", "keys"), [(64, 64), (128, 32)])
def test_warps_have_two_blocks_of_rows(arch: str, width: int, keys: int) -> None:
    found = compiled(arch, D=width)
    assert (found.program.tiles["BM"], found.program.tiles["BN"]) == (128, keys)
    aligned, general = found.lowered[arch]
    # what is copied through registers leaves none for that
    assert (aligned.threads, general.threads) == (128, 256)


@pytest.mark.parametrize(
    ("arch", "width"), [("sm_80", 256), ("sm_86", 128), ("sm_90", 256), ("sm_90", 192)]
)
def test_other_widths_and_targets_have_one_block(arch: str, width: int) -> None:
    aligned = compiled(arch, D=width).lowered[arch][0]
    products = [op for op in within(aligned.body) if isinstance(op, k.Product)]
    assert products and all(op.row_tiles == 1 for op in products)


@pytest.mark.parametrize("causal", ["false", "true"])
def test_tiles_beside_the_loop_are_slots_of_its_rings(causal: str) -> None:
    aligned = compiled("sm_90", D=128, CAUSAL=causal).lowered["sm_90"][0]
    assert {(t.name, t.slots) for t in aligned.tiles} == {
        ("q_tile", 1), ("k_tiles", 4), ("v_tiles", 4),
    }  # fmt: skip
    # the first tiles of all three are under way before anything is waited for
    first = next(n for n, op in enumerate(aligned.body) if isinstance(op, k.WaitGroup))
    ahead = [op for op in within(aligned.body[:first]) if isinstance(op, k.CopyAsync)]
    assert {op.tile.buffer for op in ahead} == {"q_tile", "k_tiles", "v_tiles"}
    later = [op for op in within(aligned.body[first:]) if isinstance(op, k.CopyAsync)]
    assert {op.tile.buffer for op in later} == {"k_tiles", "v_tiles"}


@pytest.mark.parametrize("width", [64, 128])
def test_each_element_is_made_once_between_the_steps(width: int) -> None:
    aligned = compiled("sm_90", D=width).lowered["sm_90"][0]
    bodies = [
        op.then for op in within(aligned.body) if isinstance(op, k.IfUniform) and _steps(op.then)
    ]
    assert bodies
    for body in bodies:
        steps = _steps(body)
        product = steps[0].product
        wanted = [
            (at, column)
            for at in range(0, product.k_extent, product.k_step)
            for column in range(0, product.col_tiles, product.columns_at_once)
        ]
        assert [(s.k_at, s.column) for s in steps] == wanted
        reads = [op for op in body if isinstance(op, ReadOperands)]
        assert [(r.k_at, r.column) for r in reads] == wanted
        for n, step in enumerate(steps):
            assert (reads[n].set, reads[n].left_set) == (step.set, step.left_set)
        parts = [op for op in body if isinstance(op, k.TileLoop) and op.parts]
        made: Counter[tuple[int, ...]] = Counter()
        for op in parts:
            down, along = (op.part(axis) for axis in op.axes)
            assert down is not None and along is not None
            made.update(
                (i, j) for i in range(down.first, down.end) for j in range(along.first, along.end)
            )
        sizes = [axis.layout.steps for axis in parts[0].axes]
        assert made == Counter((i, j) for i in range(sizes[0]) for j in range(sizes[1]))
        # no part follows the last step, and none is in front of the first
        order = [n for n, op in enumerate(body) if op in parts]
        assert order[0] > body.index(steps[0])
        assert isinstance(body[order[-1] + 1], k.CopyFragment)


def _steps(ops: tuple[k.Op, ...]) -> list[ProductStep]:
    return [op for op in ops if isinstance(op, ProductStep)]


def test_what_reads_the_sums_stays_behind_the_product() -> None:
    aligned = compiled("sm_90", D=128).lowered["sm_90"][0]
    body = next(
        op.then for op in within(aligned.body) if isinstance(op, k.IfUniform) and _steps(op.then)
    )
    product = _steps(body)[0].product
    handed = product.a
    assert isinstance(handed, k.Fragment)
    part = next(op for op in body if isinstance(op, k.TileLoop) and op.parts)
    (following,) = (x.target for x in within((part,)) if isinstance(x, k.ConvertVector))
    inside = tuple(
        replace(x, target=handed) if isinstance(x, k.ConvertVector) and x.target == following else x
        for x in part.body
    )
    walk = replace(part, parts=(), body=inside)

    def is_split(*ops: k.Op) -> bool:
        found = between.run(replace(aligned, body=ops)).body
        assert found == ops or _steps(found)
        return found != ops

    sums = k.Assign(following, k.Element(product.target, product.target.rep))
    packed = k.Assign(following, k.Element(handed, handed.rep))
    assert is_split(product, k.Declare(following, None), walk)
    assert not is_split(product, k.CtaSync("another op"), walk)
    assert not is_split(product, replace(walk, body=(*walk.body, sums)))
    assert not is_split(product, replace(walk, body=(*walk.body, packed)))
    assert not is_split(product, k.TileLoop(walk.axes, (), (sums,)), walk)
    assert not is_split(replace(product, ahead=False), walk)


def test_tiles_loaded_beside_the_products_take_registers() -> None:
    """A bias or a mask of the scores leaves no room for two blocks of rows: ptxas would spill."""
    for name in ("biased", "masked"):
        found = compiled("sm_90", ROOT / "bench" / "attention_forms.tile", name)
        products = [
            op for op in within(found.lowered["sm_90"][0].body) if isinstance(op, k.Product)
        ]
        assert products and all(op.row_tiles == 1 for op in products)
