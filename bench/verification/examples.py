"""Every sample at its example size: where it has a check clause beside PyTorch's evaluation of it in float64, else the interpreter's."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from typing import Any

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import DType
from tilec.passes.uses import all_ops
from tilec.reference.numbers import Array
from tilec.runtime.against import (
    DEFAULT_RTOL,
    coarsest,
    import_torch,
    input_tensors,
    to_torch,
    torch_check,
)
from tilec.runtime.device import Gpu, open_gpu
from tilec.runtime.gpu_run import prepare_call
from tilec.runtime.verify import Case, elements
from tilec.source.diagnostics import TileError
from tilec.syntax import ast
from verification.cases import (
    EXAMPLE_OPERATIONS,
    SEED,
    Job,
    Verifiers,
    example,
    inputs,
    run_jobs,
)
from verification.evidence import Evidence
from verification.kernels import Ready, build_all, sources, syntax_of


def examples(arch: str, jobs: int, seconds: float, dry: bool, only: list[str]) -> Evidence:
    """Run the part (a dry run: the interpreter, at the sizes for the CPU, sampled where that is too much)."""
    evidence = Evidence("examples")
    ready, refused = build_all(sources(only=only), arch, "cubin", jobs)
    evidence.notes += [
        f"{s.kernel} does not compile: {e.diagnostics[0].message}" for s, e in refused
    ]
    deadline = time.monotonic() + seconds
    checked = [] if dry else [r for r in ready if _has_check(r)]
    rest = [r for r in ready if r not in checked]
    with (
        Verifiers(jobs) as verifiers,
        nullcontext(None) if dry else open_gpu() as gpu,
        ThreadPoolExecutor(max(1, jobs // 2)) as pool,
    ):
        cases = [(item, pool.submit(_case, item)) for item in checked]
        torch = import_torch() if cases else None
        for item, case in cases:
            assert gpu is not None
            if time.monotonic() > deadline:
                evidence.record(item.source.kernel, False, "not run in time")
                case.cancel()
            else:
                _beside_torch(evidence, item, case.result(), gpu, torch)
        queue = [
            Job(r.source, example(r, "cpu" if dry else "gpu"), operations=EXAMPLE_OPERATIONS)
            for r in rest
        ]
        by_key = {(r.source.path, r.source.kernel): r for r in ready}
        run_jobs(queue, by_key, gpu, verifiers, evidence, deadline)
    return evidence


def _has_check(item: Ready) -> bool:
    _, syntax = syntax_of(item.source)
    return any(isinstance(c, ast.Check) for c in syntax.clauses)


def _case(item: Ready) -> Case:
    sizes = example(item)
    files, syntax = syntax_of(item.source)
    program = item.kernel.program
    return Case(program, files, syntax, sizes, inputs(Job(item.source, sizes), program), SEED)


def _beside_torch(evidence: Evidence, item: Ready, case: Case, gpu: Gpu, torch: Any) -> None:
    """One kernel's outputs, all elements of those that the check speaks of."""
    start = time.monotonic()
    kernel, sizes = item.kernel, case.sizes
    facts: dict[str, Any] = {
        "sizes": {**sizes.numbers, **sizes.scalars},
        "against": ["check in float64"],
        "seed": SEED,
    }
    try:
        module = gpu.load(item.built.blob)
        with prepare_call(gpu, kernel.plan, module, sizes, case.arrays) as call:
            expected = torch_check(torch, case, input_tensors(torch, case, call), wide=True)()
            call.launch()
            call.finish()
            outputs = call.results()
            call.check_surroundings()
    except TileError as error:
        said = "; ".join(d.message for d in error.diagnostics)
        evidence.record(item.source.kernel, False, f"{sizes}: {said}", **facts)
        return
    wrong = []
    errors = {}
    for tensor in case.written:
        if tensor.name not in expected:
            continue
        have = elements(tensor, sizes, outputs[tensor.name])
        close, greatest, within = _closeness(
            torch,
            have,
            tensor.dtype,
            expected[tensor.name],
            coarsest(case, tensor.dtype),
            by_rows=any(
                isinstance(op, t.Dot) for n in case.program.nests for op in all_ops(n.body)
            ),
        )
        errors[tensor.name] = f"{greatest:.3g} within {within}"
        if not close:
            wrong.append(f"`{tensor.name}` differs by {greatest:.3g}, more than {within}")
    torch.cuda.empty_cache()
    ok = not wrong and bool(errors)
    why = "; ".join(wrong) or "the check speaks of no output"
    evidence.record(
        item.source.kernel,
        ok,
        f"{sizes}: {why}",
        errors=errors,
        seconds=round(time.monotonic() - start, 2),
        **facts,
    )


def _closeness(
    torch: Any, have: Array, dtype: DType, want: Any, coarse: DType, *, by_rows: bool
) -> tuple[bool, float, str]:
    """As `tilec.runtime.against.closeness`, on the GPU: equal NaN and infinities, the rest within rtol and atol. `by_rows`: rtol is
    relative to the largest element of the row, as a product's error is."""
    got = to_torch(torch, have, dtype).to("cuda").double().reshape(want.shape)
    want = want.double()
    finite = torch.isfinite(want)
    rtol = 0.0
    if coarse.is_float:
        rtol = 2e-3 if coarse.name == "f16" else DEFAULT_RTOL[coarse.bits]
    atol = rtol * float(want[finite].abs().mean()) if bool(finite.any()) else 0.0
    size = torch.where(finite, want.abs(), 0.0)
    if by_rows and size.ndim:
        size = size.amax(-1, keepdim=True)
    same = (got == want) | (torch.isnan(got) & torch.isnan(want))
    close = bool((same | (finite & ((got - want).abs() <= atol + rtol * size))).all())
    greatest = float((got - want).abs()[finite].max()) if bool(finite.any()) else 0.0
    words = " of the row's largest" if by_rows else ""
    return close, greatest, f"rtol {rtol:.2g}{words}, atol {atol:.2g}"
