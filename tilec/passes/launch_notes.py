"""What a launch is for, in the words of a comment above it.

k_kernel_even_192x160   BM = 192, BN = 160, BK = 64: rounds of CTAs that are more even
k_kernel_copied         BM = 128, BN = 256, BK = 64: operands whose rows begin anywhere are copied first
k_kernel_c256           rows of up to 256 elements
"""

from __future__ import annotations

import re
from collections.abc import Collection

from tilec.ir import kernel_ir as k
from tilec.passes.variants import Variant

_WORDS = (
    (r"c(\d+)", r"rows of up to \1 elements"),
    (r"walk", "rows that are longer than a CTA holds, read more than once"),
    (r"window", "that begin anywhere, by windows of whole words"),
    (r"even_\d+x\d+", "rounds of CTAs that are more even"),
    (r"wide", "wider tiles, where the sizes have enough of them"),
    (r"paired", "pairs of CTAs share what they read"),
    (r"copied", "operands whose rows begin anywhere are copied first"),
    (r"any_out", "a result whose rows begin anywhere"),
    (r"any", "any addresses"),
)
"""Parts of a variant's name, and what they say; `any_out` and `even_…` go before what is a part of them."""

_PART = re.compile(
    "|".join(f"(?P<n{n}>(?<![^_]){part}(?![^_]))" for n, (part, _) in enumerate(_WORDS))
)


def about(kernel: k.Kernel, variant: Variant, tiles: Collection[str]) -> str:
    """The tile sizes of a launch and what sets it apart; "" where neither is worth a word."""
    sizes = ", ".join(f"{name} = {value}" for name, value in kernel.constants if name in tiles)
    found = [
        re.sub(part, words, match[0])
        for match in _PART.finditer(variant.name)
        for n, (part, words) in enumerate(_WORDS)
        if match[f"n{n}"]
    ]
    said = ", ".join(found).replace(", that", " that")
    return ": ".join(text for text in (sizes, said) if text)
