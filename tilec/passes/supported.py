"""What has no lowering yet says so before any pass runs, with its own code and place."""

from __future__ import annotations

from tilec.ir import tile_ir as t
from tilec.source.diagnostics import fail


def check_supported(program: t.Program) -> None:
    """Raise the code of the first construct that cannot be compiled."""
    for tensor in program.tensors:
        if tensor.dtype.bits < 8 and tensor.role != "input":
            raise fail(
                "E0513",
                f"`{tensor.name}` has 4-bit elements, which a kernel cannot write in CUDA yet",
                tensor.span,
                note="the reference interpreter runs it: `tilec run --device reference`",
                help="write `u8` with two elements a byte; `tilec explain E0513` shows how",
            )
