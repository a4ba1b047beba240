"""Operands whose rows begin anywhere, copied to rows that bulk copies can bring: when, what, and that the results are right."""

from __future__ import annotations

import itertools
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.cpp.recorded_launcher import RecordedLaunchers, recorded_map
from tests.emulator.asynchronous import ORDERS, Program
from tests.passes.ptxas import said_of
from tilec.compiled import CompiledFile
from tilec.compiler import compile_file
from tilec.emit.entries import entry_names
from tilec.emulator.library import Schedule
from tilec.emulator.machine import Emulator
from tilec.ir.selection import Point
from tilec.plan.candidate import Choice, Dispatch
from tilec.reference.inputs import make_inputs
from tilec.runtime.arguments import CallSizes, bind_sizes, first_violation
from tilec.runtime.clauses import find_kernel
from tilec.runtime.gpu_run import prepare_call
from tilec.runtime.launching import choose_target, concrete_launches, workspace_bytes
from tilec.runtime.verify import Case, Tolerance, failures, interpreter_bounds, verify
from tilec.targets import rates

SAMPLES = Path(__file__).resolve().parents[2] / "samples"

ORDERS_OF_OPERANDS = {
    "nn": ("[M, K]", "[K, N]", "a[i, k]", "b[k, j]", "a @ b"),
    "nt": ("[M, K]", "[N, K]", "a[i, k]", "b[j, k].T", "a @ b.T"),
    "tn": ("[K, M]", "[K, N]", "a[k, i].T", "b[k, j]", "a.T @ b"),
    "tt": ("[K, M]", "[N, K]", "a[k, i].T", "b[j, k].T", "a.T @ b.T"),
}


def product(order: str, kind: str = "bf16", out: str = "bf16", total: str = "f32") -> str:
    a, b, left, right, check = ORDERS_OF_OPERANDS[order]
    if total == "i32":
        check = re.sub(r"\b([ab])\b", r"\1.to(i32)", check)
    return f"""kernel k[BM = 64, BN = 64, BK = 64](a: {kind}{a}, b: {kind}{b}) -> c: {out}[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros({total}, i, j)
        for k in range(K by BK):
            acc += {left} @ {right}
        c[i, j] = acc
    check c == {check}
"""


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies pay at all sizes: other products would take forever."""
    slow = replace(rates.RATES["sm_90a"], anywhere_share=1e-9)
    monkeypatch.setitem(rates.RATES, "sm_90a", slow)


def compiled(text: str, folder: Path, **defines: Any) -> Program:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return Program(path, None, defines)


def launched(
    program: Program,
    numbers: Mapping[str, int],
    offsets: Mapping[str, int] | None = None,
    workspace: int = 1 << 40,
) -> list[str]:
    """The kernels of a call, without the name in front; `offsets` in bytes."""
    plan = program.kernel.plan
    addresses = {
        t.name: ((n + 1) << 32) + (offsets or {}).get(t.name, 0)
        for n, t in enumerate(plan.parameters)
    }
    launches = concrete_launches(
        plan,
        choose_target(plan, (9, 0)),
        bind_sizes(plan, {}, dict(numbers)),
        addresses,
        workspace,
        multiprocessors=132,
    )
    return [re.sub(r"^\w*?_kernel_?", "", launch.kernel) for launch in launches]


def verified(
    program: Program,
    numbers: Mapping[str, int],
    offsets: Mapping[str, int],
    variant: str = "copied",
) -> None:
    """A call with shifted addresses, in each order of the engines; `offsets` in elements."""
    plan = program.kernel.plan
    sizes = bind_sizes(plan, {}, dict(numbers))
    arrays = make_inputs(program.kernel.program, sizes.numbers, dict(sizes.scalars), 7)
    syntax = find_kernel(program.files.main, program.kernel.name)
    assert syntax is not None
    case = Case(program.kernel.program, program.files, syntax, sizes, arrays, 7)
    bounds = interpreter_bounds(case)
    for mode, seed in ORDERS:
        emulator = Emulator("sm_90a", Schedule(mode, seed))
        with prepare_call(emulator, plan, program.module, sizes, arrays, offsets=offsets) as call:
            assert call.kernels[-1].endswith(f"_{variant}"), call.kernels
            call.launch()
            outputs = call.results()
            call.check_surroundings()
        kept = dict(bounds.values)
        findings = verify(case, outputs, bounds, Tolerance())
        bounds.values.update(kept)
        assert not failures(findings), (dict(numbers), dict(offsets), mode, failures(findings))


# ---- results


@pytest.mark.parametrize("kind", ["bf16", "f16"])
@pytest.mark.parametrize("order", list(ORDERS_OF_OPERANDS))
@pytest.mark.usefixtures("cheap")
def test_all_orders_of_operands_verify(order: str, kind: str, tmp_path: Path) -> None:
    program = compiled(product(order, kind, kind), tmp_path)
    for m, n, depth in ((131, 133, 135), (65, 67, 1), (1, 3, 5), (127, 129, 71)):
        numbers = {"M": m, "N": n, "K": depth}
        ran = program.run(numbers)
        assert ran.launched[-1] == "k_kernel_copied"
        assert ran.launched[:-1] == ("k_kernel_copy", "k_kernel_copy_2")


@pytest.mark.parametrize("order", ["nn", "tt"])
@pytest.mark.usefixtures("cheap")
def test_rows_and_bases_begin_anywhere(order: str, tmp_path: Path) -> None:
    program = compiled(product(order), tmp_path)
    numbers = {"M": 70, "N": 77, "K": 73} if order == "nn" else {"M": 75, "N": 70, "K": 79}
    for offsets in ({"a": 1, "b": 1}, {"a": 7}, {"b": 3, "c": 1}):
        verified(program, numbers, offsets)


@pytest.mark.parametrize(
    ("kind", "out", "total"),
    [("f8e4m3", "bf16", "f32"), ("i8", "i32", "i32"), ("u8", "i32", "i32")],
)
@pytest.mark.usefixtures("cheap")
def test_bytes_verify(kind: str, out: str, total: str, tmp_path: Path) -> None:
    program = compiled(product("nt", kind, out, total), tmp_path)
    for numbers in ({"M": 66, "N": 70, "K": 71}, {"M": 5, "N": 9, "K": 17}):
        verified(program, numbers, {"a": 1, "b": 5})


@pytest.mark.usefixtures("cheap")
def test_f32_as_tf32_verifies(tmp_path: Path) -> None:
    text = product("nt", "f32", "f32").replace(
        "a[i, k] @ b[j, k].T", "dot(a[i, k], b[j, k].T, as = tf32)"
    )
    program = compiled(text, tmp_path, BK=32)
    verified(program, {"M": 66, "N": 70, "K": 71}, {"a": 1})


BATCHED = """kernel k[BM = 64, BN = 64, BK = 64](a: bf16[B, M, K], b: bf16[B, K, N]) -> c: f32[B, M, N]:
    for n, i, j in parallel(B, M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[n, i, k] @ b[n, k, j]
        c[n, i, j] = acc
"""


@pytest.mark.usefixtures("cheap")
def test_matrices_of_a_batch_verify(tmp_path: Path) -> None:
    program = compiled(BATCHED, tmp_path)
    verified(program, {"B": 3, "M": 66, "N": 70, "K": 71}, {"a": 1, "b": 1})
    verified(program, {"B": 2, "M": 9, "N": 64, "K": 65}, {"a": 3})
    assert launched(program, {"B": 2, "M": 9, "N": 64, "K": 65}) == ["copy", "copied"]


@pytest.mark.parametrize("aligned", [True, False])
@pytest.mark.usefixtures("cheap")
def test_rows_of_the_result_leave_as_words(aligned: bool, tmp_path: Path) -> None:
    """Behind aligned operands and copied ones, of a batch, with even and odd addresses and ends."""
    program = compiled(BATCHED.replace("c: f32", "c: bf16"), tmp_path)
    depth = 72 if aligned else 71
    for n, c in ((72, 1), (65, 0), (66, 1), (129, 3), (3, 1), (1, 0)):
        if aligned and n % 8 != 0:
            continue
        numbers = {"B": 2, "M": 67, "N": n, "K": depth}
        verified(program, numbers, {"c": c}, "any_out" if aligned else "copied")


@pytest.mark.usefixtures("cheap")
def test_one_operand_alone(tmp_path: Path) -> None:
    program = compiled(product("nn"), tmp_path)
    for numbers, copied in (
        ({"M": 70, "N": 72, "K": 67}, "a"),
        ({"M": 70, "N": 67, "K": 72}, "b"),
    ):
        name = {"a": "copy", "b": "copy_2"}[copied]
        assert launched(program, numbers) == [name, "copied"]
        verified(program, numbers, {copied: 1})
        # the other one is not copied, and no bulk copy brings it from there
        other = {"a": "b", "b": "a"}[copied]
        assert launched(program, numbers, {other: 2}) == ["any"]
        size = workspace_bytes(program.kernel.plan, bind_sizes(program.kernel.plan, {}, numbers))
        assert 9_000 < size < 12_000 and size % 256 == 0


@pytest.mark.usefixtures("cheap")
def test_the_last_bytes_of_a_matrix_are_not_passed(tmp_path: Path) -> None:
    """Rows that are shorter than what an access reaches: the emulator reports each byte beside a tensor that is read."""
    program = compiled(product("nt"), tmp_path)
    for m, n, depth in ((2, 3, 1), (3, 4, 2), (17, 18, 9), (40, 3, 15)):
        verified(program, {"M": m, "N": n, "K": depth}, {"a": 1, "b": 3})


TWO_NESTS = """kernel k[BM = 64, BN = 64, BK = 64](a: bf16[M, K], b: bf16[K, K]) -> c: bf16[M, K]:
    temp t: bf16[M, K]
    for i, j in parallel(M by BM, K by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[k, j]
        t[i, j] = acc
    for i, j in parallel(M by BM, K by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            acc += t[i, k] @ b[k, j]
        c[i, j] = acc
"""


@pytest.mark.usefixtures("cheap")
def test_a_temp_is_copied_like_any_other(tmp_path: Path) -> None:
    program = compiled(TWO_NESTS, tmp_path)
    numbers = {"M": 66, "K": 67}
    assert launched(program, numbers) == ["copy", "copy_2", "copied"] * 2
    verified(program, numbers, {"a": 1})


# ---- when


def gemm(order: str) -> Program:
    return Program(SAMPLES / "gemm.tile", f"gemm_{order}")


def cube(n: int) -> dict[str, int]:
    return dict.fromkeys("MNK", n)


@pytest.mark.parametrize("order", ["nn", "nt"])
def test_large_products_pay_for_copies(order: str) -> None:
    program = gemm(order)
    plan = program.kernel.plan
    for n, found in (
        (4096, [""]),
        (4001, ["copy", "copy_2", "copied"]),
        (2049, ["copy", "copy_2", "copied"]),
        (1001, ["copy", "copy_2", "copied"]),
        (257, ["any"]),
        (31, ["any"]),
    ):
        assert launched(program, cube(n)) == found, n
        needed = workspace_bytes(plan, bind_sizes(plan, {}, cube(n)))
        assert needed == (2 * -(-n * (n // 8 + 1) * 16 // 256) * 256 if len(found) > 1 else 0)


def test_few_rows_read_a_matrix_too_seldom() -> None:
    program = Program(SAMPLES / "gemm_skinny.tile", "gemm_skinny_nn")
    assert launched(program, {"M": 16, "N": 8001, "K": 8192}) == ["any"]
    # the small one alone is copied
    assert launched(program, {"M": 16, "N": 8192, "K": 8001}) == ["copy", "copied"]


def test_without_a_workspace_there_are_no_copies() -> None:
    program = gemm("nn")
    assert launched(program, cube(4001), workspace=0) == ["any"]
    assert launched(program, cube(4096), workspace=0) == [""]


def test_a_base_alone_is_no_reason() -> None:
    """The workspace's size is asked by dimensions, before there is an address."""
    program = gemm("nn")
    assert launched(program, cube(4096), {"a": 2}) == ["any"]
    assert launched(program, cube(4001), {"a": 2, "b": 6, "c": 2})[-1] == "copied"


def variants(text: str, folder: Path) -> set[str]:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    file: CompiledFile = compile_file(str(path), archs=("sm_90a",))
    return {low.name for low in file.kernels[0].lowered["sm_90a"]}


def test_what_is_not_copied(tmp_path: Path) -> None:
    assert "k_kernel_copied" in variants(product("nn"), tmp_path)
    aligned = product("nn").replace(
        "    for i, j", "    require K % 8 == 0 and N % 8 == 0\n    for i, j"
    )
    assert "k_kernel_copied" not in variants(aligned, tmp_path)
    # the workspace's size does not depend on strides
    strided = (
        product("nt")
        .replace("[M, K]", "[M, K] strides (lda, 1)")
        .replace("[N, K]", "[N, K] strides (ldb, 1)")
    )
    assert "k_kernel_copied" not in variants(strided, tmp_path)
    # a box of a bulk copy begins at a multiple of 16 bytes of its row too
    shifted = product("nt").replace("a[i, k]", "a[i, k + 1]").replace("b[j, k]", "b[j, k + 1]")
    assert "k_kernel_copied" not in variants(shifted.replace("    check", "    # "), tmp_path)


def test_other_architectures_are_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(product("nn"), encoding="utf-8")
    file = compile_file(str(path), archs=("sm_80", "sm_90"))
    assert "copied" not in file.cu and file.kernels[0].plan.spare is None


SIZES = (4001, 1001, 4096, 33)


def test_the_c_launcher_decides_alike(tmp_path: Path) -> None:
    file = compile_file(str(SAMPLES / "gemm.tile"), kernel="gemm_nn", archs=("sm_90a",))
    (kernel,) = file.kernels
    launchers = RecordedLaunchers(file, tmp_path)
    seen = set()
    for m, n, k in itertools.product(SIZES, SIZES, SIZES):
        sizes = CallSizes({"M": m, "N": n, "K": k})
        needed = workspace_bytes(kernel.plan, sizes)
        assert launchers.workspace_bytes(kernel, sizes) == needed
        for shift, workspace in itertools.product((0, 2), (0, 1 << 45)):
            places = {"a": (1 << 40) + shift, "b": 1 << 41, "c": (1 << 42) + 2}
            answer = launchers.call(kernel, sizes, places, workspace, 90)
            assert answer.status == 0, answer.sentence
            launches = concrete_launches(
                kernel.plan,
                kernel.plan.targets[0],
                sizes,
                places,
                workspace,
                multiprocessors=7,
            )
            assert [(x.kernel, x.grid) for x in answer.launches] == [
                (x.kernel, x.grid) for x in launches
            ]
            for got, expected in zip(answer.launches, launches, strict=True):
                packed = expected.packed_with(recorded_map)
                assert got.arguments[: len(packed)] == packed
            seen.add((len(launches), bool(workspace)))
    assert seen == {(1, False), (1, True), (2, True), (3, True)}


def test_what_is_wrong_with_a_workspace(tmp_path: Path) -> None:
    file = compile_file(str(SAMPLES / "gemm.tile"), kernel="gemm_nn", archs=("sm_90a",))
    (kernel,) = file.kernels
    launchers = RecordedLaunchers(file, tmp_path)
    places = {"a": 1 << 40, "b": 1 << 41, "c": 1 << 42}
    for n, workspace, sentence in (
        (4001, (1 << 45) + 16, "the workspace is misaligned"),
        (4001, (1 << 42) - 4096, "c overlaps the workspace"),
        (4001, (1 << 40) - 4096, "the workspace overlaps a"),
        (4096, (1 << 42) - 4096, ""),
    ):
        sizes = CallSizes(dict.fromkeys("MNK", n))
        answer = launchers.call(kernel, sizes, places, workspace, 90)
        found = first_violation(kernel.plan, sizes, places, workspace)
        assert (found[1] if found else "") == sentence
        assert answer.sentence.startswith(sentence) and bool(answer.status) == bool(sentence)


def test_alternatives_share_the_room(tmp_path: Path) -> None:
    """Tuned variants beside the general one, and several architectures: one workspace, asked for by one rule."""
    points = (Point((4001, 4001, 4001), 1),)
    choice: Choice = {"BM": 128, "BN": 128, "BK": 64}
    dispatch = Dispatch(("M", "N", "K"), (choice,), ("128",), {"sm_90a": points})
    file = compile_file(
        str(SAMPLES / "gemm.tile"),
        kernel="gemm_nn",
        archs=("sm_80", "sm_90a"),
        dispatches={"gemm_nn": dispatch},
    )
    (kernel,) = file.kernels
    plan = kernel.plan
    assert [place.tensor for place in plan.workspace] == ["a_rows", "b_rows"]
    launchers = RecordedLaunchers(file, tmp_path)
    places = {"a": 1 << 40, "b": 1 << 41, "c": 1 << 42}
    for n, names in ((4001, 3), (4096, 1), (1001, 3), (31, 1)):
        sizes = CallSizes(dict.fromkeys("MNK", n))
        assert launchers.workspace_bytes(kernel, sizes) == workspace_bytes(plan, sizes)
        answer = launchers.call(kernel, sizes, places, 1 << 45, 90)
        launches = concrete_launches(
            plan, choose_target(plan, (9, 0)), sizes, places, 1 << 45, multiprocessors=7
        )
        assert [x.kernel for x in answer.launches] == [x.kernel for x in launches]
        assert len(launches) == names
        assert all("tuned1" in x.kernel for x in launches) == (n in (4001, 4096, 1001))


# ---- the code


def test_ptxas_says_nothing(tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    path.write_text(product("nn"), encoding="utf-8")
    text = compile_file(str(path), archs=("sm_90a",)).cu
    assert said_of(text, *(n for n in entry_names(text) if "cop" not in n)) == ()


def test_the_manifest_names_the_copies() -> None:
    file = compile_file(str(SAMPLES / "gemm.tile"), kernel="gemm_nn", archs=("sm_90a",))
    described = {one["kernel"]: one for one in file.kernels[0].manifest["targets"]["sm_90a"]}
    copies = described["gemm_nn_kernel_copied"]["copies"]
    assert [(c["tensor"], c["kernel"], c["where"]) for c in copies] == [
        ("a", "gemm_nn_kernel_copy", "K % 8 != 0"),
        ("b", "gemm_nn_kernel_copy_2", "N % 8 != 0"),
    ]
    assert all("copies" not in one for name, one in described.items() if "copied" not in name)
