"""8-bit operands that lie across, copied transposed for products of warpgroups: which, when, and that the results are right."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.cpp.recorded_launcher import RecordedLaunchers, recorded_map
from tests.emulator.asynchronous import Arrays, Program
from tests.passes.ptxas import said_of
from tests.passes.test_copies import launched
from tilec.compiler import analyse_file, compile_file
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.launch import Aligned
from tilec.ir.verifier import verify
from tilec.passes.turning import GROUP, turn
from tilec.passes.uses import all_ops
from tilec.runtime.arguments import CallSizes, bind_sizes
from tilec.runtime.launching import concrete_launches, workspace_bytes
from tilec.runtime.variant_sizes import chosen_variants, variant_sizes
from tilec.targets import rates

FORMS = Path(__file__).resolve().parents[2] / "bench" / "attention_forms.tile"

CHAIN = """kernel k[BM = 64, BN = 64, D = 32](x: {t}[M, D], b: {t}[N, D], c: {t}[{dims}]) -> y: {out}[M, D]:
    for i in parallel(M by BM):
        acc = zeros({sum}, i, D)
        rows = x[i, :]
        for j in range({span} by BN):
            s = rows @ b[j, :].T
            acc += ({weight}).to({t}) @ {value}
        y[i, :] = acc
"""
FLOATS = {"out": "f32", "sum": "f32", "weight": "s * 0.125"}
TYPES = {
    "f8e4m3": FLOATS,
    "f8e5m2": FLOATS,
    "i8": {"out": "i32", "sum": "i32", "weight": "s // 64"},
    "u8": {"out": "i32", "sum": "i32", "weight": "s // 256"},
}
ACROSS = {"dims": "N, D", "value": "c[j, :]", "span": "N"}
LAST = {"dims": "D, N", "value": "c[:, j].T", "span": "N"}


def chain(kind: str = "f8e4m3", **words: str) -> str:
    return CHAIN.format(**{"t": kind, **TYPES[kind], **ACROSS, **words})


@pytest.fixture
def cheap(monkeypatch: pytest.MonkeyPatch) -> None:
    """Copies pay at all sizes: other products would take forever."""
    known = rates.RATES["sm_90a"]
    slow = replace(known, unpacked_share=1e-9, anywhere_share=1e-9, warp_share=1e-9)
    monkeypatch.setitem(rates.RATES, "sm_90a", slow)


def compiled(text: str, folder: Path, **defines: Any) -> Program:
    path = folder / "k.tile"
    path.write_text(text, encoding="utf-8")
    return Program(path, None, defines)


def ran(program: Program, numbers: Mapping[str, int], *names: str, **others: Any) -> Any:
    """A call in all orders of the engines, whose kernels have these names behind the program's."""
    found = program.run(numbers, **others)
    base = f"{program.kernel.name}_kernel_"
    assert [n.removeprefix(base) for n in found.launched] == list(names)
    return found


def ops(body: tuple[k.Op, ...]) -> list[k.Op]:
    found: list[k.Op] = []
    for op in body:
        found.append(op)
        for name in ("body", "producer", "consumer", "then", "otherwise"):
            found += ops(getattr(op, name, ()))
    return found


# ---- results

SIZES = ((70, 101), (3, 1), (64, 128), (1, 65))


@pytest.mark.parametrize("way", ["across", "last"])
@pytest.mark.parametrize("kind", list(TYPES))
@pytest.mark.usefixtures("cheap")
def test_accumulators_are_left_operands_of_8_bits(kind: str, way: str, tmp_path: Path) -> None:
    words = {"across": ACROSS, "last": LAST}[way]
    program = compiled(chain(kind, **words), tmp_path)
    for m, n in SIZES:
        ran(program, {"M": m, "N": n}, "turn", "turned")


@pytest.mark.usefixtures("cheap")
def test_any_place_of_the_rows_and_all_other_dims(tmp_path: Path) -> None:
    text = (
        chain(dims="N, H, D", value="c[j, h, :]")
        .replace("x: f8e4m3[M, D]", "x: f8e4m3[H, M, D]")
        .replace("y: f32[M, D]", "y: f32[H, M, D]")
        .replace("for i in parallel(M by BM)", "for h, i in parallel(H, M by BM)")
        .replace("x[i, :]", "x[h, i, :]")
        .replace("y[i, :]", "y[h, i, :]")
    )
    program = compiled(text, tmp_path)
    for h, m, n in ((3, 70, 37), (1, 64, 160)):
        ran(program, {"H": h, "M": m, "N": n}, "turn", "turned")


@pytest.mark.usefixtures("cheap")
def test_rows_that_no_vector_reads(tmp_path: Path) -> None:
    """Columns whose number is run-time and odd: the copy has aligned rows all the same."""
    text = chain(dims="N, E", value="c[j, e]").replace("-> y: f32[M, D]", "-> y: f32[M, E]")
    text = text.replace("parallel(M by BM)", "parallel(M by BM, E by 64)").replace(
        "for i in", "for i, e in"
    )
    text = text.replace("zeros(f32, i, D)", "zeros(f32, i, e)").replace("y[i, :]", "y[i, e]")
    program = compiled(text, tmp_path)
    for m, n, e in ((66, 70, 131), (64, 64, 1), (5, 33, 64)):
        found = program.run({"M": m, "N": n, "E": e})
        assert found.launched[0] == "k_kernel_turn" and "turned" in found.launched[-1]


@pytest.mark.parametrize("way", ["across", "last"])
@pytest.mark.usefixtures("cheap")
def test_edges_inside_the_tensor_are_cleared_in_their_order(way: str, tmp_path: Path) -> None:
    """What lies beyond a bound inside the tensor is NaN, and would come in with a weight of zero."""
    words = {"across": ACROSS, "last": LAST}[way]
    text = chain(**{**words, "span": "0 : min(N, L)"}).replace("](x:", "](w: f32[L], x:")
    program = compiled(text, tmp_path)
    for n in (1, 6, 40, 64, 71, 93):

        def change(arrays: Arrays, n: int = n) -> None:
            beyond = arrays["c"][n:] if way == "across" else arrays["c"][:, n:]
            beyond[...] = np.nan
            arrays["b"][n:] = np.nan

        found = ran(program, {"M": 70, "N": 93, "L": n}, "turn", "turned", change=change)
        assert np.isfinite(found.outputs["y"]).all(), n


@pytest.mark.parametrize("kernel", ["f8", "causal", "full"])
@pytest.mark.usefixtures("cheap")
def test_attention(kernel: str) -> None:
    defines = {"D": 64, "BM": 64, "BN": 64, **({"T": "f8e4m3"} if kernel != "f8" else {})}
    if kernel == "full":
        defines |= {"G": 2, "BM": 128}
    program = Program(FORMS, kernel, defines)
    for s, n in ((150, 70), (1, 1), (64, 192), (33, 97)):
        numbers = {"B": 2, "H": 2, "S": s, "N": n, "scale": 0.125}
        if kernel == "causal":
            del numbers["N"]
        ran(program, numbers, "turn", "turned")


BESIDE = """kernel k[BM = 64, BN = 64, BK = 64](a: f8e4m3[M, K], b: f8e4m3[K, N], c: f8e4m3[N, K]) -> y: bf16[M, N]:
    for i, j in parallel(M by BM, N by BN):
        x = zeros(f32, i, j)
        z = zeros(f32, i, j)
        for k in range(K by BK):
            x += a[i, k] @ b[k, j]
            z += a[i, k] @ c[j, k].T
        y[i, j] = x * z
"""


@pytest.mark.usefixtures("cheap")
def test_products_beside_each_other_have_rows_in_one_order(tmp_path: Path) -> None:
    """One operand across alone would make rows neighbours in pairs, and another one's rows are not."""
    program = compiled(BESIDE, tmp_path)
    copied = ("copy_2", "copy_3", "turned_copied")
    for m, n, depth, names in (
        (80, 112, 80, ("turned",)),
        (16, 16, 16, ("turned",)),
        (64, 130, 100, copied),
    ):
        ran(program, {"M": m, "N": n, "K": depth}, "turn", *names)


MORE = {
    "a left operand across too": (
        chain().replace("x: f8e4m3[M, D]", "x: f8e4m3[D, M]").replace("x[i, :]", "x[:, i].T"),
        ("turn", "turn_2", "turned"),
    ),
    "one tensor as it is and turned": (
        chain(value="b[j, :]").replace(", c: f8e4m3[N, D]", ""),
        ("turn", "turned"),
    ),
    "a product of 16 bits in front": (
        chain(weight="s * 0.125")
        .replace("x: f8e4m3", "x: bf16")
        .replace("b: f8e4m3", "b: bf16")
        .replace("D = 32", "D = 64"),
        ("turn", "turned"),
    ),
}


@pytest.mark.parametrize("what", list(MORE))
@pytest.mark.usefixtures("cheap")
def test_chains_of_other_kinds(what: str, tmp_path: Path) -> None:
    text, names = MORE[what]
    program = compiled(text, tmp_path)
    for m, n in ((80, 112), (16, 1), (64, 128), (48, 65)):
        ran(program, {"M": m, "N": n}, *names)


REDUCED = """kernel k[BM = 64, BN = 64, BK = 64](x: f8e4m3[{left}], b: f8e4m3[K, N]) -> (y: f32[M, N], most: f32[M]):
    require N <= 64
    for i in parallel(M by BM):
        acc = zeros(f32, i, 64)
        for k in range(K by BK):
            acc += {value} @ b[k, span(0, 64)]
        most[i] = max(where(span(0, 64)[None, :] < N, acc, -inf), axis=1)
        y[i, span(0, 64)] = acc
"""


@pytest.mark.parametrize(("left", "value"), [("M, K", "x[i, k]"), ("K, M", "x[k, i].T")])
@pytest.mark.usefixtures("cheap")
def test_what_is_reduced_along_columns_is_not_computed_transposed(
    left: str, value: str, tmp_path: Path
) -> None:
    """Both operands are turned where they lie across: rows of accumulators stay where they are."""
    program = compiled(REDUCED.format(left=left, value=value), tmp_path)
    names = ("turn", "turn_2") if left == "K, M" else ("turn",)
    for m, n, depth in ((80, 48, 96), (16, 64, 33), (16, 16, 1)):
        numbers = {"M": m, "N": n, "K": depth}
        found = program.run(numbers)
        assert [x.removeprefix("k_kernel_") for x in found.launched][:-1] == list(names) or (
            depth % GROUP and left == "M, K"
        )


TWO_NESTS = """kernel k[BM = 64, BN = 64, D = 32](x: f8e4m3[M, D], b: f8e4m3[N, D]) -> y: f32[M, D]:
    temp c: f8e4m3[N, D]
    for j in parallel(N by 64):
        c[j, :] = (b[j, :].to(f32) * 0.5).to(f8e4m3)
    for i in parallel(M by BM):
        acc = zeros(f32, i, D)
        rows = x[i, :]
        for j in range(N by BN):
            s = rows @ b[j, :].T
            acc += (s * 0.125).to(f8e4m3) @ c[j, :]
        y[i, :] = acc
"""


@pytest.mark.usefixtures("cheap")
def test_a_temp_of_a_nest_before_is_turned(tmp_path: Path) -> None:
    program = compiled(TWO_NESTS, tmp_path)
    found = program.run({"M": 66, "N": 67})
    assert [x.removeprefix("k_2_kernel_") for x in found.launched[1:]] == ["turn", "turned"]


# ---- when


def numbers(b: int, s: int, n: int) -> dict[str, int]:
    return {"B": b, "H": 16, "S": s, "N": n, "scale": 1}


def test_long_sequences_pay_for_copies() -> None:
    program = Program(FORMS, "f8")
    plan = program.kernel.plan
    for found, call in (
        (["turn", "turned"], numbers(4, 4096, 4096)),
        (["turn", "turned"], numbers(1, 1024, 1000)),
        ([""], numbers(1, 128, 128)),
    ):
        assert launched(program, call) == found, call
        needed = workspace_bytes(plan, bind_sizes(plan, {}, call))
        padded = -(-call["N"] // GROUP) * GROUP
        copy = -(-call["B"] * 16 * 128 * padded // 256) * 256
        assert needed == (copy if len(found) > 1 else 0)


def test_without_a_workspace_warps_multiply() -> None:
    program = Program(FORMS, "f8")
    assert launched(program, numbers(4, 4096, 4096), workspace=0) == [""]
    assert launched(program, numbers(4, 4096, 4096), {"o": 2}) == ["turn", "turned_any_out"]
    assert launched(program, numbers(4, 4096, 4096), {"q": 1}) == ["any"]
    # the copy begins where it may
    assert launched(program, numbers(4, 4096, 4096), {"v": 1}) == ["turn", "turned"]


def test_nothing_is_asked_of_the_address_of_a_copy() -> None:
    (found,) = compile_file(str(FORMS), kernel="f8", archs=("sm_90a",), stop="kernel-ir").kernels
    target = found.plan.targets[0]
    first = target.steps[0].launches[0]
    assert [x.kernel for x in first.every] == ["f8_kernel_turn", "f8_kernel_turned"]
    asked = [p.tensor for p in first.condition.parts if isinstance(p, Aligned)]  # type: ignore[union-attr]
    assert sorted(asked) == ["k", "o", "q"]
    # `run --small` has sizes for variants, and knows the program's tensors alone
    sets = variant_sizes(found.program, target)
    chosen = {name for one in sets for name in chosen_variants(found.program, target, one)}
    assert {"f8_kernel", "f8_kernel_any"} <= chosen


NOT_TURNED = {
    "strides": chain().replace("c: f8e4m3[N, D]", "c: f8e4m3[N, D] strides (ldc, 1)"),
    "a place that is no multiple of 16": chain(value="c[j + 1, :]"),
    "a tile that something else reads": chain(
        weight="s * 0.125 + sum(part.to(f32), axis=1)[None, :]", value="part"
    ).replace("            s = rows", "            part = c[j, :]\n            s = rows"),
    "trips that are no function of the sizes": chain(span="0 : min(N, n)").replace("](x:", "](n: i32, x:"),
}  # fmt: skip


@pytest.mark.parametrize("what", list(NOT_TURNED))
def test_what_is_not_turned(what: str, tmp_path: Path) -> None:
    path = tmp_path / "k.tile"
    for text, turned in ((chain(), True), (NOT_TURNED[what], False)):
        path.write_text(text, encoding="utf-8")
        (found,) = compile_file(str(path), archs=("sm_90a",), stop="kernel-ir").kernels
        names = {low.name for low in found.lowered["sm_90a"]}
        assert any("turn" in name for name in names) == turned
        # what warps do is there in any case
        assert {"k_kernel", "k_kernel_any"} <= names


@pytest.mark.parametrize("kind", ["f8e4m3", "i8"])
def test_strict_programs_add_up_in_f32(kind: str, tmp_path: Path) -> None:
    """Warpgroups add 8-bit floats up with fewer bits, however they come by their operands."""
    path = tmp_path / "k.tile"
    plain = """kernel k[BM = 64, BN = 64, BK = 64](a: T[M, K], b: T[N, K]) -> c: S[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(S, i, j)
        for k in range(K by BK):
            acc += a[i, k] @ b[j, k].T
        c[i, j] = acc
""".replace("T[", f"{kind}[").replace("S", TYPES[kind]["sum"])
    for text, place in ((plain, "    for i, j"), (chain(kind), "    for i in")):
        for strict in (False, True):
            setting = "    schedule math = strict\n" if strict else ""
            path.write_text(text.replace(place, setting + place), encoding="utf-8")
            (found,) = compile_file(str(path), archs=("sm_90a",), stop="kernel-ir").kernels
            roles = any(
                isinstance(op, a.Roles) for low in found.lowered["sm_90a"] for op in low.body
            )
            assert roles == (kind == "i8" or not strict)


def test_operands_as_they_are_need_no_copy(tmp_path: Path) -> None:
    """Where warpgroups take a nest as it is, it stays so."""
    path = tmp_path / "k.tile"
    path.write_text(chain("f8e4m3").replace("f8e4m3", "bf16"), encoding="utf-8")
    (found,) = compile_file(str(path), archs=("sm_90a",), stop="kernel-ir").kernels
    assert turn(found.program, found.program.nests[0]) is None
    assert not any("turn" in low.name for low in found.lowered["sm_90a"])


def test_other_architectures_are_as_they_were() -> None:
    file = compile_file(str(FORMS), kernel="f8", archs=("sm_90",))
    assert "turned" not in file.cu and file.kernels[0].plan.spare is None


def test_the_c_launcher_decides_alike(tmp_path: Path) -> None:
    file = compile_file(str(FORMS), kernel="f8", archs=("sm_90a",))
    (kernel,) = file.kernels
    launchers = RecordedLaunchers(file, tmp_path)
    seen = set()
    for b, s, n in itertools.product((1, 4), (1, 127, 4096), (0, 1, 1000, 4096)):
        sizes = CallSizes({"B": b, "H": 16, "S": s, "N": n}, {"scale": 0.125})
        needed = workspace_bytes(kernel.plan, sizes)
        assert launchers.workspace_bytes(kernel, sizes) == needed
        for shift, workspace in itertools.product((0, 8), (0, 1 << 45)):
            places = {"q": 1 << 40, "k": 1 << 41, "v": (1 << 42) + shift, "o": (1 << 43) + shift}
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
            seen.add(tuple(x.kernel for x in launches))
    assert ("f8_kernel_turn", "f8_kernel_turned") in seen
    assert ("f8_kernel_turn", "f8_kernel_turned_any_out") in seen
    assert {("f8_kernel",), ("f8_kernel_any",)} <= seen


# ---- the code


def test_the_manifest_names_the_copies() -> None:
    file = compile_file(str(FORMS), kernel="f8", archs=("sm_90a",))
    described = {one["kernel"]: one for one in file.kernels[0].manifest["targets"]["sm_90a"]}
    copies = described["f8_kernel_turned"]["copies"]
    assert [(c["tensor"], c["kernel"], c["where"]) for c in copies] == [
        ("v", "f8_kernel_turn", "always")
    ]
    assert "in the order of accumulators" in copies[0]["to"]
    instructions = described["f8_kernel_turned"]["products"]["instructions"]
    assert len(instructions) == 2 and all("e4m3" in str(one) for one in instructions)


def test_products_take_what_accumulators_hold() -> None:
    (found,) = compile_file(str(FORMS), kernel="f8", archs=("sm_90a",), stop="kernel-ir").kernels
    body = ops(found.lowered["sm_90a"][0].body)
    lefts = [op.a for op in body if isinstance(op, a.WarpgroupProduct)]
    packed = [x for x in lefts if isinstance(x, k.Fragment)]
    assert packed and all(x.packed for x in packed)
    # words are whole in front of the fence: registers of a product are written behind none
    file = compile_file(str(FORMS), kernel="f8", archs=("sm_90a",))
    assert "take_left(a_operand" in file.cu and "pack_a(a_operand" not in file.cu


@pytest.mark.parametrize("kernel", ["f8", "causal"])
def test_ptxas_says_nothing(kernel: str) -> None:
    words = {"T": "f8e4m3"} if kernel == "causal" else {}
    text = compile_file(str(FORMS), kernel=kernel, archs=("sm_90a",), defines=words).cu
    # `mma.sync` of 8-bit floats is made of conversions on sm_90, for which its registers do not suffice
    assert said_of(text, "_any", f"{kernel}_kernel") == ()


@pytest.mark.parametrize("kernel", ["f8", "causal"])
def test_the_rewritten_nest_is_sound(kernel: str) -> None:
    words = {"T": "f8e4m3"} if kernel == "causal" else {}
    _, (found, *_), _ = analyse_file(str(FORMS), kernel=kernel, defines=words, arch="sm_90a")
    turned = turn(found.program, found.program.nests[0])
    assert turned is not None and turned.interleaved == {"v_pairs"}
    verify(turned.program)
    before, after = (
        [op.access.tensor for op in all_ops(nest.body) if isinstance(op, t.Load)]
        for nest in (found.program.nests[0], turned.nest)
    )
    assert after == [{"v": "v_pairs"}.get(name, name) for name in before]
