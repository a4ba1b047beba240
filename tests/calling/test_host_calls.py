"""Calls with arrays in host memory, which the emulator runs; arguments, sizes, outputs, errors."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

import tilec
from tilec.source.diagnostics import Diagnostic

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

PROGRAM = """
kernel scaled[D, WIDE = false](x: f32[N, D], scale: f32 = 2.0) -> y: f32[N, D]:
    for i in parallel(N by 8):
        y[i, :] = x[i, :] * (scale + 1.0 if WIDE else scale)

kernel strided(x: f32[M, N] strides (lda, 1)) -> y: f32[M, N] strides (ldb, 1):
    for i, j in parallel(M by 4, N by 64):
        y[i, j] = x[i, j] + 1.0

kernel counted(inout x: i32[N], by: i32):
    for i in parallel(N by 32):
        x[i] = x[i] + by

kernel filled(v: f32) -> y: f32[N]:
    for i in parallel(N by 32):
        y[i] = v

kernel nibbles(x: u4[N]) -> y: i32[N]:
    for i in parallel(N by 32):
        y[i] = x[i].to(i32)
"""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("calling") / "program.tile"
    path.write_text(PROGRAM)
    return path


def kernel(program: Path, name: str, **options) -> tilec.Kernel:
    return tilec.compile(program, name, device="cpu", **options)


def test_a_product() -> None:
    rng = np.random.default_rng(0)
    a = rng.standard_normal((40, 72)).astype(ml_dtypes.bfloat16)
    b = rng.standard_normal((72, 48)).astype(ml_dtypes.bfloat16)
    k = tilec.compile(SAMPLES / "gemm.tile", BM=64, BN=64, device="cpu")
    assert k.last_path is None
    c = k(a, b)
    assert k.name == "gemm_nn"
    assert k.last_path == "emulator"
    expected = a.astype(np.float32) @ b.astype(np.float32)
    tilec.assert_close(c, expected.astype(ml_dtypes.bfloat16), atol=0.05)
    half = k(a.astype(np.float16), b.astype(np.float16))
    assert half.dtype == np.float16, "the dtype follows from the arrays"
    tilec.assert_close(half, expected.astype(np.float16), atol=0.02)


def test_static_dimensions_follow_from_arrays(program: Path) -> None:
    k = kernel(program, "scaled")
    for width in (16, 24, 16):
        x = np.arange(3.0 * width, dtype=np.float32).reshape(3, width)
        tilec.assert_close(k(x), 2 * x)
        tilec.assert_close(k(x, 0.5), 0.5 * x)
        tilec.assert_close(k(x, scale=-1.0), -x)
    assert len(k._built) == 2, "one compilation for each value"
    fixed = kernel(program, "scaled", D=16, WIDE=True)
    tilec.assert_close(fixed(np.ones((2, 16), np.float32)), np.full((2, 16), 3.0, np.float32))
    with pytest.raises(tilec.TileError) as error:
        fixed(np.ones((2, 24), np.float32))
    assert error.value.diagnostics[0].code == "E0714"


def test_strides_follow_from_arrays_and_gaps_stay(program: Path) -> None:
    x = np.arange(70, dtype=np.float32).reshape(7, 10)[:, :6]
    y = np.full((7, 20), 5.0, np.float32)
    k = kernel(program, "strided")
    assert k(x, y=y[:, :6]).base is y
    tilec.assert_close(y[:, :6], x + 1)
    assert (y[:, 6:] == 5).all()


def test_inout_arrays_are_changed_in_place(program: Path) -> None:
    x = np.arange(50, dtype=np.int32)
    assert kernel(program, "counted")(x, 3) is None
    tilec.assert_close(x, np.arange(3, 53, dtype=np.int32))


def test_sizes_that_no_array_tells(program: Path) -> None:
    k = kernel(program, "filled")
    tilec.assert_close(k(2.5, N=9), np.full(9, 2.5, np.float32))
    tilec.assert_close(k(np.float32(1.0), N=3), np.ones(3, np.float32))
    with pytest.raises(tilec.TileError) as error:
        k(2.5)
    assert error.value.diagnostics[0].code == "E0711"


def test_packed_elements(program: Path) -> None:
    packed = np.array([0x21, 0x43, 0xFE], np.uint8)
    tilec.assert_close(kernel(program, "nibbles")(packed), np.array([1, 2, 3, 4, 14, 15], np.int32))


def test_any_array_with_dlpack() -> None:
    class Foreign:
        """An array of a library that nobody has heard of."""

        def __init__(self, array: np.ndarray) -> None:
            self.array = array

        def __dlpack__(self) -> object:
            return self.array.__dlpack__()

    a = np.arange(100, dtype=np.float32)
    k = tilec.compile(SAMPLES / "vector_add.tile", device="cpu")
    c = np.empty(100, np.float32)
    assert k(Foreign(a), Foreign(a[::1]), c=c) is c
    tilec.assert_close(c, 2 * a)
    with pytest.raises(tilec.TileError, match="no way to make an array for `c`"):
        k(Foreign(a), Foreign(a))


@pytest.mark.parametrize(
    ("arguments", "named", "words"),
    [
        ((), {}, "needs `a`"),
        ((1.0,), {}, "needs `b`"),
        ((1, 2, 3), {}, "takes 2 arguments, and 3"),
        ((1,), {"a": 2, "b": 3}, "got `a` twice"),
        ((1, 2), {"scale": 3}, "no parameter `scale`; it has `a`, `b`, `c`"),
        ((1, 2), {}, "`a` is an array, and a int"),
    ],
)
def test_arguments_that_do_not_match(arguments, named, words: str) -> None:
    with pytest.raises(TypeError, match=words):
        tilec.compile(SAMPLES / "vector_add.tile", device="cpu")(*arguments, **named)


@pytest.mark.parametrize(
    ("a", "words"),
    [
        (np.zeros(8, np.float64), "`a` is f32, and the array f64"),
        (np.zeros(16, np.float32)[::2], r"`a` is dense, and the array's strides are \[2\]"),
        (np.zeros((2, 4), np.float32), "`a` has 1 dimensions, and the array 2"),
        (np.zeros(9, np.float32), r"`b: f32\[N\]` is \[9\] here, and the array \[8\]"),
    ],
)
def test_arrays_that_do_not_fit(a: np.ndarray, words: str) -> None:
    k = tilec.compile(SAMPLES / "vector_add.tile", device="cpu")
    with pytest.raises(tilec.TileError, match=words) as error:
        k(a, np.zeros(8, np.float32))
    assert error.value.diagnostics[0].code == "E0714"


def test_errors_of_the_program_come_at_once(tmp_path: Path) -> None:
    path = tmp_path / "wrong.tile"
    path.write_text(
        "kernel f(a: f32[N]) -> c: f32[N]:\n    for i in parallel(N):\n        c[i] = z\n"
    )
    with pytest.raises(tilec.TileError):
        tilec.compile(path)
    with pytest.raises(tilec.TileError, match="no kernel `g`"):
        tilec.compile(path, "g")
    with pytest.raises(tilec.TileError) as error:
        tilec.compile(SAMPLES / "gemm.tile", XX=3)
    assert error.value.diagnostics[0].code == "E0751"
    with pytest.raises(tilec.TileError, match="no table for the architecture"):
        tilec.compile(SAMPLES / "gemm.tile", arch="sm_1")


def test_looking_inside() -> None:
    k = tilec.compile(SAMPLES / "softmax.tile", arch="sm_90")
    assert "softmax_kernel" in k.get_source()
    assert k.get_lowered_ir().startswith("kernel softmax_kernel")
    assert k.get_lowered_ir("schedule") == k.get_lowered_ir("kernel-ir")
    assert k.get_lowered_ir("tile-ir").startswith("kernel softmax")
    assert k.get_lowered_ir("lower").startswith("// after lower, softmax, sm_90")
    assert "softmax.tile:5  e = exp(row - max(row))" in k.explain()
    with pytest.raises(tilec.TileError) as error:
        k.get_lowered_ir("no_such_pass")
    assert error.value.diagnostics[0].code == "E0719"
    assert repr(k) == f"<tilec kernel softmax of {SAMPLES / 'softmax.tile'}>"


def test_resources_need_no_gpu() -> None:
    k = tilec.compile(SAMPLES / "vector_add.tile", arch="sm_90")
    first = k.resources[0]
    assert (first.kernel, first.arch, first.threads) == ("vector_add_kernel", "sm_90", 128)
    assert 8 <= first.registers <= 64
    assert first.spill_stores == first.spill_loads == 0
    assert 0 < first.occupancy <= 1


def test_what_tuning_found_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Values of the nearest sizes; `tuned=False` and other devices' results leave them out."""
    path = tmp_path / "tuned.tile"
    path.write_text(
        "kernel twice[BN = 256](x: f32[N]) -> y: f32[N]:\n"
        "    tune BN in (64, 128) key (N)\n"
        "    for i in parallel(N by BN):\n"
        "        y[i] = x[i] * 2.0\n"
    )
    asked = []

    def choices(file, kernel, defines, arch, *, settings, gpu, with_cache, missing):
        asked.append((kernel, dict(defines), arch, settings, gpu, with_cache))
        if "N=300" in settings:
            return {"twice": {"BN": 64}}
        missing.append(Diagnostic("W0604", "no result holds for sm_90", notes=("for sm_90a",)))
        return {}

    monkeypatch.setattr("tilec.jobs.tuned.tuned_choices", choices)
    k = tilec.compile(path, device="cpu")
    x = np.arange(300, dtype=np.float32)
    for _ in range(2):
        tilec.assert_close(k(x), 2 * x)
    assert asked == [("twice", {}, "sm_90", ["N=300"], "emulator", True)], "asked once a form"
    assert "host_ceil_div(N, 64)" in k.get_source()
    assert k.get_lowered_ir("lower") and "extent BN" in k.get_lowered_ir()
    with pytest.warns(UserWarning, match="no result holds for sm_90: for sm_90a"):
        tilec.assert_close(k(x[:7]), 2 * x[:7])
    assert "host_ceil_div(N, 256)" in k.get_source()
    plain = tilec.compile(path, device="cpu", tuned=False)
    plain(x)
    assert len(asked) == 2 and "host_ceil_div(N, 256)" in plain.get_source()
