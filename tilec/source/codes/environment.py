"""Codes E08 and E70: what the machine lacks, and faults of tilec itself."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {
    "E0801": CodeEntry(
        "no nvcc",
        "tilec compiles a `.tile` file to CUDA without nvcc, but building that file to machine code needs one. It is "
        "looked for in this order: the option `--nvcc`, the variables `TILEC_NVCC`, `CUDA_HOME` and `CUDA_PATH`, the "
        "search path, `/usr/local/cuda*/bin`, and the Python packages that carry the toolkit. An nvcc that is named "
        "must be one that starts: tilec does not silently take another. Install the CUDA toolkit, or run "
        "`pip install 'tilec[nvcc]'`.",
    ),
    "E0802": CodeEntry(
        "no host compiler that nvcc can use",
        "nvcc preprocesses and links with g++. It is looked for in this order: the variables `TILEC_CXX` and "
        "`NVCC_CCBIN`, then `g++` and `g++-N` on the search path, where a version newer than the toolkit knows is "
        "passed over. Install g++, for example with `apt-get install g++`, or name one: `TILEC_CXX=g++-13`.",
    ),
    "E0803": CodeEntry(
        "this nvcc does not know the architecture",
        "Each toolkit knows some range of GPU architectures: nvcc 13 starts at sm_75, and sm_100 and sm_120 need nvcc "
        "12.8 or newer. Choose another `--arch`, or name another toolkit with `--nvcc`.",
    ),
    "E0804": CodeEntry(
        "a tool of the toolkit is missing",
        "Showing machine code needs `cuobjdump`, which is part of the CUDA toolkit and not of the Python packages that "
        "`tilec[nvcc]` installs. Run `pip install nvidia-cuda-cuobjdump` or install the toolkit. An Nsight Compute that "
        "`tilec profile --ncu PATH` names must be one that starts; without `--ncu` what cannot be measured is estimated.",
    ),
    "E0805": CodeEntry(
        "nvcc could not do its work",
        "nvcc started and stopped for a reason that lies in the machine and not in the generated code: a full disk, "
        "too little memory, a headers folder that is not there, a signal. The first lines that it printed are in the "
        "note.",
    ),
    "E7001": CodeEntry(
        "internal fault",
        "tilec itself is at fault, not the program. The message names what tilec was doing, and a folder with all that "
        "is needed to see the fault again: please attach it to a report.",
    ),
    "E7002": CodeEntry(
        "nvcc rejected generated code",
        "Nothing that tilec accepts may fail inside nvcc, so this is a fault of tilec. The message carries nvcc's first "
        "errors and the folder with the generated file, the command and the full log: please attach it to a report.",
    ),
    "E7004": CodeEntry(
        "formatting would change the program",
        "`tilec fmt` reads its result again before it writes it; what it read says something else than the file, so it left "
        "the file alone. This is a fault of tilec: please attach the folder that the message names to a report.",
    ),
}
