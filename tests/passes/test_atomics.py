"""Which atomics move vectors: by the target, the dtype, the layout, and what the launch knows of addresses."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_samples import outcomes
from tests.explain.compiled import kernels
from tilec.compiler import compile_file
from tilec.explain.walk import all_ops
from tilec.explain.work import scopes
from tilec.ir import kernel_ir as k
from tilec.ir.atomic_ops import AtomicElement, AtomicShared, AtomicVector
from tilec.ir.kernel_printer import print_kernel

ROWS = """kernel k(x: {t}[R, C], at: i32[R], inout out: {t}[S, C]):
    require C <= 4096
    for r in parallel(R):
        atomic_{op}(out[at[r], :], x[r, :])
"""
TILES = """kernel k[BR = 16, BC = 64](x: {t}[R, C], at: i32[R], inout out: {t}[S, C]):
    for i, j in parallel(R by BR, C by BC):
        rows = at[i]
        atomic_add(out[rows, j], x[i, j])
"""
SPLIT = """kernel k[BM = 64, BN = 64, BK = 32, SPLITS = 4](a: f16[M, K], b: f16[K, N], inout c: {t}[M, N]):
    for i, j, s in parallel(M by BM, N by BN, SPLITS):
        chunk = ceildiv(ceildiv(K, SPLITS), BK) * BK
        acc = zeros(f32, i, j)
        for k in range(s * chunk : min(K, (s + 1) * chunk) by BK):
            acc += a[i, k] @ b[k, j]
        atomic_add(c[i, j], acc{to})
"""
Atomic = AtomicElement | AtomicVector


def variants(folder: Path, text: str, arch: str) -> tuple[k.Kernel, ...]:
    """All variants of the kernel, in the order in which the launcher tries them."""
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return kernels.__wrapped__(str(path), "k", arch)


def atomics(kernel: k.Kernel) -> list[Atomic]:
    return [op for op in all_ops(kernel.body) if isinstance(op, Atomic)]


def bytes_of(kernel: k.Kernel) -> set[int]:
    """Bytes that an instruction of its atomics takes, 0 for single elements."""
    return {op.bytes if isinstance(op, AtomicVector) else 0 for op in atomics(kernel)}


def widths(folder: Path, text: str, arch: str) -> list[set[int]]:
    """`bytes_of` each variant."""
    return [bytes_of(kernel) for kernel in variants(folder, text, arch)]


@pytest.mark.parametrize(
    ("dtype", "arch", "width"),
    [
        *((t, arch, 16) for t in ("f32", "f16", "bf16") for arch in ("sm_90", "sm_90a", "sm_100")),
        *(("f16", arch, 4) for arch in ("sm_75", "sm_80", "sm_89")),
        *((t, arch, 0) for t in ("f32", "bf16") for arch in ("sm_80", "sm_89")),
        *((t, "sm_90", 0) for t in ("f64", "i32")),
    ],
)
def test_the_target_says_how_wide(tmp_path: Path, dtype: str, arch: str, width: int) -> None:
    for text in (ROWS.format(t=dtype, op="add"), TILES.format(t=dtype)):
        found = variants(tmp_path, text, arch)
        first, last = found[0], found[-1]
        assert (bytes_of(first), bytes_of(last)) == ({width}, {0})
        if not width:
            # neighbours are in neighbouring threads
            assert {axis.layout.vector for axis in first.axes} == {1}


def test_a_few_atomics_leave_the_loads_their_vectors(tmp_path: Path) -> None:
    """Sums over rows: what is loaded is much more."""
    text = """kernel k[BR = 64, BC = 64](x: f32[R, C], inout y: f32[C]):
    for i, j in parallel(R by BR, C by BC):
        atomic_max(y[j], max(x[i, j], axis=0))
"""
    first = variants(tmp_path, text, "sm_90")[0]
    assert bytes_of(first) == {0}
    assert max(axis.layout.vector for axis in first.axes) == 4


@pytest.mark.parametrize("op", ["max", "min"])
def test_extremes_take_elements(tmp_path: Path, op: str) -> None:
    """A NaN wins in the language; PTX does not say so of vectors."""
    for dtype in ("f32", "f16", "bf16"):
        text = ROWS.format(t=dtype, op=op)
        assert set().union(*widths(tmp_path, text, "sm_90")) == {0}


def test_a_launch_that_is_not_aligned_takes_elements(tmp_path: Path) -> None:
    """Each aligned variant is launched where the address and the rows of what is added to allow it."""
    text = ROWS.format(t="f32", op="add")
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    (target,) = compile_file(str(path), archs=("sm_90",)).kernel("k").plan.targets
    (step,) = target.steps
    found = widths(tmp_path, text, "sm_90")
    assert len(step.launches) == len(found) and {16} in found and {0} in found
    for launch, width in zip(step.launches, found, strict=True):
        condition = repr(launch.condition)
        assert ("'out'" in condition and "16" in condition) == (width == {16}), condition


@pytest.mark.parametrize("first", ["1", "at[r]"])
def test_an_offset_that_is_no_multiple_takes_elements(tmp_path: Path, first: str) -> None:
    """Of a constant, and of a number that is loaded: no launch knows it."""
    text = """kernel k(x: f32[R, 256], at: i32[R], inout out: f32[R, C]):
    require C >= 512
    for r in parallel(R):
        atomic_add(out[r, span({first}, 256)], x[r, :])
"""
    aligned = widths(tmp_path, text.format(first="4"), "sm_90")
    assert aligned == [{16}, {0}]
    found = widths(tmp_path, text.format(first=first), "sm_90")
    assert len(found) == 2 and set().union(*found) == {0}


def test_a_bound_that_cuts_a_vector_cuts_the_atomic(tmp_path: Path) -> None:
    """Columns up to any number, in rows that are whole vectors: a form for whole tiles and one with what is left."""
    text = """kernel k[BR = 16, BC = 64](y: f32[N], x: f32[R], inout out: f32[R, C]):
    require N <= C
    for i, j in parallel(R by BR, N by BC):
        atomic_add(out[i, j], x[i][:, None] * y[j][None, :])
"""
    first, last = variants(tmp_path, text, "sm_90")
    whole, cut = atomics(first)
    assert isinstance(whole, AtomicVector) and isinstance(cut, AtomicVector)
    assert whole.count is None and cut.count is not None
    assert "AtomicVector add" in print_kernel(first) and "bytes 16" in print_kernel(first)
    assert all(isinstance(op, AtomicElement) for op in atomics(last))


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
@pytest.mark.parametrize(("dtype", "to", "width"), [("f32", "", 8), ("f16", ".to(f16)", 4)])
def test_accumulators_add_their_pairs(
    tmp_path: Path, arch: str, dtype: str, to: str, width: int
) -> None:
    first, *_, last = widths(tmp_path, SPLIT.format(t=dtype, to=to), arch)
    expected = 0 if (arch, dtype) == ("sm_80", "f32") else width
    assert (first, last) == ({expected}, {0})


def test_asynchronous_products_do_not_need_aligned_sums(tmp_path: Path) -> None:
    """Where the sums go anywhere the products are warpgroups' all the same."""
    _, anywhere, _ = variants(tmp_path, SPLIT.format(t="f32", to=""), "sm_90a")
    assert anywhere.producers and {type(op) for op in atomics(anywhere)} == {AtomicElement}


def test_sums_of_columns(tmp_path: Path) -> None:
    """What a CTA has reduced over its rows is added in vectors, by one of the threads that have it."""
    text = """kernel k[BR = 64, BC = 64](x: bf16[R, C], inout y: f32[C]):
    for i, j in parallel(R by BR, C by BC):
        atomic_add(y[j], sum(x[i, j].to(f32), axis=0))
"""
    first = variants(tmp_path, text, "sm_90")[0]
    (atomic,) = atomics(first)
    assert isinstance(atomic, AtomicVector) and atomic.bytes == 16 and atomic.guards


def test_what_is_said_of_them(tmp_path: Path) -> None:
    """The manifest's lines, and the bytes of the traffic: 16 at a time."""
    path = tmp_path / "k.tile"
    path.write_text(TILES.format(t="f32"), encoding="utf-8")
    kernel = compile_file(str(path), archs=("sm_90",)).kernel("k")
    first, last = kernel.manifest["targets"]["sm_90"]
    assert "'vectors of 16 B'" in repr(first) and "'atomic add'" in repr(first)
    assert "'vectors of 16 B'" not in repr(last) and "'atomic add'" in repr(last)
    (vectors,), (elements,) = (
        [t for _, work in scopes(one, "sm_90") for t in work.traffic if t.tensor == "out"]
        for one in kernel.lowered["sm_90"]
    )
    assert (vectors.piece, elements.piece) == (16, 4) and vectors.store and elements.store
    assert vectors.total == 16 * 64 * 4 * kernel.lowered["sm_90"][0].batch


COUNTED = """kernel k[BN = 1024](x: i8[N], inout count: {t}[100]):
    for i in parallel(N by BN):
        atomic_{op}(count[x[i].to(i32)], {value})
"""


@pytest.mark.parametrize(
    ("t", "op", "value"),
    [("i32", "add", "1"), ("f32", "max", "x[i].to(f32)"), ("i64", "add", "x[i].to(i64)")],
)
def test_many_values_for_few_elements_go_to_shared_memory_first(
    t: str, op: str, value: str, tmp_path: Path
) -> None:
    text = COUNTED.format(t=t, op=op, value=value)
    for kernel in variants(tmp_path, text, "sm_80"):
        inner = [x for x in all_ops(kernel.body) if isinstance(x, AtomicShared)]
        assert {x.op for x in inner} == {op}
        # and one of each element to the tensor, of a CTA with several instances; indices outside of it stay guarded
        assert len(atomics(kernel)) == 1 and kernel.threads == 512
        assert all(len(x.guards) >= 2 for x in inner)
    path = tmp_path / "k.tile"
    found = outcomes(tmp_path, file=str(path), arch="sm_80", settings=("N=5003",))
    assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize(
    "text",
    [
        # more than shared memory is given for
        COUNTED.format(t="i32", op="add", value="1").replace("[100]", "[8192]"),
        # a size that is not known
        COUNTED.format(t="i32", op="add", value="1").replace("[100]", "[BINS]"),
        # less than a word
        COUNTED.format(t="f16", op="add", value="x[i].to(f16)"),
    ],
)
def test_others_go_to_the_tensor_at_once(text: str, tmp_path: Path) -> None:
    for kernel in variants(tmp_path, text, "sm_80"):
        assert not any(isinstance(x, AtomicShared) for x in all_ops(kernel.body))
