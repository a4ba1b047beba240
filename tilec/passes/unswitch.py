"""Branches on what the host knows leave a kernel with products: a version of the program for each outcome, among which the launch chooses.

    end = S                                            launched where causal != 0         launched where not
    if causal != 0:                                    for j in range(min(S, i.stop)):    for j in range(S):
        end = min(S, i.stop)                      ->       s = where(i >= j, …)               s = …
    for j in range(end):
        s = where(i >= j or causal == 0, …)

Inside of the kernel such a bound is a number that memory could have said: nobody knows which instances take longer, where masks matter,
or that a loop ends with the tensor. In a version it is what it is in a program without the branch. Conditions are comparisons of integer
scalars and sizes, `bool` scalars, and what `and`, `or` and `not` make of them; the same question asked again, or its opposite, is answered too.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any, TypeAlias

from tilec.ir import tile_ir as t
from tilec.ir.dtypes import BOOL, I32
from tilec.ir.symbolic import Sym, Var
from tilec.lazy_dataclass import dataclass
from tilec.passes.schedule.clone import in_terms, rebuilt
from tilec.passes.uses import all_ops, syms_of, variable_of

if TYPE_CHECKING:
    from tilec.plan.candidate import Candidate

MOST_BRANCHES = 2
"""Branches that versions are made for: each doubles their number."""

_COMPARISONS: dict[str, tuple[str, bool]] = {
    "eq": ("==", True), "ne": ("==", False), "lt": ("<", True), "ge": ("<", False), "le": ("<=", True), "gt": ("<=", False),
}  # fmt: skip
"""On the host, and whether it is that or its opposite."""

Outcome: TypeAlias = "tuple[t.HostExpr, bool]"
"""A question, and the answer."""


@dataclass(frozen=True)
class Version:
    """A program for some outcomes, with what it is compiled as; `by_size` as that of the kernel."""

    outcomes: tuple[Outcome, ...]
    program: t.Program
    candidate: Candidate
    by_size: tuple[tuple[t.Program, Candidate], ...] = ()

    @property
    def name(self) -> str:
        """What its variants are called after."""
        return "_".join("then" if answer else "otherwise" for _, answer in self.outcomes)


def condition_of(program: t.Program) -> t.HostExpr | None:
    """The first question that the host can answer and a branch of a nest with products in a loop asks, or a scalar that is chosen and that
    something is counted by; None where there is none."""
    for nest in program.nests:
        loops = [op for op in all_ops(nest.body) if isinstance(op, t.For)]
        if not any(isinstance(op, t.Dot) for loop in loops for op in all_ops(loop.body)):
            continue
        asked = _Asked()
        variables = (v for op in all_ops(nest.body) for s in syms_of(op) for v in s.variables)
        counting = {v.key for v in variables if v.kind == "value"}
        for op in all_ops(nest.body):
            asked.note(op)
            match op:
                case t.If():
                    found = asked.of(op.condition)
                case t.Elementwise(op="where", args=(condition, *_)) if op.out.type.rank == 0:
                    found = asked.of(condition) if op.out.id in counting else None
                case _:
                    found = None
            if found is not None:
                return found[0]
    return None


def assuming(program: t.Program, outcomes: Iterable[Outcome]) -> t.Program:
    """The program where questions have these answers."""
    for question, answer in outcomes:
        nests = tuple(
            replace(nest, body=_Version(question, answer).block(nest.body))
            for nest in program.nests
        )
        program = replace(program, nests=nests)
    return program


def holding(outcomes: Iterable[Outcome]) -> tuple[t.HostExpr, ...]:
    """What the host asks for a version."""
    return tuple(q if answer else t.HostOp("not", (q,)) for q, answer in outcomes)


class _Asked:
    """What scalars are on the host, by id: questions with whether they or their opposite are meant, and integers."""

    def __init__(self) -> None:
        self.questions: dict[int, Outcome] = {}
        self.numbers: dict[int, t.HostExpr] = {}

    def of(self, value: t.Value) -> Outcome | None:
        """The question that a bool scalar is, False for its opposite."""
        return self.questions.get(value.id)

    def note(self, op: t.Op) -> None:
        """Note what an op gives."""
        if len(op.outs) != 1 or op.out.type.rank:
            return
        number = op.out.id
        match op:
            case t.Scalar() if op.out.type.dtype == BOOL:
                self.questions[number] = t.HostScalar(op.name), True
            case t.Scalar() if op.out.type.dtype == I32:
                self.numbers[number] = t.HostScalar(op.name)
            case t.Constant() if isinstance(op.value, int) and op.out.type.dtype == I32:
                self.numbers[number] = t.HostNumber(op.value)
            case t.FromSym() if op.out.type.dtype == I32 and _is_size(op.sym):
                self.numbers[number] = op.sym
            case t.Elementwise(op=name, args=(left, right)) if name in _COMPARISONS:
                operator, meant = _COMPARISONS[name]
                sides = [self.numbers[v.id] for v in (left, right) if v.id in self.numbers]
                if operator == "==" and isinstance(sides[0] if sides else None, t.HostNumber):
                    sides.reverse()
                if len(sides) == 2:
                    self.questions[number] = t.HostOp(operator, tuple(sides)), meant  # type: ignore[arg-type]
            case t.Elementwise(op="not", args=(arg,)):
                if (known := self.of(arg)) is not None:
                    self.questions[number] = known[0], not known[1]
            case t.Elementwise(op="and" | "or" as name, args=args):
                parts = [self.of(v) for v in args]
                if all(p is not None for p in parts):
                    whole = holding(p for p in parts if p is not None)
                    self.questions[number] = t.HostOp(name, whole), True
            case _:
                pass


def _is_size(sym: Sym) -> bool:
    """Whether a number is a size or a parameter as it is: sums have as many bits on the host as nowhere else."""
    return sym.constant is not None or (
        sym.is_atomic and all(v.kind in ("dim", "scalar") for v in sym.variables)
    )


class _Version:
    """Rewrites blocks for one answer: values that others stand for, integers, and bools that are known."""

    def __init__(self, question: t.HostExpr, answer: bool):
        self.question = question
        self.answer = answer
        self.asked = _Asked()
        self.values: dict[int, t.Value] = {}
        self.syms: dict[Var, Sym] = {}
        self.counted: dict[int, Sym] = {}
        self.known: dict[int, bool] = {}

    def block(self, block: t.Block) -> t.Block:
        """A block, without the branches that are not taken."""
        ops: list[t.Op] = []
        for op in block.ops:
            ops += self._op(op)
        return t.Block(tuple(ops))

    def _op(self, op: t.Op) -> list[t.Op]:
        if isinstance(op, t.If) and (taken := self._answer(self._new(op.condition))) is not None:
            found = self.block(op.then if taken else op.otherwise)
            for merge in op.merges:
                self._stands_for(merge.then if taken else merge.otherwise, merge.result)
            return list(found.ops)
        changed: dict[str, Any] = {}
        if isinstance(op, t.For):
            # what a trip leaves is known behind its body alone
            for c in op.carried:
                self._new((c.initial, c.entry))
            changed["body"] = self.block(op.body)
        for f in fields(op):
            if f.name not in changed and f.name != "span":
                changed[f.name] = self._new(getattr(op, f.name))
        op = replace(op, **changed)
        self.asked.note(op)
        match op:
            case t.FromSym():
                self.counted[op.out.id] = op.sym
            case t.Scalar() if op.out.type.dtype == I32:
                self.counted[op.out.id] = Sym.of(Var(op.name, "scalar"))
            case t.Constant(value=int() as number) if op.out.type.dtype == I32:
                self.counted[op.out.id] = Sym.of(number)
            case _:
                pass
        if len(op.outs) == 1 and (answer := self._answer(op.out)) is not None:
            self.known[op.out.id] = answer
            return [t.Constant(outs=op.outs, span=op.span, value=answer)]
        if isinstance(op, t.Elementwise):
            return self._elementwise(op)
        return [op]

    def _elementwise(self, op: t.Elementwise) -> list[t.Op]:
        """What is left of an op some of whose arguments are known."""
        known = [self.known.get(v.id) for v in op.args]
        stands: t.Value | None = None
        match op.op, op.args:
            case "where", (_, then, otherwise) if known[0] is not None:
                stands = then if known[0] else otherwise
            case ("and" | "or") as name, (left, right):
                # True and x is x, False and x is False
                neutral = name == "and"
                for one, other in ((0, right), (1, left)):
                    if known[one] is neutral:
                        stands = other
                    elif known[one] is not None:
                        everywhere = t.Constant(outs=(op.out,), span=op.span, value=not neutral)
                        if op.out.type.rank:
                            self.known[op.out.id] = not neutral
                            return [op]
                        return [everywhere]
            case _:
                pass
        if stands is not None and stands.type == op.out.type:
            self._stands_for(stands, op.out)
            return []
        return [op]

    def _stands_for(self, value: t.Value, known: t.Value) -> None:
        """From here on a value is another one."""
        value = self._new(value)
        self.values[known.id] = value
        if value.id in self.known:
            self.known[known.id] = self.known[value.id]
        if not value.type.rank and value.type.dtype.is_integer:
            found = self.counted.get(value.id, Sym.of(variable_of(value)))
            self.syms[variable_of(known)] = found

    def _answer(self, value: t.Value) -> bool | None:
        known = self.known.get(value.id)
        found = self.asked.of(value) if known is None else None
        if found is not None and found[0] == self.question:
            return found[1] == self.answer
        return known

    def _new(self, node: Any) -> Any:
        """A part of an op in terms of the version."""
        match node:
            case t.Value():
                if node.id in self.values:
                    return self.values[node.id]
                type_ = self._new(node.type)
                self.values[node.id] = node if type_ == node.type else replace(node, type=type_)
                return self.values[node.id]
            case Sym():
                return node.substitute(self.syms.get)
            case t.Block():
                return self.block(node)
            case t.Axis():
                presence = tuple(dict.fromkeys(self._new(node.presence)))
                return replace(node, extent=self._new(node.extent), presence=presence)
            case t.Carried() | t.Merge() | t.Region():
                return rebuilt(node, self._new)
            case _:
                return in_terms(node, self._new, self.values)
