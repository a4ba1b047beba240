"""The launch plan rendered to C: the launcher, its header, and what they check."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from tilec.emit.c_names import c_name
from tilec.emit.expressions import EQUAL
from tilec.emit.host import HostRenderer
from tilec.emit.kernel_text import macros
from tilec.emit.layout import indent
from tilec.emit.selecting import external_declarations, selection_context
from tilec.emit.types import DEVICE, HOST, host_type, scalar_host_type
from tilec.ir.launch import (
    Argument,
    IntegerArgument,
    Launch,
    LaunchCondition,
    LaunchPlan,
    PointerArgument,
    ScalarArgument,
    Step,
    TensorMapArgument,
)
from tilec.ir.requirements import (
    INSTANCE_LIMIT,
    WORKSPACE,
    WORKSPACE_ALIGNMENT,
    Addressable,
    AlignedAddress,
    FitsGrid,
    Holds,
    NotNegative,
    Present,
    Requirement,
    Separate,
    requirements,
    size_range,
    tensor_extent,
)
from tilec.ir.selection import GENERAL
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tensor_maps import ELEMENT_TYPES, SWIZZLES
from tilec.ir.tile_ir import HostExpr, HostNumber, HostOp, HostScalar, Program, Tensor
from tilec.passes.lower.names import Names
from tilec.source.exhaustive import assert_never
from tilec.targets.table import TARGETS

_SAME_TYPE = {"int32_t": "int", "uint32_t": "unsigned"}
"""Types of the signature that kernel text names otherwise."""


class LauncherContext:
    """Everything the launcher's and the header's templates print for one plan.

    A local of the launcher whose name a parameter has gets a number."""

    def __init__(self, program: Program, plan: LaunchPlan, apart: Mapping[int, str] | None = None):
        self.program = program
        self.plan = plan
        self.apart = apart or {}
        self.name = c_name(plan.name)
        self.scalars = {s.name: s.dtype for s in plan.scalars}
        known = {t.name: max(1, t.dtype.bits // 8) for t in plan.parameters}
        known |= {w.tensor: WORKSPACE_ALIGNMENT for w in plan.workspace}
        self.host = HostRenderer(dict(program.tiles), self.scalars, known)
        taken = {c_name(n) for n in (*(t.name for t in plan.tensors), *self.scalars)}
        taken |= {c_name(v.name) for v in (*plan.dims, *plan.strides)} | {self.name}
        names = Names(str, taken)
        self.locals = {n: names.unique(n) for n in ("arguments", "status", "compute")}
        self._names = names
        self._maps: dict[str, str] = {}
        self._ctas = names.unique("ctas")
        self._tuned, self._tuned_sizes = (names.unique(n) for n in ("tuned", "tuned_sizes"))
        self.sentence = names.unique(f"{self.name}_sentence")

    # ---- signature

    def _numbers(self) -> list[tuple[str, str]]:
        return [("int", c_name(v.name)) for v in self.plan.dims]

    def _signature(self) -> list[tuple[str, str]]:
        """(type, name) of each parameter of the launcher, in order."""
        result = []
        for tensor in self.plan.parameters:
            const = "const " if tensor.role == "input" else ""
            result.append((f"{const}{host_type(tensor.dtype)}*", c_name(tensor.name)))
        result += self._numbers()
        result += [("int", c_name(v.name)) for v in self.plan.strides]
        result += [(scalar_host_type(s.dtype), c_name(s.name)) for s in self.plan.scalars]
        return [*result, ("void*", "workspace"), ("cudaStream_t", "stream")]

    def declaration(self) -> str:
        """The launcher's declaration."""
        return indent(
            f"cudaError_t {self.name}({', '.join(f'{t} {n}' for t, n in self._signature())});"
        ).strip()

    def workspace_declaration(self) -> str:
        """The declaration of the function that gives the size of the workspace."""
        parameters = ", ".join(f"{t} {n}" for t, n in self._numbers()) or "void"
        return indent(f"size_t {self.name}_workspace_bytes({parameters});").strip()

    def documentation(self) -> list[str]:
        """A line for each tensor, and one for each contract."""
        lines = []
        for tensor in self.plan.parameters:
            dims = ", ".join(str(d) for d in tensor.dims)
            lines.append(f"{c_name(tensor.name)}: {tensor.dtype}[{dims}], {tensor.role}")
        return lines + [f"requires {contract.text}" for contract in self.plan.contracts]

    # ---- requirements

    def _bytes(self, tensor: Tensor) -> str:
        size = self.host.size(tensor_extent(tensor))
        if tensor.strides is None:
            return size
        empty = " || ".join(
            f"{self.host.sym(d).at(4)} == 0" for d in tensor.dims if not _positive(d)
        )
        return f"{empty} ? 0 : {size}" if empty else size

    def checks(self) -> list[dict[str, str]]:
        """Conditions on numbers under which the call is refused, and what the refusal says."""
        return [
            {
                "condition": condition,
                "arguments": ", ".join([_quoted(r.sentence), *self._mentioned(r)]),
            }
            for r in requirements(self.plan)
            if not isinstance(r, Separate) and (condition := self._violated(r))
        ]

    def _violated(self, requirement: Requirement) -> str:
        """The condition in C; "" for what cannot be, and for what concerns addresses."""
        match requirement:
            case NotNegative():
                return f"{self.host.sym(requirement.value).at(4)} < 0"
            case Holds():
                return self.host.condition(HostOp("not", (requirement.contract.condition,)))
            case FitsGrid():
                high = requirement.instances.bounds(size_range)[1]
                if high is not None and high <= INSTANCE_LIMIT:
                    return ""
                return f"{self.host.sym(requirement.instances).at(4)} > {INSTANCE_LIMIT}"
            case Addressable() | Present() | AlignedAddress() | Separate():
                return ""
        assert_never(requirement)

    def _mentioned(self, requirement: Requirement) -> list[str]:
        """The numbers that the sentence ends with, as an initialiser."""
        match requirement:
            case NotNegative():
                names = _names(requirement.value)
            case Holds():
                names = _names(requirement.contract.condition)
            case FitsGrid():
                names = _names(requirement.instances)
            case _:
                return []
        items = ", ".join(f'{{"{n}", {c_name(n)}}}' for n in names if n not in self.program.tiles)
        return [f"{{{items}}}"] if items else []

    def arguments(self) -> list[str]:
        """An initialiser for each pointer: name, address, bytes, alignment, whether it is written."""
        rows = [
            (t.name, c_name(t.name), self._bytes(t), max(1, t.dtype.bits // 8), t.role != "input")
            for t in self.plan.parameters
        ]
        if self.plan.workspace:
            size = self._workspace_size()
            if self.plan.spare is not None:
                needed = self.host.size(self.plan.workspace_bytes)
                sizes = ", ".join(name for _, name in self._numbers())
                size = f"static_cast<int64_t>({self.name}_workspace_bytes({sizes}))"
                size = f"workspace == nullptr ? {needed} : {size}"
            rows.append((WORKSPACE, "workspace", size, WORKSPACE_ALIGNMENT, True))
        return [
            f'{{"{name}", {pointer}, {size}, {alignment}, {"true" if written else "false"}}}'
            for name, pointer, size, alignment, written in rows
        ]

    def _workspace_size(self) -> str:
        """Bytes of workspace, what a call can do without included."""
        needed = self.host.size(self.plan.workspace_bytes)
        spare = self.plan.spare
        if spare is None:
            return needed
        more = f"({self.host.condition(spare.condition)} ? {self.host.size(spare.bytes)} : 0)"
        return more[1:-1] if needed == "0" else f"{needed} + {more}"

    # ---- launches

    def workspace_pointers(self) -> list[str]:
        """A pointer for each temp."""
        lines = []
        for place in self.plan.workspace:
            kind = DEVICE[self.program.tensor(place.tensor).dtype]
            offset = self.host.sym(place.offset).at(4)
            base = "workspace" if offset == "0" else f"static_cast<char*>(workspace) + {offset}"
            cast = "static_cast" if offset == "0" else "reinterpret_cast"
            lines.append(f"{kind}* const {c_name(place.tensor)} = {cast}<{kind}*>({base});")
        return lines

    def _launch(self, launch: Launch) -> dict[str, Any]:
        shared = [str(launch.shared_bytes)] if launch.shared_bytes else []
        grid, setup = self._grid(launch)
        for argument in launch.arguments:
            if isinstance(argument, TensorMapArgument):
                setup += self._encoding(argument)
        return {
            "kernel": launch.kernel,
            "condition": self.host.condition(launch.condition),
            "about": launch.about,
            "before": [self._launch(one) for one in launch.before],
            "after": [self._launch(one) for one in launch.after],
            "setup": setup,
            "function": "host_launch_early" if launch.early else "host_launch",
            "overlaps": self._overlaps(launch, grid) if launch.early else "",
            "grid": ", ".join([grid, str(launch.block), *shared]),
            "arguments": [self._argument(a) for a in launch.arguments],
        }

    @staticmethod
    def _overlaps(launch: Launch, grid: str) -> str:
        """Where a launch that may begin early does."""
        if launch.overlaps is None:
            return "true"
        most, least = launch.overlaps
        return f"{grid} <= {most} || {grid} >= {least}"

    def _grid(self, launch: Launch) -> tuple[str, list[str]]:
        """How many CTAs, and the statements before."""
        grid = self.host.size(launch.grid)
        whole = all(coefficient % launch.cluster == 0 for _, coefficient in launch.grid.terms)
        if not whole:
            grid = f"host_whole_clusters({grid}, {launch.cluster})"
        if not launch.resident:
            return grid, []
        call = f"host_limit_to_resident(&{self._ctas}, {launch.resident}, {launch.cluster})"
        lines = [f"int64_t {self._ctas} = {grid};", *self._tried(call)]
        if launch.cluster > 2:  # multiprocessors come in pairs
            held = f"{launch.block}, {launch.shared_bytes}, {launch.cluster}"
            lines += self._tried(f"host_limit_to_clusters<{launch.kernel}>(&{self._ctas}, {held})")
        if launch.even:
            total = self.host.size(launch.grid)
            lines.append(
                f"{self._ctas} = host_even_rounds({total}, {self._ctas}, {launch.cluster});"
            )
        return self._ctas, lines

    def _encoding(self, argument: TensorMapArgument) -> list[str]:
        """The statements that make a tensor map."""
        assert not argument.fault, argument.fault
        name = self._map(argument)
        dims, strides = (
            ", ".join(self.host.size(n) for n in numbers)
            for numbers in (argument.dims, argument.strides)
        )
        base = c_name(argument.tensor)
        if argument.instead is not None:
            copied = self.host.piece(argument.instead.condition).at(EQUAL)
            base = f"{copied} ? {c_name(argument.instead.tensor)} : {base}"
        parts = [
            base,
            ELEMENT_TYPES[argument.dtype].name,
            SWIZZLES[argument.swizzle].name,
            str(len(argument.dims)),
            f"{{{dims}}}",
            f"{{{strides}}}",
            f"{{{', '.join(map(str, argument.box))}}}",
        ]
        made = f'&{name}, "{argument.tensor}", {{{", ".join(parts)}}}, &{self.sentence}'
        return [f"CUtensorMap {name}{{}};", *self._tried(f"host_tensor_map({made})")]

    def _map(self, argument: TensorMapArgument) -> str:
        """The launcher's name of a map; each is declared in a block of its own."""
        if argument.name not in self._maps:
            self._maps[argument.name] = self._names.unique(c_name(argument.name))
        return self._maps[argument.name]

    def _tried(self, call: str) -> list[str]:
        status = self.locals["status"]
        return [f"{status} = {call};", f"if ({status} != cudaSuccess) return {status};"]

    def _argument(self, argument: Argument) -> str:
        match argument:
            case PointerArgument():
                return self._pointer(self.program.tensor(argument.tensor))
            case IntegerArgument():
                if _variable(argument.value):
                    return self.host.size(argument.value)
                kind = "int64_t" if argument.wide else "int"
                return f"static_cast<{kind}>({self.host.size(argument.value)})"
            case ScalarArgument():
                name = c_name(argument.name)
                return f"{name} != 0" if self.scalars[argument.name].kind == "bool" else name
            case TensorMapArgument():
                return self._map(argument)
        assert_never(argument)

    def _pointer(self, tensor: Tensor) -> str:
        name = c_name(tensor.name)
        host = HOST.get(tensor.dtype, "void")
        if tensor.role == "temp" or DEVICE[tensor.dtype] == _SAME_TYPE.get(host, host):
            return name
        const = "const " if tensor.role == "input" else ""
        cast = "static_cast" if host == "void" else "reinterpret_cast"
        return f"{cast}<{const}{DEVICE[tensor.dtype]}*>({name})"

    def targets(self) -> list[dict[str, Any]]:
        """The choice by device, newest architecture first, and the variants of each, the general one last."""
        newest = sorted(
            self.plan.targets, key=lambda t: (TARGETS[t.arch].compute, t.arch), reverse=True
        )
        result = []
        for target in newest:
            compute = TARGETS[target.arch].compute
            sign = "==" if target.arch.endswith("a") else ">="
            tuned = target.selection.alternatives if target.selection else ()
            branches = [self._branch(a.number, a.label, a.steps, a.condition) for a in tuned]
            note = "the general variant" if tuned else ""
            branches.append(self._branch(GENERAL, note, target.steps, None))
            result.append(
                {
                    "condition": f"{self.locals['compute']} {sign} {compute}",
                    "selection": selection_context(target.selection, self._tuned, self._tuned_sizes)
                    if target.selection
                    else None,
                    "branches": branches,
                }
            )
        return result

    def _branch(
        self, number: int, note: str, steps: tuple[Step, ...], condition: LaunchCondition | None
    ) -> dict[str, Any]:
        """One variant: the condition besides those before it, "" for the last one."""
        text = ""
        if condition is not None:
            text = f"{self._tuned} == {number}"
            more = self.host.piece(condition)
            text += "" if more.text == "true" else f" && {more.at(EQUAL)}"
        call = ""
        if self.apart:
            call = f"{c_name(self.apart[number])}({', '.join(n for _, n in self._signature())})"
        return {
            "condition": text,
            "note": note,
            "call": call,
            "error": f"{c_name(self.apart[number])}_error" if self.apart else "",
            "steps": [
                {
                    "instances": self.host.sym(step.instances).at(4),
                    "launches": [self._launch(launch) for launch in step.launches],
                }
                for step in ([] if self.apart else steps)
            ],
        }

    # ---- text

    def render(self) -> str:
        """The launcher's text."""
        workspace = self._workspace_size()
        targets = self.targets()
        checks, arguments, pointers = [], [], []
        if not self.apart:
            checks, arguments = self.checks(), self.arguments()
            pointers = self.workspace_pointers()
        used = f"{checks} {arguments} {targets} {pointers} stream"
        context = {
            **self.locals,
            "name": self.name,
            "sentence": self.sentence,
            "workspace_parameters": _parameters(self._numbers(), workspace),
            "workspace_bytes": "0"
            if workspace == "0"
            else f"static_cast<size_t>(host_max_of({workspace}, 0))",
            "parameters": _parameters(self._signature(), used),
            "checks": checks,
            "rows": arguments,
            "workspace_pointers": pointers,
            "several": len(targets) > 1,
            "targets": targets,
            "external": external_declarations(self.apart, self._signature()),
        }
        return indent(str(macros("unit/launcher.jinja")["launcher"](context)))


def _parameters(signature: list[tuple[str, str]], text: str) -> list[str]:
    """Parameters of a definition; one that the text does not mention has its name in a comment."""
    return [f"{t} {n}" if _mentions(text, n) else f"{t} /*{n}*/" for t, n in signature]


def _mentions(text: str, name: str) -> bool:
    return re.search(rf"\b{re.escape(name)}\b", text) is not None


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _positive(dim: Sym) -> bool:
    low = dim.bounds(size_range)[0]
    return low is not None and low > 0


def _names(expr: HostExpr) -> list[str]:
    """Names in a host expression, in order of first appearance."""
    match expr:
        case Sym():
            return sorted({v.name for v in expr.variables})
        case HostScalar():
            return [expr.name]
        case HostOp():
            return list(dict.fromkeys(n for a in expr.args for n in _names(a)))
        case HostNumber():
            return []
    assert_never(expr)


def _variable(sym: Sym) -> bool:
    """Whether a size is one variable."""
    return (
        len(sym.terms) == 1
        and sym.terms[0][1] == 1
        and len(sym.terms[0][0]) == 1
        and isinstance(sym.terms[0][0][0], Var)
    )
