"""The numbers of the grid loops, as text: from the number of an instance to the trip of each loop."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tilec.emit.expressions import PRODUCT, SUM, UNARY, Renderer
from tilec.ir import asynchronous as a
from tilec.ir import kernel_ir as k
from tilec.ir.asynchronous import SHARES
from tilec.ir.launch import product
from tilec.ir.symbolic import Sym, Var, ceildiv


def decode(
    kernel: k.Kernel,
    render: Renderer,
    words: Collection[str],
    number: str,
    live: bool = False,
    divisors: dict[str, str] | None = None,
) -> list[str]:
    """Lines that declare the trip numbers among `words` of instance `number`, an expression of C++ that binds no less tightly
    than a sum; with `live` also whether there is such an instance. `instance` may be declared on the way. With `divisors` the lines
    divide by names that stand there afterwards with what they are divisors of; without, they divide."""
    grid = kernel.grid
    used = [d for d in grid if d.name in words]
    if not used and not live:
        return []
    total = render.sym(kernel.instances).at(4)
    if len(grid) == 1:
        (digit,) = grid
        lines = [f"const int {digit.name} = {_directed(digit, render, number)};"]
        # later trips take longer only where a CTA has one instance, which there always is
        return [*lines, f"const bool live = {digit.name} < {total};"] if live else lines
    lines = [f"int instance = {number};"]
    if live:
        lines.append(f"const bool live = instance < {total};")
    outer = list(grid)
    if grid[-1].section:
        lines += _section(outer.pop(), outer, render, words)
    elif grid[-2].swept > 1:
        del outer[-2:]
        lines += _swept(grid[-2], grid[-1], render, words, bool(outer), divisors)
    while len(outer) > 1:
        digit = outer.pop()
        trips = render.sym(digit.trips)
        taken, rest = f"instance % {trips.at(UNARY)}", f"instance /= {trips.text};"
        if divisors is not None:
            by = _divisor(divisors, f"{digit.name}_trips", trips.text)
            taken, rest = f"take_digit(instance, {by})", f"instance = quotient_of(instance, {by});"
        if digit.name in words:
            lines.append(f"const int {digit.name} = {_directed(digit, render, taken)};")
            if divisors is not None:
                continue
        lines.append(rest)
    if outer and outer[0].name in words:
        lines.append(f"const int {outer[0].name} = {_directed(outer[0], render, 'instance')};")
    while lines[-1].startswith("instance "):
        lines.pop()
    return lines


def instance_loop(
    kernel: k.Kernel,
    render: Renderer,
    words: Collection[str],
    op: a.Instances,
) -> tuple[list[str], list[str]]:
    """The head of the loop over the instances of a CTA, or of its cluster, with what stands before it; and the lines that declare an
    instance's trip numbers, where they are first asked for. Without `keep` no register holds a divisor from one instance to the next:
    each makes its own."""
    keep, rotated = op.keep, op.rotated
    number, first, step = "item", _worker(kernel), _workers(kernel)
    walked, words, tail = _of_clusters(kernel, words)
    grid, instances = walked.grid, walked.instances
    divisors: dict[str, str] = {}
    # what is made anew in each instance passes through what the compiler cannot see into, so that it takes nothing out of the loop
    prepared: list[str] = []
    before: list[str] = []
    if grid[-1].uneven:
        longest, others = grid[-1], replace(walked, grid=grid[:-1])
        workers = step if keep else "workers"
        counts = f"{workers}, {_counts(grid, render)}"
        lines = decode(others, render, words, "place.other", divisors=divisors)
        head = "for (int turn = 0;; ++turn) {"
        prepared = [] if keep else [f"int workers = {step};", "renew(workers);"]
        shares = f"{kernel.grid[-1].name}{SHARES}"
        found = [
            f"const UnevenShares {shares} = load_shares(shared.{shares});",
            f"const UnevenPlace place = uneven_place(turn, {first}, {counts}, {shares});",
            "if (place.trip < 0) break;",
            f"const int {longest.name} = place.trip;",
        ]
        if op.ahead:
            before = ["int turn = 0;", f"UnevenPlace place = {_place(kernel, render)};"]
            head = "while (place.trip >= 0) {"
            found = found[-1:]
    else:
        lines = decode(walked, render, words, number, divisors=divisors)
        total = render.sym(instances).at(4)
        head = f"for (int {number} = {first}; {number} < {total}; {number} += {step}) {{"
        found = []
        if rotated and len(grid) > 1:
            before = [f"int place = {first};"]
            head = f"for (int round = 0; round < {total}; round += {step}) {{"
            found = [
                f"const int {number} = round + place;",
                f"place = place + 1 < {step} ? place + 1 : 0;",
                f"if ({number} >= {total}) break;",
            ]
        elif "more" in words:
            found = [f"const bool more = {number} + {step} < {total};"]
    if keep:
        kept = [f"const IntDivisor {name} = int_divisor({of});" for name, of in divisors.items()]
        return [*kept, *prepared, *before, head, *found], [*lines, *tail]
    return [*before, head, *prepared, *found], [*_anew(divisors), *lines, *tail]


def next_place(kernel: k.Kernel, render: Renderer) -> list[str]:
    """Lines that find the next instance of an uneven grid."""
    return ["++turn;", f"place = {_place(kernel, render)};"]


def _place(kernel: k.Kernel, render: Renderer) -> str:
    """The instance at place `turn` of a CTA, or of its cluster."""
    walked = _of_clusters(kernel, ())[0]
    counts = f"{_workers(kernel)}, {_counts(walked.grid, render)}"
    shares = f"load_shares(shared.{kernel.grid[-1].name}{SHARES})"
    return f"uneven_place(turn, {_worker(kernel)}, {counts}, {shares})"


def _anew(divisors: dict[str, str]) -> list[str]:
    """Divisors that an instance makes for itself."""
    made: list[str] = []
    for name, of in divisors.items():
        made += [f"int {name}_now = {of};", f"renew({name}_now);"]
        made.append(f"const IntDivisor {name} = int_divisor({name}_now);")
    return made


def first_instance(kernel: k.Kernel, render: Renderer, words: Collection[str]) -> list[str]:
    """Lines that declare the trip numbers among `words` of the first instance of a CTA, or of its cluster, of those that are dealt out."""
    walked, words, tail = _of_clusters(kernel, words)
    divisors: dict[str, str] = {}
    lines = decode(walked, render, words, _worker(kernel), divisors=divisors)
    made = [f"const IntDivisor {name} = int_divisor({of});" for name, of in divisors.items()]
    return [*made, *lines, *tail]


def _worker(kernel: k.Kernel) -> str:
    """The number of a CTA, or of its cluster."""
    return "static_cast<int>(blockIdx.x)" + (f" / {kernel.cluster}" if kernel.cluster > 1 else "")


def _workers(kernel: k.Kernel) -> str:
    """How many CTAs, or clusters of them, there are."""
    return "static_cast<int>(gridDim.x)" + (f" / {kernel.cluster}" if kernel.cluster > 1 else "")


def _of_clusters(kernel: k.Kernel, words: Collection[str]) -> tuple[k.Kernel, set[str], list[str]]:
    """The kernel with the grid that clusters walk, the words with the names of its loops, and lines behind these: neighbouring trips of one
    loop are a cluster's."""
    words = set(words)
    tail: list[str] = []
    grid = kernel.grid
    name = kernel.cluster_digit
    if kernel.cluster > 1 and name:
        if name in words:
            tail = [f"const int {name} = {name}_pair * {kernel.cluster} + rank;"]
            words.add(f"{name}_pair")
        grid = tuple(
            replace(
                d,
                name=f"{name}_pair",
                trips=ceildiv(d.trips, kernel.cluster),
                most=None if d.most is None else -(-d.most // kernel.cluster),
            )
            if d.name == name
            else d
            for d in grid
        )
    instances = product(tuple(d.trips for d in grid))
    # an instance exists, and has the only trip of a loop that has no more
    several = tuple(d for d in grid if d.most != 1) or grid[-1:]
    single = [f"const int {d.name} = 0;" for d in grid if d not in several and d.name in words]
    return replace(kernel, grid=several, instances=instances), words, [*single, *tail]


def shares(kernel: k.Kernel, render: Renderer) -> list[str]:
    """What one thread leaves in shared memory for an uneven grid: what is the same for all places would take registers, or divisions in
    each instance."""
    grid = _of_clusters(kernel, ())[0].grid
    if not grid or not grid[-1].uneven:
        return []
    counts = f"{_workers(kernel)}, {_counts(grid, render)}"
    return [f"store_shares(shared.{kernel.grid[-1].name}{SHARES}, uneven_shares({counts}));"]


def _counts(grid: tuple[k.GridDigit, ...], render: Renderer) -> str:
    """The trips of the uneven loop, and how many others there are."""
    others = product(tuple(d.trips for d in grid[:-1]))
    return f"{render.sym(grid[-1].trips).text}, {render.sym(others).text}"


def drawn_loop(
    kernel: k.Kernel, render: Renderer, words: Collection[str], op: a.Instances
) -> list[str]:
    """The head of the loop over instances that a CTA draws from a counter: of the role that draws them, one ahead, or of those that it
    tells them."""
    tickets = op.tickets
    assert tickets is not None
    divisors: dict[str, str] = {}
    kernel, sized, words, tail = in_sections(kernel, render, words)
    lines = [*decode(kernel, render, words, "item", divisors=divisors), *tail]
    kept = [f"const IntDivisor {name} = int_divisor({of});" for name, of in divisors.items()]
    if not op.keep:
        lines = [*_anew(divisors), *lines]
        kept = []
    kept = [*sized, *kept]
    if op.draws:
        total = render.sym(kernel.instances).at(4)
        return [
            *kept,
            f"int following = draw_item({tickets.counter});",
            "for (;;) {",
            "const int item = following;",
            f"if (item >= {total}) break;",
            f"following = draw_item({tickets.counter});",
            *lines,
        ]
    wait, told, *given_back = _told(tickets)
    if op.ahead:
        first = [wait, told, "int item = uniform_int(told);", *given_back]
        return [*kept, *first, "while (item >= 0) {", *lines]
    return [
        *kept,
        "for (;;) {",
        wait,
        told,
        "const int item = uniform_int(told);",
        *given_back,
        "if (item < 0) break;",
        *lines,
    ]


def next_told(tickets: a.Tickets) -> list[str]:
    """Lines that take the number of the next instance that the role is told."""
    wait, told, *given_back = _told(tickets, "following")
    return [wait, told, "item = uniform_int(following);", *given_back]


def _told(tickets: a.Tickets, name: str = "told") -> list[str]:
    """Lines that wait for a number, read it, and give its place back."""
    ring = tickets.ring
    return [
        f"barrier_wait(shared.{tickets.full}[{ring}.slot], {ring}.parity);",
        f"const int {name} = shared.{tickets.numbers}[{ring}.slot];",
        "__syncwarp();",
        f"if (lane_id() == 0) barrier_arrive(shared.{tickets.free}[{ring}.slot]);",
        f"{ring}.advance();",
    ]


def in_sections(
    kernel: k.Kernel, render: Renderer, words: Collection[str]
) -> tuple[k.Kernel, list[str], set[str], list[str]]:
    """A kernel whose instances are drawn, in sections of its fastest loop, so that few CTAs at a time read what others do not: with that
    loop in two, a line in front of all instances, the words with the names of both, and a line behind those that `decode` gives."""
    words = set(words)
    *outer, last = kernel.grid
    longest = [d for d in outer if d.backwards]
    if len(outer) < 1 or last.backwards or not longest:
        return kernel, [], words, []
    size, part, within = (f"{last.name}_{word}" for word in ("size", "part", "within"))
    each = render.sym(product(tuple(d.trips for d in outer if not d.backwards))).text
    found = f"drawn_section({_workers(kernel)}, {render.sym(last.trips).text}, {each})"
    tail: list[str] = []
    if last.name in words:
        words |= {part, within}
        tail = [f"const int {last.name} = {part} * {size} + {within};"]
    sections = replace(last, name=part, most=None)
    inside = replace(last, name=within, trips=Sym.of(Var(size, "local")), most=None)
    grid = (sections, *outer, inside)
    return replace(kernel, grid=grid), [f"const int {size} = {found};"], words, tail


def queue_loop(kernel: k.Kernel, render: Renderer, words: Collection[str]) -> list[str]:
    """The head of the loop over the instances that a cluster is given, and what it declares."""
    total = render.sym(kernel.instances).at(4)
    return [
        f"while (item < {total}) {{",
        *decode(kernel, render, words, "item"),
    ]


def _section(
    longest: k.GridDigit, others: list[k.GridDigit], render: Renderer, words: Collection[str]
) -> list[str]:
    """Lines that find an instance's trip of the last digit, the longest first within a section of the others, and leave the others' number."""
    counts = [
        render.sym(product(tuple(d.trips for d in digits))).text for digits in ([longest], others)
    ]
    found = f"section_place(instance, {', '.join(counts)}, {longest.section})"
    trip = [f"const int {longest.name} = place.trip;"] if longest.name in words else []
    return [f"const UnevenPlace place = {found};", *trip, "instance = place.other;"]


def _divisor(divisors: dict[str, str], name: str, of: str) -> str:
    """The name of a divisor."""
    divisors.setdefault(name, of)
    return name


def _directed(digit: k.GridDigit, render: Renderer, number: str) -> str:
    """The trip number, from the last one down where later trips take longer."""
    if not digit.backwards:
        return number
    simple = not set(number) & set("+-")
    number = number if simple else f"({number})"
    return f"{render.sym(digit.trips).at(SUM)} - 1 - {number}"


def _swept(
    rows: k.GridDigit,
    columns: k.GridDigit,
    render: Renderer,
    words: Collection[str],
    more: bool,
    divisors: dict[str, str] | None,
) -> list[str]:
    """Two digits whose trips are taken in groups of rows, along the columns. `more`: other digits vary more slowly."""
    trips = [render.sym(d.trips) for d in (rows, columns)]
    area = f"{trips[0].at(PRODUCT)} * {trips[1].at(UNARY)}"
    by = trips[1].text
    if divisors is not None:
        group = f"min_of({trips[0].text}, {rows.swept}) * {trips[1].at(UNARY)}"
        by = _divisor(divisors, f"{rows.name}_group", group)
    number, rest = "instance", []
    if more and divisors is None:
        number, rest = f"instance % ({area})", [f"instance /= {area};"]
    elif more and divisors is not None:
        number = "within"
        area_by = _divisor(divisors, f"{rows.name}_area", area)
        rest = [f"const int within = take_digit(instance, {area_by});"]
    lines = [
        f"const int {digit.name} = swept_{what}<{rows.swept}>({number}, {trips[0].text}, {by});"
        for digit, what in ((rows, "row"), (columns, "column"))
        if digit.name in words
    ]
    return [*rest, *lines] if divisors is not None else [*lines, *rest]
