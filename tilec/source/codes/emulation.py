"""Codes E093 and E094: what the emulator finds while it runs generated code; E7003: what its compiler rejects."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

_FAULT = " Unless the program indexes outside of a tensor, this is a fault of tilec."

CODES: dict[str, CodeEntry] = {
    "E0930": CodeEntry(
        "global memory outside of the arguments",
        "On the emulator a thread read or wrote bytes that belong to no argument, or wrote to an input. The message says how far "
        "outside of which argument." + _FAULT,
    ),
    "E0931": CodeEntry(
        "shared memory outside of an array",
        "On the emulator a thread used an index that its array in shared memory does not have."
        + _FAULT,
    ),
    "E0932": CodeEntry(
        "memory read that nothing has written",
        "On the emulator a thread read a byte of shared memory, of an output or of the workspace before anything was stored "
        "there." + _FAULT,
    ),
    "E0933": CodeEntry(
        "unordered accesses to shared memory",
        "Two threads of a CTA touched the same byte, one of them writing, and no barrier orders them; or a byte was touched "
        "while an asynchronous copy to it was under way. On a GPU the result depends on timing."
        + _FAULT,
    ),
    "E0934": CodeEntry(
        "threads part at a barrier",
        "Some threads of a CTA wait at a barrier, or lanes of a warp in an operation of the whole warp, and others wait elsewhere or "
        "have left the kernel." + _FAULT,
    ),
    "E0935": CodeEntry(
        "no thread can go on",
        "Every thread of the resident CTAs waits for something that none of them will do: a deadlock."
        + _FAULT,
    ),
    "E0936": CodeEntry(
        "misaligned access",
        "The address of an access of 2 to 16 bytes is not a multiple of its size; a GPU stops there."
        + _FAULT,
    ),
    "E0937": CodeEntry(
        "the kernel stopped itself",
        "A thread executed `__trap()`: an `assert` of the program is false. The line printed before says which.",
    ),
    "E0938": CodeEntry(
        "wait for copies that were not committed",
        "A thread waited for its asynchronous copies while some were issued and not committed to a group, so the wait does not "
        "cover them." + _FAULT,
    ),
    "E0939": CodeEntry(
        "barrier in shared memory misused",
        "A barrier was used before it was initialised, or by a thread that no barrier of all threads orders behind that; it was "
        "initialised again; more threads arrived than end a phase; or a phase ended before a thread had seen the end of the one "
        "before." + _FAULT,
    ),
    "E0940": CodeEntry(
        "bytes of asynchronous copies do not add up",
        "At the end of a CTA a barrier in shared memory counts bytes that were announced and have not landed, or that were not "
        "announced, or a copy is still under way; or a phase counts more bytes than the hardware can."
        + _FAULT,
    ),
    "E0941": CodeEntry(
        "proxy fence missing",
        "A thread wrote to shared memory that a bulk copy or a product of a warpgroup then used, without `fence_async` between its "
        "write and the barrier, or read what a bulk copy then overwrote. On a GPU the write may not be seen, or the read may come late."
        + _FAULT,
    ),
    "E0942": CodeEntry(
        "tensor map or matrix descriptor that the hardware does not take",
        "The coordinates of a bulk copy do not fit its tensor map, its rows do not fill the swizzle, or the descriptor of an "
        "operand has bits that must be 0 or differs between the threads of a warpgroup." + _FAULT,
    ),
    "E0943": CodeEntry(
        "thread ends with asynchronous work under way",
        "A thread left the kernel with bulk stores or products that it had not committed or not waited for."
        + _FAULT,
    ),
    "E0944": CodeEntry(
        "number of registers that the hardware does not take",
        "A warpgroup gave back or took registers down or up to a number that is not a multiple of 8 from 24 to 256."
        + _FAULT,
    ),
    "E0945": CodeEntry(
        "cluster misused",
        "A kernel was launched in clusters of another size than its attribute says or with a grid that is no multiple of it; "
        "a CTA addressed one that had ended or that its cluster does not have; or a CTA ended without having waited for what "
        "another one did to its shared memory." + _FAULT,
    ),
    "E0946": CodeEntry(
        "registers of a product not fenced",
        "A warpgroup started a product into registers that one of its threads could use before, without `wgmma_fence` between."
        + _FAULT,
    ),
    "E7003": CodeEntry(
        "the host compiler rejected generated code",
        "The emulator compiles the same kernel text as nvcc, with the host C++ compiler. Nothing that tilec generates may fail "
        "there. The message carries the compiler's first errors and the folder with the text, the command and the log.",
    ),
}
