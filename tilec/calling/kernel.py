"""A kernel of a `.tile` file as a Python function."""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from tilec.calling.allocation import new_output, new_workspace
from tilec.calling.arguments import (
    ArrayView,
    current_stream,
    device_guard,
    extents,
    memoryless_view,
    storage_view,
    stream_handle,
    strides_of,
    view_of,
)
from tilec.calling.fast_call import extension, fast_class, new_forms
from tilec.calling.launchers import (
    CALLS_KEPT,
    CLauncher,
    PycudaLauncher,
    build_c_launcher,
    pycuda_is_there,
)
from tilec.calling.repeated import Form, Forms, Launch, form_of, forms_of_torch
from tilec.calling.signature import bind, deduced
from tilec.compiled import CompiledFile, CompiledKernel
from tilec.ir.symbolic import Sym
from tilec.runtime.arguments import CallSizes, bind_sizes, tensor_shape
from tilec.runtime.launching import architecture_for, workspace_bytes
from tilec.source.diagnostics import Diagnostic, TileError, fail
from tilec.syntax import ast

if TYPE_CHECKING:
    from tilec.calling.measuring import Measurement
    from tilec.jobs.profiling import Usage
    from tilec.plan.candidate import Choice

Device = Literal["auto", "gpu", "cpu"]
Launcher = Literal["auto", "pycuda", "c"]

EMULATED_ARCH = "sm_90"
"""What is compiled where no GPU says otherwise."""

_LAST_PASS = "synchronize"


@dataclass
class _Built:
    """The kernel for one architecture and one value of each bracket parameter."""

    file: CompiledFile
    kernel: CompiledKernel
    arch: str
    defines: Mapping[str, str]
    choice: Choice
    pycuda: dict[int, PycudaLauncher] = field(default_factory=dict)
    c: CLauncher | None = None
    emulated: Any = None
    workspaces: dict[tuple[int, bool], Any] = field(default_factory=dict)


@dataclass(frozen=True)
class _Call:
    """One call with everything known: arrays by parameter, as the caller gave them and as views."""

    arrays: Mapping[str, Any]
    views: Mapping[str, ArrayView]
    sizes: CallSizes
    outputs: tuple[str, ...]
    own: frozenset[str]
    """the arrays that the caller gave"""


class Kernel:
    """Call it with the inputs in the order of the program; the outputs are made and returned.

    Arrays may be PyTorch's, CuPy's, pycuda's, NumPy's or anything with `__cuda_array_interface__` or DLPack. On a GPU the
    launch goes to the stream that the caller's library works on, nothing is copied and nothing is waited for. NumPy arrays
    are copied to the GPU and back where there is one, else the generated code runs on the emulator; `last_path` says which.

    Bracket parameters that are dimensions or dtypes of inputs and were given no value are taken from the arrays; each value
    is compiled once.
    """

    def __init__(
        self,
        file: str,
        name: str,
        syntax: ast.Kernel,
        defines: Mapping[str, str],
        *,
        arch: str | None = None,
        device: Device = "auto",
        launcher: Launcher = "auto",
        nvcc: str | None = None,
        tuned: bool = True,
    ) -> None:
        self.file = file
        self.name = name
        self.__name__ = name
        self.defines = dict(defines)
        self.device = device
        self.launcher = launcher
        self.nvcc = nvcc
        self.tuned = tuned
        self._arch = arch
        self._syntax = syntax
        self._built: dict[Any, _Built] = {}
        self._resolved: dict[Any, tuple[_Built, CallSizes]] = {}
        self._forms: Forms | None = None
        self._fast_forms: Any = None
        self._last: _Built | None = None
        self.last_path: str | None = None
        """how the last call ran: `pycuda`, `c launcher`, `c launcher, fast call`, `pycuda with copies`, `emulator`; None before the
        first"""

    def __repr__(self) -> str:
        brackets = ", ".join(f"{n}={v}" for n, v in self.defines.items())
        return f"<tilec kernel {self.name}{f'[{brackets}]' if brackets else ''} of {self.file}>"

    # ---- calling

    def __call__(self, *arguments: Any, stream: Any = None, **named: Any) -> Any:
        """Run the kernel. Positional arguments are parameters in the order of the program; any parameter, an output that the
        caller made, and a size that no array tells may be given by name. `stream` is a handle or a stream object.

        Returns the output, a tuple of several, or None for a kernel without. Raises TypeError for arguments that do not
        match the parameters, TileError for what the program or the machine refuses.
        """
        tensors: list[Any] = []
        key = None
        if stream is None and (forms := self._forms_of_torch()) is not None:
            key = forms.key(arguments, named, tensors)
            if key is not None and (form := forms.find(key)) is not None:
                self._last = form.built
                result, self.last_path = forms.call(form, tensors)
                return result
        arrays, settings = bind(self._syntax, arguments, named)
        views = {n: _view(n, a) for n, a in arrays.items()}
        devices = sorted({-1 if v.device is None else v.device for v in views.values()})
        if len(devices) > 1:
            places = ", ".join(
                f"`{n}` {'in host memory' if v.device is None else f'on GPU {v.device}'}"
                for n, v in views.items()
            )
            raise fail("E0714", f"the arrays of `{self.name}` lie in different places: {places}")
        on_gpu = bool(devices) and devices[0] >= 0
        index = devices[0] if on_gpu else 0
        built, sizes = self._resolve(views, settings, on_gpu, index)
        call = self._prepare(built.kernel, sizes, arrays, views)
        if on_gpu:
            self._launch(built, call, stream, index)
            if key is not None:
                self._remember(key, built, call, index, arguments, named)
        else:
            self._run_on_host(built, call)
        self._last = built
        results = tuple(call.arrays[n] for n in call.outputs)
        return results[0] if len(results) == 1 else results or None

    def _resolve(
        self,
        views: Mapping[str, ArrayView],
        settings: Mapping[str, Any],
        on_gpu: bool,
        index: int,
    ) -> tuple[_Built, CallSizes]:
        """The compiled kernel and the sizes of a call; arrays of the same form have the same."""
        forms = tuple((n, v.dtype, v.shape, v.strides) for n, v in views.items())
        key = (on_gpu, index, forms, tuple((n, repr(v)) for n, v in settings.items()))
        found = self._resolved.get(key)
        if found is None:
            arch = self._choose_arch(on_gpu, index)
            built = self._specialise(views, arch)
            sizes = self._sizes(built.kernel, views, settings)
            found = (self._as_tuned(built, sizes, self._device_name(on_gpu, index)), sizes)
            if len(self._resolved) >= CALLS_KEPT:
                self._resolved.clear()
            self._resolved[key] = found
        return found

    def _prepare(
        self,
        kernel: CompiledKernel,
        sizes: CallSizes,
        arrays: Mapping[str, Any],
        views: Mapping[str, ArrayView],
    ) -> _Call:
        """Outputs made; parameters in the order of the plan."""
        made = self._new_outputs(kernel, sizes, views)
        full, known = {**arrays, **made}, dict(views)
        for name, output in made.items():
            known[name] = _view(name, output)
        names = [t.name for t in kernel.plan.parameters]
        outputs = tuple(t.name for t in kernel.plan.parameters if t.role == "output")
        return _Call(full, {n: known[n] for n in names}, sizes, outputs, frozenset(arrays))

    def _new_outputs(
        self, kernel: CompiledKernel, sizes: CallSizes, given: Mapping[str, ArrayView]
    ) -> dict[str, Any]:
        """An array for each output that the caller did not give."""
        return {
            t.name: new_output(t, tensor_shape(t, sizes.environment), list(given.values()))
            for t in kernel.plan.parameters
            if t.name not in given
        }

    def shaped(self, tensors: Mapping[str, Any], settings: Mapping[str, Any]) -> tuple[Any, ...]:
        """The outputs for PyTorch tensors that have shapes and no memory, as they have; nothing runs. Extents may be PyTorch's symbols,
        which the outputs' are then computed from."""
        views = {n: memoryless_view(t) for n, t in tensors.items()}
        kernel = self._specialise(views, self._choose_arch(False, 0)).kernel
        if all(type(extent) is int for v in views.values() for extent in v.shape):
            made = self._new_outputs(kernel, self._sizes(kernel, views, settings), views)
            return tuple(made[t.name] for t in kernel.plan.parameters if t.role == "output")
        known = dict(settings)
        for tensor in kernel.plan.parameters:
            if tensor.name in views:
                for dim, extent in zip(
                    tensor.dims, extents(views[tensor.name], tensor), strict=True
                ):
                    for variable in dim.variables:
                        if dim == Sym.of(variable):
                            known.setdefault(variable.name, extent)
        given = list(views.values())
        outputs = [t for t in kernel.plan.parameters if t.role == "output"]
        try:
            shapes = [tuple(d.evaluate(lambda v: known[v.name]) for d in t.dims) for t in outputs]
        except KeyError:
            # a size in an expression only: solved for, which takes numbers
            sizes = self._sizes(kernel, views, settings)
            shapes = [tensor_shape(t, sizes.environment) for t in outputs]
        return tuple(new_output(t, s, given) for t, s in zip(outputs, shapes, strict=True))

    @property
    def syntax(self) -> ast.Kernel:
        """The kernel as written."""
        return self._syntax

    def torch_op(self, name: str) -> Any:
        """The kernel as a PyTorch operator `namespace::name`: `tilec.torch.op` without a backward."""
        from tilec.calling.torch_op import make_operator

        return make_operator(self, self._syntax, name)

    def _sizes(
        self,
        kernel: CompiledKernel,
        views: Mapping[str, ArrayView],
        settings: Mapping[str, Any],
    ) -> CallSizes:
        """Every number of a call, dtypes and strides of the arrays checked."""
        plan = kernel.plan
        given = {t.name: storage_view(views[t.name], t) for t in plan.parameters if t.name in views}
        shapes = {t.name: extents(given[t.name], t) for t in plan.parameters if t.name in given}
        known = {**strides_of(plan, given, shapes), **settings}
        return bind_sizes(plan, known, None, shapes, statics=kernel.program.statics)

    # ---- compiling

    def _choose_arch(self, on_gpu: bool, index: int) -> str:
        if self._arch:
            return self._arch
        gpu = self._gpu_capability(index) if on_gpu or self.device != "cpu" else None
        return architecture_for(gpu) if gpu else EMULATED_ARCH

    def _gpu_capability(self, index: int) -> tuple[int, int] | None:
        from tilec.calling.devices import devices

        found = devices()
        return found[index].compute_capability if index < len(found) else None

    def _specialise(self, views: Mapping[str, ArrayView], arch: str) -> _Built:
        """The kernel compiled for what the arrays say of its bracket parameters."""
        return self._compiled({**deduced(self._syntax, self.defines, views), **self.defines}, arch)

    def _as_tuned(self, built: _Built, sizes: CallSizes, device: str) -> _Built:
        """The kernel with what `tilec tune` found on this device for the nearest sizes; as it was where nothing was found."""
        if not self.tuned:
            return built
        from tilec.jobs.tuned import tuned_choices

        known = {**sizes.numbers, **sizes.scalars}
        missing: list[Diagnostic] = []
        choices = tuned_choices(
            self.file,
            self.name,
            built.defines,
            built.arch,
            settings=[f"{n}={v}" for n, v in known.items()],
            gpu=device,
            with_cache=True,
            missing=missing,
        )
        for said in missing:
            warnings.warn(f"{said.message}: {said.notes[0]}", stacklevel=2)
        if not choices:
            return built
        return self._compiled(built.defines, built.arch, choices[self.name])

    def _device_name(self, on_gpu: bool, index: int) -> str:
        from tilec.calling.devices import devices

        if on_gpu or (self.device != "cpu" and devices()):
            return devices()[index].name
        return "emulator"

    def _compiled(
        self, defines: Mapping[str, str], arch: str, choice: Choice | None = None
    ) -> _Built:
        from tilec.jobs.tuned import compile_tuned

        found = choice or {}
        key = (arch, repr(sorted(defines.items())), repr(sorted(found.items())))
        if key not in self._built:
            file, _ = compile_tuned(
                self.file,
                {self.name: found} if found else {},
                kernel=self.name,
                defines=defines,
                archs=(arch,),
            )
            kernel = file.kernel(self.name)
            self._built[key] = _Built(file, kernel, arch, dict(defines), found)
        return self._built[key]

    def _current(self) -> _Built:
        """What the last call used; before the first one the kernel with its defaults."""
        if self._last is None:
            self._last = self._compiled(self.defines, self._choose_arch(False, 0))
        return self._last

    # ---- on a GPU

    def _forms_of_torch(self) -> Forms | None:
        """The forms of earlier calls with PyTorch's tensors; None before PyTorch is imported."""
        if self._forms is None:
            self._forms = forms_of_torch()
        return self._forms

    def _remember(
        self,
        key: tuple[Any, ...],
        built: _Built,
        call: _Call,
        index: int,
        arguments: tuple[Any, ...],
        named: Mapping[str, Any],
    ) -> None:
        """The next call of this form goes the short way."""
        kernel, plan, sizes = built.kernel, built.kernel.plan, call.sizes
        given = [n for n in call.arrays if n in call.own]
        made = {n: a for n, a in call.arrays.items() if n not in call.own}
        if any(v.kind != "torch" for v in call.views.values()):
            return

        def by_c(addresses: Sequence[int], workspace: int, stream: int) -> None:
            # built when a stream first needs it
            found = self._c_launcher(built).bound(kernel, sizes)
            launches[True] = (found, "c launcher")
            found(addresses, workspace, stream)

        launches: dict[bool, tuple[Launch, str]] = {True: (by_c, "c launcher")}
        fast = self.launcher != "pycuda" and extension() is not None
        if fast or self.launcher == "c" or not pycuda_is_there():
            found = self._c_launcher(built).bound(kernel, sizes)
            launches = dict.fromkeys((False, True), (found, "c launcher"))
        else:
            launches[False] = (self._pycuda(built, index).bound(kernel, sizes), "pycuda")
            if self.launcher == "pycuda":
                return  # a stream of PyTorch's must be refused
        needed = workspace_bytes(plan, sizes)
        assert self._forms is not None
        form = form_of(built, plan, index, given, made, needed, launches)
        self._forms.keep(key, form)
        if fast:
            self._remember_fast(form, sizes, arguments, named)

    def _remember_fast(
        self, form: Form, sizes: CallSizes, arguments: tuple[Any, ...], named: Mapping[str, Any]
    ) -> None:
        """The next call of this form runs in C: from the first one on the class's `__call__` is the extension's, for which this class's
        does what is no call of a known form."""
        if self._fast_forms is None:
            if type(self) is not Kernel:
                return  # a class of the caller's has calls of its own
            self._fast_forms = new_forms(Kernel.__call__)
            self.__class__ = fast_class(Kernel)
        kernel, launcher = form.built.kernel, self._c_launcher(form.built)
        launcher_entry, numbers = launcher.packed(kernel, sizes)
        self._fast_forms.keep(
            arguments, dict(named), launcher_entry, numbers, form.places, form.outputs, form.results,
            form.workspace, form.device, form.built, partial(launcher.refused, kernel, sizes),
        )  # fmt: skip

    def _launch(self, built: _Built, call: _Call, stream: Any, index: int) -> None:
        views = list(call.views.values())
        theirs = [v for n, v in call.views.items() if n in call.own]
        handle = current_stream(theirs) if stream is None else stream_handle(stream)
        foreign = all(v.kind != "pycuda" for v in views)
        is_pycuda = type(stream).__module__.partition(".")[0] == "pycuda"
        if self.launcher == "pycuda" and handle and not is_pycuda:
            raise fail(
                "E0814",
                "pycuda cannot launch on a stream of another library",
                help='leave `launcher="pycuda"` out: the C launcher takes any stream',
            )
        # what is called fast later is built once, by this first call already
        fast = all(v.kind == "torch" for v in views) and extension() is not None
        through_c = self.launcher == "c" or (
            self.launcher == "auto"
            and (((handle or fast) and not is_pycuda) or not pycuda_is_there())
        )
        addresses = {n: v.address for n, v in call.views.items()}
        with device_guard(views):
            workspace, _keep = self._workspace(built, call, index, foreign, through_c)
            if through_c:
                launcher = self._c_launcher(built)
                launcher.launch(built.kernel, call.sizes, addresses, workspace, stream=handle)
                self.last_path = "c launcher"
                return
            self._pycuda(built, index).launch(
                built.kernel,
                call.sizes,
                addresses,
                workspace,
                stream=stream if is_pycuda else None,
                foreign=foreign,
            )
        self.last_path = "pycuda"

    def _workspace(
        self, built: _Built, call: _Call, index: int, foreign: bool, through_c: bool
    ) -> tuple[int, Any]:
        """(address, owner): of the library whose arrays are given, else pycuda's, kept for the next call."""
        needed = workspace_bytes(built.kernel.plan, call.sizes)
        if not needed:
            return 0, None
        found = new_workspace(needed, list(call.views.values()))
        if found is not None:
            return found
        if through_c and not pycuda_is_there():
            raise fail(
                "E0811",
                f"`{self.name}` needs {needed} bytes of workspace, which nothing here can allocate",
                help="pass arrays of PyTorch or CuPy, or install pycuda",
            )
        kept = built.workspaces.get((index, foreign))
        if kept is None or kept[0] < needed:
            block = self._pycuda(built, index).allocate(needed, foreign=foreign)
            kept = built.workspaces[index, foreign] = (needed, block)
        return int(kept[1]), kept[1]

    def _pycuda(self, built: _Built, index: int) -> PycudaLauncher:
        if index not in built.pycuda:
            built.pycuda[index] = PycudaLauncher(self._cubin(built), index)
        return built.pycuda[index]

    def _cubin(self, built: _Built) -> bytes:
        from tilec.jobs.profiling import build_cubin

        return build_cubin(built.file, built.arch, self.nvcc).blob

    def _c_launcher(self, built: _Built) -> CLauncher:
        if built.c is None:
            from tilec.toolchain.build import find_toolchain
            from tilec.toolchain.cache import default_cache

            toolchain = find_toolchain(self.nvcc, cache=default_cache())
            built.c = build_c_launcher(built.file, (built.arch,), toolchain)
        return built.c

    # ---- host memory

    def _run_on_host(self, built: _Built, call: _Call) -> None:
        from tilec.calling import host_run

        if self.device == "cpu" or self._gpu_capability(0) is None:
            if self.device == "gpu":
                raise fail("E0812", "there is no GPU that can be used")
            if built.emulated is None:
                built.emulated = host_run.emulate(built.file, built.arch)
            gpu, module = built.emulated
            host_run.run(gpu, module, built.kernel, call.sizes, call.views)
            self.last_path = "emulator"
            return
        from tilec.runtime.device import open_gpu

        with open_gpu() as gpu:
            module = gpu.load(self._cubin(built))
            host_run.run(gpu, module, built.kernel, call.sizes, call.views)
        self.last_path = "pycuda with copies"

    # ---- looking inside

    def get_source(self) -> str:
        """The generated `.cu` of the last call, or of the defaults before the first one."""
        return self._current().file.cu

    def get_lowered_ir(self, stage: str = "schedule") -> str:
        """The program at a stage: `tile-ir`, `kernel-ir`, `schedule` (what one CTA does, barriers in place), `ptx`, or after
        a pass by its name. Raises TileError (E0719) for a pass that did not run."""
        built = self._current()
        from tilec.ir.printer import print_program

        match stage:
            case "tile-ir":
                return print_program(built.kernel.program)
            case "kernel-ir" | "schedule":
                return built.kernel.kernel_ir[built.arch]
            case "ptx":
                from tilec.toolchain.build import compile_ptx, find_toolchain
                from tilec.toolchain.cache import default_cache

                cache = default_cache()
                toolchain = find_toolchain(self.nvcc, cache=cache)
                done = compile_ptx(built.file.cu, built.arch, toolchain=toolchain, cache=cache)
                return done.blob.decode()
            case _:
                return self._after(built, stage)

    def _after(self, built: _Built, name: str) -> str:
        from tilec.jobs.tuned import compile_tuned

        compiled, _ = compile_tuned(
            self.file,
            {self.name: built.choice} if built.choice else {},
            kernel=self.name,
            defines=built.defines,
            archs=(built.arch,),
            print_after=(name,),
            stop="kernel-ir",
        )
        if name not in compiled.snapshots:
            raise fail(
                "E0719",
                f"no pass `{name}` ran",
                help="docs/architecture.md lists the passes; `tile-ir`, `kernel-ir`, `schedule` and `ptx` work too",
            )
        return compiled.snapshots[name]

    def explain(self) -> str:
        """What was decided for each line and why: the text of `tilec explain`."""
        from tilec.jobs.explaining import explain_compiled

        return explain_compiled(self._current().file)

    @property
    def resources(self) -> tuple[Usage, ...]:
        """Registers, spills, shared bytes and occupancy of each compiled variant; no GPU is needed, nvcc is.

        Raises TileError (E0801, E0802) without it.
        """
        from tilec.jobs.profiling import build_cubin, usage

        built = self._current()
        return usage(
            built.kernel, built.arch, build_cubin(built.file, built.arch, self.nvcc).report
        )

    def benchmark(self, *arguments: Any, **options: Any) -> Measurement:
        """Time calls with these arguments; `warmup`, `repeat`, `flush` as in `tilec.benchmark`, other names are the kernel's."""
        from tilec.calling.measuring import benchmark

        return benchmark(self, *arguments, **options)


def _view(name: str, array: Any) -> ArrayView:
    view = view_of(array)
    if view is None:
        raise TypeError(
            f"`{name}` is an array, and a {type(array).__name__} was given; arrays are PyTorch's, NumPy's, "
            "or offer __cuda_array_interface__ or DLPack"
        )
    return view


__all__ = ["Device", "Kernel", "Launcher", "TileError"]
