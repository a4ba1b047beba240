"""Operands are read ahead across the trips of a loop, and copies start between its products."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.compiler import compile_file
from tilec.explain.walk import all_ops
from tilec.ir import kernel_ir as k
from tilec.ir.kernel_operands import DeclareOperands, ProductStep, ReadOperands

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
GEMM = """kernel product[BK = 64](a: {dtype}[M, K], b: {dtype}[K, N]) -> c: f32[M, N]:
    schedule warps = 4, stages = {stages}
    for i, j in parallel(M by 64, N by 64):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc
"""


def kernels(path: Path, name: str, **defines: str) -> list[k.Kernel]:
    compiled = compile_file(str(path), kernel=name, archs=("sm_90",), defines=defines)
    return list(compiled.kernels[0].lowered["sm_90"])


def product(folder: Path, dtype: str = "bf16", stages: int = 3, **defines: str) -> k.Kernel:
    path = folder / "product.tile"
    path.write_text(GEMM.format(dtype=dtype, stages=stages))
    return kernels(path, "product", **defines)[0]


def loop_of(kernel: k.Kernel) -> k.Loop:
    (loop,) = (
        op
        for op in kernel.body
        if isinstance(op, k.Loop) and any(isinstance(o, ProductStep) for o in op.body)
    )
    return loop


@pytest.mark.parametrize(("dtype", "steps"), [("bf16", 4), ("f16", 4)])
def test_each_step_reads_the_operands_of_the_next(tmp_path: Path, dtype: str, steps: int) -> None:
    loop = loop_of(product(tmp_path, dtype))
    sets = [
        (type(op).__name__, op.set)
        for op in loop.body
        if isinstance(op, ReadOperands | ProductStep)
    ]
    expected = []
    for step in range(steps):
        expected += [("ReadOperands", (step + 1) % 2), ("ProductStep", step % 2)]
    assert sets == expected


def test_the_last_step_waits_and_reads_from_the_next_slot(tmp_path: Path) -> None:
    loop = loop_of(product(tmp_path))
    barrier = next(n for n, op in enumerate(loop.body) if isinstance(op, k.CtaSync))
    wait, read, last = loop.body[barrier - 1], *loop.body[barrier + 1 :]
    assert isinstance(wait, k.WaitGroup) and wait.pending == 1
    assert isinstance(read, ReadOperands) and read.k_at == 0
    assert isinstance(last, ProductStep)
    assert str(read.product.b.slot) != str(loop.body[barrier - 2])
    first = next(op for op in loop.body if isinstance(op, ReadOperands))
    assert first.product.b.slot != read.product.b.slot


def test_copies_of_each_tile_have_a_step_of_their_own_and_end_before_the_wait(
    tmp_path: Path,
) -> None:
    order = [type(op).__name__ for op in loop_of(product(tmp_path)).body]
    assert order.count("IfUniform") == 2 and order.count("Commit") == 1
    first, second = (n for n, name in enumerate(order) if name == "IfUniform")
    assert "ProductStep" in order[first:second]
    assert second < order.index("Commit") < order.index("WaitGroup")
    two = [type(op).__name__ for op in loop_of(product(tmp_path, BK="32")).body]
    assert two.count("IfUniform") == 1 and two.index("Commit") < two.index("WaitGroup")


def test_tiles_have_constant_distances_and_guards_no_row_of_each_step(tmp_path: Path) -> None:
    kernel = product(tmp_path)
    assert all(t.constant for t in kernel.tiles)
    copies = [op for op in all_ops(loop_of(kernel).body) if isinstance(op, k.CopyAsync)]
    assert len(copies) == 2
    for copy in copies:
        assert not any(copy.row.coordinate in str(guard) for guard in copy.guards)
        assert any(copy.row.step in str(guard) for guard in copy.guards)


def test_one_row_a_thread_has_its_own_guard(tmp_path: Path) -> None:
    path = tmp_path / "product.tile"
    path.write_text(GEMM.format(dtype="bf16", stages=3).replace("by 64", "by 32"))
    kernel = kernels(path, "product", BK="32")[0]
    copies = [op for op in all_ops(loop_of(kernel).body) if isinstance(op, k.CopyAsync)]
    assert [copy.row.layout.steps for copy in copies] == [1, 1]
    assert not any(copy.row.step in str(guard) for copy in copies for guard in copy.guards)


def test_one_step_a_trip_stays_as_it_is(tmp_path: Path) -> None:
    kernel = product(tmp_path, BK="16")
    assert not any(isinstance(op, DeclareOperands) for op in kernel.body)
    assert not any(t.constant for t in kernel.tiles)


def test_rows_with_a_begin_and_an_end_stay_as_they_are() -> None:
    path = SAMPLES / "matrix_vector_and_groups.tile"
    for kernel in kernels(path, "grouped_gemm"):
        assert not any(isinstance(op, DeclareOperands) for op in kernel.body)


def test_a_loop_with_two_products_stays_as_it_is() -> None:
    for kernel in kernels(SAMPLES / "attention.tile", "attention"):
        assert not any(isinstance(op, DeclareOperands) for op in kernel.body)
