"""Every sample through analysis: the verifier accepts it, and the presence that analysis wrote is the presence that the
interpreter finds from index values. Sizes are ragged, tiles small."""

from __future__ import annotations

from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from tilec.analysis.analyse import analyse
from tilec.analysis.checks import analyse_checks
from tilec.ir import tile_ir as ir
from tilec.ir.printer import print_program
from tilec.ir.verifier import verify
from tilec.plan.parameters import make_candidate
from tilec.reference.interpreter import Interpreter
from tilec.reference.numbers import storage_dtype
from tilec.source.diagnostics import Sink
from tilec.syntax import ast
from tilec.syntax.loading import load

SAMPLES = Path(__file__).parents[2] / "samples"

STARTS = np.array([0, 3, 3, 11, 13], np.int32)
TOKENS = np.array([4, 0, -1, 2, 6, -1, 1, 99, 3, 5, 0], np.int32)

RUNS: list[tuple[str, str, dict[str, str], dict[str, int], dict[str, object]]] = [
    ("vector_add", "vector_add", {"BN": "8"}, {"N": 21}, {}),
    ("vector_add", "vector_add", {"BN": "8"}, {"N": 0}, {}),
    ("softmax", "softmax", {}, {"R": 3, "C": 7}, {}),
    ("softmax", "online_softmax", {"BC": "4"}, {"R": 3, "C": 7}, {}),
    ("norms", "layer_norm", {}, {"R": 3, "C": 5}, {}),
    ("norms", "rms_norm_residual", {}, {"R": 3, "C": 5}, {}),
    ("gemm", "gemm_nn", {"BM": "4", "BN": "8", "BK": "2"}, {"M": 5, "N": 9, "K": 7}, {}),
    ("gemm", "gemm_nt", {"BM": "4", "BN": "8", "BK": "2"}, {"M": 5, "N": 9, "K": 7}, {}),
    ("gemm_bias_gelu", "gemm_bias_gelu", {"BM": "4", "BN": "8", "BK": "2"}, {"M": 5, "N": 9, "K": 0}, {}),
    ("gemm_bias_relu", "gemm_bias_relu", {"BM": "4", "BN": "8", "BK": "2"}, {"M": 5, "N": 9, "K": 7}, {}),
    ("attention", "attention", {"D": "4", "BM": "4", "BN": "2", "CAUSAL": "true"}, {"B": 1, "H": 2, "S": 5, "T": 9}, {}),
    ("attention", "attention", {"D": "4", "BM": "4", "BN": "2", "CAUSAL": "true"}, {"B": 1, "H": 2, "S": 9, "T": 5}, {}),
    ("attention", "attention", {"D": "4", "BM": "4", "BN": "2", "G": "2"}, {"B": 1, "H": 2, "S": 5, "T": 7}, {}),
    ("attention_variants", "sliding_window", {"D": "4", "BM": "4", "BN": "2", "WINDOW": "3"}, {"B": 1, "H": 1, "S": 13}, {}),
    ("attention_variants", "soft_cap_alibi", {"D": "4", "BM": "4", "BN": "2"}, {"B": 1, "H": 1, "S": 7}, {}),
    ("attention_variants", "packed", {"D": "4", "BM": "4", "BN": "2"}, {"TOTAL": 13, "H": 1, "NSEQ1": 5}, {"starts": STARTS, "longest": 8}),
    ("decode", "flash_decode", {"D": "4", "BN": "2", "SPLITS": "3", "G": "2"}, {"B": 2, "H": 4, "T": 9}, {"length": np.array([5, 9], np.int32)}),
    ("matrix_vector_and_groups", "gemv", {"BM": "2", "BK": "4"}, {"M": 5, "K": 7}, {}),
    ("matrix_vector_and_groups", "gemm_split_k", {"BM": "4", "BN": "8", "BK": "2", "SPLITS": "2"}, {"M": 5, "N": 9, "K": 7}, {}),
    ("matrix_vector_and_groups", "grouped_gemm", {"BM": "4", "BN": "8", "BK": "2"}, {"ROWS": 13, "K": 3, "E": 4, "N": 9, "E1": 5}, {"starts": STARTS, "longest": 8}),
    ("matrix_vector_and_groups", "moe_swiglu", {"BM": "4", "BN": "8", "BK": "2"}, {"TOKENS": 7, "K": 3, "E": 2, "N": 9, "ROWS": 11}, {"token": TOKENS, "expert_of_block": np.array([0, 1, 1], np.int32)}),
    ("quantised", "gemm_w4a16", {"BM": "4", "BN": "8", "BK": "2", "GROUP": "4"}, {"M": 5, "N": 9, "K": 12}, {}),
    ("quantised", "gemm_fp8_blocks", {"BM": "4", "BN": "8", "BK": "128"}, {"M": 5, "N": 9, "K": 200}, {}),
    ("quantised", "cast_fp8_rows", {}, {"R": 3, "C": 5}, {}),
]  # fmt: skip


def analysed(file: str, kernel_name: str, options: dict[str, str]) -> ir.Program:
    files = load(str(SAMPLES / f"{file}.tile"))
    kernel = next(
        i for i in files.main.items if isinstance(i, ast.Kernel) and i.name == kernel_name
    )
    sink = Sink()
    candidate = make_candidate(kernel, files.scope(files.main), options, sink)
    assert candidate is not None, sink.diagnostics
    program = analyse(files, kernel, files.main, candidate, sink)
    checks = analyse_checks(files, kernel, files.main, candidate, sink)
    assert sink.diagnostics == []
    assert program is not None
    assert (checks is not None) == any(isinstance(c, ast.Check) for c in kernel.clauses)
    return program


def mask(axis: ir.Axis, extent: int, interpreter: Interpreter) -> np.ndarray:
    """The coordinates that analysis says are present."""
    r = np.arange(extent)
    present = np.ones(extent, bool)
    for constraint in axis.presence:
        match constraint:
            case ir.Below(limit):
                present &= r < interpreter.number(limit)
            case ir.AtLeast(limit):
                present &= r >= interpreter.number(limit)
            case ir.InRange(index, size):
                tile = interpreter.values[index]
                inside = (tile.data >= 0) & (tile.data < interpreter.number(size))
                if tile.present and tile.present[0] is not None:
                    inside &= tile.present[0]
                present &= inside
    return present


def run_and_compare(
    program: ir.Program, sizes: dict[str, int], given: dict[str, object]
) -> tuple[int, dict[str, np.ndarray]]:
    """Runs the program; the number of axes whose presence was compared, and its arrays."""
    random = np.random.default_rng(1)
    value_of = {**sizes}
    arrays: dict[str, np.ndarray] = {}
    for tensor in program.tensors:
        if tensor.role == "temp":
            continue
        shape = tuple(
            d.evaluate(lambda v: program.tiles[v.name] if v.kind == "tile" else value_of[v.name])
            for d in tensor.dims
        )
        if tensor.name in given:
            arrays[tensor.name] = np.asarray(given[tensor.name])
            assert arrays[tensor.name].shape == shape
        elif tensor.dtype.bits == 4:
            packed = (*shape[:-1], shape[-1] // 2)
            arrays[tensor.name] = random.integers(0, 256, packed).astype(np.uint8)
        else:
            numbers = random.standard_normal(shape)
            arrays[tensor.name] = numbers.astype(storage_dtype(tensor.dtype))
    scalars: dict[str, float | int] = {}
    for s in program.scalars:
        number = given.get(s.name, 0.5)
        assert isinstance(number, float | int)
        scalars[s.name] = number
    compared = 0

    def observe(value: ir.Value, tile: object, number: object) -> None:
        nonlocal compared
        found = interpreter.values[value.id]
        for n, axis in enumerate(value.type.axes):
            extent = found.data.shape[n]
            assert extent == interpreter.number(axis.extent)
            assert axis.capacity is not None and extent <= axis.capacity
            seen = found.present[n] if found.present else None
            seen = np.ones(extent, bool) if seen is None else np.broadcast_to(seen, (extent,))
            stated = mask(axis, extent, interpreter)
            assert (stated == seen).all(), f"{value} {value.name} axis {n}: {axis.presence}"
            compared += 1

    interpreter = Interpreter(program, sizes, arrays, scalars, observe=observe)
    interpreter.run()
    return compared, arrays


@pytest.mark.parametrize(
    ("file", "kernel", "options", "sizes", "given"),
    RUNS,
    ids=[f"{r[1]}-{n}" for n, r in enumerate(RUNS)],
)
def test_presence_agrees_with_the_interpreter(
    file: str, kernel: str, options: dict[str, str], sizes: dict[str, int], given: dict[str, object]
) -> None:
    program = analysed(file, kernel, options)
    verify(program)
    compared, arrays = run_and_compare(program, sizes, given)
    assert compared > 0 or 0 in sizes.values()
    assert print_program(program) == print_program(analysed(file, kernel, options))
    outputs = [t for t in program.tensors if t.role == "output"]
    assert all(arrays[t.name].shape for t in outputs)


def test_gemm_of_small_integers_is_exact() -> None:
    program = analysed("gemm", "gemm_nt", {"BM": "4", "BN": "8", "BK": "2"})
    random = np.random.default_rng(2)
    a = random.integers(-4, 5, (5, 7)).astype(ml_dtypes.bfloat16)
    b = random.integers(-4, 5, (9, 7)).astype(ml_dtypes.bfloat16)
    c = np.full((5, 9), 77, ml_dtypes.bfloat16)
    Interpreter(program, {"M": 5, "N": 9, "K": 7}, {"a": a, "b": b, "c": c}).run()
    assert (c.astype(np.float64) == a.astype(np.float64) @ b.astype(np.float64).T).all()


def test_causal_attention_is_softmax_over_the_keys_seen() -> None:
    program = analysed("attention", "attention", {"D": "4", "BM": "4", "BN": "2", "CAUSAL": "true"})
    random = np.random.default_rng(3)
    b, h, s, t, d = 1, 2, 5, 9, 4
    q, k, v = (random.standard_normal((b, h, n, d)).astype(ml_dtypes.bfloat16) for n in (s, t, t))
    o = np.zeros((b, h, s, d), ml_dtypes.bfloat16)
    lse = np.zeros((b, h, s), np.float32)
    arrays = {"q": q, "k": k, "v": v, "o": o, "lse": lse}
    Interpreter(program, {"B": b, "H": h, "S": s, "T": t}, arrays, {"scale": 0.5}).run()
    wide = {n: x.astype(np.float64) for n, x in arrays.items()}
    scores = wide["q"] @ wide["k"].swapaxes(2, 3) * 0.5
    scores = np.where(np.arange(s)[:, None] + (t - s) >= np.arange(t)[None, :], scores, -np.inf)
    p = np.exp(scores - scores.max(axis=3, keepdims=True))
    expected = p @ wide["v"] / p.sum(axis=3, keepdims=True)
    assert np.abs(wide["o"] - expected).max() < 0.02
    assert np.abs(wide["lse"] - np.log(np.exp(scores).sum(axis=3))).max() < 1e-3


def test_an_expert_block_of_a_page_is_read_once() -> None:
    text = print_program(analysed("quantised", "gemm_w4a16", {}))
    assert "load scale[span(BN*j.2, BN, 0, N), (BK*k.3) // 128]" in text
    assert "K % 128" in text
