"""One launch plan, two readers: the C launcher and the Python evaluation decide the same for random calls."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from tests.cpp.recorded_launcher import Answer, RecordedLaunchers, recorded_map
from tilec.compiled import CompiledFile, CompiledKernel
from tilec.compiler import compile_file
from tilec.ir.dtypes import DType
from tilec.ir.requirements import Separate, requirements
from tilec.ir.selection import Point
from tilec.plan.candidate import Choice, Dispatch
from tilec.runtime.arguments import CallSizes, first_violation, round_float, tensor_bytes
from tilec.runtime.host import HostValue
from tilec.runtime.launching import choose_target, concrete_launches, workspace_bytes
from tilec.tuning.records import choice_name

ROOT = Path(__file__).resolve().parents[2]
CALLS = 400
NAMES = ["contracts", "vector_add", "softmax", "norms", "gemm", "attention", "decode"]
NAMES += ["gemm_bias_gelu", "gemm_bias_relu", "matrix_vector_and_groups", "attention_variants"]

CONTRACTS = """
kernel scaled[BN = 1024](x: f32[M, N], alpha: f32, n: u32, flag: bool, z: u64, h: f16, b: i8) -> y: f32[M, N]:
    require N % BN == 0 or N < 40
    require alpha > -0.5 and alpha * 3 < 2.0
    require n > 3 or flag
    require M / 2 >= 0.5
    require max(alpha, 0.5) < 0.9 or min(alpha, h) > 0.75 or flag
    require min(M, N) < 20000
    require M * N * M <= 4000000000000000
    for r in parallel(M):
        for i in range(N by BN):
            y[r, i] = x[r, i] * alpha

kernel four_axes(x: i8[A, B, C, D]) -> y: i8[A, B, C, D]:
    for a, b, c, d in parallel(A, B, C, D by 64):
        y[a, b, c, d] = x[a, b, c, d]

kernel strided(x: f32[M, N] strides (lda, 1)) -> y: f32[M, N] strides (ldb, 1):
    for i, j in parallel(M, N by 256):
        y[i, j] = x[i, j]

kernel status(arguments: f32[compute], inout spans: f32[compute]):
    temp t: f32[compute]
    for i in parallel(compute by 256):
        t[i] = arguments[i] + spans[i]
    for i in parallel(compute by 64):
        spans[i] = t[i] * 2.0

kernel halves(x: f64[H // G, 2 * G - 3], w: i16[G], v: u8[H]) -> y: f64[H // G, 2 * G - 3]:
    for i, j in parallel(H // G, 2 * G - 3 by 128):
        y[i, j] = x[i, j]
"""

SIZES = [0, 1, 2, 3, 8, 31, 64, 100, 256, 257, 1000, 1024, 2048, 4096, 8200, 16384, 40960, 65536]
SIZES += [70000, 131072, 131073, 1 << 20, 1 << 28, (1 << 31) - 1024, (1 << 31) - 1]


def sources(folder: Path) -> dict[str, Path]:
    contracts = folder / "contracts.tile"
    contracts.write_text(CONTRACTS)
    samples = {n: ROOT / "samples" / f"{n}.tile" for n in NAMES[1:]}
    return {"contracts": contracts, **samples}


def random_size(rng: random.Random, hard: bool) -> int:
    if hard and rng.random() < 0.06:
        return -rng.choice([1, 5, 1 << 31])
    return rng.choice(SIZES) if hard else rng.choice([s for s in SIZES if s < 9000])


def random_scalar(rng: random.Random, dtype: DType) -> HostValue:
    if dtype.kind == "bool":
        return rng.random() < 0.5
    if dtype.is_float:
        return round_float(rng.choice([0.0, 0.25, 0.1, 1.0, -3.0, float("nan")]), dtype)
    values = [0, 1, 3, 4, 100, dtype.maximum, dtype.minimum]
    return rng.choice(values)


def random_call(
    rng: random.Random, kernel: CompiledKernel
) -> tuple[CallSizes, dict[str, int], int]:
    """Sizes and addresses; most of them sensible, each kind of mistake now and then."""
    plan = kernel.plan
    hard = rng.random() < 0.5
    sizes = CallSizes(
        {v.name: random_size(rng, hard) for v in plan.dims},
        {s.name: random_scalar(rng, s.dtype) for s in plan.scalars},
        {v.name: random_size(rng, hard) for v in plan.strides},
    )
    shift = rng.choice([0, 0, 1, 2, 4, 8])
    place = 1 << 20
    addresses = {}
    for tensor in plan.parameters:
        element = max(1, tensor.dtype.bits // 8)
        address = place + shift * element
        address += rng.choice([0] * 30 + [1, 2, -(1 << 18)])
        place += (max(0, tensor_bytes(tensor, sizes.environment)) + 4096) // 256 * 256
        place %= 1 << 62
        addresses[tensor.name] = 0 if rng.random() < 0.02 else address
    workspace = rng.choice([place] * 8 + [0, place + 16, 1 << 20])
    return sizes, addresses, workspace


def python_answer(
    kernel: CompiledKernel,
    sizes: CallSizes,
    addresses: dict[str, int],
    workspace: int,
    capability: tuple[int, int],
) -> tuple[str, list[tuple[str, int, int, int, bytes]]]:
    """(the sentence of a refusal, or the launches)."""
    plan = kernel.plan
    broken = first_violation(plan, sizes, addresses, workspace if plan.workspace else None)
    if broken:
        return broken[1], []
    target = choose_target(plan, capability)
    launches = concrete_launches(plan, target, sizes, addresses, workspace, multiprocessors=7)
    return "", [
        (x.kernel, x.grid, x.block, x.shared_bytes, x.packed_with(recorded_map)) for x in launches
    ]


def c_answer(answer: Answer) -> tuple[str, list[tuple[str, int, int, int, bytes]]]:
    assert (answer.status == 0) == (answer.sentence == "")
    if answer.status:
        assert answer.status == 1
        assert not answer.launches, "a call that is refused launches nothing"
    return answer.sentence.partition(" (")[0], [
        (x.kernel, x.grid, x.block, x.shared_bytes, x.arguments) for x in answer.launches
    ]


def agree(compiled: CompiledFile, rng: random.Random, folder: Path) -> Counter[str]:
    """Both readers decide the same for random calls of every kernel; the kernels that were launched."""
    launchers = RecordedLaunchers(compiled, folder)
    launched: Counter[str] = Counter()
    for kernel in compiled.kernels:
        seen: Counter[str] = Counter()
        for _ in range(CALLS):
            sizes, addresses, workspace = random_call(rng, kernel)
            capability = rng.choice([(8, 0), (8, 9), (9, 0)])
            compute = 10 * capability[0] + capability[1]
            answer = launchers.call(kernel, sizes, addresses, workspace, compute)
            reason, launches = c_answer(answer)
            wanted, expected = python_answer(kernel, sizes, addresses, workspace, capability)
            call = f"{kernel.name} at {sizes}, {addresses}, workspace {workspace}"
            if reason.startswith("requires") or wanted.startswith("requires"):
                # the text of a contract may have parentheses itself
                assert answer.sentence.startswith(wanted), call
            else:
                assert reason == wanted, call
            assert [x[:4] for x in launches] == [x[:4] for x in expected], call
            for (*_, got), (*_, packed) in zip(launches, expected, strict=True):
                assert got[: len(packed)] == packed, call
            launched.update(x[0] for x in launches)
            if min(sizes.dims.values()) >= 0:
                wanted_bytes = workspace_bytes(kernel.plan, sizes)
                assert launchers.workspace_bytes(kernel, sizes) == min(wanted_bytes, (1 << 63) - 1)
            seen["refused" if reason else "launched" if launches else "empty"] += 1
        assert min(seen["refused"], seen["launched"]) > 20, (kernel.name, seen)
    return launched


@pytest.mark.parametrize("name", NAMES)
def test_both_readers_decide_the_same(name: str, tmp_path: Path) -> None:
    path = str(sources(tmp_path)[name])
    compiled = compile_file(path, archs=("sm_80", "sm_90", "sm_90a"))
    agree(compiled, random.Random(name), tmp_path)


def dispatch(key: tuple[str, ...], choices: list[Choice], *points: Point) -> Dispatch:
    labels = tuple(choice_name(c) for c in choices)
    return Dispatch(key, tuple(choices), labels, {"sm_80": points, "sm_90a": points[:1]})


DISPATCHES = {
    "gemm": {
        "gemm_nn": dispatch(
            ("M", "N", "K"),
            [{"BM": 64, "BN": 64, "BK": 32}, {"BM": 64, "BN": 256}],
            Point((1024, 1024, 1024), 1),
            Point((100, 4096, 257), 2),
            Point((8200, 8200, 31), 0),
        )
    },
    # a contract that a variant has in another form, a scalar in the key, a workspace, a nest of another grid
    "contracts": {
        "scaled": dispatch(("N", "n"), [{"BN": 256}], Point((1024, 3), 1), Point((31, 100), 0)),
        "status": dispatch(("compute",), [{}, {}], Point((31,), 1), Point((4096,), 2)),
    },
}


WORKSPACES = """\
kernel parts[P = 4](x: f32[N]) -> y: f32[N]:
    temp t: f32[P, N]
    temp u: f32[N]
    for p, i in parallel(P, N by 128):
        t[p, i] = x[i] * 2.0
    for i in parallel(N by 256):
        u[i] = t[0, i] + t[P - 1, i]
    for i in parallel(N by 256):
        y[i] = u[i] * 2.0
"""


def test_both_readers_place_the_workspace_of_the_variants_alike(tmp_path: Path) -> None:
    (tmp_path / "parts.tile").write_text(WORKSPACES)
    wanted = dispatch(("N",), [{"P": 2}, {"P": 8}], Point((100,), 1), Point((4096,), 2))
    compiled = compile_file(
        str(tmp_path / "parts.tile"), archs=("sm_80", "sm_90a"), dispatches={"parts": wanted}
    )
    launched = agree(compiled, random.Random("parts"), tmp_path)
    assert {k.partition("tuned")[2] for k in launched} == {"", "1_sm_80", "2_sm_80", "1_sm_90a"}
    plan = compiled.kernels[0].plan
    # eight rows of `t` behind each other, whichever variant runs
    assert workspace_bytes(plan, CallSizes({"N": 64})) == 8 * 64 * 4 + 64 * 4


@pytest.mark.parametrize("name", sorted(DISPATCHES))
def test_both_readers_select_the_same_tuned_variant(name: str, tmp_path: Path) -> None:
    compiled = compile_file(
        str(sources(tmp_path)[name]), archs=("sm_80", "sm_90a"), dispatches=DISPATCHES[name]
    )
    launched = agree(compiled, random.Random(name), tmp_path)
    for kernel, wanted in DISPATCHES[name].items():
        for arch in ("sm_80", "sm_90a"):
            for number in wanted.numbers(arch):
                taken = [k for k in launched if k.startswith(kernel.split("_")[0])]
                assert [k for k in taken if k.endswith(f"tuned{number}_{arch}")], (arch, number)


def test_every_kind_of_requirement_is_met_by_a_refusal(tmp_path: Path) -> None:
    """The random calls above would prove little if a kind of refusal never came up in them."""
    rng = random.Random(5)
    compiled = compile_file(str(sources(tmp_path)["contracts"]))
    met = set()
    for kernel in compiled.kernels:
        for _ in range(CALLS):
            sizes, addresses, workspace = random_call(rng, kernel)
            given = workspace if kernel.plan.workspace else None
            if broken := first_violation(kernel.plan, sizes, addresses, given):
                met.add(type(broken[0]).__name__)
    kinds = {type(r).__name__ for k in compiled.kernels for r in requirements(k.plan)}
    assert Separate.__name__ in kinds
    assert met == kinds


def test_a_device_without_code_is_refused_with_a_status_of_its_own(tmp_path: Path) -> None:
    compiled = compile_file(str(ROOT / "samples/vector_add.tile"), archs=("sm_80", "sm_90"))
    launchers = RecordedLaunchers(compiled, tmp_path)
    (kernel,) = compiled.kernels
    addresses = {"a": 4096, "b": 8192, "c": 12288}
    answer = launchers.call(kernel, CallSizes({"N": 64}), addresses, 0, 75)
    assert answer.status == 209
    assert answer.sentence == "this file has no code for the device (sm = 75)"
    assert answer.launches == ()
    # a refusal leaves nothing behind in the next call
    answer = launchers.call(kernel, CallSizes({"N": 64}), addresses, 0, 90)
    assert (answer.status, answer.sentence, len(answer.launches)) == (0, "", 1)
