"""The same program written in other words is compiled in the same way: no pass knows the name of an algorithm.

Compared is the manifest: threads, layouts, shared memory, transports, barriers. Names are those of the source, so a
renamed program is compared after the same renaming, and axes without regard to what they are called.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from tilec.compiler import compile_file
from tilec.emulator.text import kernel_texts

SAMPLES = Path(__file__).resolve().parents[2] / "samples"


def decisions(text: str, folder: Path, arch: str, renamed: dict[str, str] | None = None) -> Any:
    """What was decided for each CUDA kernel, with the names of `renamed` put back."""
    path = folder / "program.tile"
    path.write_text(text, encoding="utf-8")
    (kernel,) = compile_file(str(path), archs=(arch,)).kernels
    shown = json.dumps(dict(kernel.manifest), default=str)
    for new, old in (renamed or {}).items():
        shown = re.sub(rf"(?<![A-Za-z0-9]){new}(?![A-Za-z0-9])", old, shown)
    manifest = json.loads(shown)
    for found in manifest["targets"].values():
        for one in found:
            axes = one.get("axes", {})
            one["axes"] = sorted(json.dumps(axis, sort_keys=True) for axis in axes.values())
            one["barriers"] = sorted(one["barriers"])
            # factors, summands and arguments are sorted by name
            parts = one["condition"].split(" and ")
            one["condition"] = sorted(
                " ".join(sorted(re.findall(r"\w+|[^\w\s]+", part))) for part in parts
            )
            one["shared"] = sorted(json.dumps(buffer, sort_keys=True) for buffer in one["shared"])
            # lines move with statements and functions: what is said of all of them, wherever
            notes = [note for line in one.pop("lines") for note in line["notes"]]
            one["notes"] = sorted({json.dumps(note, sort_keys=True) for note in notes})
            for instruction in one.get("products", {}).get("instructions", []):
                del instruction["at"]
            # names of values in between are the program's
            del one["held_tiles"], one["inline_tiles"]
    return manifest


def replaced(text: str, *changes: tuple[str, str]) -> str:
    """The text with each part replaced by another; every part must be there."""
    for old, new in changes:
        assert old in text, old
        text = text.replace(old, new)
    return text


def renamed(text: str, names: dict[str, str]) -> str:
    """The text with whole words replaced, but for members such as `.T`."""
    return re.sub(r"(?<!\.)\b[A-Za-z_]\w*\b", lambda word: names.get(word[0], word[0]), text)


ATTENTION = (SAMPLES / "attention.tile").read_text(encoding="utf-8")
CAUSAL = replaced(ATTENTION, ("CAUSAL = false", "CAUSAL = true"))
GELU = (SAMPLES / "gemm_bias_gelu.tile").read_text(encoding="utf-8")

ATTENTION_NAMES = {
    "attention": "mixing", "q": "left", "k": "middle", "v": "right", "o": "mixed", "lse": "logs", "m": "top", "l": "norm",
    "acc": "total", "qi": "mine", "s": "score", "p": "weight", "alpha": "shrink", "ref": "base", "m_new": "top_next",
    "pos": "place", "b": "batch", "h": "head", "i": "band", "j": "column", "S": "LINES", "T": "COLUMNS", "BM": "TALL",
    "BN": "WIDE", "CAUSAL": "LOWER",
}  # fmt: skip
GELU_NAMES = {
    "gemm_bias_gelu": "layer", "a": "left", "b": "right", "bias": "shift", "c": "result", "acc": "total", "i": "band",
    "j": "column", "k": "depth", "M": "LINES", "N": "COLUMNS", "K": "DEPTH", "BM": "TALL", "BN": "WIDE", "BK": "DEEP",
    "gelu": "curve", "x": "value",
}  # fmt: skip

REORDERED = replaced(
    ATTENTION,
    (
        "        m   = full(f32, -inf, i)\n        l   = zeros(f32, i)\n        acc = zeros(f32, i, D)\n",
        "        acc = zeros(f32, i, D)\n        l   = zeros(f32, i)\n        m   = full(f32, -inf, i)\n",
    ),
    (
        "            p     = exp(s - ref[:, None])\n            alpha = exp(m - ref)\n",
        "            alpha = exp(m - ref)\n            p     = exp(s - ref[:, None])\n",
    ),
)
SPLIT = "fn weights(s, ref):\n    return exp(s - ref[:, None])\n\n" + replaced(
    ATTENTION,
    ("            p     = exp(s - ref[:, None])\n", "            p     = weights(s, ref)\n"),
)
FACTORS = replaced(
    ATTENTION,
    (
        "            s = (qi @ k[b, h // G, j, :].T) * scale",
        "            s = scale * (qi @ k[b, h // G, j, :].T)",
    ),
)
IDLE = replaced(
    ATTENTION,
    ("        l   = zeros(f32, i)\n", "        l   = zeros(f32, i)\n        idle = 0\n"),
    ("            m     = m_new\n", "            m     = m_new\n            idle = idle + 1\n"),
)
INLINED = replaced(
    GELU,
    (
        "        c[i, j] = gelu(acc + bias[j])",
        "        x = acc + bias[j]\n"
        "        c[i, j] = 0.5 * x * (1.0 + tanh(0.7978845608 * (x + 0.044715 * x * x * x)))",
    ),
)
SWAPPED = replaced(GELU, ("gelu(acc + bias[j])", "gelu(bias[j] + acc)"))

VARIANTS = {
    "attention, reordered": (ATTENTION, REORDERED),
    "attention, a part as a function": (ATTENTION, SPLIT),
    "attention, factors swapped": (ATTENTION, FACTORS),
    "attention, an idle carried scalar": (ATTENTION, IDLE),
    "causal attention, the mask the other way round": (
        CAUSAL,
        replaced(CAUSAL, ("pos[:, None] >= j[None, :]", "j[None, :] <= pos[:, None]")),
    ),
    "gemm, the function inlined": (GELU, INLINED),
    "gemm, summands swapped": (GELU, SWAPPED),
}


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
@pytest.mark.parametrize("name", list(VARIANTS))
def test_other_words_are_compiled_alike(name: str, arch: str, tmp_path: Path) -> None:
    one, other = VARIANTS[name]
    assert one != other
    assert decisions(one, tmp_path, arch) == decisions(other, tmp_path, arch)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90", "sm_90a"])
@pytest.mark.parametrize("names", [ATTENTION_NAMES, GELU_NAMES], ids=["attention", "gemm"])
def test_other_names_are_compiled_alike(names: dict[str, str], arch: str, tmp_path: Path) -> None:
    text = ATTENTION if names is ATTENTION_NAMES else GELU
    other = renamed(text, names)
    assert other != text
    back = {new: old for old, new in names.items()}
    assert decisions(text, tmp_path, arch) == decisions(other, tmp_path, arch, back)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
def test_another_program_is_not_compiled_alike(arch: str, tmp_path: Path) -> None:
    other = replaced(ATTENTION, ("BM = auto, BN = auto", "BM = 64, BN = 64"))
    assert decisions(ATTENTION, tmp_path, arch) != decisions(other, tmp_path, arch)
    scaled = replaced(ATTENTION, ("m + log(l)", "m - log(l)"))
    one, two = (loosely(skeleton(text, tmp_path, arch)) for text in (ATTENTION, scaled))
    assert one != two


# ---- the text

KEPT = frozenset(
    "for if else while const int float bool return static_cast int64_t uint64_t auto true false int32_t unsigned void".split()
)


def skeleton(text: str, folder: Path, arch: str) -> list[str]:
    """Statements of the kernels with every name but those that are called replaced by one word, without comments, in order."""
    path = folder / "program.tile"
    path.write_text(text, encoding="utf-8")
    compiled = compile_file(str(path), archs=(arch,))
    kernel = compiled.kernels[0].name
    parts = []
    for found in kernel_texts(compiled.cu):
        plain = re.sub(r"//[^\n]*", "", found.text).replace(kernel, "kernel")
        parts.append(plain)
    words = re.sub(
        r"\b[A-Za-z_]\w*\b(?![(<])",
        lambda word: word[0] if word[0] in KEPT else "x",
        "\n".join(parts),
    )
    return [" ".join(part.split()) for part in re.split(r"[;{}]", words) if part.strip()]


def loosely(statements: list[str]) -> list[str]:
    """Statements in any order, each with its words in any order."""
    return sorted(" ".join(sorted(re.findall(r"\w+|[^\w\s]", part))) for part in statements)


SAME_ORDER = {
    "attention, a part as a function",
    "attention, an idle carried scalar",
    "gemm, the function inlined",
}
# a comparison the other way round has another sign
SAME_WORDS = [name for name in VARIANTS if "mask" not in name]


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("name", SAME_WORDS)
def test_other_words_give_the_same_text(name: str, arch: str, tmp_path: Path) -> None:
    one, other = (skeleton(text, tmp_path, arch) for text in VARIANTS[name])
    assert one == other or name not in SAME_ORDER
    assert loosely(one) == loosely(other)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90a"])
@pytest.mark.parametrize("names", [ATTENTION_NAMES, GELU_NAMES], ids=["attention", "gemm"])
def test_other_names_give_the_same_text(names: dict[str, str], arch: str, tmp_path: Path) -> None:
    text = ATTENTION if names is ATTENTION_NAMES else GELU
    one, other = (skeleton(t, tmp_path, arch) for t in (text, renamed(text, names)))
    # constants and parameters are sorted by name
    assert loosely(one) == loosely(other)
