"""The samples' kernels whose output is mutated, with tiles that the emulator runs quickly."""

from __future__ import annotations

from tests.mutants.runs import Subject


def _pairs(**numbers: float) -> tuple[tuple[str, float], ...]:
    return tuple(numbers.items())


def _define(**numbers: int) -> tuple[tuple[str, str], ...]:
    return tuple((n, str(v)) for n, v in numbers.items())


def _sizes(*sets: dict[str, int]) -> tuple[tuple[tuple[str, int], ...], ...]:
    return tuple(tuple(s.items()) for s in sets)


_GEMM = _define(BM=32, BN=32, BK=16)
_STEPS = _define(BM=32, BN=32, BK=32)
"""Two steps a trip: operands are read ahead across trips."""

_GEMM_SIZES = _sizes(
    {"M": 40, "N": 72, "K": 104},
    {"M": 33, "N": 37, "K": 83},
    {"M": 40, "N": 40, "K": 8},
    {"M": 33, "N": 37, "K": 7},  # the first slots are filled with edges
)
_STEPS_SIZES = _sizes(
    {"M": 40, "N": 72, "K": 208},
    {"M": 33, "N": 37, "K": 163},
    {"M": 33, "N": 37, "K": 7},
    {"M": 40, "N": 40, "K": 8},
    {"M": 8, "N": 8, "K": 0},
)

_LONGEST_ROWS = {"R": 3, "C": 65535}
"""Rows that reach past all steps but the last one of the longest level."""

SUBJECTS = (
    Subject("vector_add.tile", "vector_add"),
    Subject(
        "softmax.tile",
        "softmax",
        # the last one reaches past all steps but one of the longest level
        sizes=_sizes({"R": 2, "C": 69632}, {"R": 3, "C": 7}, {"R": 3, "C": 131071}),
    ),
    Subject(
        "softmax.tile",
        "online_softmax",
        _define(BC=256),
        sizes=_sizes({"R": 3, "C": 520}, {"R": 3, "C": 1003}),
    ),
    Subject(
        "norms.tile",
        "layer_norm",
        scalars=_pairs(eps=1e-5),
        sizes=_sizes(_LONGEST_ROWS),
    ),
    Subject(
        "norms.tile",
        "rms_norm_residual",
        scalars=_pairs(eps=1e-6),
        sizes=_sizes(_LONGEST_ROWS),
    ),
    Subject(
        "matrix_vector_and_groups.tile",
        "gemv",
        _define(BM=4, BK=64),
        sizes=_sizes({"M": 9, "K": 136}, {"M": 9, "K": 137}),
    ),
    Subject("gemm.tile", "gemm_nn", _GEMM, sizes=_GEMM_SIZES),
    Subject("gemm.tile", "gemm_nt", _STEPS, sizes=_STEPS_SIZES),
    Subject("gemm_bias_gelu.tile", "gemm_bias_gelu", _STEPS, sizes=_STEPS_SIZES),
    Subject(
        "attention.tile",
        "attention",
        _define(D=32, BM=32, BN=16),
        _pairs(scale=0.1),
        _sizes({"B": 1, "H": 1, "S": 37, "T": 53}, {"B": 1, "H": 2, "S": 40, "T": 90}),
    ),
    Subject(
        "gemm.tile",
        "gemm_nn",
        _define(BM=128, BN=64, BK=32),  # two warpgroups, which end one after the other
        sizes=_sizes({"M": 500, "N": 136, "K": 416}, {"M": 500, "N": 136, "K": 96}),
        arch="sm_90a",
    ),
    Subject(
        "gemm.tile",
        "gemm_nn",
        _define(BM=64, BN=128, BK=32),
        sizes=_sizes(
            {"M": 328, "N": 264, "K": 200},
            {"M": 136, "N": 264, "K": 64},
            {"M": 200, "N": 264, "K": 8},
        ),
        arch="sm_90a",
    ),
    Subject(
        "gemm_bias_relu.tile",
        "gemm_bias_relu",
        _define(BM=64, BN=128, BK=32),
        sizes=_sizes({"M": 328, "N": 264, "K": 200}, {"M": 136, "N": 264, "K": 64}),
        arch="sm_90a",
    ),
    Subject(
        "gemm_skinny.tile",
        "gemm_skinny_nt",
        _define(ROWS=128),
        sizes=_sizes(
            {"M": 72, "N": 264, "K": 200},
            {"M": 128, "N": 520, "K": 720},  # more trips than a ring has slots
            {"M": 5, "N": 136, "K": 8},
        ),
        arch="sm_90a",
    ),
    Subject(
        "attention.tile",
        "attention",
        (
            *_define(D=32, BN=16),
            ("CAUSAL", "true"),
        ),  # BM: by the compiler, so that warpgroups stop by themselves
        _pairs(scale=0.1),
        _sizes(
            {"B": 1, "H": 13, "S": 136, "T": 136},
            {"B": 1, "H": 7, "S": 272, "T": 272},
            {
                "B": 1,
                "H": 31,
                "S": 136,
                "T": 16,
            },  # a trip for each of more instances than a ring has slots
            {"B": 1, "H": 13, "S": 136, "T": 128},  # as many trips as a ring has slots
            {"B": 1, "H": 9, "S": 128, "T": 128},  # the same in tiles of fewer rows
            {"B": 1, "H": 3, "S": 264, "T": 200},
            {"B": 1, "H": 1, "S": 900, "T": 931},
        ),
        arch="sm_90a",
    ),
    Subject(
        "attention_variants.tile",
        "packed",
        _define(D=32, BM=64, BN=16),
        _pairs(scale=0.1, longest=330),
        _sizes({"TOTAL": 330, "H": 2, "NSEQ1": 3}, {"TOTAL": 200, "H": 3, "NSEQ1": 4}),
        arch="sm_90a",
        ranges=("starts",),
    ),
)
