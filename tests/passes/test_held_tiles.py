"""Which tiles beside products the producer brings: those that a loop reads as accumulators lie, of 8 or 16 bits."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.emulator.test_attention_forms import ops
from tilec.compiler import compile_file
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k

ROOT = Path(__file__).resolve().parents[2]
FORMS = ROOT / "bench" / "attention_forms.tile"

SQUARE = {"BM": "128", "BN": "128"}

RESIDUAL = """
kernel residual[BM = 128, BN = 128, BK = 64](a: bf16[M, K], b: bf16[K, N], r: bf16[M, N]) -> c: bf16[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, BM, BN)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        c[i, j] = acc + r[i, j].to(f32)
"""


def asynchronous_kernels(path: Path, name: str, **defines: str) -> list[k.Kernel]:
    (found,) = compile_file(
        str(path), kernel=name, archs=("sm_90a",), defines=defines, stop="kernel-ir"
    ).kernels
    lowered = found.lowered["sm_90a"]
    return [low for low in lowered if low.producers] or list(lowered)


def first_kernel(path: Path, name: str, **defines: str) -> k.Kernel:
    return asynchronous_kernels(path, name, **defines)[0]


@pytest.mark.parametrize(
    ("kernel", "number", "tensor", "shape"),
    [
        ("biased", 0, "bias", (128, 128)),
        ("masked", 0, "mask_words_128", (16, 32)),  # which skips trips
        ("masked", 1, "mask_words_128", (16, 32)),  # which runs all of them
        ("masked", 2, "mask", (128, 128)),
    ],
)
def test_a_ring_takes_the_place_of_loads(
    kernel: str, number: int, tensor: str, shape: tuple[int, int]
) -> None:
    low = asynchronous_kernels(FORMS, kernel, **SQUARE)[number]
    (ring,) = [p for p in low.panels if p.name == f"{tensor}_tiles"]
    assert (ring.rows, ring.cols, ring.slots) == (*shape, 2)
    assert any(m.tensor == tensor for m in low.arguments if hasattr(m, "tensor"))
    (roles,) = [op for op in low.body if isinstance(op, a.Roles)]
    copies = [op for op in ops(roles.producer) if isinstance(op, a.TensorCopy)]
    assert sum(copy.buffer is ring for copy in copies) == 2  # in front of the loop and in it
    reads = [op for op in ops(roles.consumer) if isinstance(op, a.TileLoad)]
    assert reads and all(op.tile.buffer == ring.name for op in reads)
    assert all(op.bits == (kernel == "masked") for op in reads)
    assert all(op.words == (shape == (16, 32)) for op in reads)
    loads = [op for op in ops(roles.consumer) if isinstance(op, k.LoadVector)]
    assert not loads
    # a bias is added in front of the wait that follows, in an arm of a branch
    branches = [op for op in ops(roles.consumer) if isinstance(op, k.IfAnyLane)]
    arms = [b for b in branches if isinstance(b.condition, k.Apply) and b.condition.op == "lt"]
    assert len(arms) == (len(reads) - 1 if kernel == "biased" else 0)


def test_what_leaves_gives_way_to_the_ring_where_both_do_not_fit() -> None:
    lowered = {kernel: first_kernel(FORMS, kernel, **SQUARE) for kernel in ("biased", "masked")}
    sends = {
        kernel: any(isinstance(op, a.SendChunks) for op in ops(low.body))
        for kernel, low in lowered.items()
    }
    assert sends == {"biased": False, "masked": True}


def test_wide_elements_and_tiles_behind_the_loop_stay_loads(tmp_path: Path) -> None:
    path = tmp_path / "residual.tile"
    path.write_text(RESIDUAL, encoding="utf-8")
    for low in (
        first_kernel(FORMS, "biased", T="f32", D="64", BM="64", BN="64"),
        first_kernel(path, "residual"),
    ):
        assert low.producers and not any(isinstance(op, a.TileLoad) for op in ops(low.body))
