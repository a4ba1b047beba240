"""Every sample: interpreter, bounds, check clause and presence annotations against each other."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from tests.reference.samples import WITHOUT_CHECK, Sample, names, sample, written
from tilec.ir import tile_ir as ir
from tilec.ir.printer import print_program
from tilec.ir.symbolic import Sym
from tilec.ir.verifier import verify
from tilec.reference.bounds import compare
from tilec.reference.check import evaluate_check
from tilec.reference.inputs import make_inputs
from tilec.reference.interpreter import Expected, Interpreter
from tilec.reference.numbers import Array, array_shape, storage_dtype
from tilec.reference.tiles import Tile

ALL = names()


def outputs(case: Sample, sizes: dict[str, int]) -> dict[str, Array]:
    """Poisoned arrays for the outputs."""
    arrays = {}
    for tensor in case.program.tensors:
        if tensor.role == "output":
            shape = tuple(d.evaluate(lambda v: sizes[v.name]) for d in tensor.dims)
            dtype = storage_dtype(tensor.dtype)
            fill = np.nan if tensor.dtype.is_float else 0
            arrays[tensor.name] = np.full(array_shape(shape, tensor.dtype), fill, dtype)
    return arrays


def run(
    case: Sample, sizes: dict[str, int], inputs: dict[str, Array]
) -> tuple[dict[str, Array], dict[str, Expected]]:
    """(what the interpreter stored, what it allows)."""
    arrays = {k: v.copy() for k, v in inputs.items()} | outputs(case, sizes)
    machine = Interpreter(case.program, sizes, arrays, case.scalars)
    machine.run()
    bounded = Interpreter(case.program, sizes, inputs, case.scalars, bounds=True)
    bounded.run()
    written_ = [t.name for t in case.program.tensors if t.role in ("output", "inout")]
    stored = {n: machine.memories[n].data for n in written_}
    return stored, {n: bounded.expected(n) for n in written_}


@pytest.mark.parametrize(("file", "name"), ALL)
def test_interpreter_agrees_with_the_check_within_its_bound(file: str, name: str) -> None:
    case = sample(file, name)
    inputs = make_inputs(case.program, case.sizes, case.scalars, seed=3)
    stored, expected = run(case, case.sizes, inputs)
    checked = evaluate_check(
        case.kernel, case.files, case.files.main, case.program, case.sizes, inputs, case.scalars
    )
    assert {c.name for c in checked} == (set() if name in WITHOUT_CHECK else set(stored))
    for check in checked:
        dtype = case.program.tensor(check.name).dtype
        allowed = expected[check.name]
        found = compare(stored[check.name], allowed.value, allowed.bound, dtype)
        assert found.agrees and found.unknown == 0, found.describe()
        # both lie within the bound of the same value
        found = compare(stored[check.name], check.expected, 2 * allowed.bound, dtype)
        assert found.agrees, found.describe()


@pytest.mark.parametrize(("file", "name"), ALL)
def test_analysis_of_presence_agrees_with_index_values(file: str, name: str) -> None:
    case = sample(file, name)
    verify(case.program)
    seen = [0]

    def observe(value: ir.Value, tile: Tile, number: Callable[[Sym], int]) -> None:
        for axis, mask in zip(value.type.axes, tile.present, strict=True):
            extent = number(axis.extent)
            positions = np.arange(extent)
            claimed = np.ones(extent, np.bool_)
            for constraint in axis.presence:
                match constraint:
                    case ir.Below(limit):
                        claimed &= positions < number(limit)
                    case ir.AtLeast(limit):
                        claimed &= positions >= number(limit)
                    case ir.InRange(index, size):
                        chosen = machine.values[index]
                        claimed &= (chosen.data >= 0) & (chosen.data < number(size))
                        if chosen.present[0] is not None:
                            claimed &= chosen.present[0]
            actual = np.ones(extent, np.bool_) if mask is None else mask
            assert (claimed == actual).all(), f"{value} {value.name} of {name}: {axis.presence}"
            seen[0] += 1

    inputs = make_inputs(case.program, case.sizes, case.scalars, seed=5)
    arrays = {k: v.copy() for k, v in inputs.items()} | outputs(case, case.sizes)
    machine = Interpreter(case.program, case.sizes, arrays, case.scalars, observe=observe)
    machine.run()
    assert seen[0] > 0


@pytest.mark.parametrize("size", [0, 1, 2, 7, 13])
@pytest.mark.parametrize(
    ("file", "name", "dims"),
    [
        ("vector_add.tile", "vector_add", ("N",)),
        ("softmax.tile", "softmax", ("R", "C")),
        ("softmax.tile", "online_softmax", ("R", "C")),
        ("norms.tile", "layer_norm", ("R", "C")),
        ("gemm.tile", "gemm_nt", ("M", "N", "K")),
        ("attention.tile", "attention", ("S", "T")),
    ],
)
def test_tiny_and_empty_sizes(file: str, name: str, dims: tuple[str, ...], size: int) -> None:
    case = sample(file, name)
    for dim in dims:
        sizes = case.sizes | {dim: size}
        inputs = make_inputs(case.program, sizes, case.scalars)
        stored, expected = run(case, sizes, inputs)
        checked = evaluate_check(
            case.kernel, case.files, case.files.main, case.program, sizes, inputs, case.scalars
        )
        for check in checked:
            dtype = case.program.tensor(check.name).dtype
            bound = 2 * expected[check.name].bound
            found = compare(stored[check.name], check.expected, bound, dtype)
            assert found.agrees, (dim, size, found.describe())
            assert found.elements == stored[check.name].size


@pytest.mark.parametrize("special", [np.nan, np.inf, -np.inf])
def test_rows_of_nan_and_infinity_follow_numpy(special: float) -> None:
    for name in ("softmax", "online_softmax"):
        case = sample("softmax.tile", name)
        sizes = {"R": 5, "C": 33}
        inputs = make_inputs(case.program, sizes)
        inputs["x"][1, 4] = special
        inputs["x"][3, :] = special
        stored, expected = run(case, sizes, inputs)
        wide = inputs["x"].astype(np.float64)
        with np.errstate(all="ignore"):
            e = np.exp(wide - wide.max(1, keepdims=True))
            reference = e / e.sum(1, keepdims=True)
        found = compare(
            stored["y"], expected["y"].value, expected["y"].bound, case.program.tensor("y").dtype
        )
        assert found.agrees and found.unknown == 0
        if name == "softmax":
            assert (np.isnan(stored["y"].astype(np.float64)) == np.isnan(reference)).all()


def test_products_of_small_integers_are_exact() -> None:
    case = sample("gemm.tile", "gemm_nn")
    generator = np.random.default_rng(0)
    sizes = {"M": 37, "N": 29, "K": 31}
    inputs = make_inputs(case.program, sizes)
    for name in ("a", "b"):
        inputs[name][...] = generator.integers(-2, 3, inputs[name].shape)
    stored, expected = run(case, sizes, inputs)
    exact = inputs["a"].astype(np.int64) @ inputs["b"].astype(np.int64)
    assert (stored["c"].astype(np.int64) == exact).all()
    assert (expected["c"].value == exact).all()


MUTATIONS = {
    "sum": ("e / sum(e)", "e / (sum(e) * 1.01)"),
    "max": ("row - max(row)", "row - min(row)"),
    "edge": ("exp(row - max(row))", "exp(row - max(row)) + 0.001"),
}


@pytest.mark.parametrize("mutation", MUTATIONS)
def test_a_wrong_program_is_noticed(mutation: str) -> None:
    text = """
kernel softmax(x: bf16[R, C]) -> y: bf16[R, C]:
    require C <= 131072
    for r in parallel(R):
        row = x[r, :].to(f32)
        e = exp(row - max(row))
        y[r, :] = e / sum(e)
"""
    right, wrong = written(text, "softmax"), written(text.replace(*MUTATIONS[mutation]), "softmax")
    sizes = {"R": 40, "C": 129}
    inputs = make_inputs(right.program, sizes)
    inputs["x"][0, 0] = 100.0
    _, expected = run(right, sizes, inputs)
    stored, _ = run(wrong, sizes, inputs)
    dtype = right.program.tensor("y").dtype
    assert not compare(stored["y"], expected["y"].value, expected["y"].bound, dtype).agrees


@pytest.mark.parametrize(("file", "name"), ALL)
def test_text_of_a_program_is_deterministic_and_complete(file: str, name: str) -> None:
    case = sample(file, name)
    text = print_program(case.program)
    assert text == print_program(case.program)
    assert text.startswith(f"kernel {name}")
    for tensor in case.program.tensors:
        assert f"{tensor.name} {tensor.dtype}[" in text
