"""`compile --tuned` and `run --tuned`: several tuned variants in one file."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest

from tests.cli.conftest import Command
from tests.tuning.conftest import program
from tilec.compiler import analyse_file
from tilec.compiler import compile_file as whole_compiler
from tilec.plan.candidate import Choice
from tilec.tuning.records import Best, Found, Subject, Trial, append, choice_name, found_json
from tilec.tuning.subjects import program_hash

EMULATED = ("--device", "cpu", "--arch", "sm_90")

ROWS = """\
kernel sums[BR = 4, BC = 32](x: f32[R, C], bias: f32[R]) -> (y: f32[R], z: f32[R, C]):
    tune BR in (1, 8), BC in (64, 128), warps in (1, 2) key (R, C)
    for r in parallel(R by BR):
        total = zeros(f32, r)
        for c in range(C by BC):
            total += sum(x[r, c], axis=1)
        y[r] = total
    for r, c in parallel(R by BR, C by BC):
        z[r, c] = x[r, c] + bias[r][:, None]
    check y == sum(x, axis=1)
    check z == x + bias[:, None]
    example cpu R = 20, C = 70
"""


@pytest.fixture(autouse=True)
def no_gpu(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    from tilec.toolchain.driver import Driver

    monkeypatch.setattr(
        "tilec.toolchain.driver.query_driver", lambda: Driver(None, (), "no driver")
    )
    monkeypatch.setattr("tilec.compiler.compile_file", whole_compiler)
    (folder / "t.tile").write_text(program("one"))
    (folder / "rows.tile").write_text(ROWS)


def record(file: str, kernel: str, arch: str, best: dict[tuple[int, ...], Choice]) -> None:
    """Finished searches beside a file; at each size the best takes half the time of the untuned candidate."""
    files, found, _ = analyse_file(file, kernel=kernel)
    names = [d.name for d in found[0].program.dims]
    for sizes, choice in best.items():
        key = dict(zip(names, sizes, strict=True))
        hashed = program_hash(files, found[0])
        subject = Subject(kernel, hashed, key, key, {}, "H200", arch, "13.0.88", "0.1.0")
        trials = {choice_name(c): Trial(c, "ok", us) for c, us in (({}, 2.0), (choice, 1.0))}
        append(Path(file + ".tuning"), *found_json(Found(subject, trials, Best(choice, 1.0, 2.0))))


def outcomes(tilec: Command, *arguments: str) -> dict[str, list[str]]:
    """What each call of a run on the emulator launched, by its sizes; every one verified."""
    status, out, err = tilec("run", *arguments, *EMULATED, "--tuned", "--json", "-")
    assert status == 0, err + out
    found = json.loads(out)["outcomes"]
    assert all(o["status"] == "ok" for o in found)
    return {o["sizes"]: o["variants"] for o in found}


def test_each_size_reaches_its_variant_and_verifies(tilec: Command) -> None:
    record("t.tile", "one", "sm_90", {(100,): {"BN": 64}, (1000,): {}, (9000,): {"BN": 128}})
    sizes = {100: "1", 97: "1", 1000: "", 700: "", 5000: "2", 9000: "2", 7: "", 40000: ""}
    # of two variants the one whose text sorts first has the first number
    numbers = {"1": "_tuned2", "2": "_tuned1", "": ""}
    named = ",".join(map(str, sizes))
    launched = outcomes(tilec, "t.tile", "-s", f"N={named}")
    for size, variant in sizes.items():
        (kernel,) = launched[f"N={size}"]
        assert re.search(r"(_tuned\d)?$", kernel).group() == numbers[variant], size  # type: ignore[union-attr]


def test_a_tuned_variant_has_its_own_variants_by_alignment(tilec: Command) -> None:
    """Every kernel of every variant runs, and nothing else is launched: those for aligned rows, those for any, of two nests."""
    record(
        "rows.tile",
        "sums",
        "sm_90",
        {(16, 64): {"BR": 8, "BC": 64, "warps": 1}, (40, 200): {"BR": 1, "BC": 128, "warps": 2}},
    )
    found = outcomes(tilec, "rows.tile", "--small")
    found |= outcomes(tilec, "rows.tile", "-s", "R=16,15,41,40", "-s", "C=64,63,199,200")
    launched = {kernel for kernels in found.values() for kernel in kernels}
    assert tilec("compile", "rows.tile", "--arch", "sm_90", "--tuned")[0] == 0
    declared = set(re.findall(r"^(sums_\w+)\(const", Path("rows.cu").read_text(), re.MULTILINE))
    assert launched == declared
    assert {k.rpartition("_")[2] for k in launched} >= {"tuned1", "tuned2"}
    assert any("_any_" in k for k in launched)
    assert any(kernels for kernels in found.values())
    # a call never mixes the nests of two variants
    for kernels in found.values():
        assert len({re.sub(r".*?(tuned\d)?$", r"\1", k) for k in kernels}) <= 1


def test_the_table_says_which_variant_a_call_took(tilec: Command) -> None:
    record("t.tile", "one", "sm_90", {(100,): {"BN": 64}})
    status, out, _ = tilec("run", "t.tile", *EMULATED, "--tuned", "-s", "N=100")
    assert status == 0
    assert "tuned variant 1: BN=64" in out
    status, out, _ = tilec("run", "t.tile", *EMULATED, "--tuned", "-s", "N=3000")
    assert status == 0
    assert "the general variant" in out


def test_the_launcher_selects_and_its_header_is_the_same(tilec: Command, folder: Path) -> None:
    record("t.tile", "one", "sm_90", {(100,): {"BN": 64}})
    plain = ("compile", "t.tile", "--arch", "sm_90", "--header")
    assert tilec(*plain, "plain.h", "--no-tuned")[0] == 0
    assert tilec(*plain, "tuned.h", "--tuned", "-MD")[0] == 0
    assert (folder / "plain.h").read_bytes() == (folder / "tuned.h").read_bytes()
    text = (folder / "t.cu").read_text()
    assert "// tilec compile t.tile --arch sm_90 --tuned" in text
    assert re.search(r"// Sizes \(N\) that were tuned for.*\{\{100\}, 1\},", text, re.DOTALL)
    assert re.search(r"if \(tuned == 1\) \{\n +// BN=64\n", text)
    assert re.search(r"\} else \{\n +// the general variant\n", text)
    assert "t.tile.tuning" in (folder / "t.d").read_text()
    before = text
    assert tilec(*plain, "tuned.h", "--tuned")[0] == 0
    assert (folder / "t.cu").read_text() == before


def test_as_many_variants_as_asked_for(tilec: Command, folder: Path) -> None:
    best: dict[tuple[int, ...], Choice] = {(100,): {"BN": 64}, (9000,): {"BN": 128}}
    record("t.tile", "one", "sm_90", best)
    assert tilec("compile", "t.tile", "--arch", "sm_90", "--tuned", "--variants", "1")[0] == 0
    assert set(re.findall(r"tuned == (\d)", (folder / "t.cu").read_text())) == {"1"}
    assert tilec("compile", "t.tile", "--arch", "sm_90", "--tuned")[0] == 0
    assert set(re.findall(r"tuned == (\d)", (folder / "t.cu").read_text())) == {"1", "2"}


def test_the_manifest_lists_sizes_and_variants(tilec: Command) -> None:
    record("t.tile", "one", "sm_90", {(100,): {"BN": 64}})
    status, out, _ = tilec(
        "compile", "t.tile", "--arch", "sm_80", "--arch", "sm_90", "--tuned", "--emit", "manifest"
    )
    assert status == 0
    tuned = json.loads(out)["kernels"][0]["tuned"]
    assert tuned["key"] == ["N"]
    assert list(tuned["targets"]) == ["sm_90"]
    target = tuned["targets"]["sm_90"]
    assert target["points"] == [{"sizes": [100], "variant": 1}]
    (variant,) = target["variants"]
    assert variant["choice"] == "BN=64"
    assert len(variant["decisions"]) == 2


def test_a_variant_that_does_not_fit_any_more_is_left_out_with_a_warning(tilec: Command) -> None:
    Path("big.tile").write_text(
        "kernel big[BM = 64, BN = 64](a: bf16[M, N], b: bf16[N, K]) -> c: bf16[M, K]:\n"
        "    tune BM in (64, 512), BN in (64, 512) key (M, N, K)\n"
        "    for i, j in parallel(M by BM, K by BN):\n"
        "        acc = zeros(f32, i, j)\n"
        "        for k in range(N by 32):\n"
        "            acc += a[i, k] @ b[k, j]\n"
        "        c[i, j] = acc\n"
    )
    record("big.tile", "big", "sm_90", {(64, 64, 64): {"BM": 512, "BN": 512}})
    status, _, err = tilec("compile", "big.tile", "--arch", "sm_90", "--tuned")
    assert status == 0
    assert "warning[W0605]: `big` has no variant `BM=512 BN=512` for sm_90" in err
    assert "tuned" not in Path("big.cu").read_text().partition("#include")[2]


PARTS = """\
kernel parts[P = 4](x: f32[N]) -> y: f32[N]:
    tune P in (2, 8) key (N)
    temp t: f32[P, N]
    for p, i in parallel(P, N by 128):
        t[p, i] = x[i] * 2.0
    for i in parallel(N by 256):
        y[i] = t[0, i] + t[P - 1, i]
    check y == x * 4.0
    example cpu N = 300

kernel shaped[D = 64](x: f32[N, D]) -> y: f32[N, D]:
    tune D in (64, 128) key (N)
    for i in parallel(N by 8):
        y[i, :] = x[i, :] * 2.0
"""


def test_the_workspace_suits_every_variant(tilec: Command) -> None:
    Path("p.tile").write_text(PARTS)
    record("p.tile", "parts", "sm_90", {(100,): {"P": 2}, (5000,): {"P": 8}})
    launched = outcomes(tilec, "p.tile", "parts", "-s", "N=100,700,5000,100000")
    tuned = {n: re.findall(r"tuned\d", " ".join(kernels)) for n, kernels in launched.items()}
    assert tuned == {
        "N=100": ["tuned1"] * 2,
        "N=700": [],
        "N=5000": ["tuned2"] * 2,
        "N=100000": [],
    }


def test_a_variant_with_other_arguments_is_left_out(tilec: Command) -> None:
    Path("p.tile").write_text(PARTS)
    record("p.tile", "shaped", "sm_90", {(100,): {"D": 128}})
    status, _, err = tilec("compile", "p.tile", "shaped", "--arch", "sm_90", "--tuned")
    assert status == 0
    assert (
        "warning[W0605]: `shaped` has no variant `D=128` for sm_90: it has other arguments" in err
    )


def test_what_was_tuned_for_another_architecture_is_a_warning(tilec: Command) -> None:
    record("t.tile", "one", "sm_90a", {(100,): {"BN": 64}})
    for more in (("--tuned",), ()):
        status, _, err = tilec("compile", "t.tile", "--arch", "sm_90", *more)
        assert status == 0
        assert "warning[W0604]: no result of `tilec tune` for `one` holds for sm_90\n" in err
        assert "its results beside the source are for sm_90a" in err
    status, _, err = tilec("run", "t.tile", "--device", "cpu", "--arch", "sm_80")
    assert (status, "W0604" in err) == (0, True)
    status, _, err = tilec("explain", "t.tile", "--arch", "sm_90")
    assert (status, "W0604" in err) == (0, True)
    status, out, err = tilec("compile", "t.tile", "--arch", "sm_90a", "--emit", "manifest")
    assert (status, err) == (0, "")
    assert json.loads(out)["kernels"][0]["candidate"]["BN"] == "64"
    assert tilec("compile", "t.tile", "--arch", "sm_90", "--no-tuned")[2] == ""
    status, _, err = tilec("compile", "t.tile", "--arch", "sm_90", "--warnings-as-errors")
    assert (status, "W0604" in err) == (1, True)


def test_nothing_was_tuned(tilec: Command) -> None:
    status, _, err = tilec("compile", "t.tile", "--tuned")
    assert status == 0
    assert "W0604" in err
    assert "run `tilec tune` with `--arch sm_80`" in err


@pytest.mark.parametrize(
    "arguments",
    [
        ("--tuned", "--no-tuned"),
        ("--split",),
        ("--variants", "2"),
        ("--tuned", "--split", "--emit", "manifest"),
        ("--tuned", "--split", "-o", "-"),
    ],
)
def test_options_that_exclude_each_other(tilec: Command, arguments: tuple[str, ...]) -> None:
    status, _, err = tilec("compile", "t.tile", *arguments)
    assert status == 2
    assert err.startswith("error[E0709]")


def test_each_variant_in_a_file_of_its_own(tilec: Command, folder: Path) -> None:
    record("t.tile", "one", "sm_90", {(100,): {"BN": 64}, (9000,): {"BN": 128}})
    command = ("compile", "t.tile", "--arch", "sm_90", "--tuned", "--split", "-o", "out.cu", "-MD")
    status, out, err = tilec(*command)
    assert (status, err) == (0, "")
    names = ["out.cu", "out.one_general.cu", "out.one_tuned1.cu", "out.one_tuned2.cu"]
    assert out.splitlines() == names
    assert {n: (folder / n).read_text().count("__global__") for n in names} == {
        "out.cu": 0,
        "out.one_general.cu": 2,
        "out.one_tuned1.cu": 2,
        "out.one_tuned2.cu": 2,
    }
    assert (folder / "out.d").read_text().startswith(" ".join(names) + ":")


def test_a_kernel_that_has_the_name_of_a_variant_in_a_file_of_its_own(tilec: Command) -> None:
    Path("t.tile").write_text(program("one") + program("one_tuned1"))
    record("t.tile", "one", "sm_90", {(100,): {"BN": 64}})
    options = ("compile", "t.tile", "--arch", "sm_90", "--tuned", "--no-warnings")
    assert tilec(*options)[0] == 0
    status, _, err = tilec(*options, "--split")
    assert (status, "E0517" in err) == (1, True)
