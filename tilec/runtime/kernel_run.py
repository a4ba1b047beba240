"""Running the kernels of one file: at which sizes, on the GPU, the emulator or in the interpreter, verified, timed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

from tilec.compiled import CompiledFile, CompiledKernel
from tilec.emit.entries import entries_text
from tilec.emulator.machine import Emulator
from tilec.forked import cores
from tilec.ir.launch import TargetPlan
from tilec.jobs.requests import parse_pairs
from tilec.reference.inputs import make_inputs
from tilec.reference.numbers import Array
from tilec.runtime import bench
from tilec.runtime.arguments import CallSizes, bind_sizes, check_call, check_shapes
from tilec.runtime.arrays import (
    check_lengths,
    dims_from_arrays,
    empty_array,
    load_array,
    save_arrays,
)
from tilec.runtime.clauses import Device, constants, count, examples, find_kernel
from tilec.runtime.device import Gpu
from tilec.runtime.energy import EnergyCounter, open_counter
from tilec.runtime.gpu_run import DeviceCall, launched, moved_bytes, prepare_call
from tilec.runtime.launching import choose_target
from tilec.runtime.outcome import Comparison, Energy, Outcome, Timing
from tilec.runtime.run_options import RunOptions
from tilec.runtime.sizes import ragged_sizes
from tilec.runtime.variant_sizes import (
    VariantSizes,
    compiled_variants,
    covering,
    variant_sizes,
)
from tilec.runtime.verify import (
    Bounds,
    Case,
    Finding,
    Reference,
    Tolerance,
    check_ahead,
    failures,
    interpreted,
    interpreter_bounds,
    load_reference,
    summary,
    verify,
)
from tilec.runtime.work import product_operations
from tilec.source.diagnostics import Diagnostic, TileError, fail
from tilec.syntax import ast
from tilec.syntax.loading import Program as Files
from tilec.toolchain.build import Built, Toolchain, compile_cubin, find_toolchain
from tilec.toolchain.cache import default_cache
from tilec.toolchain.losses import performance_warnings

MOST_BUILDERS = 4
"""nvcc at a time."""

MOST_AHEAD = 1 << 28
"""Bytes of the arrays of a call that is prepared while an earlier one waits for nvcc."""


class KernelRunner(AbstractContextManager["KernelRunner"]):
    """Runs the kernels of one compiled file. `gpu` None: the interpreter. Leaving the block frees the flush buffer."""

    def __init__(
        self,
        options: RunOptions,
        file: str,
        compiled: CompiledFile,
        files: Files,
        gpu: Gpu | Emulator | None,
        warn: Callable[[Sequence[Diagnostic]], None] = lambda _: None,
    ) -> None:
        self.options = options
        self.warn = warn
        self.file = file
        self.compiled = compiled
        self.files = files
        self.gpu = gpu
        self.cache = default_cache()
        self.tolerance = Tolerance(options.rtol, options.atol)
        self._reference: Reference | None = None
        self._toolchain: Toolchain | None = None
        self._built: dict[tuple[str, ...] | None, Built] = {}
        self._modules: dict[tuple[str, ...] | None, Any] = {}
        self._entries: dict[str, tuple[str, ...]] = {}
        self._builders = ThreadPoolExecutor(min(cores(), MOST_BUILDERS))
        self._building: dict[tuple[str, ...], Future[Built]] = {}
        self._ahead: tuple[str, CallSizes, Future[Case], Bounds] | None = None
        self._said: set[Diagnostic] = set()
        self._flush: bench.CacheFlush | None = None
        self._energy: EnergyCounter | None = None

    def __exit__(self, *exception: object) -> None:
        self._builders.shutdown(cancel_futures=True)
        if self._flush is not None:
            self._flush.free()
            self._flush = None

    @property
    def where(self) -> str:
        """What the kernels run on, for the table."""
        return self.gpu.name if self.gpu else "interpreter"

    # ---- sizes

    def cases(self, kernel: CompiledKernel) -> list[CallSizes]:
        """The size sets to run a kernel at. Raises TileError (E0711, E0712, E0714)."""
        syntax = self._syntax(kernel)
        plan = kernel.plan
        names = {v.name for v in (*plan.dims, *plan.strides)} | {s.name for s in plan.scalars}
        settings = {n: v for n, v in parse_pairs(self.options.settings, "-s").items() if n in names}
        known = constants(self.files.main)
        found = {d: examples(syntax, d, known) for d in ("", "cpu")}
        if self.options.small:
            return self._ragged(kernel, settings, (found[""] or found["cpu"] or [{}])[0])
        wanted: Device = "cpu" if self.options.size == "cpu" else ""
        if not isinstance(self.gpu, Gpu) and self.options.size is None:
            wanted = "cpu"
        offered = found[wanted]
        if not offered and wanted == "cpu":
            # no such clause: sizes around the tile, scalars as in the other one
            scalars = (found[""] or [{}])[0]
            sizes = (ragged_sizes(kernel.program, 1) or [{}])[0]
            offered = [{**scalars, **sizes}]
        shapes = dims_from_arrays(plan, self._files_given(kernel))
        bound = [
            bind_sizes(plan, settings, e, shapes, statics=kernel.program.statics)
            for e in offered or [{}]
        ]
        return [s for n, s in enumerate(bound) if s not in bound[:n]]

    def _ragged(
        self, kernel: CompiledKernel, settings: Mapping[str, str], example: Mapping[str, Any]
    ) -> list[CallSizes]:
        scalars = {s.name: example[s.name] for s in kernel.plan.scalars if s.name in example}
        bound: list[CallSizes] = []
        wanted = [VariantSizes(sizes) for sizes in ragged_sizes(kernel.program)]
        target = self._target(kernel)
        if target is not None:
            around = variant_sizes(kernel.program, target)
            if not isinstance(self.gpu, Gpu):
                around = covering(kernel.program, target, around)
            wanted += around
        for sizes in wanted:
            one = bind_sizes(kernel.plan, settings, {**scalars, **sizes.scalars, **sizes.dims})
            one = replace(one, offsets=sizes.offsets)
            try:
                check_call(kernel.plan, one)
            except TileError:
                continue  # a contract on scalars, which are as in the example
            if one not in bound:
                bound.append(one)
        if not bound:
            raise fail("E0713", f"no ragged sizes satisfy the contracts of `{kernel.name}`")
        return bound

    def _target(self, kernel: CompiledKernel) -> TargetPlan | None:
        """The variants that run here; None where the interpreter does."""
        if self.gpu is None or not kernel.plan.targets:
            return None
        return choose_target(kernel.plan, self.gpu.capability)

    def _syntax(self, kernel: CompiledKernel) -> ast.Kernel:
        found = find_kernel(self.files.main, kernel.name)
        assert found is not None, f"{kernel.name} was compiled from this file"
        return found

    # ---- arguments

    def _files_given(self, kernel: CompiledKernel) -> dict[str, Array]:
        """The arrays of `--input` that are arguments of this kernel. Raises TileError (E0714)."""
        tensors = {t.name: t for t in kernel.plan.parameters if t.role != "output"}
        arrays = {}
        for name, path in parse_pairs(self.options.inputs, "--input").items():
            if name in tensors:
                arrays[name] = load_array(path, tensors[name])
            elif len(self.compiled.kernels) == 1:
                listed = ", ".join(f"`{n}`" for n in tensors) or "none"
                raise fail(
                    "E0714", f"`{kernel.name}` has no input `{name}`", help=f"it has {listed}"
                )
        return arrays

    def _case(self, kernel: CompiledKernel, sizes: CallSizes) -> Case:
        given = self._files_given(kernel)
        check_shapes(kernel.plan, sizes, dims_from_arrays(kernel.plan, given))
        check_lengths(kernel.plan, sizes, given)
        made = make_inputs(kernel.program, sizes.numbers, dict(sizes.scalars), self.options.seed)
        arrays = {**made, **given}
        return Case(
            kernel.program, self.files, self._syntax(kernel), sizes, arrays, self.options.seed
        )

    # ---- running

    def run(self, kernel: CompiledKernel, sizes: CallSizes) -> Outcome:
        """Run one kernel at one size set and verify. A result that differs is an Outcome with exit status 4; TileError is
        raised for what keeps it from running."""
        check_call(kernel.plan, sizes)
        if isinstance(self.gpu, Gpu):
            return self._on_gpu(self.gpu, kernel, sizes)
        case = self._case(kernel, sizes)
        if self.gpu is None:
            return self._interpret(kernel, case)
        if None not in self._modules:
            name = f"{Path(self.file).stem}.cu"
            self._modules[None] = self.gpu.module(name, self.compiled.cu)
        module = self._modules[None]
        return self._launch(self.gpu, module, kernel, case, lambda: interpreter_bounds(case))

    def _on_gpu(self, gpu: Gpu, kernel: CompiledKernel, sizes: CallSizes) -> Outcome:
        """The entry points that all cases of a kernel launch are built, no others. The inputs and what they must give are computed
        beside nvcc, which is another process; the next kernels are built then, too."""
        if self.options.energy:
            self._counter(gpu)  # what cannot be measured is said before anything runs
        fresh: list[Built] = []

        def module(names: Sequence[str]) -> Any:
            wanted = self._wanted(gpu, kernel, names)
            if wanted and wanted not in self._modules:
                built = self._start(wanted).result()
                fresh.extend([] if built.cached else [built])
                self._modules[wanted] = gpu.load(built.blob)
            return self._modules.get(wanted)

        if wanted := self._wanted(gpu, kernel, launched(gpu, kernel.plan, sizes)):
            self._start(wanted)
        if not self.options.bench:  # nothing is measured that other processes could disturb
            self._build_ahead(gpu)
        case, bounds = self._oracle(kernel, sizes)
        if not self.options.bench and wanted:
            # while there is nothing to launch
            if not self._start(wanted).done():
                case = check_ahead(case)
            if not self._start(wanted).done():
                self._prepare_next(kernel, sizes)
        outcome = self._launch(gpu, module, kernel, case, lambda: bounds)
        return replace(outcome, nvcc_calls=len(fresh))

    def _oracle(self, kernel: CompiledKernel, sizes: CallSizes) -> tuple[Case, Bounds]:
        """The arguments of a call and what it must give, which may have been prepared."""
        ahead, self._ahead = self._ahead, None
        if ahead is not None:
            # waited for in any case: no process is copied while a thread of it multiplies
            case = ahead[2].result()
            if ahead[:2] == (kernel.name, sizes):
                return case, ahead[3]
        case = self._case(kernel, sizes)
        return case, interpreter_bounds(case)

    def _prepare_next(self, kernel: CompiledKernel, sizes: CallSizes) -> None:
        """The arguments and results of the call behind this one; what its checks say is evaluated while this one is verified."""
        with suppress(TileError):  # said when it is that call's turn
            calls = [(k, s) for k in self.compiled.kernels for s in self.cases(k)]
            here = [n for n, (k, s) in enumerate(calls) if k is kernel and s == sizes]
            for other, of in [calls[n + 1] for n in here[:1] if n + 1 < len(calls)]:
                check_call(other.plan, of)
                if moved_bytes(other.plan, of) <= MOST_AHEAD:
                    case = self._case(other, of)
                    bounds = interpreter_bounds(case)
                    self._ahead = other.name, of, self._builders.submit(check_ahead, case), bounds

    def _start(self, names: tuple[str, ...]) -> Future[Built]:
        """The build of entry points, begun if it was not yet."""
        if names not in self._building:
            self._building[names] = self._builders.submit(self.build, names)
        return self._building[names]

    def _build_ahead(self, gpu: Gpu) -> None:
        """Begin to build what the kernels whose turn comes later launch."""
        for kernel in self.compiled.kernels:
            with suppress(TileError):  # said when it is the kernel's turn
                if wanted := self._wanted(gpu, kernel, ()):
                    self._start(wanted)

    def _wanted(self, gpu: Gpu, kernel: CompiledKernel, names: Sequence[str]) -> tuple[str, ...]:
        """The entry points to build for a call that launches `names`: those of all cases, if they are among them."""
        if kernel.name not in self._entries:
            cases = [launched(gpu, kernel.plan, sizes) for sizes in self.cases(kernel)]
            self._entries[kernel.name] = tuple(dict.fromkeys(n for case in cases for n in case))
        every = self._entries[kernel.name]
        return every if set(names) <= set(every) else tuple(dict.fromkeys(names))

    def _launch(
        self,
        gpu: Gpu | Emulator,
        module: Any,
        kernel: CompiledKernel,
        case: Case,
        expected: Callable[[], Bounds],
    ) -> Outcome:
        calls = 0
        notes = []
        gpu.peak_bytes = gpu.held_bytes
        held = gpu.held_bytes
        with prepare_call(gpu, kernel.plan, module, case.sizes, case.arrays) as call:
            try:
                call.launch()
                call.finish()
            except TileError:
                if isinstance(gpu, Emulator):
                    expected()  # a fault of the program is said as one
                raise
            outputs = call.results()
            call.check_surroundings()
            peak = (gpu.peak_bytes - held) / 1e6
            launched = call.kernels
            self._save(kernel, case, outputs)
            bounds = expected()
            findings = verify(case, outputs, bounds, self.tolerance, self._user_reference())
            if not findings:
                note = bounds.problem or "there is no check clause"
                raise fail("E0925", f"nothing to verify `{kernel.name}` against", note=note)
            outcome = self._verified(kernel, case, findings, gpu.name)
            timings: tuple[Timing, ...] = ()
            comparison: Comparison | None = None
            energy: dict[str, Energy] = {}
            if self.options.bench and outcome.status == "ok" and isinstance(gpu, Gpu):
                timings = self._time(gpu, kernel, case, call)
                self._count(gpu, call, timings, energy)
                if self.options.against:
                    comparison = self._compare(gpu, kernel, case, call, outputs, peak, energy)
        if bounds.problem:
            notes.append(bounds.problem)
        if isinstance(gpu, Emulator) and gpu.build_too:
            built_too, note = self._try_build()
            calls = 1 if built_too is not None and not built_too.cached else 0
            notes.append(note)
        return replace(
            outcome,
            peak_megabytes=peak,
            nvcc_calls=calls,
            variants=launched,
            compiled=compiled_variants(choose_target(kernel.plan, gpu.capability)),
            timings=timings,
            comparison=comparison,
            energy=energy,
            counters=() if isinstance(gpu, Gpu) else gpu.take_counters(module),
            details=(*outcome.details, *notes),
        )

    def _interpret(self, kernel: CompiledKernel, case: Case) -> Outcome:
        env = case.sizes.environment
        outputs = {
            t.name: case.arrays[t.name].copy() if t.role == "inout" else empty_array(t, env)
            for t in case.written
        }
        interpreted(case, outputs)
        self._save(kernel, case, outputs)
        bounds = interpreter_bounds(case, keep_values=False)
        findings = verify(case, outputs, bounds, self.tolerance, self._user_reference())
        outcome = self._verified(kernel, case, findings, "interpreter")
        built, note = self._try_build()
        calls = 1 if built is not None and not built.cached else 0
        status = outcome.status
        if not findings and status == "ok":
            status = "built"
            note += "; there is no check clause to verify the interpreter against"
        return replace(outcome, status=status, details=(*outcome.details, note), nvcc_calls=calls)

    def _verified(
        self, kernel: CompiledKernel, case: Case, findings: Sequence[Finding], device: str
    ) -> Outcome:
        wrong = failures(findings)
        return Outcome(
            file=self.file,
            kernel=kernel.name,
            sizes=str(case.sizes),
            status="failed" if wrong else "ok",
            device=device,
            verified=summary(findings),
            details=wrong,
            seed=self.options.seed,
            exit_code=4 if wrong else 0,
            values={**case.sizes.numbers, **case.sizes.scalars},
        )

    def _user_reference(self) -> Reference | None:
        if self.options.reference and self._reference is None:
            self._reference = load_reference(self.options.reference)
        return self._reference

    def _save(self, kernel: CompiledKernel, case: Case, outputs: Mapping[str, Array]) -> None:
        if not self.options.save:
            return
        before = {f"{n}_before" if n in outputs else n: a for n, a in case.arrays.items()}
        save_arrays(str(Path(self.options.save) / kernel.name), {**before, **outputs})

    # ---- building

    def _tools(self) -> Toolchain:
        if self._toolchain is None:
            self._toolchain = find_toolchain(self.options.nvcc, cache=self.cache)
        return self._toolchain

    def build(self, names: tuple[str, ...] | None = None) -> Built:
        """Machine code of the entry points `names`, of the whole file unless told; a second call is served from memory."""
        if names not in self._built:
            (arch,) = self.compiled.archs
            text = self.compiled.cu if names is None else entries_text(self.compiled.cu, names)
            built = compile_cubin(text, arch, toolchain=self._tools(), cache=self.cache)
            self._built[names] = built
            found = [d for d in performance_warnings(built.ptxas, arch) if d not in self._said]
            self._said.update(found)
            if found:
                self.warn(found)
        return self._built[names]

    def _try_build(self) -> tuple[Built | None, str]:
        """Build where there is an nvcc; what was done in words. Raises TileError where nvcc rejects the text (E7002)."""
        if not self.compiled.cu:
            return None, "interpreted, not compiled"
        try:
            built = self.build()
        except TileError as error:
            if error.exit_code == 3:
                return None, f"compiled, not built: {error.diagnostics[0].message}"
            raise
        version = self._tools().nvcc.version_text
        return (
            built,
            f"compiled, built for {self.compiled.archs[0]} by nvcc {version}, not run on a GPU",
        )

    # ---- timing

    def _time(
        self, gpu: Gpu, kernel: CompiledKernel, case: Case, call: DeviceCall
    ) -> tuple[Timing, ...]:
        if not call.launches:
            return ()
        flush, summary = self._flushing(gpu), self._summary(gpu, kernel, case)
        read, write = (
            summary(how, bench.measure(gpu, flush, how, call.launch)) for how in ("read", "write")
        )
        return bench.both_where_different(read, write)

    def _count(
        self, gpu: Gpu, call: DeviceCall, timings: Sequence[Timing], energy: dict[str, Energy]
    ) -> None:
        """The energy of the kernel's calls, where it is asked for."""
        if self.options.energy and timings:
            counter = self._counter(gpu)
            energy["tilec"] = counter.measure(call.launch, call.finish, timings[0].median)

    def _counter(self, gpu: Gpu) -> EnergyCounter:
        if self._energy is None:
            self._energy = open_counter(gpu.bus)
        return self._energy

    def _flushing(self, gpu: Gpu) -> bench.CacheFlush:
        if self._flush is None:
            self._flush = bench.prepare_flush(gpu, self._tools(), self.cache)
        return self._flush

    def _summary(
        self, gpu: Gpu, kernel: CompiledKernel, case: Case
    ) -> Callable[[bench.Flush, Sequence[float]], Timing]:
        """From times in µs to a Timing with the rates of this call."""
        known = {**constants(self.files.main), **_numbers(kernel), **case.sizes.environment}
        syntax = self._syntax(kernel)
        moved = count(syntax, "bytes", known)
        operations = count(syntax, "flops", known)
        if operations is None:
            operations = product_operations(kernel.program, case.sizes)
        copy = bench.copy_bandwidth(gpu, self.cache)
        size = float(moved_bytes(kernel.plan, case.sizes)) if moved is None else moved
        return lambda how, times: bench.summarize(how, times, size, operations, copy)

    def _compare(
        self,
        gpu: Gpu,
        kernel: CompiledKernel,
        case: Case,
        call: DeviceCall,
        outputs: Mapping[str, Array],
        peak: float,
        energy: dict[str, Energy],
    ) -> Comparison | None:
        from tilec.runtime.against import compare_with

        if not call.launches:
            return None
        summary = self._summary(gpu, kernel, case)

        def heard(name: str, launch: Callable[[], None], median: float) -> None:
            if self.options.energy:
                energy[name] = self._counter(gpu).measure(launch, call.finish, median)

        return compare_with(
            gpu,
            self._flushing(gpu),
            self.options.against or "torch",
            case,
            call,
            outputs,
            lambda times: summary("read", times),
            peak,
            self.tolerance,
            heard,
        )


def _numbers(kernel: CompiledKernel) -> dict[str, int | float | bool]:
    """The bracket parameters that are numbers."""
    return {n: v for n, v in kernel.program.statics.items() if isinstance(v, int | float)}
