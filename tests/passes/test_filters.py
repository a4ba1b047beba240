"""Filters: a branch around the whole body of a loop with products becomes a loop over the trips that survive."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from tests.passes.scheduled import Source, bounds, interpret
from tilec.compiler import compile_file
from tilec.ir import asynchronous as a
from tilec.ir import kernel_filters as f
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir.facts import Facts
from tilec.ir.printer import print_program
from tilec.ir.rescaled import rescaled_operands
from tilec.ir.symbolic import Sym
from tilec.ir.verifier import InternalFault, verify
from tilec.jobs.explaining import ExplainRequest, explain_file
from tilec.passes.asynchronous import Asynchronous
from tilec.passes.schedule import schedule
from tilec.passes.schedule.clone import Numbers
from tilec.passes.schedule.survivors import filter_trips
from tilec.passes.uses import all_ops, variable_of

ROOT = Path(__file__).resolve().parents[2]
FORMS = ROOT / "bench" / "attention_forms.tile"
FILTERS = ROOT / "tests" / "emulator" / "filters.tile"

PRODUCT = """kernel k[BM = 64, BN = 64, BK = 32](
    a: bf16[M, K], b: bf16[K, N], alive: bool[ceildiv(M, BM), ceildiv(K, BK)], least: i32) -> c: f32[M, N]:
    for i, j in parallel(M by BM, N by BN):
        acc = zeros(f32, i, j)
        for k in range(K by BK):
            if alive[i.start // BM, k.start // BK]:
                acc += a[i, k] @ b[k, j]
        c[i, j] = acc
"""
CONDITION = "alive[i.start // BM, k.start // BK]"
STEP = "                acc += a[i, k] @ b[k, j]\n"

FILTERED = {
    "a table": PRODUCT,
    "the other way round": PRODUCT.replace(CONDITION, f"not {CONDITION}"),
    "several": PRODUCT.replace(CONDITION, f"{CONDITION} and (k.start // BK) % 2 == 0"),
    "either": PRODUCT.replace(CONDITION, f"{CONDITION} or k.start < least"),
    "indices": PRODUCT.replace(CONDITION, "(k.start + i.start) // BK % 3 != 1"),
    "a parameter": PRODUCT.replace(CONDITION, "least > 0"),
    "one in the other": PRODUCT.replace(
        STEP, f"                if k.start >= least:\n    {STEP}"
    ),
    "what is shared": PRODUCT.replace(f"if {CONDITION}", "step = k.start // BK\n            if alive[i.start // BM, step] and step != 1"),
    "trips that end early": PRODUCT.replace("range(K by", "range(0 : min(K, i.stop) by"),
    "no trips": PRODUCT.replace("range(K by", "range(K - K by"),
}  # fmt: skip

OTHERS = {
    "something beside it": PRODUCT.replace(STEP, f"{STEP}            acc += 1.0\n"),
    "something else": PRODUCT.replace(STEP, f"{STEP}            else:\n                acc += 1.0\n"),
    "what the loop computes": PRODUCT.replace("acc = z", "n = 0\n        acc = z").replace(CONDITION, "n < 3").replace(STEP, f"                n += 1\n{STEP}"),
    "what the kernel writes": PRODUCT.replace("alive: bool", "inout alive: bool").replace("        c[i, j]", "        alive[i.start // BM, 0] = true\n        c[i, j]"),
}  # fmt: skip


def filtered(source: Source) -> tuple[t.Nest, bool]:
    return filter_trips(source.nest, Numbers(source.program.nests))


@pytest.mark.parametrize("name", list(FILTERED))
def test_filters_become_loops_over_what_survives(name: str, tmp_path: Path) -> None:
    source = Source(FILTERED[name], tmp_path)
    nest, done = filtered(source)
    program = source.with_nest(nest)
    kinds = [type(op) for op in nest.body.ops]
    assert done and t.Survivors in kinds
    (loop,) = (op for op in nest.body.ops if isinstance(op, t.For))
    assert isinstance(loop.body.ops[0], t.Survivor)
    assert not any(isinstance(op, t.If) for op in loop.body.ops)
    for sizes in ({"M": 70, "N": 64, "K": 200}, {"M": 64, "N": 40, "K": 32}):
        for least in (0, 2, 96):
            scalars = {"least": least}
            want, found = (interpret(p, sizes, scalars) for p in (source.program, program))
            assert np.array_equal(want["c"], found["c"])


@pytest.mark.parametrize("name", list(OTHERS))
def test_other_branches_stay(name: str, tmp_path: Path) -> None:
    source = Source(OTHERS[name], tmp_path)
    nest, done = filtered(source)
    assert not done and nest is source.nest
    reason = source.form()
    assert isinstance(reason, str) and "no filter" in reason, reason


def test_the_program_before_and_after(tmp_path: Path) -> None:
    source = Source(FILTERED["one in the other"], tmp_path)
    text = print_program(source.with_nest(filtered(source)[0]))
    lines = [" ".join(line.split()[:9]) for line in text.splitlines() if "nest" not in line]
    first = next(n for n, line in enumerate(lines) if "survivors" in line)
    inner = "\n".join(lines[first : first + 12])
    # the second question is asked where the first one holds
    assert inner.index("load alive[i.1, k.") < inner.index("if %") < inner.index("ge %")
    assert "for k.3 < k_trips." in text and "= survivor k.3 of %" in text


def test_bounds_of_a_surviving_trip_are_those_of_the_loop(tmp_path: Path) -> None:
    source = Source(PRODUCT, tmp_path)
    nest, _ = filtered(source)
    program = source.with_nest(nest)
    facts = Facts.of(program)
    (counted,) = (op for op in nest.body.ops if isinstance(op, t.Survivors))
    (trip,) = (op for op in all_ops(nest.body) if isinstance(op, t.Survivor))
    number = Sym.of(variable_of(trip.out))
    assert facts.prove_nonnegative(number)
    assert facts.prove_nonnegative(counted.trips - 1 - number)
    assert not facts.prove_nonnegative(counted.trips - 2 - number)
    assert facts.prove_nonnegative(Sym.of(variable_of(counted.out)))


def test_the_verifier_knows_the_ops(tmp_path: Path) -> None:
    source = Source(PRODUCT, tmp_path)
    nest, _ = filtered(source)

    def changed(kind: type[t.Op], **parts: object) -> t.Program:
        def block(body: t.Block) -> t.Block:
            ops = []
            for op in body.ops:
                if isinstance(op, kind):
                    op = replace(op, **parts)
                elif isinstance(op, t.For):
                    op = replace(op, body=block(op.body))
                ops.append(op)
            return t.Block(tuple(ops))

        nests = (replace(nest, body=block(nest.body)), *source.program.nests[1:])
        return replace(source.program, nests=nests)

    (counted,) = (op for op in nest.body.ops if isinstance(op, t.Survivors))
    for program, rule in (
        (changed(t.Survivors, survives=replace(counted.survives, outputs=())), "one answer"),
        (changed(t.Survivors, survives=replace(counted.survives, inputs=())), "not in scope"),
        (changed(t.Survivor, of=counted.survives.inputs[0]), "not defined"),
    ):
        with pytest.raises(InternalFault, match=rule):
            verify(program)


# ---- what becomes of them


def ops(body: tuple[k.Op, ...]) -> list[k.Op]:
    found: list[k.Op] = []
    for op in body:
        found.append(op)
        for name in ("body", "producer", "consumer", "then", "otherwise"):
            found += ops(getattr(op, name, ()))
    return found


def form_of(text: str, folder: Path, **defines: int) -> Asynchronous:
    found = Source(text, folder, defines).form()
    assert isinstance(found, Asynchronous), found
    return found


def test_ctas_share_tiles_where_they_run_the_same_trips(tmp_path: Path) -> None:
    wide = {"BM": 128, "BN": 128, "BK": 64}
    by_rows = form_of(PRODUCT, tmp_path, **wide).sharing
    same = PRODUCT.replace(CONDITION, "alive[0, k.start // BK]")
    by_steps = form_of(same, tmp_path, **wide).sharing
    none = PRODUCT.replace(CONDITION, "alive[i.start // BM, (k.start + j.start) // BK]")
    assert by_rows is not None and by_rows.digit.name == "j"
    assert by_steps is not None and by_steps.digit.name == "i"
    assert form_of(none, tmp_path, **wide).sharing is None


def test_rotation_and_kept_references_see_a_loop_like_any_other() -> None:
    found = compile_file(str(FORMS), kernel="block_sparse", archs=("sm_90a",), stop="kernel-ir")
    (kernel,) = found.kernels
    steps = ["filter_trips", "fold_exponents", "defer_sums", "rotate", "keep_references"]
    assert kernel.manifest["targets"]["sm_90a"][0]["schedule"] == [*steps, "rows_first"]  # type: ignore[index]
    # the bounds of the interpreter, which runs the program as it is written, allow the same
    assert rescaled_operands(kernel.program)
    consumer = next(op for op in kernel.lowered["sm_90a"][0].body if isinstance(op, a.Roles))
    loops = [op for op in ops(consumer.consumer) if isinstance(op, k.Loop)]
    multiply = [x for x in loops if any(isinstance(y, a.WarpgroupProduct) for y in x.body)]
    # trips without masks need no number; the others do
    sought = [any(isinstance(y, f.SeekSurvivor) for y in x.body) for x in multiply]
    assert sought == [False, True]
    producer = [op for op in ops(consumer.producer) if isinstance(op, f.SeekSurvivor)]
    assert [op.there for op in producer] == [False, False, True, False]
    assert not any(op.by_lanes for op in producer)


@pytest.mark.parametrize(("kernel", "keeps"), [("strided", True), ("window", False)])
def test_masks_that_hold_from_some_trip_on_rise(kernel: str, keeps: bool) -> None:
    found = compile_file(str(FILTERS), kernel=kernel, archs=("sm_90a",), stop="kernel-ir").kernels
    steps = found[0].manifest["targets"]["sm_90a"][0]["schedule"]  # type: ignore[index]
    assert "rotate" in steps and ("keep_references" in steps) is keeps


def test_a_condition_on_moving_rows_shows_where_references_are(tmp_path: Path) -> None:
    """A filter that asks the state is none: neither the schedule nor the bounds take a reference of an earlier trip."""
    text = FORMS.read_text(encoding="utf-8")
    text = text[: text.index("kernel full")] + text[text.index("kernel block_sparse") :]
    text = text[: text.index("# Operands of 8 bits")]
    asked = "max(state[0], axis=0) < 3.0"
    text = text.replace("blocks[h, i.start // BLOCK, j.start // BLOCK]:", f"{asked}:")
    source = Source(text, tmp_path)
    assert not rescaled_operands(source.program)
    assert schedule(source.program, source.nest).steps == ()


def test_scheduled_filters_stay_within_the_interpreters_bounds() -> None:
    from tilec.compiler import analyse_file

    _, (found, *_), _ = analyse_file(
        str(FORMS), kernel="block_sparse", defines={"D": "16", "BLOCK": "16"}, arch="sm_90a"
    )
    scheduled = schedule(found.program, found.program.nests[0])
    program = replace(found.program, nests=(scheduled.nest,))
    verify(program)
    sizes = {"B": 1, "H": 2, "S": 40, "N": 90}
    known = bounds(found.program, sizes, {"scale": 0.25})
    got = interpret(program, sizes, {"scale": 0.25})
    value, bound = known["lse"]
    same = (got["lse"] == value) | (np.abs(got["lse"] - value) <= bound)
    assert same.all()


def test_explain_says_what_a_filter_became(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ExplainRequest(str(FORMS), kernel="block_sparse", arch="sm_90a", tuned=False)
    assert explain_file(asked) == 0
    said = capsys.readouterr().out
    assert "a loop has the trips for which the condition around its body holds" in said
    assert "drawn from a counter by CTAs that stay, as memory says" in said
    assert "filter_trips" not in said
