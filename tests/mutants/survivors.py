"""Why a mutant may survive: it is the same program in other words, or what it lacks is there twice."""

from __future__ import annotations

import re

from tests.mutants.runs import Verdict

RULES: tuple[tuple[str, str, str], ...] = (
    (
        r"branch < to <=",
        r"\((stage|\w+_next)\.\d+ < ",
        "the copies behind the last trip are masked: they copy nothing",
    ),
    (
        r"(branch < to <=|bound \+ 1)",
        r"_whole_end",
        "the copies have filled the edge with zeros, so both forms of the trip compute the same",
    ),
    (
        r"(commit dropped|wait weakened)",
        r"_any: ",
        "copies to unaligned addresses are plain stores: the groups are empty",
    ),
    (
        r"guard (dropped|< to <=)",
        r"TileLoop c if \(c_at < C\)",
        "what is loaded behind the bound is 0, which a sum ignores; a walk ends there by itself",
    ),
    (
        r"guard < to <=",
        r"LoadWindow \w+ if \(c_at < C\)",
        "a vector that begins at the bound has no element to bring, and its load brings none",
    ),
    (
        r"tail \+ 1",
        r"IfWhole",
        "one element more of some hundred, a zero behind the tensor's end, changes a sum by less than its result is rounded",
    ),
    (
        r"tail \+ 1",
        r"LoadShifted (weight|bias)",
        "elements behind the bound are computed and not stored",
    ),
    (
        r"guard dropped",
        r"if live$",
        "a group without an instance lies behind the bound of its axis too",
    ),
    (
        r"barrier dropped",
        r"is read before it is written again",
        "redundant: the barrier at the head of the trip, or the kernel's start, separates them already",
    ),
    (
        r"(barrier dropped|wait weakened)",
        r"(q_tile is written before it is read|line 0: 0 pending)",
        "redundant: the first trip waits for all groups of before, and has a barrier",
    ),
    (
        r"mask dropped",
        r"i_at < ",
        "rows behind the bound are computed and not stored; no other row reads them",
    ),
    (
        r"chunks one trip apart",
        r"_paired: line \d+: trip$",
        "there are as many slots as chunks: none waits for another, whichever trip it leaves in",
    ),
    (
        r"chunks three trips apart",
        r"trips$",
        "a chunk that has left leaves again: the same bytes to the same place",
    ),
    (
        r"fence dropped",
        r"^(attention_kernel: line 21|packed_kernel: line 20)$",
        "redundant: no register was written since the fence of the product before",
    ),
    (
        r"release of another slot",
        r"q_free$",
        "of two slots filled in order the other one is free when the next but one is waited for",
    ),
    (
        r"release of another slot",
        r"bias_free$",
        "the ring has one slot: the one before it is the same",
    ),
    (
        r"phase not waited for",
        r"attention_kernel(_wide)?: line 0: [kv]_full$",
        "turns keep warpgroups within a trip of each other: a slot of a ring of three or more that is given back early is counted where it "
        "belongs",
    ),
    (
        r"turn dropped",
        r": end$",
        "tidy, not needed: nobody takes the turn that is left behind the last instance",
    ),
    (
        r"end's turn dropped",
        r": wait \w+_turn$",
        "a warpgroup that does not wait ends beside the one before it with the same sums: what is lost is time",
    ),
    (
        r"bound \+ 1",
        r"(attention|packed)_kernel: line \d+: j_end$",
        "the column behind the last key is behind every query, so that the program's mask leaves it out",
    ),
    (
        r"mask dropped",
        r"^attention_kernel: line 15: \(\((T - 16|-S \+ T \+ 128\*i\.\d+ \+ 112)\) >= 0\)$",
        "where a tile is whole but for its end, the columns behind that are behind every query, so that the program's mask leaves them out",
    ),
    (
        r"mask dropped",
        r"^packed_kernel: line (16|55): \(j_el < j_end(_2)?\)$",
        "columns behind the last key are behind every query that is stored, so that the program's mask leaves them out; in trips "
        "without that mask there are none",
    ),
    (
        r"edge begin - 1",
        r"^attention_kernel: line 21: v_tiles",
        "keys begin with a tile, so no row is in front of them; where a CTA has no key, that row is in front of the tensor: the copy "
        "brought zeros",
    ),
    (
        r"edge begin - 1",
        r"^packed_kernel: line 20: v_tiles",
        "keys begin with a tile, so no row is in front of them; where a CTA has no key it has no query either and stores nothing",
    ),
    (
        r"branch < to <=",
        r"^(attention|packed)_kernel: line (20|21): .* < 16\)$",
        "a whole tile is looked at for what is no number behind its end, where it has no rows",
    ),
    (
        r"(guard (dropped|< to <=)|bound \+ 1)",
        r"^packed_kernel(_any_out)?: line ((0|56): t5_end|56: (StoreVector o_at|TileLoop t5 t9) if \(t5_at (<|>=) t5_(begin_)?end(_2)?\))$",
        "each end of a sequence's rows is asked twice, for the span and for the sums of its loop; without both (test_mutants.py) "
        "it is noticed",
    ),
    (
        r"mask dropped",
        r"^packed_kernel: line 56: \((\(-BM\*t\.3 \+ hi - lo - BM\)|\(-BM\*t\.3 - lo - BM \+ min\([^()]*\)\)) >= 0\)$",
        "whether a tile is whole is asked twice, of the sequence and of the span; without both, which is a mutant too, it is noticed",
    ),
)
"""(kind, what with the variant in front, reason)"""


def explanation(verdict: Verdict) -> str:
    """The reason, "" where there is none."""
    text = f"{verdict.variant}: {verdict.what}"
    for kind, what, reason in RULES:
        if re.fullmatch(kind, verdict.kind) and re.search(what, text):
            return reason
    return ""
