"""Codes E081 and E092: what running kernels needs, and results that did not verify."""

from __future__ import annotations

from tilec.source.codes.entry import CodeEntry

CODES: dict[str, CodeEntry] = {
    "E0811": CodeEntry(
        "pycuda is not installed",
        "tilec loads and launches kernels through pycuda. Install it with `pip install 'tilec[gpu]'` or, where its build "
        "lacks a header, with `make demo`, which names what is missing. Without it `--device reference` runs the "
        "interpreter.",
    ),
    "E0812": CodeEntry(
        "no GPU",
        "The CUDA driver is missing or sees no device. `tilec doctor` says which. Without a GPU `tilec run` verifies "
        "with the interpreter (`--device reference`).",
    ),
    "E0813": CodeEntry(
        "too little memory on the GPU",
        "The arguments of this call, their guard bands and the workspace do not fit. Choose smaller sizes with `-s`.",
    ),
    "E0814": CodeEntry(
        "the driver refused",
        "A call of the CUDA driver failed that has nothing to do with the kernel's result. The note holds the driver's "
        "own words.",
    ),
    "E0815": CodeEntry(
        "no PyTorch that can be used",
        "`--against torch` evaluates the `check` clause with PyTorch on the same GPU. Install it with `pip install torch`; one "
        "that was built without CUDA, or for another GPU, does not serve.",
    ),
    "E0816": CodeEntry(
        "a check that PyTorch cannot evaluate",
        "The `check` clause uses something that PyTorch cannot evaluate on a GPU, such as a product of 4-bit integers. "
        "`--against MODULE:FUNCTION` names a function of your own that gets the inputs as tensors.",
    ),
    "E0817": CodeEntry(
        "the measuring process did not start",
        "`tilec tune` measures in a child process, which ended before it had made inputs and expected results. The note holds its "
        "last words; too little memory is the usual reason.",
    ),
    "E0818": CodeEntry(
        "matplotlib is not installed",
        "`--plot FILE` draws with matplotlib: `pip install 'tilec[bench]'`. `--csv` and `--json` need nothing.",
    ),
    "E0922": CodeEntry(
        "wrote outside its arguments",
        "Every argument lies between two bands of known bytes; the kernel changed a byte of a band. "
        "The message names the argument and how far outside the first such byte is.",
    ),
    "E0923": CodeEntry(
        "the kernel faulted",
        "The driver stopped the kernel, for an address that is not mapped or for running too long. `compute-sanitizer "
        "tilec run …` shows the line of the generated code.",
    ),
    "E0924": CodeEntry(
        "input changed",
        "An argument that the kernel only reads has other bytes after the launch.",
    ),
    "E0925": CodeEntry(
        "nothing to verify against",
        "The kernel has no `check` clause and no reference was named, and the interpreter cannot run it at these sizes.",
    ),
    "E0819": CodeEntry(
        "no optuna",
        "`tilec tune --search tpe` lets optuna's sampler choose the candidates. Run `pip install 'tilec[tune]'`, or take `--search guided`, "
        "which needs nothing.",
    ),
    "E0820": CodeEntry(
        "no energy counter",
        "`--energy` reads the GPU's own counter through NVML, with the package nvidia-ml-py: `pip install 'tilec[tune]'`. The counter is "
        "there on data-centre GPUs from Volta on, and not in every virtual machine; without it there are no joules to report.",
    ),
    "E0821": CodeEntry(
        "no dask.distributed",
        "`tilec tune --scheduler` measures on the workers of a dask.distributed cluster. Run `pip install 'tilec[tune]'`, here and on the "
        "workers.",
    ),
    "E0822": CodeEntry(
        "the cluster does not suit",
        "The scheduler named does not answer, has no workers, or a worker has another version of tilec, no GPU, or another GPU than the first: "
        "times of different GPUs cannot be compared. A worker that is lost stops the search; what was measured is kept, and the same "
        "command goes on from there.",
    ),
}
