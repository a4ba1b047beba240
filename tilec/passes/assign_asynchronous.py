"""Variants of a nest in the asynchronous form: where everything is aligned, where only what bulk copies bring is, and where that is
once it has been copied."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.launch import AllOf, Given, LaunchCondition
from tilec.ir.symbolic import Sym
from tilec.passes.assign_layouts import Variant
from tilec.passes.assign_products import ProductAssignment
from tilec.passes.asynchronous import Asynchronous, plan_asynchronous
from tilec.passes.block_tables import Skipping
from tilec.passes.boxes import Unsuited
from tilec.passes.computed import Computed
from tilec.passes.copies import plan_copies, plan_tables, plan_turned
from tilec.passes.held_rows import plan_rows, rows_fit
from tilec.passes.products import Products
from tilec.passes.turning import Turned

_NONE: frozenset[int] = frozenset()
_NONE_NAMED: frozenset[str] = frozenset()


class AsynchronousAssignment(ProductAssignment):
    """As the assignment of products, with warpgroups' layouts and rings that bulk copies fill. `turned`: the operands of which copies that
    lie otherwise are loaded (`turning`), or that are computed ahead (`computed`)."""

    turned: Turned | Computed | None = None

    def asynchronous_variants(self, origin: Mapping[int, int]) -> tuple[Variant, ...]:
        """The variants; `origin` as in `Scheduled`. Raises Unsuited where the form does not suit the nest."""
        base = self.products
        form = self._plan(base, origin)
        self.products = form.products
        if form.departure is not None:
            self.staged[id(form.departure.store)] = 128 // form.departure.bits
        loads = {id(load) for c in form.channels for site in c.sites for load in site.loads}
        alone = self.alignment(2, loads)
        if not loads <= alone[2]:
            raise Unsuited("an operand's rows are not known to begin at multiples of 16 bytes")
        with_rows = self._with_rows(form)
        rows = {id(x) for c in with_rows.rows for s in c.sites for x in s.loads}
        forms = [(name, lines, self.alignment(2)) for name, lines in self._widths()]
        ahead = self._ahead(base, origin, form)
        words = {
            id(op)
            for op in self.accesses
            if isinstance(op, t.Load) and self.program.tensor(op.access.tensor).words
        }
        found = []
        seen: list[set[LaunchCondition]] = []
        dots = [plan.op for plan in form.products.plans.values()]
        copies = None
        needed: tuple[LaunchCondition, ...] = ()
        if self.turned is not None:
            own_copies = self.turned.copies
            copies = (
                plan_tables(self.program, self.turned, self.target)
                if isinstance(self.turned, Skipping)
                else plan_turned(self.program, self.nest, own_copies, dots, self.target)
            )
            if copies is None and isinstance(self.turned, Skipping):
                raise Unsuited("to look at its blocks takes long beside their products")
            if copies is None:
                raise Unsuited(
                    f"copies of operands that are {self.turned.word} are not known to pay"
                )
            needed = (Given(), *copies.conditions, *self.turned.conditions)
        if not isinstance(self.turned, Skipping):
            forms.append(("any_out", _NONE, alone))
        for name, lines, (conditions, divisors, aligned) in forms:
            if not loads <= aligned or set(conditions) in seen:
                continue
            seen.append(set(conditions))
            if name and self._is_crowded(form):
                continue
            chosen = with_rows if rows <= aligned else form
            brought = {id(x) for c in (ahead or form).channels for s in c.sites for x in s.loads}
            if lines and ahead is not None and brought <= aligned:
                chosen, lines = ahead, lines - brought
            if not words <= {id(x) for c in chosen.channels for s in c.sites for x in s.loads}:
                continue
            departs = chosen.departure is not None and id(chosen.departure.store) in aligned
            own = chosen if departs else self._leaving_anywhere(chosen)
            found.append(
                Variant(
                    self._named(name),
                    self.product_level(form.products),
                    AllOf((*needed, *conditions, *self._not_empty(chosen))),
                    tuple(divisors),
                    frozenset(aligned),
                    products=chosen.products,
                    asynchronous=own,
                    positive=self._dims(chosen),
                    copies=copies,
                    lines=lines,
                )
            )
        if not found:
            raise Unsuited("no copies bring the words of a mask")
        if isinstance(self.turned, Skipping):
            # who loads masks in another way, stores anywhere or copies operands runs all trips
            return tuple(found[:1])
        return (*found, *self._copied(form, loads, dots))

    def _named(self, name: str) -> str:
        """A variant's name, another one where operands are turned or computed: products of warps beside it have theirs."""
        word = self.turned.word if self.turned is not None else ""
        return "_".join(p for p in (word, name) if p)

    def _plan(
        self,
        base: Products,
        origin: Mapping[int, int],
        wanted: frozenset[int] = _NONE,
    ) -> Asynchronous:
        return plan_asynchronous(
            self.program,
            self.nest,
            self.axes,
            self.target,
            base,
            self.placement,
            self.candidate.warps,
            self.candidate.stages,
            origin,
            wanted,
            self.turned.interleaved if self.turned is not None else _NONE_NAMED,
        )

    def _ahead(
        self, base: Products, origin: Mapping[int, int], form: Asynchronous
    ) -> Asynchronous | None:
        """The form whose producer brings what registers would load in lines beside the products; None where nothing is so, or it does not
        fit."""
        lines = frozenset(id(op) for op in self.accesses if self._loaded_in_lines(op))
        if not lines or form.sharing is not None or form.streams or form.turned:
            return None
        try:
            return self._plan(base, origin, lines)
        except Unsuited:
            return None

    def _with_rows(self, form: Asynchronous) -> Asynchronous:
        """The form whose producer brings rows of the epilogue, too: those that begin, or may begin, at multiples of 16 bytes."""
        found = []
        for channel in plan_rows(self.program, self.nest, self.axes, form, self.target):
            (load,) = channel.sites[0].loads
            self.staged[id(load)] = 128 // load.out.type.dtype.bits
            if id(load) in self.alignment(2, {id(load)})[2]:
                found.append(channel)
            else:
                del self.staged[id(load)]
        brought = replace(form, rows=tuple(found))
        return replace(brought, rows_ahead=bool(found) and rows_fit(self.nest, brought))

    def _copied(
        self, form: Asynchronous, loads: set[int], dots: Collection[t.Dot]
    ) -> list[Variant]:
        """The variant for operands whose rows begin anywhere, and are copied where that pays."""
        turned = self.turned.copies if self.turned is not None else ()
        needed = self.turned.conditions if self.turned is not None else ()
        copies = plan_copies(self.program, self.nest, form.channels, dots, self.target, turned)
        if copies is None:
            return []
        conditions, divisors, aligned = self.alignment(2, loads, copies.tensors)
        if not loads <= aligned:
            return []
        return [
            Variant(
                self._named("copied"),
                self.product_level(form.products),
                AllOf((Given(), *conditions, *self._not_empty(form), *copies.conditions, *needed)),
                tuple(divisors),
                frozenset(aligned),
                products=form.products,
                asynchronous=self._leaving_anywhere(form),
                positive=self._dims(form),
                copies=copies,
            )
        ]

    @staticmethod
    def _leaving_anywhere(form: Asynchronous) -> Asynchronous:
        """The form without a tensor map for what leaves. A tile that leaves at once is stored from its registers: what else the warps
        hold then leaves none for rows that begin anywhere."""
        departure = form.departure
        if departure is None or not departure.deferred:
            return replace(form, departure=None)
        return replace(form, departure=departure.anywhere)

    @staticmethod
    def _is_crowded(form: Asynchronous) -> bool:
        """Whether one of several products takes more than half of a thread's registers, which leaves none for the places of a tile that is
        stored from them (ptxas spills)."""
        products = form.products
        rows = max(p.capacity for n, p in products.layouts.items() if n not in products.columns)
        columns = max(products.layouts[n].capacity for n in products.columns)
        largest = rows * columns // form.threads
        stored = form.departure is None or not form.departure.deferred
        return stored and len(products.distinct()) > 1 and 2 * largest > (form.registers[1] or 255)

    def _dims(self, form: Asynchronous) -> tuple[Sym, ...]:
        """Sizes of the operands' tensors that are not known to be positive."""
        # channels of loops in turn bring tiles of several tensors
        sites = [site for channel in form.channels for site in channel.sites]
        brought = {load.access.tensor for site in sites for load in site.loads}
        names = sorted({m.tensor for c in form.rings for m in c.members} | brought)
        dims = {d for name in names for d in self.program.tensor(name).dims}
        return tuple(d for d in sorted(dims, key=str) if not self.facts.prove_nonnegative(d - 1))

    def _not_empty(self, form: Asynchronous) -> list[LaunchCondition]:
        """A tensor map needs a tensor with elements."""
        return [t.HostOp(">=", (dim, t.HostNumber(1))) for dim in self._dims(form)]
