"""`--require`: what was lost, why, and what to change."""

from __future__ import annotations

from pathlib import Path

import pytest

from tilec.cli import main
from tilec.jobs.compiling import CompileRequest, run_compile
from tilec.jobs.explaining import ExplainRequest, explain_file
from tilec.jobs.requiring import parse_required
from tilec.jobs.running import RunRequest, run_files
from tilec.source.diagnostics import Diagnostic, TileError

SAMPLES = Path(__file__).resolve().parents[2] / "samples"
ALL = "tma,wgmma,pipelined,vec16"


def lost(path: Path | str, kernel: str, arch: str, wanted: str, *defines: str) -> list[Diagnostic]:
    """The messages of compiling with `--require`, and nothing was written."""
    request = CompileRequest(
        str(path), kernel, "/nowhere/out.cu", defines, (arch,), required=(wanted,)
    )
    with pytest.raises(TileError) as error:
        run_compile(request)
    found = list(error.value.diagnostics)
    assert {one.code for one in found} == {"E0651"} and error.value.exit_code == 1
    return found


def names(found: list[Diagnostic]) -> list[str]:
    return [one.notes[0].split("`")[1] for one in found]


def sample(name: str) -> Path:
    return SAMPLES / f"{name}.tile"


@pytest.mark.parametrize(
    ("file", "kernel", "arch", "wanted"),
    [
        ("gemm", "gemm_nn", "sm_90a", ALL),
        ("gemm_bias_gelu", "gemm_bias_gelu", "sm_90a", ALL),
        ("attention", "attention", "sm_90a", ALL),
        ("gemm", "gemm_nt", "sm_80", "pipelined,vec16"),
        ("softmax", "softmax", "sm_80", "vec16"),
    ],
)
def test_what_is_there_is_no_error(
    file: str, kernel: str, arch: str, wanted: str, tmp_path: Path
) -> None:
    output = tmp_path / "out.cu"
    request = CompileRequest(
        str(sample(file)), kernel, str(output), (), (arch,), required=(wanted,)
    )
    run_compile(request)
    assert output.is_file()


def test_the_target_has_no_such_form() -> None:
    found = lost(sample("gemm"), "gemm_nn", "sm_80", ALL)
    assert names(found) == ["tma", "wgmma"]
    assert "sm_90a alone, and this is sm_80" in found[0].message
    assert found[0].span is not None and found[0].span.line == 7
    assert "--arch sm_90a" in found[0].helps[0]


def test_an_operand_that_is_computed(tmp_path: Path) -> None:
    """On the way where there are no warpgroups; ahead, by a launch of its own, where there are."""
    found = lost(sample("quantised"), "gemm_w4a16", "sm_90", ALL)
    assert names(found) == ["tma", "wgmma", "pipelined", "vec16"]
    assert "its elements are computed on the way" in found[2].message
    assert "`w` is loaded" in found[3].message
    output = tmp_path / "out.cu"
    run_compile(
        CompileRequest(
            str(sample("quantised")), "gemm_w4a16", str(output), (), ("sm_90a",), required=(ALL,)
        )
    )
    assert output.is_file()


def test_no_room_for_two_slots() -> None:
    found = lost(
        sample("gemm"), "gemm_nn", "sm_75", "pipelined", "T=f16", "BM=128", "BN=128", "BK=128"
    )
    assert names(found) == ["pipelined"]
    assert "it has one slot" in found[0].message and "smaller tiles" in found[0].helps[0]


PROGRAM = """
kernel one[BR = 8, BC = 64](x: f32[{dims}]) -> y: f32[R, C]:
    for i, j in parallel(R by BR, C by BC):
        y[i, j] = x[{subscripts}]{transposed}

    check y == y
"""


def test_neighbours_in_different_threads(tmp_path: Path) -> None:
    path = tmp_path / "across.tile"
    path.write_text(PROGRAM.format(dims="C, R", subscripts="j, i", transposed=".T"))
    found = lost(path, "one", "sm_90", "vec16")
    (message,) = [one.message for one in found]
    assert "at a time" in message and ("`x` is loaded" in message or "`y` is stored" in message)
    path.write_text(PROGRAM.format(dims="R, C", subscripts="i, j", transposed=""))
    run_compile(
        CompileRequest(
            str(path), output=str(tmp_path / "o.cu"), archs=("sm_90",), required=("vec16",)
        )
    )
    assert (tmp_path / "o.cu").is_file()


def test_a_kernel_without_a_product() -> None:
    found = lost(sample("softmax"), "softmax", "sm_90a", "pipelined")
    assert "it has no product" in found[0].message
    # the second nest of a split product has none, but the kernel has
    (split,) = {
        one.message
        for one in lost(sample("matrix_vector_and_groups"), "gemm_split_k", "sm_90", "tma")
    }
    assert "sm_90a alone" in split


def test_explain_and_run_ask_the_same(capsys: pytest.CaptureFixture[str]) -> None:
    path = str(sample("gemm"))
    with pytest.raises(TileError) as error:
        explain_file(ExplainRequest(path, "gemm_nn", arch="sm_80", required=("wgmma",)))
    assert [d.code for d in error.value.diagnostics] == ["E0651"]
    assert explain_file(ExplainRequest(path, "gemm_nn", arch="sm_90a", required=(ALL,))) == 0
    request = RunRequest(path, "gemm_nn", device="cpu", arch="sm_80", required=("wgmma",))
    assert run_files(request) == 1
    assert "E0651" in capsys.readouterr().err


def test_names_and_their_order() -> None:
    assert parse_required(()) == ()
    assert parse_required(("vec16, tma", "wgmma")) == ("tma", "wgmma", "vec16")
    with pytest.raises(TileError) as error:
        parse_required(("tma,fast",))
    assert error.value.diagnostics[0].code == "E0726" and error.value.exit_code == 2


@pytest.mark.parametrize(
    "arguments",
    [
        ("compile", "--require", "tma", "--emit", "tile-ir"),
        ("run", "--require", "tma", "--device", "reference"),
    ],
)
def test_there_must_be_compiled_code(
    arguments: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        main([arguments[0], str(sample("gemm")), *arguments[1:]])
    assert stopped.value.code == 2
    assert "E0709" in capsys.readouterr().err
