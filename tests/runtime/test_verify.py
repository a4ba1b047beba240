"""Oracles and tolerances, in the parts that no command shows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.runtime.plans import strided
from tilec.ir.dtypes import BF16, F32, U4
from tilec.ir.symbolic import Sym
from tilec.ir.tile_ir import Tensor
from tilec.runtime.arguments import CallSizes
from tilec.runtime.arrays import as_storage, check_lengths, empty_array, load_array, storage_shape
from tilec.runtime.clauses import constants, count, examples, find_kernel
from tilec.runtime.verify import Tolerance, elements, load_reference
from tilec.source.diagnostics import Sink, TileError
from tilec.source.text import Source
from tilec.syntax.parser import parse

SIZES = CallSizes({"M": 2, "N": 3}, {}, {"lda": 5})
X, Q, H, Z = strided().parameters


def test_elements_follow_strides_and_nibbles() -> None:
    flat = np.arange(8, dtype=np.int8)
    assert elements(X, SIZES, flat).tolist() == [[0, 1, 2], [5, 6, 7]]
    packed = np.array([[0x21, 0x43, 0x65], [0x07, 0, 0]], np.uint8)
    assert elements(Q, SIZES, packed).tolist() == [[1, 2, 3, 4, 5, 6], [7, 0, 0, 0, 0, 0]]
    assert elements(X, CallSizes({"M": 0, "N": 3}, {}, {"lda": 5}), flat[:0]).shape == (0, 3)


def test_shapes_of_arrays() -> None:
    env = SIZES.environment
    assert storage_shape(X, env) == (8,)
    assert storage_shape(Q, env) == (2, 3)
    assert storage_shape(Z, env) == (2, 4)
    assert empty_array(X, env).tolist() == [-91] * 8
    assert np.isnan(empty_array(Tensor("f", F32, (Sym.of(2),), "output"), {})).all()


def test_a_buffer_shorter_than_its_strides_is_refused() -> None:
    check_lengths(strided(), SIZES, {"x": np.zeros(8, np.int8)})
    with pytest.raises(TileError) as error:
        check_lengths(strided(), SIZES, {"x": np.zeros(7, np.int8)})
    assert error.value.diagnostics[0].code == "E0714"


def test_narrow_floats_from_files(tmp_path) -> None:
    import ml_dtypes

    tensor = Tensor("x", BF16, (Sym.of(3),), "input")
    values = np.array([1.0, 2.5, -3.0], ml_dtypes.bfloat16)
    for name, array in (("own", values), ("bits", values.view(np.uint16))):
        np.save(tmp_path / name, array)
        assert np.array_equal(load_array(str(tmp_path / f"{name}.npy"), tensor), values)
    for wrong in (np.zeros(3, np.float32), np.zeros(3, np.uint8)):
        with pytest.raises(TileError, match="`x` is bf16"):
            as_storage(wrong, tensor, "w.npy")
    with pytest.raises(TileError, match="`q` is u4"):
        as_storage(np.zeros(3, np.int8), Tensor("q", U4, (Sym.of(3),), "input"), "w.npy")


def test_objects_and_archives_are_refused(tmp_path) -> None:
    np.save(tmp_path / "o.npy", np.array([{}], object), allow_pickle=True)
    np.savez(tmp_path / "z.npz", a=np.zeros(1))
    for name in ("o.npy", "z.npz"):
        with pytest.raises(TileError) as error:
            load_array(str(tmp_path / name), X)
        assert error.value.diagnostics[0].code == "E0714"


def test_clauses() -> None:
    text = """\
const K = 4
const BIG = K * 256
kernel f(x: f32[N]) -> y: f32[N]:
    for i in parallel(N by 4):
        y[i] = x[i]
    flops 2 * N * ceildiv(N, K) + min(N, 3)
    example N = BIG + 2 ** 3
    example N = -1 if K > 3 else 7
    example cpu N = K // 3
"""
    sink = Sink()
    module = parse(Source("c.tile", text), sink)
    sink.raise_if_errors()
    kernel = find_kernel(module, "f")
    assert kernel is not None
    known = constants(module)
    assert known == {"K": 4, "BIG": 1024}
    assert examples(kernel, "", known) == [{"N": 1032}, {"N": -1}]
    assert examples(kernel, "cpu", known) == [{"N": 1}]
    assert count(kernel, "flops", {**known, "N": 10}) == 2 * 10 * 3 + 3
    assert count(kernel, "bytes", known) is None
    with pytest.raises(TileError, match="`flops` speaks of something"):
        count(kernel, "flops", {})
    with pytest.raises(TileError, match="no constant"):
        examples(kernel, "", {})
    assert find_kernel(module, "g") is None


def test_tolerances_in_words() -> None:
    assert str(Tolerance()) == "numerics bound"
    assert str(Tolerance(rtol=0.01)) == "rtol 0.01, atol 0"
    assert Tolerance(atol=0.0).given


def test_references_are_functions_of_modules() -> None:
    assert load_reference("math:sqrt")(4) == 2
    for wrong in ("math", ":sqrt", "math:", "math:pi", "math:nothing", "no_module_here:f"):
        with pytest.raises(TileError) as error:
            load_reference(wrong)
        assert error.value.diagnostics[0].code == "E0718"
