"""The compiled samples on the emulator: verified at ragged sizes, counted, and broken on purpose."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tests.emulator.running import cu_of
from tilec.compiled import CompiledFile
from tilec.compiler import compile_file
from tilec.emulator.library import Mode, Schedule
from tilec.emulator.machine import Emulator
from tilec.emulator.text import kernel_texts, place_of, unit
from tilec.jobs.running import RunRequest, run_files
from tilec.reference.inputs import make_inputs
from tilec.resources import cache_directory
from tilec.runtime.arguments import bind_sizes
from tilec.runtime.gpu_run import prepare_call
from tilec.source.diagnostics import TileError
from tilec.toolchain.cache import default_cache

SAMPLES = Path(__file__).parents[2] / "samples"

COMPILED = [
    ("vector_add", "vector_add"),
    ("softmax", "softmax"),
    ("softmax", "online_softmax"),
    ("norms", "layer_norm"),
    ("quantised", "cast_fp8_rows"),
    ("matrix_vector_and_groups", "gemv"),
]


def outcomes(path: Path, **options: Any) -> list[dict[str, Any]]:
    """What `tilec run --device cpu` writes as JSON."""
    written = path / "outcomes.json"
    run_files(RunRequest(device="cpu", json_path=str(written), **options))
    found: list[dict[str, Any]] = json.loads(written.read_text(encoding="utf-8"))["outcomes"]
    return found


@pytest.mark.parametrize(("file", "kernel"), COMPILED)
@pytest.mark.parametrize("order", [{}, {"early": True}])
def test_samples_verify_at_ragged_sizes(
    file: str, kernel: str, order: dict[str, Any], tmp_path: Path
) -> None:
    found = outcomes(
        tmp_path, file=str(SAMPLES / f"{file}.tile"), kernel=kernel, small=True, **order
    )
    assert len(found) >= 15
    assert {o["status"] for o in found} == {"ok"}
    assert {o["device"] for o in found} == {"emulator"}
    assert all("interpreter" in " ".join(o["verified"]) for o in found)


PRODUCTS = [
    ("gemm", "gemm_nn"),
    ("gemm", "gemm_nt"),
    ("gemm_bias_gelu", "gemm_bias_gelu"),
    ("gemm_bias_relu", "gemm_bias_relu"),
    ("attention", "attention"),
    ("attention_variants", "packed"),
    ("conv2d", "conv2d"),
    ("decode", "flash_decode"),
    ("matrix_vector_and_groups", "gemm_split_k"),
    ("matrix_vector_and_groups", "moe_swiglu"),
]


@pytest.mark.parametrize(("file", "kernel"), PRODUCTS)
def test_products_verify(file: str, kernel: str, tmp_path: Path) -> None:
    for order in ({}, {"early": True}):
        found = outcomes(tmp_path, file=str(SAMPLES / f"{file}.tile"), kernel=kernel, **order)
        assert {o["status"] for o in found} == {"ok"}, order


@pytest.mark.parametrize(
    "sizes", [("M=1", "N=8", "K=8"), ("M=129", "N=61", "K=33"), ("M=7", "N=0", "K=5")]
)
def test_products_verify_at_ragged_sizes(sizes: tuple[str, ...], tmp_path: Path) -> None:
    file = str(SAMPLES / "gemm.tile")
    found = outcomes(tmp_path, file=file, settings=sizes, chaos=3)
    assert [o["status"] for o in found] == ["ok", "ok"]


@pytest.mark.parametrize(
    ("defines", "sizes"),
    [
        (("STRIDE=2", "PAD=0", "R=2", "S=5"), ("N=2", "H=9", "W=70", "C=24", "K=40")),
        (("STRIDE=3", "PAD=2", "R=1", "S=1"), ("N=1", "H=4", "W=5", "C=7", "K=3")),
        (("PAD=4",), ("N=1", "H=1", "W=1", "C=8", "K=8")),
    ],
)
def test_convolutions_of_other_shapes(
    defines: tuple[str, ...], sizes: tuple[str, ...], tmp_path: Path
) -> None:
    file = str(SAMPLES / "conv2d.tile")
    found = outcomes(tmp_path, file=file, defines=defines, settings=sizes, arch="sm_80")
    assert [o["status"] for o in found] == ["ok"]


@pytest.mark.parametrize("seed", [1, 2])
def test_samples_verify_in_a_random_order(seed: int, tmp_path: Path) -> None:
    found = outcomes(tmp_path, file=str(SAMPLES / "norms.tile"), chaos=seed)
    assert {o["status"] for o in found} == {"ok"}


# ---- counters


def counted(path: Path, file: str, kernel: str, *settings: str) -> dict[tuple[int, str], list[int]]:
    """Requests, units and least units by line and kind."""
    (outcome,) = outcomes(
        path, file=str(SAMPLES / f"{file}.tile"), kernel=kernel, settings=settings, counters=True
    )
    assert outcome["status"] == "ok"
    return {
        (c["line"], c["kind"]): [c["requests"], c["units"], c["least"]] for c in outcome["counters"]
    }


def test_vector_add_moves_whole_sectors_in_16_byte_accesses(tmp_path: Path) -> None:
    # 4096 floats: 32 requests of 512 bytes, 16 sectors each; two inputs, one output
    assert counted(tmp_path, "vector_add", "vector_add", "N=4096") == {
        (4, "load"): [64, 1024, 1024],
        (4, "store"): [32, 512, 512],
    }


def test_softmax_reads_and_writes_each_row_once(tmp_path: Path) -> None:
    # 8 rows of 2048 bf16: 4 KB each, 8 requests of 512 bytes; a row is two warps'
    found = counted(tmp_path, "softmax", "softmax", "R=8", "C=2048")
    assert found[(4, "load")] == [64, 1024, 1024]
    assert found[(6, "store")] == [64, 1024, 1024]
    # one partial a warp is stored, and each warp reads two: no bank conflicts
    for line in (5, 6):
        assert found[(line, "shared store")] == [16, 16, 16]
        assert found[(line, "shared load")] == [32, 32, 32]


def test_norms_count(tmp_path: Path) -> None:
    found = counted(tmp_path, "norms", "layer_norm", "R=8", "C=2048")
    assert found[(4, "load")] == [64, 1024, 1024]
    # weight and bias are read once for each row, and the row is stored
    assert found[(8, "load")] == [128, 2048, 2048]
    assert found[(8, "store")] == [64, 1024, 1024]
    assert found[(9, "store")][0] == found[(10, "store")][0] == 8
    assert all(units == least for (_, kind), (_, units, least) in found.items() if "shared" in kind)


# ---- kernels broken on purpose


@pytest.fixture(scope="module")
def softmax() -> CompiledFile:
    return compile_file(str(SAMPLES / "softmax.tile"), archs=("sm_80",), command="")


def run_text(
    compiled: CompiledFile, cu: str, kernel: str, sizes: dict[str, str], mode: Mode = "late"
) -> None:
    """Runs one call with the kernel text of `cu`. Raises TileError at a fault."""
    found = compiled.kernel(kernel)
    bound = bind_sizes(found.plan, sizes, {})
    arrays = make_inputs(found.program, bound.numbers, dict(bound.scalars), 0)
    emulator = Emulator("sm_80", Schedule(mode), cache=default_cache())
    module = emulator.module("softmax.cu", cu)
    with prepare_call(emulator, found.plan, module, bound, arrays) as call:
        call.launch()
        call.check_surroundings()


def without(cu: str, number: int, pattern: str) -> str:
    """`cu` with the line of one match blanked, so that all others keep their number."""
    lines = cu.splitlines(keepends=True)
    places = [i for i, text in enumerate(lines) if re.search(pattern, text)]
    lines[places[number]] = "\n"
    return "".join(lines)


def test_each_barrier_of_softmax_is_needed(softmax: CompiledFile) -> None:
    run_text(softmax, softmax.cu, "softmax", {"R": "3", "C": "2048"})
    barriers = [
        i for i, text in enumerate(softmax.cu.splitlines(), 1) if "__syncthreads();" in text
    ]
    found = []
    for number in range(2):
        cu = without(softmax.cu, number, r"__syncthreads\(\);")
        with pytest.raises(TileError) as caught:
            run_text(softmax, cu, "softmax", {"R": "3", "C": "2048"})
        (message,) = caught.value.diagnostics
        assert message.code == "E0933"
        found.append(message.message)
        assert place_of(cu, barriers[number]) is not None
    assert "softmax.tile:5" in found[0] and "softmax.tile:6" in found[1]


def test_each_barrier_wait_and_commit_of_a_product_is_needed() -> None:
    product = compile_file(
        str(SAMPLES / "gemm.tile"), kernel="gemm_nt", archs=("sm_80",), command=""
    )
    sizes = {"M": "200", "N": "136", "K": "136"}
    run_text(product, product.cu, "gemm_nt", sizes)
    # the first body is the one for aligned operands, which runs here
    text = kernel_texts(product.cu)[0].text
    body = text[: text.index("void gemm_nt_body_2(")]
    found = []
    for pattern in (r"__syncthreads\(\);", r"cp_async_wait<", r"cp_async_commit\("):
        for number in range(len(re.findall(pattern, body))):
            for mode in ("late", "early"):
                with pytest.raises(TileError) as caught:
                    cu = without(product.cu, number, "  " + pattern)
                    run_text(product, cu, "gemm_nt", sizes, mode)
                found.append(caught.value.diagnostics[0].code)
    assert len(found) >= 8 and set(found) == {"E0933", "E0938"}


def test_a_loop_without_its_barriers_is_a_race(softmax: CompiledFile) -> None:
    texts = kernel_texts(softmax.cu)
    assert "online_softmax_body" in texts[1].text
    cu = softmax.cu.replace(texts[1].text, re.sub(r"__syncthreads\(\);", ";", texts[1].text))
    with pytest.raises(TileError) as caught:
        run_text(softmax, cu, "online_softmax", {"R": "2", "C": "9000"})
    (message,) = caught.value.diagnostics
    assert message.code == "E0933" and re.search(r"softmax\.tile:(19|2\d)", message.message)


def test_a_bound_that_is_lost_is_found(softmax: CompiledFile) -> None:
    text = "if (live && c_at < C) {"
    assert text in softmax.cu
    with pytest.raises(TileError) as caught:
        run_text(
            softmax, softmax.cu.replace(text, "if (live) {"), "softmax", {"R": "3", "C": "264"}
        )
    (message,) = caught.value.diagnostics
    assert message.code == "E0930" and "behind `x`" in message.message
    assert "at softmax.tile:4" in message.message


def test_a_store_to_an_input_is_found(softmax: CompiledFile) -> None:
    cu = softmax.cu.replace("bf16_t* const y_at = y", "bf16_t* const y_at = (bf16_t*)x")
    with pytest.raises(TileError) as caught:
        run_text(softmax, cu, "softmax", {"R": "3", "C": "264"})
    (message,) = caught.value.diagnostics
    assert (
        message.code == "E0930" and "writes to the input `x` at softmax.tile:6" in message.message
    )


# ---- the text and what is built


def test_the_kernel_text_is_compiled_as_it_stands(softmax: CompiledFile) -> None:
    for text in kernel_texts(softmax.cu):
        assert text.text in softmax.cu
        assert text.text in unit(text, "softmax_kernel", "softmax.cu")
        assert softmax.cu.splitlines()[text.line - 1] == text.text.splitlines()[0]


def test_text_that_the_host_compiler_rejects_is_a_fault_of_tilec() -> None:
    emulator = Emulator("sm_80", cache=None)
    with pytest.raises(TileError) as caught:
        emulator.module("x.cu", cu_of("int n\nno_such_primitive(n);")).kernel("k")
    (message,) = caught.value.diagnostics
    assert message.code == "E7003" and caught.value.exit_code == 70
    assert "no_such_primitive" in message.notes[0]


def test_a_kernel_is_built_once(softmax: CompiledFile, monkeypatch: pytest.MonkeyPatch) -> None:
    import tilec.emulator.build as build

    emulator = Emulator("sm_80", cache=default_cache())
    emulator.module("softmax.cu", softmax.cu).kernel("softmax_kernel_c1024")
    assert (cache_directory() / "emulator").is_dir()

    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("the compiler ran again")

    monkeypatch.setattr(build, "run_tool", refuse)
    emulator.module("softmax.cu", softmax.cu).kernel("softmax_kernel_c1024")


def test_the_command_line_says_what_belongs_to_the_emulator() -> None:
    file = str(SAMPLES / "vector_add.tile")
    for request in (
        RunRequest(file=file, early=True),
        RunRequest(file=file, chaos=1, device="reference"),
        RunRequest(file=file, early=True, chaos=1, device="cpu"),
        RunRequest(file=file, bench=True, device="cpu"),
    ):
        with pytest.raises(TileError) as caught:
            run_files(request)
        assert caught.value.diagnostics[0].code == "E0709"


def test_an_index_out_of_range_is_a_fault_of_the_program(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The kernel is stopped first, and would have us say that tilec is wrong."""
    text = "kernel k[B = 32](x: f32[R, C]) -> y: f32[R, C]:\n    for r, c in parallel(R, C by B):\n        y[r, c] = x[r - 1, c]\n"
    path = tmp_path / "k.tile"
    path.write_text(text, encoding="utf-8")
    found = outcomes(tmp_path, file=str(path), settings=("R=3", "C=40"))
    assert [o["status"] for o in found] == ["failed"]
    assert "error[E0902]: index -1 of dimension 0 of `x`" in capsys.readouterr().err
