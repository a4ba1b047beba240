"""Forms of attention as people write them next, bench/attention_unseen.tile: beside flex_attention and beside our causal attention.

usage: python bench/unseen.py [--out FILE] [--rounds N] [--processes N] [--no-flex] [NAME…]

Every result is compared with PyTorch in float32 before it is timed: the first two heads of the first and the last sequence. Forms are
prepared by several processes at once and raced by one after the other; times are of calls taken in turns in random order with a cold L2,
ratios are within each round, and the median over the rounds is reported. A *block* is 128 x 128 scores of which one at least is not
masked; `of_causal` is the rate of such blocks beside that of our causal attention of the same width. `of_flex` is missing where
flex_attention has no such form; what it got is in `flex`. Exit status: 0, or 1 where a result is wrong.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import statistics
import sys
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from threading import BrokenBarrierError
from typing import Any

import torch
import torch.multiprocessing as mp
from launchers import load
from records import beside_torch, write_rows
from variants import ARCH, BLOCK, FORMS, Mask, Score, blocks, index, race, ratio
from variants import Case as Masked

UNSEEN = "bench/attention_unseen.tile"
TOLERANCE = 1e-2
"""Relative Frobenius error."""

Tensor = torch.Tensor


@dataclass
class Form:
    """A kernel with its arguments; `q`, `k` and `v` are by head, as flex_attention takes them."""

    kernel: str
    q: Tensor
    k: Tensor
    v: Tensor
    arguments: tuple[Tensor, ...]
    """in the order of the signature"""
    scalars: tuple[float, ...] = ()
    defines: Mapping[str, object] = field(default_factory=dict)
    sizes: Mapping[str, int] = field(default_factory=dict)
    mask: Mask | None = None
    score: Score | None = None
    scale: float | None = None
    """of the scores; None: one over the root of the width"""
    sink: Tensor | None = None
    weights: Callable[[Tensor], Tensor] | None = None
    """of the masked scores, in place of softmax"""
    inputs: Callable[[Tensor, Tensor], tuple[Tensor, Tensor]] | None = None
    """what becomes of queries and keys before they meet"""
    shown: Callable[[Tensor], Tensor] | None = None
    """the result by head, where it is laid out in another way"""
    out: tuple[int, ...] = ()
    """the result's shape where it is not that of the queries"""
    dtype: torch.dtype = torch.bfloat16
    """of the result"""
    more: tuple[int, ...] = ()
    """shape of a second result in float32, which is not compared"""
    rival: bool = True
    """whether flex_attention has such a form"""
    flex: str = ""


def causal(b: Any, h: Any, i: Any, j: Any) -> Any:
    return i >= j


def randn(*shape: int) -> Tensor:
    return torch.randn(*shape, device="cuda", dtype=torch.bfloat16)


def heads(
    length: int = 4096, keys: int = 0, *, batch: int = 4, count: int = 16, width: int = 128, group: int = 1, values: int = 0
) -> tuple[Tensor, Tensor, Tensor]:  # fmt: skip
    """Random queries, keys and values."""
    few = count // group
    keys = keys or length
    return (
        randn(batch, count, length, width),
        randn(batch, few, keys, width),
        randn(batch, few, keys, values or width),
    )


def rotated(x: Tensor, c: Tensor, z: Tensor) -> Tensor:
    low, high = x.float().chunk(2, -1)
    c, z = c.float(), z.float()
    return torch.cat((low * c - high * z, low * z + high * c), -1).bfloat16().float()


def units(x: Tensor) -> Tensor:
    x = x.float()
    return (x * torch.rsqrt((x * x).sum(-1, keepdim=True) + 1e-6)).bfloat16().float()


def plain(
    kernel: str,
    extra: Sequence[Tensor] = (),
    scalars: Sequence[float] = (),
    mask: Mask | None = None,
    score: Score | None = None,
    **shape: int,
) -> Form:
    """What has queries, keys, values and more tensors by head, then the scale and more scalars."""
    q, k, v = heads(**shape)
    group = {"G": shape["group"]} if "group" in shape else {}
    scalars = (q.shape[3] ** -0.5, *scalars)
    return Form(kernel, q, k, v, (q, k, v, *extra), scalars, mask=mask, score=score, defines=group)


def forms() -> dict[str, Callable[[], Form]]:
    """All forms by name; made when called."""

    def i32(*numbers: int) -> Tensor:
        return torch.tensor(numbers, device="cuda", dtype=torch.int32)

    def prefix_lm() -> Form:
        prefix = i32(700, 1024, 2000, 77)
        return plain("prefix_lm", [prefix], mask=lambda b, h, i, j: (j < prefix[b]) | (j <= i))

    def doc() -> Tensor:
        ends = torch.sort(torch.randint(0, 4096, (4, 8), device="cuda"), dim=1).values
        return torch.searchsorted(
            ends, torch.arange(4096, device="cuda").expand(4, -1).contiguous()
        ).int()

    def documents(kernel: str = "documents", both: bool = True) -> Form:
        ids = doc()
        if both:
            return plain(kernel, [ids], mask=lambda b, h, i, j: ids[b, i] == ids[b, j])
        return plain(kernel, [ids], mask=lambda b, h, i, j: (ids[b, i] == ids[b, j]) & (i >= j))

    def chunked() -> Form:
        return plain("chunked", mask=lambda b, h, i, j: (i >= j) & (i // 1024 == j // 1024))

    def strided() -> Form:
        return plain(
            "strided", mask=lambda b, h, i, j: (i >= j) & ((i - j < 256) | ((i - j) % 4 == 0))
        )

    def window_sinks() -> Form:
        sink = torch.randn(64, device="cuda")
        form = plain(
            "window_sinks",
            [sink],
            mask=lambda b, h, i, j: (i >= j) & (i - j < 128),
            count=64,
            width=64,
            group=8,
        )
        form.sink, form.flex = sink, "without the scores beside"
        return form

    def first_and_window() -> Form:
        return plain(
            "first_and_window", mask=lambda b, h, i, j: (i >= j) & ((i - j < 1024) | (j < 128))
        )

    def window(b: Any, h: Any, i: Any, j: Any) -> Any:
        return (i >= j) & (i - j < 1024)

    def window_alibi() -> Form:
        slope = 2.0 ** -torch.arange(1, 17, device="cuda").float()
        return plain(
            "window_alibi", [slope], mask=window, score=lambda s, b, h, i, j: s - slope[h] * (i - j)
        )

    def window_soft_cap() -> Form:
        return plain(
            "window_soft_cap",
            mask=window,
            score=lambda s, b, h, i, j: 50.0 * torch.tanh(s / 50.0),
            group=2,
        )

    def relative() -> Form:
        rel = torch.randn(16, 257, device="cuda")
        return plain(
            "relative",
            [rel],
            score=lambda s, b, h, i, j: s + rel[h, torch.clamp(i - j, -128, 128) + 128],
        )

    def bucketed() -> Form:
        table = torch.randn(16, 32, device="cuda")

        def score(s: Any, b: Any, h: Any, i: Any, j: Any) -> Any:
            back = torch.clamp(i - j, min=0)
            far = 16 + (torch.log(torch.clamp(back, min=1).float() / 16) / math.log(8.0) * 16).int()
            return s + table[h, torch.where(back < 16, back, torch.clamp(far, max=31))]

        return plain("bucketed", [table], mask=causal, score=score)

    def padded(kernel: str) -> Form:
        length = i32(4096, 1000, 2500, 3333)
        return plain(kernel, [length], mask=lambda b, h, i, j: j < length[b])

    def key_mask() -> Form:
        valid = torch.rand(4, 4096, device="cuda") < 0.8
        return plain("key_mask", [valid], mask=lambda b, h, i, j: valid[b, j])

    def key_bias() -> Form:
        bias = torch.randn(4, 4096, device="cuda")
        return plain("key_bias", [bias], score=lambda s, b, h, i, j: s + bias[b, j])

    def query_scale() -> Form:
        heat = torch.rand(4, 4096, device="cuda") * 0.1 + 0.05
        form = plain("query_scale", [heat], mask=causal, score=lambda s, b, h, i, j: s * heat[b, i])
        form.scalars, form.scale = (), 1.0
        return form

    def head_scale() -> Form:
        heat = torch.rand(16, device="cuda") * 0.1 + 0.05
        form = plain("head_scale", [heat], mask=causal, score=lambda s, b, h, i, j: s * heat[h])
        form.scalars, form.scale = (), 1.0
        return form

    def sigmoid_weights() -> Form:
        form = plain("sigmoid_weights", scalars=(-6.0,), mask=causal)
        form.weights, form.rival = lambda s: torch.sigmoid(s - 6.0), False
        return form

    def relu_weights() -> Form:
        def weights(s: Tensor) -> Tensor:
            p = s.relu() ** 2
            return p / (p.sum(-1, keepdim=True) + 1e-3)

        form = plain("relu_weights", mask=causal)
        form.weights, form.rival, form.more = weights, False, (4, 16, 4096)
        return form

    def qk_norm() -> Form:
        form = plain("qk_norm", mask=causal)
        form.scalars, form.scale = (10.0,), 10.0
        form.inputs, form.flex = lambda q, k: (units(q), units(k)), "without the norms"
        return form

    def rope(kernel: str = "rope", keys: bool = True) -> Form:
        angle = torch.arange(4096, device="cuda")[:, None] * 1e4 ** (
            -torch.arange(64, device="cuda") / 64
        )
        c, z = angle.cos().bfloat16(), angle.sin().bfloat16()
        form = plain(kernel, [c, z], mask=causal)
        form.inputs = lambda q, k: (rotated(q, c, z), rotated(k, c, z) if keys else k.float())
        form.flex = "without the rotations"
        return form

    def queries_scaled() -> Form:
        form = plain("queries_scaled", mask=causal)
        form.inputs = lambda q, k: ((q.float() * form.scalars[0]).bfloat16().float(), k.float())
        form.scale = 1.0
        form.flex = "with a scale of the scores"
        return form

    def widths() -> Form:
        form = plain("widths", mask=causal, width=192, values=128)
        form.out = form.v.shape
        return form

    def latent() -> Form:
        q, k, _ = heads(batch=1, width=576)
        kv = k[:, :1].contiguous()
        v = kv[..., :512]
        form = Form(
            "latent",
            q,
            kv.expand(1, 16, -1, -1),
            v.expand(1, 16, -1, -1),
            (q, kv[:, 0]),
            (576**-0.5,),
            mask=causal,
        )
        form.out = (1, 16, 4096, 512)
        return form

    def cached() -> Form:
        q, k, v = heads(2048)
        _, old_k, old_v = heads(2048)
        form = Form(
            "cached",
            q,
            torch.cat((old_k, k), 2),
            torch.cat((old_v, v), 2),
            (q, k, v, old_k, old_v),
            (128**-0.5,),
        )
        form.mask, form.flex = lambda b, h, i, j: j - 2048 <= i, "of one tensor of all keys"
        form.sizes = {"N": 2048}
        return form

    def last_queries() -> Form:
        return plain("last_queries", mask=lambda b, h, i, j: i + 2048 >= j, length=2048, keys=4096)

    def around() -> Form:
        return plain("around", mask=lambda b, h, i, j: (i - j).abs() < 512)

    def tokens_first() -> Form:
        q, k, v = randn(4, 4096, 16, 128), randn(4, 4096, 4, 128), randn(4, 4096, 4, 128)
        a, b, c = (x.transpose(1, 2) for x in (q, k, v))
        return Form("tokens_first", a, b, c, (q, k, v), (128**-0.5,), mask=causal,
                    out=q.shape, shown=lambda o: o.transpose(1, 2))  # fmt: skip

    def one_tensor() -> Form:
        qkv = randn(4, 4096, 3, 16, 128)
        a, b, c = (qkv[:, :, n].transpose(1, 2) for n in range(3))
        return Form("one_tensor", a, b, c, (qkv,), (128**-0.5,), mask=causal,
                    out=(4, 4096, 16, 128), shown=lambda o: o.transpose(1, 2))  # fmt: skip

    def switched() -> Form:
        form = plain("switched", mask=causal)
        form.scalars = (1, *form.scalars)
        return form

    def packed_soft_cap() -> Form:
        ends = [0, 4096, 5120, 7000, 11000, 12345, 16384]
        q, k, v = (randn(16384, 16, 128) for _ in range(3))
        starts = i32(*ends)
        a, b, c = (x.transpose(0, 1)[None] for x in (q, k, v))
        at = torch.searchsorted(starts, torch.arange(16384, device="cuda"), right=True)
        form = Form("packed_soft_cap", a, b, c, (q, k, v, starts), (4096, 128**-0.5),
                    sizes={"TOTAL": 16384, "NSEQ1": 7}, out=q.shape, shown=lambda o: o.transpose(0, 1)[None])  # fmt: skip
        form.mask = lambda b, h, i, j: (at[i] == at[j]) & (i >= j)
        form.score = lambda s, b, h, i, j: 30.0 * torch.tanh(s / 30.0)
        return form

    def few_queries() -> Form:
        return plain("few_queries", mask=lambda b, h, i, j: i + 4096 - 8 >= j,
                     length=8, keys=4096, batch=16, count=32, group=8)  # fmt: skip

    def singles() -> Form:
        arguments = tuple(torch.randn(4, 16, 4096, 128, device="cuda") for _ in range(3))
        q, k, v = (x.half() for x in arguments)
        form = Form("singles", q, k, v, arguments, (128**-0.5,), mask=causal)
        form.dtype, form.flex = torch.float32, "of operands of 16 bits"
        return form

    found: dict[str, Callable[[], Form]] = {
        f.__name__: f
        for f in (
            prefix_lm, documents, chunked, strided, window_sinks, first_and_window, window_alibi, window_soft_cap, relative,
            bucketed, key_mask, key_bias, query_scale, head_scale, sigmoid_weights, relu_weights, qk_norm, rope, queries_scaled,
            widths, latent, cached, last_queries, around, tokens_first, one_tensor, switched, packed_soft_cap, few_queries, singles,
        )
    }  # fmt: skip
    found["documents_causal"] = partial(documents, "documents_causal", False)
    found["documents_skipped"] = partial(documents, "documents_skipped", False)
    found["padded"] = partial(padded, "padded")
    found["key_padding"] = partial(padded, "key_padding")
    found["rope_queries"] = partial(rope, "rope_queries", False)
    return found


def reference(form: Form, batch: int) -> Tensor:
    """The first two heads of a sequence in float32."""
    group = form.q.shape[1] // form.k.shape[1]
    q, k, v = form.q[batch, :2], form.k[batch, [0, 1 // group]], form.v[batch, [0, 1 // group]]
    a, b = form.inputs(q, k) if form.inputs else (q.float(), k.float())
    s = (a @ b.mT) * (form.q.shape[3] ** -0.5 if form.scale is None else form.scale)
    at = [x[0] for x in index(1, 2, s.shape[1], s.shape[2])]
    at[0] = at[0] + batch
    if form.score is not None:
        s = form.score(s, *at)
    if form.weights is not None:
        return (form.weights(s.masked_fill(~form.mask(*at), -math.inf))) @ v.float()  # type: ignore[misc]
    if form.mask is not None:
        s = s.masked_fill(~form.mask(*at), -math.inf)
    lse = torch.logsumexp(s, 2)
    if form.sink is not None:
        lse = torch.logaddexp(lse, form.sink[:2, None])
    p = torch.exp(s - lse.masked_fill(lse == -math.inf, 0.0)[..., None])
    return p @ v.float()


def error(form: Form, o: Tensor) -> float:
    """The greater relative Frobenius error of the first and the last sequence."""
    worst = 0.0
    for batch in {0, form.q.shape[0] - 1}:
        want = reference(form, batch)
        off = float((o[batch, :2].float() - want).norm() / want.norm())
        worst = off if not off <= worst else worst
    return worst


def prepare(form: Form) -> Callable[[], object]:
    """Its call, after the first one gave the right result. Raises ValueError where it did not."""
    launch = load(UNSEEN, form.kernel, ARCH, **form.defines)
    shape = form.q.shape
    o = torch.full(form.out or shape, math.nan, device="cuda", dtype=form.dtype)
    outputs = (o,) + ((torch.full(form.more, math.nan, device="cuda"),) if form.more else ())
    known = {"B": shape[0], "H": shape[1], "S": shape[2], "N": form.k.shape[2], **form.sizes}
    call = partial(
        launch, *form.arguments, *outputs, *(known[n] for n in launch.sizes), *form.scalars
    )
    call()
    torch.cuda.synchronize()
    off = error(form, form.shown(o) if form.shown else o)
    if not off < TOLERANCE:
        raise ValueError(f"error {off}")
    return call


def rival(form: Form) -> Callable[[], object]:
    """The same by a compiled flex_attention. Raises where it cannot, or where it is wrong."""
    from torch.nn.attention.flex_attention import create_block_mask, flex_attention

    batch, number, length, _ = form.q.shape
    mask = None
    if form.mask is not None:
        mask = create_block_mask(form.mask, batch, None, length, form.k.shape[2], device="cuda")  # type: ignore[arg-type]
    call = partial(
        torch.compile(flex_attention, dynamic=False), form.q, form.k, form.v, score_mod=form.score, block_mask=mask,
        scale=form.scale, enable_gqa=form.k.shape[1] != number,
    )  # fmt: skip
    o = call()
    if not form.flex:
        off = error(form, o)
        if not off < TOLERANCE:
            raise ValueError(f"error {off}")
    return call


def baseline(width: int) -> tuple[Callable[[], object], int]:
    """Our causal attention of a width, and its blocks."""
    q, k, v = heads(width=width)
    launch = load(FORMS, "causal", ARCH, **({} if width == 128 else {"D": width}))
    known = {"B": 4, "H": 16, "S": 4096}
    call = partial(
        launch, q, k, v, torch.empty_like(q), *(known[n] for n in launch.sizes), width**-0.5
    )
    side = 4096 // BLOCK
    return call, 4 * 16 * side * (side + 1) // 2


def count(form: Form) -> int:
    """Blocks with a score that is not masked, of all heads."""
    batch, number, length, width = form.q.shape
    keys = form.k.shape[2]
    if keys == length:
        return blocks(Masked("", "", "", shape=(batch, number, length, width), mask=form.mask))
    if form.mask is None or length < BLOCK:
        return batch * number * -(-length // BLOCK) * -(-keys // BLOCK)
    at = index(1, 1, length, keys)
    some = torch.nn.functional.max_pool2d(form.mask(*at).half(), BLOCK, ceil_mode=True)
    return int(some.sum()) * batch * number


def work(
    names: Sequence[str], options: argparse.Namespace, barrier: Any, lock: Any, rows: Any
) -> None:
    """Prepare forms, wait for all others, then race each while no other process does."""
    made = forms()
    ready: list[tuple[str, Form, dict[str, Callable[[], object]], int]] = []
    base, full = None, 0
    try:
        base, full = baseline(128)
        base()
    except Exception as fault:
        print(f"causal: {fault}", flush=True)
    for name in names:
        try:
            form = made[name]()
            calls = {"tilec": prepare(form)}
        except Exception as fault:
            text = str(fault) or traceback.format_exc()
            rows.append({"case": name, "fault": text[:300]})
            print(json.dumps(rows[-1]), flush=True)
            continue
        if base is not None:
            calls["causal"] = base
        if form.rival and not options.no_flex:
            try:
                calls["flex"] = rival(form)
            except Exception as fault:  # a rival that fails is not our fault: say so, and go on
                form.flex = f"failed: {str(fault).strip()[:120]}"
        ready.append((name, form, calls, count(form)))
    torch.cuda.synchronize()
    with contextlib.suppress(BrokenBarrierError):  # of a process that died
        barrier.wait(100)
    for name, form, calls, number in ready:
        with lock:
            times = race(calls, options.rounds)
            torch.cuda.synchronize()
        middle = statistics.median(times["tilec"])
        flops = 2.0 * BLOCK * BLOCK * (form.q.shape[3] + form.v.shape[3]) * number
        row: dict[str, object] = {
            "case": name,
            "us": round(middle * 1e3, 1),
            "blocks": number,
            "block_tflops": round(flops / middle * 1e-9, 1),
        }
        if "causal" in times and form.q.shape[3] == 128:
            row["of_causal"] = ratio(times["causal"], times["tilec"], number / full)
        if "flex" in times:
            row["of_flex"] = ratio(times["flex"], times["tilec"])
        if form.flex:
            row["flex"] = form.flex
        rows.append(row)
        print(json.dumps(row), flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--processes", type=int, default=12)
    parser.add_argument("--no-flex", action="store_true")
    parser.add_argument("names", nargs="*", default=[])
    options = parser.parse_args()
    names = options.names or list(forms())
    number = min(options.processes, len(names))
    context = mp.get_context("spawn")
    with context.Manager() as manager:
        barrier, lock, rows = manager.Barrier(number), manager.Lock(), manager.list()
        workers = [
            context.Process(target=work, args=(names[n::number], options, barrier, lock, rows))
            for n in range(number)
        ]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        found = sorted(rows, key=lambda row: names.index(row["case"]))
    if options.out:
        head = beside_torch(
            ARCH,
            "verified, then triton do_bench medians with a cold L2, in random order; ratio within each round, median",
        )
        write_rows(options.out, head, found)
    return 1 if len(found) < len(names) or any("fault" in row for row in found) else 0


if __name__ == "__main__":
    sys.exit(main())
