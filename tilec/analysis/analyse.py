"""One kernel under one candidate, from abstract syntax to Tile IR."""

from __future__ import annotations

from collections.abc import Iterable

from tilec.analysis.chosen_sizes import dependent
from tilec.analysis.context import Context, known_mapping
from tilec.analysis.contracts import require
from tilec.analysis.declarations import declare_kernel
from tilec.analysis.entities import POISON, Integer, Known, Poison, TypeOf
from tilec.analysis.expressions import evaluate
from tilec.analysis.loops import check_target, evaluate_range, poisoned_body
from tilec.analysis.operators import truth
from tilec.analysis.overlaps import repeated_stores
from tilec.analysis.scopes import Scope
from tilec.analysis.statements import bind_name, execute, inline
from tilec.analysis.untaken import bound_names, check_names
from tilec.ir.dtypes import I4, U4
from tilec.ir.facts import Facts
from tilec.ir.symbolic import Sym, Var
from tilec.ir.tile_ir import Block, Contract, GridAxis, HostExpr, HostOp, Nest, Program
from tilec.plan.candidate import Candidate
from tilec.source.diagnostics import Sink
from tilec.syntax import ast
from tilec.syntax.loading import Program as Files


def analyse(
    files: Files, kernel: ast.Kernel, module: ast.Module, candidate: Candidate, sink: Sink
) -> Program | None:
    """The Tile IR of `kernel`, which `module` declares, under `candidate`. All its errors and warnings go to `sink`; None
    where there is an error among them."""
    own = Sink()
    cx = Context(
        files=files,
        sink=own,
        candidate=candidate,
        facts=Facts(dict(known_mapping(candidate))),
        scope=Scope(module, bound_somewhere=bound_names(kernel.body)),
        evaluate=evaluate,
        inline=inline,
        span=kernel.span,
    )
    dims = declare_kernel(cx, kernel)
    facts: list[HostExpr] = []
    contracts: list[Contract] = []
    for clause in kernel.clauses:
        if isinstance(clause, ast.Require):
            contracts += require(cx, clause, facts)
    contracts += _size_contracts(cx, facts)
    contracts += _packed_contracts(cx)
    nests: list[Nest] = []
    try:
        _top_level(cx, kernel.body, nests)
    except RecursionError:
        cx.calls.clear()
        cx.call_spans.clear()
        cx.sink = own
        cx.error(
            "E0502", "calls and expressions are nested too deeply in this kernel", kernel.name_span
        )
    for output in kernel.outputs:
        if output.name not in cx.stored and not own.errors:
            own.warning(
                "W0201",
                f"the output `{output.name}` is never stored",
                output.span,
                help=f"store it: `{output.name}[…] = …`, or leave it out",
            )
    for diagnostic in own.diagnostics:
        sink.add(diagnostic)
    if own.errors:
        return None
    return Program(
        name=kernel.name,
        tensors=tuple(cx.tensors.values()),
        scalars=tuple(cx.scalars.values()),
        dims=dims,
        nests=tuple(nests),
        views=tuple(cx.views),
        tiles=dict(cx.facts.tiles),
        statics=dict(candidate.values),
        contracts=tuple(contracts),
        upper={d: cx.facts.upper[d] for d in _sized(dims, cx) if d in cx.facts.upper},
        lower={d: cx.facts.lower[d] for d in _sized(dims, cx) if d in cx.facts.lower},
        divisors={d: cx.facts.divisors[d] for d in _sized(dims, cx) if d in cx.facts.divisors},
        facts=tuple(dict.fromkeys(facts)),
        math=candidate.math,
        automatic=frozenset(n for n, of in candidate.origin.items() if of in ("auto", "tuned")),
        span=kernel.span,
    )


def _sized(dims: tuple[Var, ...], cx: Context) -> tuple[Var, ...]:
    return (*dims, *(Var(name, "scalar") for name in cx.scalars))


def _size_contracts(cx: Context, facts: list[HostExpr]) -> list[Contract]:
    """Dimensions that are differences, such as `N - 1`, are not negative."""
    contracts: dict[Sym, Contract] = {}
    for tensor in cx.tensors.values():
        for dim in tensor.dims:
            if not cx.facts.prove_nonnegative(dim):
                condition = HostOp(">=", (dim, Sym.of(0)))
                contracts.setdefault(dim, Contract(condition, f"{dim} >= 0", tensor.span))
    for dim in contracts:
        cx.facts.learn(dim + 1)
        facts.append(dim + 1)
    return list(contracts.values())


def _packed_contracts(cx: Context) -> list[Contract]:
    """The last dimension of an i4 or u4 tensor is even."""
    contracts: list[Contract] = []
    for tensor in cx.tensors.values():
        if tensor.dtype not in (I4, U4) or not tensor.dims:
            continue
        last = tensor.dims[-1]
        if last.constant is not None and last.constant % 2:
            cx.error(
                "E0324",
                f"the last dimension of `{tensor.name}`, {last}, is odd",
                tensor.span,
                help=f"two `{tensor.dtype}` lie in a byte; pad the dimension to an even size",
            )
        elif last.divided_by(Sym.of(2)) is None and not cx.facts.divides(last, 2):
            condition = HostOp("==", (last % 2, Sym.of(0)))
            contracts.append(Contract(condition, f"{last} % 2 == 0", tensor.span))
            cx.facts.learn_divisor(last, 2)
    return contracts


def _top_level(cx: Context, statements: Iterable[ast.Stmt], nests: list[Nest]) -> None:
    """Nests, and bindings of compile-time values and sizes between them."""
    for statement in statements:
        with cx.at(statement.span):
            match statement:
                case ast.For(_, "parallel"):
                    _nest(cx, statement, nests)
                case ast.If(condition, then, otherwise):
                    with cx.block():
                        entity = evaluate(cx, condition)
                    known = truth(cx, entity)
                    if known is not None:
                        check_names(cx, otherwise if known else then)
                        _top_level(cx, then if known else otherwise, nests)
                    elif not isinstance(entity, Poison):
                        cx.error(
                            "E0214",
                            "a condition outside `parallel` must be known at compile time",
                            condition.span,
                            help="move the `if` into the loop",
                        )
                case ast.Assign(ast.Name() as name, value):
                    with cx.block() as ops:
                        entity = evaluate(cx, value)
                    if ops or not isinstance(entity, (Known, Integer, TypeOf, Poison)):
                        entity = cx.error(
                            "E0214",
                            f"`{name.id}` is computed outside `parallel`",
                            help="move it into the loop; outside only sizes and compile-time values are bound",
                        )
                    if isinstance(entity, TypeOf):
                        cx.scope.bind(name.id, entity, span=name.span)
                    else:
                        with cx.block():
                            bind_name(cx, name, entity)
                case _:
                    cx.error(
                        "E0214",
                        "this statement stands outside `parallel`",
                        help="a kernel's work is in `for … in parallel(…)`; `for i in parallel(1)` makes one instance",
                    )


def _nest(cx: Context, statement: ast.For, nests: list[Nest]) -> None:
    if len(statement.targets) != len(statement.ranges):
        cx.error(
            "E0207",
            f"`parallel` has {len(statement.ranges)} ranges and {len(statement.targets)} names",
            help="give one name for each range: `for i, j in parallel(M by BM, N by BN)`",
        )
        poisoned_body(cx, statement, execute)
        return
    frames = [dict(f) for f in cx.scope.frames]
    cx.scope.enter()
    grid: list[GridAxis] = []
    ok = True
    for target, range_node in zip(statement.targets, statement.ranges, strict=True):
        with cx.block() as outside:
            range_ = evaluate_range(cx, range_node)
        kinds = set() if range_ is None else {v.kind for v in (range_.trips + range_.lo).variables}
        if outside or kinds & {"value", "trip"}:
            cx.error(
                "E0214",
                "a range of the grid depends on another one"
                if "trip" in kinds
                else "the grid is computed from values of tensors",
                range_node.span,
                help="give the largest number of instances and end spans with `until=`",
            )
            range_ = None
        if not check_target(cx, target) or range_ is None:
            cx.scope.declare(target.id, POISON, "span", target.span)
            ok = False
            continue
        index = cx.fresh_trip(target.id, range_.trips)
        grid.append(GridAxis(target.id, index, range_.trips, range_.step))
        cx.scope.declare(target.id, range_.entity(index), "span", target.span)
    with cx.block() as ops:
        execute(cx, statement.body)
    cx.scope.leave("loop")
    cx.scope.frames = frames
    if ok:
        nest = Nest(tuple(grid), Block(tuple(ops)), statement.span)
        nests.append(nest)
        if not cx.sink.errors:
            _warn_of_overlaps(cx, nest)
            _warn_of_chosen_sizes(cx, nest)


def _warn_of_chosen_sizes(cx: Context, nest: Nest) -> None:
    """W0203 for results that are others where the compiler chooses other tiles."""
    origin = cx.candidate.origin
    chosen = [n for n in cx.candidate.values if n in cx.candidate.tiles]
    chosen = [n for n in chosen if origin.get(n) in ("auto", "tuned")]
    for span, what, sizes in dependent(nest, chosen, cx.divides):
        names = [n for n in chosen if n in sizes]
        listed = " and ".join(f"`{n}`" for n in names)
        many = len(names) > 1
        cx.sink.warning(
            "W0203",
            f"{what} depends on the tile size{'s' * many} {listed}, which the compiler chooses",
            span,
            help=f"compare or index with the span itself (`k`, not `k.start`), or give {listed} a number",
        )


def _warn_of_overlaps(cx: Context, nest: Nest) -> None:
    """W0202 for stores of which nobody says whose is kept."""
    for store, axes in repeated_stores(nest, cx.facts):
        names, tensor = " and ".join(f"`{n}`" for n in axes), store.access.tensor
        loops = f"loop over {names} inside the instance, `for {axes[0]} in range(…)`"
        cx.sink.warning(
            "W0202",
            f"instances of different {names} store to the same elements of `{tensor}`",
            store.span,
            help=f"{loops}, or combine with `atomic_add({tensor}[…], e)`",
        )
