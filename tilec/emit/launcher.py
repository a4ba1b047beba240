"""The launch plan rendered to C: the launcher, its header, and what they check."""

from __future__ import annotations

from typing import Any

from tilec.emit.c_names import c_name
from tilec.emit.expressions import PRODUCT
from tilec.emit.host import HostRenderer
from tilec.emit.kernel_text import macros
from tilec.emit.layout import indent
from tilec.emit.types import host_type, scalar_host_type
from tilec.ir.launch import (
    IntegerArgument,
    Launch,
    LaunchPlan,
    PointerArgument,
    ScalarArgument,
    product,
)
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import HostOp, Program, Tensor
from tilec.targets.table import TARGETS


class LauncherContext:
    """Everything the launcher's and the header's templates print for one plan."""

    def __init__(self, program: Program, plan: LaunchPlan):
        self.program = program
        self.plan = plan
        variables: set[Var] = set(plan.dims) | set(plan.strides)
        variables |= {Var(s.name, "scalar") for s in plan.scalars}
        self.host = HostRenderer(frozenset(variables), dict(program.tiles))
        self.name = c_name(plan.name)

    # ---- signature

    def dim_parameters(self) -> list[str]:
        """`int M, int N`."""
        return [f"int {c_name(v.name)}" for v in self.plan.dims]

    def parameters(self) -> list[str]:
        """All parameters of the launcher, in order."""
        result = []
        for tensor in self.plan.parameters:
            const = "const " if tensor.role == "input" else ""
            result.append(f"{const}{host_type(tensor.dtype)}* {c_name(tensor.name)}")
        result += self.dim_parameters()
        result += [f"int {c_name(v.name)}" for v in self.plan.strides]
        result += [f"{scalar_host_type(s.dtype)} {c_name(s.name)}" for s in self.plan.scalars]
        return [*result, "void* workspace", "cudaStream_t stream"]

    def documentation(self) -> list[str]:
        """A line for each tensor: dtype and dimensions."""
        lines = []
        for tensor in self.plan.parameters:
            dims = ", ".join(str(d) for d in tensor.dims)
            lines.append(f"{c_name(tensor.name)}: {tensor.dtype}[{dims}] ({tensor.role})")
        return lines

    # ---- checks

    def _bytes(self, tensor: Tensor) -> str:
        """Bytes that a tensor covers."""
        if tensor.strides is not None:
            reach = Sym.of(1)
            for dim, stride in zip(tensor.dims, tensor.strides, strict=True):
                reach = reach + (dim - 1) * stride
            empty = " || ".join(f"{self.host.sym(d).at(PRODUCT)} == 0" for d in tensor.dims)
            inner = self.host.size(reach * (tensor.dtype.bits // 8 or 1))
            return f"({empty}) ? 0 : {inner}" if empty else inner
        elements = product(tensor.dims)
        if tensor.dtype.bits < 8:
            return self.host.size((elements + 1) // 2)
        return self.host.size(elements * (tensor.dtype.bits // 8))

    def checks(self) -> list[dict[str, str]]:
        """Conditions under which the call is refused, with the sentence."""
        result: list[dict[str, str]] = []

        def refuse(condition: str, sentence: str) -> None:
            quoted = '"' + sentence.replace("\\", "\\\\").replace('"', '\\"') + '"'
            result.append({"condition": condition, "sentence": quoted})

        for var in self.plan.dims:
            refuse(f"{c_name(var.name)} < 0", f"{var.name} is negative")
        for tensor in self.plan.parameters:
            for dim in tensor.dims:
                if (dim.constant is None and len(dim.terms) > 1) or any(
                    not isinstance(a, Var) for m, _ in dim.terms for a in m
                ):
                    refuse(
                        f"{self.host.sym(dim).at(4)} < 0",
                        f"a dimension of {tensor.name}, {dim}, is negative",
                    )
        for contract in self.plan.contracts:
            refuse(
                self.host.condition(HostOp("not", (contract.condition,))),
                f"requires {contract.text}",
            )
        for tensor in self.plan.parameters:
            name = c_name(tensor.name)
            size = self._bytes(tensor)
            empty = f"{size} > 0" if "?" not in size else f"({size}) > 0"
            refuse(f"{name} == nullptr && {empty}", f"{tensor.name} is null")
            if tensor.dtype.bits > 8:
                refuse(
                    f"!is_aligned({name}, {tensor.dtype.bits // 8})",
                    f"{tensor.name} is not aligned to its elements",
                )
        if self.plan.workspace:
            size = self.host.size(self.plan.workspace_bytes)
            refuse(f"workspace == nullptr && {size} > 0", "workspace is null")
            refuse("!is_aligned(workspace, 256)", "workspace is not aligned to 256 bytes")
        return result

    def spans(self) -> list[dict[str, Any]]:
        """Byte ranges for the overlap check, none where nothing is written beside another argument."""
        tensors = self.plan.parameters
        if len(tensors) + bool(self.plan.workspace) < 2 or all(t.role == "input" for t in tensors):
            return []
        result: list[dict[str, Any]] = [
            {"pointer": c_name(t.name), "bytes": self._bytes(t), "written": t.role != "input"}
            for t in tensors
        ]
        if self.plan.workspace:
            result.append(
                {
                    "pointer": "workspace",
                    "bytes": self.host.size(self.plan.workspace_bytes),
                    "written": True,
                }
            )
        return result

    # ---- launches

    def workspace_pointers(self) -> list[str]:
        """A pointer for each temp."""
        return [
            f"{host_type(self.program.tensor(w.tensor).dtype)}* const {c_name(w.tensor)} = "
            f"reinterpret_cast<{host_type(self.program.tensor(w.tensor).dtype)}*>("
            f"static_cast<char*>(workspace) + {self.host.sym(w.offset).at(4)});"
            for w in self.plan.workspace
        ]

    def _launch(self, launch: Launch) -> dict[str, Any]:
        return {
            "kernel": launch.kernel,
            "condition": self.host.condition(launch.condition),
            "grid": self.host.size(launch.grid),
            "block": launch.block,
            "shared_bytes": launch.shared_bytes,
            "arguments": [self._argument(a) for a in launch.arguments],
        }

    def _argument(self, argument: PointerArgument | IntegerArgument | ScalarArgument) -> str:
        from tilec.emit.types import DEVICE, HOST

        match argument:
            case PointerArgument():
                tensor = self.program.tensor(argument.tensor)
                name = c_name(tensor.name)
                same = DEVICE[tensor.dtype] == {"int32_t": "int", "uint32_t": "unsigned"}.get(
                    HOST.get(tensor.dtype, ""), HOST.get(tensor.dtype, "")
                )
                if same:
                    return name
                const = "const " if tensor.role == "input" else ""
                cast = "static_cast" if tensor.dtype not in HOST else "reinterpret_cast"
                return f"{cast}<{const}{DEVICE[tensor.dtype]}*>({name})"
            case IntegerArgument():
                if isinstance(atom := _only_atom(argument.value), Var):
                    return c_name(atom.name)
                kind = "int64_t" if argument.wide else "int"
                return f"static_cast<{kind}>({self.host.size(argument.value)})"
            case ScalarArgument():
                scalar = next(s for s in self.plan.scalars if s.name == argument.name)
                return (
                    f"{c_name(scalar.name)} != 0"
                    if scalar.dtype.kind == "bool"
                    else c_name(scalar.name)
                )

    def targets(self) -> list[dict[str, Any]]:
        """The choice by device, newest architecture first, and the steps of each."""
        result = []
        for target in sorted(self.plan.targets, key=lambda t: -TARGETS[t.arch].compute):
            steps = []
            for step in target.steps:
                instances = step.instances
                steps.append(
                    {
                        "instances": self.host.size(instances),
                        "launches": [self._launch(launch) for launch in step.launches],
                    }
                )
            compute = TARGETS[target.arch].compute
            exact = target.arch.endswith("a")
            condition = f"compute {'==' if exact else '>='} {compute}"
            result.append({"arch": target.arch, "condition": condition, "steps": steps})
        return result

    def unused(self) -> list[str]:
        """Parameters that nothing reads."""
        text = (
            str(self.targets())
            + str(self.checks())
            + str(self.spans())
            + str(self.workspace_pointers())
        )
        import re

        found = []
        for parameter in [*self.parameters()]:
            name = parameter.split(" ")[-1]
            if name in ("stream",):
                continue
            if not re.search(rf"\b{re.escape(name)}\b", text):
                found.append(name)
        return found

    def render(self) -> str:
        """The launcher's text."""
        import re

        workspace = self.host.size(self.plan.workspace_bytes)
        context = {
            "name": self.name,
            "dim_parameters": self.dim_parameters(),
            "unused_by_workspace": [
                c_name(v.name)
                for v in self.plan.dims
                if not re.search(rf"\b{re.escape(c_name(v.name))}\b", workspace)
            ],
            "workspace_bytes": workspace
            if workspace == "0"
            else f"static_cast<size_t>({workspace})",
            "parameters": self.parameters(),
            "checks": self.checks(),
            "spans": self.spans(),
            "unused": self.unused(),
            "workspace_pointers": self.workspace_pointers(),
            "several": len(self.plan.targets) > 1,
            "targets": self.targets(),
        }
        return indent(str(macros("unit/launcher.jinja")["launcher"](context)))


def _only_atom(sym: Sym) -> object:
    if len(sym.terms) == 1 and sym.terms[0][1] == 1 and len(sym.terms[0][0]) == 1:
        return sym.terms[0][0][0]
    return None
