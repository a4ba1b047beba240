"""All device primitives on a GPU: conversions, memory access, arithmetic, accuracy of the mathematics, reductions,
scans and atomics."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.emit import device_checks as checks
from tests.emit.device_program import (
    FLOATS,
    INTEGERS,
    UNARY,
    VALUES,
    VECTOR_ATOMICS,
    Library,
    compile_library,
    gpu_source,
)
from tilec.toolchain.driver import query_driver
from tilec.toolchain.nvcc import find_nvcc

pytestmark = [pytest.mark.gpu, pytest.mark.xdist_group("primitives")]
"""One process builds the library."""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Library:
    driver = query_driver()
    if not driver.devices:
        pytest.skip("no GPU: would have run every device primitive and compared it with NumPy")
    folder: Path = tmp_path_factory.mktemp("primitives")
    source = folder / "device.cu"
    source.write_text(gpu_source(), encoding="utf-8")
    command = [str(find_nvcc().path), "-std=c++17", f"-arch={driver.devices[0].arch}", "-shared"]
    command += ["-Xcompiler=-fPIC", "-cudart=static", "-Werror", "all-warnings"]
    compile_library(command, source, folder / "device.so")
    return Library(folder / "device.so", gpu=True)


@pytest.mark.parametrize("source", VALUES)
def test_conversions(library: Library, source: str) -> None:
    checks.check_conversions(library, source)


def test_vector_conversions(library: Library) -> None:
    checks.check_vector_conversions(library)


def test_partial_access(library: Library) -> None:
    checks.check_partial_access(library)


def test_walks(library: Library) -> None:
    checks.check_walks(library)


def test_memory(library: Library) -> None:
    checks.check_memory(library)


def test_words(library: Library) -> None:
    checks.check_words(library)


def test_divisors(library: Library) -> None:
    checks.check_divisors(library)


def test_integers(library: Library) -> None:
    checks.check_integers(library)


def test_float_arithmetic(library: Library) -> None:
    checks.check_float_arithmetic(library)


@pytest.mark.parametrize("kind", FLOATS)
@pytest.mark.parametrize("mode", ["fast", "strict"])
@pytest.mark.parametrize("function", UNARY)
def test_math(library: Library, function: str, mode: str, kind: str) -> None:
    checks.check_math(library, function, mode, kind)


def test_two_argument_math(library: Library) -> None:
    checks.check_two_argument_math(library)


def test_half_precision(library: Library) -> None:
    checks.check_half_precision(library)


COMBINE: dict[str, Any] = {
    "OpSum": np.add,
    "OpProd": np.multiply,
    "OpMax": np.maximum,
    "OpMin": np.minimum,
}


def values_of(kind: str, op: str, count: int = 512) -> Any:
    """Small whole numbers, so that every order of sums and products is exact; NaN and infinities for max and min."""
    random = np.random.default_rng(2)
    dtype = np.dtype(checks.DTYPES[kind])
    if op == "OpProd":
        return random.choice([1, 1, 1, 1, 1, 1, 1, 2], count).astype(dtype)
    x = random.integers(0 if dtype.kind == "u" else -100, 100, count).astype(dtype)
    if dtype.kind == "f" and op in ("OpMax", "OpMin"):
        x[[3, 200]], x[300] = np.inf, np.nan
    return x


@pytest.mark.parametrize("op", sorted(COMBINE))
@pytest.mark.parametrize("kind", ["int32_t", "uint8_t", "int64_t", "float", "double"])
def test_reductions_and_scans(library: Library, op: str, kind: str) -> None:
    x = values_of(kind, op)
    combine = COMBINE[op]
    for lanes, stride in ((32, 1), (8, 1), (4, 8), (2, 4), (1, 1)):
        # axes: warp, outer place, lane of the reduction, inner place
        shaped = x.reshape(16, 32 // (lanes * stride), lanes, stride)
        total = combine.reduce(shaped, axis=2, keepdims=True, dtype=x.dtype)
        got = library.run(f"reduce_{op}_{kind}_{lanes}_{stride}", 512, x, np.empty_like(x))
        wanted = np.broadcast_to(total, shaped.shape).ravel()
        assert np.array_equal(got, wanted, equal_nan=x.dtype.kind == "f"), (lanes, stride)
        got = library.run(f"scan_{op}_{kind}_{lanes}_{stride}", 512, x, np.empty_like(x))
        wanted = combine.accumulate(shaped, axis=2, dtype=x.dtype).ravel()
        assert np.array_equal(got, wanted, equal_nan=x.dtype.kind == "f"), (lanes, stride)
    got = library.run(f"group_{op}_{kind}", 512, x, np.empty_like(x))
    wanted = np.repeat(combine.reduce(x.reshape(8, 64), axis=1, dtype=x.dtype), 64)
    assert np.array_equal(got, wanted, equal_nan=x.dtype.kind == "f")


def test_sums_have_the_same_bits_in_all_threads_and_runs(library: Library) -> None:
    x = np.random.default_rng(4).standard_normal(1 << 14).astype(np.float32)
    first = library.run("group_OpSum_float", len(x), x, np.empty_like(x)).view(np.uint32)
    assert (first.reshape(-1, 64) == first.reshape(-1, 64)[:, :1]).all()
    again = library.run("group_OpSum_float", len(x), x, np.empty_like(x)).view(np.uint32)
    assert np.array_equal(first, again)


@pytest.mark.parametrize(("op", "reference"), [("OpArgMax", np.argmax), ("OpArgMin", np.argmin)])
def test_places_of_extremes(library: Library, op: str, reference: Any) -> None:
    random = np.random.default_rng(6)
    x = random.integers(-5, 5, (64, 128)).astype(np.float32)
    x[1] = np.inf
    x[2] = -np.inf
    x[3, 77] = np.nan
    x[4, [5, 90]] = np.nan
    x[5] = 0.0
    got = library.run(f"group_{op}", x.size, x, np.empty(x.size, np.int32)).reshape(x.shape)
    assert np.array_equal(got, np.repeat(reference(x, axis=1)[:, None], 128, axis=1))


def test_reductions_with_slots_order_and_flags(library: Library) -> None:
    x = np.random.default_rng(8).integers(-50, 50, 512).astype(np.float32)
    got = library.run("slots", 512, x, np.empty_like(x)).reshape(4, 16, 8)
    wanted = x.reshape(4, 16, 8).sum(axis=1, keepdims=True)
    assert np.array_equal(got, np.broadcast_to(wanted, got.shape))

    whole = np.arange(512, dtype=np.int32) * 7 % 1000
    got = library.run("group_scan", 512, whole, np.empty_like(whole))
    through = np.cumsum(whole.reshape(4, 128), axis=1).ravel()
    assert np.array_equal(got, through)
    for name in ("combine_partials_before", "combine_partials_before_by_lanes"):
        got = library.run(name, 512, whole, np.empty_like(whole))
        assert np.array_equal(got, through - whole)

    words = np.random.default_rng(9).integers(0, 1 << 31, 512).astype(np.uint32)
    got = library.run("ordered", 512, words, np.empty_like(words))
    for block in range(4):
        a, b = 1, 0
        for word in map(int, words[block * 128 : block * 128 + 128]):
            a, b = a * (2 * word + 1) & 0xFFFFFFFF, ((2 * word + 1) * b + word) & 0xFFFFFFFF
        assert (got[block * 128 : block * 128 + 128] == (a ^ b)).all()

    for op, combine in (
        ("OpAnd", np.bitwise_and),
        ("OpOr", np.bitwise_or),
        ("OpXor", np.bitwise_xor),
    ):
        got = library.run(f"bits_{op}", 512, words, np.empty_like(words)).reshape(16, 32)
        reduced = combine.reduce((words ^ words[0]).reshape(16, 32), axis=1, keepdims=True)
        assert np.array_equal(got, np.broadcast_to(reduced, (16, 32))), op

    flags = np.random.default_rng(10).random(512) < 0.5
    flags[:8], flags[8:16] = True, False
    got = library.run("any_all", 512, flags, np.empty(512, np.uint8)).reshape(64, 8)
    groups = flags.reshape(64, 8)
    wanted = groups.any(axis=1) + 2 * groups.all(axis=1).astype(np.uint8)
    assert np.array_equal(got, np.repeat(wanted[:, None], 8, axis=1))


@pytest.mark.parametrize("kind", [*INTEGERS, *FLOATS, "f16_t", "bf16_t"])
def test_atomics(library: Library, kind: str) -> None:
    dtype = np.dtype(checks.DTYPES[kind])
    unsigned = kind.startswith("u")
    small = np.random.default_rng(12).integers(0 if unsigned else -3, 4, 896)
    x = small.astype(dtype)
    start = np.arange(7).astype(dtype)
    groups = small.reshape(128, 7)
    cases = {
        "add": (np.arange(7) + groups.sum(axis=0)).astype(dtype),
        "max": np.maximum(np.arange(7), groups.max(axis=0)).astype(dtype),
        "min": np.minimum(np.arange(7), groups.min(axis=0)).astype(dtype),
    }
    for op, wanted in cases.items():
        # One element behind the seven must stay as it is: small types share a word with it.
        out = np.concatenate([start, np.array([9], dtype)])
        library.run(f"atomic_{op}_{kind}", 896, x, out)
        assert np.array_equal(out[:7].astype(np.float64), wanted.astype(np.float64)), op
        assert float(out[7]) == 9.0


@pytest.mark.parametrize(("kind", "length", "widths"), VECTOR_ATOMICS)
def test_vectors_of_atomics(
    library: Library, kind: str, length: int, widths: tuple[int, ...]
) -> None:
    """Whole vectors, and the first 0 to all elements of each; what lies behind stays as it is."""
    dtype = np.dtype(checks.DTYPES[kind])
    x = np.random.default_rng(13).integers(-3, 4, (896, length))
    start = np.arange(7 * length).reshape(7, length)
    present = np.arange(896)[:, None] % (length + 2) - 1 > np.arange(length)
    for form, given in (("", x), ("_partial", np.where(present, x, 0))):
        wanted = start + given.reshape(128, 7, length).sum(axis=0)
        for width in widths:
            out = np.append(start, 9).astype(dtype)
            library.run(f"atomic_add_vector{form}_{width}_{kind}", 896, x.astype(dtype), out)
            assert np.array_equal(out[:-1].astype(np.float64), wanted.reshape(-1)), (form, width)
            assert float(out[-1]) == 9.0


@pytest.mark.parametrize("kind", [*FLOATS, "f16_t", "bf16_t"])
def test_a_nan_wins_an_atomic_maximum(library: Library, kind: str) -> None:
    dtype = np.dtype(checks.DTYPES[kind])
    x = np.arange(896).astype(np.float32)
    x[100] = np.nan
    for op in ("max", "min"):
        out = np.zeros(7, dtype)
        library.run(f"atomic_{op}_{kind}", 896, x.astype(dtype), out)
        assert np.isnan(float(out[100 % 7])), op
        assert not np.isnan(out.astype(np.float64)[[0, 1, 3, 4, 5, 6]]).any(), op
