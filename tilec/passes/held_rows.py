"""Rows that an epilogue reads beside accumulators: the producer brings them behind an instance's last operand tiles.

for k …: acc += a[i, k] @ b[k, j]                     producer   wait bias_free; expect; copy bias[j] -> bias_tiles
c[i, j] = relu(acc + bias[j])                    ->   consumers  wait bias_full; bias_tile = load_row bias_tiles; release
                                                                 wait 0; acc + bias_tile

As loads of registers they begin when the loop ends, a pair of elements each, and memory's latency is longer than what is left of the
last product. Where their elements as floats and what the epilogue computes have no room beside the accumulators they are read behind
the wait.
"""

from __future__ import annotations

from collections.abc import Iterable

from tilec.ir import tile_ir as t
from tilec.ir.asynchronous import PanelBuffer
from tilec.ir.facts import Facts
from tilec.ir.kernel_ir import PANEL_ALIGNMENT
from tilec.ir.tensor_maps import BOX_LIMIT
from tilec.passes.asynchronous import CHUNKS_UNDER_WAY, Asynchronous
from tilec.passes.axes import Axes
from tilec.passes.boxes import Unsuited, load_box
from tilec.passes.channels import BARRIER_BYTES, Channel, Member, Site
from tilec.passes.epilogue import register_words
from tilec.passes.products import Staged
from tilec.passes.uses import Definitions, operands, syms_of
from tilec.targets.table import Target

COLUMNS_OF_PAIRS = 8
"""Columns of a matrix of 16-bit elements, of which each thread of a warp takes a pair; one instruction takes four matrices. Loads of single
pairs from shared memory, which products read all the time, take longer than those from the L1 (on an H200 0.98 of them)."""


def plan_rows(
    program: t.Program, nest: t.Nest, axes: Axes, form: Asynchronous, target: Target
) -> tuple[Channel, ...]:
    """A channel of one slot for each row that the form loads before its last product is done, as many as shared memory has room for
    beside the rings, and registers beside what else is loaded then: ptxas makes floats of their elements as soon as they are read. The
    consumers read one where they wait for that product, which is left to the next trip."""
    departure = form.departure
    if departure is None or not departure.deferred or form.split is not None:
        return ()
    definitions = Definitions.of(nest.body)
    facts = Facts.of(program)
    found: list[Channel] = []
    words = sum(register_words(definitions.values[n], axes, form.products) or 0 for n in form.early)
    for number in sorted(form.early):
        load = definitions.defining[number]
        assert isinstance(load, t.Load)
        member = _member(program, axes, form, load, definitions, facts)
        if member is None:
            continue
        site = Site((Staged(load.out, 1, load),), (load,), (), load, load)
        rows = (*found, Channel((member,), (site,), held=True))
        as_floats = words + _floats(member) // 2
        if as_floats <= form.room and _bytes(form, rows) <= target.shared_per_block_optin:
            words = as_floats
            found.append(rows[-1])
    return tuple(found)


def _member(
    program: t.Program,
    axes: Axes,
    form: Asynchronous,
    load: t.Load,
    definitions: Definitions,
    facts: Facts,
) -> Member | None:
    """A row in shared memory; None where it lies along other axes than accumulators' columns, or no copy brings it at a place that the
    producer knows."""
    try:
        box = load_box(program, load, facts)
    except Unsuited:
        return None
    classes = axes.of_value(load.out)
    known = all(v.kind != "value" for sym in syms_of(load) for v in sym.variables)
    if len(classes) != 1 or definitions.loops[load.out.id] or not known or form.products.swapped:
        return None
    (along,) = classes
    if along is None or along.number not in form.products.columns or box.inner != ((None, None),):
        return None
    columns, dtype = form.products.layouts[along.number].capacity, load.out.type.dtype
    if dtype.bits != 16 or columns > BOX_LIMIT or columns % (4 * COLUMNS_OF_PAIRS):
        return None
    return Member(load.access.tensor, dtype, 1, columns)


def _floats(row: Member) -> int:
    """Elements of a row that a thread has."""
    return 2 * (row.cols // COLUMNS_OF_PAIRS)


def _bytes(form: Asynchronous, rows: Iterable[Channel]) -> int:
    """Shared memory of rings, each slot of which begins where a swizzle does, of their barriers, and of what leaves."""
    total = BARRIER_BYTES + 4 * form.warpgroups * CHUNKS_UNDER_WAY
    for channel in (*form.channels, *rows):
        for m in channel.members:
            total += PanelBuffer("", m.dtype, m.rows, m.cols, channel.slots).bytes
    return (-(-total // PANEL_ALIGNMENT) + 1) * PANEL_ALIGNMENT


def rows_fit(nest: t.Nest, form: Asynchronous) -> bool:
    """Whether the elements of the form's rows have room beside the accumulators as floats, and each operation of the epilogue for a
    register more (on an H200 a short epilogue is 0.4 % of 4096 x 4096 x 1024 faster with what is read ahead, a long one 0.6 % slower).
    """
    assert form.departure is not None
    definitions = Definitions.of(nest.body)
    operations: set[int] = set()

    def visit(value: t.Value) -> None:
        op = definitions.defining.get(value.id)
        if value.type.rank and isinstance(op, t.Elementwise | t.Cast | t.Fill | t.Rearrange):
            if isinstance(op, t.Elementwise):
                operations.add(value.id)
            for inner in operands(op):
                visit(inner)

    visit(form.departure.store.value)
    floats = sum(_floats(member) for channel in form.rows for member in channel.members)
    return floats + len(operations) <= form.room
