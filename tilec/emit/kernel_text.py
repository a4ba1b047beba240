"""One kernel's body as text: ops through their template macros, expressions through the renderer."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any

from tilec.emit.expressions import Renderer, reduction
from tilec.emit.grid import drawn_loop, instance_loop, next_place, next_told, queue_loop
from tilec.emit.types import DEVICE
from tilec.ir import asynchronous as a
from tilec.ir import covering_ops as c
from tilec.ir import exchanges as e
from tilec.ir import kernel_filters as f
from tilec.ir import kernel_ir as k
from tilec.ir import window_ops as w
from tilec.ir.dtypes import DType
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Var
from tilec.resources import cache_directory, resource_root
from tilec.source.text import NOWHERE, Span

if TYPE_CHECKING:
    from jinja2 import Environment

_SYNTAX: dict[str, Any] = {
    "variable_start_string": "${",
    "variable_end_string": "}",
    "line_statement_prefix": "//%",
    "line_comment_prefix": "//#",
    "trim_blocks": True,
    "lstrip_blocks": True,
}
_FAMILIES = ("scalars", "copies", "products", "asynchronous", "exchanges", "structure", "filters")
_NESTED = (
    k.TileLoop, k.Elements, k.Loop, k.IfUniform, w.IfWhole, k.IfAnyLane, a.Instances, e.InstanceQueue, a.Roles, f.Question,
)  # fmt: skip
"""Ops with others in them, whose macros are given the text of those."""


@cache
def environment() -> Environment:
    """The Jinja environment of all templates: `${x}` values, `//%` statements, `//#` comments."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined

    from tilec.emit.template_cache import PlainContext, TemplateCache

    found = Environment(
        loader=FileSystemLoader(str(resource_root("templates"))),
        bytecode_cache=TemplateCache(cache_directory() / "templates", repr(_SYNTAX)),
        undefined=StrictUndefined,
        autoescape=False,
        **_SYNTAX,
    )
    found.context_class = PlainContext
    return found


@cache
def macros(template: str) -> Mapping[str, Callable[..., str]]:
    """The macros of one template, by name; each returns text."""
    return dict(vars(environment().get_template(template).module))


@cache
def _op_macros() -> Mapping[str, Callable[..., str]]:
    found: dict[str, Callable[..., str]] = {}
    for family in _FAMILIES:
        found |= macros(f"ops/{family}.jinja")
    return found


@cache
def _macro_name(kind: str) -> str:
    return re.sub(r"(?<!^)(?=[A-Z])", "_", kind).lower()


@cache
def _word(name: str) -> re.Pattern[str]:
    """Finds an identifier as a whole."""
    return re.compile(rf"\b{re.escape(name)}\b")


class KernelWriter:
    """Renders one kernel; the macros call its methods as `x`."""

    def __init__(self, kernel: k.Kernel, facts: Facts):
        self.kernel = kernel
        self._axes: tuple[k.LoopAxis, ...] | None = None
        self._last: tuple[str, int] | None = None
        self.next_place: list[str] = []
        constants = {(axis.name, "lanes"): f"kLanes{axis.suffix}" for axis in kernel.axes}
        self.renderer = Renderer(dict(kernel.names), self._prover(facts, kernel), constants)

    @staticmethod
    def _prover(facts: Facts, kernel: k.Kernel) -> Any:
        known = Facts(
            facts.tiles,
            dict(facts.upper),
            dict(facts.lower),
            dict(facts.divisors),
            list(facts.positive),
            dict(facts.trips),
        )
        for axis in kernel.axes:
            for name in (axis.coordinate, axis.element, axis.lane, axis.step, f"{axis.name}_sub"):
                windowed = axis.windowed and name in (axis.coordinate, axis.element)
                known.lower[Var(name, "local")] = 1 - axis.layout.vector if windowed else 0
            known.lower[Var(f"kThreads{axis.suffix}", "local")] = 1
            known.lower[Var(axis.shift, "local")] = 0
        known.lower[Var("thread", "local")] = 0
        for name in ("turn", "warpgroup", "rank"):
            known.lower[Var(name, "local")] = 0
        known.lower[Var("team", "local")] = 0
        return known.prove_nonnegative

    # ---- ops

    def body(self) -> str:
        """The whole body."""
        return self.block(self.kernel.body)

    def block(self, ops: tuple[k.Op, ...]) -> str:
        """Ops in order, each source line quoted above what it became."""
        return "\n".join(self.op(op) for op in ops)

    def op(self, op: k.Op) -> str:
        """One op through its macro."""
        comment = self._comment(op.span) if self._axes is None else ""
        macro = _op_macros()[_macro_name(type(op).__name__)]
        if not isinstance(op, _NESTED):
            return comment + macro(op, self).strip("\n")
        match op:
            case k.TileLoop():
                head, rest = _split_head(op.body)
                outer, self._axes = self._axes, op.axes
                text = macro(op, self, self.block(head), self.block(rest))
                self._axes = outer
            case k.Elements():
                head, rest = _split_head(op.body)
                axis = next((a for a in self._axes or () if a.vectorised), None)
                text = macro(op, self, axis, self.block(head), self.block(rest))
            case k.Loop() | f.Question():
                text = macro(op, self, self.block(op.body))
            case k.IfUniform() | w.IfWhole() | k.IfAnyLane():
                text = macro(op, self, self.block(op.then), self.block(op.otherwise))
            case a.Instances():
                self.next_place = self._next_place(op) if op.ahead else []
                parts = [self.op(inner) for inner in op.body]
                words = set(re.findall(r"\w+", "\n".join(parts)))
                numbers: list[str] = []
                if op.tickets is not None:
                    around = drawn_loop(self.kernel, self.renderer, words, op)
                else:
                    around, numbers = instance_loop(self.kernel, self.renderer, words, op)
                at = _first_asked(op, parts, numbers)
                inner = "\n".join([*parts[:at], *numbers, *parts[at:]])
                text = macro(op, self, "\n".join(around), inner)
            case e.InstanceQueue():
                inner = self.block(op.body)
                words = set(re.findall(r"\w+", inner))
                around = queue_loop(self.kernel, self.renderer, words)
                text = macro(op, self, "\n".join(around), inner)
            case a.Roles():
                producer, consumer = self.block(op.producer), self.block(op.consumer)
                by_warpgroup = "warpgroup" in re.findall(r"\w+", consumer)
                text = macro(op, self, producer, consumer, by_warpgroup)
        return comment + text.strip("\n")

    def _next_place(self, op: a.Instances) -> list[str]:
        """Lines that find an instance's successor."""
        if op.tickets is not None:
            return next_told(op.tickets)
        return next_place(self.kernel, self.renderer)

    def _comment(self, span: Span) -> str:
        if span is NOWHERE or span.source.name == "<none>":
            return ""
        line = span.line
        if (span.source.name, line) == self._last:
            return ""
        self._last = (span.source.name, line)
        text = span.source.line(line).split("#")[0].strip()
        name = span.source.name.replace("\\", "/").rsplit("/", 1)[-1]
        return f"\n// {name}:{line}  {text}\n"

    # ---- what the macros ask

    def type(self, rep: DType) -> str:
        """C type of a dtype."""
        return DEVICE[rep]

    def expr(self, expr: k.Expr) -> str:
        """An expression."""
        return self.renderer.expr(expr)

    def operand(self, expr: k.Expr) -> str:
        """An expression as the right operand of `+` or `<`."""
        from tilec.emit.expressions import SUM

        return self.renderer.piece(expr).at(SUM)

    def value_type(self, rep: DType) -> str:
        """C type of a variable: nibbles are handled as bytes."""
        return {4: {"int": "int8_t", "uint": "uint8_t"}}.get(rep.bits, {}).get(
            rep.kind, DEVICE[rep]
        )

    def plus(self, expr: k.Expr, rep: DType | None = None) -> str:
        """` + offset`, nothing for 0; of 4-bit elements the offset in bytes."""
        text = self.operand(expr)
        if rep is not None and rep.bits < 8 and text != "0":
            text = f"({self.expr(expr)}) / 2"
        return "" if text == "0" else f" + {text}"

    def store_whole(self, op: k.StoreVector) -> str:
        """The function that stores aligned vectors. Where several axes make up the offset the compiler forgets what it is a multiple of,
        and would store them element by element."""
        several = len(self._axes or ()) > 1 and op.count is None
        return "store_whole" if several else "store_aligned"

    def guards(self, guards: tuple[k.Expr, ...]) -> str:
        """A condition, "" for none."""
        if not guards:
            return ""
        return self.renderer.conjunction(guards)

    def element(self, fragment: k.Fragment) -> str:
        """The current element."""
        return self.renderer.element(fragment)

    def vector(self, fragment: k.Fragment) -> str:
        """The current vector."""
        return self.renderer.vector(fragment)

    def reduction(self, op: str, rep: DType) -> str:
        """Functor of a reduction."""
        return reduction(op, rep)

    def tile(self, address: k.TileAddress) -> str:
        """An operand tile: `shared.a_tiles[slot]`."""
        slot = "" if address.slot is None else f"[{self.expr(address.slot)}]"
        return f"shared.{address.buffer}{slot}"

    def tile_place(self, op: k.CopyAsync) -> str:
        """Where a copy's vector goes: constants from the thread's first row where rows a step apart lie alike."""
        tile, row, col = self.tile(op.tile), op.row, op.col.coordinate
        buffer = next(t for t in self.kernel.tiles if t.name == op.tile.buffer)
        apart = row.layout.threads
        if buffer.constant and row.layout.is_blocked and self.loops(row) and apart % 8 == 0:
            return f"{tile}.beyond({row.lane}, {col}, {row.step} * {apart}, 0)"
        return f"{tile}.at({row.coordinate}, {col})"

    def is_fragment(self, operand: object) -> bool:
        """Whether a product's operand is in registers."""
        return isinstance(operand, k.Fragment)

    def bytes_of(self, op: k.CopyAsync) -> str:
        """How many of the 16 bytes of a copy exist: all, those in front of a tail, or none where a guard fails."""
        size = op.rep.bits // 8
        text = "16"
        if op.count is not None:
            count = self.renderer.piece(op.count).text
            text = f"min_of(max_of({count}, 0) * {size}, 16)"
        if op.guards:
            text = f"{self.renderer.conjunction(op.guards, 8)} ? {text} : 0"
        return text

    def box_coordinates(self, op: a.TensorCopy | a.TensorAhead, col: str, row: str) -> str:
        """Coordinates of a copy as further arguments, the fastest first."""
        parts: list[str] = []
        for n, coordinate in enumerate(op.coordinates):
            added = col if n == 0 else row if n == op.row_axis else "0"
            text = self.expr(coordinate)
            if added != "0":
                text = added if text == "0" else f"{self.operand(coordinate)} + {added}"
            parts.append(f", {text}")
        return "".join(parts)

    def accumulates(self, op: a.WarpgroupProduct) -> str:
        """Whether an instruction at `k_at` adds to what the registers hold."""
        later = "k_at > 0" if op.k_extent > op.k_step else ""
        if op.fresh:
            return later or "false"
        if op.continues is None:
            return "true"
        return " || ".join(part for part in (self.expr(op.continues), later) if part)

    def chunk(self, op: a.SendChunks, number: int) -> str:
        """The registers of a chunk: of its upper and its lower rows."""
        block, panel = divmod(number, op.panels)
        columns = op.depth // 8 * panel
        added = f" + {columns}" if columns else ""
        name = op.source.name
        return f"{name}[{2 * block}]{added}, {name}[{2 * block + 1}]{added}"

    def chunk_rows(self, op: a.SendChunks, number: int) -> str:
        """Where a chunk that no map takes goes, as arguments."""
        rows = op.rows
        assert rows is not None
        block, panel = divmod(number, op.panels)
        places = []
        for coordinate, added, end in (
            (op.coordinates[op.row_axis], 64 * block, rows.row_end),
            (op.coordinates[op.col_axis], op.depth * panel, rows.col_end),
        ):
            more = f" + {added}" if added else ""
            places.append(f"{self.operand(coordinate)}{more}, {self.expr(end)}")
        return (
            f"{rows.pointer}{self.plus(rows.offset)}, {self.expr(rows.stride)}, {', '.join(places)}"
        )

    def chunk_coordinates(self, op: a.SendChunks, number: int) -> str:
        """Coordinates of a chunk as further arguments, the fastest first."""
        block, panel = divmod(number, op.panels)
        parts: list[str] = []
        for n, coordinate in enumerate(op.coordinates):
            added = {op.row_axis: 64 * block, op.col_axis: op.depth * panel}.get(n, 0)
            parts.append(
                f", {self.operand(coordinate)} + {added}" if added else f", {self.expr(coordinate)}"
            )
        return "".join(parts)

    @property
    def consumers(self) -> int:
        """Threads that meet at the barriers of a kernel with roles, 0 where all do."""
        return self.kernel.workers if self.kernel.producers else 0

    def element_type(self, fragment: k.Fragment) -> str:
        """Type of a fragment's array elements: a vector where an axis is vectorised."""
        if any(a.vectorised for a in fragment.axes):
            return self.vector_type(fragment)
        if fragment.indexed:
            return f"Indexed<{DEVICE[fragment.rep]}>"
        return DEVICE[fragment.rep]

    def vector_type(self, fragment: k.Fragment) -> str:
        """`Vector<bf16_t, kWidthC>`."""
        inner = f"Indexed<{DEVICE[fragment.rep]}>" if fragment.indexed else DEVICE[fragment.rep]
        return f"Vector<{inner}, {self.width(fragment)}>"

    def width(self, fragment: k.Fragment) -> str:
        """Constant of the vector's width."""
        return f"kWidth{self.fast_axis(fragment).suffix}"

    def fast_axis(self, fragment: k.Fragment) -> k.LoopAxis:
        """The axis along which a fragment is held in vectors."""
        return next(a for a in fragment.axes if a.vectorised)

    def vector_width(self, axis: k.LoopAxis) -> str:
        """Constant of an axis' vector width."""
        return f"kWidth{axis.suffix}"

    def dimensions(self, fragment: k.Fragment) -> str:
        """Array dimensions of a fragment."""
        if fragment.local:
            return ""
        return "".join(f"[{self.steps(a)}]" for a in fragment.axes if self.loops(a))

    def loops(self, axis: k.LoopAxis) -> bool:
        """Whether a loop over the axis' steps is written."""
        return axis.vectorised or axis.layout.steps > 1

    def declares(self, op: k.TileLoop) -> bool:
        """Whether a walk for which no loop is written declares variables, so that it needs a scope of its own."""
        if any(a.layout.streams or self.loops(a) for a in op.axes):
            return False
        inner = [e for part in op.body if isinstance(part, k.Elements) for e in part.body]
        return any(isinstance(part, k.Let) for part in (*op.body, *inner)) or any(
            (
                isinstance(
                    part,
                    c.PickVector
                    | k.LoadVector
                    | w.LoadWindow
                    | w.LoadShifted
                    | k.Reload
                    | k.WidenVector,
                )
                and part.target.local
            )
            or isinstance(part, c.LoadCovering)
            or (isinstance(part, k.Declare) and part.fragment.local)
            for part in op.body
        )

    def steps(self, axis: k.LoopAxis) -> str:
        """Constant of an axis' steps."""
        return f"kSteps{axis.suffix}"

    def held(self, axis: k.LoopAxis) -> str:
        """Constants that say which elements of an axis a warp holds."""
        return self.renderer.held(axis)

    def shift(self, axis: k.LoopAxis) -> str:
        """Elements in front of a row in its first vector."""
        return self.renderer.shift(axis)

    def start(self, axis: k.LoopAxis) -> str:
        """First coordinate of a thread on a walked axis."""
        lane = axis.lane if axis.layout.threads > 1 else "0"
        start = f"{lane} * kWidth{axis.suffix}" if axis.vectorised and lane != "0" else lane
        return f"window_at({start}, {axis.shift})" if axis.windowed else start

    def stride(self, axis: k.LoopAxis) -> str:
        """What a walked axis advances by."""
        width = f" * kWidth{axis.suffix}" if axis.vectorised else ""
        return f"kThreads{axis.suffix}{width}"

    def extent(self, axis: k.LoopAxis) -> str:
        """An axis' extent."""
        return self.renderer.sym(axis.extent).at(5)

    def coordinate(self, axis: k.LoopAxis) -> str:
        """First coordinate of the current vector."""
        if not axis.layout.is_blocked:
            return " + ".join([axis.lane, *self._step_parts(axis)])
        text = axis.step
        if axis.layout.threads > 1:
            text = f"{axis.step} * kThreads{axis.suffix} + {axis.lane}"
            if axis.vectorised:
                text = f"({text})"
        text = f"{text} * kWidth{axis.suffix}" if axis.vectorised else text
        return f"window_at({text}, {axis.shift})" if axis.windowed else text

    @staticmethod
    def _step_parts(axis: k.LoopAxis) -> list[str]:
        """What each register digit adds to the coordinate, as functions of the step."""
        parts: list[str] = []
        below = axis.layout.steps
        for digit in axis.layout.step_digits:
            above, below = below, below // digit.radix
            if digit.radix == 1:
                continue
            value = axis.step if below == 1 else f"{axis.step} / {below}"
            if above > digit.radix * below:
                value += f" % {digit.radix}"
            elif above != axis.layout.steps:
                value = f"{axis.step} % {above}" + (f" / {below}" if below > 1 else "")
            parts.append(value if digit.stride == 1 else f"{value} * {digit.stride}")
        return parts

    def unroll(self, op: k.TileLoop, axis: k.LoopAxis, text: str) -> str:
        """What follows `#pragma unroll`: nothing where registers are indexed by the step, which takes the whole loop; a plain copy
        to shared memory goes step by step (its addresses would be kept), other long loops four at a time."""
        if f"[{axis.step}]" in text or axis.layout.steps == 1:
            return ""
        if all(isinstance(inner, e.FillSlice) for inner in op.body):
            return " 1"
        if any(isinstance(inner, k.StoreTile) for inner in op.body) and not any(
            isinstance(inner, k.Elements) for inner in op.body
        ):
            return " 1"
        return (
            "" if axis.layout.steps <= 4 or axis.step in text.replace(axis.coordinate, "") else " 4"
        )

    def mentions(self, names: list[str], text: str) -> bool:
        """Whether any of the identifiers occurs in the text."""
        return any(name in text and _word(name).search(text) for name in names)

    def fill(self, fragment: k.Fragment, initial: k.Expr) -> str:
        """Every register of a fragment set to a value."""
        return self._each(fragment, lambda: f"{self.element(fragment)} = {self.expr(initial)};")

    def copy(self, target: k.Fragment, source: k.Fragment) -> str:
        """Every register copied."""
        return self._each(
            target, lambda: f"{self.vector(target)} = {self.vector(source)};", vectors=True
        )

    def move_up(
        self, target: k.Fragment, ring: k.Fragment, last: k.Fragment, axis: k.LoopAxis
    ) -> str:
        """Tiles along an axis of a ring: the first goes to `target`, the others move up, `last` comes behind them."""
        one = self.vector(replace(ring, axes=target.axes)).removeprefix(ring.name)
        step, behind = axis.step, f"{self.steps(axis)} - 1"
        text = f"""{self.vector(target)} = {ring.name}[0]{one};
#pragma unroll
for (int {step} = 0; {step} < {behind}; ++{step}) {{
{ring.name}[{step}]{one} = {ring.name}[{step} + 1]{one};
}}
{ring.name}[{behind}]{one} = {self.vector(last)};"""
        return self._each(target, lambda: text, vectors=True)

    def _each(self, fragment: k.Fragment, text: Any, vectors: bool = False) -> str:
        lines: list[str] = []
        count = 0
        for axis in fragment.axes:
            if self.loops(axis):
                lines.append("#pragma unroll")
                lines.append(
                    f"for (int {axis.step} = 0; {axis.step} < {self.steps(axis)}; ++{axis.step}) {{"
                )
                count += 1
        if not vectors:
            for axis in fragment.axes:
                if axis.vectorised:
                    sub = f"{axis.name}_sub"
                    lines.append("#pragma unroll")
                    lines.append(f"for (int {sub} = 0; {sub} < kWidth{axis.suffix}; ++{sub}) {{")
                    count += 1
        return "\n".join([*lines, text(), *["}"] * count])

    def string(self, text: str) -> str:
        """A C string literal."""
        return (
            '"'
            + text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n").replace("%", "%%")
            + '"'
        )

    def literal(self, text: str) -> str:
        """A C string literal that is no format."""
        return self.string(text).replace("%%", "%")

    def printf(self, parts: tuple[str | k.Expr, ...]) -> str:
        """Arguments of printf for text and scalars, separated by blanks."""
        formats: list[str] = []
        arguments: list[str] = []
        for part in parts:
            if isinstance(part, str):
                formats.append(self.string(part)[1:-1])
                continue
            text = self.expr(part)
            rep = part.rep
            if rep.is_float:
                formats.append("%g")
                arguments.append(
                    f"static_cast<double>({text})"
                    if rep.bits >= 32
                    else f"static_cast<double>(convert<float>({text}))"
                )
            else:
                formats.append("%lld")
                arguments.append(f"static_cast<long long>({text})")
        return ", ".join(['"' + " ".join(formats) + '\\n"', *arguments])


def _first_asked(op: a.Instances, parts: Sequence[str], numbers: Sequence[str]) -> int:
    """Where in an instance its trip numbers are declared: at its start, or, where nothing reads them before a loop is done, behind it, in
    front of a wait for its products: the divisions take as long as many other instructions, and are done meanwhile."""
    names = set(re.findall(r"\b(?:int|IntDivisor) (\w+) = ", "\n".join(numbers)))
    asked = (n for n, part in enumerate(parts) if names & set(re.findall(r"\w+", part)))
    at = next(asked, 0)
    for before in range(at - 1, -1, -1):
        if isinstance(op.body[before], a.WarpgroupWait):
            return before
        if isinstance(op.body[before], k.Loop):
            return at
    return 0


def _split_head(ops: tuple[k.Op, ...]) -> tuple[tuple[k.Op, ...], tuple[k.Op, ...]]:
    """Leading variables, which stand before the guards, and the rest."""
    n = 0
    while n < len(ops) and isinstance(ops[n], k.Let | k.Pointer):
        n += 1
    return ops[:n], ops[n:]
