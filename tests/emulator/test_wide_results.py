"""Results so wide that warpgroups with the same rows share out their columns, and values that are a part of the keys' tile."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.emulator.asynchronous import Arrays, Program
from tilec.ir import asynchronous as a

FORMS = Path(__file__).resolve().parents[2] / "bench" / "attention_unseen.tile"
SHARED = {"D": 128, "DV": 64, "BM": 128, "BN": 64}


def columns(program: Program) -> set[str]:
    """Where warpgroups begin in the right operands of products."""
    (roles,) = [op for op in program.kernel.lowered["sm_90a"][0].body if isinstance(op, a.Roles)]
    found: set[str] = set()
    for inner in _ops(roles.consumer):
        if isinstance(inner, a.WarpgroupProduct):
            found.add(inner.col_first)
    return found


def _ops(body: object) -> list[object]:
    found: list[object] = []
    for op in body if isinstance(body, tuple) else ():
        found.append(op)
        for name in ("body", "then", "otherwise"):
            found += _ops(getattr(op, name, ()))
    return found


def growing(arrays: Arrays) -> None:
    """Keys whose scores move the references of rows."""
    for name in {"k", "kv"} & set(arrays):
        keys = arrays[name]
        times = np.linspace(0, 20, keys.shape[-2])[:, None]
        keys[:] = (keys.astype(np.float32) * times).astype(keys.dtype)


@pytest.mark.parametrize(
    ("kernel", "defines", "tiles", "apart"),
    [
        ("latent", {}, ["q", "kv"], True),
        ("widths", {"D": 64, "DV": 512}, ["q", "k", "v"], True),
        ("latent", SHARED, ["q", "kv"], False),
    ],
)
def test_columns_and_tiles_are_shared(
    kernel: str, defines: dict[str, int], tiles: list[str], apart: bool
) -> None:
    program = Program(FORMS, kernel, defines)
    low = program.kernel.lowered["sm_90a"][0]
    assert [p.name for p in low.panels if not p.name.startswith("o")] == [
        f"{x}_tiles" for x in tiles
    ]
    assert columns(program) == ({"0", "warpgroup * 256"} if apart else {"0"})
    products = program.kernel.manifest["targets"]["sm_90a"][0]["products"]  # type: ignore[index]
    assert ("shared_out" in products) is apart
    for rows, change in ((72, None), (200, growing)):
        ran = program.run({"B": 1, "H": 1, "S": rows, "scale": 0.07}, change)
        assert ran.launched == (f"{kernel}_kernel",)
