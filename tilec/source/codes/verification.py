"""Codes E09 and E073: running a program in the reference, and results that did not verify."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {
    "E0730": CodeEntry(
        "a scalar parameter has no value",
        "A scalar parameter without a default needs a value to run: `kernel f(x: f32[N], scale: f32) -> …` runs with "
        "`-s scale=0.5`, with `example scale = 0.5` in the kernel, or with a default, `scale: f32 = 0.5`.",
    ),
    "E0731": CodeEntry(
        "a dimension has no value",
        "Every run-time dimension needs a number to run: give it with `-s M=4096`, or write `example M = 4096` in the kernel.",
    ),
    "E0901": CodeEntry(
        "the result does not verify",
        "An element of an output lies farther from the reference than the numerics table of the language allows for this kernel. "
        "No share of elements may differ. The message gives the element, what was computed, what was expected and the bound; "
        "`--rtol` and `--atol` replace the bound where a looser comparison is wanted.",
    ),
    "E0902": CodeEntry(
        "a scalar index is out of range",
        "`x[n]` with a scalar `n` that is negative or not below the dimension is a fault of the program; only spans and index tiles may "
        "reach past an edge. The message names the value and the instance. Bound the loop that gives `n`, or check the data that "
        "it is loaded from.",
    ),
    "E0903": CodeEntry(
        "an assertion failed",
        "The condition of an `assert` is false in the instance that the message names.",
    ),
    "E0904": CodeEntry(
        "an argument does not fit its parameter",
        "An array has another element type, shape or size than the kernel's parameter with the sizes given. For 4-bit types the "
        "last dimension of the array is half that of the parameter, two elements to a byte.",
    ),
    "E0905": CodeEntry(
        "a check cannot be evaluated",
        "`check` is evaluated by NumPy on whole arrays in float64: arithmetic, functions and reductions of the language, `arange`, "
        "`repeat`, `.T`, `@`, constant and scalar indices, `for … in range`. Spans, stores and atomics belong into the kernel.",
    ),
    "E0906": CodeEntry(
        "a check is too large to be evaluated",
        "The whole arrays of a `check` do not fit into the reference's memory (4 GB) and its leading axis cannot be evaluated in blocks, "
        "or it takes more than some 10^11 operations; or the earlier nests of a kernel do, all of which the sampled last one needs. "
        "Run with smaller sizes, `-s M=…`, or compare only with the interpreter.",
    ),
}
