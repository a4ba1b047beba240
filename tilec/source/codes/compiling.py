"""Codes E05, E06 and W06: what is not compiled yet, resources of a target, performance warnings."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {
    "E0510": CodeEntry(
        "products cannot be compiled yet",
        "`a @ b` and `dot(a, b)` are checked and run by the reference interpreter, but tilec cannot turn them into CUDA yet. "
        "`tilec run --device reference FILE` computes the kernel.",
    ),
    "E0511": CodeEntry(
        "a tile is combined with its own transpose",
        "`x + x.T` needs one tile in two layouts at once. Write the tile to a `temp` in one `parallel` nest and load it in the "
        "other order in the next.",
    ),
    "E0512": CodeEntry(
        "an operation cannot be compiled yet",
        "Scans (`cumsum`, `cummax`) and `reduce` with a function of your own along the rows or columns of a product, and functions of `reduce` "
        "that do more than arithmetic, are checked and interpreted, but have no CUDA form yet.",
    ),
    "E0513": CodeEntry(
        "4-bit tensors cannot be written yet",
        "`i4` and `u4` inputs compile; outputs of 4-bit elements are checked and interpreted, but have no CUDA form yet: two "
        "threads would write one byte. Write a `u8` tensor with half as many columns, `((high & 15) << 4 | low & 15).to(u8)`, of the even and "
        "the odd columns, `x.view(R, C // 2, 2)[r, :, 0]` and `[r, :, 1]`.",
    ),
    "E0514": CodeEntry(
        "no product of these element types",
        "The target's tensor cores have no instruction for the operands of `@`, or none of the form that `schedule mma = …` asks for. "
        "The message lists those that it has: convert with `.to(…)`, write `dot(a, b, as = tf32)` for f32, leave the form out, or "
        "compile for a newer `--arch`.",
    ),
    "E0515": CodeEntry(
        "the axes of a product cannot be laid out",
        "An operand of `@` needs compile-time extents, and one axis cannot be the rows of one product and the columns of another in "
        "the same nest. Walk a run-time extent with `for k in range(K by BK)`; give the second product a nest of its own.",
    ),
    "E0517": CodeEntry(
        "two names are one in C++",
        "Words of C++ get an underscore in the generated code (`float` becomes `float_`), and double underscores become single "
        "ones. Where another name of the kernel already is that word, rename one.",
    ),
    "E0516": CodeEntry(
        "a form of products that does not suit the target or the kernel",
        "`schedule mma = wgmma` asks for Hopper's asynchronous products, which need `--arch sm_90a` and operands that bulk copies can "
        "bring. Leave the setting out, or write `mma = mma` (`mma.sync`) or `mma = wmma` (`nvcuda::wmma`).",
    ),
    "E0518": CodeEntry(
        "a part or a reshape of what is computed as a whole",
        "A constant slice or a `.reshape` of a computed tile is compiled as a computation of the elements that it needs, back to where they "
        "are loaded: of the part of a tensor, or through a `.view` of it. That cannot pass a scan along that axis, what is gathered or can be "
        "absent along axes that are merged or split, rows and columns of a product that are, or tensors that are not dense. Load the part, or "
        "the `.view`, where that is possible; else write the tile to a `temp` in one `parallel` nest and load it in the next.",
    ),
    "E0601": CodeEntry(
        "a tile does not fit",
        "A tile that a loop carries, or that several statements need, must fit the registers of one block. Use a smaller tile "
        "(`by 128` instead of `by 8192`), or bound a run-time size with `require C <= 4096`.",
    ),
    "E0602": CodeEntry(
        "a row that must be read twice is overwritten in between",
        "A row that does not fit the registers of a block is read again by every reduction. Where the kernel overwrites it before "
        "the last of them, no such schedule exists. Bound the row with `require`, or write to a tensor of its own.",
    ),
    "E0603": CodeEntry(
        "too much shared memory",
        "The operand tiles of the products, times the depth of the ring, and the partial results of reductions must fit the shared "
        "memory that the target gives one block. Where `stages` is left open the deepest ring that fits is taken, down to one stage, with "
        "which each tile is staged where it is used. Use smaller tiles (`-D BK=32`), or fewer `stages` where they are given.",
    ),
    "W0601": CodeEntry(
        "a row is read more than once",
        "The bound on a size lets a row be longer than the registers of a block hold. Such rows take a variant that reads the row "
        "again for every reduction, which costs bandwidth. A tighter `require` removes the variant.",
    ),
    "W0602": CodeEntry(
        "ptxas lost performance",
        "ptxas, the assembler behind nvcc, reports that a kernel spills registers or has a stack frame, that Hopper's asynchronous "
        "products (`wgmma`) run one after the other, or that the register limits of its warps (`setmaxnreg`) are ignored. The result "
        "is right and the kernel slower than it should be. Smaller tiles or fewer stages need fewer registers.",
    ),
    "W0603": CodeEntry(
        "products run on the slower of the target's two paths",
        "The target multiplies by warpgroups that bulk copies feed, and something in the kernel does not suit that form: an operand "
        "that is computed or gathered, a product in a branch, `print` or `assert`, fewer than 64 rows and columns. The kernel is right, and uses "
        "`mma.sync`. A branch suits it where it is a filter of the loop: around the whole body, without an `else`, on a condition of indices, "
        "parameters, and tensors that the kernel does not write.",
    ),
    "W0604": CodeEntry(
        "no tuning result holds for the architecture",
        "A result of `tilec tune` holds for the architecture that its candidates were compiled for, and for no other one: `sm_90a` has "
        "products and copies that `sm_90` has not, so what is fastest there may not even compile here. The kernel was compiled "
        "without tuning. Tune for this architecture (`tilec tune --arch`), compile for one that the results are for, or leave results "
        "out with `--no-tuned`.",
    ),
    "W0605": CodeEntry(
        "a tuned variant is left out",
        "`--tuned` compiles the variants that `FILE.tuning` names. One of them does not fit the target any more, after a change of tilec, "
        "or has other arguments than the kernel, since what was tuned is part of its signature. Its sizes take the general variant. "
        "Tune again.",
    ),
}

TOO_LARGE = frozenset({"E0601", "E0603"})
"""What a kernel with smaller tiles may be free of: too many registers, too much shared memory."""
