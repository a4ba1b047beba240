"""What the passes decided, as plain data for the manifest: for a whole variant, and for each source line.

Everything is read off what is emitted – the Kernel IR and the launch's condition – so that the manifest cannot say anything that
the code does not do.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import field, replace
from typing import Any

from tilec.ir import covering_ops as c
from tilec.ir import exchanges as e
from tilec.ir import kernel_ir as k
from tilec.ir import tile_ir as t
from tilec.ir import window_ops as w
from tilec.ir.ahead_ops import MoveUp
from tilec.ir.asynchronous import Instances, PanelBuffer, Roles
from tilec.ir.atomic_ops import AtomicElement, AtomicShared, AtomicVector
from tilec.ir.kernel_operands import ProductStep
from tilec.ir.kernel_printer import print_expr
from tilec.ir.kernel_wmma import AddSums, WmmaProduct
from tilec.ir.launch import Aligned, AllOf, Always, AnyOf, Given, Launch, LaunchCondition
from tilec.ir.symbolic import Sym
from tilec.lazy_dataclass import dataclass
from tilec.passes.assign_layouts import Variant
from tilec.passes.copies import described
from tilec.passes.placement import Placement, is_inline_kind
from tilec.passes.role_decisions import describe_roles, note_of, warpgroup_products
from tilec.passes.uses import all_ops
from tilec.source.text import NOWHERE, Span

Note = dict[str, object]


def describe(
    nest: t.Nest,
    placement: Placement,
    variant: Variant,
    kernel: k.Kernel,
    launch: Launch,
    schedule: tuple[str, ...] = (),
    reason: str = "",
    tiles: Mapping[str, int] | None = None,
    all_trips: str = "",
) -> Mapping[str, object]:
    """A variant for the manifest, as `launch` runs it. `schedule`: what was done to the nest
    for the asynchronous form; `reason`: why it has none; `tiles`: sizes of its own; `all_trips`: why it runs those that a mask empties."""
    walk = _Walk(kernel)
    walk.block(kernel.body, _Place())
    held, inline = _tiles(nest, placement)
    form = variant.asynchronous
    return {
        "kernel": kernel.name,
        "condition": condition_text(launch.condition) or "always",
        **({"tiles": dict(tiles)} if tiles else {}),
        "threads": kernel.threads,
        "instances_per_cta": kernel.batch,
        **({"ctas_of_an_instance": variant.level.ctas} if variant.level.ctas > 1 else {}),
        "resident_ctas_asked": kernel.blocks_per_sm,
        "grid": [{"loop": d.name, "trips": str(d.trips), "order": _order(d)} for d in kernel.grid],
        "held_registers": variant.level.words,
        "axes": {
            a.name: {
                "extent": str(a.extent),
                "threads": a.layout.threads,
                "vectors": "walked" if a.layout.streams else a.layout.steps,
                "width": a.layout.vector,
            }
            for a in kernel.axes
        },
        "aligned_accesses": len(variant.aligned),
        "shared_bytes": kernel.shared_bytes,
        "shared": [
            *map(_operand_tile, kernel.panels),
            *map(_operand_tile, kernel.tiles),
            *(
                {"name": b.name, "dtype": str(b.rep), "count": b.count, "purpose": b.purpose}
                for b in kernel.shared
            ),
        ],
        "barriers": [note["hazard"] for note in walk.barriers],
        **({"products": _products(variant, kernel)} if variant.products else {}),
        **({"not_asynchronous": reason} if reason else {}),
        **({"all_trips": all_trips} if all_trips else {}),
        **describe_roles(kernel, schedule, form is None or form.dealt),
        **({"copies": described(variant.copies, launch)} if variant.copies else {}),
        "held_tiles": held,
        "inline_tiles": inline,
        "lines": walk.lines(),
    }


def _operand_tile(buffer: PanelBuffer | k.TileBuffer) -> Note:
    if isinstance(buffer, PanelBuffer) and buffer.rows == 1:
        placement = "one row"
    elif isinstance(buffer, PanelBuffer):
        placement = f"panels of {buffer.panel} columns, swizzled"
    else:
        placement = "rows at an odd pitch" if buffer.plain else "swizzled"
    return {
        "name": buffer.name,
        "dtype": str(buffer.rep),
        "rows": buffer.rows,
        "cols": buffer.cols,
        "slots": buffer.slots,
        "bytes": buffer.bytes,
        "placement": placement,
    }


def _order(digit: k.GridDigit) -> str:
    if digit.section:
        return "sections of the other loops, in each last first"
    if digit.backwards:
        return "last first"
    if digit.uneven:
        return "long and short trips shared out evenly"
    return (
        "in order"
        if digit.swept == 1
        else f"groups of {digit.swept}, each swept along the next loop"
    )


def _products(variant: Variant, kernel: k.Kernel) -> Note:
    products = variant.products
    assert products is not None
    plans = list(products.plans.values())
    instructions = warpgroup_products(kernel)
    return {
        "warps": products.warps,
        "warps_along": products.row_warps,
        "warps_across": products.warps // products.row_warps,
        **({} if instructions else {"stages": variant.stages}),
        "accumulators_per_thread": products.accumulators,
        "padding_waste": round(products.waste, 4),
        **(
            {"computed": "transposed: columns are the instruction's rows"}
            if products.swapped
            else {}
        ),
        **(
            {"shared_out": sorted(variant.level.axes[n].name for n in products.apart)}
            if products.apart
            else {}
        ),
        "instructions": instructions
        or [
            {
                "at": plan.op.span.line,
                "instruction": f"{plan.product.form}.m{plan.product.m}n{plan.product.n}k{plan.product.k}",
                "operands": f"{plan.product.a} x {plan.product.b} -> {plan.product.acc}"
                + (" (tf32)" if plan.product.tf32 else ""),
                "consumed": plan.k_extent,
            }
            for plan in plans
        ],
    }


def _tiles(nest: t.Nest, placement: Placement) -> tuple[list[str], list[str]]:
    """Names of tiles in registers, and of those computed where they are used; each once, in order."""
    held: dict[str, None] = {}
    inline: dict[str, None] = {}
    for op in all_ops(nest.body):
        for value in op.outs:
            if value.type.rank and value.name:
                here = held if value.id in placement.held or not is_inline_kind(op) else inline
                here[value.name] = None
    return list(held), [n for n in inline if n not in held]


# ------------------------------------------------------------------------------------------- by line


@dataclass(frozen=True)
class _Place:
    """Where in the kernel an op stands. `span` is that of the nearest op with one, `whole` tells the trips of a loop without masks
    from the others; `axes` are those of the loops over registers around it."""

    span: Span = NOWHERE
    whole: bool | None = None
    axes: tuple[k.LoopAxis, ...] = ()
    loop: str = ""
    guards: tuple[str, ...] = ()
    """conditions around, as text"""


@dataclass
class _Walk:
    """Collects notes by source line."""

    kernel: k.Kernel
    filling: bool = False
    """whether the producer's ops are walked"""
    notes: dict[tuple[str, int], list[Note]] = field(default_factory=dict)
    barriers: list[Note] = field(default_factory=list)
    stepped: set[str] = field(default_factory=set)
    """targets of products that are noted, which are written step by step"""
    pointers: dict[str, str] = field(default_factory=dict)
    bits: dict[str, int] = field(default_factory=dict)

    def lines(self) -> list[Note]:
        """Notes in the order of lines; equal ones of a line once, with how often they occur."""
        found: list[Note] = []
        for (file, line), notes in sorted(self.notes.items()):
            once: list[Note] = []
            for note in notes:
                if note not in once:
                    once.append(note)
            found.append({"file": file, "at": line, "notes": once})
        return found

    def note(self, place: _Place, **what: object) -> None:
        if place.span is NOWHERE or not place.span.source.text:
            return
        name = place.span.source.name.replace("\\", "/").rpartition("/")[2]
        entry: Note = {n: v for n, v in what.items() if v is not None}
        self.notes.setdefault((name, place.span.line), []).append(entry)

    def block(self, ops: tuple[k.Op, ...], place: _Place) -> None:
        before = place.span
        for op in ops:
            own = op.span if op.span.source.text else place.span
            if not own.source.text:
                own = before  # what no program text stands for belongs to what precedes it
            before = own
            here = _Place(own, place.whole, place.axes, place.loop, place.guards)
            self.op(op, here)

    def op(self, op: k.Op, place: _Place) -> None:
        match op:
            case k.Pointer():
                self.pointers[op.name] = op.tensor
                self.bits[op.name] = op.dtype.bits
            case k.Loop():
                whole = self._range(op, place)
                self.block(op.body, _Place(place.span, whole, place.axes, op.name))
            case Roles():
                self.filling = True
                self.block(op.producer, place)
                self.filling = False
                self.block(op.consumer, place)
            case Instances() | e.InstanceQueue():
                self.block(op.body, place)
            case k.IfUniform():
                self._branch(op, place)
            case k.TileLoop():
                guards = (*place.guards, *map(_text, op.guards))
                inner = _Place(place.span, place.whole, op.axes, place.loop, guards)
                self._tile_loop(op, inner)
            case k.Elements():
                guards = (*place.guards, *map(_text, op.guards))
                self.block(op.body, _Place(place.span, place.whole, place.axes, place.loop, guards))
            case k.Product():
                self._product(op, place)
            case ProductStep(set=0) if op.product.target.name not in self.stepped:
                self.stepped.add(op.product.target.name)
                self._product(op.product, place)
            case WmmaProduct():
                self._opaque_product(op, place)
            case AddSums():
                how = "opaque sums added to registers by way of shared memory"
                self.note(place, what="sums", how=f"{how}, `{op.scratch.buffer}`")
            case k.CtaSync() | e.AwaitSent():
                self.barriers.append({"hazard": op.hazard})
                self.note(place, what="barrier", hazard=op.hazard)
            case k.StoreTile():
                how = f"computed into shared memory, `{op.tile.buffer}`"
                self.note(place, what="stage", how=how)
                if op.value is not None:
                    self._reads(op.value, place)
            case AtomicShared():
                how = f"atomic {op.op} in shared memory, `{op.buffer}`, then one of each element"
                self.note(place, what="private", how=how)
                self._reads(op.value, place)
            case MoveUp():
                how = f"`{op.target.name}` loaded {op.axis.layout.steps} trips ahead"
                self.note(place, what="ahead", how=how)
            case k.StoreElement() | AtomicElement():
                name = "store" if isinstance(op, k.StoreElement) else f"atomic {op.op}"
                self._access(op.pointer, place, name, "single elements", None, op.guards, None)
                self._reads(op.value, place)
            case k.AccumulateVector():
                how = f"{op.op} of whole words in each thread's registers"
                self.note(place, what="reduction", how=how)
            case k.Accumulate():
                self.note(place, what="reduction", how=f"{op.op} in each thread's registers")
                self._reads(op.value, place)
            case k.Assign() | k.Let():
                self._reads(op.value, place)
            case _:
                if note := note_of(op, self.kernel, self.filling):
                    self.note(place, **note, trips=_trips(place))

    def _range(self, op: k.Loop, place: _Place) -> bool | None:
        """Whether a loop is over the trips without masks (True), or over those before or behind them."""
        if _interior_bounds(op.trips) and not (
            isinstance(op.trips, k.Apply) and op.trips.op == "min"
        ):
            how = "removed in the trips where no mask and no edge can matter, kept in the others"
            self.note(place, what="masks", loop=op.name, how=how)
            return True
        edges = (x for x in (op.trips, op.first) if x is not None)
        return False if any(map(_interior_bounds, edges)) else place.whole

    def _branch(self, op: k.IfUniform, place: _Place) -> None:
        """Two bodies: of the trips without masks and of the others, or of whole vectors and tails."""
        whole = _interior_bounds(op.condition)
        if whole:
            self.note(
                place,
                what="masks",
                loop=place.loop,
                how="removed in the trips where no mask and no edge can matter, kept in the others",
            )
            for flag, body in ((True, op.then), (False, op.otherwise)):
                self.block(body, _Place(place.span, flag, place.axes, place.loop, place.guards))
            plain, masked = _selections(op.then), _selections(op.otherwise)
            for span, count in masked.items():
                if count > plain.get(span, 0):
                    self.note(
                        _Place(span),
                        what="masks",
                        loop=place.loop,
                        how="selected in the edge trips only",
                    )
            return
        self.block(op.then, place)
        self.block(op.otherwise, place)

    def _tile_loop(self, op: k.TileLoop, place: _Place) -> None:
        loaded = [x.target for x in op.body if isinstance(x, k.LoadVector)]
        stores = (x for x in op.body if isinstance(x, k.StoreTile) and x.source in loaded)
        staged = next(stores, None)
        for inner in _with_edges(op.body):
            if inner is staged:
                continue
            own = inner.span if inner.span.source.text else place.span
            here = _Place(own, place.whole, place.axes, place.loop, place.guards)
            match inner:
                case k.CopyAsync():
                    transport = f"cp.async 16 B to shared memory, `{inner.tile.buffer}`"
                    width = 128 // self._bits(inner.pointer)
                    self._access(
                        inner.pointer, here, "load", transport, width, inner.guards, inner.count
                    )
                case w.LoadWindow():
                    width = self._width(inner.target)
                    transport = f"{self._vector(inner.pointer, width, True, 'load')} of a window"
                    self._access(inner.pointer, here, "load", transport, width, inner.guards, None)
                case w.LoadShifted():
                    width = self._width(inner.target)
                    transport = (
                        f"{self._vector(inner.pointer, width, True, 'load')}, two shifted together"
                    )
                    self._access(inner.pointer, here, "load", transport, width, inner.guards, None)
                case c.LoadCovering():
                    size = inner.width * inner.rep.bits // 8
                    transport = f"vectors of {size} B, {inner.count} for all that read them"
                    width = inner.width
                    self._access(inner.pointer, here, "load", transport, width, inner.guards, None)
                case c.StoreWoven():
                    size = inner.width * inner.rep.bits // 8
                    transport = f"vectors of {size} B, {len(inner.sources)} fields woven"
                    self._access(
                        inner.pointer,
                        here,
                        "store",
                        transport,
                        inner.width,
                        inner.guards,
                        inner.count,
                    )
                case w.StoreWindow():
                    width = self._width(inner.source)
                    if inner.count is None:
                        here = replace(here, guards=(*here.guards, "elements in front of the row"))
                    transport = f"{self._vector(inner.pointer, width, True, 'store')} of a window"
                    self._access(
                        inner.pointer, here, "store", transport, width, inner.guards, inner.count
                    )
                case e.LoadSlice():
                    how = f"from shared memory, `{inner.buffer}`, which is filled once"
                    self.note(here, what="slice", how=how)
                case k.LoadVector():
                    width = self._width(inner.target)
                    transport = self._vector(inner.pointer, width, inner.aligned, "load")
                    if staged is not None:
                        transport += f", through registers to shared memory, `{staged.tile.buffer}`"
                    self._access(
                        inner.pointer, here, "load", transport, width, inner.guards, inner.count
                    )
                case k.StoreVector():
                    width = self._width(inner.source)
                    transport = self._vector(inner.pointer, width, inner.aligned, "store")
                    self._access(
                        inner.pointer, here, "store", transport, width, inner.guards, inner.count
                    )
                case AtomicVector():
                    width = self._width(inner.source)
                    transport = f"vectors of {inner.bytes} B"
                    size = width * inner.rep.bits // 8
                    if size > inner.bytes:
                        transport += f", {size // inner.bytes} each"
                    what, guards = f"atomic {inner.op}", inner.guards
                    self._access(inner.pointer, here, what, transport, width, guards, inner.count)
                case _:
                    self.block((inner,), here)

    def _vector(self, pointer: str, width: int, aligned: bool, what: str) -> str:
        size = width * self._bits(pointer) // 8
        if width == 1:
            return "single elements"
        if aligned:
            return f"vectors of {min(16, size)} B" + (f", {size // 16} each" if size > 16 else "")
        return f"elements one by one, {width} neighbours a thread"

    @staticmethod
    def _width(fragment: k.Fragment) -> int:
        return next((a.layout.vector for a in fragment.axes if a.vectorised), 1)

    def _bits(self, pointer: str) -> int:
        return self.bits.get(pointer, 8)

    def _access(
        self,
        pointer: str,
        place: _Place,
        what: str,
        transport: str,
        width: int | None,
        guards: tuple[k.Expr, ...],
        count: k.Expr | None,
    ) -> None:
        checks = [*place.guards, *map(_text, guards)]
        if count is not None:
            checks.append(f"the first {_text(count)} of a vector")
        self.note(
            place,
            what=what,
            tensor=self.pointers.get(pointer, pointer),
            transport=transport,
            width=width,
            masks=list(dict.fromkeys(checks)),
            trips=_trips(place),
        )

    def _product(self, op: k.Product, place: _Place) -> None:
        left = "registers" if isinstance(op.a, k.Fragment) else f"shared memory, `{op.a.buffer}`"
        self.note(
            place,
            what="product",
            instruction=op.mma,
            consumed=op.k_extent,
            a_from=left,
            b_from=f"shared memory, `{op.b.buffer}`",
            warp_tile=f"{16 * op.row_tiles} x {8 * op.col_tiles}",
            operands_ahead=op.ahead,
            columns_at_once=op.columns_at_once or None,
            trips=_trips(place),
        )

    def _opaque_product(self, op: WmmaProduct, place: _Place) -> None:
        self.note(
            place,
            what="product",
            instruction=f"wmma.m16n16k{op.sums.depth}",
            consumed=op.k_extent,
            a_from=f"shared memory, `{op.a.buffer}`",
            b_from=f"shared memory, `{op.b.buffer}`",
            warp_tile=f"{16 * op.sums.rows} x {16 * op.sums.cols}",
            operands_ahead=False,
            trips=_trips(place),
        )

    def _reads(self, expr: k.Expr, place: _Place) -> None:
        for part in _parts(expr):
            match part:
                case k.Memory():
                    self._access(
                        part.pointer, place, "load", "single elements", None, part.guards, None
                    )
                case k.LaneReduce():
                    self.note(
                        place,
                        what="reduction",
                        how=f"{part.op} over {part.lanes} lanes by shuffles",
                    )
                case k.WarpCombine():
                    self.note(
                        place,
                        what="reduction",
                        how=f"{part.op} over warps through shared memory, `{part.buffer}`",
                    )
                case _:
                    pass


def _with_edges(body: tuple[k.Op, ...]) -> Iterator[k.Op]:
    """The ops of a walk, of a window's two forms the one for its edges, which says all that is masked."""
    for op in body:
        if isinstance(op, w.IfWhole):
            yield from op.otherwise
        else:
            yield op


def _trips(place: _Place) -> str | None:
    return None if place.whole is None else "interior" if place.whole else "edges"


def _text(expr: k.Expr) -> str:
    """An expression without parentheses around the whole."""
    text = print_expr(expr)
    depth = 0
    for position, sign in enumerate(text):
        depth += (sign == "(") - (sign == ")")
        if depth == 0:
            return text[1:-1] if position == len(text) - 1 and position else text
    return text


def _selections(ops: tuple[k.Op, ...]) -> dict[Span, int]:
    """How many selections of a tile's elements stand in a body, by the place of the op that they come from."""
    found: dict[Span, int] = {}
    for op in ops:
        if isinstance(op, k.Assign | k.Let | k.Accumulate):
            number = sum(
                isinstance(part, k.Apply) and part.op == "where" for part in _parts(op.value)
            )
            found[op.span] = found.get(op.span, 0) + number
        for name in ("body", "then", "otherwise"):
            for span, number in _selections(getattr(op, name, ())).items():
                found[span] = found.get(span, 0) + number
    return found


def _parts(expr: k.Expr) -> Iterator[k.Expr]:
    yield expr
    match expr:
        case k.Apply():
            for arg in expr.args:
                yield from _parts(arg)
        case k.LaneReduce():
            yield from _parts(expr.arg)
        case k.Memory():
            yield from _parts(expr.offset)
        case _:
            return


def _interior_bounds(condition: k.Expr) -> bool:
    """Whether a branch is that of the trips in which nothing is masked."""
    return any(
        isinstance(part, k.Local) and "_whole" in part.name for part in _parts(condition)
    ) or any(
        isinstance(part, k.Index) and any("_whole" in v.name for v in part.sym.variables)
        for part in _parts(condition)
    )


# ---------------------------------------------------------------------------------------- conditions


def condition_text(condition: LaunchCondition | t.HostExpr) -> str:
    """A launch condition as a sentence of the language; "" for one that always holds."""
    match condition:
        case Always():
            return ""
        case Aligned():
            return f"address of {condition.tensor} % {condition.bytes} == 0"
        case AllOf():
            parts = [text for part in condition.parts if (text := condition_text(part))]
            return " and ".join(dict.fromkeys(parts))
        case AnyOf():
            parts = [condition_text(part) for part in condition.parts]
            return f"({' or '.join(parts)})" if all(parts) else ""
        case Given():
            return "a workspace is given"
        case Sym():
            return str(condition)
        case t.HostOp():
            args: list[Any] = [condition_text(a) for a in condition.args]
            if condition.op == "not":
                return f"not ({args[0]})"
            if condition.op in ("min", "max"):
                return f"{condition.op}({', '.join(args)})"
            if len(args) == 1:
                return f"{condition.op}{args[0]}"
            return f" {condition.op} ".join(args)
        case t.HostNumber():
            return str(condition.value)
        case t.HostScalar():
            return condition.name
