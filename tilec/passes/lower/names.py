"""C names: unique, never a word that C++ or CUDA uses."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import field

from tilec.lazy_dataclass import dataclass

RESERVED = frozenset(
    """alignas alignof and and_eq asm auto bitand bitor bool break case catch char char16_t char32_t class compl const constexpr
    const_cast continue decltype default delete do double dynamic_cast else enum explicit export extern false float for friend
    goto if inline int long mutable namespace new noexcept not not_eq nullptr operator or or_eq private protected public register
    reinterpret_cast return short signed sizeof static static_assert static_cast struct switch template this thread_local throw
    true try typedef typeid typename union unsigned using virtual void volatile wchar_t while xor xor_eq
    threadIdx blockIdx blockDim gridDim warpSize printf assert main std shared live thread own team group instance stream workspace
    spans status device major minor compute instances grid host_Span host_overlap is_aligned Shared
    abs min max floor ceil exp exp2 log log2 sqrt rsqrt sin cos tanh erf pow fma round signbit isnan isinf y0 y1 yn j0 j1 jn
    unix linux i386 NULL EOF INFINITY NAN FILE stdin stdout stderr errno restrict complex I
    int8_t int16_t int32_t int64_t uint8_t uint16_t uint32_t uint64_t size_t bf16_t f16_t f8e4m3_t f8e5m2_t i4_t u4_t Vector
    Indexed convert bitcast a_operand b_operand mt nt nt_first k_at row_first col_first a_matrix rank col item drawn following turn
    warpgroup told more place trips_bit trip_lives trips_alive trips_from""".split()
)
"""Words that a generated local must not take."""


Spelling = Callable[[str], str]
"""The C++ name of a name of the source: the same, or another where C++ or the generated text uses that word."""


@dataclass
class Names:
    """Hands out names, spelled for C++; a taken one gets a number."""

    spell: Spelling
    used: set[str] = field(default_factory=set)

    def unique(self, wanted: str) -> str:
        """`wanted`, made a C identifier, or it with the first free number."""
        base = re.sub(r"\W", "_", wanted) or "t"
        if base[0].isdigit() or base.startswith("__") or re.match(r"_[A-Z]", base):
            base = "t" + base
        base = self.spell(base)
        name, number = base, 1
        while name in self.used:
            number += 1
            name = f"{base}_{number}"
        self.used.add(name)
        return name

    def release(self, names: set[str]) -> None:
        """Names whose scope has ended may be taken again."""
        self.used -= names
