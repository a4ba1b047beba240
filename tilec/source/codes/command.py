"""Codes E07: the command line; and E0650, which stops at warnings."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {
    "E0701": CodeEntry(
        "command line not understood",
        "There is no such command or option, or an argument is missing. `tilec --help` lists the commands, "
        "`tilec compile --help` the options of one.",
    ),
    "E0703": CodeEntry(
        "program file cannot be read",
        "The file named on the command line is missing, is a folder, or may not be read. Check the path; "
        "`tilec run` without a file runs every `.tile` file of the current folder.",
    ),
    "E0704": CodeEntry(
        "output cannot be written",
        "The folder of an output is missing, is not a folder, or may not be written. tilec makes no folders for "
        "`-o`: make it first (`mkdir -p build`) or name another path. An output that was there is left as it was.",
    ),
    "E0705": CodeEntry(
        "not of the form NAME=VALUE",
        "`-D`, `-s` and `--input` take a name, an equals sign and a value, such as `-D BM=128` or `-s M=4096`; "
        "one name has one value.",
    ),
    "E0706": CodeEntry(
        "no such kernel",
        "The kernel named after the file is not one of its kernels. The message lists those that it has.",
    ),
    "E0707": CodeEntry(
        "unknown architecture",
        "`--arch` takes the name of a GPU architecture that tilec has a table for, such as `sm_80` (A100), `sm_90` "
        "(H100, H200) or `sm_120` (RTX 50).",
    ),
    "E0708": CodeEntry(
        "output for one architecture",
        "`--emit ptx` and `--emit cubin` produce code of one architecture, `kernel-ir` the program of one: give "
        "`--arch` once. A `.cu` may hold several.",
    ),
    "E0709": CodeEntry(
        "options that exclude each other",
        "Two of the options given ask for different things, such as `--check-only` with `-o`. Leave one out.",
    ),
    "E0650": CodeEntry(
        "warnings as errors",
        "With `--warnings-as-errors` a warning stops the work as an error does. Change what the warning is about, or "
        "leave the option out.",
    ),
    "E0651": CodeEntry(
        "a required optimisation is lost",
        "`--require tma,wgmma,pipelined,vec16` names what the fastest variant of every kernel must have: operand tiles by bulk copies, "
        "products of warpgroups, tiles that are brought ahead, accesses of 16 bytes. The message says why one of them is missing and "
        "what to change. `tilec explain` shows what the kernel has instead.",
    ),
    "E0711": CodeEntry(
        "size not known",
        "Every run-time size of a kernel needs a value: from `-s M=4096`, from an `example` clause, or from the shape "
        "of an array given with `--input`.",
    ),
    "E0712": CodeEntry(
        "value does not fit",
        "A size is an integer from 0 to 2147483647, a scalar a value of its dtype. A name that is not one of "
        "the kernel's sizes or scalars cannot be set with `-s`.",
    ),
    "E0713": CodeEntry(
        "contract not held",
        "The sizes and scalars given violate a `require` of the kernel, or a dimension expression such as `H // G` "
        "differs from the array's. The launcher of the generated code refuses such a call in the same way.",
    ),
    "E0714": CodeEntry(
        "array does not fit",
        "The array given for a parameter has another dtype or shape, is not dense, or its file cannot be read. "
        "The message says what the parameter takes.",
    ),
    "E0715": CodeEntry(
        "arguments overlap",
        "No output and no `inout` parameter may share bytes with another argument: the instances of a kernel run in no "
        "order, so one could read what another has written. Give the output memory of its own.",
    ),
    "E0716": CodeEntry(
        "sizes of a range not understood",
        "`-s N=2**10..2**28` doubles from the first to the last, `-s N=1000..5000:500` adds 500, `-s N=1000,2000` names values. "
        "Several ranges advance together, so they have the same number of values.",
    ),
    "E0717": CodeEntry(
        "nothing to run",
        "Without a file `tilec run` runs every `.tile` file of the current folder; there is none.",
    ),
    "E0718": CodeEntry(
        "reference function cannot be used",
        "`--reference module:function` names a Python function that takes the kernel's inputs by name as float64 arrays "
        "and returns the output, or a tuple or a dict of them. The module is looked for in the current folder first.",
    ),
    "E0720": CodeEntry(
        "nothing to tune",
        "`tilec tune` tries the values that a kernel's `tune` clause lists, such as "
        "`tune BM in (64, 128, 256), warps in (4, 8) where BM <= 128 key (M, N, K)`.",
    ),
    "E0721": CodeEntry(
        "cache cannot be cleared",
        "`tilec cache clear` removes what tilec keeps in its cache folder, and may not remove an entry. What was removed "
        "before is gone, which costs time only. `tilec cache path` says where the folder is.",
    ),
    "E0722": CodeEntry(
        "new program not written",
        "`tilec new NAME` writes `NAME.tile` with a kernel of that name. NAME has letters, digits and `_`, is no word of "
        "the language, and there is no such file yet: one that is there is never replaced.",
    ),
    "E0723": CodeEntry(
        "no such code",
        "`tilec explain E0312` prints what this page says about a code; the code given is none that tilec prints. The "
        "message names the nearest.",
    ),
    "E0724": CodeEntry(
        "no such GPUs",
        "`tilec tune --devices` takes numbers of GPUs of this machine, such as `0,1`, or `all`. They must be of one kind: times of different "
        "GPUs cannot be compared.",
    ),
    "E0726": CodeEntry(
        "nothing that can be required",
        "`--require` takes a list of `tma`, `wgmma`, `pipelined` and `vec16`, separated by commas.",
    ),
    "E0725": CodeEntry(
        "a backward does not fit",
        "The backward of an operator of PyTorch finds what it takes by name: inputs and outputs of the kernel, and `dy` for the gradient "
        "of its output `y`. A kernel given as backward has outputs named `dx` for an input `x`. A kernel that changes an argument in place "
        "has no backward.",
    ),
    "E0719": CodeEntry(
        "no such pass",
        "`--print-after` takes the name of a pass that runs on the program; docs/architecture.md lists them.",
    ),
}
