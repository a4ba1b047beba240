"""Variants of a nest in the asynchronous form: where everything is aligned, and where only what bulk copies bring is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from tilec.ir import tile_ir as t
from tilec.ir.launch import Aligned, AllOf, LaunchCondition
from tilec.ir.symbolic import Sym
from tilec.ir.tensor_maps import ALIGNMENT, BOX_LIMIT
from tilec.passes.assign_layouts import Variant
from tilec.passes.assign_products import ProductAssignment
from tilec.passes.asynchronous import Asynchronous, plan_asynchronous
from tilec.passes.boxes import Unsuited, load_box

PLACE = 128
"""Bytes: where in shared memory a copy of a tensor map's box may begin (PTX ISA, `cp.async.bulk.tensor`)."""


class AsynchronousAssignment(ProductAssignment):
    """As the assignment of products, with warpgroups' layouts and rings that bulk copies fill."""

    def asynchronous_variants(self, origin: Mapping[int, int]) -> tuple[Variant, ...]:
        """The variants; `origin` as in `Scheduled`. Raises Unsuited where the form does not suit the nest."""
        form = plan_asynchronous(
            self.program,
            self.nest,
            self.axes,
            self.target,
            self.products,
            self.placement,
            self.candidate.warps,
            self.candidate.stages,
            origin,
        )
        self.products = form.products
        loads = {id(load) for c in form.channels for site in c.sites for load in site.loads}
        everything, alone = self.alignment(2), self.alignment(2, loads)
        # rows that begin at such multiples whatever the sizes leave nothing to it
        by_rows = self._by_rows(form) if alone[1] or not loads <= alone[2] else ()
        if not loads <= alone[2]:
            if not by_rows:
                raise Unsuited("an operand's rows are not known to begin at multiples of 16 bytes")
            return by_rows
        found = []
        for name, (conditions, divisors, aligned) in (("", everything), ("any_out", alone)):
            if not loads <= aligned or (name and set(conditions) == set(everything[0])):
                continue
            departs = form.departure is not None and id(form.departure.store) in aligned
            found.append(
                Variant(
                    name,
                    self.product_level(form.products),
                    AllOf((*conditions, *self._not_empty(form))),
                    tuple(divisors),
                    frozenset(aligned),
                    products=form.products,
                    asynchronous=form if departs else replace(form, departure=None),
                    positive=self._dims(form),
                )
            )
        return (*found, *by_rows)

    def _by_rows(self, form: Asynchronous) -> tuple[Variant, ...]:
        """The form for operands whose rows begin anywhere: nothing is aligned but the tensors themselves. None where a row of a panel
        is not where a bulk copy may begin."""
        if any(m.cols * m.dtype.bits // 8 % PLACE for c in form.channels for m in c.members):
            return ()
        conditions: list[LaunchCondition] = []
        for channel in form.channels:
            for load in (load for site in channel.sites for load in site.loads):
                box = load_box(self.program, load, self.facts)
                # elements are counted in 32 bits, those of rows beyond the last one too
                line = Sym.of(1)
                for dim in box.dims:
                    line = line * dim
                beyond = line + box.strides[box.row] * BOX_LIMIT
                conditions.append(Aligned(load.access.tensor, ALIGNMENT))
                conditions.append(t.HostOp("<", (beyond, Sym.of(2**31))))
        variant = Variant(
            "any_rows",
            self.product_level(form.products),
            AllOf((*dict.fromkeys(conditions), *self._not_empty(form))),
            products=form.products,
            asynchronous=replace(
                form, departure=None, sharing=None, early=frozenset(), by_rows=True
            ),
            positive=self._dims(form),
        )
        return (variant,)

    def _dims(self, form: Asynchronous) -> tuple[Sym, ...]:
        """Sizes of the operands' tensors that are not known to be positive."""
        names = sorted({m.tensor for c in form.channels for m in c.members})
        dims = {d for name in names for d in self.program.tensor(name).dims}
        return tuple(d for d in sorted(dims, key=str) if not self.facts.prove_nonnegative(d - 1))

    def _not_empty(self, form: Asynchronous) -> list[LaunchCondition]:
        """A tensor map needs a tensor with elements."""
        return [t.HostOp(">=", (dim, t.HostNumber(1))) for dim in self._dims(form)]
