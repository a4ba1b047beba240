"""`tilec explain`: what it says follows from what was emitted; the texts of the samples are golden files."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tilec.compiled import CompiledFile
from tilec.compiler import compile_file
from tilec.ir import kernel_ir as k
from tilec.jobs.explaining import (
    ExplainRequest,
    explain_compiled,
    explain_file,
)
from tilec.jobs.rejected import rejected_candidates
from tilec.source.diagnostics import TileError

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def compiled(file: str, **defines: str) -> CompiledFile:
    return compile_file(str(SAMPLES / file), archs=("sm_90",), defines=defines, stop="kernel-ir")


def notes(found: CompiledFile, variant: int, what: str) -> dict[int, list[dict]]:
    """Notes of one kind by line."""
    lines = found.kernels[0].manifest["targets"]["sm_90"][variant]["lines"]
    chosen = {e["at"]: [n for n in e["notes"] if n["what"] == what] for e in lines}
    return {line: entries for line, entries in chosen.items() if entries}


def count(ops: tuple[k.Op, ...], kind: type) -> int:
    inner = [getattr(op, n, ()) for op in ops for n in ("body", "then", "otherwise")]
    return sum(isinstance(op, kind) for op in ops) + sum(
        count(body, kind) for body in inner if body
    )


def test_transports_follow_the_variant() -> None:
    found = compiled("gemm.tile")
    fast, general = (notes(found, n, "load") for n in (0, 1))
    assert {n["transport"].split(",")[0] for n in fast[7]} == {"cp.async 16 B to shared memory"}
    assert {n["tensor"] for n in fast[7]} == {"a", "b"}
    assert all(n["transport"].startswith("elements one by one") for n in general[7])
    kernels = found.kernels[0].lowered["sm_90"]
    assert count(kernels[0].body, k.CopyAsync) and not count(kernels[1].body, k.CopyAsync)
    conditions = [v["condition"] for v in found.kernels[0].manifest["targets"]["sm_90"]]
    assert "K % 8 == 0" in conditions[0] and conditions[1] == "always"


def test_every_barrier_has_a_hazard_and_a_line() -> None:
    found = compiled("attention.tile")
    variant = found.kernels[0].manifest["targets"]["sm_90"][0]
    emitted = count(found.kernels[0].lowered["sm_90"][0].body, k.CtaSync)
    assert len(variant["barriers"]) == emitted >= 2
    said = [n["hazard"] for entries in notes(found, 0, "barrier").values() for n in entries]
    assert set(said) == set(variant["barriers"])


def test_masks_of_a_causal_loop() -> None:
    masks = notes(compiled("attention.tile", CAUSAL="true"), 0, "masks")
    assert [n["how"] for n in masks[15]] == ["selected in the edge trips only"]
    assert "removed in the trips" in masks[12][0]["how"]
    assert 15 not in notes(compiled("attention.tile"), 0, "masks")


def test_products_and_their_waste(tmp_path: Path) -> None:
    products = compiled("gemm.tile").kernels[0].manifest["targets"]["sm_90"][0]["products"]
    assert products["warps"] == products["warps_along"] * products["warps_across"]
    assert products["padding_waste"] == 0
    assert [i["instruction"] for i in products["instructions"]] == ["mma.m16n8k16"]
    odd = compiled("gemm.tile", BM="40", BN="40", BK="24")
    assert odd.kernels[0].manifest["targets"]["sm_90"][0]["products"]["padding_waste"] > 0.2


def test_manifests_are_plain_data() -> None:
    for sample in sorted(SAMPLES.glob("*.tile")):
        for kernel in compile_file(str(sample), archs=("sm_90",), stop="kernel-ir").kernels:
            assert json.loads(json.dumps(dict(kernel.manifest))) == dict(kernel.manifest)


def test_two_candidates_that_were_not_taken() -> None:
    path = str(SAMPLES / "attention.tile")
    kernel = compile_file(path, archs=("sm_86",), stop="kernel-ir").kernels[0]
    found = rejected_candidates(path, kernel, {}, "sm_86")
    assert len(found) == 2
    assert re.match(r"BM = 256: \d+ threads, .*, against 256 threads", found[0])
    assert found[1].startswith("BM = 64: 128 threads") and ", against 256 threads" in found[1]
    wide = {"BN": "128"}
    other = compile_file(path, archs=("sm_86",), defines=wide, stop="kernel-ir").kernels[0]
    first = rejected_candidates(path, other, wide, "sm_86")[0]
    assert re.match(r"BM = 256: refused, .* \d+ bytes of shared memory", first)
    given = rejected_candidates(path, kernel, {"BM": "128"}, "sm_86")
    assert given and all(f.startswith("BN") for f in given)
    path = str(SAMPLES / "softmax.tile")
    softmax = compile_file(path, kernel="softmax", archs=("sm_80",)).kernels[0]
    assert rejected_candidates(path, softmax, {}, "sm_80") == []


def test_lines_are_shown_as_written(capsys: pytest.CaptureFixture[str]) -> None:
    assert explain_file(ExplainRequest(str(SAMPLES / "vector_add.tile"))) == 0
    out = capsys.readouterr().out
    assert "kernel vector_add for sm_80\n  chosen: BN = 1024 (default)\n" in out
    assert "    vector_add.tile:4  c[i] = a[i] + b[i]\n" in out
    assert "load a: vectors of 16 B" in out
    assert "vector_add_kernel_any: launched otherwise\n" in out
    assert "this variant takes every address and size" in out
    whole = explain_compiled(compile_file(str(SAMPLES / "vector_add.tile"), archs=("sm_80",)))
    assert whole.splitlines()[-1] == out.splitlines()[-1]


def test_errors_of_the_program(tmp_path: Path) -> None:
    with pytest.raises(TileError) as error:
        explain_file(ExplainRequest(str(tmp_path / "none.tile")))
    assert error.value.diagnostics[0].code == "E0703"


def test_an_asynchronous_variant_says_what_its_roles_do() -> None:
    found = compile_file(
        str(SAMPLES / "gemm.tile"), kernel="gemm_nn", archs=("sm_90a",), stop="kernel-ir"
    )
    even, _, _, fast, any_out, copied, general = found.kernels[0].manifest["targets"]["sm_90a"]
    assert even["tiles"] == {"BM": 192, "BN": 160, "BK": 64}
    assert even["roles"]["consumers"]["warpgroups"] == 3
    assert "bulk store" in even["departures"][0]["transport"]
    assert fast["roles"]["producer"] == {"threads": 128, "working": 1, "registers": 40}
    assert fast["roles"]["consumers"]["warpgroups"] == 2
    (channel,) = fast["channels"]
    assert [tile["tensor"] for tile in channel["tiles"]] == ["a", "b"]
    assert channel["filled"] == ["in each trip of k_tile"]
    assert "multicast" in channel["tiles"][1] and "multicast" not in channel["tiles"][0]
    assert fast["departures"][0]["transport"].endswith("under the next instance's loop")
    for anywhere in (any_out, copied):
        assert "row by row in words" in anywhere["departures"][0]["transport"]
    assert [copy["tensor"] for copy in copied["copies"]] == ["a", "b"]
    assert any_out["channels"][0]["tiles"][0]["transport"] == "bulk copy through a tensor map"
    assert "roles" not in general and "tiles" in general
    instructions = {i["instruction"] for i in fast["products"]["instructions"]}
    assert instructions == {"wgmma.m64n256k16"}
    json.dumps(found.kernels[0].manifest)


def test_the_schedule_is_named() -> None:
    path = str(SAMPLES / "attention.tile")
    found = compile_file(path, archs=("sm_90a",), stop="kernel-ir", defines={"CAUSAL": "true"})
    fast = found.kernels[0].manifest["targets"]["sm_90a"][0]
    assert fast["schedule"] == [
        "fold_exponents", "defer_sums", "rotate", "keep_references", "rows_first",
    ]  # fmt: skip
    assert fast["roles"]["consumers"]["take_turns"]
    assert fast["grid"][-1]["order"] == "long and short trips shared out evenly"
    assert {c["slots"] for c in fast["channels"]} == {2}
    waits = [n["how"] for line in fast["lines"] for n in line["notes"] if n["what"] == "wait"]
    assert any("no more than 1 group" in how for how in waits)


def test_a_nest_without_the_form_says_why() -> None:
    path = str(SAMPLES / "decode.tile")
    found = compile_file(path, archs=("sm_90a",), stop="kernel-ir")
    warned = [d.message for d in found.diagnostics if d.code == "W0603"]
    assert warned
    said = {
        variant["not_asynchronous"]
        for kernel in found.kernels
        for variant in kernel.manifest["targets"]["sm_90a"]
        if "not_asynchronous" in variant
    }
    assert said and all(any(reason in message for message in warned) for reason in said)
    assert f"no products of warpgroups: {min(said)}" in explain_compiled(found)
