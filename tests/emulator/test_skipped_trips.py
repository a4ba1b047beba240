"""Trips that a mask empties are skipped by tables of blocks: documents, lengths, a bool for each key; what is not finite is multiplied all the same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from tests.emulator.asynchronous import ORDERS, Arrays, Program
from tilec.passes import copies
from tilec.runtime.arguments import bind_sizes
from tilec.runtime.launching import choose_target, concrete_launches
from tilec.targets import rates

ATTENTION = """
import std.softmax

kernel k[D = 64, G = 2, BM = 64, BN = 64](
    q: bf16[B, H, S, D], k: bf16[B, H // G, N, D], v: bf16[B, H // G, N, D], doc: i32[B, S], key: i32[B, N], valid: bool[B, N], scale: f32) -> o: bf16[B, H, S, D]:
    require scale > 0.0 and H % G == 0
    for b, h, i in parallel(B, H, S by BM):
        state = softmax.begin(i, D)
        for j in range(RANGE by BN):
            s = (LEFT @ k[b, h // G, j, :].T) * scale
            state = softmax.step(state, where(SEEN, s, -inf), v[b, h // G, j, :])
        o[b, h, i, :] = softmax.end(state)
"""
DOCUMENTS = "doc[b, i][:, None] == key[b, j][None, :]"
QUERIES = "q[b, h, i, :]"
FORMS = {
    "documents": ("N", DOCUMENTS, QUERIES),
    "documents, causal": ("0 : min(N, i.stop)", f"({DOCUMENTS}) & (i[:, None] >= j[None, :])", QUERIES),
    "a window of documents": ("max(0, i.start - 90) : min(N, i.stop)", DOCUMENTS, QUERIES),
    "keys": ("N", "valid[b, j][None, :]", QUERIES),
    "a length, of computed rows": ("N", "j[None, :] < key[b, 0]", "(q[b, h, i, :].to(f32) * scale).to(bf16)"),
}  # fmt: skip


@pytest.fixture(autouse=True)
def everything_pays(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rates, "LAUNCH_MICROSECONDS", 0.0)
    monkeypatch.setattr(copies, "TABLE_SHARE", 1e3)


def program(form: str, folder: Path) -> Program:
    path = folder / "k.tile"
    text = ATTENTION
    for word, part in zip(("RANGE", "SEEN", "LEFT"), FORMS[form], strict=True):
        text = text.replace(word, part)
    path.write_text(text, encoding="utf-8")
    return Program(path)


def sorted_documents(change: Callable[[Arrays], None] | None = None) -> Callable[[Arrays], None]:
    """Some documents of several blocks, some of a few rows; a few rows see no key."""

    def changed(arrays: Arrays) -> None:
        doc, key, valid = arrays["doc"], arrays["key"], arrays["valid"]
        doc[...] = np.arange(doc.shape[1]) // 100
        key[...] = np.arange(key.shape[1]) // 100
        doc[..., 40:50] = -1
        valid[..., 64:] = False
        valid[..., 130:135] = True
        key[1:, 0] = 70
        if change is not None:
            change(arrays)

    return changed


@pytest.mark.parametrize("form", list(FORMS))
def test_trips_without_effect_are_skipped(form: str, tmp_path: Path) -> None:
    found = program(form, tmp_path)
    numbers = {"B": 2, "H": 2, "S": 200, "N": 330, "scale": 0.125}
    ran = found.run(numbers, sorted_documents(), orders=ORDERS[:2])
    computed = "computed" in form
    launches = 2 + computed
    ahead = [f"k_kernel_ahead{f'_{n}' if n > 1 else ''}" for n in range(1, launches + 1)]
    name = f"k_kernel_{'computed_' * computed}skipping"
    # truth values may empty no block: a kernel of its own is for such calls
    whole = [f"{name}_none"] if form == "keys" else []
    assert list(ran.launched) == ["k_kernel_cleared", *ahead, name, *whole]
    if computed:
        return
    # without a workspace all trips are run
    plan = found.kernel.plan
    assert plan.workspace_bytes.constant == 0
    addresses = {x.name: (at + 1) << 32 for at, x in enumerate(plan.parameters)}
    call = bind_sizes(plan, {}, dict(numbers))
    launches = concrete_launches(
        plan, choose_target(plan, (9, 0)), call, addresses, multiprocessors=3
    )
    assert [launch.kernel for launch in launches] == ["k_kernel"]


def test_what_is_not_finite_reaches_all_rows(tmp_path: Path) -> None:
    """0 times NaN is NaN, also in a block that no row sees."""
    found = program("documents", tmp_path)
    numbers = {"B": 1, "H": 2, "S": 200, "N": 330, "scale": 0.125}

    def change(arrays: Arrays) -> None:
        arrays["v"][0, 0, 300, 5] = np.nan
        arrays["v"][0, 0, 310, 9] = np.inf

    ran = found.run(numbers, sorted_documents(change), orders=ORDERS[:1])
    out = ran.outputs["o"].astype(np.float32)
    assert np.isnan(out[..., 5]).all() and np.isnan(out[..., 9]).all()
    assert np.isfinite(np.delete(out, (5, 9), 3)).all()


@pytest.mark.parametrize(
    ("keys", "width", "order"), [(330, 64, ("B", "S", "N")), (320, 128, ("S", "B", "N"))]
)
def test_a_mask_in_memory_is_packed(
    keys: int, width: int, order: tuple[str, ...], tmp_path: Path
) -> None:
    """By the launch that asks its blocks, whose rows begin anywhere or at multiples of 16 bytes; where it finds none empty another kernel runs
    all trips."""
    path = tmp_path / "k.tile"
    text = ATTENTION.replace("valid: bool[B, N]", f"valid: bool[{', '.join(order)}]")
    seen = ", ".join({"B": "b", "S": "i", "N": "j"}[x] for x in order)
    for word, part in zip(("RANGE", "SEEN", "LEFT"), ("N", f"valid[{seen}]", QUERIES), strict=True):
        text = text.replace(word, part)
    path.write_text(text.replace("BN = 64", f"BN = {width}"), encoding="utf-8")
    found = Program(path)

    def change(arrays: Arrays) -> None:
        valid = np.moveaxis(arrays["valid"], order.index("S"), 0)
        if keys == 330:
            valid[:70, :, 64:200] = False
        valid[3] = False

    numbers = {"B": 2, "H": 4, "S": 197, "N": keys, "scale": 0.125}
    ran = found.run(numbers, change, orders=ORDERS[:2])
    assert list(ran.launched) == ["k_kernel_cleared", "k_kernel_pack", "k_kernel_ahead_2", "k_kernel_skipping", "k_kernel_skipping_none"]  # fmt: skip
