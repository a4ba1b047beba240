"""The blocks of device primitives: their format, what a kernel text needs of them, and that all of them compile."""

from __future__ import annotations

import subprocess
import time
from pathlib import Path

import pytest

from tests.emit.device_program import gpu_source
from tilec.emit.primitives import (
    FILES,
    Block,
    PrimitiveFormatError,
    closure,
    identifiers,
    includes,
    load_primitives,
    parse_blocks,
)
from tilec.resources import resource_path, resource_text
from tilec.toolchain.nvcc import find_nvcc


def names(text: str) -> list[str]:
    return [block.name for block in closure(text)]


def test_a_block_has_a_name_clauses_and_text() -> None:
    text = (
        "//! about the file\n\n"
        "//@ primitive f extends g with a b needs h\n//@ includes <x> <y>\n"
        "/// Kept.\n//! Not kept.\nint f();\n//@ end\n"
    )
    assert parse_blocks(text, "file") == [
        Block("f", ("h",), ("<x>", "<y>"), "/// Kept.\nint f();", "g", ("a", "b"))
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("int x;\n", "file:1: text outside a block"),
        ("//@ end\n", "file:1: `//@ end` without a block"),
        ("//@ primitive a\n//@ primitive b\n", "file:2: a block inside a block"),
        ("//@ primitive a\nint a;\n//@ needs b\n", "file:3: unexpected `//@`"),
        ("//@ primitive a\n", "file: the last block has no `//@ end`"),
        ("//@ primitive\n//@ end\n", "file:2: a block without a name"),
        ("//@ primitive a b\n//@ end\n", "file:2: `b` belongs to no clause"),
        ("//@ primitive a extends b\n//@ end\n", "file:2: `extends` takes one name and a `with`"),
    ],
)
def test_malformed_blocks_are_refused(text: str, message: str) -> None:
    with pytest.raises(PrimitiveFormatError) as caught:
        parse_blocks(text, "file")
    assert str(caught.value) == message


def test_a_kernel_gets_what_it_names_and_what_that_needs() -> None:
    assert names("y[i] = exp_fast(x[i]);") == ["exp2_approx", "exp_fast"]
    assert names('// exp_fast\n/* convert */ f("Vector");') == []


def test_extensions_need_the_base_and_the_type() -> None:
    wide = names("convert<float>(x)")
    assert "convert" in wide
    assert not [name for name in wide if "f16" in name]
    narrow = names("const bf16_t* x; convert<float>(*x)")
    assert "widen_bf16" in narrow and "widen_f16" not in narrow
    assert "bf16_t" in names("bf16_t x;") and "convert_bf16" not in names("bf16_t x;")


def test_includes_are_sorted_and_unique() -> None:
    blocks = closure("Vector<bf16_t, 8> v = load_vector<16, 8>(p);")
    assert includes(blocks) == ["<cstdint>", "<cstring>"]


def test_needs_are_exactly_what_a_block_names() -> None:
    blocks = load_primitives().blocks
    for block in blocks.values():
        named = {name for name in identifiers(block.text) if name in blocks}
        implied = {block.name, block.extends, *block.condition}
        needed = {name for name in block.needs if not blocks[name].extends}
        assert named - implied == needed, block.name


def test_files_are_listed_and_lines_fit() -> None:
    folder = resource_path("templates", f"device/{FILES[0]}").parent
    assert sorted(path.name for path in folder.glob("*.cuh")) == sorted(FILES)
    for file in FILES:
        for number, line in enumerate(resource_text("templates", f"device/{file}").splitlines(), 1):
            assert len(line) <= 100, f"{file}:{number}"


def test_the_closure_is_fast() -> None:
    load_primitives()
    text = "convert exp_fast load_vector store_vector lane_reduce OpSum bf16_t f16_t\n" * 200
    start = time.perf_counter()
    closure(text)
    assert time.perf_counter() - start < 0.05


@pytest.mark.parametrize("arch", ["sm_75", "sm_90"])
def test_every_primitive_compiles_without_warning_spill_or_stack(tmp_path: Path, arch: str) -> None:
    text = gpu_source()
    used = {block.name for block in closure(text)}
    tensor = {
        block.name
        for file in ("tensor.cuh", "products.cuh")
        for block in parse_blocks(resource_text("templates", f"device/{file}"), file)
    }
    assert [name for name in load_primitives().blocks if name not in used | tensor] == []
    source = tmp_path / "all.cu"
    source.write_text(text, encoding="utf-8")
    command = [str(find_nvcc().path), "-std=c++17", f"-arch={arch}", "-cubin", "-Xptxas", "-v"]
    command += ["-Werror", "all-warnings", "-o", str(tmp_path / "all.cubin"), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-4000:]
    frames = [line.strip() for line in done.stderr.splitlines() if "bytes stack frame" in line]
    assert len(frames) > 100
    clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads"
    assert [line for line in frames if line != clean] == []
